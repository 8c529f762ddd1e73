/* What back ends may do as one: a run with its update, the loss before the rest of the run, batches
 * made on the device, state copied beside the work. Each against the same in separate pieces, bit
 * for bit. Skipped aloud where no back end has them. */
#include <math.h>
#include <pthread.h>

#include "op_harness.h"

enum { BATCH = 16, CHANNELS = 3, SIDE = 8, CLASSES = 5, STEPS = 16 };

static fth_graph *build_graph(void)
{
    fth_graph *graph = NULL;
    fth_value images, labels, weight, scale, shift, mean, variance, x, loss;
    const fth_initializer small = {FTH_INIT_UNIFORM, 0.2}, zero = {FTH_INIT_CONSTANT, 0}, one = {FTH_INIT_CONSTANT, 1};
    const fth_convolution_attributes same = {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
    const fth_batch_norm_attributes norm = {.epsilon = 1e-5f, .momentum = 0.1f, .relu = true};

    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, CHANNELS, SIDE, SIDE), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(fth_graph_add_parameter(graph, "conv.weight", FTH_SHAPE(16, CHANNELS, 3, 3), small, &weight));
    op_check(fth_op_add_convolution(graph, same, images, weight, FTH_NO_VALUE, &x));
    op_check(fth_graph_add_parameter(graph, "bn.weight", FTH_SHAPE(16), one, &scale));
    op_check(fth_graph_add_parameter(graph, "bn.bias", FTH_SHAPE(16), zero, &shift));
    op_check(fth_graph_add_buffer(graph, "bn.running_mean", FTH_SHAPE(16), zero, &mean));
    op_check(fth_graph_add_buffer(graph, "bn.running_var", FTH_SHAPE(16), one, &variance));
    op_check(fth_op_add_batch_norm(graph, norm, x, scale, shift, mean, variance, FTH_NO_VALUE, &x));
    op_check(fth_op_add_flatten(graph, x, &x));
    op_check(fth_graph_add_parameter(graph, "fc.weight", FTH_SHAPE(CLASSES, 16 * SIDE * SIDE), small, &weight));
    op_check(fth_op_add_linear(graph, false, x, weight, FTH_NO_VALUE, &x));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, x, labels, &loss));
    fth_graph_set_outputs(graph, x, loss);
    op_check(fth_graph_differentiate(graph));
    return graph;
}

/* ---- training by hand: a session, the optimizer's vectors, a loss scale ---- */

typedef struct training {
    op_session session;
    op_network *network;
    fth_updater_options options;
    fth_updater *updater;
    size_t count;
} training;

static void training_open(training *t, op_network *network, fth_device *device, fth_precision precision,
                          const fth_updater_options *options, bool in_one)
{
    const fth_backend *backend = device->backend;
    void *state[2];
    *t = (training){.network = network, .options = *options};
    op_session_open(&t->session, network, device, FTH_PLAN_TRAIN, precision);
    t->count = fth_graph_parameter_floats(network->graph);
    op_check(backend->copy_in(device, t->session.vectors.parameters, network->parameters, t->count * sizeof(float)));
    op_check(backend->copy_in(device, t->session.vectors.buffers, network->buffers,
                              fth_graph_buffer_floats(network->graph) * sizeof(float)));
    for (int i = 0; i < 2; i++) {
        op_check(backend->allocate(device, t->count * sizeof(float), &state[i]));
        t->options.state[i] = state[i];
    }
    t->options.parameters = t->session.vectors.parameters;
    t->options.gradients = t->session.vectors.gradients;
    t->options.count = t->count;
    if (in_one)
        op_check(backend->capture->updater->open(device, &t->options, &t->updater));
}

static void training_close(training *t)
{
    fth_device *device = t->session.device;
    if (t->updater)
        device->backend->capture->updater->close(t->updater);
    for (int i = 0; i < 2; i++)
        device->backend->release(device, t->options.state[i]);
    op_session_close(&t->session);
}

static void set_inputs(training *t, int step)
{
    const fth_graph *graph = t->network->graph;
    op_network_randomize(t->network, 100 + (uint64_t)step); /* other images; the parameters on the device stay */
    op_check(fth_plan_set_input(t->session.plan, fth_graph_find(graph, "images"), t->network->images));
    op_check(fth_plan_set_input(t->session.plan, fth_graph_find(graph, "labels"), t->network->labels));
}

static float rate_of(int step)
{
    return 0.1f / (float)step;
}

static float step_in_one(training *t, int step)
{
    float loss[2];
    set_inputs(t, step);
    op_check(fth_plan_run(t->session.plan, &(fth_run){.seed = 1,
                                                      .step = (uint64_t)step,
                                                      .gradient_scale = 1,
                                                      .updater = t->updater,
                                                      .learning_rate = rate_of(step),
                                                      .update = step}));
    op_check(fth_plan_read_loss(t->session.plan, loss));
    return loss[0];
}

/* The whole vector, or each range of it with the numbers of its group. */
static void update_by_groups(training *t, const fth_update_arguments *arguments)
{
    const fth_update_groups *groups = &t->options.groups;
    const int ranges = groups->range_count > 0 ? groups->range_count : 1;
    size_t begin = 0;
    for (int i = 0; i < ranges; i++) {
        const bool whole = groups->range_count == 0;
        const size_t end = whole ? t->count : groups->ranges[i].end;
        const fth_update_arguments own =
            whole ? *arguments : fth_update_group_arguments(arguments, groups->groups[groups->ranges[i].group]);
        float *state[FTH_MAX_OPTIMIZER_VECTORS];
        for (int v = 0; v < FTH_MAX_OPTIMIZER_VECTORS; v++)
            state[v] = t->options.state[v] + begin;
        op_check(t->options.kernel->run(t->session.device, &own, t->options.parameters + begin,
                                        t->options.gradients + begin, state, end - begin));
        begin = end;
    }
}

/* As an engine does it without updaters. */
static float step_in_pieces(training *t, int step, fth_update_verdict *verdict)
{
    fth_device *device = t->session.device;
    fth_loss_scale *scale = &t->options.loss_scale;
    fth_update_arguments arguments = t->options.arguments;
    float loss[2];
    double norm = 0;
    set_inputs(t, step);
    op_check(fth_plan_run(
        t->session.plan,
        &(fth_run){.seed = 1, .step = (uint64_t)step, .gradient_scale = scale->scale > 0 ? (float)scale->scale : 1}));
    op_check(fth_plan_get_output(t->session.plan, fth_graph_loss(t->network->graph), loss));
    arguments.gradient_scale = 1;
    *verdict = FTH_UPDATE_APPLY;
    if (t->options.clip > 0 || scale->scale > 0) {
        op_check(device->backend->norm(device, t->options.gradients, t->count, &norm));
        *verdict = fth_judge_gradients(norm, t->options.clip, scale, &arguments.gradient_scale);
    }
    arguments.learning_rate = rate_of(step);
    arguments.step = step;
    if (*verdict == FTH_UPDATE_APPLY)
        update_by_groups(t, &arguments);
    return loss[0];
}

static void assert_same_parameters(training *a, training *b)
{
    fth_device *device = a->session.device;
    size_t bytes = a->count * sizeof(float);
    float *left = malloc(bytes), *right = malloc(bytes);
    op_check(device->backend->copy_out(device, left, a->options.parameters, bytes));
    op_check(device->backend->copy_out(device, right, b->options.parameters, bytes));
    assert_memory_equal(left, right, bytes);
    free(left);
    free(right);
}

static fth_device *device_with_updaters(void)
{
    fth_device *device = op_device("cuda");
    if (device == NULL || device->backend->capture == NULL || device->backend->capture->updater == NULL)
        skip();
    return device;
}

typedef struct step_case {
    const char *name;
    const char *optimizer;
    fth_precision precision;
    double clip, scale;
    fth_update_arguments arguments;
    bool groups; /* parameters have rates and decays of their own */
} step_case;

#define SGD                                                                                                            \
    {                                                                                                                  \
        .momentum = 0.9f, .weight_decay = 5e-4f, .beta1 = 0.9f, .beta2 = 0.999f                                        \
    }
#define ADAMW                                                                                                          \
    {                                                                                                                  \
        .weight_decay = 0.1f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f                                         \
    }

static const step_case cases[] = {
    {"sgd, f32", "sgd", FTH_PRECISION_F32, 0, 0, SGD, false},
    {"sgd without momentum, bf16", "sgd", FTH_PRECISION_BF16, 0, 0, {.momentum = 0}, false},
    {"sgd, clipped, bf16", "sgd", FTH_PRECISION_BF16, 0.05, 0, SGD, false},
    {"sgd, f16", "sgd", FTH_PRECISION_F16, 0, 1024, SGD, false},
    {"sgd, f16 that overflows at first", "sgd", FTH_PRECISION_F16, 0, 0x1p24, SGD, false},
    {"adamw, f32", "adamw", FTH_PRECISION_F32, 0, 0, ADAMW, false},
    {"adamw, clipped, f16 that overflows at first", "adamw", FTH_PRECISION_F16, 0.1, 0x1p24, ADAMW, false},
    {"sgd by groups", "sgd", FTH_PRECISION_F32, 0, 0, SGD, true},
    {"adamw by groups, clipped, f16 that overflows at first", "adamw", FTH_PRECISION_F16, 0.1, 0x1p24, ADAMW, true},
};

static const fth_update_group own_groups[] = {
    {.rate = 1, .decay = 1}, {.rate = 0.5f, .decay = 0}, {.rate = 0.1f, .decay = 2}};

static void test_step_in_one(void **state)
{
    const step_case *with = *state;
    fth_device *device = device_with_updaters();
    op_network network;
    training one, pieces;
    fth_updater_options options = {.kernel = op_find_update(device, with->optimizer, &with->arguments),
                                   .arguments = with->arguments,
                                   .clip = with->clip,
                                   .loss_scale = {.scale = with->scale}};
    fth_update_verdict verdict;
    fth_loss_scale scale;
    int64_t left_out = 0;

    op_network_create(&network, build_graph(), BATCH, 5);
    /* Short ranges, and one that is longer than what the device updates at once. */
    const fth_update_range ranges[] = {{16, 1}, {32, 0}, {96, 2}, {fth_graph_parameter_floats(network.graph), 1}};
    if (with->groups)
        options.groups = (fth_update_groups){own_groups, FTH_COUNT_OF(own_groups), ranges, FTH_COUNT_OF(ranges)};
    training_open(&one, &network, device, with->precision, &options, true);
    training_open(&pieces, &network, device, with->precision, &options, false);
    for (int step = 1; step <= STEPS; step++) {
        float found = step_in_one(&one, step), wanted = step_in_pieces(&pieces, step, &verdict);
        left_out += verdict == FTH_UPDATE_LEAVE_OUT;
        assert_true(found == wanted);
        assert_same_parameters(&one, &pieces);
    }
    op_check(device->backend->capture->updater->get_scale(one.updater, &scale));
    assert_true(scale.scale == pieces.options.loss_scale.scale);
    assert_int_equal(scale.good_updates, pieces.options.loss_scale.good_updates);
    assert_int_equal(device->backend->capture->updater->get_outcome(one.updater).left_out, left_out);
    assert_false(device->backend->capture->updater->get_outcome(one.updater).diverged);
    assert_true(with->scale < 0x1p24 || (left_out > 0 && left_out < STEPS)); /* both were seen */
    training_close(&one);
    training_close(&pieces);
    op_network_free(&network);
}

/* Neither a loss that is not finite nor gradients that are not move the weights. */
static void test_divergence_updates_nothing(void **state)
{
    (void)state;
    fth_device *device = device_with_updaters();
    const fth_backend *backend = device->backend;
    op_network network;
    training t, untouched;
    const fth_updater_options options = {.kernel = op_find_update(device, "sgd", &(fth_update_arguments){0}),
                                         .clip = 1};

    op_network_create(&network, build_graph(), BATCH, 5);
    training_open(&t, &network, device, FTH_PRECISION_F32, &options, true);
    training_open(&untouched, &network, device, FTH_PRECISION_F32, &options, false);
    set_inputs(&t, 1);
    network.images[0] = NAN;
    op_check(fth_plan_set_input(t.session.plan, fth_graph_find(network.graph, "images"), network.images));
    float loss[2];
    fth_run run = {.gradient_scale = 1, .updater = t.updater, .learning_rate = 0.1, .update = 1};
    op_check(fth_plan_run(t.session.plan, &run));
    op_check(fth_plan_read_loss(t.session.plan, loss));
    assert_true(isnan(loss[0]));
    assert_same_parameters(&t, &untouched);
    assert_false(backend->capture->updater->get_outcome(t.updater).diverged); /* the loss said it */

    set_inputs(&t, 2);
    run.gradient_scale = INFINITY;
    op_check(fth_plan_run(t.session.plan, &run));
    op_check(fth_plan_read_loss(t.session.plan, loss));
    assert_same_parameters(&t, &untouched);
    assert_true(backend->capture->updater->get_outcome(t.updater).diverged);
    training_close(&t);
    training_close(&untouched);
    op_network_free(&network);
}

/* Where nothing judges the gradients, the update itself reports it. */
static void test_parameters_that_are_not_finite_are_reported(void **state)
{
    (void)state;
    fth_device *device = device_with_updaters();
    const fth_backend *backend = device->backend;
    static const char *const optimizers[] = {"sgd", "adamw"};
    const fth_update_arguments arguments = {.momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
    for (size_t i = 0; i < FTH_COUNT_OF(optimizers); i++) {
        op_network network;
        training t;
        float loss[2];
        const fth_updater_options options = {.kernel = op_find_update(device, optimizers[i], &arguments),
                                             .arguments = arguments};
        op_network_create(&network, build_graph(), BATCH, 5);
        training_open(&t, &network, device, FTH_PRECISION_F32, &options, true);
        set_inputs(&t, 1);
        fth_run run = {.gradient_scale = 1, .updater = t.updater, .learning_rate = 0.1, .update = 1};
        op_check(fth_plan_run(t.session.plan, &run));
        op_check(backend->synchronize(device, fth_deadline_in(60)));
        assert_false(backend->capture->updater->get_outcome(t.updater).diverged);
        run.gradient_scale = NAN; /* the loss is finite */
        run.update = 2;
        op_check(fth_plan_run(t.session.plan, &run));
        op_check(fth_plan_read_loss(t.session.plan, loss));
        assert_true(isfinite(loss[0]));
        op_check(backend->synchronize(device, fth_deadline_in(60)));
        assert_true(backend->capture->updater->get_outcome(t.updater).diverged);
        training_close(&t);
        op_network_free(&network);
    }
}

/* ---- batches made on the device ---- */

static void test_gather(void **state)
{
    (void)state;
    enum { SAMPLES = 50, COUNT = 33, HEIGHT = 7, WIDTH = 9, PIXELS = CHANNELS * HEIGHT * WIDTH };
    fth_device *device = op_device("cuda");
    if (device == NULL || device->backend->batches == NULL)
        skip();
    const fth_backend *backend = device->backend;
    uint8_t host[SAMPLES * PIXELS];
    fth_recipe recipes[COUNT];
    void *pixels = NULL, *images = NULL;
    static float found[COUNT * PIXELS];
    fth_gather gather = {.channels = CHANNELS,
                         .height = HEIGHT,
                         .width = WIDTH,
                         .scale = {0.0158f, 0.0161f, 0.015f},
                         .shift = {-1.98f, -1.97f, -1.7f},
                         .recipes = recipes,
                         .count = COUNT};
    for (size_t i = 0; i < sizeof host; i++)
        host[i] = (uint8_t)(i * 37 + i / 11);
    for (int n = 0; n < COUNT; n++)
        recipes[n] = (fth_recipe){.sample = (n * 7) % SAMPLES,
                                  .down = (int16_t)(n % 9 - 4),
                                  .right = (int16_t)(n / 2 % 9 - 4),
                                  .flip = n % 2};
    op_check(backend->allocate(device, sizeof host, &pixels));
    op_check(backend->allocate(device, sizeof found, &images));
    op_check(backend->copy_in(device, pixels, host, sizeof host));
    gather.pixels = pixels;
    op_check(backend->batches->gather(device, &gather, images));
    op_check(backend->copy_out(device, found, images, sizeof found));
    for (int n = 0; n < COUNT; n++)
        for (int c = 0; c < CHANNELS; c++)
            for (int y = 0; y < HEIGHT; y++)
                for (int x = 0; x < WIDTH; x++) {
                    int from_y = y + recipes[n].down;
                    int from_x = (recipes[n].flip ? WIDTH - 1 - x : x) + recipes[n].right;
                    bool inside = from_y >= 0 && from_y < HEIGHT && from_x >= 0 && from_x < WIDTH;
                    volatile float product = 0; /* two roundings, whatever the compiler may do */
                    if (inside)
                        product = (float)host[((recipes[n].sample * CHANNELS + c) * HEIGHT + from_y) * WIDTH + from_x] *
                                  gather.scale[c];
                    float wanted = product + gather.shift[c];
                    assert_true(found[((n * CHANNELS + c) * HEIGHT + y) * WIDTH + x] == wanted);
                }
    backend->release(device, pixels);
    backend->release(device, images);
}

/* Batches of any size arrive whole, also many in a row, while others are still on their way. */
static void test_batches_arrive_in_order(void **state)
{
    (void)state;
    enum { ROUNDS = 12 };
    static const size_t sizes[] = {100, 70000, 40u << 20};
    fth_device *device = op_device("cuda");
    if (device == NULL || device->backend->batches == NULL)
        skip();
    const fth_backend *backend = device->backend;
    for (size_t s = 0; s < FTH_COUNT_OF(sizes); s++) {
        uint8_t *host = malloc(sizes[s]), *found = malloc(sizes[s]);
        void *memory[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            op_check(backend->allocate(device, sizes[s], &memory[i]));
            memset(host, i + 1, sizes[s]);
            op_check(backend->batches->copy(device, memory[i], host, sizes[s]));
            memset(host, 0, sizes[s]); /* it has its own copy */
        }
        for (int i = 0; i < ROUNDS; i++) {
            op_check(backend->copy_out(device, found, memory[i], sizes[s]));
            for (size_t b = 0; b < sizes[s]; b++)
                if (found[b] != i + 1)
                    fail_msg("byte %zu of %zu in round %d is %d", b, sizes[s], i, found[b]);
            backend->release(device, memory[i]);
        }
        free(host);
        free(found);
    }
}

/* ---- snapshots ---- */

typedef struct fetching {
    const fth_backend *backend;
    fth_device_snapshot *snapshot;
    uint8_t *to;
    fth_status status;
} fetching;

static void *fetch(void *context)
{
    fetching *f = context;
    f->status = f->backend->snapshots->fetch(f->snapshot, f->to);
    return NULL;
}

/* What another thread fetches is what was there when the snapshot was taken, whatever was queued
 * since. */
static void check_snapshots(const char *name)
{
    static const size_t sizes[] = {1, 5000, 4u << 20, (4u << 20) + 1, 40u << 20};
    fth_device *device = op_device(name);
    if (device == NULL || device->backend->snapshots == NULL)
        skip();
    const fth_backend *backend = device->backend;
    for (size_t s = 0; s < FTH_COUNT_OF(sizes); s++) {
        const size_t size = sizes[s], half = size / 2;
        uint8_t *host = malloc(size), *found = malloc(size);
        void *memory;
        fth_device_snapshot *snapshot;
        op_check(backend->allocate(device, size, &memory));
        op_check(backend->snapshots->open(device, size, &snapshot));
        const fth_extent swapped[] = {{memory, size - half, half}, {(uint8_t *)memory + half, 0, size - half}};
        for (int round = 1; round < 6; round++) {
            memset(host, round, size);
            if (half > 0)
                host[0] = 200;
            op_check(backend->copy_in(device, memory, host, size));
            op_check(backend->snapshots->take(snapshot, swapped, 2));
            op_check(backend->fill_zero(device, memory, size));
            if (round == 3)
                continue; /* nobody wanted that one */
            memset(found, 0, size);
            fetching job = {backend, snapshot, found, FTH_IO};
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, fetch, &job), 0);
            pthread_join(thread, NULL);
            assert_int_equal(job.status, FTH_OK);
            for (size_t b = 0; b < size; b++)
                if (found[b] != (half > 0 && b == size - half ? 200 : round))
                    fail_msg("byte %zu of %zu in round %d is %d", b, size, round, found[b]);
        }
        backend->snapshots->close(snapshot);
        backend->release(device, memory);
        free(host);
        free(found);
    }
}

static void test_snapshots_of_the_reference(void **state)
{
    (void)state;
    check_snapshots("reference");
}

static void test_snapshots_of_a_gpu(void **state)
{
    (void)state;
    check_snapshots("cuda");
}

int main(void)
{
    enum { OTHERS = 6 };
    struct CMUnitTest tests[FTH_COUNT_OF(cases) + OTHERS] = {
        cmocka_unit_test(test_divergence_updates_nothing),
        cmocka_unit_test(test_parameters_that_are_not_finite_are_reported),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_batches_arrive_in_order),
        cmocka_unit_test(test_snapshots_of_the_reference),
        cmocka_unit_test(test_snapshots_of_a_gpu),
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++)
        tests[OTHERS + i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_step_in_one, .initial_state = (void *)&cases[i]};
    return _cmocka_run_group_tests("whole steps on every back end", tests, FTH_COUNT_OF(tests), NULL, op_close_devices);
}
