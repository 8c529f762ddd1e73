/* LSTM and GRU: PyTorch's operators take all layers and directions at once. */
#include "exported/lowering.h"

/* The initial states (S, N, H) of one kind as (N, S H); none where there is no such argument. */
static fth_status initial_state(lowering *l, size_t index, fth_value *state)
{
    fth_status status = FTH_OK;
    fth_view view;
    *state = FTH_NO_VALUE;
    if (lowering_lacks(l, "hx"))
        goto out;
    if (lowering_tensor_count(l, "hx") > 0)
        FTH_TRY(lowering_tensor_of(l, "hx", index, &view));
    else
        FTH_TRY(lowering_tensor(l, "hx", &view));
    FTH_REQUIRE(view.rank == 3, FTH_UNSUPPORTED, "its initial state has %d dimensions", view.rank);
    fth_view_permute(&view, (const int[]){1, 0, 2});
    const fth_atom_list lists[] = {view.dims[0], fth_view_join(&view, 1, 2)};
    FTH_TRY(fth_view_arrange(lowering_graph(l), &view, lists, 2));
    *state = view.value;
out:
    return status;
}

/* A last state (N, S H) as (S, N, H). */
static fth_status set_state(lowering *l, size_t output, fth_value value)
{
    fth_status status = FTH_OK;
    if (lowering_node(l)->output_count <= output || lowering_node(l)->outputs[output] < 0)
        return FTH_OK;
    const fth_exported_dim *dims = lowering_output(l, output)->dims;
    fth_view view;
    FTH_TRY(fth_view_create(value, 3, (const fth_exported_dim[]){dims[1], dims[0], dims[2]}, &view));
    fth_view_permute(&view, (const int[]){1, 0, 2});
    lowering_set(l, output, &view);
out:
    return status;
}

static fth_status recurrent(lowering *l, fth_recurrent_kind kind)
{
    enum { MOST_PARAMETERS = 4 * FTH_MAX_RECURRENT };
    fth_status status = FTH_OK;
    fth_view x, y, parameter;
    fth_value parameters[MOST_PARAMETERS], first[2], result, last[2];
    const bool batch_first = lowering_bool(l, "batch_first", false);
    const size_t count = lowering_tensor_count(l, "params");
    const fth_recurrent_options options = {
        .kind = kind,
        .layers = (int)lowering_int(l, "num_layers", 1),
        .bidirectional = lowering_bool(l, "bidirectional", false),
        .bias = lowering_bool(l, "has_biases", true),
        .dropout = lowering_bool(l, "train", true) && !lowering_options(l)->no_dropout
                       ? (float)lowering_number(l, "dropout", 0)
                       : 0,
    };

    FTH_REQUIRE(count <= MOST_PARAMETERS, FTH_UNSUPPORTED, "it has %zu parameters", count);
    FTH_TRY(lowering_tensor(l, "input", &x));
    FTH_REQUIRE(x.rank == 3, FTH_UNSUPPORTED, "its input has %d dimensions; it must be a batch", x.rank);
    if (!batch_first)
        fth_view_permute(&x, (const int[]){1, 0, 2});
    FTH_TRY(fth_view_arrange_plain(lowering_graph(l), &x));
    for (size_t i = 0; i < count; i++) {
        FTH_TRY(lowering_tensor_of(l, "params", i, &parameter));
        FTH_TRY(fth_view_arrange_plain(lowering_graph(l), &parameter));
        parameters[i] = parameter.value;
    }
    FTH_TRY(initial_state(l, 0, &first[0]));
    first[1] = FTH_NO_VALUE;
    if (kind == FTH_LSTM)
        FTH_TRY(initial_state(l, 1, &first[1]));
    FTH_TRY(fth_op_add_recurrent(lowering_graph(l), options, x.value, parameters, (int)count, first[0], first[1],
                                 &result, &last[0], kind == FTH_LSTM ? &last[1] : NULL));
    const fth_exported_dim features = lowering_output(l, 0)->dims[2];
    FTH_TRY(
        fth_view_create(result, 3, (const fth_exported_dim[]){fth_view_dim(&x, 0), fth_view_dim(&x, 1), features}, &y));
    if (!batch_first)
        fth_view_permute(&y, (const int[]){1, 0, 2});
    lowering_set(l, 0, &y);
    FTH_TRY(set_state(l, 1, last[0]));
    if (kind == FTH_LSTM)
        FTH_TRY(set_state(l, 2, last[1]));
out:
    return status;
}

static fth_status lstm(lowering *l)
{
    return recurrent(l, FTH_LSTM);
}

static fth_status gru(lowering *l)
{
    return recurrent(l, FTH_GRU);
}

const lowering_row lowering_recurrent[] = {
    {"lstm", lstm},
    {"gru", gru},
    {NULL, NULL},
};
