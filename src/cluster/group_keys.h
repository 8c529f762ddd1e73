/* The keys of one group: what its members tell each other, by name. Bounded in number and size. */
#ifndef FTH_CLUSTER_GROUP_KEYS_H
#define FTH_CLUSTER_GROUP_KEYS_H

#include "base/base.h"

enum { FTH_MAX_KEY = 256, FTH_MAX_KEY_BYTES = 1 << 20 };

typedef struct fth_group_keys fth_group_keys;

fth_status fth_group_keys_create(fth_group_keys **keys);
void fth_group_keys_free(fth_group_keys *keys);
void fth_group_keys_clear(fth_group_keys *keys);
/* Copies; what the key had before is replaced. FTH_INVALID beyond the limits. */
fth_status fth_group_keys_put(fth_group_keys *keys, const char *key, const void *bytes, size_t size);
/* Lent until the next put or clear; NULL: there is none. */
const void *fth_group_keys_get(const fth_group_keys *keys, const char *key, size_t *size);

#endif
