/* Opens a data set in one archive, or a range of its samples, for training: a .tar, .tar.gz,
 * .tar.xz, .tar.zst or .zip of MNIST idx files (plain, .gz or .xz), of CIFAR-10 binary files, or of
 * class folders of images, at any depth; or a single CIFAR-10 file.
 *
 * Only training files are used. idx and CIFAR files are read into memory, as far as the range
 * needs; image files are written to a plain tar. Samples are numbered in the order of the archive,
 * image files by class and name. If no range is given, a `__dataset__.py` in the archive selects it
 * (python_subset.h); one that is not understood is an error.
 *
 * Archives are not trusted: one that is damaged, leads elsewhere (absolute paths, .., links or
 * devices in place of data) or expands beyond the limits is an error, and the tar is the only file
 * that is ever written. */
#ifndef FTH_DATA_ARCHIVE_SET_H
#define FTH_DATA_ARCHIVE_SET_H

#include "data/data.h"

typedef struct fth_archive_set_options {
    int64_t first, count;                   /* the range; count 0: all from `first` on */
    bool ranged;                            /* a range was given, even if it is all samples */
    const fth_normalization *normalization; /* NULL: the set's own */
    int height, width;                      /* of what a loader gives; 0: the set's own */
    uint64_t max_bytes;                     /* limit of the samples, in memory or in `unpacked`; 0: 1 GiB */
    const char *unpacked;  /* path of the tar of image files, used if it exists; NULL: image files are FTH_UNSUPPORTED.
                              Must belong to these bytes */
    fth_deadline deadline; /* at_seconds 0: none */
    const fth_stop *stop;  /* or NULL */
} fth_archive_set_options;

/* `bytes` are needed during the call only. `name` begins error messages. All samples of the set are
 * in FTH_TRAIN. */
fth_status fth_archive_set_open(const uint8_t *bytes, size_t size_bytes, const char *name,
                                const fth_archive_set_options *options, fth_dataset **dataset);

#endif
