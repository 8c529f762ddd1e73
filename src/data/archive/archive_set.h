/* A data set in one archive, or a range of its samples, opened for training: .tar, .tar.gz,
 * .tar.xz, .tar.zst or .zip of MNIST idx files (plain, .gz or .xz), of CIFAR-10 binary files, or of
 * class folders of images, at any depth; or one CIFAR-10 file.
 *
 * Training files alone count; whatever else an archive has is passed over. idx and CIFAR files are
 * read straight into memory, and no more of them than the range asks for; image files are put into
 * a plain tar. Samples are numbered in the order in which they lie in the archive, image files by
 * class and name. Unless a range is asked for, an archive with a `__dataset__.py` is the part of
 * its set which that selects (python_subset.h); if that is not understood it is an error, not the
 * whole set.
 *
 * Archives come from anywhere: one that is damaged, leads elsewhere (absolute paths, .., links and
 * devices in place of data) or expands beyond the limits is an error, and nothing is ever written
 * but that one tar. */
#ifndef FTH_DATA_ARCHIVE_SET_H
#define FTH_DATA_ARCHIVE_SET_H

#include "data/data.h"

typedef struct fth_archive_set_options {
    int64_t first, count;                   /* the range; count 0: all from `first` on */
    bool ranged;                            /* that is asked for, even if it is all samples */
    const fth_normalization *normalization; /* NULL: the set's own */
    int height, width;                      /* of what a loader gives; 0: the set's own */
    uint64_t max_bytes;                     /* that samples may take, in memory or in `unpacked`; 0: 1 GiB */
    const char *unpacked;  /* where the tar of image files is put, unless it is there already; NULL: they are
                                               FTH_UNSUPPORTED. Its contents must belong to these bytes */
    fth_deadline deadline; /* at_seconds 0: none */
    const fth_stop *stop;  /* or NULL */
} fth_archive_set_options;

/* `bytes` are needed during the call only. `name` begins error messages. All samples of the set are
 * in FTH_TRAIN. */
fth_status fth_archive_set_open(const uint8_t *bytes, size_t size_bytes, const char *name,
                                const fth_archive_set_options *options, fth_dataset **dataset);

#endif
