/* pointwise and reduce on every back end: the reference against central differences, the others
 * against the reference, for each function, for each way to broadcast, and for each way to
 * reduce. */
#include "op_harness.h"

#include <math.h>

/* images (N,3,H,W) -> 1x1 convolution to (N,channels,H,W) -> the case -> linear -> loss */
typedef struct pointwise_case {
    const char *name;
    fth_status (*build)(fth_graph *graph, const struct pointwise_case *with, fth_value x, fth_value *y);
    int batch, channels, height, width;
    fth_expression_function function; /* build_function, build_reduced */
    fth_reduction reduction;
    unsigned axes;
    bool keep, kinks;
} pointwise_case;

enum { IMAGE_CHANNELS = 3, CLASSES = 5 };

static const fth_run plain_run = {.seed = 3, .step = 7, .gradient_scale = 1};

/* ---- building ---- */

static fth_status add_parameter(fth_graph *graph, const char *name, fth_shape shape, fth_value *value)
{
    return fth_graph_add_parameter(graph, name, shape, (fth_initializer){FTH_INIT_UNIFORM, 0.8}, value);
}

static fth_status flatten(fth_graph *graph, fth_value x, fth_value *y)
{
    *y = x;
    return fth_graph_value(graph, x)->type.shape.rank == 2 ? FTH_OK : fth_op_add_flatten(graph, x, y);
}

static void build_network(const pointwise_case *with, op_network *network)
{
    fth_graph *graph = NULL;
    fth_value images, labels, x, weight, logits, loss;
    const fth_convolution_attributes dense = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};

    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32,
                                 FTH_SHAPE(FTH_BATCH, IMAGE_CHANNELS, with->height, with->width), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(add_parameter(graph, "front.weight", FTH_SHAPE(with->channels, IMAGE_CHANNELS, 1, 1), &weight));
    op_check(fth_op_add_convolution(graph, dense, images, weight, FTH_NO_VALUE, &x));
    op_check(with->build(graph, with, x, &x));
    op_check(flatten(graph, x, &x));
    const int64_t features = fth_graph_value(graph, x)->type.shape.dims[1];
    op_check(add_parameter(graph, "head.weight", FTH_SHAPE(CLASSES, features), &weight));
    op_check(fth_op_add_linear(graph, false, x, weight, FTH_NO_VALUE, &logits));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, logits, labels, &loss));
    fth_graph_set_outputs(graph, logits, loss);
    op_check(fth_graph_differentiate(graph));

    op_network_create(network, graph, with->batch, 5);
    op_network_randomize(network, 5);
    network->kinks = with->kinks;
    network->reduction = (int64_t)with->batch * with->channels * with->height * with->width;
    network->reduction = features > network->reduction ? features : network->reduction;
}

/* The function of x, with what its other operands need; functions that are constant between jumps
 * are added to x, so that a gradient is left. */
static fth_operand apply_function(fth_expression *e, fth_expression_function function, fth_operand x,
                                  fth_operand second)
{
    const fth_operand low = fth_expression_number(e, -0.5), high = fth_expression_number(e, 0.75);
    fth_operand argument = x;
    switch (function) {
    case FTH_FUNCTION_LOG:
    case FTH_FUNCTION_SQRT:
    case FTH_FUNCTION_RSQRT:
    case FTH_FUNCTION_RECIPROCAL:
    case FTH_FUNCTION_LOG1P:
    case FTH_FUNCTION_POW: /* of numbers from 0.5 on */
        argument = fth_expression_apply(e, FTH_FUNCTION_ADD, fth_expression_apply(e, FTH_FUNCTION_SQUARE, x, x, x),
                                        fth_expression_number(e, 0.5), x);
        return fth_expression_apply(e, function, argument, second, high);
    case FTH_FUNCTION_DIV:
        argument = fth_expression_apply(e, FTH_FUNCTION_ADD, fth_expression_number(e, 2), second, x);
        return fth_expression_apply(e, function, x, argument, high);
    case FTH_FUNCTION_CLAMP:
    case FTH_FUNCTION_HARDTANH: return fth_expression_apply(e, function, x, low, high);
    case FTH_FUNCTION_SOFTPLUS:
        return fth_expression_apply(e, function, x, fth_expression_number(e, 1.5), fth_expression_number(e, 2));
    case FTH_FUNCTION_ELU: return fth_expression_apply(e, function, x, high, x);
    case FTH_FUNCTION_WHERE:
        argument = fth_expression_apply(e, FTH_FUNCTION_GT, x, high, x);
        return fth_expression_apply(e, function, argument, second,
                                    fth_expression_apply(e, FTH_FUNCTION_SQUARE, x, x, x));
    case FTH_FUNCTION_NOT:
    case FTH_FUNCTION_AND:
    case FTH_FUNCTION_OR: /* of whether x is large */
        argument = fth_expression_apply(e, FTH_FUNCTION_GT, x, low, x);
        argument = fth_expression_apply(e, function, argument, fth_expression_apply(e, FTH_FUNCTION_LT, x, high, x), x);
        return fth_expression_apply(e, FTH_FUNCTION_MUL, argument, x, x);
    case FTH_FUNCTION_EQ:
    case FTH_FUNCTION_NE:
        argument = fth_expression_apply(e, function, x, fth_expression_apply(e, FTH_FUNCTION_MAX, x, low, x), x);
        return fth_expression_apply(e, FTH_FUNCTION_MUL, argument, x, x);
    case FTH_FUNCTION_SIGN:
    case FTH_FUNCTION_FLOOR:
    case FTH_FUNCTION_CEIL:
    case FTH_FUNCTION_ROUND:
    case FTH_FUNCTION_TRUNC:
    case FTH_FUNCTION_LT:
    case FTH_FUNCTION_LE:
    case FTH_FUNCTION_GT:
    case FTH_FUNCTION_GE:
        argument = fth_expression_apply(e, function, x, high, x);
        return fth_expression_apply(e, FTH_FUNCTION_ADD, argument, x, x);
    default: return fth_expression_apply(e, function, x, second, x);
    }
}

/* The function with a second operand of each channel. */
static fth_status build_function(fth_graph *graph, const pointwise_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_expression e = {0};
    fth_value second;
    const fth_operand in[] = {fth_expression_input(0), fth_expression_input(1)};

    FTH_TRY(add_parameter(graph, "second", FTH_SHAPE(with->channels, 1, 1), &second));
    const fth_operand result = apply_function(&e, with->function, in[0], in[1]);
    /* A trace of both, whatever the function does with them. */
    fth_expression_apply(&e, FTH_FUNCTION_ADD, result,
                         fth_expression_apply(&e, FTH_FUNCTION_MUL, fth_expression_number(&e, 0.125), in[1], in[0]),
                         in[0]);
    FTH_TRY(fth_op_add_pointwise(graph, &e, (fth_value[]){x, second}, 2, NULL, y));
out:
    return status;
}

/* x * (a + b) + c, with a (C,1,1), b (W), c () or all of the last axes. */
static fth_status build_broadcast(fth_graph *graph, const pointwise_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_expression e = {0};
    fth_value inputs[5] = {x};
    fth_operand in[5];
    for (int i = 0; i < 5; i++)
        in[i] = fth_expression_input(i);
    FTH_TRY(add_parameter(graph, "of_channels", FTH_SHAPE(with->channels, 1, 1), &inputs[1]));
    FTH_TRY(add_parameter(graph, "of_columns", FTH_SHAPE(with->width), &inputs[2]));
    FTH_TRY(add_parameter(graph, "of_rows", FTH_SHAPE(1, with->channels, with->height, 1), &inputs[3]));
    FTH_TRY(add_parameter(graph, "of_all", FTH_SHAPE(1), &inputs[4]));
    fth_operand sum = fth_expression_apply(&e, FTH_FUNCTION_ADD, in[1], in[2], in[0]);
    sum = fth_expression_apply(&e, FTH_FUNCTION_MUL, in[0], sum, in[0]);
    sum = fth_expression_apply(&e, FTH_FUNCTION_ADD, sum, in[3], in[0]);
    fth_expression_apply(&e, FTH_FUNCTION_MUL, sum, in[4], in[0]);
    FTH_TRY(fth_op_add_pointwise(graph, &e, inputs, 5, NULL, y));
out:
    return status;
}

/* A gate on each channel: x * sigmoid(mean(x)). */
static fth_status build_gate(fth_graph *graph, const pointwise_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_expression gate = {0};
    fth_value mean;
    FTH_TRY(fth_op_add_reduce(graph, with->reduction, 0xc, true, x, &mean));
    fth_expression_apply(
        &gate, FTH_FUNCTION_MUL, fth_expression_input(0),
        fth_expression_apply(&gate, FTH_FUNCTION_SIGMOID, fth_expression_input(1), FTH_NO_OPERAND, FTH_NO_OPERAND),
        FTH_NO_OPERAND);
    FTH_TRY(fth_op_add_pointwise(graph, &gate, (fth_value[]){x, mean}, 2, NULL, y));
out:
    return status;
}

/* What is left after reducing, brought back to a row for each sample: x itself plus it,
 * broadcast. */
static fth_status build_reduced(fth_graph *graph, const pointwise_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_expression sum = {0};
    fth_value reduced;
    FTH_TRY(fth_op_add_reduce(graph, with->reduction, with->axes, with->keep, x, &reduced));
    if (!with->keep)
        return flatten(graph, reduced, y);
    const fth_operand small = fth_expression_number(&sum, 0.02);
    const fth_operand scaled =
        fth_expression_apply(&sum, FTH_FUNCTION_MUL, fth_expression_input(1), small, FTH_NO_OPERAND);
    const fth_operand bent = fth_expression_apply(&sum, FTH_FUNCTION_TANH, scaled, FTH_NO_OPERAND, FTH_NO_OPERAND);
    fth_expression_apply(&sum, FTH_FUNCTION_ADD, fth_expression_input(0), bent, FTH_NO_OPERAND);
    FTH_TRY(fth_op_add_pointwise(graph, &sum, (fth_value[]){x, reduced}, 2, NULL, y));
out:
    return status;
}

static fth_status add_convolution(fth_graph *graph, const char *name, int outputs, int groups, fth_value x,
                                  fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes same = {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = groups};
    const int64_t channels = fth_graph_value(graph, x)->type.shape.dims[1];
    fth_value weight;
    FTH_TRY(fth_graph_add_parameter(graph, name, FTH_SHAPE(outputs, channels / groups, 3, 3),
                                    (fth_initializer){FTH_INIT_UNIFORM, 0.2}, &weight));
    FTH_TRY(fth_op_add_convolution(graph, same, x, weight, FTH_NO_VALUE, y));
out:
    return status;
}

/* Between convolutions, which choose layouts: functions of which 0 is not 0, operands of each kind,
 * and a gate on each channel. */
static fth_status build_between(fth_graph *graph, const pointwise_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_expression e = {0}, gate = {0};
    fth_value of_channels, of_columns, mean, branch;
    fth_operand in[4];
    for (int i = 0; i < 4; i++)
        in[i] = fth_expression_input(i);
    FTH_TRY(add_parameter(graph, "of_channels", FTH_SHAPE(with->channels, 1, 1), &of_channels));
    FTH_TRY(add_parameter(graph, "of_columns", FTH_SHAPE(with->width), &of_columns));
    FTH_TRY(add_convolution(graph, "first", with->channels, 1, x, &x));
    FTH_TRY(add_convolution(graph, "branch", with->channels, with->channels, x, &branch));
    const fth_operand scaled = fth_expression_apply(&e, FTH_FUNCTION_MUL, in[0], in[1], in[0]);
    const fth_operand shifted = fth_expression_apply(&e, FTH_FUNCTION_ADD, scaled, in[2], in[0]);
    const fth_operand bent = fth_expression_apply(&e, FTH_FUNCTION_COS, shifted, in[0], in[0]);
    fth_expression_apply(&e, FTH_FUNCTION_ADD, bent, in[3], in[0]);
    FTH_TRY(fth_op_add_pointwise(graph, &e, (fth_value[]){x, of_channels, of_columns, branch}, 4, NULL, &x));
    FTH_TRY(add_convolution(graph, "second", with->channels, 1, x, &x));
    FTH_TRY(fth_op_add_reduce(graph, FTH_REDUCE_MEAN, 12, true, x, &mean));
    const fth_operand open = fth_expression_apply(&gate, FTH_FUNCTION_SIGMOID, in[1], in[0], in[0]);
    fth_expression_apply(&gate, FTH_FUNCTION_MUL, in[0], open, in[0]);
    FTH_TRY(fth_op_add_pointwise(graph, &gate, (fth_value[]){x, mean}, 2, NULL, &x));
    FTH_TRY(add_convolution(graph, "third", 8, 1, x, y));
out:
    return status;
}

/* x * tanh(a number), the number without a dimension: a sum over everything. */
static fth_status build_of_one_number(fth_graph *graph, const pointwise_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_expression product = {0};
    fth_value sum;
    const fth_operand small = fth_expression_number(&product, 0.01);
    FTH_TRY(fth_op_add_reduce(graph, with->reduction, with->axes, false, x, &sum));
    const fth_operand scaled =
        fth_expression_apply(&product, FTH_FUNCTION_MUL, fth_expression_input(1), small, FTH_NO_OPERAND);
    const fth_operand factor = fth_expression_apply(&product, FTH_FUNCTION_COS, scaled, FTH_NO_OPERAND, FTH_NO_OPERAND);
    fth_expression_apply(&product, FTH_FUNCTION_MUL, fth_expression_input(0), factor, FTH_NO_OPERAND);
    FTH_TRY(fth_op_add_pointwise(graph, &product, (fth_value[]){x, sum}, 2, NULL, y));
out:
    return status;
}

/* Parameters alone, and the same gradient for two of them. */
static fth_status build_parameters(fth_graph *graph, const pointwise_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_expression sum = {0};
    const fth_shape shape = FTH_SHAPE(1, with->channels, with->height, with->width);
    fth_value a, b, c;
    FTH_TRY(add_parameter(graph, "a", shape, &a));
    FTH_TRY(add_parameter(graph, "b", shape, &b));
    fth_expression_apply(&sum, FTH_FUNCTION_ADD, fth_expression_input(0), fth_expression_input(1), FTH_NO_OPERAND);
    FTH_TRY(fth_op_add_pointwise(graph, &sum, (fth_value[]){a, b}, 2, NULL, &c));
    FTH_TRY(fth_op_add_pointwise(graph, &sum, (fth_value[]){x, c}, 2, NULL, y));
out:
    return status;
}

/* ---- tests ---- */

#define SMALL .batch = 3, .channels = 5, .height = 3, .width = 4
#define BLOCK .batch = 2, .channels = 32, .height = 5, .width = 7

static const pointwise_case cases[] = {
    {"broadcast", build_broadcast, SMALL},
    {"broadcast, blocks", build_broadcast, BLOCK},
    {"gate", build_gate, SMALL, .reduction = FTH_REDUCE_MEAN},
    {"gate, blocks", build_gate, BLOCK, .reduction = FTH_REDUCE_MEAN},
    {"gate of largest", build_gate, SMALL, .reduction = FTH_REDUCE_MAX, .kinks = true},
    {"gate of smallest, blocks", build_gate, BLOCK, .reduction = FTH_REDUCE_MIN, .kinks = true},
    {"sum over columns", build_reduced, SMALL, .reduction = FTH_REDUCE_SUM, .axes = 8},
    {"sum over rows, kept", build_reduced, SMALL, .reduction = FTH_REDUCE_SUM, .axes = 4, .keep = true},
    {"sum over channels", build_reduced, SMALL, .reduction = FTH_REDUCE_SUM, .axes = 2},
    {"mean over channels, kept, blocks", build_reduced, BLOCK, .reduction = FTH_REDUCE_MEAN, .axes = 2, .keep = true},
    {"sum over the batch, kept", build_reduced, SMALL, .reduction = FTH_REDUCE_SUM, .axes = 1, .keep = true},
    {"sum over all but channels, kept", build_reduced, SMALL, .reduction = FTH_REDUCE_SUM, .axes = 13, .keep = true},
    {"sum over all, kept", build_reduced, SMALL, .reduction = FTH_REDUCE_SUM, .axes = 15, .keep = true},
    {"mean over pixels", build_reduced, BLOCK, .reduction = FTH_REDUCE_MEAN, .axes = 12},
    {"mean over pixels, kept", build_reduced, BLOCK, .reduction = FTH_REDUCE_MEAN, .axes = 12, .keep = true},
    {"max over channels and columns", build_reduced, SMALL, .reduction = FTH_REDUCE_MAX, .axes = 10, .kinks = true},
    {"min over channels", build_reduced, SMALL, .reduction = FTH_REDUCE_MIN, .axes = 2, .kinks = true},
    {"between convolutions", build_between, BLOCK},
    {"between convolutions, 24 channels", build_between, .batch = 2, .channels = 24, .height = 6, .width = 5},
    {"between convolutions, 20 channels, one pixel", build_between, .batch = 3, .channels = 20, .height = 1,
     .width = 1},
    {"between convolutions, 5 channels", build_between, SMALL},
    {"between convolutions, large", build_between, .batch = 2, .channels = 40, .height = 14, .width = 18},
    {"sum over all to one number", build_of_one_number, SMALL, .axes = 15},
    {"sum over samples and channels", build_of_one_number, SMALL, .axes = 3},
    {"parameters alone", build_parameters, SMALL},
};

static void test_differences(void **state)
{
    const pointwise_case *with = *state;
    op_network network;
    build_network(with, &network);
    assert_int_equal(op_check_differences(&network, op_device("reference"), "reference"), 0);
    op_network_free(&network);
}

static int compare_with_reference(const op_network *network, fth_precision precision)
{
    static const char *const names[] = {OP_DEVICES};
    int differences = 0;
    for (int mode = FTH_PLAN_TRAIN; mode <= FTH_PLAN_EVALUATE; mode++) {
        op_result wanted;
        op_run_once(network, op_device("reference"), (fth_plan_mode)mode, FTH_PRECISION_F32, &plain_run, &wanted);
        for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
            fth_device *device = op_device(names[i]);
            op_result found;
            if (device == NULL || device->backend->check_precision(device, precision) != FTH_OK)
                continue;
            op_run_once(network, device, (fth_plan_mode)mode, precision, &plain_run, &found);
            differences += op_compare(network, &found, &wanted, precision, names[i]);
            op_result_free(&found);
        }
        op_result_free(&wanted);
    }
    return differences;
}

static void test_f32(void **state)
{
    op_network network;
    build_network(*state, &network);
    assert_int_equal(compare_with_reference(&network, FTH_PRECISION_F32), 0);
    op_network_free(&network);
}

/* By each way to compute convolutions: they choose layouts. */
static void test_each_way(void **state)
{
    static const char *const names[] = {"cpu narrow", "cpu winograd", "cpu pixelwise", "cpu pointwise", "cpu direct"};
    const pointwise_case *with = *state;
    int differences = 0;
    op_network network;
    op_result wanted, found;
    build_network(with, &network);
    op_run_once(&network, op_device("reference"), FTH_PLAN_TRAIN, FTH_PRECISION_F32, &plain_run, &wanted);
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++)
        for (int p = FTH_PRECISION_F32; p <= FTH_PRECISION_BF16; p++) {
            fth_device *device = op_device(names[i]);
            if (device == NULL || device->backend->check_precision(device, (fth_precision)p) != FTH_OK)
                continue;
            op_run_once(&network, device, FTH_PLAN_TRAIN, (fth_precision)p, &plain_run, &found);
            differences += op_compare(&network, &found, &wanted, (fth_precision)p, names[i]);
            op_result_free(&found);
        }
    op_result_free(&wanted);
    op_network_free(&network);
    assert_int_equal(differences, 0);
}

static void test_bf16(void **state)
{
    op_network network;
    build_network(*state, &network);
    assert_int_equal(compare_with_reference(&network, FTH_PRECISION_BF16), 0);
    op_network_free(&network);
}

static bool has_kinks(fth_expression_function function)
{
    switch (function) {
    case FTH_FUNCTION_ABS:
    case FTH_FUNCTION_MIN:
    case FTH_FUNCTION_MAX:
    case FTH_FUNCTION_RELU:
    case FTH_FUNCTION_CLAMP:
    case FTH_FUNCTION_HARDTANH:
    case FTH_FUNCTION_HARDSIGMOID:
    case FTH_FUNCTION_HARDSWISH:
    case FTH_FUNCTION_LEAKY_RELU:
    case FTH_FUNCTION_ELU:
    case FTH_FUNCTION_SOFTPLUS:
    case FTH_FUNCTION_WHERE: return true;
    default: return function >= FTH_FUNCTION_SIGN && function <= FTH_FUNCTION_OR;
    }
}

int main(int argc, char **argv)
{
    enum { FUNCTIONS = FTH_FUNCTION_NORMAL_DENSITY + 1, CASES = FTH_COUNT_OF(cases) + FUNCTIONS };
    static pointwise_case all[CASES];
    static struct CMUnitTest tests[4 * CASES];
    static char names[FTH_COUNT_OF(tests)][96], function_names[FUNCTIONS][32];
    static const struct {
        const char *prefix;
        CMUnitTestFunction run;
    } kinds[] = {
        {"differences", test_differences}, {"f32", test_f32}, {"bf16", test_bf16}, {"by each way", test_each_way}};
    size_t count = 0;

    for (int f = 0; f < FUNCTIONS; f++) {
        snprintf(function_names[f], sizeof function_names[f], "function %s",
                 fth_expression_function_name((fth_expression_function)f));
        all[f] = (pointwise_case){function_names[f], build_function, SMALL, .function = (fth_expression_function)f,
                                  .kinks = has_kinks((fth_expression_function)f)};
    }
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++)
        all[FUNCTIONS + i] = cases[i];
    for (size_t k = 0; k < FTH_COUNT_OF(kinds); k++)
        for (size_t i = 0; i < CASES; i++) {
            const bool is_large = all[i].build == build_between && all[i].channels * all[i].height > 50;
            if (kinds[k].run == test_each_way ? all[i].build != build_between
                                              : kinds[k].run == test_differences && is_large)
                continue;
            snprintf(names[count], sizeof names[count], "%s: %s", kinds[k].prefix, all[i].name);
            tests[count] =
                (struct CMUnitTest){.name = names[count], .test_func = kinds[k].run, .initial_state = &all[i]};
            count++;
        }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("pointwise and reduce on every back end", tests, count, NULL, op_close_devices);
}
