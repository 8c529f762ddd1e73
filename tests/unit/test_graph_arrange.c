/* Rules of the ops that move elements: shapes, what is refused, and gradients. */
#include "support.h"

#include "graph/graph.h"
#include "graph/ops.h"

static fth_graph *create(void)
{
    fth_graph *graph = NULL;
    assert_int_equal(fth_graph_create(&graph), FTH_OK);
    return graph;
}

static fth_value input(fth_graph *graph, const char *name, fth_dtype dtype, fth_shape shape)
{
    fth_value value = FTH_NO_VALUE;
    assert_int_equal(fth_graph_add_input(graph, name, dtype, shape, &value), FTH_OK);
    return value;
}

static void assert_shape(const fth_graph *graph, fth_value value, fth_shape expected)
{
    char text[128], wanted[128];
    fth_shape_format(&fth_graph_value(graph, value)->type.shape, text, sizeof text);
    fth_shape_format(&expected, wanted, sizeof wanted);
    assert_string_equal(text, wanted);
}

static void test_reshape_moves_factors_to_the_batch(void **state)
{
    (void)state;
    fth_graph *graph = create();
    fth_value x = input(graph, "x", FTH_F32, FTH_SHAPE(FTH_BATCH, 6, 4)), y;
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(6), 4), x, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(fth_batch_times(6), 4));
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(2), 3, 2, 2), y, &y), FTH_OK);
    assert_int_equal(fth_op_add_flatten(graph, y, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(fth_batch_times(2), 12));
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(24)), y, &y), FTH_OK);
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, 24), y, &y), FTH_OK);
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(5), 4), x, &y), FTH_INVALID);
    assert_message_has("(N, 6, 4) cannot become (5N, 4)");
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(24), x, &y), FTH_INVALID);
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(FTH_TOKENS, 24), x, &y), FTH_INVALID);
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(6, FTH_BATCH, 4), x, &y), FTH_INVALID);
    assert_int_equal(fth_op_add_reshape(graph, (fth_shape){0}, x, &y), FTH_INVALID);
    fth_graph_free(graph);
}

static void test_reshape_of_tokens_fixed_sizes_and_integers(void **state)
{
    (void)state;
    fth_graph *graph = create();
    const fth_initializer zero = {FTH_INIT_CONSTANT, 0};
    fth_value tokens = input(graph, "t", FTH_F32, FTH_SHAPE(FTH_TOKENS, 6)), table, y;
    fth_value ids = input(graph, "ids", FTH_I32, FTH_SHAPE(FTH_BATCH, 5));
    assert_int_equal(fth_graph_add_parameter(graph, "table", FTH_SHAPE(4, 6), zero, &table), FTH_OK);
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(FTH_TOKENS, 2, 3), tokens, &y), FTH_OK);
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(FTH_TOKENS, 7), tokens, &y), FTH_INVALID);
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(2, 12), table, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(2, 12));
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, 24), table, &y), FTH_INVALID);
    assert_int_equal(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(5)), ids, &y), FTH_OK);
    assert_int_equal(fth_graph_value(graph, y)->type.dtype, FTH_I32);
    assert_int_equal(fth_op_add_embedding(graph, -1, &y, &table, 1, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(fth_batch_times(5), 6));
    fth_graph_free(graph);
}

static void test_multiples_of_the_batch_are_bounded(void **state)
{
    (void)state;
    fth_graph *graph = create();
    fth_value x;
    const int64_t many = INT64_C(1) << 30;
    assert_int_equal(fth_graph_add_input(graph, "x", FTH_F32, FTH_SHAPE(fth_batch_times(many), many), &x), FTH_INVALID);
    assert_message_has("too many elements");
    assert_int_equal(fth_graph_add_input(graph, "x", FTH_F32, FTH_SHAPE(fth_batch_times(many), 2), &x), FTH_OK);
    assert_int_equal(fth_graph_add_input(graph, "y", FTH_F32, FTH_SHAPE(2, fth_batch_times(3)), &x), FTH_INVALID);
    fth_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshape_moves_factors_to_the_batch),
        cmocka_unit_test(test_reshape_of_tokens_fixed_sizes_and_integers),
        cmocka_unit_test(test_multiples_of_the_batch_are_bounded),
    };
    return cmocka_run_group_tests_name("rules of ops that move elements", tests, NULL, NULL);
}
