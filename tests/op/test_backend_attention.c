/* Attention among sequences of one length, softmax, normalize, and losses of several rows a sample,
 * on every back end: the reference against central differences, the others against the reference,
 * in training and in evaluation.
 *
 * images (N, rows, width) -> (rows N, width) -> linear layers -> the op -> linear -> a loss of
 * (rows N, CLASSES)
 *
 * so that every row has logits, and a batch's rows are a multiple of its samples. */
#include <math.h>

#include "op_harness.h"

enum { CLASSES = 5, BATCH = 3 };

typedef enum mask_kind {
    NO_MASK,
    MASK_PARAMETER, /* numbers that are trained */
    MASK_INPUT,     /* 0 and -infinity; query 1 of the first entry sees nothing */
    MASK_SAMPLES    /* of every sequence, computed from the images */
} mask_kind;

typedef struct attention_case {
    const char *name;
    fth_status (*build)(fth_graph *graph, const struct attention_case *with, fth_value x, fth_value *y);
    int sequences; /* of a sample; 0: 1 */
    int queries, keys, heads, size, value_size;
    bool causal, packed;
    mask_kind mask;
    int mask_entries, mask_heads, mask_queries;
    float probability;
    bool option;                     /* softmax: its logarithm; normalize: rms */
    fth_recurrent_options recurrent; /* over queries * keys steps; the output is y if there is more than one query */
    bool initial;                    /* its first states are computed from the images */
    fth_status (*loss)(fth_graph *graph, fth_value outputs, fth_value targets, fth_value *loss);
    int ignored; /* every how many labels are ignored; 0: none */
    float label_smoothing;
} attention_case;

/* ---- building ---- */

enum { WIDTH = 6 };

static fth_initializer normal(double deviation)
{
    return (fth_initializer){FTH_INIT_NORMAL, deviation};
}

static int64_t sequences_of(const attention_case *with)
{
    return with->sequences > 0 ? with->sequences : 1;
}

static const fth_shape *shape_of(const fth_graph *graph, fth_value x)
{
    return &fth_graph_value(graph, x)->type.shape;
}

static fth_status add_linear(fth_graph *graph, const char *name, int64_t outputs, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    char text[64];
    fth_value weight, bias;
    const int64_t features = shape_of(graph, x)->dims[1];
    snprintf(text, sizeof text, "%s.weight", name);
    FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(outputs, features), normal(1 / sqrt((double)features)),
                                    &weight));
    snprintf(text, sizeof text, "%s.bias", name);
    FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(outputs), (fth_initializer){FTH_INIT_CONSTANT, 0}, &bias));
    FTH_TRY(fth_op_add_linear(graph, false, x, weight, bias, y));
out:
    return status;
}

/* The images' numbers as `rows` rows of each sample. */
static fth_status add_rows(fth_graph *graph, fth_value images, int64_t rows, fth_value *y)
{
    const int64_t numbers = shape_of(graph, images)->dims[1];
    return fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(rows), numbers / rows), images, y);
}

static fth_status add_mask(fth_graph *graph, const attention_case *with, fth_value images, fth_value *mask)
{
    fth_status status = FTH_OK;
    const int64_t sequences = sequences_of(with), heads = with->mask_heads > 0 ? with->mask_heads : 1;
    const int64_t queries = with->mask_queries > 0 ? with->mask_queries : 1;
    const int64_t entries = with->mask_entries > 0 ? with->mask_entries : 1;
    *mask = FTH_NO_VALUE;
    switch (with->mask) {
    case NO_MASK: break;
    case MASK_PARAMETER:
        FTH_TRY(
            fth_graph_add_parameter(graph, "mask", FTH_SHAPE(entries, heads, queries, with->keys), normal(1), mask));
        break;
    case MASK_INPUT:
        FTH_TRY(fth_graph_add_input(graph, "mask", FTH_F32, FTH_SHAPE(entries, heads, queries, with->keys), mask));
        break;
    case MASK_SAMPLES:
        FTH_TRY(add_rows(graph, images, sequences, mask));
        FTH_TRY(add_linear(graph, "mask", heads * queries * with->keys, *mask, mask));
        FTH_TRY(
            fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(sequences), heads, queries, with->keys), *mask, mask));
    }
out:
    return status;
}

static fth_status build_attention(fth_graph *graph, const attention_case *with, fth_value images, fth_value *y)
{
    fth_status status = FTH_OK;
    const int64_t heads = with->heads, value_size = with->value_size > 0 ? with->value_size : with->size;
    const fth_dot_product_attention_attributes attributes = {.heads = with->heads,
                                                             .queries = with->queries,
                                                             .keys = with->keys,
                                                             .causal = with->causal,
                                                             .scale = 0.9f / sqrtf((float)with->size),
                                                             .probability = with->probability};
    fth_value from_queries, from_keys, q, k, v, mask;
    FTH_TRY(add_rows(graph, images, sequences_of(with) * with->queries, &from_queries));
    FTH_TRY(add_rows(graph, images, sequences_of(with) * with->keys, &from_keys));
    FTH_TRY(add_mask(graph, with, images, &mask));
    if (with->packed) {
        fth_value parts[3], all;
        FTH_TRY(add_linear(graph, "all", 3 * heads * with->size, from_queries, &all));
        for (int i = 0; i < 3; i++)
            FTH_TRY(
                fth_op_add_slice(graph, 1, i * heads * with->size, (i + 1) * heads * with->size, 1, all, &parts[i]));
        q = parts[0], k = parts[1], v = parts[2];
    } else {
        FTH_TRY(add_linear(graph, "query", heads * with->size, from_queries, &q));
        FTH_TRY(add_linear(graph, "key", heads * with->size, from_keys, &k));
        FTH_TRY(add_linear(graph, "value", heads * value_size, from_keys, &v));
    }
    FTH_TRY(fth_op_add_dot_product_attention(graph, attributes, q, k, v, mask, y));
out:
    return status;
}

static fth_status build_softmax(fth_graph *graph, const attention_case *with, fth_value images, fth_value *y)
{
    fth_status status = FTH_OK;
    FTH_TRY(add_rows(graph, images, with->queries, y));
    FTH_TRY(add_linear(graph, "before", with->size, *y, y));
    FTH_TRY(fth_op_add_softmax(graph, with->option, *y, y));
out:
    return status;
}

/* Over the last of three axes. */
static fth_status build_deep_softmax(fth_graph *graph, const attention_case *with, fth_value images, fth_value *y)
{
    fth_status status = FTH_OK;
    FTH_TRY(add_rows(graph, images, with->queries, y));
    FTH_TRY(add_linear(graph, "before", 3 * with->size, *y, y));
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, with->queries, 3, with->size), *y, y));
    FTH_TRY(fth_op_add_softmax(graph, with->option, *y, y));
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(with->queries), 3 * with->size), *y, y));
out:
    return status;
}

static fth_status build_normalize(fth_graph *graph, const attention_case *with, fth_value images, fth_value *y)
{
    fth_status status = FTH_OK;
    FTH_TRY(add_rows(graph, images, with->queries, y));
    FTH_TRY(add_linear(graph, "before", with->size, *y, y));
    FTH_TRY(fth_op_add_normalize(graph, 1e-5f, with->option, *y, y));
out:
    return status;
}

/* y, or the sum of all that is left in the end. */
static fth_status build_recurrent(fth_graph *graph, const attention_case *with, fth_value images, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_recurrent_options *o = &with->recurrent;
    const int64_t steps = (int64_t)with->queries * with->keys, directions = o->bidirectional ? 2 : 1;
    const int64_t gates = fth_recurrent_gates(o->kind) * with->size, states = o->layers * directions * with->size;
    fth_value parameters[32], h0 = FTH_NO_VALUE, c0 = FTH_NO_VALUE, h, c, x;
    int count = 0;
    for (int64_t i = 0; i < o->layers * directions; i++) {
        const int64_t inputs = i < directions ? WIDTH : directions * with->size;
        const fth_shape shapes[] = {FTH_SHAPE(gates, inputs), FTH_SHAPE(gates, with->size), FTH_SHAPE(gates),
                                    FTH_SHAPE(gates)};
        for (int p = 0; p < (o->bias ? 4 : 2); p++) {
            char text[32];
            snprintf(text, sizeof text, "recurrent.%d", count);
            FTH_TRY(fth_graph_add_parameter(graph, text, shapes[p], normal(0.7 / sqrt((double)with->size)),
                                            &parameters[count++]));
        }
    }
    if (with->initial) {
        FTH_TRY(add_linear(graph, "h0", states, images, &h0));
        FTH_TRY(add_linear(graph, "c0", states, images, &c0));
    }
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, steps, WIDTH), images, &x));
    FTH_TRY(
        fth_op_add_recurrent(graph, *o, x, parameters, count, h0, o->kind == FTH_LSTM ? c0 : FTH_NO_VALUE, &x, &h, &c));
    if (with->queries > 1)
        return fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(steps), directions * with->size), x, y);
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, steps * directions * with->size), x, &x));
    FTH_TRY(add_linear(graph, "all", states, x, &x));
    FTH_TRY(fth_op_add_add(graph, false, x, h, y));
    if (o->kind == FTH_LSTM)
        FTH_TRY(fth_op_add_add(graph, false, *y, c, y));
out:
    return status;
}

static fth_status build_rows(fth_graph *graph, const attention_case *with, fth_value images, fth_value *y)
{
    return add_rows(graph, images, with->queries, y);
}

static fth_status build_graph(const attention_case *with, fth_graph **graph)
{
    fth_status status = FTH_OK;
    fth_value images, x, labels, loss;
    const int64_t keys = with->keys > 0 ? with->keys : 1;
    FTH_TRY(fth_graph_create(graph));
    FTH_TRY(fth_graph_add_input(*graph, "images", FTH_F32,
                                FTH_SHAPE(FTH_BATCH, sequences_of(with) * with->queries * keys * WIDTH), &images));
    FTH_TRY(with->build(*graph, with, images, &x));
    FTH_TRY(add_linear(*graph, "head", CLASSES, x, &x));
    const int64_t rows = shape_of(*graph, x)->dims[0];
    if (with->loss) {
        FTH_TRY(fth_graph_add_input(*graph, "targets", FTH_F32, FTH_SHAPE(rows, CLASSES), &labels));
        FTH_TRY(with->loss(*graph, x, labels, &loss));
    } else {
        FTH_TRY(fth_graph_add_input(*graph, "labels", FTH_I32, FTH_SHAPE(rows), &labels));
        FTH_TRY(fth_op_add_softmax_cross_entropy(*graph, with->label_smoothing, x, labels, &loss));
    }
    fth_graph_set_outputs(*graph, x, loss);
    FTH_TRY(fth_graph_differentiate(*graph));
out:
    return status;
}

/* Rows of each sample in the logits. */
static int64_t rows_of(const attention_case *with)
{
    return sequences_of(with) * with->queries;
}

static void fill_mask(const attention_case *with, op_network *network)
{
    float *mask = op_network_input(network, "mask");
    const int64_t keys = with->keys, rows = (int64_t)with->mask_entries * with->mask_heads * with->mask_queries;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < keys; j++)
            mask[r * keys + j] = r == 1 || (r * 7 + j * 5) % 3 == 1 ? -INFINITY : 0.125f * (float)(j % 3);
}

/* Samples [first, end) of a batch of BATCH. */
static void build_part(const attention_case *with, int first, int end, op_network *network)
{
    fth_graph *graph = NULL;
    op_network whole;
    op_check(build_graph(with, &graph));
    op_network_create(&whole, graph, BATCH, 1);
    op_network_randomize(&whole, 2);
    const int64_t rows = rows_of(with), pixels = shape_of(graph, fth_graph_find(graph, "images"))->dims[1];
    for (int64_t r = 0; with->ignored > 0 && r < BATCH * rows; r++)
        if (r % with->ignored == 1)
            whole.labels[r] = FTH_IGNORED_LABEL;
    memmove(whole.images, whole.images + first * pixels, (size_t)((end - first) * pixels) * sizeof(float));
    if (whole.labels)
        memmove(whole.labels, whole.labels + first * rows, (size_t)((end - first) * rows) * sizeof(int32_t));
    if (with->loss) {
        float *targets = op_network_input(&whole, "targets");
        for (int64_t i = 0; i < CLASSES * rows * (end - first); i++)
            targets[i] = (float)fth_random_below(fth_random_key_for(5, FTH_RANDOM_GENERATE),
                                                 (uint64_t)(i + first * rows * CLASSES), 2);
    }
    if (with->mask == MASK_INPUT)
        fill_mask(with, &whole);
    whole.batch = end - first;
    whole.reduction = 4 * (rows * BATCH + with->keys + (int64_t)WIDTH * with->queries * (with->keys + 1));
    whole.label_smoothing = with->label_smoothing;
    *network = whole;
}

static void build_network(const attention_case *with, op_network *network)
{
    build_part(with, 0, BATCH, network);
}

/* ---- the cases ---- */

#define ATTENTION(l, k, h, d) .build = build_attention, .queries = (l), .keys = (k), .heads = (h), .size = (d)
#define MASK(kind, m, h, q)   .mask = (kind), .mask_entries = (m), .mask_heads = (h), .mask_queries = (q)
#define ROWS(r, f)            .queries = (r), .size = (f)
#define RECURRENT(q, k, h, what, n)                                                                                    \
    .build = build_recurrent, .queries = (q), .keys = (k), .size = (h), .recurrent.kind = (what),                      \
    .recurrent.layers = (n)

static const attention_case cases[] = {
    {"attention, 1 head of 1", ATTENTION(3, 3, 1, 1)},
    {"attention, 2 heads of 5", ATTENTION(7, 7, 2, 5)},
    {"attention, one query", ATTENTION(1, 4, 2, 3)},
    {"attention, one query, one key", ATTENTION(1, 1, 1, 4)},
    {"attention, 5 queries, 9 keys", ATTENTION(5, 9, 2, 8)},
    {"attention, values of another size", ATTENTION(6, 4, 2, 5), .value_size = 9},
    {"attention, causal", ATTENTION(9, 9, 2, 4), .causal = true},
    {"attention, causal, more keys", ATTENTION(4, 11, 1, 6), .causal = true},
    {"attention, causal, more queries", ATTENTION(11, 4, 1, 6), .causal = true},
    {"attention, dropout", ATTENTION(10, 10, 3, 8), .probability = 0.3f},
    {"attention, causal, dropout, 2 sequences of a sample", ATTENTION(13, 13, 2, 8), .sequences = 2, .causal = true,
     .probability = 0.2f},
    {"attention, mask", ATTENTION(6, 5, 2, 4), MASK(MASK_PARAMETER, 1, 2, 6)},
    {"attention, mask for all heads", ATTENTION(6, 5, 2, 4), MASK(MASK_PARAMETER, 1, 1, 6)},
    {"attention, mask for all queries", ATTENTION(6, 5, 2, 4), MASK(MASK_PARAMETER, 1, 2, 1)},
    {"attention, masks of windows, dropout", ATTENTION(6, 6, 2, 4), .sequences = 4, MASK(MASK_PARAMETER, 2, 2, 6),
     .probability = 0.1f},
    {"attention, mask of 0 and -infinity", ATTENTION(6, 7, 2, 4), MASK(MASK_INPUT, 1, 2, 6)},
    {"attention, mask of 0 and -infinity, causal", ATTENTION(6, 6, 1, 4), MASK(MASK_INPUT, 1, 1, 6), .causal = true},
    {"attention, masks of sequences", ATTENTION(5, 6, 2, 4), .sequences = 2, MASK(MASK_SAMPLES, 0, 1, 1)},
    {"attention, packed", ATTENTION(7, 7, 2, 5), .packed = true},
    {"attention, packed, causal, dropout", ATTENTION(17, 17, 3, 4), .packed = true, .causal = true,
     .probability = 0.1f},
    {"attention, packed, mask", ATTENTION(6, 6, 2, 4), .packed = true, MASK(MASK_PARAMETER, 1, 2, 6)},
    {"attention, 2 heads of 64, long", ATTENTION(150, 150, 2, 64)},
    {"attention, 2 heads of 32, causal, long", ATTENTION(197, 197, 2, 32), .packed = true, .causal = true,
     .probability = 0.1f},
    {"attention, 1 head of 80, causal, long, mask", ATTENTION(131, 131, 1, 80), .causal = true,
     MASK(MASK_PARAMETER, 1, 1, 131)},

    {"softmax", .build = build_softmax, ROWS(3, 7)},
    {"softmax 1", .build = build_softmax, ROWS(2, 1)},
    {"softmax 70", .build = build_softmax, ROWS(5, 70)},
    {"softmax 2100", .build = build_softmax, ROWS(2, 2100)},
    {"softmax of images", .build = build_deep_softmax, ROWS(4, 9)},
    {"log softmax", .build = build_softmax, ROWS(3, 7), .option = true},
    {"log softmax 70", .build = build_softmax, ROWS(5, 70), .option = true},
    {"log softmax 2100", .build = build_softmax, ROWS(2, 2100), .option = true},
    {"normalize", .build = build_normalize, ROWS(3, 7)},
    {"normalize 67", .build = build_normalize, ROWS(5, 67)},
    {"normalize 2100", .build = build_normalize, ROWS(2, 2100)},
    {"rms normalize", .build = build_normalize, ROWS(3, 7), .option = true},
    {"rms normalize 67", .build = build_normalize, ROWS(5, 67), .option = true},

    {"lstm", RECURRENT(7, 1, 5, FTH_LSTM, 1), .recurrent.bias = true},
    {"lstm, one step, one number", RECURRENT(2, 1, 1, FTH_LSTM, 1)},
    {"lstm, last states", RECURRENT(1, 6, 5, FTH_LSTM, 1), .recurrent.bias = true},
    {"lstm, 2 layers, first and last states", RECURRENT(1, 4, 3, FTH_LSTM, 2), .recurrent.bias = true, .initial = true},
    {"lstm, both directions, 2 layers, dropout", RECURRENT(5, 1, 4, FTH_LSTM, 2), .recurrent.bidirectional = true,
     .recurrent.dropout = 0.25f},
    {"lstm 70, long", RECURRENT(130, 1, 70, FTH_LSTM, 1), .recurrent.bias = true},
    {"gru", RECURRENT(7, 1, 5, FTH_GRU, 1), .recurrent.bias = true},
    {"gru, one step, one number", RECURRENT(2, 1, 1, FTH_GRU, 1)},
    {"gru, last states", RECURRENT(1, 6, 5, FTH_GRU, 1), .recurrent.bias = true},
    {"gru, first states, both directions", RECURRENT(5, 1, 4, FTH_GRU, 1), .recurrent.bias = true, .initial = true,
     .recurrent.bidirectional = true},
    {"gru 70, long", RECURRENT(130, 1, 70, FTH_GRU, 1), .recurrent.bias = true},

    {"cross-entropy of rows", .build = build_rows, .queries = 7, .label_smoothing = 0.1f},
    {"cross-entropy, ignored labels", .build = build_rows, .queries = 7, .ignored = 3},
    {"cross-entropy, ignored labels, smoothing", .build = build_rows, .queries = 5, .ignored = 2,
     .label_smoothing = 0.2f},
    {"squared error of rows", .build = build_rows, .queries = 7, .loss = fth_op_add_squared_error},
    {"sigmoid cross-entropy of rows", .build = build_rows, .queries = 7, .loss = fth_op_add_sigmoid_cross_entropy},
};

/* ---- the tests ---- */

/* A part of a larger batch, where dropout has begun elsewhere. */
static const fth_run plain_run = {.seed = 3, .step = 7, .first_sample = 2, .gradient_scale = 1};
static const char *const precisions[] = {"f32", "bf16", "f16", "tf32"}; /* by fth_precision */

/* NaN in every byte of the arena: what is read before it is written shows. */
static void run_spoiled(const op_network *network, fth_device *device, fth_plan_mode mode, fth_precision precision,
                        op_result *result)
{
    op_session session;
    op_session_open(&session, network, device, mode, precision);
    const size_t size = fth_plan_arena_bytes(session.plan);
    void *bytes = malloc(size > 0 ? size : 1);
    assert_non_null(bytes);
    memset(bytes, 0xff, size);
    op_check(device->backend->copy_in(device, session.arena, bytes, size));
    free(bytes);
    op_session_run(&session, &plain_run);
    op_session_read(&session, result);
    op_session_close(&session);
}

static void test_differences(void **state)
{
    const attention_case *with = *state;
    op_network network;
    build_network(with, &network);
    int differences = op_check_differences(&network, op_device("reference"), with->name);
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

static void compare(const attention_case *with, fth_precision precision)
{
    static const char *const names[] = {OP_DEVICES};
    int differences = 0;
    op_network network;
    build_network(with, &network);
    for (int mode = FTH_PLAN_TRAIN; mode <= FTH_PLAN_EVALUATE; mode++) {
        op_result wanted, found;
        run_spoiled(&network, op_device("reference"), (fth_plan_mode)mode, FTH_PRECISION_F32, &wanted);
        for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
            fth_device *device = op_device(names[i]);
            char who[160];
            if (device == NULL || device->backend->check_precision(device, precision) != FTH_OK)
                continue;
            snprintf(who, sizeof who, "%s on %s, %s, %s", with->name, names[i], precisions[precision],
                     mode == FTH_PLAN_TRAIN ? "training" : "evaluation");
            run_spoiled(&network, device, (fth_plan_mode)mode, precision, &found);
            differences += op_compare(&network, &found, &wanted, precision, who);
            op_result_free(&found);
        }
        op_result_free(&wanted);
    }
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

static void test_f32(void **state)
{
    compare(*state, FTH_PRECISION_F32);
}

static void test_bf16(void **state)
{
    compare(*state, FTH_PRECISION_BF16);
}

/* Only GPUs have it. */
static void test_f16(void **state)
{
    if (op_device("cuda") == NULL)
        skip();
    compare(*state, FTH_PRECISION_F16);
}

static bool any_nan(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (isnan(values[i]))
            return true;
    return false;
}

/* A NaN in one sample shows in its own logits, in no other sample's, and in the loss. */
static void test_nan(void **state)
{
    static const char *const names[] = {"reference", OP_DEVICES};
    const attention_case *with = *state;
    op_network network;
    build_network(with, &network);
    const int64_t pixels = shape_of(network.graph, fth_graph_find(network.graph, "images"))->dims[1];
    const size_t logits = (size_t)(rows_of(with) * CLASSES);
    network.images[pixels] = NAN; /* the first number of sample 1 */
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        for (int precision = 0; device && precision < (int)FTH_COUNT_OF(precisions); precision++) {
            op_result result;
            if (device->backend->check_precision(device, (fth_precision)precision) != FTH_OK)
                continue;
            run_spoiled(&network, device, FTH_PLAN_TRAIN, (fth_precision)precision, &result);
            assert_true(any_nan(result.logits + logits, logits));
            assert_false(any_nan(result.logits, logits));
            assert_false(any_nan(result.logits + 2 * logits, logits));
            assert_true(with->ignored > 0 || isnan(result.loss[0])); /* the row may be one that does not count */
            op_result_free(&result);
        }
    }
    op_network_free(&network);
}

/* A batch in two parts, with dropout: each sample has the logits that it has in the whole, and the
 * gradients, each by its share of the labels that count, add up to those of the whole. */
static void test_parts(void **state)
{
    static const char *const names[] = {"reference", OP_DEVICES};
    static const int begins[] = {0, 1, BATCH};
    const attention_case *with = *state;
    op_network network, part;
    build_network(with, &network);
    const size_t floats = fth_graph_parameter_floats(network.graph);
    const int64_t rows = rows_of(with);
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        op_result whole, found;
        if (device == NULL)
            continue;
        float *sums = calloc(floats, sizeof *sums);
        assert_non_null(sums);
        op_run_once(&network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &plain_run, &whole);
        for (size_t p = 0; p + 1 < FTH_COUNT_OF(begins); p++) {
            fth_run run = plain_run;
            int64_t counted = 0, all = 0;
            for (int64_t r = 0; r < BATCH * rows; r++) {
                const bool counts = !network.labels || network.labels[r] != FTH_IGNORED_LABEL;
                all += counts;
                counted += counts && r >= begins[p] * rows && r < begins[p + 1] * rows;
            }
            run.first_sample += (uint64_t)begins[p];
            run.gradient_scale = (float)counted / (float)all;
            build_part(with, begins[p], begins[p + 1], &part);
            op_run_once(&part, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &run, &found);
            assert_true(op_relative_error(found.logits, whole.logits + CLASSES * rows * begins[p], found.logit_count,
                                          0) < 1e-5);
            for (size_t f = 0; f < floats; f++)
                sums[f] += found.gradients[f];
            op_result_free(&found);
            op_network_free(&part);
        }
        assert_true(op_relative_error(sums, whole.gradients, floats, 0) < 2e-5);
        op_result_free(&whole);
        free(sums);
    }
    op_network_free(&network);
}

/* Columns of one value are read in place: the attention has one input, and nothing slices. */
static void test_packed_is_read_in_place(void **state)
{
    (void)state;
    op_network network;
    op_session session;
    build_network(
        &(attention_case){.build = build_attention, .queries = 4, .keys = 4, .heads = 2, .size = 4, .packed = true},
        &network);
    op_session_open(&session, &network, op_device("cpu"), FTH_PLAN_TRAIN, FTH_PRECISION_F32);
    for (int s = 0; s < fth_plan_step_count(session.plan); s++) {
        const fth_node *node = fth_graph_node(network.graph, fth_plan_step_node(session.plan, s));
        assert_true(node->op != &fth_op_slice && node->op != &fth_op_pad && node->op != &fth_op_add);
        assert_true(node->op != &fth_op_dot_product_attention || node->input_count == 1);
    }
    op_session_close(&session);
    op_network_free(&network);
}

/* No label counts: the loss and all gradients are 0. */
static void test_all_ignored(void **state)
{
    static const char *const names[] = {"reference", OP_DEVICES};
    (void)state;
    op_network network;
    build_network(&(attention_case){.build = build_rows, .queries = 4, .ignored = 2}, &network);
    for (int64_t r = 0; r < BATCH * 4; r++)
        network.labels[r] = FTH_IGNORED_LABEL;
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        op_result result;
        if (device == NULL)
            continue;
        run_spoiled(&network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &result);
        assert_true(result.loss[0] == 0 && result.loss[1] == 0);
        for (size_t f = 0; f < fth_graph_parameter_floats(network.graph); f++)
            assert_true(result.gradients[f] == 0);
        op_result_free(&result);
    }
    op_network_free(&network);
}

/* Differences take hundreds of runs of the reference. */
static bool is_large(const attention_case *with)
{
    return with->queries * (with->keys + 1) * with->heads > 2000 || with->size > 1000 ||
           with->queries * with->size > 8000;
}

/* An argument, a pattern as of cmocka_set_test_filter(), chooses tests: "f32: attention*". */
int main(int argc, char **argv)
{
    static struct CMUnitTest tests[6 * FTH_COUNT_OF(cases) + 2];
    static char names[FTH_COUNT_OF(tests)][96];
    static const struct {
        const char *prefix;
        CMUnitTestFunction run;
    } kinds[] = {{"differences", test_differences},
                 {"f32", test_f32},
                 {"bf16", test_bf16},
                 {"f16", test_f16},
                 {"NaN", test_nan},
                 {"parts", test_parts}};
    size_t count = 0;
    for (size_t k = 0; k < FTH_COUNT_OF(kinds); k++)
        for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
            if (kinds[k].run == test_differences && is_large(&cases[i]))
                continue;
            snprintf(names[count], sizeof names[count], "%s: %s", kinds[k].prefix, cases[i].name);
            tests[count] = (struct CMUnitTest){
                .name = names[count], .test_func = kinds[k].run, .initial_state = (void *)&cases[i]};
            count++;
        }
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_all_ignored);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_packed_is_read_in_place);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("attention on every back end", tests, count, NULL, op_close_devices);
}
