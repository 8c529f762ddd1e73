/* The index of weights in several files, as the Hugging Face hub has them:
 * model.safetensors.index.json.
 *
 *     {"metadata": {...},
 *      "weight_map": {"bert.pooler.dense.bias": "model-00002-of-00003.safetensors", ...}} */
#ifndef FTH_TENSOR_SHARD_INDEX_H
#define FTH_TENSOR_SHARD_INDEX_H

#include <jansson.h>

#include "base/base.h"

typedef struct fth_shard_index {
    json_t *root;
    const json_t *weight_map; /* which file each tensor is in; lent, as the names */
    const char **files;       /* their names, which are plain, each once */
    size_t count;
} fth_shard_index;

/* True of a JSON object with a "weight_map". */
bool fth_shard_index_recognize(const void *bytes, size_t size_bytes);
/* Reads an index that anybody may have written; `origin` names it in errors. Release *index. */
fth_status fth_shard_index_parse(const void *bytes, size_t size_bytes, const char *origin, fth_shard_index *index);
void fth_shard_index_release(fth_shard_index *index);

#endif
