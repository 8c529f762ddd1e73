/* The unreadable samples of a set: each is noted once and replaced by another; too many are an
 * error. */
#ifndef FTH_DATA_BAD_IMAGES_H
#define FTH_DATA_BAD_IMAGES_H

#include "data/data.h"

typedef struct fth_bad_images fth_bad_images;

/* For images numbered 0..count-1. `source` begins messages and is copied; `max_share` is
 * fth_dataset_options.max_bad_images. */
fth_status fth_bad_images_create(const char *source, int64_t count, double max_share, fth_bad_images **images);
void fth_bad_images_free(fth_bad_images *images);

/* Any thread. */
bool fth_bad_images_has(const fth_bad_images *images, int64_t number);
/* Notes an image, with a warning the first time. FTH_CORRUPT once there are too many. */
fth_status fth_bad_images_note(fth_bad_images *images, int64_t number, fth_split split, const char *name,
                               const char *reason);
const char *fth_bad_images_source(const fth_bad_images *images);
int64_t fth_bad_images_count(fth_bad_images *images);
/* In the order in which they were noted; lives as long as `images`. NULL: there are fewer. */
const fth_bad_image *fth_bad_images_get(fth_bad_images *images, int64_t place);

#endif
