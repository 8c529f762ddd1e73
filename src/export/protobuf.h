/* Protobuf messages, written field by field into growing memory.
 *
 * Once memory runs out a message stays failed, so that callers check once, at the end. */
#ifndef FTH_EXPORT_PROTOBUF_H
#define FTH_EXPORT_PROTOBUF_H

#include "base/base.h"

typedef struct fth_protobuf {
    uint8_t *bytes;
    size_t size_bytes, capacity;
    bool failed;
} fth_protobuf;

void fth_protobuf_release(fth_protobuf *message);
fth_status fth_protobuf_check(const fth_protobuf *message);

void fth_protobuf_add_integer(fth_protobuf *message, int field, int64_t value);
void fth_protobuf_add_float(fth_protobuf *message, int field, float value);
void fth_protobuf_add_text(fth_protobuf *message, int field, const char *text);
/* A message within a message; `inner` is released. */
void fth_protobuf_add_message(fth_protobuf *message, int field, fth_protobuf *inner);
/* The head of a field whose `size_bytes` bytes the caller writes himself. */
void fth_protobuf_begin_bytes(fth_protobuf *message, int field, uint64_t size_bytes);
/* Bytes as they are: the rest of a message made elsewhere. */
void fth_protobuf_append(fth_protobuf *message, const void *bytes, size_t size_bytes);

#endif
