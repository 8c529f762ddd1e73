/* The hash behind the version of a data set. */
#ifndef FTH_DATA_VERSION_H
#define FTH_DATA_VERSION_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef struct fth_version_hash fth_version_hash;

/* Values are framed, so that "ab" and "c" differ from "a" and "bc". None of these fail: errors are
 * reported when the hash is finished. */
void fth_version_add_number(fth_version_hash *hash, uint64_t number);
void fth_version_add_text(fth_version_hash *hash, const char *text);
void fth_version_add_bytes(fth_version_hash *hash, const void *bytes, size_t size_bytes);

void fth_version_add_raw(fth_version_hash *hash, const void *bytes, size_t size_bytes); /* not framed */

struct fth_dataset;
/* Channels, height and width of images in memory. */
void fth_version_add_shape(fth_version_hash *hash, const struct fth_dataset *dataset);

#endif
