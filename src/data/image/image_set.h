/* Sets of image files (image_set.c), and the way of one sample from encoded bytes to a normalized
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

/* The image set that a data set is; NULL: it is none. */
fth_image_set *fth_dataset_images(const fth_dataset *dataset);
/* The number of an entry for a sample of a split. */
size_t fth_image_set_find(const fth_dataset *dataset, fth_split split, int64_t sample);

/* What one thread needs to turn entries into tensors. */
struct fth_image_worker {
    fth_decoder *decoder;
    fth_resampler resampler;
    fth_pixel_buffer file; /* the encoded bytes, where they are not mapped; or an image being drawn */
    fth_patience patience; /* with what has to be fetched */
    double read_seconds;   /* spent on reading encoded bytes so far, waiting included */
    double fetch_seconds;  /* what getting them took, also where other threads did it ahead of need */
    double decode_seconds; /* spent in decoders so far */
};
fth_status fth_image_worker_create(fth_image_worker **worker);
void fth_image_worker_free(fth_image_worker *worker);

/* The encoded bytes of an entry: where they lie, or in the worker's buffer. */
fth_status fth_image_set_read(const fth_image_set *set, size_t entry, fth_image_worker *worker, const uint8_t **bytes,
                              size_t *size_bytes);
/* For those who read all entries in order: called with each, it has the next ones fetched. */
void fth_image_set_expect_next(const fth_image_set *set, size_t entry);
/* The stored form of an entry: encoded, or decoded where the set keeps decoded images. */
fth_status fth_image_set_load(const fth_image_set *set, size_t entry, fth_image_worker *worker, fth_raw_sample *raw);
/* The bytes of an image file, decoded whole and at full size. *picture lives until the worker
 * decodes again. */
fth_status fth_image_decode_whole(fth_image_worker *worker, const uint8_t *bytes, size_t size_bytes,
                                  fth_picture *picture);
/* The bytes of an image file through a transform. They are decoded as far as the transform needs,
 * so the numbers differ a little from those of the whole picture. */
fth_status fth_encoded_transform(const uint8_t *bytes, size_t size_bytes, fth_image_worker *worker,
                                 const fth_transform *transform, const fth_normalization *normalization,
                                 fth_random_key key, float *planes);
/* Makes a raw sample of a decoded picture. */
void fth_raw_sample_set_picture(fth_raw_sample *raw, const fth_picture *picture);
/* A sample in its stored form through a transform; FTH_CORRUPT if its description is wrong. */
fth_status fth_raw_sample_transform(const fth_raw_sample *raw, fth_image_worker *worker, const fth_transform *transform,
                                    const fth_normalization *normalization, fth_random_key key, float *planes);
#endif
