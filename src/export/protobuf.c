/* See protobuf.h; the encoding is at protobuf.dev/programming-guides/encoding. */
#include "export/protobuf.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, LENGTH_DELIMITED = 2, FIXED_32 = 5 };

void fth_protobuf_release(fth_protobuf *message)
{
    free(message->bytes);
    *message = (fth_protobuf){0};
}

fth_status fth_protobuf_check(const fth_protobuf *message)
{
    return message->failed ? fth_fail(FTH_NO_MEMORY, "no memory for a model file") : FTH_OK;
}

void fth_protobuf_append(fth_protobuf *message, const void *bytes, size_t size_bytes)
{
    if (message->failed || size_bytes == 0)
        return;
    if (message->capacity - message->size_bytes < size_bytes) {
        size_t capacity = 2 * message->capacity + size_bytes + 64;
        uint8_t *grown = realloc(message->bytes, capacity);
        if (!grown) {
            message->failed = true;
            return;
        }
        message->bytes = grown;
        message->capacity = capacity;
    }
    memcpy(message->bytes + message->size_bytes, bytes, size_bytes);
    message->size_bytes += size_bytes;
}

static void append_varint(fth_protobuf *message, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;
    do {
        bytes[count] = (uint8_t)(value & 127);
        value >>= 7;
        bytes[count++] |= value ? 128 : 0;
    } while (value);
    fth_protobuf_append(message, bytes, count);
}

static void append_tag(fth_protobuf *message, int field, int type)
{
    append_varint(message, (uint64_t)field << 3 | (uint64_t)type);
}

void fth_protobuf_add_integer(fth_protobuf *message, int field, int64_t value)
{
    append_tag(message, field, VARINT);
    append_varint(message, (uint64_t)value);
}

void fth_protobuf_add_float(fth_protobuf *message, int field, float value)
{
    append_tag(message, field, FIXED_32);
    fth_protobuf_append(message, &value, sizeof value); /* little-endian, as everything farthing runs on */
}

void fth_protobuf_begin_bytes(fth_protobuf *message, int field, uint64_t size_bytes)
{
    append_tag(message, field, LENGTH_DELIMITED);
    append_varint(message, size_bytes);
}

void fth_protobuf_add_text(fth_protobuf *message, int field, const char *text)
{
    fth_protobuf_begin_bytes(message, field, strlen(text));
    fth_protobuf_append(message, text, strlen(text));
}

void fth_protobuf_add_message(fth_protobuf *message, int field, fth_protobuf *inner)
{
    fth_protobuf_begin_bytes(message, field, inner->size_bytes);
    fth_protobuf_append(message, inner->bytes, inner->size_bytes);
    message->failed = message->failed || inner->failed;
    fth_protobuf_release(inner);
}
