/* Graphs: building errors, shapes, layout of the flat vectors, initialization. */
#include "support.h"

#include <math.h>

#include "graph/graph.h"
#include "graph/ops.h"

static const fth_initializer zero = {FTH_INIT_CONSTANT, 0};

static fth_graph *create(void)
{
    fth_graph *graph = NULL;
    assert_int_equal(fth_graph_create(&graph), FTH_OK);
    return graph;
}

static fth_value input(fth_graph *graph, const char *name, fth_shape shape)
{
    fth_value value = FTH_NO_VALUE;
    assert_int_equal(fth_graph_add_input(graph, name, FTH_F32, shape, &value), FTH_OK);
    return value;
}

static fth_value parameter(fth_graph *graph, const char *name, fth_shape shape)
{
    fth_value value = FTH_NO_VALUE;
    assert_int_equal(fth_graph_add_parameter(graph, name, shape, zero, &value), FTH_OK);
    return value;
}

static fth_convolution_attributes plain_convolution(void)
{
    return (fth_convolution_attributes){.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
}

static void assert_shape(const fth_graph *graph, fth_value value, fth_shape expected)
{
    assert_true(fth_shape_equal(&fth_graph_value(graph, value)->type.shape, &expected));
}

static void test_tensors_that_only_files_have(void **state)
{
    (void)state;
    static const float numbers[3] = {1, 2, 3};
    fth_graph *graph = create();
    fth_value weight = parameter(graph, "embedding.weight", FTH_SHAPE(5, 2)), value;
    const fth_file_tensor tied = {.name = "head.weight", .same_as = weight};
    const fth_file_tensor constant = {.name = "scale", .same_as = FTH_NO_VALUE, .type = {FTH_F32, FTH_SHAPE(3)}};
    fth_file_tensor whole = constant;
    whole.data = numbers;
    assert_int_equal(fth_graph_add_file_tensor(graph, &tied), FTH_OK);
    assert_int_equal(fth_graph_add_file_tensor(graph, &tied), FTH_INVALID); /* a name is used once */
    assert_message_has("head.weight");
    assert_int_equal(fth_graph_add_parameter(graph, "head.weight", FTH_SHAPE(3), zero, &value), FTH_INVALID);
    assert_int_equal(fth_graph_add_file_tensor(graph, &constant), FTH_INVALID); /* no data */
    assert_int_equal(fth_graph_add_file_tensor(graph, &whole), FTH_OK);
    value = input(graph, "images", FTH_SHAPE(FTH_BATCH, 2));
    assert_int_equal(fth_graph_add_file_tensor(graph, &(fth_file_tensor){.name = "other", .same_as = value}),
                     FTH_INVALID);
    assert_int_equal(fth_graph_file_tensor_count(graph), 2);
    assert_true(fth_shape_equal(&fth_graph_file_tensor(graph, 0)->type.shape, &FTH_SHAPE(5, 2)));
    assert_ptr_equal(fth_graph_find_file_tensor(graph, "scale")->data, numbers);
    assert_null(fth_graph_find_file_tensor(graph, "embedding.weight"));
    assert_null(fth_graph_file_tensor(graph, 2));
    fth_graph_free(graph);
}

static void test_names_are_unique(void **state)
{
    (void)state;
    fth_graph *graph = create();
    fth_value value;
    input(graph, "images", FTH_SHAPE(FTH_BATCH, 1, 8, 8));
    assert_int_equal(fth_graph_add_parameter(graph, "images", FTH_SHAPE(3), zero, &value), FTH_INVALID);
    assert_message_has("images");
    assert_int_equal(fth_graph_add_counter(graph, "count"), FTH_OK);
    assert_int_equal(fth_graph_add_buffer(graph, "count", FTH_SHAPE(3), zero, &value), FTH_INVALID);
    assert_int_equal(fth_graph_add_counter(graph, "count"), FTH_INVALID);
    assert_int_equal(fth_graph_add_input(graph, "", FTH_F32, FTH_SHAPE(3), &value), FTH_INVALID);
    assert_int_equal(fth_graph_find(graph, "images"), 0);
    assert_int_equal(fth_graph_find(graph, "absent"), FTH_NO_VALUE);
    assert_int_equal(fth_graph_counter_count(graph), 1);
    assert_string_equal(fth_graph_counter(graph, 0), "count");
    assert_null(fth_graph_counter(graph, 1));
    fth_graph_free(graph);
}

static void test_bad_shapes_are_refused(void **state)
{
    (void)state;
    fth_graph *graph = create();
    fth_value value;
    assert_int_equal(fth_graph_add_parameter(graph, "a", FTH_SHAPE(FTH_BATCH, 3), zero, &value), FTH_INVALID);
    assert_int_equal(fth_graph_add_parameter(graph, "a", FTH_SHAPE(3, 0), zero, &value), FTH_INVALID);
    assert_message_has("a");
    assert_int_equal(fth_graph_add_parameter(graph, "a", FTH_SHAPE(INT64_MAX, INT64_MAX), zero, &value), FTH_INVALID);
    assert_int_equal(fth_graph_add_input(graph, "a", FTH_F32, FTH_SHAPE(FTH_BATCH, FTH_BATCH), &value), FTH_INVALID);
    fth_graph_free(graph);
}

static void test_convolution_shapes(void **state)
{
    (void)state;
    fth_graph *graph = create();
    fth_value x = input(graph, "x", FTH_SHAPE(FTH_BATCH, 4, 17, 30)), y;
    fth_value weight = parameter(graph, "w", FTH_SHAPE(6, 2, 3, 5));
    fth_convolution_attributes attributes = {.stride = {2, 3}, .padding = {1, 0}, .dilation = {2, 1}, .groups = 2};
    assert_int_equal(fth_op_add_convolution(graph, attributes, x, weight, FTH_NO_VALUE, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 6, 8, 9));
    const fth_convolution_attributes *kept = fth_graph_node(graph, 0)->attributes;
    assert_int_equal(kept->kernel[0], 3);
    assert_int_equal(kept->kernel[1], 5);
    assert_int_equal(kept->input_shape.dims[3], 30);
    assert_true(fth_graph_value(graph, y)->needs_gradient);
    assert_false(fth_graph_value(graph, x)->needs_gradient);
    fth_graph_free(graph);
}

static void test_convolution_errors(void **state)
{
    (void)state;
    fth_graph *graph = create();
    fth_value x = input(graph, "x", FTH_SHAPE(FTH_BATCH, 4, 3, 3)), flat = input(graph, "f", FTH_SHAPE(FTH_BATCH, 4)),
              y;
    fth_convolution_attributes attributes = plain_convolution();
    fth_value large = parameter(graph, "large", FTH_SHAPE(8, 4, 5, 5));
    fth_value other = parameter(graph, "other", FTH_SHAPE(8, 3, 3, 3));
    fth_value fits = parameter(graph, "fits", FTH_SHAPE(8, 4, 3, 3));
    fth_value bias = parameter(graph, "bias", FTH_SHAPE(7));

    assert_int_equal(fth_op_add_convolution(graph, attributes, x, large, FTH_NO_VALUE, &y), FTH_INVALID);
    assert_message_has("convolution: a 5×5 kernel");
    assert_message_has("does not fit a 3×3 input");
    assert_int_equal(fth_op_add_convolution(graph, attributes, x, other, FTH_NO_VALUE, &y), FTH_INVALID);
    assert_message_has("3 channels");
    assert_int_equal(fth_op_add_convolution(graph, attributes, flat, fits, FTH_NO_VALUE, &y), FTH_INVALID);
    assert_message_has("(N, C, H, W)");
    assert_int_equal(fth_op_add_convolution(graph, attributes, x, fits, bias, &y), FTH_INVALID);
    assert_message_has("bias");
    attributes.groups = 3;
    assert_int_equal(fth_op_add_convolution(graph, attributes, x, fits, FTH_NO_VALUE, &y), FTH_INVALID);
    assert_message_has("3 groups");
    attributes.groups = 1;
    attributes.stride[1] = 0;
    assert_int_equal(fth_op_add_convolution(graph, attributes, x, fits, FTH_NO_VALUE, &y), FTH_INVALID);
    assert_message_has("stride 0");
    attributes = plain_convolution();
    assert_int_equal(fth_op_add_convolution(graph, attributes, 1234, fits, FTH_NO_VALUE, &y), FTH_INVALID);
    assert_int_equal(fth_graph_node_count(graph), 0);
    fth_graph_free(graph);
}

static void test_other_shapes_and_errors(void **state)
{
    (void)state;
    fth_graph *graph = create();
    fth_value x = input(graph, "x", FTH_SHAPE(FTH_BATCH, 3, 7, 9)),
              narrow = input(graph, "n", FTH_SHAPE(FTH_BATCH, 3, 7, 8));
    fth_value wide = input(graph, "w", FTH_SHAPE(FTH_BATCH, 5, 7, 9)), y, labels;
    fth_pool_attributes pool = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};

    assert_int_equal(fth_op_add_max_pool(graph, pool, x, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 3, 4, 5));
    pool.padding[0] = 2;
    assert_int_equal(fth_op_add_average_pool(graph, pool, x, &y), FTH_INVALID);
    assert_message_has("half the kernel");
    pool = (fth_pool_attributes){.kernel = {8, 2}, .stride = {1, 1}};
    assert_int_equal(fth_op_add_average_pool(graph, pool, x, &y), FTH_INVALID);
    assert_message_has("8×2 window");
    assert_int_equal(fth_op_add_adaptive_average_pool(graph, 0, 1, x, &y), FTH_INVALID);
    assert_int_equal(fth_op_add_global_average_pool(graph, x, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 3, 1, 1));
    assert_int_equal(fth_op_add_flatten(graph, x, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 189));
    assert_int_equal(fth_op_add_concat(graph, 1, (fth_value[]){x, wide, x}, 3, &y), FTH_OK);
    assert_shape(graph, y, FTH_SHAPE(FTH_BATCH, 11, 7, 9));
    assert_int_equal(fth_op_add_concat(graph, 1, (fth_value[]){x, narrow}, 2, &y), FTH_INVALID);
    assert_message_has("only in axis 1");
    assert_int_equal(fth_op_add_concat(graph, 1, NULL, 0, &y), FTH_INVALID);
    assert_int_equal(fth_op_add_add(graph, false, x, wide, &y), FTH_INVALID);
    assert_message_has("(N, 3, 7, 9)");
    assert_int_equal(fth_op_add_dropout(graph, 1.0F, x, &y), FTH_INVALID);
    assert_int_equal(fth_op_add_dropout(graph, NAN, x, &y), FTH_INVALID);
    fth_value bad_weight = parameter(graph, "weight", FTH_SHAPE(10, 188));
    assert_int_equal(fth_op_add_flatten(graph, x, &y), FTH_OK);
    assert_int_equal(fth_op_add_linear(graph, false, y, bad_weight, FTH_NO_VALUE, &y), FTH_INVALID);
    assert_message_has("188 features");
    assert_int_equal(fth_graph_add_input(graph, "labels", FTH_F32, FTH_SHAPE(FTH_BATCH), &labels), FTH_OK);
    assert_int_equal(fth_op_add_softmax_cross_entropy(graph, 0, y, labels, &y), FTH_INVALID);
    assert_message_has("I32");
    fth_graph_free(graph);
}

static void test_dropouts_are_told_apart(void **state)
{
    (void)state;
    fth_graph *graph = create();
    fth_value x = input(graph, "x", FTH_SHAPE(FTH_BATCH, 5));
    for (int i = 0; i < 3; i++)
        assert_int_equal(fth_op_add_dropout(graph, 0.5F, x, &x), FTH_OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(((const fth_dropout_attributes *)fth_graph_node(graph, (int)i)->attributes)->id, i);
    fth_graph_free(graph);
}

static void test_every_op_is_listed_once(void **state)
{
    (void)state;
    for (int i = 0; fth_op_list[i]; i++) {
        assert_non_null(fth_op_list[i]->infer);
        assert_true(fth_op_list[i]->output_count > 0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(fth_op_list[i]->name, fth_op_list[j]->name);
    }
}

static void test_initial_values(void **state)
{
    (void)state;
    enum { COUNT = 10001 };
    fth_graph *graph = create();
    fth_value x, labels, weight, bias, logits, loss, buffer;
    assert_int_equal(fth_graph_add_input(graph, "x", FTH_F32, FTH_SHAPE(FTH_BATCH, COUNT), &x), FTH_OK);
    assert_int_equal(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels), FTH_OK);
    assert_int_equal(
        fth_graph_add_parameter(graph, "w", FTH_SHAPE(3, COUNT), (fth_initializer){FTH_INIT_UNIFORM, 0.25}, &weight),
        FTH_OK);
    assert_int_equal(fth_graph_add_parameter(graph, "b", FTH_SHAPE(3), (fth_initializer){FTH_INIT_CONSTANT, 2}, &bias),
                     FTH_OK);
    assert_int_equal(fth_graph_add_buffer(graph, "n", FTH_SHAPE(COUNT), (fth_initializer){FTH_INIT_NORMAL, 3}, &buffer),
                     FTH_OK);
    assert_int_equal(fth_op_add_linear(graph, false, x, weight, bias, &logits), FTH_OK);
    assert_int_equal(fth_op_add_softmax_cross_entropy(graph, 0, logits, labels, &loss), FTH_OK);
    fth_graph_set_outputs(graph, logits, loss);
    assert_int_equal(fth_graph_differentiate(graph), FTH_OK);
    assert_int_equal(fth_graph_trainable_count(graph), 3 * COUNT + 3);

    size_t floats = fth_graph_parameter_floats(graph);
    float *parameters = malloc(floats * sizeof *parameters), *again = malloc(floats * sizeof *again);
    float *buffers = malloc(fth_graph_buffer_floats(graph) * sizeof *buffers);
    assert_true(parameters && again && buffers);
    memset(parameters, 0xff, floats * sizeof *parameters);
    fth_graph_initialize(graph, 7, parameters, buffers);
    fth_graph_initialize(graph, 7, again, buffers);
    assert_memory_equal(parameters, again, floats * sizeof *parameters);

    const float *w = parameters + fth_graph_value(graph, weight)->offset;
    double sum = 0, squares = 0, largest = 0;
    for (int i = 0; i < 3 * COUNT; i++) {
        sum += w[i];
        squares += (double)w[i] * w[i];
        largest = fmax(largest, fabs((double)w[i]));
    }
    assert_true(largest <= 0.25 && largest > 0.249);
    assert_true(fabs(sum / (3 * COUNT)) < 0.005); /* six standard errors */
    assert_true(fabs(squares / (3 * COUNT) - 0.0625 / 3) < 0.0007);
    for (size_t i = 3 * COUNT; i < fth_align_up(3 * COUNT, 16); i++)
        assert_true(w[i] == 0); /* padding */
    assert_true(parameters[fth_graph_value(graph, bias)->offset + 2] == 2);
    assert_true(parameters[fth_graph_value(graph, bias)->offset + 3] == 0);
    squares = 0;
    for (int i = 0; i < COUNT; i++)
        squares += (double)buffers[i] * buffers[i];
    assert_true(fabs(squares / COUNT - 9) < 0.8);

    fth_graph_initialize(graph, 8, again, buffers);
    assert_true(memcmp(parameters, again, 64) != 0);
    free(parameters);
    free(again);
    free(buffers);
    fth_graph_free(graph);
}

/* Enough elements for several threads: each must still be what (seed, name, index) says. */
static void test_large_initial_values(void **state)
{
    (void)state;
    const uint64_t count = (UINT64_C(1) << 23) + 7;
    fth_graph *graph = create();
    fth_value x, labels, weight, large, logits, loss;
    assert_int_equal(fth_graph_add_input(graph, "x", FTH_F32, FTH_SHAPE(FTH_BATCH, 3), &x), FTH_OK);
    assert_int_equal(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels), FTH_OK);
    weight = parameter(graph, "weight", FTH_SHAPE(2, 3));
    assert_int_equal(fth_graph_add_parameter(graph, "w", FTH_SHAPE((int64_t)count),
                                             (fth_initializer){FTH_INIT_UNIFORM, 0.5}, &large),
                     FTH_OK);
    assert_int_equal(fth_op_add_linear(graph, false, x, weight, FTH_NO_VALUE, &logits), FTH_OK);
    assert_int_equal(fth_op_add_softmax_cross_entropy(graph, 0, logits, labels, &loss), FTH_OK);
    fth_graph_set_outputs(graph, logits, loss);
    assert_int_equal(fth_graph_differentiate(graph), FTH_OK);
    float *parameters = malloc(fth_graph_parameter_floats(graph) * sizeof *parameters);
    assert_non_null(parameters);
    fth_graph_initialize(graph, 7, parameters, NULL);

    uint64_t hash = (0xcbf29ce484222325u ^ 'w') * 0x100000001b3u;
    fth_random_key key = fth_random_fork(fth_random_key_for(7, FTH_RANDOM_INITIALIZE), hash);
    const float *values = parameters + fth_graph_value(graph, large)->offset;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; i++)
        wrong += values[i] != (float)(0.5 * (2 * fth_random_uniform(key, i) - 1));
    assert_int_equal(wrong, 0);
    free(parameters);
    fth_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_unique),        cmocka_unit_test(test_tensors_that_only_files_have),
        cmocka_unit_test(test_bad_shapes_are_refused),  cmocka_unit_test(test_convolution_shapes),
        cmocka_unit_test(test_convolution_errors),      cmocka_unit_test(test_other_shapes_and_errors),
        cmocka_unit_test(test_dropouts_are_told_apart), cmocka_unit_test(test_every_op_is_listed_once),
        cmocka_unit_test(test_initial_values),          cmocka_unit_test(test_large_initial_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
