/* Attention of a packed batch, head by head. See packed_attention.h. */
#include <math.h>
#include <string.h>

#include "backend/portable/packed_attention.h"

packed_attention packed_attention_of(const fth_plan *plan, const fth_node *node, const portable_level *level, bool bf16)
{
    const fth_attention_attributes *attributes = node->attributes;
    const fth_shape qkv = fth_plan_type(plan, node->inputs[0]).shape;
    return (packed_attention){.level = level,
                              .attributes = *attributes,
                              .training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN,
                              .bf16 = bf16,
                              .tokens = qkv.dims[0],
                              .sequences = fth_plan_type(plan, node->inputs[1]).shape.dims[0],
                              .size = qkv.dims[1] / 3 / attributes->heads};
}

static int64_t longest_of(const packed_attention *p)
{
    return p->attributes.longest < p->tokens ? p->attributes.longest : p->tokens;
}

int64_t packed_attention_scratch_floats(const packed_attention *p, bool gradient)
{
    const portable_head longest = {
        .queries = longest_of(p), .keys = longest_of(p), .size = p->size, .value_size = p->size};
    return p->level->attention_floats(&longest, gradient);
}

fth_status packed_attention_begin(const packed_attention *p, const packed_tensors *tensors)
{
    const size_t item = p->bf16 ? 2 : 4, row = (size_t)(p->attributes.heads * p->size) * item;
    int64_t end = 0;
    for (int64_t n = 0; n < p->sequences; n++) {
        const int64_t length = tensors->ends[n] - end;
        if (length < 1 || length > longest_of(p) || tensors->ends[n] > p->tokens)
            return fth_fail(FTH_INVALID,
                            "sequence %lld of a batch has tokens %lld to %lld; there are %lld, and a sequence has 1 to "
                            "%lld",
                            (long long)n, (long long)end, (long long)tensors->ends[n], (long long)p->tokens,
                            (long long)longest_of(p));
        end = tensors->ends[n];
    }
    const size_t left = (size_t)(p->tokens - end);
    if (tensors->dqkv) {
        memset((char *)tensors->dqkv + (size_t)end * 3 * row, 0, left * 3 * row);
    } else {
        memset((char *)tensors->y + (size_t)end * row, 0, left * row);
        memset(tensors->statistics + end * p->attributes.heads, 0, left * (size_t)p->attributes.heads * sizeof(float));
    }
    return FTH_OK;
}

/* Element `at` of f32 or bf16; NULL of nothing. */
static void *element(const packed_attention *p, const void *data, int64_t at)
{
    return data ? (char *)data + at * (p->bf16 ? 2 : 4) : NULL;
}

void packed_attention_run_head(const packed_attention *p, const packed_tensors *tensors, const fth_run *run, int64_t at,
                               float *scratch)
{
    const fth_attention_attributes *attributes = &p->attributes;
    const int64_t sequence = at / attributes->heads, features = attributes->heads * p->size;
    const int head = (int)(at % attributes->heads);
    const int64_t first = sequence > 0 ? tensors->ends[sequence - 1] : 0;
    const int64_t qkv = 3 * features * first + head * p->size, y = features * first + head * p->size;
    const int64_t length = tensors->ends[sequence] - first;
    const portable_head one = {
        .queries = length,
        .keys = length,
        .size = p->size,
        .value_size = p->size,
        .bf16 = p->bf16,
        .query_stride = 3 * features,
        .key_stride = 3 * features,
        .value_stride = 3 * features,
        .y_stride = features,
        .scale = 1 / sqrtf((float)p->size),
        .query = element(p, tensors->qkv, qkv),
        .key = element(p, tensors->qkv, qkv + features),
        .value = element(p, tensors->qkv, qkv + 2 * features),
        .dy = element(p, tensors->dy, y),
        .y = element(p, tensors->y, y),
        .dquery = element(p, tensors->dqkv, qkv),
        .dkey = element(p, tensors->dqkv, qkv + features),
        .dvalue = element(p, tensors->dqkv, qkv + 2 * features),
        .statistics = tensors->statistics + first * attributes->heads + head,
        .head = head,
        .heads = attributes->heads,
        .drops = p->training && attributes->probability > 0,
        .random = fth_dropout_key(run->seed, run->step, attributes->dropout),
        .first_row = run->first_token + (uint64_t)first,
        .threshold = fth_attention_threshold(attributes->probability),
        .kept = 1 / (1 - attributes->probability),
    };
    if (tensors->dqkv)
        p->level->attend_gradient(&one, scratch);
    else
        p->level->attend(&one, scratch);
}
