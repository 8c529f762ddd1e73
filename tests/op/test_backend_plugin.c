/* Back ends loaded at run time: found by name, refused when they do not fit, and errors that say
 * what to do. */
#include <unistd.h>

#include "op_harness.h"

static const fth_device_options options = {.threads = 1};

static void test_reference_is_loaded_by_name(void **state)
{
    (void)state;
    fth_device *device = NULL, *again = NULL;
    op_check(fth_device_open("reference", &options, &device));
    assert_string_equal(device->backend->name, "reference");
    assert_int_equal(device->backend->abi, FTH_BACKEND_ABI);
    assert_string_not_equal(device->description, "");
    op_check(fth_device_open("reference", &options, &again)); /* a second device is a device of its own */
    assert_ptr_not_equal(device, again);
    fth_device_close(device);
    fth_device_close(again);
}

static void test_cpu_is_built_in(void **state)
{
    (void)state;
    fth_device *device = NULL;
    op_check(fth_device_open("cpu", &options, &device));
    assert_string_equal(device->backend->name, "cpu");
    assert_int_equal(device->threads, 1);
    fth_device_close(device);
}

static void test_cpu_names_instructions_of_this_machine(void **state)
{
    (void)state;
    fth_device *device = NULL;
    op_check(fth_device_open("cpu", &options, &device));
    const bool of_x86 = strstr(device->description, "sse") || strstr(device->description, "avx");
    const bool of_arm64 = strstr(device->description, "asimd") || strstr(device->description, "sve");
#if defined(__aarch64__)
    assert_true(of_arm64 && !of_x86);
#else
    assert_true(of_x86 && !of_arm64);
#endif
    fth_device_close(device);
}

static void test_auto_opens_something(void **state)
{
    (void)state;
    fth_device *device = NULL;
    op_check(fth_device_open("auto", &options, &device));
    fth_device_close(device);
}

static void test_unknown_name_says_what_there_is(void **state)
{
    (void)state;
    fth_device *device = NULL;
    assert_int_equal(fth_device_open("abacus", &options, &device), FTH_INVALID);
    assert_null(device);
    assert_message_has("abacus");
    assert_message_has("cpu");
    assert_message_has("farthing_abacus.so");
}

static void test_a_path_is_not_a_name(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "../reference", "a b", "/lib/x", "Reference"};
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        fth_device *device = NULL;
        assert_int_equal(fth_device_open(bad[i], &options, &device), FTH_INVALID);
        assert_null(device);
    }
}

static void test_closing_nothing(void **state)
{
    (void)state;
    fth_device_close(NULL);
}

/* $TEST_PLUGINS has farthing_old.so, made for another interface, and farthing_empty.so, no back end
 * at all. */
static int use_bad_plugins(void **state)
{
    *state = strdup(getenv("FARTHING_PLUGINS"));
    return setenv("FARTHING_PLUGINS", getenv("TEST_PLUGINS"), 1);
}

static int use_good_plugins(void **state)
{
    setenv("FARTHING_PLUGINS", *state, 1);
    free(*state);
    return 0;
}

static void test_other_interface_is_refused(void **state)
{
    (void)state;
    fth_device *device = NULL;
    assert_int_equal(fth_device_open("old", &options, &device), FTH_UNSUPPORTED);
    assert_null(device);
    assert_message_has("farthing_old.so");
    assert_message_has("interface");
}

static void test_library_that_is_no_back_end_is_refused(void **state)
{
    (void)state;
    fth_device *device = NULL;
    assert_int_equal(fth_device_open("empty", &options, &device), FTH_UNSUPPORTED);
    assert_null(device);
    assert_message_has("fth_backend_plugin");
}

static void test_file_that_is_no_library_is_refused(void **state)
{
    char *kept = strdup(getenv("FARTHING_PLUGINS"));
    fth_device *device = NULL;
    assert_int_equal(test_make_folder(state), 0);
    test_write_text("farthing_text.so", "this is not a shared object\n");
    setenv("FARTHING_PLUGINS", test_folder, 1);
    assert_int_equal(fth_device_open("text", &options, &device), FTH_UNSUPPORTED);
    assert_null(device);
    assert_message_has("text");
    setenv("FARTHING_PLUGINS", kept, 1);
    assert_int_equal(test_remove_folder(state), 0);
    free(kept);
}

/* ---- faults ---- */

/* images -> global pool -> flatten -> linear -> loss, at a size of which a large batch fits in no
 * machine. */
static fth_graph *build_small_graph(int64_t channels, int64_t size)
{
    fth_graph *graph = NULL;
    fth_value images, labels, x, weight, loss;
    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, channels, size, size), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(fth_op_add_global_average_pool(graph, images, &x));
    op_check(fth_op_add_flatten(graph, x, &x));
    op_check(fth_graph_add_parameter(graph, "weight", FTH_SHAPE(2, channels), (fth_initializer){FTH_INIT_CONSTANT, 1},
                                     &weight));
    op_check(fth_op_add_linear(graph, false, x, weight, FTH_NO_VALUE, &x));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, x, labels, &loss));
    fth_graph_set_outputs(graph, x, loss);
    op_check(fth_graph_differentiate(graph));
    return graph;
}

static void test_arena_that_fits_nowhere_is_a_status(void **state)
{
    (void)state;
    fth_graph *graph = build_small_graph(64, 1024);
    fth_device *device = op_device("reference");
    fth_plan *plan = NULL;
    void *arena = NULL;
    op_check(fth_plan_create(graph, device, (fth_plan_options){.batch = INT32_MAX}, &plan));
    assert_true(fth_plan_arena_bytes(plan) >= (size_t)1 << 58);
    assert_int_equal(device->backend->allocate(device, fth_plan_arena_bytes(plan), &arena), FTH_NO_MEMORY);
    assert_null(arena);
    fth_plan_free(plan);
    fth_graph_free(graph);
    op_close_devices(NULL);
}

static void test_impossible_batches_are_refused(void **state)
{
    (void)state;
    fth_graph *graph = build_small_graph(3, 8);
    static const int64_t batches[] = {0, -1, (int64_t)1 << 40};
    for (size_t i = 0; i < FTH_COUNT_OF(batches); i++) {
        fth_plan *plan = NULL;
        assert_int_equal(fth_plan_create(graph, op_device("reference"), (fth_plan_options){.batch = batches[i]}, &plan),
                         FTH_INVALID);
        assert_null(plan);
    }
    fth_graph_free(graph);
    op_close_devices(NULL);
}

static void test_precision_the_back_end_lacks_is_refused(void **state)
{
    (void)state;
    fth_graph *graph = build_small_graph(3, 8);
    fth_plan *plan = NULL;
    assert_int_equal(fth_plan_create(graph, op_device("reference"),
                                     (fth_plan_options){.batch = 1, .precision = FTH_PRECISION_BF16}, &plan),
                     FTH_UNSUPPORTED);
    assert_null(plan);
    assert_message_has("f32");
    fth_graph_free(graph);
    op_close_devices(NULL);
}

static bool lost;

static bool is_lost(const fth_device *device)
{
    (void)device;
    return lost;
}

/* The last test: what it leaves behind is the process's. */
static void test_a_lost_device_is_known_when_it_is_closed(void **state)
{
    (void)state;
    static const fth_backend_accelerator accelerator = {.is_lost = is_lost};
    for (int i = 0; i < 2; i++) {
        fth_device *device = NULL;
        op_check(fth_device_open("reference", &options, &device));
        fth_backend table = *device->backend;
        table.accelerator = &accelerator;
        device->backend = &table;
        lost = i == 1;
        assert_false(fth_device_was_lost());
        fth_device_close(device);
        assert_int_equal(fth_device_was_lost(), lost);
    }
}

/* The sanitizer's allocator answers with NULL, as the system's does, instead of ending the
 * process. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_is_loaded_by_name),
        cmocka_unit_test(test_cpu_is_built_in),
        cmocka_unit_test(test_cpu_names_instructions_of_this_machine),
        cmocka_unit_test(test_auto_opens_something),
        cmocka_unit_test(test_unknown_name_says_what_there_is),
        cmocka_unit_test(test_a_path_is_not_a_name),
        cmocka_unit_test(test_closing_nothing),
        cmocka_unit_test_setup_teardown(test_other_interface_is_refused, use_bad_plugins, use_good_plugins),
        cmocka_unit_test_setup_teardown(test_library_that_is_no_back_end_is_refused, use_bad_plugins, use_good_plugins),
        cmocka_unit_test(test_file_that_is_no_library_is_refused),
        cmocka_unit_test(test_arena_that_fits_nowhere_is_a_status),
        cmocka_unit_test(test_impossible_batches_are_refused),
        cmocka_unit_test(test_precision_the_back_end_lacks_is_refused),
        cmocka_unit_test(test_a_lost_device_is_known_when_it_is_closed),
    };
    return cmocka_run_group_tests_name("back-end plugins", tests, NULL, NULL);
}
