/* Batch norm synchronized across workers: workers that have a part of a batch each, as threads with
 * devices of their own, give the outputs, gradients and running statistics of one worker with the
 * whole batch. Parts of different size, empty ones, and workers on different back ends are among
 * them. */
#include <math.h>
#include <pthread.h>

#include "model/layers.h"
#include "op_harness.h"

enum { MAX_WORKERS = 4, IMAGE_CHANNELS = 3, CLASSES = 5 };

/* ---- a sum over threads ---- */

typedef struct meeting {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int size;
    /* guarded by mutex */
    int arrived;
    uint64_t round;
    bool failed; /* a worker failed, or they do not agree on how many numbers there are */
    double *values[MAX_WORKERS];
    size_t count;
    int sums; /* made so far */
} meeting;

typedef struct worker {
    meeting *meeting;
    int rank;
    int fail_at; /* this sum of its own fails; 0: none */
    int sums;
    op_session session;
    op_network network; /* its part: the graph and the memory are the whole batch's */
    bool empty;
    fth_run run;
    fth_peers peers;
    fth_status status;
    char message[256];
    pthread_t thread;
} worker;

/* In the order of ranks, the same bits for all. Called with the mutex held, by the one that arrived
 * last. */
static void add_up(meeting *m)
{
    for (size_t i = 0; i < m->count; i++) {
        double total = 0;
        for (int r = 0; r < m->size; r++)
            total += m->values[r][i];
        for (int r = 0; r < m->size; r++)
            m->values[r][i] = total;
    }
    m->arrived = 0;
    m->sums++;
    m->round++;
    pthread_cond_broadcast(&m->changed);
}

static fth_status sum_over_threads(void *context, double *values, size_t count)
{
    worker *w = context;
    meeting *m = w->meeting;
    pthread_mutex_lock(&m->mutex);
    const uint64_t round = m->round;
    m->failed = m->failed || ++w->sums == w->fail_at || (m->arrived > 0 && m->count != count);
    m->values[w->rank] = values;
    m->count = count;
    if (m->failed)
        pthread_cond_broadcast(&m->changed);
    else if (++m->arrived == m->size)
        add_up(m);
    while (m->round == round && !m->failed)
        pthread_cond_wait(&m->changed, &m->mutex);
    const bool failed = m->round == round;
    pthread_mutex_unlock(&m->mutex);
    return failed ? fth_fail(FTH_PEER_LOST, "worker %d was told so", w->rank) : FTH_OK;
}

/* ---- the network ---- */

typedef struct sync_case {
    const char *name;
    const char *backends[MAX_WORKERS]; /* of each worker; a single name is for all of them */
    int parts[MAX_WORKERS];
    int workers;
    int channels, height, width;
    fth_precision precision;
    bool smooth;  /* no ReLU */
    bool frozen;  /* the second batch norm keeps its running statistics */
    double shift; /* added to all images: the mean is far from 0 */
} sync_case;

/* Two batch norms of images, one with a residual, and one of features: by channel, by pixel and by
 * feature. */
static void build(const sync_case *with, op_network *network)
{
    fth_graph *graph = NULL;
    fth_value images, labels, x, first, loss;
    const bool relu = !with->smooth;
    const fth_layer_convolution_options wide = {.filters = with->channels, .kernel = 3, .stride = 1, .padding = 1};
    int64_t samples = 0;

    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32,
                                 FTH_SHAPE(FTH_BATCH, IMAGE_CHANNELS, with->height, with->width), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(fth_layer_convolution(graph, "conv1", wide, images, &x));
    op_check(fth_layer_batch_norm(graph, "bn1", relu, FTH_NO_VALUE, x, &first));
    op_check(fth_layer_convolution(graph, "conv2", wide, first, &x));
    op_check(fth_layer_batch_norm(graph, "bn2", relu, first, x, &x));
    op_check(fth_op_add_flatten(graph, x, &x));
    op_check(fth_layer_linear(graph, "fc1", 37, false, FTH_LAYER_DEFAULT, x, &x));
    op_check(fth_layer_batch_norm(graph, "bn3", relu, FTH_NO_VALUE, x, &x));
    op_check(fth_layer_linear(graph, "fc2", CLASSES, false, FTH_LAYER_DEFAULT, x, &x));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, x, labels, &loss));
    fth_graph_set_outputs(graph, x, loss);
    if (with->frozen) {
        op_check(fth_graph_set_trainable(graph, fth_graph_find(graph, "bn2.weight"), false));
        op_check(fth_graph_set_trainable(graph, fth_graph_find(graph, "bn2.bias"), false));
        fth_graph_fix_statistics(graph);
    }
    op_check(fth_graph_differentiate(graph));

    for (int r = 0; r < with->workers; r++)
        samples += with->parts[r];
    op_network_create(network, graph, samples, 5);
    op_network_randomize(network, 5);
    const size_t pixels = (size_t)(samples * IMAGE_CHANNELS * with->height * with->width);
    for (size_t i = 0; i < pixels; i++)
        network->images[i] += (float)with->shift;
    network->kinks = relu;
    network->reduction = samples * with->height * with->width * 9;
}

/* ---- workers ---- */

static const char *backend_of(const sync_case *with, int rank)
{
    return with->backends[rank] ? with->backends[rank] : with->backends[0];
}

/* In the main thread, where a failure may end the test. False after a line SKIP if a device is
 * missing. */
static bool worker_open(worker *w, const sync_case *with, const op_network *whole, int64_t begin, meeting *m)
{
    const int64_t samples = with->parts[w->rank], pixels = (int64_t)IMAGE_CHANNELS * with->height * with->width;
    const fth_plan_options options = {.mode = FTH_PLAN_TRAIN, .precision = with->precision, .synchronized = true};
    fth_device *device = NULL;

    w->empty = samples == 0;
    w->meeting = m;
    if (op_device(backend_of(with, w->rank)) == NULL)
        return false;
    op_check(fth_device_open(backend_of(with, w->rank), &(fth_device_options){.threads = 1 + w->rank % 2}, &device));
    if (device->backend->check_precision(device, with->precision) != FTH_OK) {
        fth_device_close(device);
        return false;
    }
    w->network = *whole;
    w->network.batch = w->empty ? 1 : samples; /* an empty part has no plan: this one lends its vectors alone */
    w->network.images += w->empty ? 0 : begin * pixels;
    w->network.labels += w->empty ? 0 : begin;
    op_session_open_plan(&w->session, &w->network, device, options);
    op_session_set(&w->session);
    w->peers = (fth_peers){.sum = sum_over_threads, .context = w};
    w->run = (fth_run){
        .seed = 3, .step = 7, .gradient_scale = (float)((double)samples / (double)whole->batch), .peers = &w->peers};
    return true;
}

static void worker_close(worker *w)
{
    fth_device *device = w->session.device;
    op_session_close(&w->session);
    fth_device_close(device);
}

static void *run_worker(void *context)
{
    worker *w = context;
    fth_device *device = w->session.device;
    w->status = w->empty ? fth_plan_run_empty(w->network.graph, device, w->session.vectors, true, &w->run)
                         : fth_plan_run(w->session.plan, &w->run);
    if (w->status == FTH_OK)
        w->status = device->backend->synchronize(device, fth_deadline_in(60));
    if (w->status == FTH_OK)
        return NULL;
    snprintf(w->message, sizeof w->message, "%s", fth_error_message());
    pthread_mutex_lock(&w->meeting->mutex);
    w->meeting->failed = true;
    pthread_cond_broadcast(&w->meeting->changed);
    pthread_mutex_unlock(&w->meeting->mutex);
    return NULL;
}

static void run_workers(worker *workers, int count)
{
    for (int r = 0; r < count; r++)
        assert_int_equal(pthread_create(&workers[r].thread, NULL, run_worker, &workers[r]), 0);
    for (int r = 0; r < count; r++)
        assert_int_equal(pthread_join(workers[r].thread, NULL), 0);
}

/* What all workers have together: logits one behind the other, losses weighted, gradients added,
 * and the first one's statistics, which must be the same bits in all that use the same back end. */
static int put_together(worker *workers, const sync_case *with, const op_network *whole, op_result *all)
{
    const size_t floats = fth_graph_parameter_floats(whole->graph), buffers = fth_graph_buffer_floats(whole->graph);
    int differences = 0;
    size_t at = 0;

    *all = (op_result){.logit_count = (size_t)whole->batch * CLASSES};
    all->logits = calloc(all->logit_count, sizeof(float));
    all->gradients = calloc(floats, sizeof(float));
    all->buffers = calloc(buffers, sizeof(float));
    assert_true(all->logits && all->gradients && all->buffers);
    for (int r = 0; r < with->workers; r++) {
        op_result part;
        op_session_read(&workers[r].session, &part);
        if (!workers[r].empty) {
            memcpy(all->logits + at, part.logits, part.logit_count * sizeof(float));
            at += part.logit_count;
            all->loss[0] += part.loss[0] * workers[r].run.gradient_scale;
            all->loss[1] += part.loss[1];
        }
        for (size_t i = 0; i < floats; i++)
            all->gradients[i] += part.gradients[i];
        if (r == 0)
            memcpy(all->buffers, part.buffers, buffers * sizeof(float));
        else if (op_relative_error(part.buffers, all->buffers, buffers, 0) > (with->precision ? 0.02 : 1e-6) &&
                 ++differences)
            print_message("  DIFFERS %s: running statistics of worker %d\n", with->name, r);
        op_result_free(&part);
    }
    assert_int_equal(at, all->logit_count);
    return differences;
}

/* Opens all workers; false if one cannot be. */
static bool open_workers(worker *workers, const sync_case *with, const op_network *whole, meeting *m)
{
    int64_t begin = 0;
    *m = (meeting){.size = with->workers};
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->changed, NULL);
    for (int r = 0; r < with->workers; r++) {
        workers[r] = (worker){.rank = r};
        if (!worker_open(&workers[r], with, whole, begin, m)) {
            while (r-- > 0)
                worker_close(&workers[r]);
            return false;
        }
        begin += with->parts[r];
    }
    return true;
}

static void test_parts_equal_the_whole(void **state)
{
    const sync_case *with = *state;
    worker workers[MAX_WORKERS];
    meeting m;
    op_network whole;
    op_result wanted, found;
    const fth_run alone = {.seed = 3, .step = 7, .gradient_scale = 1};

    build(with, &whole);
    if (!open_workers(workers, with, &whole, &m)) {
        op_network_free(&whole);
        skip();
    }
    op_run_once(&whole, op_device("reference"), FTH_PLAN_TRAIN, FTH_PRECISION_F32, &alone, &wanted);
    run_workers(workers, with->workers);
    for (int r = 0; r < with->workers; r++)
        op_check_status(workers[r].status, workers[r].message, __FILE__, __LINE__);
    int differences = put_together(workers, with, &whole, &found);
    differences += op_compare(&whole, &found, &wanted, with->precision, with->name);
    assert_int_equal(m.sums, with->frozen ? 4 : 6); /* a batch norm's, forward and backward, unless it is frozen */
    for (int r = 0; r < with->workers; r++)
        worker_close(&workers[r]);
    op_result_free(&wanted);
    op_result_free(&found);
    op_network_free(&whole);
    assert_int_equal(differences, 0);
}

/* Without peers a synchronized plan is an ordinary one. */
static void test_alone(void **state)
{
    const sync_case *with = *state;
    op_network whole;
    op_result wanted, found;
    op_session session;
    const fth_run alone = {.seed = 3, .step = 7, .gradient_scale = 1};

    if (op_device(with->backends[0]) == NULL)
        skip();
    build(with, &whole);
    op_run_once(&whole, op_device("reference"), FTH_PLAN_TRAIN, FTH_PRECISION_F32, &alone, &wanted);
    op_session_open_plan(&session, &whole, op_device(with->backends[0]),
                         (fth_plan_options){.mode = FTH_PLAN_TRAIN, .synchronized = true});
    op_session_run(&session, &alone);
    op_session_read(&session, &found);
    int differences = op_compare(&whole, &found, &wanted, FTH_PRECISION_F32, with->name);
    op_session_close(&session);
    op_result_free(&wanted);
    op_result_free(&found);
    op_network_free(&whole);
    assert_int_equal(differences, 0);
}

/* A sum that fails, in the forward and in the backward pass, ends the run of every worker with the
 * reason. */
static void test_lost_peer(void **state)
{
    const sync_case *with = *state;
    static const int moments[] = {1, 3, 4, 6};
    op_network whole;

    if (op_device(with->backends[0]) == NULL)
        skip();
    build(with, &whole);
    for (size_t i = 0; i < FTH_COUNT_OF(moments); i++) {
        worker workers[MAX_WORKERS];
        meeting m;
        assert_true(open_workers(workers, with, &whole, &m));
        workers[0].fail_at = moments[i];
        run_workers(workers, with->workers);
        for (int r = 0; r < with->workers; r++) {
            assert_int_equal(workers[r].status, FTH_PEER_LOST);
            assert_non_null(strstr(workers[r].message, "was told so"));
            worker_close(&workers[r]);
        }
    }
    op_network_free(&whole);
}

#define CPU             .backends = {"cpu"}
#define REFERENCE       .backends = {"reference"}
#define PORTABLE        .backends = {"portable"}
#define CUDA            .backends = {"cuda"}
#define PARTS(...)      .parts = {__VA_ARGS__}, .workers = (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int))
#define IMAGES(c, h, w) .channels = (c), .height = (h), .width = (w)

static const sync_case cases[] = {
    {"reference, 2 workers", REFERENCE, PARTS(3, 3), IMAGES(7, 5, 4)},
    {"reference, uneven and empty parts", REFERENCE, PARTS(4, 0, 1), IMAGES(16, 3, 5)},
    {"reference, the first part is empty", REFERENCE, PARTS(0, 5), IMAGES(7, 4, 4)},
    {"cpu, 2 workers, whole blocks", CPU, PARTS(4, 4), IMAGES(32, 9, 7)},
    {"cpu, 2 workers, 7 channels", CPU, PARTS(4, 4), IMAGES(7, 6, 6)},
    {"cpu, 20 channels, uneven", CPU, PARTS(5, 2), IMAGES(20, 7, 9)},
    {"cpu, uneven and empty parts", CPU, PARTS(3, 0, 1, 2), IMAGES(16, 5, 5)},
    {"cpu, parts of one sample", CPU, PARTS(1, 2, 1, 1), IMAGES(17, 4, 3)},
    {"cpu, rows longer than a run", CPU, PARTS(3, 2), IMAGES(16, 33, 31)},
    {"cpu, long rows of few channels", CPU, PARTS(2, 2), IMAGES(3, 71, 67)},
    {"cpu, more samples than parts of a sum", CPU, PARTS(37, 19), IMAGES(16, 3, 3)},
    {"cpu, a mean far from 0", CPU, PARTS(3, 4), IMAGES(16, 6, 6), .smooth = true, .shift = 30},
    {"cpu, one worker", CPU, PARTS(6), IMAGES(16, 5, 5)},
    {"cpu, bf16", CPU, PARTS(4, 3), IMAGES(32, 8, 8), .precision = FTH_PRECISION_BF16, .smooth = true},
    {"cpu, bf16, 20 channels, relu", CPU, PARTS(4, 4), IMAGES(20, 7, 7), .precision = FTH_PRECISION_BF16},
    {"reference, frozen statistics between trained layers", REFERENCE, PARTS(4, 0, 1), IMAGES(7, 5, 4), .frozen = true},
    {"cpu, frozen statistics between trained layers", CPU, PARTS(4, 0, 1), IMAGES(20, 7, 9), .frozen = true},
    {"portable, frozen statistics between trained layers", PORTABLE, PARTS(4, 3), IMAGES(20, 7, 9), .frozen = true},
    {"cpu and reference", .backends = {"cpu", "reference", "cpu"}, PARTS(3, 2, 0), IMAGES(16, 6, 5)},
    {"portable, 20 channels, uneven", PORTABLE, PARTS(5, 2), IMAGES(20, 7, 9)},
    {"cuda, 2 workers", CUDA, PARTS(4, 4), IMAGES(32, 9, 7)},
    {"cuda, 7 channels, uneven and empty parts", CUDA, PARTS(3, 0, 1), IMAGES(7, 5, 6)},
    {"cuda, a mean far from 0", CUDA, PARTS(3, 4), IMAGES(16, 6, 6), .smooth = true, .shift = 30},
    {"cuda, frozen statistics between trained layers", CUDA, PARTS(4, 0, 1), IMAGES(20, 7, 9), .frozen = true},
    {"cuda, bf16", CUDA, PARTS(4, 3), IMAGES(32, 8, 8), .precision = FTH_PRECISION_BF16, .smooth = true},
    {"cuda, f16, relu", CUDA, PARTS(4, 4), IMAGES(20, 7, 7), .precision = FTH_PRECISION_F16},
    {"cuda and cpu", .backends = {"cuda", "cpu"}, PARTS(3, 2), IMAGES(16, 6, 5)},
};

static const sync_case alone_cases[] = {
    {"reference", REFERENCE, PARTS(5), IMAGES(7, 5, 4)},
    {"cpu", CPU, PARTS(5), IMAGES(17, 6, 7)},
    {"portable", PORTABLE, PARTS(5), IMAGES(17, 6, 7)},
    {"cuda", CUDA, PARTS(5), IMAGES(17, 6, 7)},
};

static const sync_case lost_cases[] = {
    {"reference", REFERENCE, PARTS(2, 1), IMAGES(7, 3, 4)},
    {"cpu", CPU, PARTS(2, 0, 1), IMAGES(16, 4, 4)},
    {"cuda", CUDA, PARTS(2, 0, 1), IMAGES(16, 4, 4)},
};

int main(void)
{
    struct CMUnitTest tests[FTH_COUNT_OF(cases) + FTH_COUNT_OF(alone_cases) + FTH_COUNT_OF(lost_cases)];
    size_t count = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++)
        tests[count++] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_parts_equal_the_whole, .initial_state = (void *)&cases[i]};
    for (size_t i = 0; i < FTH_COUNT_OF(alone_cases); i++)
        tests[count++] =
            (struct CMUnitTest){.name = "no peers", .test_func = test_alone, .initial_state = (void *)&alone_cases[i]};
    for (size_t i = 0; i < FTH_COUNT_OF(lost_cases); i++)
        tests[count++] = (struct CMUnitTest){
            .name = "lost peer", .test_func = test_lost_peer, .initial_state = (void *)&lost_cases[i]};
    return cmocka_run_group_tests(tests, NULL, op_close_devices);
}
