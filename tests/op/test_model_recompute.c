/* Layers that are computed again for their gradients: the same numbers, bit for bit, in less
 * memory. */
#include "model/model.h"
#include "op_harness.h"

enum { SEQUENCES = 6, LONGEST = 48 };
static const int lengths[SEQUENCES] = {48, 1, 33, 17, 40, 5};

static void create(op_network *network, bool recompute)
{
    const fth_model *model = NULL;
    fth_graph *graph = NULL;
    const fth_model_options options = {.longest = LONGEST, .classes = 3, .recompute = recompute};
    int64_t tokens = 0;
    for (int i = 0; i < SEQUENCES; i++)
        tokens += lengths[i];
    op_check(fth_model_find("bert(layers=5,hidden=64,heads=4,intermediate=128,vocabulary=50,positions=48)", &model));
    op_check(fth_model_create_graph(model, &options, &graph));
    op_network_create_text(network, graph, SEQUENCES, fth_text_capacity(tokens), 1);
    op_network_randomize(network, 1);
    int32_t *ids = op_network_input(network, "tokens"), *positions = op_network_input(network, "positions");
    int32_t *ends = op_network_input(network, "ends");
    op_network_input(network, "segments");
    const fth_random_key key = fth_random_key_for(3, FTH_RANDOM_GENERATE);
    int32_t at = 0;
    for (int i = 0; i < SEQUENCES; i++) {
        for (int j = 0; j < lengths[i]; j++, at++) {
            ids[at] = (int32_t)fth_random_below(key, (uint64_t)at, 50);
            positions[at] = j;
        }
        ends[i] = at;
    }
}

static size_t run(const op_network *network, fth_device *device, fth_precision precision, op_result *result)
{
    const fth_run how = {.seed = 1, .step = 7, .gradient_scale = 1};
    op_session session;
    op_session_open(&session, network, device, FTH_PLAN_TRAIN, precision);
    size_t bytes = fth_plan_arena_bytes(session.plan);
    op_session_run(&session, &how);
    op_session_read(&session, result);
    op_session_close(&session);
    return bytes;
}

static void compare(fth_device *device, fth_precision precision)
{
    op_network kept, again;
    op_result wanted, found;
    create(&kept, false);
    create(&again, true);
    size_t kept_bytes = run(&kept, device, precision, &wanted), again_bytes = run(&again, device, precision, &found);
    size_t floats = fth_graph_trained_floats(kept.graph);
    assert_int_equal(floats, fth_graph_trained_floats(again.graph));
    assert_memory_equal(found.logits, wanted.logits, wanted.logit_count * sizeof(float));
    assert_memory_equal(found.loss, wanted.loss, sizeof wanted.loss);
    assert_memory_equal(found.gradients, wanted.gradients, floats * sizeof(float));
    if (again_bytes > kept_bytes * 6 / 10)
        fail_msg("%zu bytes instead of %zu", again_bytes, kept_bytes);
    op_result_free(&wanted);
    op_result_free(&found);
    op_network_free(&kept);
    op_network_free(&again);
}

static void test_same_numbers(void **state)
{
    static const char *const names[] = {"reference", OP_DEVICES};
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        if (!device)
            continue;
        compare(device, FTH_PRECISION_F32);
        if (device->backend->check_precision(device, FTH_PRECISION_BF16) == FTH_OK)
            compare(device, FTH_PRECISION_BF16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_numbers)};
    return cmocka_run_group_tests(tests, NULL, op_close_devices);
}
