/* Ops that move elements, and constants, on every back end: the reference against central
 * differences, the others against the reference, in training and evaluation, in f32 and bf16, with
 * NaN, in blocks of channels and odd sizes.
 *
 *     images (N, 3, H, W) -> convolution 1x1 -> the op -> flatten -> linear -> softmax cross-entropy
 *
 * Ops on what has no batch make the weights of a linear layer instead. */
#include <math.h>

#include "op_harness.h"

enum { CLASSES = 5, IMAGE_CHANNELS = 3, MANY = 67 };

typedef struct arrange_case {
    const char *name;
    fth_status (*build)(fth_graph *graph, const struct arrange_case *with, fth_value x, fth_value *y);
    int batch, channels, height, width;
    int axes[4];
    fth_slice_attributes slice;
    fth_pad_attributes pad;
    int axis;
    int groups; /* of a channel shuffle */
} arrange_case;

/* ---- building ---- */

static const fth_initializer zero = {FTH_INIT_CONSTANT, 0};

static fth_initializer uniform(int64_t fan_in)
{
    return (fth_initializer){FTH_INIT_UNIFORM, 1 / sqrt((double)fan_in)};
}

static const fth_shape *shape_of(const fth_graph *graph, fth_value value)
{
    return &fth_graph_value(graph, value)->type.shape;
}

static fth_status convolve(fth_graph *graph, const char *name, int64_t outputs, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value weight;
    const int64_t inputs = shape_of(graph, x)->dims[1];
    const fth_convolution_attributes dense = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    FTH_TRY(fth_graph_add_parameter(graph, name, FTH_SHAPE(outputs, inputs, 1, 1), uniform(inputs), &weight));
    FTH_TRY(fth_op_add_convolution(graph, dense, x, weight, FTH_NO_VALUE, y));
out:
    return status;
}

static fth_status build_permute(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_permute(graph, with->axes, x, y);
}

/* There and back, with a convolution of what the permuted image is: the layouts of both are kept. */
static fth_status build_permute_back(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_op_add_permute(graph, (const int[]){0, 2, 3, 1}, x, &x));
    FTH_TRY(fth_op_add_relu(graph, x, &x));
    FTH_TRY(fth_op_add_permute(graph, (const int[]){0, 3, 1, 2}, x, &x));
    FTH_TRY(convolve(graph, "after.weight", with->channels, x, y));
out:
    return status;
}

static fth_status build_shuffle(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    const int64_t each = with->channels / with->groups;
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, with->groups, each, with->height, with->width), x, &x));
    FTH_TRY(fth_op_add_permute(graph, (const int[]){0, 2, 1, 3, 4}, x, &x));
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, with->channels, with->height, with->width), x, &x));
    FTH_TRY(convolve(graph, "after.weight", 16, x, y));
out:
    return status;
}

static fth_status build_slice(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    const fth_slice_attributes *a = &with->slice;
    return fth_op_add_slice(graph, a->axis, a->begin, a->end, a->step, x, y);
}

static fth_status build_pad(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_pad(graph, with->pad, x, y);
}

/* Parts of several sizes, the first one twice. */
static fth_status build_concat(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value parts[3] = {x, x};
    const int64_t size = shape_of(graph, x)->dims[with->axis];
    FTH_TRY(convolve(graph, "branch.weight", with->channels, x, &parts[1]));
    FTH_TRY(fth_op_add_slice(graph, with->axis, size / 2, size, 1, parts[1], &parts[2]));
    FTH_TRY(fth_op_add_concat(graph, with->axis, parts, 3, y));
out:
    return status;
}

static fth_status build_concat_of_many(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value parts[MANY];
    for (int i = 0; i < MANY; i++)
        FTH_TRY(fth_op_add_slice(graph, 1, i % with->channels, i % with->channels + 1, 1, x, &parts[i]));
    FTH_TRY(fth_op_add_concat(graph, 1, parts, MANY, y));
out:
    return status;
}

/* Some entries twice, some never. */
static fth_status add_indices(fth_graph *graph, int64_t size, fth_value *indices)
{
    int32_t numbers[64];
    const int64_t count = size + 3;
    assert_true(count <= (int64_t)FTH_COUNT_OF(numbers));
    for (int64_t k = 0; k < count; k++)
        numbers[k] = (int32_t)((k * k + 5 * k + 1) % size);
    return fth_op_add_constant(graph, (fth_type){FTH_I32, FTH_SHAPE(count)}, numbers, indices);
}

static fth_status build_gather(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value indices;
    FTH_TRY(add_indices(graph, shape_of(graph, x)->dims[with->axis], &indices));
    FTH_TRY(fth_op_add_gather(graph, with->axis, x, indices, y));
out:
    return status;
}

/* Each channel's plane is a row of (channels N, H W). */
static fth_status build_rows_of_samples(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    const int64_t plane = (int64_t)with->height * with->width;
    fth_value weight, bias;
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(with->channels), plane), x, &x));
    FTH_TRY(fth_graph_add_parameter(graph, "rows.weight", FTH_SHAPE(7, plane), uniform(plane), &weight));
    FTH_TRY(fth_graph_add_parameter(graph, "rows.bias", FTH_SHAPE(7), zero, &bias));
    FTH_TRY(fth_op_add_linear(graph, false, x, weight, bias, &x));
    FTH_TRY(fth_op_add_dropout(graph, 0.25F, x, &x));
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, 7 * (int64_t)with->channels), x, y));
out:
    return status;
}

/* y = x * weightᵀ, the weights made of parameters and constants, which are added to twice. */
static fth_status multiply(fth_graph *graph, fth_value x, fth_value weight, fth_value *y)
{
    fth_status status = FTH_OK;
    float numbers[512];
    fth_value constant;
    const fth_shape shape = *shape_of(graph, weight);
    assert_true(fth_shape_count(&shape) <= (int64_t)FTH_COUNT_OF(numbers));
    for (int64_t i = 0; i < fth_shape_count(&shape); i++)
        numbers[i] = (float)(i % 7) / 7 - 0.5F;
    FTH_TRY(fth_op_add_constant(graph, (fth_type){FTH_F32, shape}, numbers, &constant));
    FTH_TRY(fth_op_add_add(graph, false, weight, constant, &weight));
    FTH_TRY(fth_op_add_flatten(graph, x, &x));
    FTH_TRY(fth_op_add_linear(graph, false, x, weight, FTH_NO_VALUE, y));
out:
    return status;
}

static int64_t features_of(const arrange_case *with)
{
    return (int64_t)with->channels * with->height * with->width;
}

static fth_status add_weight(fth_graph *graph, const char *name, int64_t rows, int64_t columns, fth_value *weight)
{
    return fth_graph_add_parameter(graph, name, FTH_SHAPE(rows, columns), uniform(columns), weight);
}

static fth_status build_permuted_weight(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value weight;
    FTH_TRY(add_weight(graph, "weight", features_of(with), 9, &weight));
    FTH_TRY(fth_op_add_permute(graph, (const int[]){1, 0}, weight, &weight));
    FTH_TRY(multiply(graph, x, weight, y));
out:
    return status;
}

static fth_status build_joined_weights(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value parts[2], weight;
    FTH_TRY(add_weight(graph, "first", 4, features_of(with), &parts[0]));
    FTH_TRY(add_weight(graph, "second", 7, features_of(with), &parts[1]));
    FTH_TRY(fth_op_add_concat(graph, 0, parts, 2, &weight));
    FTH_TRY(fth_op_add_slice(graph, 0, 1, 11, 3, weight, &weight));
    FTH_TRY(multiply(graph, x, weight, y));
out:
    return status;
}

static fth_status build_looked_up_weights(fth_graph *graph, const arrange_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value table, indices, rows[2], weight;
    FTH_TRY(add_weight(graph, "table", 6, features_of(with), &table));
    FTH_TRY(add_indices(graph, 6, &indices));
    FTH_TRY(fth_op_add_gather(graph, 0, table, indices, &rows[0]));
    FTH_TRY(fth_op_add_embedding(graph, -1, &indices, &table, 1, &rows[1]));
    FTH_TRY(fth_op_add_add(graph, false, rows[0], rows[1], &weight));
    FTH_TRY(multiply(graph, x, weight, y));
out:
    return status;
}

static void build_network(const arrange_case *with, op_network *network)
{
    fth_graph *graph = NULL;
    fth_value images, labels, weight, x, y, logits, loss;
    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32,
                                 FTH_SHAPE(FTH_BATCH, IMAGE_CHANNELS, with->height, with->width), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(convolve(graph, "front.weight", with->channels, images, &x));
    op_check(with->build(graph, with, x, &y));
    op_check(fth_op_add_flatten(graph, y, &y));
    const int64_t features = shape_of(graph, y)->dims[1];
    op_check(add_weight(graph, "head.weight", CLASSES, features, &weight));
    op_check(fth_op_add_linear(graph, false, y, weight, FTH_NO_VALUE, &logits));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, logits, labels, &loss));
    fth_graph_set_outputs(graph, logits, loss);
    op_check(fth_graph_differentiate(graph));
    op_network_create(network, graph, with->batch, 5);
    op_network_randomize(network, 5);
    network->kinks = with->build == build_permute_back;
    network->reduction = features + (int64_t)with->batch * with->height * with->width;
}

/* ---- the cases ---- */

#define INPUT(n, c, h, w) .batch = (n), .channels = (c), .height = (h), .width = (w)
#define PERMUTE(...)      .build = build_permute, .axes = {__VA_ARGS__}
#define SLICE(...)        .build = build_slice, .slice = {__VA_ARGS__}
#define PAD(...)          .build = build_pad, .pad = {__VA_ARGS__}

static const arrange_case cases[] = {
    {"channels last, 16", PERMUTE(0, 2, 3, 1), INPUT(3, 16, 5, 7)},
    {"channels last, 7", PERMUTE(0, 2, 3, 1), INPUT(2, 7, 6, 5)},
    {"channels last, 80 of 19x21", PERMUTE(0, 2, 3, 1), INPUT(2, 80, 19, 21)},
    {"channels first", PERMUTE(0, 3, 1, 2), INPUT(3, 16, 5, 7)},
    {"channels first, 48 of 20x17", PERMUTE(0, 3, 1, 2), INPUT(2, 48, 20, 17)},
    {"rows and columns", PERMUTE(0, 1, 3, 2), INPUT(3, 16, 5, 7)},
    {"rows and columns, 3 of 33x70", PERMUTE(0, 1, 3, 2), INPUT(2, 3, 33, 70)},
    {"heads", PERMUTE(0, 2, 1, 3), INPUT(3, 8, 5, 12)},
    {"all turned around", PERMUTE(0, 3, 2, 1), INPUT(2, 17, 18, 19)},
    {"no permutation", PERMUTE(0, 1, 2, 3), INPUT(2, 16, 3, 3)},
    {"axes of one entry", PERMUTE(0, 3, 1, 2), INPUT(3, 1, 5, 7)},
    {"there and back, 32", .build = build_permute_back, INPUT(2, 32, 6, 5)},
    {"there and back, 9", .build = build_permute_back, INPUT(3, 9, 4, 3)},
    {"shuffle of 2 groups", .build = build_shuffle, INPUT(3, 20, 5, 4), .groups = 2},
    {"shuffle of 3 groups of 16", .build = build_shuffle, INPUT(2, 48, 7, 7), .groups = 3},

    {"slice of a block of channels", SLICE(1, 16, 32, 1), INPUT(3, 48, 4, 5)},
    {"slice within a block", SLICE(1, 3, 21, 1), INPUT(3, 32, 4, 5)},
    {"slice of every third channel", SLICE(1, 1, 17, 3), INPUT(2, 17, 4, 5)},
    {"slice of rows", SLICE(2, 1, 4, 1), INPUT(3, 16, 5, 6)},
    {"slice of every other column", SLICE(3, 0, 7, 2), INPUT(3, 16, 5, 7)},
    {"slice of one column", SLICE(3, 4, 5, 1), INPUT(2, 6, 3, 5)},
    {"slice of every fourth row", SLICE(2, 1, 11, 4), INPUT(1, 9, 11, 3)},

    {"pad of channels by blocks", PAD(1, 16, 32, 0.5F), INPUT(3, 16, 4, 5)},
    {"pad of channels", PAD(1, 2, 0, 0), INPUT(3, 16, 4, 5)},
    {"pad of rows by -1", PAD(2, 1, 2, -1), INPUT(3, 16, 4, 5)},
    {"pad of columns", PAD(3, 3, 0, 0.25F), INPUT(2, 7, 4, 5)},
    {"pad between columns", PAD(3, 1, 1, 2, 2), INPUT(2, 16, 3, 4)},

    {"concat of channels, 16", .build = build_concat, INPUT(3, 16, 4, 5), .axis = 1},
    {"concat of channels, 32", .build = build_concat, INPUT(2, 32, 7, 9), .axis = 1},
    {"concat of channels, 7", .build = build_concat, INPUT(3, 7, 4, 5), .axis = 1},
    {"concat of rows", .build = build_concat, INPUT(3, 16, 4, 5), .axis = 2},
    {"concat of columns", .build = build_concat, INPUT(2, 6, 4, 5), .axis = 3},
    {"concat of many", .build = build_concat_of_many, INPUT(2, 16, 3, 2)},

    {"gather of channels", .build = build_gather, INPUT(3, 16, 4, 5), .axis = 1},
    {"gather of rows", .build = build_gather, INPUT(2, 7, 9, 4), .axis = 2},
    {"gather of columns", .build = build_gather, INPUT(2, 16, 3, 11), .axis = 3},

    {"rows of samples", .build = build_rows_of_samples, INPUT(3, 16, 3, 5)},
    {"permuted weight", .build = build_permuted_weight, INPUT(3, 5, 3, 3)},
    {"joined weights", .build = build_joined_weights, INPUT(3, 5, 3, 3)},
    {"looked-up weights", .build = build_looked_up_weights, INPUT(3, 4, 3, 3)},
};

/* ---- the tests ---- */

static const fth_run plain_run = {.seed = 3, .step = 7, .gradient_scale = 1};

static bool is_large(const arrange_case *with)
{
    return with->batch * features_of(with) > 4000;
}

static void test_differences(void **state)
{
    const arrange_case *with = *state;
    op_network network;
    build_network(with, &network);
    /* the dropout of one case is the same in each run */
    const int differences = op_check_differences(&network, op_device("reference"), with->name);
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

static bool any_nan(const float *values, size_t count)
{
    bool found = false;
    for (size_t i = 0; i < count; i++)
        found = found || isnan(values[i]);
    return found;
}

/* NaN in the logits of the same samples. */
static int compare_nans(const op_network *network, const op_result *found, const op_result *wanted, const char *who)
{
    int differences = 0;
    for (int64_t n = 0; n < network->batch; n++)
        differences += any_nan(found->logits + n * CLASSES, CLASSES) != any_nan(wanted->logits + n * CLASSES, CLASSES);
    if (differences > 0)
        print_message("  DIFFERS %s: NaN\n", who);
    return differences;
}

static int compare_on(const op_network *network, fth_precision precision, bool nans, const char *case_name)
{
    static const char *const names[] = {OP_DEVICES};
    int differences = 0;
    for (int mode = FTH_PLAN_TRAIN; mode <= FTH_PLAN_EVALUATE; mode++) {
        op_result wanted, found;
        op_run_once(network, op_device("reference"), (fth_plan_mode)mode, FTH_PRECISION_F32, &plain_run, &wanted);
        for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
            char who[160];
            fth_device *device = op_device(names[d]);
            if (!device || device->backend->check_precision(device, precision) != FTH_OK)
                continue;
            snprintf(who, sizeof who, "%s on %s, precision %d, %s", case_name, names[d], (int)precision,
                     mode == FTH_PLAN_TRAIN ? "training" : "evaluation");
            op_run_once(network, device, (fth_plan_mode)mode, precision, &plain_run, &found);
            differences += nans ? compare_nans(network, &found, &wanted, who)
                                : op_compare(network, &found, &wanted, precision, who);
            op_result_free(&found);
        }
        op_result_free(&wanted);
    }
    return differences;
}

static void compare(const arrange_case *with, fth_precision precision)
{
    op_network network;
    build_network(with, &network);
    const int differences = compare_on(&network, precision, false, with->name);
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

static void test_f16(void **state)
{
    if (op_device("cuda") == NULL)
        skip();
    compare(*state, FTH_PRECISION_F16);
}

/* The first pixel of the second sample, or of the only one. */
static void test_nan(void **state)
{
    const arrange_case *with = *state;
    op_network network;
    int differences = 0;
    build_network(with, &network);
    network.images[with->batch > 1 ? IMAGE_CHANNELS * with->height * with->width : 0] = NAN;
    for (int precision = FTH_PRECISION_F32; precision <= FTH_PRECISION_BF16; precision++)
        differences += compare_on(&network, (fth_precision)precision, true, with->name);
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

/* ids (N, 6) of integers -> (6 N) -> embedding, as a transformer has them. */
static void test_ids_of_samples(void **state)
{
    (void)state;
    enum { LENGTH = 6, ROWS = 11, FEATURES = 9, BATCH = 4 };
    fth_graph *graph = NULL;
    fth_value ids, labels, table, weight, x, logits, loss;
    op_network network;
    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "ids", FTH_I32, FTH_SHAPE(FTH_BATCH, LENGTH), &ids));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(add_weight(graph, "table", ROWS, FEATURES, &table));
    op_check(add_weight(graph, "weight", CLASSES, (LENGTH - 1) * FEATURES, &weight));
    op_check(fth_op_add_slice(graph, 1, 1, LENGTH, 1, ids, &ids));
    op_check(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(LENGTH - 1)), ids, &ids));
    op_check(fth_op_add_embedding(graph, -1, &ids, &table, 1, &x));
    op_check(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, (LENGTH - 1) * FEATURES), x, &x));
    op_check(fth_op_add_linear(graph, false, x, weight, FTH_NO_VALUE, &logits));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, logits, labels, &loss));
    fth_graph_set_outputs(graph, logits, loss);
    op_check(fth_graph_differentiate(graph));
    op_network_create(&network, graph, BATCH, 5);
    op_network_randomize(&network, 5);
    network.reduction = LENGTH * FEATURES;
    int32_t *numbers = op_network_input(&network, "ids");
    for (int i = 0; i < BATCH * LENGTH; i++)
        numbers[i] = (i * i + 3 * i) % ROWS;
    int differences = op_check_differences(&network, op_device("reference"), "ids");
    differences += compare_on(&network, FTH_PRECISION_F32, false, "ids");
    differences += compare_on(&network, FTH_PRECISION_BF16, false, "ids");
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

/* An argument is a pattern that chooses tests: "f32: slice*". */
int main(int argc, char **argv)
{
    static struct CMUnitTest tests[5 * FTH_COUNT_OF(cases) + 1];
    static char names[FTH_COUNT_OF(tests)][96];
    static const struct {
        const char *prefix;
        CMUnitTestFunction run;
    } kinds[] = {
        {"differences", test_differences}, {"f32", test_f32}, {"bf16", test_bf16}, {"f16", test_f16}, {"NaN", test_nan},
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
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_ids_of_samples);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("ops that move elements", tests, count, NULL, op_close_devices);
}
