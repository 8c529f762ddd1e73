/* Sets of images that are kept in memory as bytes: MNIST and CIFAR-10 files, and arrays of a
 * program. A sample is a pointer into the bytes. */
#ifndef FTH_DATA_ARRAY_SET_H
#define FTH_DATA_ARRAY_SET_H

#include "data/archive/blob.h"
#include "data/data_internal.h"

enum { FTH_MAX_SEGMENTS = 5, FTH_MAX_BLOBS = 6, FTH_MAX_CLASSES = 256 /* where labels are bytes */ };

/* Consecutive samples of one file or array. Labels are bytes, `label_stride` apart, or
 * `wide_labels`. */
typedef struct fth_segment {
    const uint8_t *pixels, *labels;
    size_t pixel_stride, label_stride;
    int64_t count;
    const int32_t *wide_labels; /* (count), instead of `labels`; or NULL */
} fth_segment;

typedef struct fth_part {
    fth_segment segments[FTH_MAX_SEGMENTS];
    int segment_count;
} fth_part;

typedef struct fth_array_set {
    fth_part parts[2]; /* by fth_split */
    fth_blob blobs[FTH_MAX_BLOBS];
    int blob_count;
    int32_t *labels[2];       /* owned copies of wide labels */
    char *class_name_text;    /* owned; the names point into it */
    const char **class_names; /* owned array */
} fth_array_set;

extern const fth_dataset_kind fth_dataset_kind_arrays;

/* Makes `dataset` an empty array set, which fth_dataset_free() frees; *set is lent. */
fth_status fth_array_set_create(fth_dataset *dataset, fth_array_set **set);
/* Takes ownership of a blob and empties it. */
void fth_array_set_keep(fth_array_set *set, fth_blob *blob);
/* Makes a segment the training part. */
void fth_array_set_use(fth_array_set *set, const fth_segment *segment, fth_dataset_info *info);
/* Reads class names, one a line, and owns the text if successful. *count is 0 if there are more
 * than `most`. */
fth_status fth_array_set_name_classes(fth_array_set *set, char *text, int most, int *count);
/* Resolves transforms from options and the image size in dataset->info. */
fth_status fth_array_set_prepare(const fth_dataset_options *options, fth_dataset *dataset);

#endif
