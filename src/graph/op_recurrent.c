/* recurrent: the steps of an LSTM or a GRU over sequences of one length, and the gradient;
 * fth_op_add_recurrent() makes layers of it, with linear for the inputs of all steps. See ops.h. */
#include "graph/graph_internal.h"
#include "graph/ops.h"

enum { PROJECTED, WEIGHT, BIAS };
enum { Y, GATES, CELLS, LAST_H, LAST_C, OUTPUTS };
enum { DPROJECTED, DWEIGHT, DBIAS, DH, DC };

int fth_recurrent_gates(fth_recurrent_kind kind)
{
    return kind == FTH_LSTM ? 4 : 3;
}

/* What the op has besides the projected inputs and the weight. */
static int count_inputs(const fth_recurrent_attributes *a)
{
    return 2 + a->bias + (a->initial ? 1 + (a->kind == FTH_LSTM) : 0);
}

/* The sequences: rows of states, given the shape of rows of steps. */
static int64_t sequences_of(const fth_recurrent_attributes *a, int64_t rows)
{
    const int64_t each = fth_rows_per_sample(rows);
    return each > 0 ? fth_batch_times(each / a->length) : rows / a->length;
}

static fth_status check(const fth_recurrent_attributes *a, const fth_type *projected, const fth_type *weight,
                        int64_t *hidden)
{
    fth_status status = FTH_OK;
    const int gates = fth_recurrent_gates(a->kind);
    FTH_TRY(fth_rule_check_float(projected, "the projected inputs", 2));
    FTH_TRY(fth_rule_check_float(weight, "the weight", 2));
    const int64_t rows = projected->shape.dims[0], each = fth_rows_per_sample(rows);
    FTH_REQUIRE(a->length >= 1 && rows != FTH_TOKENS && (each > 0 ? each : rows) % a->length == 0, FTH_INVALID,
                "the projected inputs have shape %s, whose rows are no sequences of %lld steps",
                FTH_SHAPE_TEXT(&projected->shape), (long long)a->length);
    *hidden = weight->shape.dims[1];
    FTH_TRY(fth_rule_check_shape(weight, "the weight", &FTH_SHAPE(gates * *hidden, *hidden)));
    FTH_TRY(fth_rule_check_shape(projected, "the projected inputs", &FTH_SHAPE(rows, gates * *hidden)));
out:
    return status;
}

static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_recurrent_attributes *a = attributes;
    const int count = count_inputs(a);
    int64_t hidden;

    FTH_TRY(fth_rule_check_count(input_count, count, count));
    FTH_TRY(check(a, &inputs[PROJECTED], &inputs[WEIGHT], &hidden));
    const int64_t rows = inputs[PROJECTED].shape.dims[0];
    const fth_shape state = FTH_SHAPE(sequences_of(a, rows), hidden);
    if (a->bias)
        FTH_TRY(fth_rule_check_shape(&inputs[BIAS], "the bias", &FTH_SHAPE(inputs[WEIGHT].shape.dims[0])));
    for (int i = 2 + a->bias; i < count; i++)
        FTH_TRY(fth_rule_check_shape(&inputs[i], "the first state", &state));
    outputs[Y] = outputs[CELLS] = (fth_type){FTH_F32, FTH_SHAPE(rows, hidden)};
    outputs[GATES] = inputs[PROJECTED];
    outputs[LAST_H] = outputs[LAST_C] = (fth_type){FTH_F32, state};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    fth_recurrent_attributes a = *(const fth_recurrent_attributes *)node->attributes;
    const int states = count_inputs(&a) - 2 - a.bias, first_state = 2 + a.bias;
    fth_value inputs[9] = {node->inputs[WEIGHT], node->outputs[GATES], node->outputs[CELLS], node->outputs[Y]};
    fth_value gradients[5];
    int count = 4;

    FTH_REQUIRE(output_gradients[GATES] == FTH_NO_VALUE && output_gradients[CELLS] == FTH_NO_VALUE, FTH_UNSUPPORTED,
                "gates and cells have no gradient");
    for (int i = 0; i < states; i++)
        inputs[count++] = node->inputs[first_state + i];
    a.has_dy = output_gradients[Y] != FTH_NO_VALUE;
    a.has_dh = output_gradients[LAST_H] != FTH_NO_VALUE;
    a.has_dc = output_gradients[LAST_C] != FTH_NO_VALUE && a.kind == FTH_LSTM;
    if (a.has_dy)
        inputs[count++] = output_gradients[Y];
    if (a.has_dh)
        inputs[count++] = output_gradients[LAST_H];
    if (a.has_dc)
        inputs[count++] = output_gradients[LAST_C];
    FTH_TRY(fth_graph_add_node(graph, &fth_op_recurrent_grad, &a, inputs, count, gradients));
    input_gradients[PROJECTED] = gradients[DPROJECTED];
    input_gradients[WEIGHT] = gradients[DWEIGHT];
    if (a.bias)
        input_gradients[BIAS] = gradients[DBIAS];
    for (int i = 0; i < states; i++)
        input_gradients[first_state + i] = gradients[DH + i];
out:
    return status;
}

const fth_op fth_op_recurrent = {
    .name = "recurrent",
    .attributes_size = sizeof(fth_recurrent_attributes),
    .output_count = OUTPUTS,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_recurrent_attributes *a = attributes;
    const int states = count_inputs(a) - 2 - a->bias, count = 4 + states + a->has_dy + a->has_dh + a->has_dc;
    int64_t hidden;

    FTH_TRY(fth_rule_check_count(input_count, count, count));
    FTH_TRY(check(a, &inputs[1], &inputs[0], &hidden));
    const int64_t rows = inputs[1].shape.dims[0];
    const fth_shape state = FTH_SHAPE(sequences_of(a, rows), hidden), steps = FTH_SHAPE(rows, hidden);
    FTH_TRY(fth_rule_check_shape(&inputs[2], "the cells", &steps));
    FTH_TRY(fth_rule_check_shape(&inputs[3], "the output", &steps));
    if (a->has_dy)
        FTH_TRY(fth_rule_check_shape(&inputs[4 + states], "the output's gradient", &steps));
    for (int i = 4 + states + a->has_dy; i < count; i++)
        FTH_TRY(fth_rule_check_shape(&inputs[i], "the last state's gradient", &state));
    outputs[DPROJECTED] = inputs[1];
    outputs[DWEIGHT] = inputs[0];
    outputs[DBIAS] = (fth_type){FTH_F32, FTH_SHAPE(inputs[0].shape.dims[0])};
    outputs[DH] = outputs[DC] = (fth_type){FTH_F32, state};

out:
    return status;
}

const fth_op fth_op_recurrent_grad = {
    .name = "recurrent_grad",
    .attributes_size = sizeof(fth_recurrent_attributes),
    .output_count = 5,
    .infer = infer_grad,
};

/* ---- layers ---- */

/* What one layer in one direction is made of. */
typedef struct direction {
    const fth_value *parameters; /* weight_ih, weight_hh, [bias_ih, bias_hh] */
    fth_value h0, c0;            /* or none */
} direction;

static fth_status add_direction(fth_graph *graph, const fth_recurrent_options *o, const direction *d, bool reverse,
                                int64_t length, fth_value x, fth_value *y, fth_value *h, fth_value *c)
{
    fth_status status = FTH_OK;
    const fth_recurrent_attributes attributes = {
        .kind = o->kind, .length = length, .reverse = reverse, .bias = o->bias, .initial = d->h0 != FTH_NO_VALUE};
    fth_value inputs[5], outputs[OUTPUTS];
    int count = 2;
    FTH_TRY(fth_op_add_linear(graph, false, x, d->parameters[0], o->bias ? d->parameters[2] : FTH_NO_VALUE,
                              &inputs[PROJECTED]));
    inputs[WEIGHT] = d->parameters[1];
    if (o->bias)
        inputs[count++] = d->parameters[3];
    if (attributes.initial)
        inputs[count++] = d->h0;
    if (attributes.initial && o->kind == FTH_LSTM)
        inputs[count++] = d->c0;
    FTH_TRY(fth_graph_add_node(graph, &fth_op_recurrent, &attributes, inputs, count, outputs));
    *y = outputs[Y];
    *h = outputs[LAST_H];
    *c = outputs[LAST_C];
out:
    return status;
}

/* State `index` of `count` that are beside each other; none of none. */
static fth_status take_state(fth_graph *graph, fth_value states, int64_t hidden, int index, int count, fth_value *state)
{
    *state = states;
    if (states == FTH_NO_VALUE || count == 1)
        return FTH_OK;
    return fth_op_add_slice(graph, 1, index * hidden, (index + 1) * hidden, 1, states, state);
}

static fth_status join(fth_graph *graph, const fth_value *parts, int count, fth_value *joined)
{
    *joined = parts[0];
    return count == 1 ? FTH_OK : fth_op_add_concat(graph, 1, parts, count, joined);
}

static fth_status check_options(const fth_graph *graph, const fth_recurrent_options *o, fth_value x, int count)
{
    fth_status status = FTH_OK;
    const int directions = o->bidirectional ? 2 : 1, each = o->bias ? 4 : 2;
    const fth_value_info *input = fth_graph_value(graph, x);
    FTH_TRY(fth_rule_check_dropout(o->dropout));
    FTH_REQUIRE(o->layers >= 1 && o->layers <= FTH_MAX_RECURRENT / directions, FTH_INVALID,
                "%d recurrent layers in %d directions; there may be 1 to %d of all", o->layers, directions,
                FTH_MAX_RECURRENT);
    FTH_REQUIRE(count == o->layers * directions * each, FTH_INVALID, "%s need %d parameters, not %d",
                FTH_COUNTED(o->layers, "recurrent layer"), o->layers * directions * each, count);
    FTH_REQUIRE(input && input->type.shape.rank == 3 && input->type.shape.dims[0] != FTH_TOKENS, FTH_INVALID,
                "the input of a recurrent layer must have shape (N, steps, features)");
out:
    return status;
}

fth_status fth_op_add_recurrent(fth_graph *graph, fth_recurrent_options o, fth_value x, const fth_value *parameters,
                                int parameter_count, fth_value h0_or_none, fth_value c0_or_none, fth_value *y,
                                fth_value *h, fth_value *c)
{
    fth_status status = FTH_OK;
    const int directions = o.bidirectional ? 2 : 1, each = o.bias ? 4 : 2, states = o.layers * directions;
    fth_value last_h[FTH_MAX_RECURRENT], last_c[FTH_MAX_RECURRENT], ys[2];

    FTH_TRY(check_options(graph, &o, x, parameter_count));
    const fth_shape shape = fth_graph_value(graph, x)->type.shape;
    const int64_t sequences = fth_rows_per_sample(shape.dims[0]), length = shape.dims[1];
    const int64_t rows = sequences > 0 ? fth_batch_times(sequences * length) : shape.dims[0] * length;
    const fth_value_info *weight = fth_graph_value(graph, parameters[1]);
    const int64_t hidden = weight && weight->type.shape.rank == 2 ? weight->type.shape.dims[1] : 1;
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(rows, shape.dims[2]), x, &x));
    for (int layer = 0; layer < o.layers; layer++) {
        for (int reverse = 0; reverse < directions; reverse++) {
            const int at = layer * directions + reverse;
            direction d = {.parameters = parameters + at * each};
            FTH_TRY(take_state(graph, h0_or_none, hidden, at, states, &d.h0));
            FTH_TRY(take_state(graph, c0_or_none, hidden, at, states, &d.c0));
            FTH_TRY(add_direction(graph, &o, &d, reverse, length, x, &ys[reverse], &last_h[at], &last_c[at]));
        }
        FTH_TRY(join(graph, ys, directions, &x));
        if (o.dropout > 0 && layer + 1 < o.layers)
            FTH_TRY(fth_op_add_dropout(graph, o.dropout, x, &x));
    }
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(shape.dims[0], length, directions * hidden), x, y));
    if (h)
        FTH_TRY(join(graph, last_h, states, h));
    if (c)
        FTH_TRY(join(graph, last_c, states, c));

out:
    return status;
}
