/* Attention and softmax. */
#include <math.h>
#include <string.h>

#include "exported/lowering.h"

/* ---- softmax ---- */

static fth_status softmax_of(lowering *l, bool log)
{
    fth_status status = FTH_OK;
    fth_view x;
    int dim, order[FTH_MAX_RANK];

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(lowering_dim(l, "dim", -1, x.rank, &dim));
    FTH_REQUIRE(!fth_view_dim(&x, dim).batch, FTH_UNSUPPORTED, "a softmax over the batch");
    for (int i = 0; i < x.rank; i++) /* the dimension last */
        order[i] = i == x.rank - 1 ? dim : i + (i >= dim);
    fth_view_permute(&x, order);
    FTH_TRY(lowering_rows(l, &x, 1));
    FTH_TRY(fth_op_add_softmax(lowering_graph(l), log, x.value, &x.value));
    for (int i = 0; i < x.rank; i++)
        order[i] = i == dim ? x.rank - 1 : i - (i > dim);
    fth_view_permute(&x, order);
    lowering_set(l, 0, &x);
out:
    return status;
}

static fth_status softmax(lowering *l)
{
    return softmax_of(l, false);
}

static fth_status log_softmax(lowering *l)
{
    return softmax_of(l, true);
}

/* ---- attention ---- */

/* (B, H, L, D) as rows (B * L, H * D), as a linear layer makes them. */
static fth_status as_rows_of_heads(lowering *l, fth_view *x)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(x->rank == 4, FTH_UNSUPPORTED, "its tensors have %d dimensions, not 4", x->rank);
    fth_atom_list rows = x->dims[0], features = x->dims[1];
    for (int i = 0; i < x->dims[2].count; i++)
        rows.atoms[rows.count++] = x->dims[2].atoms[i];
    for (int i = 0; i < x->dims[3].count; i++)
        features.atoms[features.count++] = x->dims[3].atoms[i];
    const fth_atom_list lists[] = {rows, features};
    FTH_TRY(fth_view_arrange(lowering_graph(l), x, lists, 2));
out:
    return status;
}

/* True of a mask of truth values that lets every query see the keys up to its own place. */
static bool is_causal(const fth_host_tensor *mask)
{
    const fth_shape *shape = &mask->shape;
    if (shape->rank < 2)
        return false;
    const int64_t queries = shape->dims[shape->rank - 2], keys = shape->dims[shape->rank - 1];
    if (fth_shape_count(shape) == 0)
        return false;
    const int64_t matrices = fth_shape_count(shape) / (queries * keys);
    const bool truth = mask->torch_dtype == FTH_TORCH_BOOL;
    for (int64_t m = 0; m < matrices; m++)
        for (int64_t q = 0; q < queries; q++)
            for (int64_t k = 0; k < keys; k++) {
                const double number = mask->numbers[(m * queries + q) * keys + k];
                const bool seen = truth ? number != 0 : number == 0, hidden = truth ? number == 0 : number < -1e30;
                if (k <= q ? !seen : !hidden)
                    return false;
            }
    return true;
}

static const fth_expression *hide_where_false(fth_expression *expression)
{
    const fth_operand shown = fth_expression_number(expression, 0),
                      hidden = fth_expression_number(expression, -INFINITY);
    fth_expression_apply(expression, FTH_FUNCTION_WHERE, fth_expression_input(0), shown, hidden);
    return expression;
}

static bool is_expanded(const fth_view *view, int dim)
{
    for (int i = 0; i < view->dims[dim].count; i++)
        if (!view->atoms[view->dims[dim].atoms[i]].expanded)
            return false;
    return true;
}

/* What is added to the scores: -infinity where a mask of truth values is false. */
static fth_status additive_mask(lowering *l, int64_t keys, fth_value *mask)
{
    fth_status status = FTH_OK;
    fth_view view;
    fth_exported_dim dims[4];
    const fth_host_tensor *constant = lowering_constant(l, "attn_mask");
    fth_host_tensor added = {0};

    if (constant && constant->torch_dtype == FTH_TORCH_BOOL) {
        const int64_t count = fth_shape_count(&constant->shape);
        added = (fth_host_tensor){.torch_dtype = FTH_TORCH_F32, .shape = constant->shape};
        FTH_TRY(fth_allocate((size_t)count, sizeof *added.numbers, &added.numbers));
        for (int64_t i = 0; i < count; i++)
            added.numbers[i] = constant->numbers[i] != 0 ? 0 : -INFINITY;
        FTH_TRY(lowering_add_constant(l, &added, &view));
    } else {
        FTH_TRY(lowering_tensor(l, "attn_mask", &view));
        if (lowering_is_truth(l, "attn_mask"))
            FTH_TRY(lowering_apply(l, hide_where_false(&(fth_expression){0}), &view));
    }
    while (view.rank < 4)
        FTH_TRY(fth_view_insert(&view, 0));
    for (int d = 0; d < 3; d++) /* what is the same for all samples, heads or queries stays one */
        if (is_expanded(&view, d))
            fth_view_drop(&view, d);
    for (int d = 0; d < 4; d++)
        dims[d] = d < 3 ? fth_view_dim(&view, d) : (fth_exported_dim){.factor = keys};
    FTH_TRY(fth_view_expand(&view, 4, dims));
    FTH_TRY(fth_view_arrange_plain(lowering_graph(l), &view));
    *mask = view.value;
out:
    fth_host_tensor_release(&added);
    return status;
}

static fth_status attention(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view q, k, v, y;
    fth_value mask = FTH_NO_VALUE, value;

    FTH_TRY(lowering_tensor(l, "query", &q));
    FTH_TRY(lowering_tensor(l, "key", &k));
    FTH_TRY(lowering_tensor(l, "value", &v));
    const bool one_head = q.rank == 3 && k.rank == 3 && v.rank == 3; /* (B, L, D) */
    if (one_head) {
        FTH_TRY(fth_view_insert(&q, 1));
        FTH_TRY(fth_view_insert(&k, 1));
        FTH_TRY(fth_view_insert(&v, 1));
    }
    FTH_REQUIRE(q.rank == 4 && k.rank == 4 && v.rank == 4, FTH_UNSUPPORTED, "its tensors do not have 4 dimensions");
    const int64_t width = fth_view_dim(&q, 3).factor, value_width = fth_view_dim(&v, 3).factor;
    fth_dot_product_attention_attributes attributes = {.heads = (int)fth_view_dim(&q, 1).factor,
                                                       .queries = fth_view_dim(&q, 2).factor,
                                                       .keys = fth_view_dim(&k, 2).factor,
                                                       .causal = lowering_bool(l, "is_causal", false),
                                                       .scale =
                                                           (float)lowering_number(l, "scale", 1 / sqrt((double)width)),
                                                       .probability = (float)lowering_number(l, "dropout_p", 0)};
    FTH_REQUIRE(fth_view_dim(&k, 1).factor == attributes.heads && fth_view_dim(&v, 1).factor == attributes.heads,
                FTH_UNSUPPORTED, "its keys have other heads than its queries");
    if (lowering_options(l)->no_dropout)
        attributes.probability = 0;
    if (!lowering_lacks(l, "attn_mask")) {
        const fth_host_tensor *constant = lowering_constant(l, "attn_mask");
        if (constant && attributes.queries == attributes.keys && is_causal(constant))
            attributes.causal = true;
        else
            FTH_TRY(additive_mask(l, attributes.keys, &mask));
    }
    FTH_TRY(as_rows_of_heads(l, &q));
    FTH_TRY(as_rows_of_heads(l, &k));
    FTH_TRY(as_rows_of_heads(l, &v));
    FTH_TRY(fth_op_add_dot_product_attention(lowering_graph(l), attributes, q.value, k.value, v.value, mask, &value));
    y = q;
    y.value = value;
    if (value_width != width)
        FTH_TRY(fth_view_resize(&y, 3, y.atom_count - y.dims[3].count, value_width));
    if (one_head)
        fth_view_remove(&y, 1);
    lowering_set(l, 0, &y);
out:
    return status;
}

const lowering_row lowering_attention[] = {
    {"softmax", softmax},
    {"_softmax", softmax},
    {"log_softmax", log_softmax},
    {"_log_softmax", log_softmax},
    {"scaled_dot_product_attention", attention},
    {NULL, NULL},
};
