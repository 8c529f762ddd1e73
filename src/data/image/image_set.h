/* Sets of image files (image_set.c), and the way of one sample from encoded bytes to a normalized
 * tensor (image_sample.c). */
#ifndef FTH_DATA_IMAGE_SET_H
#define FTH_DATA_IMAGE_SET_H

#include "data/image/bad_images.h"
#include "data/image/decode.h"
#include "data/image/decoded_cache.h"
#include "data/source/image_source.h"
#include "data/source/provider.h"
#include "data/image/resample.h"

struct fth_image_set {
    fth_image_index index;
    fth_image_source places;
    char *source; /* for messages */
    fth_bad_images *bad;

    fth_decoded_cache *cache; /* NULL: none */
};

void fth_image_set_free(fth_image_set *set);
/* The number of an entry for a sample of a split. */
size_t fth_image_set_find(const fth_dataset *dataset, fth_split split, int64_t sample);

/* What one thread needs to turn entries into tensors. */
typedef struct fth_image_worker {
    fth_decoder *decoder;
    fth_resampler resampler;
    fth_pixel_buffer file;   /* the encoded bytes, where they are not mapped; or an image being drawn */
    fth_patience patience;   /* with what has to be fetched */
    double read_seconds;     /* spent on reading encoded bytes so far, waiting included */
    double fetch_seconds;    /* what getting them took, also where other threads did it ahead of need */
    double decode_seconds;   /* spent in decoders so far */
} fth_image_worker;
fth_status fth_image_worker_create(fth_image_worker **worker);
void fth_image_worker_free(fth_image_worker *worker);

/* The encoded bytes of an entry: where they lie, or in the worker's buffer. */
fth_status fth_image_set_read(const fth_image_set *set, size_t entry, fth_image_worker *worker, const uint8_t **bytes,
                              size_t *size_bytes);
/* For those who read all entries in order: called with each, it has the next ones fetched. */
void fth_image_set_expect_next(const fth_image_set *set, size_t entry);
/* Adds what decides the images' pixels to a version. */
fth_status fth_image_set_add_version(const fth_image_set *set, fth_version_hash *hash);
/* One entry through a transform. */
fth_status fth_image_set_transform(const fth_image_set *set, size_t entry, fth_image_worker *worker,
                                   const fth_transform *transform, const fth_normalization *normalization,
                                   fth_random_key key, float *planes);
/* The bytes of an image file, decoded whole and at full size. *picture lives until the worker
 * decodes again. */
fth_status fth_image_decode_whole(fth_image_worker *worker, const uint8_t *bytes, size_t size_bytes,
                                  fth_picture *picture);
/* The bytes of an image file, or a whole picture, through a transform. What is made from bytes has
 * been decoded as far as the transform needs: the numbers differ a little from those of the whole
 * picture. */
fth_status fth_encoded_transform(const uint8_t *bytes, size_t size_bytes, fth_image_worker *worker,
                                 const fth_transform *transform, const fth_normalization *normalization,
                                 fth_random_key key, float *planes);
fth_status fth_picture_transform(const fth_picture *picture, fth_image_worker *worker, const fth_transform *transform,
                                 const fth_normalization *normalization, fth_random_key key, float *planes);
/* A sample that somebody provides through a transform; FTH_CORRUPT if it is not what it says. */
fth_status fth_raw_sample_transform(const fth_raw_sample *raw, fth_image_worker *worker, const fth_transform *transform,
                                    const fth_normalization *normalization, fth_random_key key, float *planes);
/* An image in memory, (channels, height, width), through a transform. */
typedef struct fth_pixels {
    const uint8_t *bytes;
    int channels, height, width;
} fth_pixels;
fth_status fth_pixels_transform(const fth_pixels *pixels, fth_resampler *resampler, const fth_transform *transform,
                                const fth_normalization *normalization, fth_random_key key, float *planes);

/* A sample of any set through a transform. An unreadable image file is replaced by the next sample
 * of the set that can be read; too many of them are an error. */
fth_status fth_sample_transform(const fth_dataset *dataset, fth_split split, int64_t sample,
                                const fth_transform *transform, fth_random_key key, fth_image_worker *worker,
                                float *planes, int32_t *label);

/* A sample as bytes, through the validation transform; makes a worker of its own. */
fth_status fth_sample_read(const fth_dataset *dataset, fth_split split, int64_t sample, uint8_t *pixels,
                           int32_t *label);

#endif
