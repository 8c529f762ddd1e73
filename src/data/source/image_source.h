/* Where image files are: a folder, a mapped tar, the objects of a store. A new kind is a file with
 * a row, and its name in FTH_IMAGE_SOURCES. */
#ifndef FTH_DATA_IMAGE_SOURCE_H
#define FTH_DATA_IMAGE_SOURCE_H

#include "data/image/decode.h"
#include "data/source/image_index.h"
#include "data/source/provider.h"

/* After open(), any thread may call these. */
typedef struct fth_image_source_kind {
    const char *name;
    /* True if this kind opens such addresses. */
    bool (*fits)(const char *address);
    /* Fills and finishes the index. *state is freed in any case. */
    fth_status (*open)(const char *address, const fth_dataset_options *options, fth_image_index *index, void **state);
    void (*free)(void *state); /* may get NULL */
    /* The encoded bytes of an entry, in place or in `buffer`. FTH_CORRUPT: this image is unreadable
     * and counts as a bad one; other failures end the loading. *fetch_seconds is set if the bytes
     * were fetched before the call. */
    fth_status (*read)(void *state, const fth_image_index *index, size_t number, const fth_patience *patience,
                       fth_pixel_buffer *buffer, const uint8_t **bytes, size_t *size_bytes, double *fetch_seconds);
    /* Adds what determines an entry's pixels to a version. */
    void (*add_version)(void *state, const fth_image_index *index, size_t number, fth_version_hash *hash);
    /* Optional: announces entries that will be read in this order, at needed_s (fth_fetch). Returns
     * how many, from the first on, were accepted; announce the others again later. */
    size_t (*expect)(void *state, const fth_image_index *index, const size_t *numbers, size_t count, double needed_s);
    /* Optional: explains why reading takes long; false: unknown. */
    bool (*explain)(void *state, char *text, size_t size);
} fth_image_source_kind;

/* An address is opened by the first kind that fits. */
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

/* Opens an address, and fills and finishes the index. Free *source in any case. */
fth_status fth_image_source_open(const char *address, const fth_dataset_options *options, fth_image_index *index,
                                 fth_image_source *source);
void fth_image_source_free(fth_image_source *source);

#endif
