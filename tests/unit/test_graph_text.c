/* The ops of text in a graph: shapes, and what does not fit is refused with a message that says
 * what. */
#include "support.h"

#include <math.h>

#include "graph/graph.h"
#include "graph/ops.h"

typedef struct fixture {
    fth_graph *graph;
    fth_value tokens, ends;           /* (T), (N) I32 */
    fth_value samples, rows;          /* (N, 12), (T, 12) */
    fth_value table, vector, weight;  /* (7, 12), (12), (12, 12) */
    fth_value short_table, short_row; /* (7, 5), (5) */
} fixture;

static fth_value parameter(fth_graph *graph, const char *name, fth_shape shape)
{
    fth_value value = FTH_NO_VALUE;
    assert_int_equal(fth_graph_add_parameter(graph, name, shape, (fth_initializer){FTH_INIT_NORMAL, 1}, &value),
                     FTH_OK);
    return value;
}

static fth_value input(fth_graph *graph, const char *name, fth_dtype dtype, fth_shape shape)
{
    fth_value value = FTH_NO_VALUE;
    assert_int_equal(fth_graph_add_input(graph, name, dtype, shape, &value), FTH_OK);
    return value;
}

static fixture create(void)
{
    fixture f = {0};
    assert_int_equal(fth_graph_create(&f.graph), FTH_OK);
    f.tokens = input(f.graph, "tokens", FTH_I32, FTH_SHAPE(FTH_TOKENS));
    f.ends = input(f.graph, "ends", FTH_I32, FTH_SHAPE(FTH_BATCH));
    f.samples = input(f.graph, "samples", FTH_F32, FTH_SHAPE(FTH_BATCH, 12));
    f.table = parameter(f.graph, "table", FTH_SHAPE(7, 12));
    f.short_table = parameter(f.graph, "short table", FTH_SHAPE(7, 5));
    f.vector = parameter(f.graph, "vector", FTH_SHAPE(12));
    f.short_row = parameter(f.graph, "short row", FTH_SHAPE(5));
    f.weight = parameter(f.graph, "weight", FTH_SHAPE(12, 12));
    assert_int_equal(fth_op_add_embedding(f.graph, -1, &f.tokens, &f.table, 1, &f.rows), FTH_OK);
    return f;
}

static void assert_shape(const fth_graph *graph, fth_value value, fth_shape expected)
{
    assert_true(fth_shape_equal(&fth_graph_value(graph, value)->type.shape, &expected));
}

static void test_embedding(void **state)
{
    (void)state;
    fixture f = create();
    fth_value y;
    assert_shape(f.graph, f.rows, FTH_SHAPE(FTH_TOKENS, 12));
    assert_int_equal(fth_op_add_embedding(f.graph, -1, (fth_value[]){f.tokens, f.tokens},
                                          (fth_value[]){f.table, f.short_table}, 2, &y),
                     FTH_INVALID);
    assert_message_has("rows of different lengths");
    assert_int_equal(fth_op_add_embedding(f.graph, -1, &f.samples, &f.table, 1, &y), FTH_INVALID);
    assert_message_has("vector of I32");
    assert_int_equal(
        fth_op_add_embedding(f.graph, -1, (fth_value[]){f.tokens, f.ends}, (fth_value[]){f.table, f.table}, 2, &y),
        FTH_INVALID);
    assert_message_has("(T)");
    fth_graph_free(f.graph);
}

static void test_layer_norm(void **state)
{
    (void)state;
    fixture f = create();
    const fth_layer_norm_attributes plain = {.epsilon = 1e-5f};
    fth_value y;
    assert_int_equal(fth_op_add_layer_norm(f.graph, plain, f.rows, f.vector, f.vector, f.rows, &y), FTH_OK);
    assert_shape(f.graph, y, FTH_SHAPE(FTH_TOKENS, 12));
    assert_int_equal(fth_op_add_layer_norm(f.graph, plain, f.rows, f.vector, f.short_row, FTH_NO_VALUE, &y),
                     FTH_INVALID);
    assert_message_has("the shift");
    assert_int_equal(fth_op_add_layer_norm(f.graph, plain, f.rows, f.vector, f.vector, f.samples, &y), FTH_INVALID);
    assert_message_has("the residual");
    assert_int_equal(
        fth_op_add_layer_norm(f.graph, (fth_layer_norm_attributes){0}, f.rows, f.vector, f.vector, FTH_NO_VALUE, &y),
        FTH_INVALID);
    assert_message_has("epsilon");
    assert_int_equal(fth_op_add_layer_norm(f.graph, (fth_layer_norm_attributes){.epsilon = 1e-5f, .probability = NAN},
                                           f.rows, f.vector, f.vector, FTH_NO_VALUE, &y),
                     FTH_INVALID);
    assert_message_has("dropout");
    fth_graph_free(f.graph);
}

static void test_qkv_linear(void **state)
{
    (void)state;
    fixture f = create();
    const fth_value weights[] = {f.weight, f.weight, f.weight}, biases[] = {f.vector, f.vector, f.vector};
    fth_value y;
    assert_int_equal(fth_op_add_qkv_linear(f.graph, f.rows, weights, biases, &y), FTH_OK);
    assert_shape(f.graph, y, FTH_SHAPE(FTH_TOKENS, 36));
    assert_int_equal(fth_op_add_qkv_linear(f.graph, f.rows, (fth_value[]){f.weight, f.table, f.weight}, biases, &y),
                     FTH_INVALID);
    assert_message_has("key's weight");
    assert_int_equal(
        fth_op_add_qkv_linear(f.graph, f.rows, weights, (fth_value[]){f.vector, f.vector, f.short_row}, &y),
        FTH_INVALID);
    assert_message_has("bias");
    assert_int_equal(
        fth_op_add_qkv_linear(f.graph, f.rows, (fth_value[]){f.short_table, f.short_table, f.short_table}, biases, &y),
        FTH_INVALID);
    assert_message_has("5 features");
    fth_graph_free(f.graph);
}

static void test_attention(void **state)
{
    (void)state;
    fixture f = create();
    fth_value y;
    assert_int_equal(
        fth_op_add_attention(f.graph, (fth_attention_attributes){.heads = 2, .longest = 9}, f.rows, f.ends, &y),
        FTH_OK);
    assert_shape(f.graph, y, FTH_SHAPE(FTH_TOKENS, 4));
    assert_int_equal(
        fth_op_add_attention(f.graph, (fth_attention_attributes){.heads = 3, .longest = 9}, f.rows, f.ends, &y),
        FTH_INVALID);
    assert_message_has("3 heads");
    assert_int_equal(
        fth_op_add_attention(f.graph, (fth_attention_attributes){.heads = 0, .longest = 9}, f.rows, f.ends, &y),
        FTH_INVALID);
    assert_int_equal(fth_op_add_attention(f.graph, (fth_attention_attributes){.heads = 2}, f.rows, f.ends, &y),
                     FTH_INVALID);
    assert_message_has("up to 0 tokens");
    assert_int_equal(
        fth_op_add_attention(f.graph, (fth_attention_attributes){.heads = 2, .longest = 9}, f.rows, f.vector, &y),
        FTH_INVALID);
    assert_message_has("the ends");
    fth_graph_free(f.graph);
}

static void test_first_tokens(void **state)
{
    (void)state;
    fixture f = create();
    fth_value y;
    assert_int_equal(fth_op_add_first_tokens(f.graph, f.rows, f.ends, &y), FTH_OK);
    assert_shape(f.graph, y, FTH_SHAPE(FTH_BATCH, 12));
    assert_int_equal(fth_op_add_first_tokens(f.graph, f.samples, f.ends, &y), FTH_INVALID);
    assert_message_has("rows must be tokens");
    fth_graph_free(f.graph);
}

static void test_matrix_product(void **state)
{
    (void)state;
    fixture f = create();
    const fth_value a = input(f.graph, "a", FTH_F32, FTH_SHAPE(FTH_BATCH, 3, 4));
    const fth_value b = input(f.graph, "b", FTH_F32, FTH_SHAPE(FTH_BATCH, 5, 4));
    fth_value y;
    assert_int_equal(fth_op_add_matrix_product(f.graph, (fth_matrix_product_attributes){.transpose_b = true}, a, b, &y),
                     FTH_OK);
    assert_shape(f.graph, y, FTH_SHAPE(FTH_BATCH, 3, 5));
    assert_int_equal(fth_op_add_matrix_product(f.graph, (fth_matrix_product_attributes){0}, a, b, &y), FTH_INVALID);
    assert_message_has("cannot be multiplied");
    assert_int_equal(fth_op_add_matrix_product(f.graph, (fth_matrix_product_attributes){0}, f.samples, b, &y),
                     FTH_INVALID);
    assert_message_has("(N, M, K)");
    fth_graph_free(f.graph);
}

static void test_losses(void **state)
{
    (void)state;
    fixture f = create();
    const fth_value targets = input(f.graph, "targets", FTH_F32, FTH_SHAPE(FTH_BATCH, 12));
    fth_value loss, y;
    assert_int_equal(fth_op_add_squared_error(f.graph, f.samples, f.rows, &loss), FTH_INVALID);
    assert_message_has("the target");
    assert_int_equal(fth_op_add_sigmoid_cross_entropy(f.graph, f.samples, f.ends, &loss), FTH_INVALID);
    assert_int_equal(fth_op_add_linear(f.graph, false, f.samples, f.weight, f.vector, &y), FTH_OK);
    assert_int_equal(fth_op_add_sigmoid_cross_entropy(f.graph, y, targets, &loss), FTH_OK);
    assert_shape(f.graph, loss, FTH_SHAPE(2));
    fth_graph_set_outputs(f.graph, y, loss);
    assert_int_equal(fth_graph_differentiate(f.graph), FTH_OK);
    fth_graph_free(f.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_layer_norm),   cmocka_unit_test(test_qkv_linear),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_first_tokens), cmocka_unit_test(test_matrix_product),
        cmocka_unit_test(test_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
