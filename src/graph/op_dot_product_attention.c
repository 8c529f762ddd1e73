/* dot_product_attention: attention among sequences of one length, and its gradient. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

enum { MOST_KEYS = 1 << 18 }; /* a row of scores has draws of dropout for no more */

enum { QUERY, KEY, VALUE, MASK, OPERANDS }; /* as the op has them where they are not packed */
enum { Y, STATISTICS };

/* Rows of a value for each sample, or all of them where it has no batch. */
static int64_t rows_each(const fth_type *type)
{
    const int64_t rows = fth_rows_per_sample(type->shape.dims[0]);
    return rows > 0 ? rows : type->shape.dims[0];
}

static bool has_batch(const fth_type *type)
{
    return fth_rows_per_sample(type->shape.dims[0]) > 0;
}

/* (sequences * length) rows of `heads` times as many numbers. */
static fth_status check_rows(const fth_dot_product_attention_attributes *a, const fth_type *type, const char *what,
                             int64_t length)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_check_float(type, what, 2));
    FTH_REQUIRE(type->shape.dims[0] != FTH_TOKENS && rows_each(type) % length == 0, FTH_INVALID,
                "%s have shape %s, whose rows are no sequences of %s", what, FTH_SHAPE_TEXT(&type->shape),
                FTH_COUNTED(length, "row"));
    FTH_REQUIRE(type->shape.dims[1] > 0 && type->shape.dims[1] % (a->heads * (a->packed ? 3 : 1)) == 0, FTH_INVALID,
                "%s have shape %s, which cannot be parted into %s", what, FTH_SHAPE_TEXT(&type->shape),
                FTH_COUNTED(a->heads, "head"));
out:
    return status;
}

/* The mask (M, heads or 1, queries or 1, keys): M is 1, a divisor of the sequences of each sample,
 * or all sequences. */
static fth_status check_mask(const fth_dot_product_attention_attributes *a, const fth_type *query, const fth_type *mask)
{
    fth_status status = FTH_OK;
    const int64_t *dims = mask->shape.dims, sequences = rows_each(query) / a->queries;
    FTH_TRY(fth_rule_check_float(mask, "the mask", 4));
    FTH_REQUIRE(
        dims[0] != FTH_TOKENS &&
            (has_batch(mask) ? has_batch(query) && rows_each(mask) == sequences : sequences % dims[0] == 0) &&
            (dims[1] == 1 || dims[1] == a->heads) && (dims[2] == 1 || dims[2] == a->queries) && dims[3] == a->keys,
        FTH_INVALID,
        "the mask has shape %s; it must be (%lld or 1, %d or 1, %lld or 1, %lld), or a divisor of the first",
        FTH_SHAPE_TEXT(&mask->shape), (long long)sequences, a->heads, (long long)a->queries, (long long)a->keys);
out:
    return status;
}

static fth_status check_attributes(const fth_dot_product_attention_attributes *a)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_check_dropout(a->probability));
    FTH_REQUIRE(a->heads >= 1 && a->queries >= 1 && a->keys >= 1 && a->keys <= MOST_KEYS, FTH_INVALID,
                "%s, %lld queries, %lld keys; there must be 1 of each, and %d keys at most",
                FTH_COUNTED(a->heads, "head"), (long long)a->queries, (long long)a->keys, MOST_KEYS);
    FTH_REQUIRE(!a->packed || a->queries == a->keys, FTH_INVALID, "%lld queries and %lld keys cannot be packed",
                (long long)a->queries, (long long)a->keys);
out:
    return status;
}

/* What both ops begin with; *operands is how many that are, *y the shape of the output. */
static fth_status check(const fth_dot_product_attention_attributes *a, const fth_type *inputs, int input_count,
                        int *operands, fth_shape *y)
{
    fth_status status = FTH_OK;
    const fth_type *query = &inputs[0], *key = &inputs[a->packed ? 0 : KEY], *value = &inputs[a->packed ? 0 : VALUE];

    FTH_TRY(check_attributes(a));
    *operands = (a->packed ? 1 : MASK) + a->mask;
    FTH_TRY(fth_rule_check_count(input_count < *operands ? input_count : *operands, *operands, *operands));
    FTH_TRY(check_rows(a, query, "the queries", a->queries));
    FTH_TRY(check_rows(a, key, "the keys", a->keys));
    FTH_TRY(check_rows(a, value, "the values", a->keys));
    FTH_REQUIRE(a->packed ||
                    (query->shape.dims[1] == key->shape.dims[1] && key->shape.dims[0] == value->shape.dims[0] &&
                     has_batch(query) == has_batch(key) && rows_each(query) / a->queries == rows_each(key) / a->keys),
                FTH_INVALID, "queries %s, keys %s and values %s do not fit", FTH_SHAPE_TEXT(&query->shape),
                FTH_SHAPE_TEXT(&key->shape), FTH_SHAPE_TEXT(&value->shape));
    if (a->mask)
        FTH_TRY(check_mask(a, query, &inputs[*operands - 1]));
    *y = FTH_SHAPE(query->shape.dims[0], value->shape.dims[1] / (a->packed ? 3 : 1));
out:
    return status;
}

static fth_status infer(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_dot_product_attention_attributes *a = attributes_pointer;
    fth_shape y;
    int operands;
    FTH_TRY(check(a, inputs, input_count, &operands, &y));
    FTH_TRY(fth_rule_check_count(input_count, operands, operands));
    outputs[Y] = (fth_type){FTH_F32, y};
    outputs[STATISTICS] = (fth_type){FTH_F32, FTH_SHAPE(y.dims[0], a->heads)};
out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const fth_dot_product_attention_attributes *a = node->attributes;
    const int count = node->input_count;
    fth_value inputs[OPERANDS + 3], gradients[OPERANDS];

    FTH_REQUIRE(output_gradients[STATISTICS] == FTH_NO_VALUE, FTH_UNSUPPORTED, "only the first output has a gradient");
    for (int i = 0; i < count; i++)
        inputs[i] = node->inputs[i];
    inputs[count] = node->outputs[Y];
    inputs[count + 1] = node->outputs[STATISTICS];
    inputs[count + 2] = output_gradients[Y];
    FTH_TRY(
        fth_graph_add_node(graph, &fth_op_dot_product_attention_grad, node->attributes, inputs, count + 3, gradients));
    for (int i = 0; i < (a->packed ? 1 : MASK); i++)
        input_gradients[i] = gradients[i];
    if (a->mask)
        input_gradients[count - 1] = gradients[MASK];
out:
    return status;
}

const fth_op fth_op_dot_product_attention = {
    .name = "dot_product_attention",
    .attributes_size = sizeof(fth_dot_product_attention_attributes),
    .output_count = 2,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_dot_product_attention_attributes *a = attributes_pointer;
    const fth_type none = {FTH_F32, FTH_SHAPE(1)};
    fth_shape y;
    int operands;

    FTH_TRY(check(a, inputs, input_count, &operands, &y));
    FTH_TRY(fth_rule_check_count(input_count, operands + 3, operands + 3));
    FTH_TRY(fth_rule_check_shape(&inputs[operands], "the output", &y));
    FTH_TRY(fth_rule_check_shape(&inputs[operands + 1], "the statistics", &FTH_SHAPE(y.dims[0], a->heads)));
    FTH_TRY(fth_rule_check_shape(&inputs[operands + 2], "the output's gradient", &y));
    outputs[QUERY] = inputs[0];
    outputs[KEY] = a->packed ? none : inputs[KEY];
    outputs[VALUE] = a->packed ? none : inputs[VALUE];
    outputs[MASK] = a->mask ? inputs[operands - 1] : none;
out:
    return status;
}

const fth_op fth_op_dot_product_attention_grad = {
    .name = "dot_product_attention_grad",
    .attributes_size = sizeof(fth_dot_product_attention_attributes),
    .output_count = OPERANDS,
    .infer = infer_grad,
};

/* The value of whose columns [0, F), [F, 2F) and [2F, 3F) q, k and v are slices; FTH_NO_VALUE if
 * they are something else. */
static fth_value find_packed(const fth_graph *graph, const fth_value qkv[3])
{
    fth_value whole = FTH_NO_VALUE;
    int64_t features = 0;
    for (int i = 0; i < 3; i++) {
        const fth_value_info *part = fth_graph_value(graph, qkv[i]);
        const fth_node *node = part && part->producer >= 0 ? fth_graph_node(graph, part->producer) : NULL;
        if (!node || node->op != &fth_op_slice || part->type.shape.rank != 2)
            return FTH_NO_VALUE;
        const fth_slice_attributes *slice = node->attributes;
        whole = i == 0 ? node->inputs[0] : whole;
        features = i == 0 ? part->type.shape.dims[1] : features;
        if (node->inputs[0] != whole || slice->axis != 1 || slice->step != 1 || slice->begin != i * features ||
            slice->end != (i + 1) * features)
            return FTH_NO_VALUE;
    }
    return fth_graph_value(graph, whole)->type.shape.dims[1] == 3 * features ? whole : FTH_NO_VALUE;
}

fth_status fth_op_add_dot_product_attention(fth_graph *graph, fth_dot_product_attention_attributes attributes,
                                            fth_value q, fth_value k, fth_value v, fth_value mask_or_none, fth_value *y)
{
    fth_value outputs[2], inputs[OPERANDS] = {q, k, v};
    const fth_value whole = attributes.queries == attributes.keys ? find_packed(graph, inputs) : FTH_NO_VALUE;
    int count = MASK;
    attributes.mask = mask_or_none != FTH_NO_VALUE;
    attributes.packed = whole != FTH_NO_VALUE;
    attributes.dropout = fth_rule_next_dropout(graph);
    if (attributes.packed) {
        inputs[0] = whole;
        count = 1;
    }
    if (attributes.mask)
        inputs[count++] = mask_or_none;
    fth_status status = fth_graph_add_node(graph, &fth_op_dot_product_attention, &attributes, inputs, count, outputs);
    if (status == FTH_OK)
        *y = outputs[Y];
    return status;
}
