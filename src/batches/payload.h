/* What is inside an entry: a safetensors file, which any program can read.
 *
 *     encoded   "file" U8 (bytes); metadata label, name
 *     decoded   "pixels" U8 (height, width, channels), or "planes" U8 (channels, height, width) of images that were never
 *               files; metadata label, name
 *     batch     "labels" I64 (count), "images" F32 (count, C, H, W), "bad" U8 (bytes); metadata number, epoch
 *
 * Bytes, pixels and images begin at a 64-byte boundary of the entry.
 *
 * A sample that cannot be read is an item too, so that everybody gets the same answer: metadata
 * "error" has the cause and there is no tensor. A batch's "bad" lists, as JSON and padded with
 * spaces, samples in it that were replaced: [[sample, name, cause], ...]. It is as long in every
 * batch of a shape, so that these take each other's places in memory. */
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
    const char *bad; /* JSON, not checked; NULL: none */
} fth_batch_payload;

/* Bytes of a whole entry, header included; 0 if there is no memory to work it out, or if it is far
 * too large. */
uint64_t fth_sample_entry_bytes(const fth_sample_payload *sample);
uint64_t fth_batch_entry_bytes(const fth_batch_payload *batch);
/* Writes an entry of that size, and seals it. */
fth_status fth_sample_entry_write(const fth_sample_payload *sample, fth_item_id id, void *entry, fth_receipt *receipt);
/* For a batch that is made in place: lays out an entry of that size, and says where images and
 * labels go. `bad` is not looked at. */
fth_status fth_batch_entry_begin(const fth_batch_payload *batch, void *entry, uint64_t size_bytes, float **images,
                                 int64_t **labels);
/* Seals it. Names and causes in `bad` are cut where there is no room for all of them; FTH_INVALID
 * if it lists more samples than the batch has. */
fth_status fth_batch_entry_finish(void *entry, uint64_t size_bytes, fth_item_id id, const char *bad,
                                  fth_receipt *receipt);

/* Read an entry that has been checked (item.h), and believe nothing in it all the same: FTH_CORRUPT
 * for what is no such payload. What is given points into it. Text is copied to `text`, which the
 * caller free()s, on success only. */
fth_status fth_sample_entry_read(const void *entry, uint64_t size_bytes, fth_sample_payload *sample, char **text);
fth_status fth_batch_entry_read(const void *entry, uint64_t size_bytes, fth_batch_payload *batch, char **text);

#endif
