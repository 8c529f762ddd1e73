/* The payload of an entry: a safetensors file, which any program can read.
 *
 *     encoded   "file" U8 (bytes); metadata label, name
 *     decoded   "pixels" U8 (height, width, channels), or "planes" U8 (channels, height, width) if
 *               the images were never files; metadata label, name
 *     batch     "labels" I64 (count), "images" F32 (count, C, H, W), "bad" U8 (bytes); metadata
 *               number, epoch
 *
 * File, pixels and images begin at a 64-byte boundary of the entry.
 *
 * An unreadable sample is an item, too, so that every job gets the same answer: it has the cause in
 * metadata "error" and no tensor. A batch's "bad" lists the samples that were replaced, as JSON
 * padded with spaces: [[sample, name, cause], ...]. It has the same length in all batches of one
 * shape, so that these can take each other's place in memory. */
#ifndef FTH_BATCHES_PAYLOAD_H
#define FTH_BATCHES_PAYLOAD_H

#include "batches/item.h"

typedef struct fth_sample_payload {
    fth_item_kind kind;   /* FTH_ITEM_ENCODED or FTH_ITEM_DECODED */
    const uint8_t *bytes; /* the file; or pixels, row by row */
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
    const char *bad; /* JSON, unchecked; NULL: none */
} fth_batch_payload;

/* Bytes of a whole entry with its header; 0 if there is no memory to compute it, or if it is far
 * too large. */
uint64_t fth_sample_entry_bytes(const fth_sample_payload *sample);
uint64_t fth_batch_entry_bytes(const fth_batch_payload *batch);
/* Writes and seals an entry of that size. */
fth_status fth_sample_entry_write(const fth_sample_payload *sample, fth_item_id id, void *entry, fth_receipt *receipt);
/* For a batch made in place: lays out an entry of that size, and gives the places of images and
 * labels. Ignores `bad`. */
fth_status fth_batch_entry_begin(const fth_batch_payload *batch, void *entry, uint64_t size_bytes, float **images,
                                 int64_t **labels);
/* Seals the entry. Names and causes in `bad` are shortened to fit; FTH_INVALID if it lists more
 * samples than the batch has. */
fth_status fth_batch_entry_finish(void *entry, uint64_t size_bytes, fth_item_id id, const char *bad,
                                  fth_receipt *receipt);

/* Read an entry that was checked (item.h), without trusting its contents: FTH_CORRUPT if it is not
 * such a payload. Results point into the entry. Strings are copied to `text`, which the caller
 * frees, on success only. */
fth_status fth_sample_entry_read(const void *entry, uint64_t size_bytes, fth_sample_payload *sample, char **text);
fth_status fth_batch_entry_read(const void *entry, uint64_t size_bytes, fth_batch_payload *batch, char **text);

#endif
