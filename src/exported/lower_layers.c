/* Normalizations, linear layers and embeddings. */
#include "exported/lowering.h"

/* ---- batch norm ---- */

/* `value`, or a constant (C) in its place. */
static fth_status or_constant(lowering *l, const char *name, int64_t channels, double number, fth_value *value)
{
    fth_status status = FTH_OK;
    fth_view view;
    fth_host_tensor same = {.torch_dtype = FTH_TORCH_F32, .shape = FTH_SHAPE(channels)};

    FTH_TRY(lowering_state(l, name, value));
    if (*value != FTH_NO_VALUE)
        goto out;
    FTH_REQUIRE(channels <= FTH_FOLD_ALLOWANCE, FTH_UNSUPPORTED, "%lld channels are too many", (long long)channels);
    FTH_TRY(fth_allocate((size_t)channels, sizeof *same.numbers, &same.numbers));
    for (int64_t i = 0; i < channels; i++)
        same.numbers[i] = number;
    FTH_TRY(lowering_add_constant(l, &same, &view));
    *value = view.value;
out:
    fth_host_tensor_release(&same);
    return status;
}

static fth_status batch_norm(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, y;
    lowering_pending pending = {.kind = LOWERING_BATCH_NORM};
    fth_value *inputs = pending.inputs;

    FTH_REQUIRE(!lowering_lacks(l, "running_mean") && !lowering_lacks(l, "running_var"), FTH_UNSUPPORTED,
                "a batch norm without running statistics; leave out track_running_stats=False");
    FTH_TRY(lowering_image(l, "input", 2, &x));
    const int64_t channels = fth_view_dim(&x, 1).factor;
    inputs[0] = x.value;
    FTH_TRY(or_constant(l, "weight", channels, 1, &inputs[1]));
    FTH_TRY(or_constant(l, "bias", channels, 0, &inputs[2]));
    FTH_TRY(lowering_state(l, "running_mean", &inputs[3]));
    FTH_TRY(lowering_state(l, "running_var", &inputs[4]));
    inputs[5] = FTH_NO_VALUE;
    pending.batch_norm = (fth_batch_norm_attributes){.epsilon = (float)lowering_number(l, "eps", 1e-5),
                                                     .momentum = (float)lowering_number(l, "momentum", 0.1),
                                                     .fixed = !lowering_bool(l, "training", true)};
    FTH_TRY(lowering_image_result(l, FTH_NO_VALUE, &y));
    FTH_TRY(lowering_set_pending(l, &pending, &y));
out:
    return status;
}

/* ---- other normalizations ---- */

/* y = x * weight + bias, each along dimension `dim` of x, where there are any. */
static fth_status scale_and_shift(lowering *l, int dim, fth_view *x)
{
    fth_status status = FTH_OK;
    static const char *const names[] = {"weight", "bias"};
    fth_expression expression = {0};
    fth_view views[2], *operands[3] = {x};
    fth_operand result = fth_expression_input(0);
    int count = 1;

    for (int i = 0; i < 2; i++) {
        if (lowering_lacks(l, names[i]))
            continue;
        fth_view *view = &views[i];
        FTH_TRY(lowering_tensor(l, names[i], view));
        if (dim >= 0)
            FTH_TRY(lowering_along(l, view->value, x->rank, dim, view));
        result = fth_expression_apply(&expression, i == 0 ? FTH_FUNCTION_MUL : FTH_FUNCTION_ADD, result,
                                      fth_expression_input(count), FTH_NO_OPERAND);
        operands[count++] = view;
    }
    if (count > 1)
        FTH_TRY(lowering_combine(l, &expression, operands, count, x));
out:
    return status;
}

static fth_status normalize_rows(lowering *l, int features, bool rms, double epsilon, fth_view *x)
{
    fth_status status = FTH_OK;
    fth_value value;
    FTH_TRY(lowering_rows(l, x, features));
    FTH_TRY(fth_op_add_normalize(lowering_graph(l), (float)epsilon, rms, x->value, &value));
    x->value = value;
out:
    return status;
}

static fth_status layer_norm(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x;
    fth_value scale, shift, value;
    const int features = (int)lowering_int_count(l, "normalized_shape");
    const double epsilon = lowering_number(l, "eps", 1e-5);

    FTH_TRY(lowering_tensor(l, "input", &x));
    FTH_REQUIRE(features >= 1 && features <= x.rank, FTH_UNSUPPORTED, "its normalized_shape does not fit its input");
    if (features == 1 && !lowering_lacks(l, "weight") && !lowering_lacks(l, "bias")) {
        FTH_TRY(lowering_rows(l, &x, 1));
        FTH_TRY(lowering_state(l, "weight", &scale));
        FTH_TRY(lowering_state(l, "bias", &shift));
        FTH_TRY(fth_op_add_layer_norm(lowering_graph(l), (fth_layer_norm_attributes){.epsilon = (float)epsilon},
                                      x.value, scale, shift, FTH_NO_VALUE, &value));
        x.value = value;
    } else {
        FTH_TRY(normalize_rows(l, features, false, epsilon, &x));
        FTH_TRY(scale_and_shift(l, -1, &x));
    }
    lowering_set(l, 0, &x);
out:
    return status;
}

static fth_status rms_norm(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x;
    const int features = (int)lowering_int_count(l, "normalized_shape");
    FTH_TRY(lowering_tensor(l, "input", &x));
    FTH_REQUIRE(features >= 1 && features <= x.rank, FTH_UNSUPPORTED, "its normalized_shape does not fit its input");
    FTH_TRY(normalize_rows(l, features, true, lowering_number(l, "eps", 1.1920928955078125e-07), &x));
    FTH_TRY(scale_and_shift(l, -1, &x));
    lowering_set(l, 0, &x);
out:
    return status;
}

/* Over groups of channels and all that is behind them. */
static fth_status normalize_groups(lowering *l, int64_t groups)
{
    fth_status status = FTH_OK;
    fth_view x;
    fth_exported_dim grouped[FTH_MAX_RANK], dims[FTH_MAX_RANK];

    FTH_TRY(lowering_tensor(l, "input", &x));
    FTH_REQUIRE(x.rank >= 2 && x.rank < FTH_MAX_RANK, FTH_UNSUPPORTED, "its input has %d dimensions", x.rank);
    const int rank = x.rank;
    for (int i = 0; i < rank; i++)
        dims[i] = fth_view_dim(&x, i);
    groups = groups > 0 ? groups : dims[1].factor;
    FTH_REQUIRE(dims[1].factor % groups == 0, FTH_UNSUPPORTED, "%lld channels do not divide into %lld groups",
                (long long)dims[1].factor, (long long)groups);
    grouped[0] = dims[0];
    grouped[1] = (fth_exported_dim){.factor = groups};
    grouped[2] = (fth_exported_dim){.factor = dims[1].factor / groups};
    for (int i = 2; i < rank; i++)
        grouped[i + 1] = dims[i];
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, rank + 1, grouped));
    FTH_TRY(normalize_rows(l, rank - 1, false, lowering_number(l, "eps", 1e-5), &x));
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, rank, dims));
    FTH_TRY(scale_and_shift(l, 1, &x));
    lowering_set(l, 0, &x);
out:
    return status;
}

static fth_status group_norm(lowering *l)
{
    return normalize_groups(l, lowering_int(l, "num_groups", 1));
}

static fth_status instance_norm(lowering *l)
{
    if (!lowering_lacks(l, "running_mean"))
        return fth_fail(FTH_UNSUPPORTED, "an instance norm with running statistics");
    return normalize_groups(l, 0);
}

/* ---- linear layers and embeddings ---- */

static fth_status linear(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, y;
    lowering_pending pending = {.kind = LOWERING_LINEAR};

    FTH_TRY(lowering_tensor(l, "input", &x));
    FTH_REQUIRE(x.rank >= 1, FTH_UNSUPPORTED, "its input is a number");
    FTH_TRY(lowering_rows(l, &x, 1));
    FTH_TRY(lowering_required_state(l, "weight", &pending.inputs[1]));
    FTH_TRY(lowering_state(l, "bias", &pending.inputs[2]));
    pending.inputs[0] = x.value;
    const fth_shape weight = fth_graph_value(lowering_graph(l), pending.inputs[1])->type.shape;
    FTH_REQUIRE(weight.rank == 2, FTH_UNSUPPORTED, "its weight has %d dimensions", weight.rank);
    FTH_TRY(lowering_rows_result(&x, 1, weight.dims[0], FTH_NO_VALUE, &y));
    FTH_TRY(lowering_set_pending(l, &pending, &y));
out:
    return status;
}

static fth_status embedding(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view ids, y;
    fth_atom_list in_memory = {0};
    fth_value table, value;
    int64_t padding = lowering_int(l, "padding_idx", -1);

    FTH_REQUIRE(!lowering_bool(l, "scale_grad_by_freq", false), FTH_UNSUPPORTED, "scale_grad_by_freq=True");
    FTH_TRY(lowering_required_state(l, "weight", &table));
    const fth_shape shape = fth_graph_value(lowering_graph(l), table)->type.shape;
    FTH_REQUIRE(shape.rank == 2 && padding < shape.dims[0], FTH_UNSUPPORTED, "its table has %d dimensions", shape.rank);
    FTH_TRY(lowering_tensor(l, "indices", &ids));
    FTH_REQUIRE(fth_graph_value(lowering_graph(l), ids.value)->type.dtype == FTH_I32, FTH_UNSUPPORTED,
                "its indices are computed from the input; they must be an input, or constant");
    while (in_memory.count < ids.atom_count && !ids.atoms[in_memory.count].expanded) { /* the others stay expanded */
        in_memory.atoms[in_memory.count] = (uint8_t)in_memory.count;
        in_memory.count++;
    }
    FTH_TRY(fth_view_arrange(lowering_graph(l), &ids, &in_memory, 1));
    FTH_TRY(fth_op_add_embedding(lowering_graph(l), padding, &ids.value, &table, 1, &value));
    y = ids;
    y.value = value;
    FTH_TRY(fth_view_insert(&y, y.rank));
    FTH_TRY(fth_view_resize(&y, y.rank - 1, in_memory.count, shape.dims[1]));
    lowering_set(l, 0, &y);
out:
    return status;
}

const lowering_row lowering_layers[] = {
    {"batch_norm", batch_norm},       {"layer_norm", layer_norm}, {"rms_norm", rms_norm},   {"group_norm", group_norm},
    {"instance_norm", instance_norm}, {"linear", linear},         {"embedding", embedding}, {NULL, NULL},
};
