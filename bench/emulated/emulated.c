/* The emulated back end's table, its device, and the step that every op shares: see emulated.h.
 *
 * A run's steps end at moments counted from its beginning, so that one that wakes late takes
 * nothing from the next. What the caller does between two steps (gradients_ready) moves the moments
 * that follow: it would also delay a processor that computes. */
#include "emulated.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/plain/plain.h"

typedef struct emulated_device {
    fth_device device; /* first */
    emulated_settings settings;
    int trace; /* file of passes; -1: none */
    /* Of the run under way. */
    int64_t began_ns; /* from which the schedule counts */
    int64_t left_ns;  /* when the last step ended */
    double mean;      /* over the batch's samples: each is a number in [0, 1) */
    int64_t upper;    /* samples of at least 0.5 */
} emulated_device;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_until(int64_t at_ns)
{
    struct timespec at = {.tv_sec = (time_t)(at_ns / 1000000000), .tv_nsec = (long)(at_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

/* ---- device ---- */

static fth_status emulated_open(const fth_device_options *options, fth_device **device)
{
    fth_status status = FTH_OK;
    emulated_device *opened = NULL;

    (void)options; /* it computes nothing */
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    opened->trace = -1;
    FTH_TRY(emulated_settings_read(&opened->settings));
    if (*opened->settings.trace) {
        opened->trace = open(opened->settings.trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        FTH_REQUIRE(opened->trace >= 0, FTH_IO, "open %s: %s", opened->settings.trace, strerror(errno));
    }
    opened->device.backend = &fth_backend_plugin;
    opened->device.threads = 1;
    snprintf(opened->device.description, sizeof opened->device.description, "emulated: waits, %s",
             opened->settings.text);
    *device = &opened->device;
    opened = NULL;
out:
    free(opened);
    return status;
}

static void emulated_close(fth_device *device)
{
    emulated_device *closed = (emulated_device *)device;
    if (closed->trace >= 0)
        close(closed->trace);
    free(closed);
}

static void emulated_enter(fth_device *device, int threads)
{
    (void)device;
    (void)threads;
}

static fth_status emulated_allocate(fth_device *device, size_t size_bytes, void **memory)
{
    (void)device;
    return fth_allocate_aligned(size_bytes, memory);
}

static void emulated_release(fth_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static fth_status emulated_copy(fth_device *device, void *to, const void *from, size_t size_bytes)
{
    (void)device;
    if (size_bytes > 0)
        memmove(to, from, size_bytes);
    return FTH_OK;
}

static fth_status emulated_fill_zero(fth_device *device, void *memory, size_t size_bytes)
{
    (void)device;
    if (size_bytes > 0)
        memset(memory, 0, size_bytes);
    return FTH_OK;
}

static fth_status emulated_synchronize(fth_device *device, fth_deadline deadline)
{
    (void)device;
    (void)deadline;
    return FTH_OK; /* everything is done by the time a call returns */
}

static fth_status emulated_check_precision(fth_device *device, fth_precision precision)
{
    (void)device;
    if (precision != FTH_PRECISION_F32)
        return fth_fail(FTH_UNSUPPORTED, "the emulated back end has f32 only; use --precision f32");
    return FTH_OK;
}

/* ---- values: inputs, outputs and flat vectors have memory, what would be computed between them has none
 * ---- */

static fth_status describe(fth_plan *plan, fth_plan_value value, fth_type type, bool empty)
{
    size_t size_bytes = (size_t)fth_shape_count(&type.shape) * fth_dtype_size_bytes(type.dtype);
    return fth_plan_set_layout(plan, value, &type, sizeof type, empty ? 0 : size_bytes);
}

static fth_status describe_plain(fth_plan *plan, fth_value value)
{
    return describe(plan, fth_plan_value_of(plan, value), fth_plan_type(plan, value), false);
}

/* ---- steps ---- */

/* Memory that a step fills: a gradient, the logits or the loss. */
typedef struct filled {
    enum { FILLED_GRADIENT, FILLED_LOGITS, FILLED_LOSS } kind;
    fth_plan_value value;
    size_t floats;
    float *data;
} filled;

typedef struct emulated_step {
    emulated_device *device;
    double ends_s; /* after the beginning of the run */
    bool first, training;
    int filled_count;
    filled fills[4];
    /* Of the first step: the batch. */
    fth_value images, labels;
    const float *image_data;
    const int32_t *label_data;
    int64_t batch, image_floats;
} emulated_step;

/* What kernels are given while a plan is made. */
typedef struct emulated_notes {
    double *node_seconds;
    double so_far_s;
    int next_node;
} emulated_notes;

/* A number in [0, 1) that follows from a sample's label and some of its pixels. */
static double number_of_sample(const float *image, int64_t floats, int32_t label)
{
    enum { PIXELS = 64 };
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uint32_t)label;
    int64_t stride = floats > PIXELS ? floats / PIXELS : 1;
    for (int64_t i = 0; i < floats; i += stride) {
        uint32_t bits;
        memcpy(&bits, &image[i], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return (double)(hash >> 11) / (double)(UINT64_C(1) << 53);
}

static void look_at_batch(const emulated_step *step)
{
    emulated_device *device = step->device;
    double sum = 0;
    device->upper = 0;
    for (int64_t i = 0; i < step->batch; i++) {
        double number =
            number_of_sample(step->image_data + i * step->image_floats, step->image_floats, step->label_data[i]);
        sum += number;
        device->upper += number >= 0.5;
    }
    device->mean = sum / (double)step->batch;
}

/* A line for each training pass: seconds on the monotonic clock, process, batch, its samples, their
 * mean, and how many are of at least 0.5. One write, so that processes can share the file. */
static void trace_pass(const emulated_device *device, int64_t batch, uint64_t number)
{
    char line[160];
    int length =
        snprintf(line, sizeof line, "%.6f %d %llu %lld %.17g %lld\n", 1e-9 * (double)device->began_ns, (int)getpid(),
                 (unsigned long long)number, (long long)batch, device->mean, (long long)device->upper);
    if (write(device->trace, line, (size_t)length) != length)
        fth_log_warning("cannot write to %s: %s", device->settings.trace, strerror(errno));
}

/* Small gradients, not all the same, that add up over workers as a mean's parts do. */
static void fill_gradient(float *gradient, size_t floats, float value)
{
    float pattern[16];
    for (int i = 0; i < 16; i++)
        pattern[i] = value * (float)(i + 1);
    for (size_t i = 0; i < floats; i++)
        gradient[i] = pattern[i & 15];
}

static void fill(const filled *area, const emulated_device *device, const fth_run *run)
{
    if (area->kind == FILLED_GRADIENT) {
        fill_gradient(area->data, area->floats, (float)((device->mean - 0.5) * 1e-4) * run->gradient_scale);
    } else if (area->kind == FILLED_LOSS) {
        area->data[0] = (float)device->mean;
        area->data[1] = (float)device->upper;
    } else {
        memset(area->data, 0, area->floats * sizeof *area->data);
    }
}

static fth_status bind_step(void *state, const fth_plan *plan)
{
    emulated_step *step = state;
    for (int i = 0; i < step->filled_count; i++)
        step->fills[i].data = fth_plan_data(plan, step->fills[i].value);
    if (step->first) {
        step->image_data = fth_plan_data(plan, fth_plan_value_of(plan, step->images));
        step->label_data = fth_plan_data(plan, fth_plan_value_of(plan, step->labels));
    }
    return FTH_OK;
}

static fth_status run_step(void *state, const fth_run *run)
{
    const emulated_step *step = state;
    emulated_device *device = step->device;
    int64_t now = now_ns();
    if (step->first) {
        device->began_ns = now;
        look_at_batch(step);
        if (step->training && device->trace >= 0)
            trace_pass(device, step->batch, run->step);
    } else {
        device->began_ns += now - device->left_ns;
    }
    for (int i = 0; i < step->filled_count; i++)
        fill(&step->fills[i], device, run);
    sleep_until(device->began_ns + (int64_t)(step->ends_s * 1e9));
    device->left_ns = now_ns();
    return FTH_OK;
}

static fth_status plan_begin(fth_plan *plan, void **notes)
{
    fth_status status = FTH_OK;
    emulated_notes *made = NULL;
    const emulated_device *device = (const emulated_device *)fth_plan_device(plan);

    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    FTH_TRY(emulated_schedule_make(&device->settings, fth_plan_graph(plan), fth_plan_get_options(plan).batch,
                                   &made->node_seconds));
    *notes = made;
    made = NULL;
out:
    free(made);
    return status;
}

static fth_status plan_end(fth_plan *plan, void *notes, bool failed)
{
    emulated_notes *made = notes;
    (void)plan;
    (void)failed;
    if (made)
        free(made->node_seconds);
    free(made);
    return FTH_OK;
}

static const fth_backend_planning planning = {.plan_begin = plan_begin, .plan_end = plan_end};

/* Gives an output its memory, if it needs any, and notes what the step fills. */
static fth_status prepare_output(fth_plan *plan, fth_value value, emulated_step *step)
{
    fth_status status = FTH_OK;
    const fth_graph *graph = fth_plan_graph(plan);
    fth_plan_value place = fth_plan_value_of(plan, value);
    fth_type type = fth_plan_type(plan, value);
    filled area = {.value = place, .floats = (size_t)fth_shape_count(&type.shape)};

    if (!fth_plan_layout(plan, place)) { /* described are inputs, outputs and flat vectors */
        status = describe(plan, place, type, true);
        goto out;
    }
    if (value == fth_graph_loss(graph))
        area.kind = FILLED_LOSS;
    else if (value == fth_graph_logits(graph))
        area.kind = FILLED_LOGITS;
    else
        area.kind = FILLED_GRADIENT;
    FTH_REQUIRE(step->filled_count < (int)FTH_COUNT_OF(step->fills), FTH_UNSUPPORTED,
                "the emulated back end knows no node with %d gradients", step->filled_count + 1);
    step->fills[step->filled_count++] = area;
out:
    return status;
}

static fth_status prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    emulated_step *made = NULL;
    emulated_notes *notes = fth_plan_notes(plan);
    const fth_graph *graph = fth_plan_graph(plan);
    fth_step step = {.bind = bind_step, .run = run_step, .release = free};

    FTH_REQUIRE(node->input_count <= FTH_MAX_STEP_VALUES && node->output_count <= FTH_MAX_STEP_VALUES, FTH_UNSUPPORTED,
                "%s with %d inputs: the emulated back end takes at most %d", node->op->name, node->input_count,
                FTH_MAX_STEP_VALUES);
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->device = (emulated_device *)fth_plan_device(plan);
    made->first = notes->next_node == 0;
    made->training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN;
    notes->so_far_s += notes->node_seconds[notes->next_node++];
    made->ends_s = notes->so_far_s;
    for (int i = 0; i < node->input_count; i++)
        step.reads[step.read_count++] = fth_plan_value_of(plan, node->inputs[i]);
    for (int i = 0; i < node->output_count; i++) {
        FTH_TRY(prepare_output(plan, node->outputs[i], made));
        step.writes[step.write_count++] = fth_plan_value_of(plan, node->outputs[i]);
    }
    if (made->first) {
        made->images = fth_graph_find(graph, "images");
        made->labels = fth_graph_find(graph, "labels");
        FTH_REQUIRE(made->images != FTH_NO_VALUE && made->labels != FTH_NO_VALUE, FTH_UNSUPPORTED,
                    "the emulated back end needs a graph of images and labels");
        fth_shape images = fth_plan_type(plan, made->images).shape;
        made->batch = images.dims[0];
        made->image_floats = fth_shape_count(&images) / images.dims[0];
    }
    snprintf(step.name, sizeof step.name, "%s, emulated", node->op->name);
    step.state = made;
    made = NULL; /* the plan's from here on */
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    free(made);
    return status;
}

/* ---- the table ---- */

#define KERNEL(name) static const fth_kernel kernel_##name = {.op = &fth_op_##name, .prepare = prepare};
#define ACTIVATION(name)                                                                                               \
    KERNEL(name)                                                                                                       \
    KERNEL(name##_grad)
FTH_OPS(KERNEL)
FTH_ACTIVATIONS(ACTIVATION)

static const fth_kernel *const kernels[] = {
#define ROW(name)            &kernel_##name,
#define ACTIVATION_ROW(name) &kernel_##name, &kernel_##name##_grad,
    FTH_OPS(ROW) FTH_ACTIVATIONS(ACTIVATION_ROW) NULL,
};

const fth_backend fth_backend_plugin = {
    .abi = FTH_BACKEND_ABI,
    .name = "emulated",
    .host_memory = true,
    .open = emulated_open,
    .close = emulated_close,
    .enter = emulated_enter,
    .allocate = emulated_allocate,
    .release = emulated_release,
    .copy_in = emulated_copy,
    .copy_out = emulated_copy,
    .fill_zero = emulated_fill_zero,
    .synchronize = emulated_synchronize,
    .add = plain_add_vectors,
    .norm = plain_norm,
    .updates = plain_updates,
    .kernels = kernels,
    .check_precision = emulated_check_precision,
    .describe_plain = describe_plain,
    .planning = &planning,
};
