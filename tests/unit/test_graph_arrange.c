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

static void assert_refused(fth_status status, const char *why)
{
    assert_int_equal(status, FTH_INVALID);
    if (!strstr(fth_error_message(), why))
        fail_msg("\"%s\" does not say \"%s\"", fth_error_message(), why);
}

static void test_shapes_and_errors(void **state)
{
    (void)state;
    fth_graph *graph = create();
    fth_value x = input(graph, "x", FTH_F32, FTH_SHAPE(FTH_BATCH, 6, 4, 5)), y;
    fth_value ids = input(graph, "ids", FTH_I32, FTH_SHAPE(FTH_BATCH, 7));
    assert_int_equal(fth_op_add_slice(graph, 2, 1, 4, 2, x, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 6, 2, 5));
    assert_int_equal(fth_op_add_slice(graph, 1, 0, 6, 1, ids, &y), FTH_OK);
    assert_int_equal(fth_graph_value(graph, y)->type.dtype, FTH_I32);
    assert_refused(fth_op_add_slice(graph, 2, 1, 5, 1, x, &y), "no part of axis 2 of (N, 6, 4, 5)");
    assert_refused(fth_op_add_slice(graph, 2, 1, 1, 1, x, &y), "no part");
    assert_refused(fth_op_add_slice(graph, 2, 0, 2, 0, x, &y), "no part");
    assert_refused(fth_op_add_slice(graph, 0, 0, 1, 1, x, &y), "is the batch's");
    assert_refused(fth_op_add_slice(graph, 4, 0, 1, 1, x, &y), "no axis 4");
    assert_int_equal(
        fth_op_add_pad(graph, (fth_pad_attributes){.axis = 3, .before = 1, .after = 2, .between = 1}, x, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 6, 4, 12));
    assert_refused(fth_op_add_pad(graph, (fth_pad_attributes){.axis = 3, .before = -1}, x, &y), "-1, 0 and 0 entries");
    assert_refused(fth_op_add_pad(graph, (fth_pad_attributes){.axis = 3, .after = INT64_MAX}, x, &y), "too large");
    assert_int_equal(fth_op_add_permute(graph, (const int[]){0, 3, 1, 2}, x, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 5, 6, 4));
    assert_refused(fth_op_add_permute(graph, (const int[]){0, 3, 1, 1}, x, &y), "axis 1 in place 3");
    assert_refused(fth_op_add_permute(graph, (const int[]){0, 3, 1, 4}, x, &y), "axis 4 in place 3");
    assert_refused(fth_op_add_permute(graph, (const int[]){1, 0, 2, 3}, x, &y), "must stay first");
    assert_int_equal(fth_op_add_concat(graph, 3, (const fth_value[]){x, x}, 2, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 6, 4, 10));
    assert_refused(fth_op_add_concat(graph, 0, (const fth_value[]){x, x}, 2, &y), "is the batch's");
    assert_refused(fth_op_add_concat(graph, 1, (const fth_value[]){ids, x}, 2, &y), "differ in rank");
    fth_graph_free(graph);
}

static void test_concat_of_many_inputs_is_nested(void **state)
{
    (void)state;
    enum { COUNT = 2 * FTH_MAX_CONCAT_INPUTS + 1 };
    fth_graph *graph = create();
    fth_value x = input(graph, "x", FTH_F32, FTH_SHAPE(FTH_BATCH, 2)), inputs[COUNT], y;
    for (int i = 0; i < COUNT; i++)
        inputs[i] = x;
    assert_int_equal(fth_op_add_concat(graph, 1, inputs, COUNT, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 2 * COUNT));
    assert_int_equal(fth_graph_node_count(graph), 4);
    fth_graph_free(graph);
}

static void test_constants_and_gather(void **state)
{
    (void)state;
    fth_graph *graph = create();
    int32_t numbers[] = {2, 0, 2};
    fth_value x = input(graph, "x", FTH_F32, FTH_SHAPE(FTH_BATCH, 3, 4)), indices, y;
    const fth_type type = {FTH_I32, FTH_SHAPE(3)};
    assert_int_equal(fth_op_add_constant(graph, type, numbers, &indices), FTH_OK);
    numbers[0] = 9; /* the graph has its own copy */
    assert_int_equal(((const int32_t *)fth_graph_value(graph, indices)->data)[0], 2);
    assert_int_equal(fth_graph_value(graph, indices)->kind, FTH_VALUE_CONSTANT);
    assert_int_equal(fth_graph_find(graph, ""), FTH_NO_VALUE);
    assert_int_equal(fth_op_add_gather(graph, 1, x, indices, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 3, 4));
    assert_refused(fth_op_add_gather(graph, 0, x, indices, &y), "is the batch's");
    assert_refused(fth_op_add_gather(graph, 1, x, x, &y), "not a constant");
    assert_int_equal(fth_op_add_constant(graph, type, numbers, &indices), FTH_OK);
    assert_refused(fth_op_add_gather(graph, 1, x, indices, &y), "index 9 in an axis of 3 entries");
    assert_refused(fth_op_add_constant(graph, (fth_type){FTH_F32, FTH_SHAPE(FTH_BATCH)}, numbers, &indices), "");
    assert_refused(fth_op_add_constant(graph, (fth_type){FTH_F64, FTH_SHAPE(1)}, numbers, &indices), "F32 or I32");
    fth_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshape_moves_factors_to_the_batch),
        cmocka_unit_test(test_reshape_of_tokens_fixed_sizes_and_integers),
        cmocka_unit_test(test_multiples_of_the_batch_are_bounded),
        cmocka_unit_test(test_shapes_and_errors),
        cmocka_unit_test(test_concat_of_many_inputs_is_nested),
        cmocka_unit_test(test_constants_and_gather),
    };
    return cmocka_run_group_tests_name("rules of ops that move elements", tests, NULL, NULL);
}
