/* See product_attention.h. */
#include "backend/portable/product_attention.h"

#include <string.h>

enum { QUERY, KEY, VALUE, MASK };
enum { ENOUGH_TASKS = 8 };

product_values product_attention_values(const fth_plan *plan, const fth_node *node)
{
    const fth_dot_product_attention_attributes *a = node->attributes;
    const fth_value *in = node->inputs, *out = node->outputs;
    const int mask = a->packed ? 1 : MASK;
    product_values v = {.query = in[QUERY],
                        .key = a->packed ? FTH_NO_VALUE : in[KEY],
                        .value = a->packed ? FTH_NO_VALUE : in[VALUE],
                        .mask = a->mask ? in[mask] : FTH_NO_VALUE,
                        .dy = FTH_NO_VALUE};
    if (node->op == &fth_op_dot_product_attention) {
        v.y = out[0];
        v.statistics = out[1];
        v.dquery = v.dkey = v.dvalue = v.dmask = FTH_NO_VALUE;
        return v;
    }
    const fth_value *rest = in + mask + a->mask;
    v.y = rest[0];
    v.statistics = rest[1];
    v.dy = rest[2];
    v.dquery = out[QUERY];
    v.dkey = a->packed ? FTH_NO_VALUE : out[KEY];
    v.dvalue = a->packed ? FTH_NO_VALUE : out[VALUE];
    v.dmask = a->mask && fth_plan_is_used(plan, out[MASK]) ? out[MASK] : FTH_NO_VALUE;
    return v;
}

/* Parts of the mask that sequences and heads have in common. */
static int64_t count_parts(const product_attention *p)
{
    return (int64_t)p->mask_entries * p->mask_heads;
}

/* Heads of sequences that share a part. */
static int64_t heads_of_part(const product_attention *p)
{
    return p->sequences / p->mask_entries * (p->attributes->heads / p->mask_heads);
}

static int32_t choose_sums(const product_attention *p)
{
    const int64_t wanted = (ENOUGH_TASKS + count_parts(p) - 1) / count_parts(p), most = heads_of_part(p);
    return (int32_t)(wanted < most ? wanted : most);
}

product_attention product_attention_of(const fth_plan *plan, const fth_node *node, const portable_level *level,
                                       bool bf16)
{
    const fth_dot_product_attention_attributes *a = node->attributes;
    const product_values v = product_attention_values(plan, node);
    const fth_shape query = fth_plan_type(plan, v.query).shape;
    const int64_t features = query.dims[1] / (a->packed ? 3 : 1);
    product_attention p = {.level = level,
                           .attributes = a,
                           .sequences = query.dims[0] / a->queries,
                           .rows_per_sample = fth_rows_per_sample(fth_plan_graph_rows(plan, v.query)),
                           .size = (int32_t)(features / a->heads),
                           .mask_entries = 1,
                           .mask_heads = 1,
                           .mask_queries = 1,
                           .training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN,
                           .bf16 = bf16};
    p.value_size = v.value == FTH_NO_VALUE ? p.size : (int32_t)(fth_plan_type(plan, v.value).shape.dims[1] / a->heads);
    if (v.mask != FTH_NO_VALUE) {
        const fth_shape mask = fth_plan_type(plan, v.mask).shape;
        p.mask_entries = (int32_t)mask.dims[0];
        p.mask_heads = (int32_t)mask.dims[1];
        p.mask_queries = (int32_t)mask.dims[2];
    }
    if (v.dmask != FTH_NO_VALUE)
        p.sums = choose_sums(&p);
    return p;
}

int64_t product_attention_scratch_floats(const product_attention *p, bool gradient)
{
    const portable_head head = {
        .queries = p->attributes->queries, .keys = p->attributes->keys, .size = p->size, .value_size = p->value_size};
    return p->level->attention_floats(&head, gradient);
}

static int64_t floats_of_part(const product_attention *p)
{
    return p->mask_queries * p->attributes->keys;
}

int64_t product_attention_mask_floats(const product_attention *p)
{
    return p->sums > 1 ? p->sums * count_parts(p) * floats_of_part(p) : 0;
}

int64_t product_attention_tasks(const product_attention *p)
{
    return p->sums > 0 ? count_parts(p) * p->sums : p->sequences * p->attributes->heads;
}

/* Element `at` of f32 or bf16; NULL of nothing. */
static void *element(const product_attention *p, const void *data, int64_t at)
{
    return data ? (char *)data + at * (p->bf16 ? 2 : 4) : NULL;
}

/* One head of one sequence; the mask's gradient is added to `dmask` unless that is NULL. */
static void run_head(const product_attention *p, const product_tensors *t, const fth_run *run, int64_t sequence,
                     int64_t head, float *dmask, float *scratch)
{
    const fth_dot_product_attention_attributes *a = p->attributes;
    const int64_t features = (int64_t)a->heads * p->size, values = (int64_t)a->heads * p->value_size;
    const int64_t stride = a->packed ? 3 * features : features;
    const int64_t value_stride = a->packed ? stride : values;
    const int64_t query = sequence * a->queries * stride + head * p->size;
    const int64_t key = sequence * a->keys * stride + head * p->size + (a->packed ? features : 0);
    const int64_t value = sequence * a->keys * value_stride + head * p->value_size + (a->packed ? 2 * features : 0);
    const int64_t y = sequence * a->queries * values + head * p->value_size;
    const int64_t part = sequence % p->mask_entries * p->mask_heads + head % p->mask_heads;
    const portable_head one = {
        .queries = a->queries,
        .keys = a->keys,
        .size = p->size,
        .value_size = p->value_size,
        .bf16 = p->bf16,
        .query_stride = stride,
        .key_stride = stride,
        .value_stride = value_stride,
        .y_stride = values,
        .query = element(p, t->query, query),
        .key = element(p, a->packed ? t->query : t->key, key),
        .value = element(p, a->packed ? t->query : t->value, value),
        .dy = element(p, t->dy, y),
        .y = element(p, t->y, y),
        .dquery = element(p, t->dquery, query),
        .dkey = element(p, a->packed ? t->dquery : t->dkey, key),
        .dvalue = element(p, a->packed ? t->dquery : t->dvalue, value),
        .statistics = t->statistics + sequence * a->queries * a->heads + head,
        .scale = a->scale,
        .causal = a->causal,
        .mask = t->mask ? t->mask + part * floats_of_part(p) : NULL,
        .mask_step = p->mask_queries > 1 ? a->keys : 0,
        .dmask = dmask,
        .head = (int)head,
        .heads = a->heads,
        .drops = p->training && a->probability > 0,
        .random = fth_dropout_key(run->seed, run->step, a->dropout),
        .first_row = run->first_sample * (uint64_t)p->rows_per_sample + (uint64_t)(sequence * a->queries),
        .threshold = fth_attention_threshold(a->probability),
        .kept = 1 / (1 - a->probability),
    };
    if (t->dy)
        p->level->attend_gradient(&one, scratch);
    else
        p->level->attend(&one, scratch);
}

/* Where sum `sum` of part `part` of the mask's gradient is made. */
static float *mask_sum(const product_attention *p, const product_tensors *t, int64_t part, int64_t sum)
{
    return p->sums > 1 ? t->mask_sums + (part * p->sums + sum) * floats_of_part(p)
                       : t->dmask + part * floats_of_part(p);
}

void product_attention_run_task(const product_attention *p, const product_tensors *tensors, const fth_run *run,
                                int64_t at, float *scratch)
{
    const int64_t heads = p->attributes->heads;
    if (p->sums == 0) {
        run_head(p, tensors, run, at / heads, at % heads, NULL, scratch);
        return;
    }
    const int64_t part = at / p->sums, sum = at % p->sums, count = heads_of_part(p), repeats = heads / p->mask_heads;
    float *to = mask_sum(p, tensors, part, sum);
    memset(to, 0, (size_t)floats_of_part(p) * sizeof *to);
    for (int64_t i = count * sum / p->sums; i < count * (sum + 1) / p->sums; i++)
        run_head(p, tensors, run, i / repeats * p->mask_entries + part / p->mask_heads,
                 i % repeats * p->mask_heads + part % p->mask_heads, to, scratch);
}

void product_attention_end(const product_attention *p, const product_tensors *tensors)
{
    if (p->sums < 2)
        return;
    const int64_t count = floats_of_part(p);
    for (int64_t part = 0; part < count_parts(p); part++) {
        float *to = tensors->dmask + part * count;
        memcpy(to, mask_sum(p, tensors, part, 0), (size_t)count * sizeof *to);
        for (int64_t sum = 1; sum < p->sums; sum++) {
            const float *from = mask_sum(p, tensors, part, sum);
            for (int64_t i = 0; i < count; i++)
                to[i] += from[i];
        }
    }
}
