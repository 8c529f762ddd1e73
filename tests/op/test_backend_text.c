/* The ops of text on every back end: the reference against central differences, the others against
 * the reference, in training and in evaluation, with dropout, on sequences of odd lengths.
 *
 * The op under test stands between an embedding and a linear layer that gives logits for each
 * token,
 *
 *     tokens, positions (T) -> embedding -> the op -> linear -> softmax cross-entropy with labels (T)
 *
 * so that every row of its output has a gradient, those behind the last sequence too. Ops on
 * samples take "images" instead. */
#include <math.h>

#include "op_harness.h"

enum { VOCABULARY = 37, CLASSES = 5, MAX_SEQUENCES = 16 };

typedef struct text_case {
    const char *name;
    fth_status (*build)(fth_graph *graph, const struct text_case *with, fth_value x, fth_value ends, fth_value *y);
    int lengths[MAX_SEQUENCES]; /* up to the first 0 */
    int room;                   /* rows behind the last sequence */
    int features;               /* of the embedding */
    int padding;                /* the number of words' row that has no gradient, from 1 on; 0: none */
    int heads;
    float probability;
    bool residual;
    fth_matrix_product_attributes product;
    fth_status (*loss)(fth_graph *graph, fth_value outputs, fth_value targets, fth_value *loss);
} text_case;

/* ---- building ---- */

static const fth_initializer zero = {FTH_INIT_CONSTANT, 0}, one = {FTH_INIT_CONSTANT, 1};

static fth_initializer normal(double deviation)
{
    return (fth_initializer){FTH_INIT_NORMAL, deviation};
}

static int64_t features_of(const fth_graph *graph, fth_value x)
{
    return fth_graph_value(graph, x)->type.shape.dims[1];
}

static fth_status add_linear(fth_graph *graph, const char *name, int64_t outputs, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    char text[64];
    fth_value weight, bias;
    const int64_t features = features_of(graph, x);
    snprintf(text, sizeof text, "%s.weight", name);
    FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(outputs, features), normal(1 / sqrt((double)features)),
                                    &weight));
    snprintf(text, sizeof text, "%s.bias", name);
    FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(outputs), zero, &bias));
    FTH_TRY(fth_op_add_linear(graph, false, x, weight, bias, y));
out:
    return status;
}

static fth_status add_layer_norm(fth_graph *graph, const char *name, float probability, fth_value x, fth_value residual,
                                 fth_value *y)
{
    fth_status status = FTH_OK;
    char text[64];
    fth_value scale, shift;
    snprintf(text, sizeof text, "%s.weight", name);
    FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(features_of(graph, x)), one, &scale));
    snprintf(text, sizeof text, "%s.bias", name);
    FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(features_of(graph, x)), zero, &shift));
    FTH_TRY(fth_op_add_layer_norm(graph, (fth_layer_norm_attributes){.epsilon = 1e-5f, .probability = probability}, x,
                                  scale, shift, residual, y));
out:
    return status;
}

static fth_status add_qkv_linear(fth_graph *graph, int64_t outputs, fth_value x, fth_value *y)
{
    static const char *const parts[] = {"query", "key", "value"};
    fth_status status = FTH_OK;
    char text[64];
    fth_value weights[3], biases[3];
    const int64_t features = features_of(graph, x);
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "%s.weight", parts[i]);
        FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(outputs, features), normal(1 / sqrt((double)features)),
                                        &weights[i]));
    }
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "%s.bias", parts[i]);
        FTH_TRY(fth_graph_add_parameter(graph, text, FTH_SHAPE(outputs), zero, &biases[i]));
    }
    FTH_TRY(fth_op_add_qkv_linear(graph, x, weights, biases, y));
out:
    return status;
}

static int longest_of(const text_case *with)
{
    int longest = 1;
    for (int i = 0; i < MAX_SEQUENCES; i++)
        longest = with->lengths[i] > longest ? with->lengths[i] : longest;
    return longest;
}

static fth_status add_attention(fth_graph *graph, const text_case *with, fth_value x, fth_value ends, fth_value *y)
{
    return fth_op_add_attention(
        graph,
        (fth_attention_attributes){.heads = with->heads, .longest = longest_of(with), .probability = with->probability},
        x, ends, y);
}

static fth_status build_nothing(fth_graph *graph, const text_case *with, fth_value x, fth_value ends, fth_value *y)
{
    (void)graph, (void)with, (void)ends;
    *y = x;
    return FTH_OK;
}

/* The residual is another function of the same input. */
static fth_status build_layer_norm(fth_graph *graph, const text_case *with, fth_value x, fth_value ends, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value residual = FTH_NO_VALUE;
    (void)ends;
    if (with->residual)
        FTH_TRY(add_linear(graph, "before", with->features, x, &residual));
    FTH_TRY(add_layer_norm(graph, "norm", with->probability, x, residual, y));
out:
    return status;
}

/* Nothing else reads x: a back end may write the sum over it. */
static fth_status build_layer_norm_of_sum(fth_graph *graph, const text_case *with, fth_value x, fth_value ends,
                                          fth_value *y)
{
    (void)ends;
    return add_layer_norm(graph, "norm", with->probability, x, x, y);
}

static fth_status build_dropout(fth_graph *graph, const text_case *with, fth_value x, fth_value ends, fth_value *y)
{
    (void)ends;
    return fth_op_add_dropout(graph, with->probability, x, y);
}

static fth_status build_qkv_linear(fth_graph *graph, const text_case *with, fth_value x, fth_value ends, fth_value *y)
{
    (void)ends;
    return add_qkv_linear(graph, with->features + 3, x, y);
}

static fth_status build_attention(fth_graph *graph, const text_case *with, fth_value x, fth_value ends, fth_value *y)
{
    return add_attention(graph, with, x, ends, y);
}

/* first_tokens, and the labels are the samples'. */
static fth_status build_first_tokens(fth_graph *graph, const text_case *with, fth_value x, fth_value ends, fth_value *y)
{
    (void)with;
    return fth_op_add_first_tokens(graph, x, ends, y);
}

/* A layer of BERT, and what follows the last: its first tokens through a pooler. */
static fth_status build_encoder(fth_graph *graph, const text_case *with, fth_value x, fth_value ends, fth_value *y)
{
    fth_status status = FTH_OK;
    const int64_t hidden = with->features;
    fth_value attended, normalized;
    FTH_TRY(add_layer_norm(graph, "embeddings", 0, x, FTH_NO_VALUE, &x));
    FTH_TRY(fth_op_add_dropout(graph, with->probability, x, &x));
    FTH_TRY(add_qkv_linear(graph, hidden, x, &attended));
    FTH_TRY(add_attention(graph, with, attended, ends, &attended));
    FTH_TRY(add_linear(graph, "output", hidden, attended, &attended));
    FTH_TRY(add_layer_norm(graph, "first", with->probability, attended, x, &normalized));
    FTH_TRY(add_linear(graph, "wide", 2 * hidden, normalized, &x));
    FTH_TRY(fth_op_add_gelu(graph, x, &x));
    FTH_TRY(add_linear(graph, "narrow", hidden, x, &x));
    FTH_TRY(add_layer_norm(graph, "second", with->probability, x, normalized, &x));
    FTH_TRY(fth_op_add_first_tokens(graph, x, ends, &x));
    FTH_TRY(add_linear(graph, "pooler", hidden, x, &x));
    FTH_TRY(fth_op_add_tanh(graph, x, &x));
    FTH_TRY(fth_op_add_dropout(graph, with->probability, x, y));
out:
    return status;
}

/* Two layers of matrices (N, M, K) and (N, K, P), as given or transposed. */
static fth_status build_matrix_product(fth_graph *graph, const text_case *with, fth_value x, fth_value ends,
                                       fth_value *y)
{
    enum { M = 3, K = 7, P = 5 };
    fth_status status = FTH_OK;
    fth_value a, b;
    const fth_reshape_attributes left = {with->product.transpose_a ? FTH_SHAPE(FTH_BATCH, K, M)
                                                                   : FTH_SHAPE(FTH_BATCH, M, K)};
    const fth_reshape_attributes right = {with->product.transpose_b ? FTH_SHAPE(FTH_BATCH, P, K)
                                                                    : FTH_SHAPE(FTH_BATCH, K, P)};
    (void)ends;
    FTH_TRY(add_linear(graph, "left", M * K, x, &a));
    FTH_TRY(add_linear(graph, "right", K * P, x, &b));
    FTH_TRY(fth_graph_add_node(graph, &fth_op_reshape, &left, &a, 1, &a));
    FTH_TRY(fth_graph_add_node(graph, &fth_op_reshape, &right, &b, 1, &b));
    FTH_TRY(fth_op_add_matrix_product(graph, with->product, a, b, y));
    FTH_TRY(fth_op_add_flatten(graph, *y, y));
out:
    return status;
}

/* Cases of text have heads, or none; those of samples take images (N, features). */
static bool is_text(const text_case *with)
{
    return with->loss == NULL && with->build != build_matrix_product;
}

static fth_status add_embedding(fth_graph *graph, const text_case *with, fth_value *x)
{
    fth_status status = FTH_OK;
    fth_value ids[2], tables[2];
    FTH_TRY(fth_graph_add_input(graph, "tokens", FTH_I32, FTH_SHAPE(FTH_TOKENS), &ids[0]));
    FTH_TRY(fth_graph_add_input(graph, "positions", FTH_I32, FTH_SHAPE(FTH_TOKENS), &ids[1]));
    FTH_TRY(fth_graph_add_parameter(graph, "words", FTH_SHAPE(VOCABULARY, with->features), normal(0.7), &tables[0]));
    FTH_TRY(
        fth_graph_add_parameter(graph, "places", FTH_SHAPE(longest_of(with), with->features), normal(0.7), &tables[1]));
    FTH_TRY(fth_op_add_embedding(graph, with->padding - 1, ids, tables, 2, x));
out:
    return status;
}

static fth_status build_graph(const text_case *with, fth_graph **graph)
{
    fth_status status = FTH_OK;
    fth_value x, ends = FTH_NO_VALUE, labels, loss;
    FTH_TRY(fth_graph_create(graph));
    if (is_text(with)) {
        FTH_TRY(fth_graph_add_input(*graph, "ends", FTH_I32, FTH_SHAPE(FTH_BATCH), &ends));
        FTH_TRY(add_embedding(*graph, with, &x));
    } else {
        FTH_TRY(fth_graph_add_input(*graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, with->features), &x));
    }
    FTH_TRY(with->build(*graph, with, x, ends, &x));
    FTH_TRY(add_linear(*graph, "head", CLASSES, x, &x));
    const int64_t rows = fth_graph_value(*graph, x)->type.shape.dims[0];
    if (with->loss) {
        FTH_TRY(fth_graph_add_input(*graph, "targets", FTH_F32, FTH_SHAPE(rows, CLASSES), &labels));
        FTH_TRY(with->loss(*graph, x, labels, &loss));
    } else {
        FTH_TRY(fth_graph_add_input(*graph, "labels", FTH_I32, FTH_SHAPE(rows), &labels));
        FTH_TRY(fth_op_add_softmax_cross_entropy(*graph, 0, x, labels, &loss));
    }
    fth_graph_set_outputs(*graph, x, loss);
    FTH_TRY(fth_graph_differentiate(*graph));
out:
    return status;
}

/* What `count` rows say, of which the first has the number `number`. */
static void fill_rows(int32_t *tokens, int32_t *positions, int64_t count, int64_t number, int longest, uint64_t seed)
{
    const fth_random_key key = fth_random_key_for(seed, FTH_RANDOM_GENERATE);
    for (int64_t t = 0; t < count; t++) {
        const uint64_t at = (uint64_t)(number + t);
        tokens[t] = (int32_t)fth_random_below(fth_random_fork(key, 1), at, VOCABULARY);
        positions[t] = (int32_t)fth_random_below(fth_random_fork(key, 2), at, (uint64_t)longest);
    }
}

static int count_sequences(const text_case *with)
{
    int count = 0;
    while (count < MAX_SEQUENCES && with->lengths[count] > 0)
        count++;
    return count;
}

/* Sequences [first, end) of the case. */
static void build_part(const text_case *with, int first, int end, op_network *network)
{
    fth_graph *graph = NULL;
    int64_t before = 0, used = 0;
    for (int i = 0; i < end; i++)
        *(i < first ? &before : &used) += with->lengths[i];
    op_check(build_graph(with, &graph));
    op_network_create_text(network, graph, end - first, used + with->room, 1);
    op_network_randomize(network, 2);
    network->reduction = 4 * (with->features + longest_of(with) + network->tokens);
    if (with->loss) {
        float *targets = op_network_input(network, "targets");
        for (int i = 0; i < CLASSES * (end - first); i++)
            targets[i] = (float)fth_random_below(fth_random_key_for(5, FTH_RANDOM_GENERATE), (uint64_t)i, 2);
    }
    if (!is_text(with))
        return;
    int32_t *ends = op_network_input(network, "ends"), *tokens = op_network_input(network, "tokens");
    int32_t *positions = op_network_input(network, "positions");
    for (int i = first; i < end; i++)
        ends[i - first] = (i > first ? ends[i - first - 1] : 0) + with->lengths[i];
    /* Rows keep what they say in the whole batch. */
    fill_rows(tokens, positions, used, before, longest_of(with), 3);
    fill_rows(tokens + used, positions + used, with->room, used, longest_of(with), 4);
}

static void build_network(const text_case *with, op_network *network)
{
    build_part(with, 0, count_sequences(with), network);
}

/* ---- the cases ---- */

#define LENGTHS(...) .lengths = {__VA_ARGS__}

static const text_case cases[] = {
    {"embedding", .build = build_nothing, LENGTHS(3, 1, 9), .room = 3, .features = 33},
    {"embedding 64", .build = build_nothing, LENGTHS(40, 90), .room = 30, .features = 64},

    {"layer norm", .build = build_layer_norm, LENGTHS(5, 2, 6), .room = 3, .features = 33},
    {"layer norm 64, residual", .build = build_layer_norm, LENGTHS(17, 3), .features = 64, .residual = true},
    {"layer norm 17, dropout", .build = build_layer_norm, LENGTHS(7, 4), .room = 1, .features = 17,
     .probability = 0.25f},
    {"layer norm 128, dropout, residual", .build = build_layer_norm, LENGTHS(1, 30, 9), .room = 8, .features = 128,
     .probability = 0.1f, .residual = true},
    {"layer norm, dropout, its input as residual", .build = build_layer_norm_of_sum, LENGTHS(7, 4), .features = 64,
     .probability = 0.25f},
    {"layer norm of one feature", .build = build_layer_norm, LENGTHS(3), .features = 1},
    {"dropout of tokens", .build = build_dropout, LENGTHS(4, 9), .room = 2, .features = 17, .probability = 0.5f},

    {"qkv linear", .build = build_qkv_linear, LENGTHS(3, 6), .room = 2, .features = 10},
    {"qkv linear 61", .build = build_qkv_linear, LENGTHS(21, 30), .room = 13, .features = 61},

    {"attention, 1 head of 1", .build = build_attention, LENGTHS(3, 2), .room = 2, .features = 3, .heads = 1},
    {"attention, 2 heads of 5", .build = build_attention, LENGTHS(4, 1, 7), .room = 3, .features = 30, .heads = 2},
    {"attention, 3 heads of 8, dropout", .build = build_attention, LENGTHS(1, 19, 33), .room = 4, .features = 72,
     .heads = 3, .probability = 0.1f},
    {"attention, 2 heads of 32", .build = build_attention, LENGTHS(20, 64, 1, 17), .room = 10, .features = 192,
     .heads = 2},
    {"attention, 2 heads of 32, dropout", .build = build_attention, LENGTHS(16, 31, 65), .features = 192, .heads = 2,
     .probability = 0.3f},
    {"attention, 1 head of 64, dropout", .build = build_attention, LENGTHS(128, 50, 3), .room = 11, .features = 192,
     .heads = 1, .probability = 0.1f},
    {"attention, 1 head of 128, dropout", .build = build_attention, LENGTHS(9, 40), .room = 3, .features = 384,
     .heads = 1, .probability = 0.1f},
    {"attention, 1 head of 80", .build = build_attention, LENGTHS(33, 5), .room = 1, .features = 240, .heads = 1},
    {"attention, a long sequence, dropout", .build = build_attention, LENGTHS(300), .room = 20, .features = 24,
     .heads = 1, .probability = 0.1f},

    {"first tokens", .build = build_first_tokens, LENGTHS(3, 1, 5, 1), .room = 2, .features = 9},
    {"encoder", .build = build_encoder, LENGTHS(6, 11), .room = 5, .features = 32, .heads = 2, .probability = 0.1f},
    /* 48 rows of 64 features are what matrix units take in whole tiles, three high. */
    {"encoder of whole tiles", .build = build_encoder, LENGTHS(20, 13, 8), .room = 7, .features = 64, .heads = 2},
    {"encoder of 12 sequences", .build = build_encoder, LENGTHS(20, 31, 5, 40, 28, 2, 1, 64, 33, 48, 21, 12),
     .room = 15, .features = 64, .heads = 1, .probability = 0.1f},

    {"matrix product", .build = build_matrix_product, LENGTHS(1, 1, 1), .features = 6},
    {"matrix product, left transposed", .build = build_matrix_product, LENGTHS(1, 1), .features = 6,
     .product = {.transpose_a = true}},
    {"matrix product, right transposed", .build = build_matrix_product, LENGTHS(1, 1), .features = 6,
     .product = {.transpose_b = true}},
    {"matrix product, both transposed", .build = build_matrix_product, LENGTHS(1), .features = 6,
     .product = {.transpose_a = true, .transpose_b = true}},
    {"squared error", .build = build_nothing, LENGTHS(1, 1, 1), .features = 7, .loss = fth_op_add_squared_error},
    {"sigmoid cross-entropy", .build = build_nothing, LENGTHS(1, 1, 1), .features = 7,
     .loss = fth_op_add_sigmoid_cross_entropy},
};

static const text_case *find_case(const char *name)
{
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++)
        if (strcmp(cases[i].name, name) == 0)
            return &cases[i];
    fail_msg("no case '%s'", name);
    return NULL;
}

/* ---- the tests ---- */

/* Parts of larger batches, where dropout has begun elsewhere. */
static const fth_run plain_run = {.seed = 3, .step = 7, .first_sample = 2, .first_token = 101, .gradient_scale = 1};
static const char *const precisions[] = {"f32", "bf16", "f16", "tf32"}; /* by fth_precision */

/* NaN in every byte of the arena: what is read before it is written shows. */
static void spoil_arena(op_session *session)
{
    const size_t size = fth_plan_arena_bytes(session->plan);
    void *bytes = malloc(size > 0 ? size : 1);
    assert_non_null(bytes);
    memset(bytes, 0xff, size);
    op_check(session->device->backend->copy_in(session->device, session->arena, bytes, size));
    free(bytes);
}

static void run_spoiled(const op_network *network, fth_device *device, fth_plan_mode mode, fth_precision precision,
                        const fth_run *run, op_result *result)
{
    op_session session;
    op_session_open(&session, network, device, mode, precision);
    spoil_arena(&session);
    op_session_run(&session, run);
    op_session_read(&session, result);
    op_session_close(&session);
}

static void test_differences(void **state)
{
    const text_case *with = *state;
    op_network network;
    build_network(with, &network);
    int differences = op_check_differences(&network, op_device("reference"), with->name);
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

static void compare(const text_case *with, fth_precision precision)
{
    static const char *const names[] = {OP_DEVICES};
    int differences = 0;
    op_network network;
    build_network(with, &network);
    for (int mode = FTH_PLAN_TRAIN; mode <= FTH_PLAN_EVALUATE; mode++) {
        op_result wanted, found;
        run_spoiled(&network, op_device("reference"), (fth_plan_mode)mode, FTH_PRECISION_F32, &plain_run, &wanted);
        for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
            fth_device *device = op_device(names[i]);
            char who[160];
            if (device == NULL || device->backend->check_precision(device, precision) != FTH_OK)
                continue;
            snprintf(who, sizeof who, "%s on %s, %s, %s", with->name, names[i], precisions[precision],
                     mode == FTH_PLAN_TRAIN ? "training" : "evaluation");
            run_spoiled(&network, device, (fth_plan_mode)mode, precision, &plain_run, &found);
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

/* Calls `check` for each device, in each precision that it has. */
static void on_every_device(void (*check)(const text_case *with, fth_device *device, fth_precision precision),
                            const text_case *with)
{
    static const char *const names[] = {"reference", OP_DEVICES};
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        for (int precision = 0; device && precision < (int)FTH_COUNT_OF(precisions); precision++)
            if (device->backend->check_precision(device, (fth_precision)precision) == FTH_OK)
                check(with, device, (fth_precision)precision);
    }
}

/* Rows behind the last sequence say something else: no logit and no gradient changes. */
static void check_room(const text_case *with, fth_device *device, fth_precision precision)
{
    op_network network;
    op_result first, second;
    build_network(with, &network);
    const int32_t *ends = network.inputs[0].data;
    const int64_t used = ends[network.batch - 1];
    int32_t *tokens = network.inputs[1].data, *positions = network.inputs[2].data;
    run_spoiled(&network, device, FTH_PLAN_TRAIN, precision, &plain_run, &first);
    fill_rows(tokens + used, positions + used, with->room, used, longest_of(with), 99);
    run_spoiled(&network, device, FTH_PLAN_TRAIN, precision, &plain_run, &second);
    for (size_t i = 0; i < first.logit_count; i++)
        assert_true(first.logits[i] == second.logits[i]);
    for (size_t i = 0; i < fth_graph_parameter_floats(network.graph); i++)
        assert_true(first.gradients[i] == second.gradients[i]);
    op_result_free(&first);
    op_result_free(&second);
    op_network_free(&network);
}

static void test_room_does_not_matter(void **state)
{
    (void)state;
    on_every_device(check_room, find_case("encoder of 12 sequences"));
}

/* A batch in three parts, with dropout: each sample has the logits that it has in the whole, and
 * the gradients, each by its share of the samples, add up to those of the whole. */
static void check_parts(const text_case *with, fth_device *device, fth_precision precision)
{
    static const int begins[] = {0, 5, 6, 12};
    op_network network, part;
    op_result whole, found;
    build_network(with, &network);
    op_run_once(&network, device, FTH_PLAN_TRAIN, precision, &plain_run, &whole);
    float *sums = calloc(fth_graph_parameter_floats(network.graph), sizeof *sums);
    assert_non_null(sums);
    for (size_t p = 0; p + 1 < FTH_COUNT_OF(begins); p++) {
        const int32_t *ends = network.inputs[0].data;
        fth_run run = plain_run;
        run.first_sample += (uint64_t)begins[p];
        run.first_token += begins[p] > 0 ? (uint64_t)ends[begins[p] - 1] : 0;
        run.gradient_scale = (float)(begins[p + 1] - begins[p]) / (float)network.batch;
        build_part(with, begins[p], begins[p + 1], &part);
        memcpy(part.labels, network.labels + begins[p], (size_t)part.batch * sizeof *part.labels);
        op_run_once(&part, device, FTH_PLAN_TRAIN, precision, &run, &found);
        const double limit = precision == FTH_PRECISION_F32 ? 1e-5 : 0.03;
        assert_true(op_relative_error(found.logits, whole.logits + CLASSES * begins[p], found.logit_count, 0) < limit);
        for (size_t i = 0; i < fth_graph_parameter_floats(network.graph); i++)
            sums[i] += found.gradients[i];
        op_result_free(&found);
        op_network_free(&part);
    }
    assert_true(op_relative_error(sums, whole.gradients, fth_graph_parameter_floats(network.graph), 0) <
                (precision == FTH_PRECISION_F32 ? 1e-5 : 0.03));
    free(sums);
    op_result_free(&whole);
    op_network_free(&network);
}

static void test_parts_are_the_whole(void **state)
{
    (void)state;
    on_every_device(check_parts, find_case("encoder of 12 sequences"));
}

/* The same inputs give the same bits again: no sum depends on which thread came first. */
static void check_repeats(const text_case *with, fth_device *device, fth_precision precision)
{
    op_network network;
    op_session session;
    op_result first, again;
    build_network(with, &network);
    op_session_open(&session, &network, device, FTH_PLAN_TRAIN, precision);
    op_session_run(&session, &plain_run);
    op_session_read(&session, &first);
    for (int i = 0; i < 3; i++) {
        op_session_run(&session, &plain_run);
        op_session_read(&session, &again);
        assert_memory_equal(first.logits, again.logits, first.logit_count * sizeof(float));
        assert_memory_equal(first.gradients, again.gradients,
                            fth_graph_parameter_floats(network.graph) * sizeof(float));
        op_result_free(&again);
    }
    op_result_free(&first);
    op_session_close(&session);
    op_network_free(&network);
}

static void test_runs_repeat(void **state)
{
    (void)state;
    on_every_device(check_repeats, find_case("encoder of 12 sequences"));
}

/* A NaN shows in the logits of its sequence, and in those of no other. */
static void check_nan(const text_case *with, fth_device *device, fth_precision precision)
{
    enum { SPOILED = 3, WORD = VOCABULARY - 1 };
    op_network network;
    op_result result;
    build_network(with, &network);
    const int32_t *ends = network.inputs[0].data;
    int32_t *tokens = network.inputs[1].data;
    for (int64_t t = 0; t < network.tokens; t++)
        tokens[t] %= WORD;
    tokens[ends[SPOILED] - 1] = WORD;
    const fth_value_info *words = fth_graph_value(network.graph, fth_graph_find(network.graph, "words"));
    for (int f = 0; f < with->features; f++)
        network.parameters[words->offset + (size_t)(WORD * with->features + f)] = NAN;
    op_run_once(&network, device, FTH_PLAN_EVALUATE, precision, &plain_run, &result);
    for (size_t i = 0; i < result.logit_count; i++)
        assert_int_equal(result.logits[i] != result.logits[i], i / CLASSES == SPOILED);
    op_result_free(&result);
    op_network_free(&network);
}

static void test_nan_stays_in_its_sequence(void **state)
{
    (void)state;
    on_every_device(check_nan, find_case("encoder of 12 sequences"));
}

/* The row of padding has no gradient; all others are as without one. */
static void check_padding(const text_case *with, fth_device *device, fth_precision precision)
{
    enum { ROW = 5 };
    text_case padded = *with;
    padded.padding = ROW + 1;
    op_network networks[2];
    op_result results[2];
    for (int i = 0; i < 2; i++) {
        build_network(i == 0 ? with : &padded, &networks[i]);
        op_run_once(&networks[i], device, FTH_PLAN_TRAIN, precision, &plain_run, &results[i]);
    }
    const fth_graph *graph = networks[0].graph;
    const size_t words = fth_graph_value(graph, fth_graph_find(graph, "words"))->offset;
    const size_t begin = words + ROW * (size_t)with->features, end = begin + (size_t)with->features;
    bool had = false;
    for (size_t i = 0; i < fth_graph_parameter_floats(graph); i++) {
        const bool inside = i >= begin && i < end;
        had = had || (inside && results[0].gradients[i] != 0);
        assert_true(results[1].gradients[i] == (inside ? 0 : results[0].gradients[i]));
    }
    assert_true(had);
    for (int i = 0; i < 2; i++) {
        op_result_free(&results[i]);
        op_network_free(&networks[i]);
    }
}

static void test_padding_has_no_gradient(void **state)
{
    (void)state;
    on_every_device(check_padding, find_case("encoder of 12 sequences"));
}

/* Scores of hundreds: exponentials that were not taken from the largest would overflow. */
static void check_large_scores(const text_case *with, fth_device *device, fth_precision precision)
{
    op_network network;
    op_result result;
    build_network(with, &network);
    const fth_value_info *words = fth_graph_value(network.graph, fth_graph_find(network.graph, "words"));
    for (int i = 0; i < VOCABULARY * with->features; i++)
        network.parameters[words->offset + (size_t)i] *= 30;
    op_run_once(&network, device, FTH_PLAN_TRAIN, precision, &plain_run, &result);
    for (size_t i = 0; i < result.logit_count; i++)
        assert_true(isfinite(result.logits[i]));
    for (size_t i = 0; i < fth_graph_parameter_floats(network.graph); i++)
        assert_true(isfinite(result.gradients[i]));
    op_result_free(&result);
    op_network_free(&network);
}

static void test_large_scores(void **state)
{
    (void)state;
    on_every_device(check_large_scores, find_case("attention, 2 heads of 32, dropout"));
}

/* Ends that leave the rows, go back, or make a sequence empty or longer than was said. */
static void test_wrong_ends_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "portable"};
    static const int32_t wrong[][3] = {{20, 64, 1000}, {20, 10, 60}, {80, 81, 82}, {-1, 5, 6}, {20, 20, 50}};
    const text_case three = {"", .build = build_attention, LENGTHS(20, 33, 29), .features = 24, .heads = 1};
    op_network network;
    build_network(&three, &network);
    for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
        op_session session;
        op_session_open(&session, &network, op_device(names[d]), FTH_PLAN_TRAIN, FTH_PRECISION_F32);
        op_session_run(&session, &plain_run);
        for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
            op_session_set(&session);
            op_check(fth_plan_set_input(session.plan, fth_graph_find(network.graph, "ends"), wrong[i]));
            assert_int_equal(fth_plan_run(session.plan, &plain_run), FTH_INVALID);
        }
        op_session_close(&session);
    }
    op_network_free(&network);
}

/* Ids that no row of the table has: nothing outside of it is read. */
static void test_wrong_ids_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"reference", "cpu", "portable"};
    static const int32_t wrong[] = {VOCABULARY, -1, INT32_MIN, INT32_MAX};
    const text_case four = {"", .build = build_nothing, LENGTHS(4), .features = 16};
    op_network network;
    build_network(&four, &network);
    for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
        op_session session;
        op_session_open(&session, &network, op_device(names[d]), FTH_PLAN_TRAIN, FTH_PRECISION_F32);
        op_session_run(&session, &plain_run);
        for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
            const int32_t ids[] = {0, 1, 2, wrong[i]};
            op_session_set(&session);
            op_check(fth_plan_set_input(session.plan, fth_graph_find(network.graph, "tokens"), ids));
            assert_int_equal(fth_plan_run(session.plan, &plain_run), FTH_INVALID);
        }
        op_session_close(&session);
    }
    op_network_free(&network);
}

/* No two ops that drop have one mask. */
static void test_dropouts_differ(void **state)
{
    (void)state;
    fth_graph *graph = NULL;
    uint32_t next = 0;
    op_check(build_graph(find_case("encoder"), &graph));
    for (int n = 0; n < fth_graph_forward_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        if (node->op == &fth_op_dropout)
            assert_int_equal(((const fth_dropout_attributes *)node->attributes)->id, next++);
        else if (node->op == &fth_op_layer_norm)
            assert_int_equal(((const fth_layer_norm_attributes *)node->attributes)->dropout, next++);
        else if (node->op == &fth_op_attention)
            assert_int_equal(((const fth_attention_attributes *)node->attributes)->dropout, next++);
    }
    assert_int_equal(next, 6);
    fth_graph_free(graph);
}

/* Query, key and value lie one behind the other, so that a back end can take them for one
 * matrix. */
static void test_qkv_is_one_matrix(void **state)
{
    (void)state;
    static const char *const names[] = {"query.weight", "key.weight", "value.weight",
                                        "query.bias",   "key.bias",   "value.bias"};
    fth_graph *graph = NULL;
    size_t end = 0;
    op_check(build_graph(find_case("encoder"), &graph));
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        const fth_value_info *info = fth_graph_value(graph, fth_graph_find(graph, names[i]));
        if (i > 0)
            assert_int_equal(info->offset, end);
        end = info->offset + (size_t)fth_shape_count(&info->type.shape);
    }
    fth_graph_free(graph);
}

/* Differences take hundreds of runs; large cases are there for the blocked kernels of the
 * others. */
static bool is_large(const text_case *with)
{
    int64_t work = 0;
    for (int i = 0; i < count_sequences(with); i++)
        work += (int64_t)with->lengths[i] * with->lengths[i];
    return with->features * work > 200000;
}

/* An argument, a pattern as of cmocka_set_test_filter(), chooses tests: "f32: attention*". */
int main(int argc, char **argv)
{
    static struct CMUnitTest tests[4 * FTH_COUNT_OF(cases) + 16];
    static char names[FTH_COUNT_OF(tests)][96];
    static const struct {
        const char *prefix;
        CMUnitTestFunction run;
    } kinds[] = {{"differences", test_differences}, {"f32", test_f32}, {"bf16", test_bf16}, {"f16", test_f16}};
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(test_room_does_not_matter),  cmocka_unit_test(test_parts_are_the_whole),
        cmocka_unit_test(test_runs_repeat),           cmocka_unit_test(test_nan_stays_in_its_sequence),
        cmocka_unit_test(test_large_scores),          cmocka_unit_test(test_wrong_ends_are_refused),
        cmocka_unit_test(test_wrong_ids_are_refused), cmocka_unit_test(test_dropouts_differ),
        cmocka_unit_test(test_qkv_is_one_matrix),     cmocka_unit_test(test_padding_has_no_gradient),
    };
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
    for (size_t i = 0; i < FTH_COUNT_OF(others); i++)
        tests[count++] = others[i];
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("ops of text on every back end", tests, count, NULL, op_close_devices);
}
