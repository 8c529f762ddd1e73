/* Expressions on every back end: numbers at the ends of functions, fused chains, and any number of
 * threads. */
#include "op_harness.h"

#include <math.h>

static const fth_run plain_run = {.seed = 3, .step = 7, .gradient_scale = 1};

static fth_status add_parameter(fth_graph *graph, const char *name, fth_shape shape, fth_value *value)
{
    return fth_graph_add_parameter(graph, name, shape, (fth_initializer){FTH_INIT_UNIFORM, 0.8}, value);
}

/* ---- numbers at the ends of functions ---- */

static const float special_numbers[] = {0,   -0.0F, 1e-30F, -1e-30F, 1e-5F,  0.2F,     -0.2F,     0.7F,  -0.9F,
                                        1,   -1,    3,      -3,      2.5F,   -2.5F,    7.3F,      -7.3F, 30,
                                        -30, 100,   -100,   1e12F,   -1e12F, INFINITY, -INFINITY, NAN};
enum { SPECIAL_COUNT = FTH_COUNT_OF(special_numbers) };

/* The function, or its gradient for dy = 1, of special numbers: the logits themselves. */
static void build_special(fth_expression_function function, bool gradient, op_network *network)
{
    fth_graph *graph = NULL;
    fth_value images, labels, nothing, x, logits, loss;
    fth_expression e = {0}, slope, sum = {0};
    const fth_operand in[] = {fth_expression_input(0), fth_expression_input(1)};

    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, SPECIAL_COUNT), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(
        fth_graph_add_parameter(graph, "nothing", FTH_SHAPE(1), (fth_initializer){FTH_INIT_CONSTANT, 0}, &nothing));
    fth_expression_apply(&e, function, in[0], fth_expression_number(&e, -0.5), fth_expression_number(&e, 0.75));
    if (gradient && !fth_expression_differentiate(&e, 0, 1, &slope))
        slope = (fth_expression){.result = in[1]};
    fth_expression_prune(gradient ? &slope : &e);
    fth_expression one = {0};
    one.result = fth_expression_number(&one, 1);
    op_check(fth_op_add_pointwise(graph, &one, &nothing, 1, NULL, &x));
    op_check(fth_op_add_pointwise(graph, gradient ? &slope : &e, (fth_value[]){images, x}, 2, NULL, &x));
    fth_expression_apply(&sum, FTH_FUNCTION_ADD, in[0], in[1], FTH_NO_OPERAND);
    op_check(fth_op_add_pointwise(graph, &sum, (fth_value[]){x, nothing}, 2, NULL, &logits));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, logits, labels, &loss));
    fth_graph_set_outputs(graph, logits, loss);
    op_check(fth_graph_differentiate(graph));
    op_network_create(network, graph, 2, 5);
    for (int i = 0; i < 2 * SPECIAL_COUNT; i++)
        network->images[i] = special_numbers[i % SPECIAL_COUNT];
}

/* A few units in the last place. Numbers that are subnormal, or about to be, may become 0; and
 * gradients are made of differences from 1. */
static bool is_close(float found, float wanted, bool gradient)
{
    if (isnan(wanted) || isinf(wanted))
        return isnan(wanted) ? isnan(found) : found == wanted;
    return fabsf(found - wanted) <= 4e-6F * fabsf(wanted) || fabsf(found - wanted) < (gradient ? 0x1p-22F : 1e-37F);
}

static int compare_special(const op_network *network, fth_expression_function function, bool gradient)
{
    static const char *const names[] = {OP_DEVICES};
    int differences = 0;
    op_result wanted, found;
    op_run_once(network, op_device("reference"), FTH_PLAN_EVALUATE, FTH_PRECISION_F32, &plain_run, &wanted);
    for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
        fth_device *device = op_device(names[d]);
        if (device == NULL)
            continue;
        op_run_once(network, device, FTH_PLAN_EVALUATE, FTH_PRECISION_F32, &plain_run, &found);
        for (int i = 0; i < 2 * SPECIAL_COUNT; i++) {
            if (is_close(found.logits[i], wanted.logits[i], gradient))
                continue;
            print_message("  DIFFERS %s: %s%s of %g: %.9g, not %.9g\n", names[d], gradient ? "gradient of " : "",
                          fth_expression_function_name(function), special_numbers[i % SPECIAL_COUNT], found.logits[i],
                          wanted.logits[i]);
            differences++;
        }
        op_result_free(&found);
    }
    op_result_free(&wanted);
    return differences;
}

static void test_special_numbers(void **state)
{
    int differences = 0;
    (void)state;
    for (int f = 0; f < 2 * FTH_FUNCTION_COUNT; f++) {
        const fth_expression_function function = (fth_expression_function)(f / 2);
        const bool is_rough = function == FTH_FUNCTION_SIN || function == FTH_FUNCTION_COS; /* of 1e30 */
        op_network network;
        if (is_rough)
            continue;
        build_special(function, f % 2, &network);
        differences += compare_special(&network, function, f % 2);
        op_network_free(&network);
    }
    assert_int_equal(differences, 0);
}

/* ---- fused and not, and any number of threads ---- */

static fth_status apply_one(fth_graph *graph, fth_expression_function function, fth_value a, fth_value b, fth_value *y)
{
    fth_expression e = {0};
    fth_expression_apply(&e, function, fth_expression_input(0), fth_expression_input(1), FTH_NO_OPERAND);
    return fth_op_add_pointwise(graph, &e, (fth_value[]){a, b}, fth_expression_function_arity(function), NULL, y);
}

enum { WIDE = 600, WIDE_ROWS = 5 };

/* images (N, 5, 600) -> mish(images * scale + shift) * scale -> sum over the last axis: the logits,
 * one node for each function. */
static void build_wide(bool fused, op_network *network)
{
    fth_graph *graph = NULL;
    fth_value images, labels, scale, shift, x, loss;
    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, WIDE_ROWS, WIDE), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(add_parameter(graph, "scale", FTH_SHAPE(WIDE), &scale));
    op_check(add_parameter(graph, "shift", FTH_SHAPE(WIDE_ROWS, 1), &shift));
    op_check(apply_one(graph, FTH_FUNCTION_MUL, images, scale, &x));
    op_check(apply_one(graph, FTH_FUNCTION_ADD, x, shift, &x));
    op_check(apply_one(graph, FTH_FUNCTION_MISH, x, FTH_NO_VALUE, &x));
    op_check(apply_one(graph, FTH_FUNCTION_MUL, x, scale, &x));
    op_check(fth_op_add_reduce(graph, FTH_REDUCE_MEAN, 4, false, x, &x));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, x, labels, &loss));
    fth_graph_set_outputs(graph, x, loss);
    if (fused)
        op_check(fth_graph_fuse_pointwise(graph));
    op_check(fth_graph_differentiate(graph));
    assert_int_equal(fth_graph_forward_node_count(graph), fused ? 3 : 6);
    op_network_create(network, graph, 64, 5);
    op_network_randomize(network, 5);
    network->reduction = 64 * WIDE;
}

/* Puts gradients where another network of the same parameters has them: its backward pass may
 * finish them in another order. */
static void move_gradients(const op_network *from, const op_network *to, op_result *result)
{
    const size_t floats = fth_graph_parameter_floats(to->graph);
    float *moved = calloc(floats, sizeof *moved);
    assert_non_null(moved);
    for (fth_value v = 0; v < fth_graph_value_count(to->graph); v++) {
        const fth_value_info *info = fth_graph_value(to->graph, v);
        if (info->kind == FTH_VALUE_PARAMETER)
            memcpy(moved + info->offset,
                   result->gradients + fth_graph_value(from->graph, fth_graph_find(from->graph, info->name))->offset,
                   (size_t)fth_shape_count(&info->type.shape) * sizeof *moved);
    }
    free(result->gradients);
    result->gradients = moved;
}

static void test_fused_nodes_compute_the_same(void **state)
{
    static const char *const names[] = {"reference", OP_DEVICES};
    int differences = 0;
    op_network fused, apart;
    (void)state;
    build_wide(true, &fused);
    build_wide(false, &apart);
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        op_result found, wanted;
        if (device == NULL)
            continue;
        op_run_once(&fused, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &plain_run, &found);
        op_run_once(&apart, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &plain_run, &wanted);
        move_gradients(&apart, &fused, &wanted);
        differences += op_compare(&fused, &found, &wanted, FTH_PRECISION_F32, names[i]);
        op_result_free(&found);
        op_result_free(&wanted);
    }
    assert_int_equal(differences, 0);
    op_network_free(&fused);
    op_network_free(&apart);
}

/* The same bits: sums are divided by sizes alone. */
static void test_threads_change_nothing(void **state)
{
    op_network network;
    op_result one, many;
    fth_device *device = op_device("cpu");
    (void)state;
    if (device == NULL)
        skip();
    build_wide(false, &network);
    for (int threads = 1; threads <= 3; threads++) {
        op_session session;
        op_session_open_plan(&session, &network, device,
                             (fth_plan_options){.mode = FTH_PLAN_TRAIN, .threads = threads});
        op_session_run(&session, &plain_run);
        op_session_read(&session, threads == 1 ? &one : &many);
        op_session_close(&session);
        if (threads == 1)
            continue;
        assert_memory_equal(one.logits, many.logits, one.logit_count * sizeof(float));
        assert_memory_equal(one.gradients, many.gradients, fth_graph_parameter_floats(network.graph) * sizeof(float));
        op_result_free(&many);
    }
    op_result_free(&one);
    op_network_free(&network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_special_numbers),
        cmocka_unit_test(test_fused_nodes_compute_the_same),
        cmocka_unit_test(test_threads_change_nothing),
    };
    return cmocka_run_group_tests_name("expressions on every back end", tests, NULL, op_close_devices);
}
