/* Softmax, normalize, attention among sequences of one length, LSTM and GRU in ONNX: see
 * onnx_internal.h. */
#include <math.h>

#include "export/onnx_internal.h"

static fth_onnx_name add_integers(fth_onnx_writer *writer, const int64_t *values, int64_t count)
{
    return fth_onnx_add_constant(writer, FTH_ONNX_INT64, &count, 1, values, (size_t)count * sizeof *values);
}

#define SHAPE(writer, ...)                                                                                             \
    add_integers((writer), (int64_t[]){__VA_ARGS__}, (int64_t)FTH_COUNT_OF(((int64_t[]){__VA_ARGS__})))

static fth_onnx_name add_reshaped(fth_onnx_writer *writer, const char *x, fth_onnx_name shape)
{
    fth_onnx_name y = fth_onnx_make_name(writer, "reshaped");
    fth_onnx_add_plain(writer, "Reshape", x, shape.text, y.text);
    return y;
}

static fth_onnx_name add_transposed(fth_onnx_writer *writer, const char *x, const int64_t *permutation, size_t rank)
{
    fth_onnx_name y = fth_onnx_make_name(writer, "transposed");
    fth_protobuf node = fth_onnx_begin_node("Transpose", &x, 1);
    fth_onnx_add_integers(&node, "perm", permutation, rank);
    fth_onnx_end_node(writer, &node, y.text);
    return y;
}

/* Entries [begin, end) of an axis. */
static fth_onnx_name add_sliced(fth_onnx_writer *writer, const char *x, int64_t axis, int64_t begin, int64_t end)
{
    fth_onnx_name y = fth_onnx_make_name(writer, "sliced");
    const fth_onnx_name from = SHAPE(writer, begin), to = SHAPE(writer, end), along = SHAPE(writer, axis);
    fth_protobuf node = fth_onnx_begin_node("Slice", (const char *[]){x, from.text, to.text, along.text}, 4);
    fth_onnx_end_node(writer, &node, y.text);
    return y;
}

static fth_onnx_name add_pair(fth_onnx_writer *writer, const char *op, fth_onnx_name a, fth_onnx_name b)
{
    fth_onnx_name y = fth_onnx_make_name(writer, "value");
    fth_onnx_add_plain(writer, op, a.text, b.text, y.text);
    return y;
}

static void add_softmax(fth_onnx_writer *writer, const char *op, const char *x, const char *y)
{
    fth_protobuf node = fth_onnx_begin_node(op, &x, 1);
    fth_onnx_add_integer(&node, "axis", -1);
    fth_onnx_end_node(writer, &node, y);
}

static fth_status write_softmax(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_softmax_attributes *a = node->attributes;
    add_softmax(writer, a->log ? "LogSoftmax" : "Softmax", fth_onnx_input_name(writer, node, 0),
                fth_onnx_output_name(writer, node));
    return FTH_OK;
}

static fth_onnx_name add_mean(fth_onnx_writer *writer, const char *x)
{
    fth_onnx_name y = fth_onnx_make_name(writer, "mean");
    fth_protobuf node = fth_onnx_begin_node("ReduceMean", &x, 1);
    fth_onnx_add_integers(&node, "axes", (int64_t[]){-1}, 1);
    fth_onnx_end_node(writer, &node, y.text);
    return y;
}

/* (x - mean) / sqrt(mean of (x - mean)² + epsilon) */
static fth_status write_normalize(fth_onnx_writer *writer, const fth_node *node)
{
    const fth_normalize_attributes *a = node->attributes;
    const char *x = fth_onnx_input_name(writer, node, 0);
    const fth_onnx_name epsilon = fth_onnx_add_number(writer, a->epsilon);
    fth_onnx_name difference = fth_onnx_make_name(writer, "centered"), root = fth_onnx_make_name(writer, "value");
    fth_onnx_name squares = fth_onnx_make_name(writer, "squares");
    const char *centered = a->rms ? x : difference.text;
    if (!a->rms)
        fth_onnx_add_plain(writer, "Sub", x, add_mean(writer, x).text, centered);
    fth_onnx_add_plain(writer, "Mul", centered, centered, squares.text);
    const fth_onnx_name variance = add_pair(writer, "Add", add_mean(writer, squares.text), epsilon);
    fth_onnx_add_plain(writer, "Sqrt", variance.text, NULL, root.text);
    fth_onnx_add_plain(writer, "Div", centered, root.text, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

/* ---- attention ---- */

static int64_t features_of(const fth_onnx_writer *writer, fth_value value)
{
    return fth_graph_value(writer->graph, value)->type.shape.dims[1];
}

/* Operand `which` as (B, heads, length, D), or in the order of `permutation`; *size is heads times
 * D. */
static fth_onnx_name add_heads(fth_onnx_writer *writer, const fth_node *node, int which, int64_t length,
                               const int64_t permutation[4], int64_t *size)
{
    const fth_dot_product_attention_attributes *a = node->attributes;
    const int input = a->packed ? 0 : which;
    const char *rows = fth_onnx_input_name(writer, node, input);
    fth_onnx_name part;
    *size = features_of(writer, node->inputs[input]) / (a->packed ? 3 : 1);
    if (a->packed) {
        part = add_sliced(writer, rows, 1, which * *size, (which + 1) * *size);
        rows = part.text;
    }
    const fth_onnx_name shape = SHAPE(writer, -1, length, a->heads, *size / a->heads);
    return add_transposed(writer, add_reshaped(writer, rows, shape).text, permutation, 4);
}

/* -infinity where the key is behind the query, else 0. */
static fth_onnx_name add_causal_mask(fth_onnx_writer *writer, int64_t queries, int64_t keys)
{
    const int64_t one = 1;
    const fth_onnx_name infinity = fth_onnx_add_number(writer, -INFINITY), shape = SHAPE(writer, queries, keys);
    const fth_onnx_name diagonal = fth_onnx_add_constant(writer, FTH_ONNX_INT64, NULL, 0, &one, sizeof one);
    return add_pair(writer, "Trilu", add_pair(writer, "Expand", infinity, shape), diagonal);
}

/* The mask (M, ...) is added to scores (B, heads, queries, keys), of which entry b has mask b % M. */
static fth_onnx_name add_mask(fth_onnx_writer *writer, const fth_node *node, fth_onnx_name scores)
{
    const fth_dot_product_attention_attributes *a = node->attributes;
    const int input = a->packed ? 1 : 3;
    const int64_t entries = fth_graph_value(writer->graph, node->inputs[input])->type.shape.dims[0];
    fth_onnx_name sum = fth_onnx_make_name(writer, "masked");
    if (entries > 1) /* a batch is B itself */
        scores = add_reshaped(writer, scores.text, SHAPE(writer, -1, entries, a->heads, a->queries, a->keys));
    fth_onnx_add_plain(writer, "Add", scores.text, fth_onnx_input_name(writer, node, input), sum.text);
    return entries > 1 ? add_reshaped(writer, sum.text, SHAPE(writer, -1, a->heads, a->queries, a->keys)) : sum;
}

static fth_status write_attention(fth_onnx_writer *writer, const fth_node *node)
{
    static const int64_t in_front[] = {0, 2, 1, 3}, transposed[] = {0, 2, 3, 1};
    const fth_dot_product_attention_attributes *a = node->attributes;
    int64_t size;
    const fth_onnx_name query = add_heads(writer, node, 0, a->queries, in_front, &size);
    const fth_onnx_name key = add_heads(writer, node, 1, a->keys, transposed, &size);
    const fth_onnx_name value = add_heads(writer, node, 2, a->keys, in_front, &size);
    const fth_onnx_name scale = fth_onnx_add_number(writer, a->scale);
    fth_onnx_name scores = add_pair(writer, "Mul", add_pair(writer, "MatMul", query, key), scale);
    if (a->mask)
        scores = add_mask(writer, node, scores);
    if (a->causal)
        scores = add_pair(writer, "Add", scores, add_causal_mask(writer, a->queries, a->keys));
    fth_onnx_name probabilities = fth_onnx_make_name(writer, "attention");
    add_softmax(writer, "Softmax", scores.text, probabilities.text);
    const fth_onnx_name heads = add_pair(writer, "MatMul", probabilities, value);
    fth_onnx_add_plain(writer, "Reshape", add_transposed(writer, heads.text, in_front, 4).text,
                       SHAPE(writer, -1, size).text, fth_onnx_output_name(writer, node));
    return FTH_OK;
}

/* ---- LSTM, GRU ---- */

/* The gates of a weight or bias (G H, ...) in ONNX's order: i, o, f, g, and z, r, n. */
static fth_onnx_name add_reordered(fth_onnx_writer *writer, fth_recurrent_kind kind, int64_t hidden, const char *x)
{
    static const int orders[][4] = {[FTH_LSTM] = {0, 3, 1, 2}, [FTH_GRU] = {1, 0, 2}};
    fth_onnx_name gates[4], y = fth_onnx_make_name(writer, "gates");
    fth_protobuf concat = fth_onnx_begin_node("Concat", NULL, 0);
    for (int i = 0; i < fth_recurrent_gates(kind); i++) {
        const int64_t from = orders[kind][i] * hidden;
        gates[i] = add_sliced(writer, x, 0, from, from + hidden);
        fth_onnx_add_input(&concat, gates[i].text);
    }
    fth_onnx_add_integer(&concat, "axis", 0);
    fth_onnx_end_node(writer, &concat, y.text);
    return y;
}

static fth_onnx_name add_in_front(fth_onnx_writer *writer, const char *x)
{
    fth_onnx_name y = fth_onnx_make_name(writer, "value");
    fth_onnx_add_plain(writer, "Unsqueeze", x, SHAPE(writer, 0).text, y.text);
    return y;
}

/* Both biases, (1, 2 G H). */
static fth_onnx_name add_biases(fth_onnx_writer *writer, fth_recurrent_kind kind, int64_t hidden, const char *of_input,
                                const char *of_state)
{
    const fth_onnx_name first = add_reordered(writer, kind, hidden, of_input);
    const fth_onnx_name second = add_reordered(writer, kind, hidden, of_state);
    fth_onnx_name y = fth_onnx_make_name(writer, "biases");
    fth_protobuf concat = fth_onnx_begin_node("Concat", (const char *[]){first.text, second.text}, 2);
    fth_onnx_add_integer(&concat, "axis", 0);
    fth_onnx_end_node(writer, &concat, y.text);
    return add_in_front(writer, y.text);
}

/* The node reads what the linear layer before it reads: ONNX's has the inputs' weight in it. */
static fth_status find_linear(const fth_onnx_writer *writer, const fth_node *node, const fth_node **linear)
{
    const int producer = fth_graph_value(writer->graph, node->inputs[0])->producer;
    const fth_recurrent_attributes *a = node->attributes;
    *linear = producer >= 0 ? fth_graph_node(writer->graph, producer) : NULL;
    if (!*linear || (*linear)->op != &fth_op_linear || (*linear)->input_count != 2 + a->bias)
        return fth_fail(FTH_UNSUPPORTED, "an LSTM or GRU whose inputs are not those of a linear layer");
    return FTH_OK;
}

static void write_states(fth_onnx_writer *writer, const fth_node *node, fth_onnx_name y, fth_onnx_name h,
                         fth_onnx_name c)
{
    enum { Y, LAST_H = 3, LAST_C };
    static const int64_t sequences_first[] = {2, 0, 1, 3};
    const fth_recurrent_attributes *a = node->attributes;
    const int64_t hidden = features_of(writer, node->inputs[1]);
    const fth_onnx_name turned = add_transposed(writer, y.text, sequences_first, 4), rows = SHAPE(writer, -1, hidden);
    fth_onnx_add_plain(writer, "Reshape", turned.text, rows.text, writer->names[node->outputs[Y]]);
    if (writer->names[node->outputs[LAST_H]])
        fth_onnx_add_plain(writer, "Reshape", h.text, rows.text, writer->names[node->outputs[LAST_H]]);
    if (writer->names[node->outputs[LAST_C]] && a->kind == FTH_LSTM)
        fth_onnx_add_plain(writer, "Reshape", c.text, rows.text, writer->names[node->outputs[LAST_C]]);
}

static fth_status write_recurrent(fth_onnx_writer *writer, const fth_node *node)
{
    static const int64_t steps_first[] = {1, 0, 2};
    fth_status status = FTH_OK;
    const fth_recurrent_attributes *a = node->attributes;
    const bool lstm = a->kind == FTH_LSTM;
    const int64_t hidden = features_of(writer, node->inputs[1]);
    const fth_node *linear;
    FTH_TRY(find_linear(writer, node, &linear));
    const fth_onnx_name shape = SHAPE(writer, -1, a->length, features_of(writer, linear->inputs[0]));
    const fth_onnx_name sequences = add_reshaped(writer, fth_onnx_input_name(writer, linear, 0), shape);
    const fth_onnx_name x = add_transposed(writer, sequences.text, steps_first, 3);
    const fth_onnx_name of_input = add_reordered(writer, a->kind, hidden, fth_onnx_input_name(writer, linear, 1));
    const fth_onnx_name of_state = add_reordered(writer, a->kind, hidden, fth_onnx_input_name(writer, node, 1));
    const fth_onnx_name w = add_in_front(writer, of_input.text), r = add_in_front(writer, of_state.text);
    fth_onnx_name biases = {""}, h0 = {""}, c0 = {""};
    if (a->bias)
        biases = add_biases(writer, a->kind, hidden, fth_onnx_input_name(writer, linear, 2),
                            fth_onnx_input_name(writer, node, 2));
    if (a->initial)
        h0 = add_in_front(writer, fth_onnx_input_name(writer, node, 2 + a->bias));
    if (a->initial && lstm)
        c0 = add_in_front(writer, fth_onnx_input_name(writer, node, 3 + a->bias));
    /* The fifth input is the lengths of sequences. */
    const char *inputs[] = {x.text, w.text, r.text, biases.text, "", h0.text, c0.text};
    fth_protobuf layer = fth_onnx_begin_node(lstm ? "LSTM" : "GRU", inputs, lstm ? 7 : 6);
    fth_onnx_add_integer(&layer, "hidden_size", hidden);
    fth_onnx_add_text(&layer, "direction", a->reverse ? "reverse" : "forward");
    if (!lstm)
        fth_onnx_add_integer(&layer, "linear_before_reset", 1);
    const fth_onnx_name y = fth_onnx_make_name(writer, "recurrent"), h = fth_onnx_make_name(writer, "recurrent"),
                        c = fth_onnx_make_name(writer, "recurrent");
    fth_onnx_add_output(&layer, y.text);
    if (lstm)
        fth_onnx_add_output(&layer, h.text);
    fth_onnx_end_node(writer, &layer, lstm ? c.text : h.text);
    write_states(writer, node, y, h, c);
out:
    return status;
}

const fth_onnx_op fth_onnx_sequence_ops[] = {
    {&fth_op_softmax, write_softmax},
    {&fth_op_normalize, write_normalize},
    {&fth_op_dot_product_attention, write_attention},
    {&fth_op_recurrent, write_recurrent},
    {NULL, NULL},
};
