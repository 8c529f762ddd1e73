/* How a plan is made: what a back end hears of its begin and its end, and what kernels note in
 * between. The back end is the reference with a table of its own. */
#include "backend/kernel.h"
#include "op_harness.h"

/* What happened, in order: 'b' a plan was begun, 'n' a node prepared, 'e' ended, 'f' ended after a
 * failure. */
static char log_text[256];
static const fth_backend *reference; /* the table that is wrapped */
static fth_plan *begun;
static int fail_at_node; /* counted from 1; 0: none fails */

typedef struct notes {
    int nodes;
} notes;

static void add_to_log(char what)
{
    size_t length = strlen(log_text);
    assert_true(length + 1 < sizeof log_text);
    log_text[length] = what;
    log_text[length + 1] = '\0';
}

static fth_status begin_plan(fth_plan *plan, void **result)
{
    add_to_log('b');
    begun = plan;
    return fth_allocate(1, sizeof(notes), result);
}

static fth_status do_nothing(void *state, const fth_run *run)
{
    (void)state;
    (void)run;
    return FTH_OK;
}

/* A step may still be added, since where values lie is not settled before. */
static fth_status end_plan(fth_plan *plan, void *memory, bool failed)
{
    const notes *found = memory;
    char name[32];
    snprintf(name, sizeof name, "after %d nodes", found->nodes);
    assert_ptr_equal(plan, begun);
    assert_ptr_equal(memory, fth_plan_notes(plan));
    add_to_log(failed ? 'f' : 'e');
    free(memory);
    if (failed)
        return FTH_OK;
    fth_step step = {.run = do_nothing};
    snprintf(step.name, sizeof step.name, "%s", name);
    return fth_plan_add_step(plan, &step);
}

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    notes *noted = fth_plan_notes(plan);
    assert_non_null(noted);
    add_to_log('n');
    if (++noted->nodes == fail_at_node)
        return fth_fail(FTH_UNSUPPORTED, "node %d was to fail", fail_at_node);
    for (const fth_kernel *const *kernel = reference->kernels; *kernel; kernel++)
        if ((*kernel)->op == node->op)
            return (*kernel)->prepare(plan, node);
    return fth_fail(FTH_UNSUPPORTED, "no kernel for %s", node->op->name);
}

enum { MAX_KERNELS = 64 };
static fth_kernel kernels[MAX_KERNELS];
static const fth_kernel *kernel_list[MAX_KERNELS + 1];
static const fth_backend_planning planning = {begin_plan, end_plan};
static fth_backend wrapped;

/* The reference's device with the table above. */
static fth_device open_wrapped(void)
{
    fth_device device = *op_device("reference");
    reference = device.backend;
    wrapped = *reference;
    for (int i = 0; reference->kernels[i]; i++) {
        assert_true(i < MAX_KERNELS);
        kernels[i] = (fth_kernel){reference->kernels[i]->op, prepare};
        kernel_list[i] = &kernels[i];
        kernel_list[i + 1] = NULL;
    }
    wrapped.kernels = kernel_list;
    wrapped.planning = &planning;
    device.backend = &wrapped;
    log_text[0] = '\0';
    fail_at_node = 0;
    return device;
}

/* flatten, linear, loss, and their gradients: 3 nodes forward. */
static fth_graph *build_graph(void)
{
    fth_graph *graph = NULL;
    fth_value images, labels, x, weight, loss;
    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, 3, 2, 2), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(fth_op_add_flatten(graph, images, &x));
    op_check(
        fth_graph_add_parameter(graph, "weight", FTH_SHAPE(2, 12), (fth_initializer){FTH_INIT_CONSTANT, 1}, &weight));
    op_check(fth_op_add_linear(graph, false, x, weight, FTH_NO_VALUE, &x));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, x, labels, &loss));
    fth_graph_set_outputs(graph, x, loss);
    op_check(fth_graph_differentiate(graph));
    return graph;
}

static void test_each_plan_is_begun_and_ended_once(void **state)
{
    (void)state;
    fth_device device = open_wrapped();
    fth_graph *graph = build_graph();
    fth_plan *first = NULL, *second = NULL;
    op_check(fth_plan_create(graph, &device, (fth_plan_options){.batch = 2, .mode = FTH_PLAN_EVALUATE}, &first));
    assert_string_equal(log_text, "bnnne");
    op_check(fth_plan_create(graph, &device, (fth_plan_options){.batch = 3, .mode = FTH_PLAN_EVALUATE}, &second));
    assert_string_equal(log_text, "bnnnebnnne");
    /* What the end added is a part of the plan, and each plan counted its own nodes. */
    assert_string_equal(fth_plan_step_name(first, fth_plan_step_count(first) - 1), "after 3 nodes");
    assert_string_equal(fth_plan_step_name(second, fth_plan_step_count(second) - 1), "after 3 nodes");
    assert_null(fth_plan_notes(first)); /* they are gone when it is made */
    fth_plan_free(first);
    fth_plan_free(second);
    assert_string_equal(log_text, "bnnnebnnne");
    fth_graph_free(graph);
}

static void test_a_failed_plan_is_ended_too(void **state)
{
    (void)state;
    fth_device device = open_wrapped();
    fth_graph *graph = build_graph();
    fth_plan *plan = NULL;
    fail_at_node = 2;
    assert_int_equal(fth_plan_create(graph, &device, (fth_plan_options){.batch = 2}, &plan), FTH_UNSUPPORTED);
    assert_null(plan);
    assert_message_has("node 2 was to fail");
    assert_string_equal(log_text, "bnnf");
    fail_at_node = 0;
    op_check(fth_plan_create(graph, &device, (fth_plan_options){.batch = 2, .mode = FTH_PLAN_EVALUATE}, &plan));
    assert_string_equal(log_text, "bnnfbnnne"); /* nothing of it is left for the next */
    fth_plan_free(plan);
    fth_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_plan_is_begun_and_ended_once),
        cmocka_unit_test(test_a_failed_plan_is_ended_too),
    };
    return cmocka_run_group_tests_name("making plans", tests, NULL, op_close_devices);
}
