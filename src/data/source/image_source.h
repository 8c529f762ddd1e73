/* Where the bytes of image files are: a folder, a mapped tar, the objects of a store. A new kind of
 * place is a file with a row, and its name in FTH_IMAGE_SOURCES. */
#ifndef FTH_DATA_IMAGE_SOURCE_H
#define FTH_DATA_IMAGE_SOURCE_H

#include "data/image/decode.h"
#include "data/source/image_index.h"
#include "data/source/provider.h"

/* After open(), any thread may call these at any time. */
typedef struct fth_image_source_kind {
    const char *name;
    /* True if addresses like this one are opened by this kind. */
    bool (*fits)(const char *address);
    /* Fills the index and finishes it. *state is freed in any case. */
    fth_status (*open)(const char *address, const fth_dataset_options *options, fth_image_index *index, void **state);
    void (*free)(void *state); /* may get NULL */
    /* The encoded bytes of an entry: where they lie, or in `buffer`. FTH_CORRUPT: this image cannot
     * be read, and counts as a bad one; any other failure ends the loading. *fetch_seconds: what
     * fetching took, where others did it before the call; else it is left alone. `patience` is for
     * what takes long. */
    fth_status (*read)(void *state, const fth_image_index *index, size_t number, const fth_patience *patience,
                       fth_pixel_buffer *buffer, const uint8_t **bytes, size_t *size_bytes, double *fetch_seconds);
    /* Adds what decides an entry's pixels to a version. */
    void (*add_version)(void *state, const fth_image_index *index, size_t number, fth_version_hash *hash);
    /* Optional: these entries will be read soon, at needed_s (fth_fetch), in this order; whoever
     * has to fetch them can begin. Gives how many of them were taken note of, fewer than all where
     * there is no room; the rest may be told again later. */
    size_t (*expect)(void *state, const fth_image_index *index, const size_t *numbers, size_t count, double needed_s);
    /* Optional: what keeps those who read, for a message; false: nothing is known. */
    bool (*explain)(void *state, char *text, size_t size);
} fth_image_source_kind;

/* An address is opened by the first kind that it fits. */
#define FTH_IMAGE_SOURCES(ROW)                                                                                         \
    ROW(folder)                                                                                                        \
    ROW(objects)                                                                                                       \
    ROW(tar)

#define FTH_DECLARE(name) extern const fth_image_source_kind fth_image_source_##name;
FTH_IMAGE_SOURCES(FTH_DECLARE)
#undef FTH_DECLARE

typedef struct fth_image_source {
    const fth_image_source_kind *kind;
    void *state;
} fth_image_source;

/* Opens an address with the kind that it fits, and gives a finished index. Free *source in any
 * case. */
fth_status fth_image_source_open(const char *address, const fth_dataset_options *options, fth_image_index *index,
                                 fth_image_source *source);
void fth_image_source_free(fth_image_source *source);

#endif
