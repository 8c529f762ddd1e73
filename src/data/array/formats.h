/* The file formats of images in memory: MNIST's idx files and CIFAR-10's binary files. Parsers take
 * bytes, so that fuzz targets can feed them; results point into the bytes, and `name` begins error
 * messages. */
#ifndef FTH_DATA_FORMATS_H
#define FTH_DATA_FORMATS_H

#include "data/array/array_set.h"

typedef struct fth_idx_images {
    int64_t count;
    int height, width;
    const uint8_t *pixels;
} fth_idx_images;

typedef struct fth_idx_labels {
    int64_t count;
    const uint8_t *labels;
} fth_idx_labels;

enum {
    FTH_IDX_IMAGES_HEADER = 16,
    FTH_IDX_LABELS_HEADER = 8,
    FTH_IDX_IMAGES_MAGIC = 0x803,
    FTH_IDX_LABELS_MAGIC = 0x801,
    FTH_IDX_CLASSES = 10
};

fth_status fth_idx_parse_images(const uint8_t *bytes, size_t size_bytes, const char *name, fth_idx_images *images);
fth_status fth_idx_parse_labels(const uint8_t *bytes, size_t size_bytes, const char *name, fth_idx_labels *labels);
/* The same for the first bytes of a file: images without pixels, and the number of labels. */
fth_status fth_idx_parse_images_header(const uint8_t *bytes, size_t size_bytes, const char *name,
                                       fth_idx_images *images);
fth_status fth_idx_parse_labels_header(const uint8_t *bytes, size_t size_bytes, const char *name, int64_t *count);
/* `first`: the number of labels[0] in its file, for the message. */
fth_status fth_idx_check_labels(const uint8_t *labels, int64_t first, int64_t count, const char *name);
extern const fth_dataset_info fth_idx_info; /* common to all sets in this format */
/* True for the names of the training files, plain, .gz or .xz. */
bool fth_idx_is_training_images(const char *name);
bool fth_idx_is_training_labels(const char *name);

/* A CIFAR-10 record: a label and 3 × 32 × 32 pixels. */
enum { FTH_CIFAR_SIDE = 32, FTH_CIFAR_RECORD = 1 + 3 * FTH_CIFAR_SIDE * FTH_CIFAR_SIDE };
#define FTH_CIFAR_NAMES "batches.meta.txt" /* the class names, beside the records */
extern const fth_dataset_info fth_cifar_info;
bool fth_cifar_is_training_batch(const char *name);
fth_status fth_cifar_check_labels(const uint8_t *records, int64_t first, int64_t count, int classes, const char *name);
/* Checks every record of a file. */
fth_status fth_cifar_parse(const uint8_t *bytes, size_t size_bytes, const char *name, fth_segment *segment);

/* Some of the samples of a file: count 0 is all from `first` on. */
typedef struct fth_archive_range {
    int64_t first, count;
} fth_archive_range;
/* How many of the `count` samples from number `begin` on are in the range; *skipped of them precede
 * it. */
int64_t fth_archive_range_clip(fth_archive_range range, int64_t begin, int64_t count, int64_t *skipped);
/* Opens a .tar.gz of MNIST training files (idx_archive.c) and gives its range to `set` and `info`.
 * False for any other archive: use fth_archive_set_open(). */
bool fth_idx_archive_open(const uint8_t *bytes, size_t size_bytes, uint64_t max_bytes, fth_archive_range range,
                          fth_array_set *set, fth_dataset_info *info);

#endif
