/* Inspecting and packing sets of image files, for `farthing data`. */
#ifndef FTH_DATA_IMAGE_INSPECT_H
#define FTH_DATA_IMAGE_INSPECT_H

#include "data/data.h"

enum { FTH_MOST_IMAGE_FORMATS = 16 };

typedef struct fth_inspection {
    int64_t count, readable, grey;
    int64_t by_format[FTH_MOST_IMAGE_FORMATS]; /* readable images, by fth_inspection_format() */
    int width[3], height[3];                   /* smallest, median, largest */
    double mean[3], deviation[3];              /* of pixels in 0..1, over all images */
    int64_t *class_counts[2];                  /* by split: (classes) */
    int64_t *size_counts;                      /* (size_buckets) by the longer side: below 64, 128, 256 ... */
    int size_buckets;
    char **grey_names;  /* some of them; ends with NULL */
    fth_bad_image *bad; /* all of them */
    int64_t bad_count;
} fth_inspection;

/* Decodes every image of a set on `threads` threads. Release *inspection in any case. */
fth_status fth_dataset_inspect(const fth_dataset *dataset, int threads, fth_inspection *inspection);
/* The name ("JPEG") and JSON key ("jpeg") of a format; {NULL} after the last. */
typedef struct fth_inspected_format {
    const char *name, *key;
} fth_inspected_format;
fth_inspected_format fth_inspection_format(size_t number);
void fth_inspection_release(fth_inspection *inspection);

/* Writes a PNG of up to `rows` classes: the name of each and `columns` of its images. */
fth_status fth_dataset_draw_sheet(const fth_dataset *dataset, const char *path, int columns, int rows);

/* Writes the encoded images, unchanged, into one tar, or into `shards` tars in `folder` (created if
 * needed). Each shard has its share of every class, with classes alternating. Files appear
 * complete; *bytes is their size. */
fth_status fth_dataset_pack(const fth_dataset *dataset, const char *path, int64_t *bytes);
fth_status fth_dataset_shard(const fth_dataset *dataset, int shards, const char *folder, int64_t *bytes);

#endif
