/* Data: sets of labelled images, the order in which they are visited, and batches made ahead of need.
 *
 * sampler (a pure function of position) -> loader threads read, augment, normalize -> a ring of ready batches.
 * Everything random is a pure function of (seed, epoch, sample), so a position is one integer and any
 * batch can be made again, anywhere. */
#ifndef FTH_DATA_DATA_H
#define FTH_DATA_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

/* ---- data sets ---- */

typedef enum fth_split { FTH_TRAIN, FTH_VALIDATION } fth_split;

enum { FTH_MAX_CHANNELS = 4 };

typedef struct fth_dataset_options {
    uint64_t seed;              /* of the validation split, where the set has none */
    double validation_fraction; /* share held out where the set has no validation part; in (0, 1) */
    int threads;                /* for decompression */
} fth_dataset_options;

typedef struct fth_dataset_info {
    const char *name;
    int classes;
    const char *const *class_names;
    int channels, height, width;
    int64_t count[2];                                          /* by fth_split */
    float mean[FTH_MAX_CHANNELS], deviation[FTH_MAX_CHANNELS]; /* for normalization, of pixels in 0..1 */
} fth_dataset_info;

typedef struct fth_dataset fth_dataset;

/* Opens a built-in set by name ("digits", "shapes") or a folder of MNIST idx or CIFAR-10 binary files, which are
 * recognized by their contents. */
fth_status fth_dataset_open(const char *name_or_folder, const fth_dataset_options *options, fth_dataset **dataset);
void fth_dataset_free(fth_dataset *dataset);
const fth_dataset_info *fth_dataset_get_info(const fth_dataset *dataset);

/* One image, channels × height × width bytes, and its label. Any thread may call this at any time. */
fth_status fth_dataset_read(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *pixels,
                            int32_t *label);

/* The built-in names and a line on each, for help and errors; ends with a NULL name. */
typedef struct fth_dataset_builtin {
    const char *name, *summary;
} fth_dataset_builtin;
extern const fth_dataset_builtin fth_dataset_builtins[];

/* ---- the order of samples ---- */

typedef struct fth_sampler {
    uint64_t seed;
    int64_t count;
    bool shuffle;
} fth_sampler;

/* The sample at `position` of `epoch`: within an epoch each of 0..count-1 exactly once, in constant memory. */
int64_t fth_sampler_index(const fth_sampler *sampler, int64_t epoch, int64_t position);

/* ---- augmentation and normalization ---- */

typedef struct fth_augmentation {
    bool flip;        /* mirror left-right half of the time */
    int crop_padding; /* pad by this many zero pixels, then crop at random back to size; 0: no */
} fth_augmentation;

/* uint8 (C,H,W) -> float (C,H,W), normalized; a pure function of (seed, epoch, sample). */
void fth_augment(const fth_dataset_info *info, const fth_augmentation *augmentation, uint64_t seed, int64_t epoch,
                 int64_t sample, const uint8_t *pixels, float *image);

/* ---- the loader ---- */

typedef struct fth_loader_options {
    fth_split split;
    int64_t batch;
    uint64_t seed;
    bool shuffle;
    fth_augmentation augmentation;
    int threads;         /* at least 1 */
    int64_t first_batch; /* counted from the start of epoch 0 */
    int64_t batch_limit; /* stop before the batch of this number (evaluation: one epoch); 0: endless */
} fth_loader_options;

typedef struct fth_batch {
    const float *images;   /* (count, C, H, W) */
    const int32_t *labels; /* (count) */
    int64_t count;         /* the last batch of an epoch may be smaller */
    int64_t number;        /* from the start of epoch 0 */
    int64_t epoch;
    double decode_seconds; /* what a loader thread spent on it */
} fth_batch;

typedef struct fth_loader fth_loader;

/* The data set must outlive the loader. */
fth_status fth_loader_open(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **loader);
void fth_loader_free(fth_loader *loader); /* stops and joins the threads */

/* The next batch, lent until the next call. *batch is NULL after the last. A failure to read a sample is reported
 * here, with the sample named. */
fth_status fth_loader_next(fth_loader *loader, fth_deadline deadline, const fth_batch **batch);

int64_t fth_batches_per_epoch(int64_t sample_count, int64_t batch);

#endif
