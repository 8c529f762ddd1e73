/* The lists of raw tensors in a .pt2 since PyTorch 2.9:
 *
 *     {"config": {NAME: {"path_name": FILE, "use_pickle": false, "tensor_meta":
 *         {"dtype", "sizes", "strides", "storage_offset", "layout"}}}} */
#ifndef FTH_TENSOR_EXPORTED_CONFIG_H
#define FTH_TENSOR_EXPORTED_CONFIG_H

#include <jansson.h>

#include "tensor/exported_archive.h"
#include "tensor/strided_internal.h"

typedef struct fth_exported_config {
    json_t *root; /* has the tensors' names */
    fth_tensor_copies copies;
} fth_exported_config;

/* Gives the bytes of a file beside the list; *bytes is NULL if there is none. */
typedef fth_status (*fth_exported_file_finder)(void *context, const char *path, const unsigned char **bytes,
                                               uint64_t *size_bytes);

/* Reads the list; free() the tensors, which are valid until the config is released. */
fth_status fth_exported_config_read(const void *bytes, size_t size_bytes, const char *origin,
                                    fth_exported_file_finder find, void *context, fth_exported_config *config,
                                    fth_exported_tensor **tensors, size_t *count);
void fth_exported_config_release(fth_exported_config *config);

#endif
