/* The keys of the live group: values that its members exchange by name. Bounded in number and
 * size. */
#ifndef FTH_CLUSTER_GROUP_KEYS_H
#define FTH_CLUSTER_GROUP_KEYS_H

#include "base/base.h"

enum { FTH_MAX_KEY = 256, FTH_MAX_KEY_BYTES = 1 << 20 };

typedef struct fth_group_keys fth_group_keys;

fth_status fth_group_keys_create(fth_group_keys **keys);
void fth_group_keys_free(fth_group_keys *keys);
/* The group whose keys these are; those of another are removed. */
void fth_group_keys_select(fth_group_keys *keys, int64_t generation);
/* Copies the bytes, and replaces an earlier value. FTH_INVALID beyond the limits. */
fth_status fth_group_keys_put(fth_group_keys *keys, const char *key, const void *bytes, size_t size);
/* Borrowed until the next put or select; NULL: there is none. */
const void *fth_group_keys_get(const fth_group_keys *keys, const char *key, size_t *size);

#endif
