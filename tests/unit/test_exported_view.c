/* Views of exported programs: what costs nothing, and what does. */
#include "support.h"

#include "exported/view.h"
#include "graph/ops.h"

#define assert_ok(call) assert_int_equal(call, FTH_OK)
#define BATCH           ((fth_exported_dim){.factor = 1, .batch = true})
#define TIMES(k)        ((fth_exported_dim){.factor = (k), .batch = true})
#define SIZE(k)         ((fth_exported_dim){.factor = (k)})

static fth_graph *graph;

/* A view of an input of the graph. */
static fth_view view_of(const char *name, int rank, const fth_exported_dim *dims)
{
    fth_shape shape = {.rank = rank};
    fth_value value;
    fth_view view;
    for (int d = 0; d < rank; d++)
        shape.dims[d] = dims[d].batch ? fth_batch_times(dims[d].factor) : dims[d].factor;
    assert_ok(fth_graph_add_input(graph, name, FTH_F32, shape, &value));
    assert_ok(fth_view_create(value, rank, dims, &view));
    return view;
}

static void assert_dim(const fth_view *view, int dim, int64_t factor, bool batch)
{
    assert_int_equal(fth_view_dim(view, dim).factor, factor);
    assert_int_equal(fth_view_dim(view, dim).batch, batch);
}

static void assert_shape(const fth_view *view, fth_shape shape)
{
    assert_true(fth_shape_equal(&fth_graph_value(graph, view->value)->type.shape, &shape));
}

static void assert_last_op(const fth_op *op)
{
    assert_ptr_equal(fth_graph_node(graph, fth_graph_node_count(graph) - 1)->op, op);
}

static int set_up(void **state)
{
    (void)state;
    assert_ok(fth_graph_create(&graph));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fth_graph_free(graph);
    return 0;
}

/* What nn.MultiheadAttention does to the result of its linear layer: (L, N, 3 H D) to (N, H, L, D). */
static void test_heads_cost_one_slice(void **state)
{
    (void)state;
    fth_view x = view_of("x", 3, (fth_exported_dim[]){BATCH, SIZE(5), SIZE(3 * 2 * 4)});
    fth_view_permute(&x, (int[]){1, 0, 2});
    assert_ok(fth_view_reshape(graph, &x, 4, (fth_exported_dim[]){SIZE(5), BATCH, SIZE(3), SIZE(8)}));
    assert_ok(fth_view_insert(&x, 0));
    fth_view_permute(&x, (int[]){3, 1, 2, 0, 4});
    fth_view_remove(&x, 3);
    assert_int_equal(fth_graph_node_count(graph), 0);
    assert_dim(&x, 0, 3, false);
    assert_dim(&x, 2, 1, true);

    /* select 0 of the first dimension */
    fth_atom_list lists[] = {fth_view_join(&x, 2, 1), x.dims[0], x.dims[3]};
    lists[0].atoms[lists[0].count++] = x.dims[1].atoms[0];
    assert_ok(fth_view_arrange(graph, &x, lists, 3));
    assert_shape(&x, FTH_SHAPE(fth_batch_times(5), 3, 8));
    const int nodes = fth_graph_node_count(graph);
    assert_int_equal(nodes, 1); /* a reshape */
    assert_ok(fth_op_add_slice(graph, 1, 0, 1, 1, x.value, &x.value));
    assert_ok(fth_view_resize(&x, 0, 2, 1));
    fth_view_remove(&x, 0);

    assert_ok(fth_view_reshape(graph, &x, 3, (fth_exported_dim[]){SIZE(5), TIMES(2), SIZE(4)}));
    fth_view_permute(&x, (int[]){1, 0, 2});
    assert_ok(fth_view_reshape(graph, &x, 4, (fth_exported_dim[]){BATCH, SIZE(2), SIZE(5), SIZE(4)}));
    assert_dim(&x, 0, 1, true);
    assert_dim(&x, 1, 2, false);
    assert_dim(&x, 2, 5, false);
    assert_int_equal(fth_graph_node_count(graph), nodes + 1);
    const fth_atom_list rows = fth_view_others(&x, 1u << 1 | 1u << 3);
    const fth_atom_list heads[] = {rows, x.dims[1], x.dims[3]};
    assert_ok(fth_view_arrange(graph, &x, heads, 3));
    assert_shape(&x, FTH_SHAPE(fth_batch_times(5), 2, 4));
    assert_last_op(&fth_op_reshape); /* no permute */
}

static void test_order_of_memory_costs_a_permute(void **state)
{
    (void)state;
    fth_view x = view_of("x", 4, (fth_exported_dim[]){BATCH, SIZE(3), SIZE(4), SIZE(5)});
    fth_view_permute(&x, (int[]){0, 2, 3, 1});
    assert_int_equal(fth_graph_node_count(graph), 0);
    assert_ok(fth_view_arrange_plain(graph, &x));
    assert_shape(&x, FTH_SHAPE(FTH_BATCH, 4, 5, 3));
    assert_dim(&x, 3, 3, false);
    assert_ok(fth_view_reshape(graph, &x, 2, (fth_exported_dim[]){TIMES(20), SIZE(3)}));
    assert_ok(fth_view_arrange_plain(graph, &x));
    assert_shape(&x, FTH_SHAPE(fth_batch_times(20), 3));
}

/* No factor of 6 and 4 makes 8 and 3: the memory has to be in order, and is one atom then. */
static void test_reshape_without_common_factors(void **state)
{
    (void)state;
    fth_view x = view_of("x", 3, (fth_exported_dim[]){BATCH, SIZE(6), SIZE(4)});
    assert_ok(fth_view_reshape(graph, &x, 3, (fth_exported_dim[]){BATCH, SIZE(8), SIZE(3)}));
    assert_dim(&x, 1, 8, false);
    fth_view y = view_of("y", 3, (fth_exported_dim[]){BATCH, SIZE(6), SIZE(4)});
    fth_view_permute(&y, (int[]){0, 2, 1});
    assert_ok(fth_view_reshape(graph, &y, 3, (fth_exported_dim[]){BATCH, SIZE(8), SIZE(3)}));
    assert_dim(&y, 2, 3, false);
    assert_ok(fth_view_arrange_plain(graph, &y));
    assert_shape(&y, FTH_SHAPE(FTH_BATCH, 8, 3));
}

static void test_samples_are_not_taken_apart(void **state)
{
    (void)state;
    fth_view x = view_of("x", 2, (fth_exported_dim[]){BATCH, SIZE(6)});
    assert_int_equal(fth_view_reshape(graph, &x, 2, (fth_exported_dim[]){SIZE(2), TIMES(3)}), FTH_UNSUPPORTED);
    assert_message_has("batch");
}

static void test_expanded_dimensions_are_not_in_memory(void **state)
{
    (void)state;
    fth_view x = view_of("x", 3, (fth_exported_dim[]){SIZE(1), SIZE(1), SIZE(7)});
    assert_ok(fth_view_expand(&x, 3, (fth_exported_dim[]){BATCH, SIZE(4), SIZE(7)}));
    assert_int_equal(fth_graph_node_count(graph), 0);
    assert_dim(&x, 0, 1, true);
    assert_ok(fth_view_arrange_plain(graph, &x));
    assert_shape(&x, FTH_SHAPE(FTH_BATCH, 4, 7));
}

static void test_operands_are_aligned(void **state)
{
    (void)state;
    fth_alignment alignment;
    fth_view image = view_of("image", 4, (fth_exported_dim[]){BATCH, SIZE(6), SIZE(2), SIZE(2)});
    fth_view scale = view_of("scale", 3, (fth_exported_dim[]){SIZE(6), SIZE(1), SIZE(1)});
    assert_ok(fth_view_align(graph, (fth_view *const[]){&image, &scale}, 2, &alignment));
    assert_shape(&image, FTH_SHAPE(FTH_BATCH, 6, 2, 2)); /* images stay images */
    assert_shape(&scale, FTH_SHAPE(1, 6, 1, 1));
    assert_true(fth_shape_equal(&alignment.shape, &FTH_SHAPE(FTH_BATCH, 6, 2, 2)));

    /* The order of memory is that of the larger: (L, N, E) in PyTorch, (N, L, E) in memory. */
    fth_view tokens = view_of("tokens", 3, (fth_exported_dim[]){BATCH, SIZE(5), SIZE(8)});
    fth_view positions = view_of("positions", 3, (fth_exported_dim[]){SIZE(5), SIZE(1), SIZE(8)});
    fth_view_permute(&tokens, (int[]){1, 0, 2});
    const int nodes = fth_graph_node_count(graph);
    assert_ok(fth_view_align(graph, (fth_view *const[]){&positions, &tokens}, 2, &alignment));
    assert_true(fth_shape_equal(&alignment.shape, &FTH_SHAPE(FTH_BATCH, 40)));
    assert_shape(&positions, FTH_SHAPE(1, 40));
    for (int n = nodes; n < fth_graph_node_count(graph); n++)
        assert_ptr_equal(fth_graph_node(graph, n)->op, &fth_op_reshape);
    assert_dim(&alignment.result, 0, 5, false);
    assert_dim(&alignment.result, 1, 1, true);
}

/* One has a dimension in one piece, the other in two. */
static void test_aligned_dimensions_are_refined(void **state)
{
    (void)state;
    fth_alignment alignment;
    fth_view x = view_of("x", 3, (fth_exported_dim[]){BATCH, SIZE(2), SIZE(3)});
    fth_view y = view_of("y", 2, (fth_exported_dim[]){BATCH, SIZE(6)});
    fth_view_permute(&x, (int[]){0, 2, 1});
    assert_ok(fth_view_reshape(graph, &x, 2, (fth_exported_dim[]){BATCH, SIZE(6)}));
    assert_ok(fth_view_align(graph, (fth_view *const[]){&y, &x}, 2, &alignment));
    assert_dim(&alignment.result, 1, 6, false);
    assert_last_op(&fth_op_reshape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_heads_cost_one_slice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_order_of_memory_costs_a_permute, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reshape_without_common_factors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_samples_are_not_taken_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_expanded_dimensions_are_not_in_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_operands_are_aligned, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_aligned_dimensions_are_refined, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
