/* What the files of this folder share: how a set lies in memory, the formats that can fill one, and
 * the parsers, which take bytes in memory so that a fuzz target can feed them. */
#ifndef FTH_DATA_DATA_INTERNAL_H
#define FTH_DATA_DATA_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>

#include "data/loader/held_out.h"
#include "data/image/transform.h"
#include "data/version.h"
#include "store/store.h"

/* ---- stopping ---- */

/* FTH_INTERRUPTED if `stop`, which may be NULL, is asked. */
fth_status fth_check_stop(const fth_stop *stop, const char *name);

/* Bytes in memory, for libarchive, which fails to read on once `stop` (may be NULL) is asked. */
typedef struct fth_archive_source {
    const uint8_t *bytes;
    size_t size_bytes, at;
    const fth_stop *stop;
    fth_deadline deadline; /* passed: the same; at_seconds 0: none */
} fth_archive_source;

struct archive;
/* `source` outlives `archive`, whose formats are chosen. */
bool fth_archive_source_open(fth_archive_source *source, struct archive *archive);
/* FTH_CORRUPT, as an archive's end before its time looks to libarchive, made into what it was:
 * FTH_INTERRUPTED or FTH_TIMEOUT; any other status as it is. */
fth_status fth_archive_source_explain(const fth_archive_source *source, const char *name, fth_status status);

/* ---- the bytes of a file (decompress.c) ---- */

/* Mapped in place, or decompressed into memory of their own. */
typedef struct fth_blob {
    const uint8_t *bytes;
    size_t size_bytes;
    bool mapped;
} fth_blob;

void fth_blob_free(fth_blob *blob);

/* Decompresses gzip, xz or zstd, recognized by their magic numbers. `name` begins error messages. A
 * result of more than `max_bytes` is an error, and no more than that is ever allocated, whatever
 * the headers promise. */
fth_status fth_decompress(const uint8_t *bytes, size_t size_bytes, size_t max_bytes, const char *name,
                          const fth_stop *stop, fth_blob *blob);
bool fth_is_compressed(const uint8_t *bytes, size_t size_bytes);

typedef struct fth_load {
    char *path; /* owned; NULL: nothing to load */
    size_t max_bytes;
    fth_blob blob; /* the result, owned */
} fth_load;

/* Loads files on up to as many threads as `options` says; reports the first failure in order.
 * Release with fth_loads_free() either way. */
fth_status fth_loads_run(fth_load *loads, int count, const fth_dataset_options *options);
void fth_loads_free(fth_load *loads, int count);

/* True if a file's name is one of `stems` (ends with NULL), plain or with an ending that
 * fth_decompress() reads. */
bool fth_name_fits(const char *name, const char *const *stems);
/* The path of the first of `stems` (ends with NULL) in `folder`, plain, .gz or .xz; NULL if there
 * is none. free() it. */
char *fth_find_file(const char *folder, const char *const *stems);

/* ---- a set in memory (dataset.c) ---- */

enum { FTH_MAX_SEGMENTS = 5, FTH_MAX_BLOBS = 6, FTH_MAX_CLASSES = 256 }; /* labels are bytes */

/* A run of samples in one file. */
typedef struct fth_segment {
    const uint8_t *pixels, *labels;
    size_t pixel_stride, label_stride;
    int64_t count;
} fth_segment;

typedef struct fth_part {
    fth_segment segments[FTH_MAX_SEGMENTS];
    int segment_count;
} fth_part;

/* A built-in set: every image is a pure function of (split, index). */
typedef struct fth_generator {
    fth_dataset_info info;
    int version; /* of its pictures: raised when any of them changes */
    void (*draw)(fth_random_key key, int label, uint8_t *pixels);
} fth_generator;
extern const fth_generator fth_generator_digits, fth_generator_shapes, fth_generator_shapes_20;

typedef struct fth_gallery fth_gallery;
typedef struct fth_image_set fth_image_set;
typedef struct fth_memory_set fth_memory_set;
typedef struct fth_provided_samples fth_provided_samples;
typedef struct fth_text_set fth_text_set;

struct fth_dataset {
    fth_dataset_info info;               /* its height and width are those of what a loader gives */
    int raw_height, raw_width;           /* of images as they are stored; 0: files that differ or are large */
    fth_normalization raw_normalization; /* that is used unless somebody says otherwise */
    bool files; /* images are files, here or elsewhere: always transformed, and not varied by --augment */
    fth_transform transforms[2]; /* by fth_split */
    bool transformed;            /* images go through them for every batch: files always, others where asked for */
    fth_blob blobs[FTH_MAX_BLOBS];
    int blob_count;
    fth_part parts[2];              /* by fth_split */
    fth_held_out_samples held_out;  /* of parts[FTH_TRAIN], where validation has no part */
    fth_store_switch *requests;     /* of the thread that opens it; NULL: that had one of its own */
    fth_store_progress stopping;    /* by which these end when the opening is stopped */
    fth_gallery *gallery;           /* of a built-in set; then there are no parts */
    fth_image_set *images;          /* of image files; then there are no parts */
    fth_memory_set *memory;         /* of arrays in memory; then there are no parts */
    fth_provided_samples *provided; /* of samples that somebody else has; then there are no parts */
    fth_text_set *text;             /* of text; then there are no parts, and nothing of what is above is set but info */
    char *class_name_text;
    const char *class_names[FTH_MAX_CLASSES + 1];
};

/* A file format: one row in dataset.c. */
typedef struct fth_file_format {
    const char *name;
    const char *subfolder; /* also looked into, as archives unpack to it; NULL: none */
    const char *files;     /* what is looked for, in words */
    bool (*probe)(const char *folder);
    fth_status (*open)(const char *folder, const fth_dataset_options *options, fth_dataset *dataset);
} fth_file_format;
extern const fth_file_format fth_format_idx, fth_format_cifar, fth_format_images, fth_format_text;

/* Hands the bytes of a load to the data set. */
const fth_blob *fth_dataset_keep(fth_dataset *dataset, fth_load *load);

/* An image in memory as it is stored: *pixels points there or to `scratch`, which has room for it.
 * Not for image files. */
fth_status fth_dataset_look(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *scratch,
                            const uint8_t **pixels, int32_t *label);

/* Decides what images go through: transforms, whether there are any, and so the size and
 * normalization in its info. */
fth_status fth_dataset_prepare(const fth_dataset_options *options, const fth_raw_images *raw, fth_dataset *dataset);

static inline size_t fth_image_bytes(const fth_dataset_info *info)
{
    return (size_t)info->channels * (size_t)info->height * (size_t)info->width;
}

/* Bytes of an image in memory as it is stored. */
static inline size_t fth_raw_bytes(const fth_dataset *dataset)
{
    return (size_t)dataset->info.channels * (size_t)dataset->raw_height * (size_t)dataset->raw_width;
}

/* ---- built-in sets, drawn once each when first looked at (gallery.c) ---- */

fth_status fth_gallery_create(const fth_generator *generator, fth_gallery **gallery);
void fth_gallery_free(fth_gallery *gallery);
void fth_gallery_add_version(const fth_gallery *gallery, fth_version_hash *hash);
/* *pixels lives as long as the gallery, or is `scratch` where another thread is drawing the same
 * image. */
void fth_gallery_look(const fth_gallery *gallery, fth_split split, int64_t index, uint8_t *scratch,
                      const uint8_t **pixels, int32_t *label);

/* ---- arrays in memory (memory_set.c) ---- */

/* Fills in `info`, whose names the set owns. */
fth_status fth_memory_set_create(const fth_image_arrays *arrays, fth_dataset_info *info, fth_memory_set **set);
void fth_memory_set_free(fth_memory_set *set);
void fth_memory_set_look(const fth_memory_set *set, fth_split split, int64_t index, size_t image_bytes,
                         const uint8_t **pixels, int32_t *label);

/* A stream of draws, for pictures. Only arithmetic that IEEE 754 rounds exactly (no libm but sqrt)
 * is used on them, so that a picture is the same on every machine. */
typedef struct fth_draws {
    fth_random_key key;
    uint64_t next;
} fth_draws;

static inline uint64_t fth_draw_bits(fth_draws *draws)
{
    return fth_random_bits(draws->key, draws->next++);
}

static inline float fth_draw_between(fth_draws *draws, float low, float high)
{
    return low + (high - low) * ((float)(fth_draw_bits(draws) >> 40) * 0x1p-24f);
}

static inline int fth_draw_below(fth_draws *draws, int bound)
{
    return (int)fth_random_below(draws->key, draws->next++, (uint64_t)bound);
}

/* ---- parsers ---- */

typedef struct fth_idx_images {
    int64_t count;
    int height, width;
    const uint8_t *pixels;
} fth_idx_images;

typedef struct fth_idx_labels {
    int64_t count;
    const uint8_t *labels;
} fth_idx_labels;

enum { FTH_IDX_IMAGES_HEADER = 16, FTH_IDX_LABELS_HEADER = 8 };

/* What these give points into `bytes`. `name` begins error messages. */
fth_status fth_idx_parse_images(const uint8_t *bytes, size_t size_bytes, const char *name, fth_idx_images *images);
fth_status fth_idx_parse_labels(const uint8_t *bytes, size_t size_bytes, const char *name, fth_idx_labels *labels);

/* The same for those who have the first bytes of a file alone: images without pixels, and the count
 * of labels. */
fth_status fth_idx_parse_images_header(const uint8_t *bytes, size_t size_bytes, const char *name,
                                       fth_idx_images *images);
fth_status fth_idx_parse_labels_header(const uint8_t *bytes, size_t size_bytes, const char *name, int64_t *count);
/* `first`: the number of the first of them in its file, for the message. */
fth_status fth_idx_check_labels(const uint8_t *labels, int64_t first, int64_t count, const char *name);
/* What is the same for all sets in this format, and the names of their files (plain, .gz or
 * .xz). */
extern const fth_dataset_info fth_idx_info;
bool fth_idx_is_training_images(const char *name);
bool fth_idx_is_training_labels(const char *name);

/* Some of the samples of a file: count 0 is all from `first` on. */
typedef struct fth_archive_range {
    int64_t first, count;
} fth_archive_range;
/* How many of the samples `begin` to `begin + count` of a set are in the range; *skipped of them
 * come before it. */
int64_t fth_archive_range_clip(fth_archive_range range, int64_t begin, int64_t count, int64_t *skipped);
/* A .tar.gz of training files (idx_archive.c): fills in the dataset, as far as its preparation,
 * with the range. False where the archive is not of the simple kind that this is for. */
bool fth_idx_archive_open(const uint8_t *bytes, size_t size_bytes, uint64_t max_bytes, fth_archive_range range,
                          fth_dataset *dataset);

/* CIFAR-10: records of a label and 3 x 32 x 32 pixels. */
enum { FTH_CIFAR_RECORD = 1 + 3 * 32 * 32 };
#define FTH_CIFAR_NAMES "batches.meta.txt" /* lies beside them: the names of the classes */
extern const fth_dataset_info fth_cifar_info;
bool fth_cifar_is_training_batch(const char *name);
fth_status fth_cifar_check_labels(const uint8_t *records, int64_t first, int64_t count, int classes, const char *name);
/* Checks every record of a CIFAR-10 file. */
fth_status fth_cifar_parse(const uint8_t *bytes, size_t size_bytes, const char *name, fth_segment *segment);

/* One class name a line, made into strings in place; gives how many there are, 0 if more than
 * `most`. */
int fth_cifar_parse_names(char *text, int most, const char **names);

#endif
