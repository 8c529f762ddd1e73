/* See op_harness.h. */
#include "op_harness.h"

#include <math.h>

#include "backend/optimizers.h"

void op_check_status(fth_status status, const char *call, const char *file, int line)
{
    if (status != FTH_OK)
        fail_msg("%s:%d: %s: %s: %s", file, line, call, fth_status_name(status), fth_error_message());
}

/* ---- devices ---- */

static struct {
    const char *name;
    const char *backend, *level; /* NULL: the name, and the best there is (FARTHING_MAX_ISA) */
    const char *convolution;     /* the way it computes convolutions (FARTHING_CONVOLUTION); NULL: the best */
    int threads;                 /* of every plan; 0: its own choice, 1 for plans as small as most here */
    bool required;
    bool tried, repeats; /* repeats: it is the same as one before, as the machine has fewer levels than there are */
    fth_device *device;
    char why[512]; /* it cannot be opened */
} devices[] = {{.name = "cpu", .required = true},
               {.name = "cpu, 3 threads", .backend = "cpu", .threads = 3, .required = true},
               {.name = "reference", .required = true},
               {.name = "portable", .required = true},
               {.name = "portable avx2", .backend = "portable", .level = "avx2", .required = true},
               {.name = "portable baseline", .backend = "portable", .level = "baseline", .required = true},
               {.name = "cpu depthwise", .backend = "cpu", .convolution = "depthwise", .threads = 3, .required = true},
               {.name = "cpu narrow", .backend = "cpu", .convolution = "narrow", .threads = 3, .required = true},
               {.name = "cpu winograd", .backend = "cpu", .convolution = "winograd", .threads = 3, .required = true},
               {.name = "cpu strided", .backend = "cpu", .convolution = "strided", .threads = 3, .required = true},
               {.name = "cpu pixelwise", .backend = "cpu", .convolution = "pixelwise", .threads = 3, .required = true},
               {.name = "cpu pointwise", .backend = "cpu", .convolution = "pointwise", .threads = 3, .required = true},
               {.name = "cpu direct", .backend = "cpu", .convolution = "direct", .threads = 3, .required = true},
               {.name = "cuda"}};

static fth_status open_with(const char *backend, const char *level, const char *convolution, fth_device **device)
{
    if (level)
        setenv("FARTHING_MAX_ISA", level, 1);
    if (convolution)
        setenv("FARTHING_CONVOLUTION", convolution, 1);
    fth_status status = fth_device_open(backend, &(fth_device_options){.threads = 2}, device);
    if (level)
        unsetenv("FARTHING_MAX_ISA");
    if (convolution)
        unsetenv("FARTHING_CONVOLUTION");
    return status;
}

/* TEST_DEVICE: the only one to compare with the reference, where the levels of one back end are
 * tested by themselves. */
static bool is_left_out(const char *name)
{
    const char *only = getenv("TEST_DEVICE");
    return only && strcmp(name, only) != 0 && strcmp(name, "reference") != 0;
}

static bool repeats_another(size_t row)
{
    bool found = false;
    for (size_t i = 0; i < row && devices[row].level; i++)
        found = found || (devices[i].device != NULL &&
                          strcmp(devices[i].device->description, devices[row].device->description) == 0);
    return found;
}

fth_device *op_device(const char *name)
{
    if (is_left_out(name))
        return NULL;
    for (size_t i = 0; i < FTH_COUNT_OF(devices); i++) {
        if (strcmp(devices[i].name, name) != 0)
            continue;
        if (!devices[i].tried) {
            devices[i].tried = true;
            fth_status status = open_with(devices[i].backend ? devices[i].backend : name, devices[i].level,
                                          devices[i].convolution, &devices[i].device);
            if (status != FTH_OK) {
                snprintf(devices[i].why, sizeof devices[i].why, "%s", fth_error_message());
            } else if (repeats_another(i)) {
                devices[i].repeats = true;
                fth_device_close(devices[i].device);
                devices[i].device = NULL;
            }
        }
        if (devices[i].repeats)
            return NULL;
        if (devices[i].device == NULL && devices[i].required)
            fail_msg("cannot open %s: %s", name, devices[i].why);
        if (devices[i].device == NULL)
            print_message("SKIP %s: %s\n", name, devices[i].why);
        return devices[i].device;
    }
    fail_msg("the tests know no device '%s'", name);
    return NULL;
}

const fth_update_kernel *op_find_update(const fth_device *device, const char *optimizer,
                                        const fth_update_arguments *arguments)
{
    static const fth_optimizer *const optimizers[] = {
#define ROW(name, none) &fth_optimizer_##name,
        FTH_OPTIMIZERS(ROW, )
#undef ROW
    };
    const char *rule = optimizer;
    for (size_t i = 0; i < FTH_COUNT_OF(optimizers); i++)
        if (strcmp(optimizers[i]->name, optimizer) == 0 && optimizers[i]->choose_rule)
            rule = optimizers[i]->choose_rule(arguments);
    for (const fth_update_kernel *kernel = device->backend->updates; kernel->rule != NULL; kernel++)
        if (strcmp(kernel->rule, rule) == 0)
            return kernel;
    fail_msg("%s has no %s", device->backend->name, rule);
    return NULL;
}

static int threads_on(const fth_device *device)
{
    for (size_t i = 0; i < FTH_COUNT_OF(devices); i++)
        if (devices[i].device == device)
            return devices[i].threads;
    return 0;
}

int op_close_devices(void **state)
{
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(devices); i++) {
        fth_device_close(devices[i].device);
        devices[i].device = NULL;
        devices[i].tried = devices[i].repeats = false;
    }
    return 0;
}

/* ---- networks ---- */

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

/* Moves parameters and buffers that start as a constant up by up to 0.3, each element
 * differently. */
static void scatter_constants(const fth_graph *graph, fth_random_key key, float *parameters, float *buffers)
{
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if ((info->kind != FTH_VALUE_PARAMETER && info->kind != FTH_VALUE_BUFFER) ||
            info->init.kind != FTH_INIT_CONSTANT)
            continue;
        float *values = (info->kind == FTH_VALUE_PARAMETER ? parameters : buffers) + info->offset;
        for (int64_t i = 0; i < fth_shape_count(&info->type.shape); i++)
            values[i] += 0.3f * (float)fth_random_uniform(fth_random_fork(key, (uint64_t)v), (uint64_t)i);
    }
}

/* Elements of a value; 0 where there is none. */
static size_t count_of(const op_network *network, fth_value value)
{
    if (value == FTH_NO_VALUE)
        return 0;
    fth_shape shape = fth_graph_value(network->graph, value)->type.shape;
    shape = fth_shape_with_batch(&shape, network->batch);
    shape = fth_shape_with_tokens(&shape, network->tokens);
    return (size_t)fth_shape_count(&shape);
}

static void *input_memory(const op_network *network, const char *name)
{
    const fth_value input = fth_graph_find(network->graph, name);
    return input == FTH_NO_VALUE ? NULL : zeroed(count_of(network, input), sizeof(float));
}

void op_network_create_text(op_network *network, fth_graph *graph, int64_t batch, int64_t tokens, uint64_t seed)
{
    *network = (op_network){.graph = graph, .batch = batch, .tokens = tokens};
    network->parameters = zeroed(fth_graph_parameter_floats(graph), sizeof(float));
    network->buffers = zeroed(fth_graph_buffer_floats(graph), sizeof(float));
    network->images = input_memory(network, "images");
    network->labels = input_memory(network, "labels");
    fth_graph_initialize(graph, seed, network->parameters, network->buffers);
}

void op_network_create(op_network *network, fth_graph *graph, int64_t batch, uint64_t seed)
{
    op_network_create_text(network, graph, batch, 0, seed);
}

void *op_network_input(op_network *network, const char *name)
{
    const int i = network->input_count++;
    assert_true(i < OP_MAX_INPUTS);
    network->inputs[i].value = fth_graph_find(network->graph, name);
    network->inputs[i].data = input_memory(network, name);
    assert_non_null(network->inputs[i].data);
    return network->inputs[i].data;
}

void op_network_randomize(op_network *network, uint64_t seed)
{
    const fth_graph *graph = network->graph;
    const fth_random_key key = fth_random_key_for(seed, FTH_RANDOM_GENERATE);
    const int64_t classes = fth_graph_value(graph, fth_graph_logits(graph))->type.shape.dims[1];
    const size_t pixels = count_of(network, fth_graph_find(graph, "images"));
    const size_t labels = count_of(network, fth_graph_find(graph, "labels"));

    scatter_constants(graph, fth_random_fork(key, 1), network->parameters, network->buffers);
    for (size_t i = 0; i < pixels; i++)
        network->images[i] = (float)fth_random_normal(fth_random_fork(key, 2), i);
    for (size_t n = 0; n < labels; n++)
        network->labels[n] = (int32_t)fth_random_below(fth_random_fork(key, 3), n, (uint64_t)classes);
}

void op_network_free(op_network *network)
{
    fth_graph_free(network->graph);
    free(network->parameters);
    free(network->buffers);
    free(network->images);
    free(network->labels);
    for (int i = 0; i < network->input_count; i++)
        free(network->inputs[i].data);
    memset(network, 0, sizeof *network);
}

/* ---- sessions ---- */

void op_session_open_plan(op_session *session, const op_network *network, fth_device *device, fth_plan_options options)
{
    const fth_backend *backend = device->backend;
    const fth_graph *graph = network->graph;
    size_t parameter_bytes = fth_graph_parameter_floats(graph) * sizeof(float);
    size_t buffer_bytes = fth_graph_buffer_floats(graph) * sizeof(float);
    void *parameters = NULL, *gradients = NULL, *buffers = NULL;

    *session = (op_session){.network = network, .device = device};
    options.batch = network->batch;
    options.tokens = network->tokens;
    op_check(fth_plan_create(graph, device, options, &session->plan));
    op_check(backend->allocate(device, fth_plan_arena_bytes(session->plan), &session->arena));
    op_check(backend->allocate(device, parameter_bytes, &parameters));
    op_check(backend->allocate(device, buffer_bytes, &buffers));
    if (options.mode == FTH_PLAN_TRAIN)
        op_check(backend->allocate(device, parameter_bytes, &gradients));
    session->vectors = (fth_vectors){parameters, gradients, buffers};
    op_check(fth_plan_bind(session->plan, session->arena, session->vectors));
}

void op_session_open(op_session *session, const op_network *network, fth_device *device, fth_plan_mode mode,
                     fth_precision precision)
{
    op_session_open_plan(session, network, device,
                         (fth_plan_options){.mode = mode, .precision = precision, .threads = threads_on(device)});
}

void op_session_set(op_session *session)
{
    const op_network *network = session->network;
    const fth_graph *graph = network->graph;
    fth_device *device = session->device;

    op_check(device->backend->copy_in(device, session->vectors.parameters, network->parameters,
                                      fth_graph_parameter_floats(graph) * sizeof(float)));
    op_check(device->backend->copy_in(device, session->vectors.buffers, network->buffers,
                                      fth_graph_buffer_floats(graph) * sizeof(float)));
    if (network->images)
        op_check(fth_plan_set_input(session->plan, fth_graph_find(graph, "images"), network->images));
    if (network->labels)
        op_check(fth_plan_set_input(session->plan, fth_graph_find(graph, "labels"), network->labels));
    for (int i = 0; i < network->input_count; i++)
        op_check(fth_plan_set_input(session->plan, network->inputs[i].value, network->inputs[i].data));
}

void op_session_run(op_session *session, const fth_run *run)
{
    op_session_set(session);
    op_check(fth_plan_run(session->plan, run));
    op_check(session->device->backend->synchronize(session->device, fth_deadline_in(60)));
}

void op_session_read(op_session *session, op_result *result)
{
    const fth_graph *graph = session->network->graph;
    fth_device *device = session->device;
    size_t parameter_floats = fth_graph_parameter_floats(graph), buffer_floats = fth_graph_buffer_floats(graph);

    *result = (op_result){.logit_count = count_of(session->network, fth_graph_logits(graph))};
    result->logits = zeroed(result->logit_count, sizeof(float));
    result->buffers = zeroed(buffer_floats, sizeof(float));
    op_check(fth_plan_get_output(session->plan, fth_graph_logits(graph), result->logits));
    op_check(fth_plan_get_output(session->plan, fth_graph_loss(graph), result->loss));
    op_check(
        device->backend->copy_out(device, result->buffers, session->vectors.buffers, buffer_floats * sizeof(float)));
    if (session->vectors.gradients != NULL) {
        result->gradients = zeroed(parameter_floats, sizeof(float));
        op_check(device->backend->copy_out(device, result->gradients, session->vectors.gradients,
                                           parameter_floats * sizeof(float)));
    }
}

void op_session_close(op_session *session)
{
    if (session->device == NULL)
        return;
    const fth_backend *backend = session->device->backend;
    fth_plan_free(session->plan);
    backend->release(session->device, session->arena);
    backend->release(session->device, session->vectors.parameters);
    backend->release(session->device, session->vectors.buffers);
    if (session->vectors.gradients != NULL)
        backend->release(session->device, session->vectors.gradients);
    *session = (op_session){0};
}

void op_result_free(op_result *result)
{
    free(result->logits);
    free(result->gradients);
    free(result->buffers);
    *result = (op_result){0};
}

void op_run_once(const op_network *network, fth_device *device, fth_plan_mode mode, fth_precision precision,
                 const fth_run *run, op_result *result)
{
    op_session session;
    op_session_open(&session, network, device, mode, precision);
    op_session_run(&session, run);
    op_session_read(&session, result);
    op_session_close(&session);
}

/* ---- comparing ---- */

static double euclidean(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * values[i];
    return sqrt(sum);
}

double op_relative_error(const float *a, const float *b, size_t count, double floor)
{
    double difference = 0;
    for (size_t i = 0; i < count; i++)
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    double size = euclidean(b, count);
    size = size < floor ? floor : size;
    return difference == 0 ? 0 : sqrt(difference) / size;
}

/* f32: each addition rounds by up to 2^-24 of the sum so far, and errors of a sum of n terms grow
 * like sqrt(n); a handful of such sums follow one another, Winograd's transforms among them, which
 * cost another factor of about ten.
 *
 * bf16: values between ops are rounded to 8 bits, 2^-9 on average, about ten times in a row: 0.6 %,
 * or twice that for a tensor of a few elements (1.2 % is the most that was seen). f16 and tf32 have
 * three bits more. */
static double tolerance(const op_network *network, fth_precision precision)
{
    if (precision == FTH_PRECISION_F32)
        return 0x1p-24 * (16 + 4 * sqrt((double)network->reduction));
    return 0.025;
}

/* Where an element lies within bf16's rounding of a kink its gradient goes another way as a whole:
 * about 2^-8 of them, which is 2^-4 in the Euclidean norm, and twice that behind a few layers (14 %
 * was seen). What hides behind this shows in the cases without kinks. */
static double gradient_tolerance(const op_network *network, fth_precision precision)
{
    return precision != FTH_PRECISION_F32 && network->kinks ? 0.15 : tolerance(network, precision);
}

static int compare_part(const char *who, const char *part, const float *found, const float *wanted, size_t count,
                        double floor, double limit)
{
    double error = op_relative_error(found, wanted, count, floor);
    if (getenv("OP_VERBOSE") != NULL)
        print_message("  %s: %s: relative error %.2e of %.2e\n", who, part, error, limit);
    if (error <= limit)
        return 0;
    print_message("  DIFFERS %s: %s: relative error %.2e, limit %.2e\n", who, part, error, limit);
    return 1;
}

int op_compare(const op_network *network, const op_result *found, const op_result *wanted, fth_precision precision,
               const char *who)
{
    const fth_graph *graph = network->graph;
    const double limit = tolerance(network, precision), gradient_limit = gradient_tolerance(network, precision);
    /* A gradient that is zero by the mathematics (a bias before a batch norm) is rounding noise:
     * measure it by the whole. */
    const double floor =
        wanted->gradients != NULL ? 0.1 * euclidean(wanted->gradients, fth_graph_parameter_floats(graph)) : 0;
    int differences = 0;

    differences += compare_part(who, "logits", found->logits, wanted->logits, wanted->logit_count, 0, limit);
    differences += compare_part(who, "loss", found->loss, wanted->loss, 1, 0, limit);
    if (precision == FTH_PRECISION_F32 && found->loss[1] != wanted->loss[1]) {
        print_message("  DIFFERS %s: %g correct predictions, not %g\n", who, found->loss[1], wanted->loss[1]);
        differences++;
    }
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        size_t count = info->kind == FTH_VALUE_PARAMETER || info->kind == FTH_VALUE_BUFFER
                           ? (size_t)fth_shape_count(&info->type.shape)
                           : 0;
        if (info->kind == FTH_VALUE_PARAMETER && wanted->gradients != NULL)
            differences += compare_part(who, info->name, found->gradients + info->offset,
                                        wanted->gradients + info->offset, count, floor, gradient_limit);
        if (info->kind == FTH_VALUE_BUFFER)
            differences += compare_part(who, info->name, found->buffers + info->offset, wanted->buffers + info->offset,
                                        count, 0, limit);
    }
    return differences;
}

/* ---- differences ---- */

static double softmax_cross_entropy(const op_network *network, const float *logits, int64_t rows, int64_t classes)
{
    double total = 0, smoothing = network->label_smoothing;
    int64_t count = 0;
    for (int64_t n = 0; n < rows; n++) {
        if (network->labels[n] == FTH_IGNORED_LABEL)
            continue;
        count++;
        const float *z = logits + n * classes;
        double sum = 0, mean = 0;
        for (int64_t c = 0; c < classes; c++) {
            sum += exp((double)z[c]);
            mean += (double)z[c] / (double)classes;
        }
        total += log(sum) - (1 - smoothing) * z[network->labels[n]] - smoothing * mean;
    }
    return total / (double)count;
}

/* The other losses, of targets, by their formulas. */
static double target_loss(const fth_op *op, const float *outputs, const float *targets, size_t count)
{
    double total = 0;
    for (size_t i = 0; i < count; i++) {
        const double difference = (double)outputs[i] - targets[i], p = 1 / (1 + exp(-(double)outputs[i]));
        total += op == &fth_op_squared_error ? difference * difference
                                             : -targets[i] * log(p) - (1 - targets[i]) * log(1 - p);
    }
    return total / (double)count;
}

/* The loss in double from f32 logits: the loss itself has too few digits to take differences of. */
static double loss_of(const op_network *network, const float *logits)
{
    const fth_graph *graph = network->graph;
    const int64_t classes = fth_graph_value(graph, fth_graph_logits(graph))->type.shape.dims[1];
    const size_t count = count_of(network, fth_graph_logits(graph));
    const fth_op *op = fth_graph_node(graph, fth_graph_value(graph, fth_graph_loss(graph))->producer)->op;
    if (op == &fth_op_softmax_cross_entropy)
        return softmax_cross_entropy(network, logits, (int64_t)count / classes, classes);
    const fth_value targets = fth_graph_find(graph, "targets");
    for (int i = 0; i < network->input_count; i++)
        if (network->inputs[i].value == targets)
            return target_loss(op, logits, network->inputs[i].data, count);
    fail_msg("the network has no targets");
    return 0;
}

static double loss_at(op_session *session, const fth_run *run, float *logits)
{
    const fth_graph *graph = session->network->graph;
    op_session_run(session, run);
    op_check(fth_plan_get_output(session->plan, fth_graph_logits(graph), logits));
    return loss_of(session->network, logits);
}

/* (loss(p + step) - loss(p - step)) / 2 step, in element `at` of the parameters. */
static double slope(op_network *network, op_session *session, const fth_run *run, size_t at, float step, float *logits)
{
    const float kept = network->parameters[at];
    const float high = kept + step, low = kept - step; /* rounded: their distance is what counts */
    network->parameters[at] = high;
    const double above = loss_at(session, run, logits);
    network->parameters[at] = low;
    const double below = loss_at(session, run, logits);
    network->parameters[at] = kept;
    return (above - below) / ((double)high - low);
}

enum { DIFFERENCE_SAMPLES = 4, DIFFERENCE_TRIALS = 16 };

/* Balances the third derivative against the logits' rounding, 2^-24 / step. */
static const float difference_step = 2e-3f;

/* Compares a few random elements of one parameter's gradient, measured by `unit`, the size of an
 * average element. Between p - step and p + step may lie a kink: it shows in a slope that depends
 * on the step, and such elements are passed over. */
static int check_parameter(op_network *network, op_session *session, const fth_run *run, fth_value parameter,
                           const op_result *result, double unit, const char *who)
{
    const fth_value_info *info = fth_graph_value(network->graph, parameter);
    const uint64_t count = (uint64_t)fth_shape_count(&info->type.shape);
    const fth_random_key key = fth_random_fork(fth_random_key_for(11, FTH_RANDOM_GENERATE), (uint64_t)parameter);
    const double limit = network->kinks ? 2e-2 : 5e-3;
    float measured[DIFFERENCE_SAMPLES], computed[DIFFERENCE_SAMPLES];
    size_t samples = 0;
    for (uint64_t trial = 0; trial < DIFFERENCE_TRIALS && samples < DIFFERENCE_SAMPLES; trial++) {
        size_t at = info->offset + fth_random_below(key, trial, count);
        double wide = slope(network, session, run, at, difference_step, result->logits);
        if (network->kinks) {
            double narrow = slope(network, session, run, at, difference_step / 4, result->logits);
            if (fabs(wide - narrow) > limit * (fabs(wide) + unit))
                continue;
        }
        measured[samples] = (float)wide;
        computed[samples++] = result->gradients[at];
    }
    if (samples == 0) {
        print_message("  DIFFERS %s: %s: the loss has no slope to compare with\n", who, info->name);
        return 1;
    }
    return compare_part(who, info->name, computed, measured, samples, unit * sqrt((double)samples), limit);
}

int op_check_differences(op_network *network, fth_device *device, const char *who)
{
    const fth_graph *graph = network->graph;
    const fth_run run = {.seed = 3, .step = 7, .gradient_scale = 1};
    int differences = 0;
    op_session session;
    op_result result;

    op_session_open(&session, network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32);
    op_session_run(&session, &run);
    op_session_read(&session, &result);
    /* Gradients that are zero by the mathematics (a bias before a batch norm) are measured by a
     * tenth of the average. */
    const double unit = 0.1 * euclidean(result.gradients, fth_graph_parameter_floats(graph)) /
                        sqrt((double)fth_graph_trainable_count(graph));
    const double loss = loss_of(network, result.logits);
    if (fabs(loss - result.loss[0]) > 1e-6 * (1 + fabs(loss))) {
        print_message("  DIFFERS %s: loss %g, by its definition %g\n", who, result.loss[0], loss);
        differences++;
    }
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++)
        if (fth_graph_value(graph, v)->kind == FTH_VALUE_PARAMETER)
            differences += check_parameter(network, &session, &run, v, &result, unit, who);
    op_result_free(&result);
    op_session_close(&session);
    return differences;
}
