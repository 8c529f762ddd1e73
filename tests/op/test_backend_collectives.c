/* Collectives on device memory, with a group of one: what a machine with one GPU can show. Every
 * call leaves the numbers as they are, runs with a group give the bits of runs without, recorded or
 * not, and an aborted group fails as it should. Skipped aloud where no back end has them.
 *
 *     test_backend_collectives cost MODEL BATCH SIDE [STEPS]
 *
 * measures what a group of one costs a training step in bf16: the update as a part of the recorded
 * run, against sums in the run, a wait for them and an update behind it, which is what a
 * data-parallel worker does. */
#include <math.h>

#include "model/layers.h"
#include "op_harness.h"

enum { BATCH = 8, CHANNELS = 3, SIDE = 8, CLASSES = 5, COUNT = 10000 };

/* ---- a group of one ---- */

/* The device and its group; skips where there can be none. */
static fth_device *open_group(fth_device_group **group)
{
    unsigned char id[FTH_DEVICE_GROUP_ID_BYTES];
    char identity[FTH_DEVICE_IDENTITY_BYTES] = "";
    fth_device *device = op_device("cuda");
    if (device == NULL)
        skip();
    const fth_backend_collectives *collectives = device->backend->collectives;
    if (collectives == NULL || collectives->identify(device, identity) != FTH_OK) {
        print_message("SKIP cuda: %s\n", collectives ? fth_error_message() : "built without NCCL");
        skip();
    }
    assert_int_equal(strlen(identity), 32);
    op_check(collectives->make_id(device, id));
    op_check(collectives->open(device, id, 0, 1, fth_deadline_in(60), group));
    return device;
}

static void test_calls_leave_the_numbers_of_one(void **state)
{
    (void)state;
    fth_device_group *group = NULL;
    fth_device *device = open_group(&group);
    const fth_backend_collectives *collectives = device->backend->collectives;
    const size_t begins[] = {0, COUNT};
    float values[COUNT], found[COUNT];
    double doubles[] = {1.0 / 3, 2, 1e300}, found_doubles[3];
    void *memory = NULL, *others = NULL;

    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i / 7;
    op_check(device->backend->allocate(device, sizeof values, &memory));
    op_check(device->backend->allocate(device, sizeof doubles, &others));
    op_check(device->backend->copy_in(device, memory, values, sizeof values));
    op_check(device->backend->copy_in(device, others, doubles, sizeof doubles));
    op_check(collectives->all_reduce(group, memory, COUNT));
    op_check(collectives->reduce_scatter(group, memory, begins));
    op_check(collectives->all_gather(group, memory, begins));
    op_check(collectives->broadcast(group, memory, sizeof values, 0));
    op_check(collectives->sum(group, others, 3));
    op_check(collectives->join(group, NULL));
    op_check(collectives->wait(group, fth_deadline_in(60)));
    op_check(device->backend->copy_out(device, found, memory, sizeof found));
    op_check(device->backend->copy_out(device, found_doubles, others, sizeof found_doubles));
    assert_memory_equal(found, values, sizeof values);
    assert_memory_equal(found_doubles, doubles, sizeof doubles);
    collectives->close(group);
    device->backend->release(device, memory);
    device->backend->release(device, others);
}

static void test_aborted_group(void **state)
{
    (void)state;
    fth_device_group *group = NULL;
    fth_device *device = open_group(&group);
    const fth_backend_collectives *collectives = device->backend->collectives;
    void *memory = NULL;
    float loss = 1;

    op_check(device->backend->allocate(device, sizeof loss, &memory));
    op_check(device->backend->copy_in(device, memory, &loss, sizeof loss));
    op_check(collectives->join(group, memory));
    op_check(device->backend->copy_out(device, &loss, memory, sizeof loss));
    assert_true(loss == 1);
    collectives->abort(group, "rank 3 on b.example was lost");
    assert_int_equal(collectives->all_reduce(group, memory, 1), FTH_PEER_LOST);
    assert_non_null(strstr(fth_error_message(), "rank 3 on b.example was lost"));
    assert_int_equal(collectives->wait(group, fth_deadline_in(60)), FTH_PEER_LOST);
    op_check(collectives->join(group, memory)); /* as it stands in a recording */
    op_check(device->backend->copy_out(device, &loss, memory, sizeof loss));
    assert_true(isnan(loss));
    collectives->close(group);
    device->backend->release(device, memory);
}

/* ---- in runs ---- */

static fth_graph *build_graph(void)
{
    fth_graph *graph = NULL;
    fth_value images, labels, x, loss;
    const fth_layer_convolution_options wide = {.filters = 16, .kernel = 3, .stride = 1, .padding = 1};

    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, CHANNELS, SIDE, SIDE), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(fth_layer_convolution(graph, "conv1", wide, images, &x));
    op_check(fth_layer_batch_norm(graph, "bn1", true, FTH_NO_VALUE, x, &x));
    op_check(fth_layer_convolution(graph, "conv2", wide, x, &x));
    op_check(fth_layer_batch_norm(graph, "bn2", true, FTH_NO_VALUE, x, &x));
    op_check(fth_op_add_flatten(graph, x, &x));
    op_check(fth_layer_linear(graph, "fc", CLASSES, false, FTH_LAYER_DEFAULT, x, &x));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, x, labels, &loss));
    fth_graph_set_outputs(graph, x, loss);
    op_check(fth_graph_differentiate(graph));
    return graph;
}

typedef struct run_case {
    const char *name;
    bool synchronized;
    size_t bucket_floats;
} run_case;

static const run_case run_cases[] = {
    {"gradients in one piece", false, 0},
    {"gradients in buckets", false, 100},
    {"gradients in buckets larger than all", false, 1 << 24},
    {"synchronized batch norms", true, 0},
};

/* Three times: recorded, replayed, and replayed after the group was set again. */
static void test_runs(void **state)
{
    const run_case *with = *state;
    fth_device_group *group = NULL;
    fth_device *device = open_group(&group);
    op_network network;
    op_session alone, grouped;
    op_result wanted, found;
    const fth_plan_options options = {.mode = FTH_PLAN_TRAIN, .synchronized = with->synchronized};
    const fth_peers peers = {.group = group, .bucket_floats = with->bucket_floats};
    const fth_run plain = {.seed = 3, .step = 7, .gradient_scale = 1};
    fth_run with_group = plain;
    with_group.peers = &peers;
    with_group.sum_gradients = true;

    op_network_create(&network, build_graph(), BATCH, 5);
    op_network_randomize(&network, 5);
    op_session_open_plan(&alone, &network, device, options);
    op_session_open_plan(&grouped, &network, device, options);
    op_session_run(&alone, &plain);
    op_session_read(&alone, &wanted);
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            op_check(fth_plan_bind(grouped.plan, grouped.arena, grouped.vectors));
        op_session_run(&grouped, &with_group);
        op_check(device->backend->collectives->wait(group, fth_deadline_in(60)));
        op_session_read(&grouped, &found);
        assert_memory_equal(found.logits, wanted.logits, wanted.logit_count * sizeof(float));
        assert_memory_equal(found.gradients, wanted.gradients,
                            fth_graph_parameter_floats(network.graph) * sizeof(float));
        assert_memory_equal(found.buffers, wanted.buffers, fth_graph_buffer_floats(network.graph) * sizeof(float));
        op_result_free(&found);
    }
    op_result_free(&wanted);
    op_session_close(&alone);
    op_session_close(&grouped); /* before the group: a recording holds it */
    device->backend->collectives->close(group);
    op_network_free(&network);
}

/* ---- what it costs ---- */

typedef struct cost_run {
    op_session session;
    fth_updater_options options;
    fth_updater *updater;    /* as a part of the run; or NULL: */
    fth_device_group *group; /* sums in the run, a wait, and the update */
    fth_peers peers;
} cost_run;

static void cost_open(cost_run *r, const op_network *network, fth_device *device, fth_device_group *group)
{
    const fth_update_arguments arguments = {.momentum = 0.9f, .learning_rate = 1e-4f, .gradient_scale = 1};
    void *memory = NULL;
    *r = (cost_run){.group = group, .peers = {.group = group, .bucket_floats = (25 << 20) / sizeof(float)}};
    op_session_open(&r->session, network, device, FTH_PLAN_TRAIN, FTH_PRECISION_BF16);
    op_session_set(&r->session);
    r->options = (fth_updater_options){.kernel = op_find_update(device, "sgd", &arguments),
                                       .arguments = arguments,
                                       .parameters = r->session.vectors.parameters,
                                       .gradients = r->session.vectors.gradients,
                                       .count = fth_graph_trained_floats(network->graph)};
    op_check(device->backend->allocate(device, r->options.count * sizeof(float), &memory));
    r->options.state[0] = memory;
    if (!group)
        op_check(device->backend->capture->updater->open(device, &r->options, &r->updater));
}

static void cost_step(cost_run *r, int64_t number)
{
    fth_device *device = r->session.device;
    float loss[2];
    fth_run run = {.seed = 1, .step = (uint64_t)number, .gradient_scale = 1};
    fth_update_arguments arguments = r->options.arguments;
    if (r->group) {
        run.peers = &r->peers;
        run.sum_gradients = true;
    } else {
        run.updater = r->updater;
        run.learning_rate = arguments.learning_rate;
        run.update = number;
    }
    op_check(fth_plan_run(r->session.plan, &run));
    op_check(fth_plan_read_loss(r->session.plan, loss));
    if (!r->group)
        return;
    op_check(device->backend->collectives->wait(r->group, fth_deadline_in(60)));
    arguments.step = number;
    op_check(r->options.kernel->run(device, &arguments, r->options.parameters, r->options.gradients, r->options.state,
                                    r->options.count));
}

static double cost_measure(cost_run *r, int steps, int64_t *number)
{
    fth_device *device = r->session.device;
    op_check(device->backend->synchronize(device, fth_deadline_in(60)));
    double began = fth_clock_seconds();
    for (int i = 0; i < steps; i++)
        cost_step(r, ++*number);
    op_check(device->backend->synchronize(device, fth_deadline_in(60)));
    return (fth_clock_seconds() - began) / steps;
}

static struct {
    const char *model;
    int batch, side, steps;
} cost_of;

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void measure_cost(void **state)
{
    (void)state;
    enum { ROUNDS = 9 };
    fth_device_group *group = NULL;
    fth_device *device = open_group(&group);
    const fth_model *model = NULL;
    fth_graph *graph = NULL;
    op_network network;
    cost_run runs[2];
    double seconds[2][ROUNDS];
    int64_t numbers[2] = {0};

    op_check(fth_model_find(cost_of.model, &model));
    op_check(fth_model_create_graph(
        model, &(fth_model_options){.channels = 3, .height = cost_of.side, .width = cost_of.side, .classes = 100},
        &graph));
    op_network_create(&network, graph, cost_of.batch, 5);
    op_network_randomize(&network, 5);
    cost_open(&runs[0], &network, device, NULL);
    cost_open(&runs[1], &network, device, group);
    for (int i = 0; i < 2; i++)
        cost_measure(&runs[i], 10, &numbers[i]);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++)
            seconds[i][round] = cost_measure(&runs[i], cost_of.steps, &numbers[i]);
    for (int i = 0; i < 2; i++)
        qsort(seconds[i], ROUNDS, sizeof(double), compare_doubles);
    const double alone = seconds[0][ROUNDS / 2], grouped = seconds[1][ROUNDS / 2];
    print_message("%s, batch %d, %dx%d, bf16: %.1f us a step; with a group of one %.1f us: %+.2f %%\n", cost_of.model,
                  cost_of.batch, cost_of.side, cost_of.side, 1e6 * alone, 1e6 * grouped, 100 * (grouped / alone - 1));
    for (int i = 0; i < 2; i++) {
        if (runs[i].updater)
            device->backend->capture->updater->close(runs[i].updater);
        device->backend->release(device, runs[i].options.state[0]);
        op_session_close(&runs[i].session);
    }
    device->backend->collectives->close(group);
    op_network_free(&network);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest cost[] = {cmocka_unit_test(measure_cost)};
    struct CMUnitTest tests[FTH_COUNT_OF(run_cases) + 2] = {
        cmocka_unit_test(test_calls_leave_the_numbers_of_one),
        cmocka_unit_test(test_aborted_group),
    };
    if (argc >= 5 && strcmp(argv[1], "cost") == 0) {
        cost_of.model = argv[2];
        cost_of.batch = atoi(argv[3]);
        cost_of.side = atoi(argv[4]);
        cost_of.steps = argc > 5 ? atoi(argv[5]) : 50;
        return cmocka_run_group_tests(cost, NULL, op_close_devices);
    }
    for (size_t i = 0; i < FTH_COUNT_OF(run_cases); i++)
        tests[2 + i] = (struct CMUnitTest){
            .name = run_cases[i].name, .test_func = test_runs, .initial_state = (void *)&run_cases[i]};
    return cmocka_run_group_tests(tests, NULL, op_close_devices);
}
