/* Expressions: building, simplifying, differentiating, and fusing of pointwise nodes. */
#include "support.h"

#include <math.h>

#include "graph/ops.h"

#include "expression_values.h"

static const fth_operand none = FTH_NO_OPERAND;

static fth_operand in(int input)
{
    return fth_expression_input(input);
}

static fth_operand apply(fth_expression *e, fth_expression_function function, fth_operand a, fth_operand b)
{
    return fth_expression_apply(e, function, a, b, none);
}

static void test_what_changes_nothing_is_dropped(void **state)
{
    (void)state;
    fth_expression e = {0};
    const fth_operand one = fth_expression_number(&e, 1), zero = fth_expression_number(&e, 0);
    assert_true(fth_operand_equal(apply(&e, FTH_FUNCTION_MUL, in(0), one), in(0)));
    assert_true(fth_operand_equal(apply(&e, FTH_FUNCTION_ADD, zero, in(1)), in(1)));
    assert_true(fth_operand_equal(apply(&e, FTH_FUNCTION_POW, in(0), one), in(0)));
    assert_int_equal(e.step_count, 0);
    const fth_operand seven = apply(&e, FTH_FUNCTION_ADD, fth_expression_number(&e, 3), fth_expression_number(&e, 4));
    assert_int_equal(seven.kind, FTH_OPERAND_NUMBER);
    assert_true(e.numbers[seven.index] == 7);
    const fth_operand first = apply(&e, FTH_FUNCTION_MUL, in(0), in(1));
    assert_true(fth_operand_equal(apply(&e, FTH_FUNCTION_MUL, in(0), in(1)), first));
    assert_int_equal(e.step_count, 1);
    assert_int_equal(fth_expression_inputs(&e), 3);
    apply(&e, FTH_FUNCTION_POW, first, fth_expression_number(&e, 2));
    assert_int_equal(e.steps[e.step_count - 1].function, FTH_FUNCTION_SQUARE);
    assert_true(fth_expression_evaluate(&e, (double[]){3, 5}) == 225);
}

static void test_a_long_expression_is_refused(void **state)
{
    (void)state;
    fth_expression e = {0};
    fth_graph *graph = NULL;
    fth_value x, y;
    for (int i = 0; i <= FTH_EXPRESSION_STEPS; i++)
        apply(&e, FTH_FUNCTION_SIN, e.result, none);
    assert_true(e.overfull);
    assert_int_equal(fth_graph_create(&graph), FTH_OK);
    assert_int_equal(fth_graph_add_input(graph, "x", FTH_F32, FTH_SHAPE(FTH_BATCH, 3), &x), FTH_OK);
    assert_int_equal(fth_op_add_pointwise(graph, &e, &x, 1, NULL, &y), FTH_UNSUPPORTED);
    assert_message_has("more than 64 steps");
    fth_expression two = {0};
    apply(&two, FTH_FUNCTION_ADD, in(0), in(1));
    assert_int_equal(fth_op_add_pointwise(graph, &two, &x, 1, NULL, &y), FTH_INVALID);
    fth_graph_free(graph);
}

/* The steps of a gradient: what is in it twice is computed once, and nothing else is in it. */
static void test_gradients_are_short(void **state)
{
    (void)state;
    fth_expression product = {0}, gate = {0}, gradient;
    apply(&product, FTH_FUNCTION_MUL, in(0), in(1));
    assert_true(fth_expression_differentiate(&product, 0, 2, &gradient));
    assert_int_equal(gradient.step_count, 1); /* dy * b */
    assert_int_equal(fth_expression_inputs(&gradient), 6);
    apply(&gate, FTH_FUNCTION_MUL, in(0), apply(&gate, FTH_FUNCTION_SIGMOID, in(1), none));
    assert_true(fth_expression_differentiate(&gate, 1, 2, &gradient));
    assert_int_equal(gradient.step_count, 5); /* s, dy * a, 1 - s, (1 - s) * s, the product */
    assert_false(fth_expression_differentiate(&gate, 3, 4, &gradient));
    apply(&gate, FTH_FUNCTION_SIGN, in(0), none);
    assert_false(fth_expression_differentiate(&gate, 0, 2, &gradient));
}

/* ---- against PyTorch ---- */

static bool is_close(double found, double wanted, double rounding)
{
    if (isnan(wanted) || isinf(wanted))
        return isnan(wanted) ? isnan(found) : found == wanted;
    return fabs(found - wanted) <= rounding * fabs(wanted) || fabs(found - wanted) < 1e-15;
}

/* PyTorch divides by 6 in f32 in one of its kernels. */
static double rounding_of(size_t row)
{
    return expected[row].function == FTH_FUNCTION_HARDSIGMOID ? 0x1p-24 : 1e-12;
}

static void expect(size_t row, const char *what, double found, double wanted, int *differences)
{
    if (is_close(found, wanted, rounding_of(row)))
        return;
    print_message("  DIFFERS %s(%g, %g, %g): %s %.17g, in PyTorch %.17g\n",
                  fth_expression_function_name(expected[row].function), expected[row].a, expected[row].b,
                  expected[row].c, what, found, wanted);
    ++*differences;
}

/* Values and gradients of each function, at kinks, at infinity and for NaN. */
static void test_functions_are_those_of_pytorch(void **state)
{
    (void)state;
    int differences = 0;
    for (size_t r = 0; r < FTH_COUNT_OF(expected); r++) {
        fth_expression e = {0}, gradient;
        double inputs[] = {expected[r].a, expected[r].b, 1};
        const fth_operand low = fth_expression_number(&e, expected[r].b),
                          high = fth_expression_number(&e, expected[r].c);
        fth_expression_apply(&e, expected[r].function, in(0), expected[r].count > 1 ? in(1) : low,
                             expected[r].count > 1 ? low : high);
        fth_expression_prune(&e);
        expect(r, "is", fth_expression_evaluate(&e, inputs), expected[r].value, &differences);
        for (int of = 0; of < expected[r].count; of++) {
            const bool any = fth_expression_differentiate(&e, of, 2, &gradient);
            expect(r, of == 0 ? "has gradient" : "has second gradient",
                   any ? fth_expression_evaluate(&gradient, inputs) : 0, of == 0 ? expected[r].da : expected[r].db,
                   &differences);
        }
    }
    assert_int_equal(differences, 0);
}

/* ---- fusing ---- */

typedef struct fixture {
    fth_graph *graph;
    fth_value x, weight;
} fixture;

static fixture create(void)
{
    fixture f = {0};
    const fth_initializer one = {FTH_INIT_CONSTANT, 1};
    assert_int_equal(fth_graph_create(&f.graph), FTH_OK);
    assert_int_equal(fth_graph_add_input(f.graph, "x", FTH_F32, FTH_SHAPE(FTH_BATCH, 3, 4, 4), &f.x), FTH_OK);
    assert_int_equal(fth_graph_add_parameter(f.graph, "weight", FTH_SHAPE(3, 1, 1), one, &f.weight), FTH_OK);
    return f;
}

static fth_value add(fixture *f, fth_expression_function function, fth_value a, fth_value b)
{
    fth_expression e = {0};
    fth_value y = FTH_NO_VALUE;
    const fth_value inputs[] = {a, b};
    apply(&e, function, in(0), in(1));
    assert_int_equal(fth_op_add_pointwise(f->graph, &e, inputs, b == FTH_NO_VALUE ? 1 : 2, NULL, &y), FTH_OK);
    return y;
}

static void assert_consistent(const fth_graph *graph)
{
    for (int n = 0; n < fth_graph_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        for (int i = 0; i < node->output_count; i++)
            assert_int_equal(fth_graph_value(graph, node->outputs[i])->producer, n);
        for (int i = 0; i < node->input_count; i++)
            assert_true(fth_graph_value(graph, node->inputs[i])->producer < n);
    }
}

static void test_a_chain_becomes_one_node(void **state)
{
    (void)state;
    fixture f = create();
    fth_value relu, y = add(&f, FTH_FUNCTION_MUL, f.x, f.weight);
    y = add(&f, FTH_FUNCTION_TANH, y, FTH_NO_VALUE);
    y = add(&f, FTH_FUNCTION_ADD, y, f.x);
    y = add(&f, FTH_FUNCTION_MUL, y, y);
    assert_int_equal(fth_op_add_relu(f.graph, y, &relu), FTH_OK);
    assert_int_equal(fth_graph_fuse_pointwise(f.graph), FTH_OK);
    assert_int_equal(fth_graph_node_count(f.graph), 2);
    assert_consistent(f.graph);
    const fth_node *node = fth_graph_node(f.graph, 0);
    const fth_pointwise_attributes *a = node->attributes;
    assert_int_equal(node->input_count, 2);
    assert_int_equal(a->expression.step_count, 4);
    const double s = tanh(2.0 * 3.0) + 2.0;
    assert_true(fabs(fth_expression_evaluate(&a->expression, (double[]){2, 3}) - s * s) < 1e-12);
    fth_graph_free(f.graph);
}

static void test_what_others_read_stays(void **state)
{
    (void)state;
    fixture f = create();
    fth_value pooled;
    const fth_value first = add(&f, FTH_FUNCTION_MUL, f.x, f.weight);
    const fth_value second = add(&f, FTH_FUNCTION_TANH, first, FTH_NO_VALUE);
    const fth_value third = add(&f, FTH_FUNCTION_ADD, second, first); /* `first` has two readers, `second` one */
    assert_int_equal(fth_op_add_global_average_pool(f.graph, third, &pooled), FTH_OK);
    const fth_value small = add(&f, FTH_FUNCTION_SIGMOID, pooled, FTH_NO_VALUE); /* another shape than its reader's */
    const fth_value gated = add(&f, FTH_FUNCTION_MUL, third, small);
    const fth_value last = add(&f, FTH_FUNCTION_EXP, gated, FTH_NO_VALUE);
    fth_graph_set_outputs(f.graph, gated, last); /* wanted by itself */
    assert_int_equal(fth_graph_fuse_pointwise(f.graph), FTH_OK);
    assert_int_equal(fth_graph_node_count(f.graph), 6);
    assert_int_equal(fth_graph_value(f.graph, second)->producer, -1);
    assert_int_equal(fth_graph_value(f.graph, first)->producer, 0);
    assert_consistent(f.graph);
    fth_graph_free(f.graph);
}

/* Blocks that are computed again keep their nodes. */
static void test_blocks_keep_their_nodes(void **state)
{
    (void)state;
    fixture f = create();
    fth_value y = add(&f, FTH_FUNCTION_MUL, f.x, f.weight);
    y = add(&f, FTH_FUNCTION_TANH, y, FTH_NO_VALUE);
    assert_int_equal(fth_graph_begin_block(f.graph), FTH_OK);
    y = add(&f, FTH_FUNCTION_EXP, y, FTH_NO_VALUE);
    y = add(&f, FTH_FUNCTION_ADD, y, f.x);
    fth_graph_end_block(f.graph);
    y = add(&f, FTH_FUNCTION_ADD, y, f.weight);
    assert_int_equal(fth_graph_fuse_pointwise(f.graph), FTH_OK);
    assert_int_equal(fth_graph_node_count(f.graph), 3); /* before, in and behind the block */
    assert_consistent(f.graph);
    fth_graph_free(f.graph);
}

/* Two values that need gradients. */
static void add_two(fixture *f, fth_value out[2])
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            fth_op_add_relu(f->graph, add(f, i ? FTH_FUNCTION_ADD : FTH_FUNCTION_MUL, f->x, f->weight), &out[i]),
            FTH_OK);
}

/* exp(a - b): alone, the difference passes one gradient on and negates it; fused, both gradients
 * are computed from a, b and dy. */
static void test_fusing_must_pay(void **state)
{
    (void)state;
    fixture f = create();
    fth_value out[2], y;
    add_two(&f, out);
    add(&f, FTH_FUNCTION_EXP, add(&f, FTH_FUNCTION_SUB, out[0], out[1]), FTH_NO_VALUE);
    assert_int_equal(fth_graph_fuse_pointwise(f.graph), FTH_OK);
    assert_int_equal(fth_graph_node_count(f.graph), 6);
    y = add(&f, FTH_FUNCTION_MUL, out[0], out[1]);
    add(&f, FTH_FUNCTION_MUL, y, f.x);
    assert_int_equal(fth_graph_fuse_pointwise(f.graph), FTH_OK);
    assert_int_equal(fth_graph_node_count(f.graph), 7);
    assert_consistent(f.graph);
    fth_graph_free(f.graph);
}

static void test_gradients_of_fused_nodes_fit(void **state)
{
    (void)state;
    fixture f = create();
    fth_value out[2], y;
    add_two(&f, out);
    y = add(&f, FTH_FUNCTION_EXP, add(&f, FTH_FUNCTION_DIV, out[0], out[1]), FTH_NO_VALUE);
    for (int i = 0; i < 12; i++)
        y = add(&f, FTH_FUNCTION_MUL, y, add(&f, i % 2 ? FTH_FUNCTION_GELU_TANH : FTH_FUNCTION_MISH, y, FTH_NO_VALUE));
    for (int i = 0; i < 12; i++)
        y = add(&f, FTH_FUNCTION_GELU_TANH, y, FTH_NO_VALUE);
    const int before = fth_graph_node_count(f.graph);
    assert_int_equal(fth_graph_fuse_pointwise(f.graph), FTH_OK);
    assert_true(fth_graph_node_count(f.graph) < before - 12);
    assert_consistent(f.graph);
    for (int n = 0; n < fth_graph_node_count(f.graph); n++) {
        const fth_node *node = fth_graph_node(f.graph, n);
        const fth_pointwise_attributes *p = node->attributes;
        for (int i = 0; node->op == &fth_op_pointwise && i < node->input_count; i++) {
            fth_expression gradient;
            assert_true(fth_expression_differentiate(&p->expression, i, node->input_count, &gradient));
            assert_false(gradient.overfull);
        }
    }
    fth_graph_free(f.graph);
}

/* y = silu(x * weight), gated by its means: the gradient of y is the sum of two, of which one is
 * expanded, times a slope. All of it is one node, and what is left are the gates and the sums. */
static void test_gradients_are_fused(void **state)
{
    (void)state;
    fixture f = create();
    const fth_initializer one = {FTH_INIT_CONSTANT, 1};
    fth_value labels, head, mean, y, loss;
    int adds = 0, large = 0;
    assert_int_equal(fth_graph_add_input(f.graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels), FTH_OK);
    assert_int_equal(fth_graph_add_parameter(f.graph, "head", FTH_SHAPE(5, 48), one, &head), FTH_OK);
    y = add(&f, FTH_FUNCTION_SILU, add(&f, FTH_FUNCTION_MUL, f.x, f.weight), FTH_NO_VALUE);
    assert_int_equal(fth_op_add_reduce(f.graph, FTH_REDUCE_MEAN, 12, true, y, &mean), FTH_OK);
    y = add(&f, FTH_FUNCTION_MUL, y, add(&f, FTH_FUNCTION_SIGMOID, mean, FTH_NO_VALUE));
    assert_int_equal(fth_op_add_flatten(f.graph, y, &y), FTH_OK);
    assert_int_equal(fth_op_add_linear(f.graph, false, y, head, FTH_NO_VALUE, &y), FTH_OK);
    assert_int_equal(fth_op_add_softmax_cross_entropy(f.graph, 0, y, labels, &loss), FTH_OK);
    fth_graph_set_outputs(f.graph, y, loss);
    assert_int_equal(fth_graph_fuse_pointwise(f.graph), FTH_OK);
    assert_int_equal(fth_graph_differentiate(f.graph), FTH_OK);
    assert_consistent(f.graph);
    for (int n = fth_graph_forward_node_count(f.graph); n < fth_graph_node_count(f.graph); n++) {
        const fth_node *node = fth_graph_node(f.graph, n);
        const fth_shape *shape = &fth_graph_value(f.graph, node->outputs[0])->type.shape;
        adds += node->op == &fth_op_add;
        large += node->op == &fth_op_pointwise && shape->dims[2] * shape->dims[3] > 1;
    }
    assert_int_equal(adds, 0);
    assert_int_equal(large, 0); /* the gradient of weight is a reduce that computes all of it */
    assert_true(fth_graph_value(f.graph, f.weight)->gradient != FTH_NO_VALUE);
    fth_graph_free(f.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_changes_nothing_is_dropped),
        cmocka_unit_test(test_a_long_expression_is_refused),
        cmocka_unit_test(test_gradients_are_short),
        cmocka_unit_test(test_functions_are_those_of_pytorch),
        cmocka_unit_test(test_a_chain_becomes_one_node),
        cmocka_unit_test(test_what_others_read_stays),
        cmocka_unit_test(test_blocks_keep_their_nodes),
        cmocka_unit_test(test_fusing_must_pay),
        cmocka_unit_test(test_gradients_of_fused_nodes_fit),
        cmocka_unit_test(test_gradients_are_fused),
    };
    return cmocka_run_group_tests_name("expressions", tests, NULL, NULL);
}
