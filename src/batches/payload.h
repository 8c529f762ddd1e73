/* What is inside an entry: a safetensors file, which any program can read.
 *
 *     encoded   "file" U8 (bytes); metadata label, name
 *     decoded   "pixels" U8 (height, width, 3), or (channels, height, width) of images that were never files; metadata label, name
 *     batch     "images" F32 (count, C, H, W), 64-byte aligned in the entry; "labels" I64 (count); metadata number, epoch, bad
 *
 * A sample that cannot be read is an item too, so that everybody gets the same answer: metadata "error" has the cause
 * and there is no tensor. A batch's metadata "bad" lists, as JSON, samples in it that were replaced: [[sample, name, cause], ...]. */
#ifndef FTH_BATCHES_PAYLOAD_H
#define FTH_BATCHES_PAYLOAD_H

#include "batches/item.h"

typedef struct fth_sample_payload {
    fth_item_kind kind;   /* FTH_ITEM_ENCODED or FTH_ITEM_DECODED */
    const uint8_t *bytes; /* the file; or pixels, row after row */
    uint64_t size_bytes;
    int width, height, channels;
    bool planar; /* (channels, height, width) */
    int32_t label;
    const char *name;  /* of the sample, for messages */
    const char *error; /* NULL: it can be read */
} fth_sample_payload;

typedef struct fth_batch_payload {
    const float *images;   /* (count, channels, height, width) */
    const int64_t *labels; /* (count) */
    int64_t count, number, epoch;
    int channels, height, width;
    const char *bad; /* JSON; NULL: none */
} fth_batch_payload;

/* Bytes of a whole entry, header included. */
uint64_t fth_sample_entry_bytes(const fth_sample_payload *sample);
uint64_t fth_batch_entry_bytes(const fth_batch_payload *batch);
/* Writes an entry of that size, and seals it. */
fth_status fth_sample_entry_write(const fth_sample_payload *sample, fth_item_id id, void *entry, fth_receipt *receipt);
/* For a batch that is made in place: lays out the entry, and says where images and labels go; seal with
 * fth_batch_entry_finish(). */
fth_status fth_batch_entry_begin(const fth_batch_payload *batch, void *entry, uint64_t size_bytes, float **images,
                                 int64_t **labels);
fth_status fth_batch_entry_finish(void *entry, uint64_t size_bytes, fth_item_id id, const char *bad,
                                  fth_receipt *receipt);

/* Reads a checked entry; what is given points into it. Text is copied to `text`, which the caller free()s. FTH_CORRUPT for
 * what is no such payload. */
fth_status fth_sample_entry_read(const void *entry, uint64_t size_bytes, fth_sample_payload *sample, char **text);
fth_status fth_batch_entry_read(const void *entry, uint64_t size_bytes, fth_batch_payload *batch, char **text);

#endif
