/* Sets of image files (image_set.c), and the path of a sample from encoded bytes to a normalized
 * tensor (image_sample.c). */
#ifndef FTH_DATA_IMAGE_SET_H
#define FTH_DATA_IMAGE_SET_H

#include "data/data_internal.h"
#include "data/image/decode.h"
#include "data/image/decoded_cache.h"
#include "data/image/resample.h"
#include "data/source/image_source.h"

typedef struct fth_image_set {
    fth_image_index index;
    fth_image_source places;
    char *source;             /* for messages */
    fth_decoded_cache *cache; /* NULL: none */
} fth_image_set;

/* The image set behind a data set; NULL: it is of another kind. */
fth_image_set *fth_dataset_images(const fth_dataset *dataset);
/* The entry of a sample. */
size_t fth_image_set_find(const fth_dataset *dataset, fth_split split, int64_t sample);

/* One thread's decoder and buffers. */
struct fth_image_worker {
    fth_decoder *decoder;
    fth_resampler resampler;
    fth_pixel_buffer file; /* encoded bytes that are not mapped, or a copy of pixels */
    fth_patience patience; /* for samples that have to be fetched */
    double read_seconds;   /* total time of reading encoded bytes, with waiting */
    double fetch_seconds;  /* total time of getting them, also by other threads ahead of need */
    double decode_seconds; /* total time in decoders */
};
fth_status fth_image_worker_create(fth_image_worker **worker);
void fth_image_worker_free(fth_image_worker *worker);

/* The encoded bytes of an entry, in place or in the worker's buffer. */
fth_status fth_image_set_read(const fth_image_set *set, size_t entry, fth_image_worker *worker, const uint8_t **bytes,
                              size_t *size_bytes);
/* For reading all entries in order: call it for each entry, and the next ones are fetched ahead. */
void fth_image_set_expect_next(const fth_image_set *set, size_t entry);
/* The stored form of an entry: encoded; or decoded, if the set keeps decoded images. Such a set
 * decodes all images whole, so that results do not depend on which ones are kept. */
fth_status fth_image_set_load(const fth_image_set *set, size_t entry, fth_image_worker *worker, fth_raw_sample *raw);
/* Decodes an image file whole, at full size. *picture lives until the worker decodes again. */
fth_status fth_image_decode_whole(fth_image_worker *worker, const uint8_t *bytes, size_t size_bytes,
                                  fth_picture *picture);
/* An encoded image through a transform. It is decoded only as far as the transform needs, so the
 * result differs slightly from that of the whole picture. */
fth_status fth_encoded_transform(const uint8_t *bytes, size_t size_bytes, fth_image_worker *worker,
                                 const fth_transform *transform, const fth_normalization *normalization,
                                 fth_random_key key, float *planes);
/* Makes a raw sample of a decoded picture. */
void fth_raw_sample_set_picture(fth_raw_sample *raw, const fth_picture *picture);
/* A stored sample through a transform; FTH_CORRUPT if its size is wrong. */
fth_status fth_raw_sample_transform(const fth_raw_sample *raw, fth_image_worker *worker, const fth_transform *transform,
                                    const fth_normalization *normalization, fth_random_key key, float *planes);
#endif
