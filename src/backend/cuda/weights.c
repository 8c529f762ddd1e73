/* Weights out of the flat vector and their gradients back into it: casts and transposes of many
 * tensors in one launch.
 *
 * All weights and biases of a plan are cast in its first steps, up to a step's number of values at
 * a time, so a network of a hundred tensors costs a few launches. Gradients wait until enough have
 * come together, or the plan ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/depthwise.h"
#include "backend/cuda/recording.h"
#include "backend/cuda/weights.h"

enum { CASTS_PER_STEP = 30, WAITING_ELEMENTS = 8 << 20 };

/* A tensor to be cast. */
typedef struct pending_cast {
    fth_plan_value from, to;
    size_t to_offset; /* bytes: of several that are cast into one */
    cuda_cast cast;
} pending_cast;

/* What is noted while a plan is made. */
typedef struct plan_notes {
    bool weights_cast;
    pending_cast gradients[CASTS_PER_STEP]; /* that wait */
    int gradient_count;
    int64_t gradient_elements;
} plan_notes;

typedef struct cast_step {
    cuda_device *device;
    bool gradients;
    int count;
    int64_t chunks;
    cuda_cast *table; /* device memory */
    cuda_cast entries[CASTS_PER_STEP];
    size_t to_offsets[CASTS_PER_STEP];
    fth_plan_value from[CASTS_PER_STEP], to[CASTS_PER_STEP];
} cast_step;

static void release_casts(void *state)
{
    cast_step *step = state;
    if (step && step->table && !step->device->lost)
        cudaFree(step->table);
    free(step);
}

static fth_status bind_casts(void *state, const fth_plan *plan)
{
    fth_status status = FTH_OK;
    cast_step *step = state;
    for (int i = 0; i < step->count; i++) {
        step->entries[i].from = fth_plan_data(plan, step->from[i]);
        step->entries[i].to = (char *)fth_plan_data(plan, step->to[i]) + step->to_offsets[i];
    }
    if (!step->table)
        CUDA_TRY(cudaMalloc((void **)&step->table, sizeof step->entries));
    /* Runs that are still queued read the table: let them end. */
    FTH_TRY(cuda_synchronize(&step->device->base, cuda_deadline(step->device)));
    CUDA_TRY(
        cudaMemcpy(step->table, step->entries, (size_t)step->count * sizeof step->entries[0], cudaMemcpyHostToDevice));
out:
    return status;
}

static fth_status run_casts(void *state, const fth_run *run)
{
    (void)run;
    const cast_step *step = state;
    cudaStream_t stream = step->device->launch.stream;
    return cuda_status(step->gradients ? cuda_launch_cast_gradients(stream, step->table, step->count, step->chunks)
                                       : cuda_launch_cast_weights(stream, step->table, step->count, step->chunks),
                       "casting weights");
}

static fth_status add_casts(fth_plan *plan, bool gradients, const pending_cast *casts, int count)
{
    fth_status status = FTH_OK;
    cast_step *state = NULL;
    fth_step step = {.bind = bind_casts, .run = run_casts, .release = release_casts};
    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    state->device = cuda_device_of(plan);
    state->gradients = gradients;
    state->count = count;
    for (int i = 0; i < count; i++) {
        const cuda_cast *c = &casts[i].cast;
        int64_t taps = c->spread.how == CUDA_FOLDED    ? c->spread.taps
                       : c->spread.how == CUDA_PATCHES ? 1
                                                       : (int64_t)c->height * c->width;
        int64_t elements = gradients ? (int64_t)c->outputs * c->inputs * c->height * c->width
                                     : (int64_t)c->physical_outputs * taps * c->physical_inputs;
        state->entries[i] = *c;
        state->entries[i].first_chunk = state->chunks;
        state->chunks += (elements + CUDA_CAST_CHUNK - 1) / CUDA_CAST_CHUNK;
        state->from[i] = casts[i].from;
        state->to[i] = casts[i].to;
        state->to_offsets[i] = casts[i].to_offset;
        step.reads[step.read_count++] = casts[i].from;
        step.writes[step.write_count++] = casts[i].to;
    }
    snprintf(step.name, sizeof step.name, "%s of %d tensors", gradients ? "cast gradients" : "cast weights", count);
    step.state = state;
    state = NULL;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    return status;
}

static cuda_cast describe(const cuda_layout *l)
{
    return (cuda_cast){.outputs = l->n,
                       .inputs = l->c,
                       .height = l->h,
                       .width = l->w,
                       .physical_outputs = l->batch,
                       .physical_inputs = l->channels,
                       .spread = l->spread,
                       .type = (int)l->type};
}

/* ---- layouts of a convolution ---- */

/* How the images are spread for a first layer (kernels.h): cuDNN's engines for few channels are
 * slow, 1.8 ms instead of 0.4 for ResNet's first in bf16. Small kernels become patches, larger ones
 * of stride 2 are folded. */
static cuda_spreading spread_for(const fth_plan *plan, const fth_convolution_attributes *a, fth_value x)
{
    enum { MOST_PATCH_CHANNELS = 80 };
    const cuda_spreading none = {.how = CUDA_NOT_SPREAD};
    const fth_value_info *info = fth_graph_value(fth_plan_graph(plan), x);
    const int64_t *dims = info->type.shape.dims; /* (N, C, H, W) */
    if (cuda_compute_type(plan) == CUDA_TYPE_F32 || info->kind != FTH_VALUE_INPUT || dims[1] > 4 || a->groups != 1 ||
        a->dilation[0] != 1 || a->dilation[1] != 1 || a->kernel[0] != a->kernel[1] || a->padding[0] != a->padding[1] ||
        a->stride[0] != a->stride[1])
        return none;
    cuda_spreading s = {.kernel = a->kernel[0], .stride = a->stride[0], .padding = a->padding[0]};
    s.out_height = (int)(dims[2] + 2 * s.padding - s.kernel) / s.stride + 1;
    s.out_width = (int)(dims[3] + 2 * s.padding - s.kernel) / s.stride + 1;
    if (s.kernel * s.kernel * dims[1] <= MOST_PATCH_CHANNELS) {
        s.how = CUDA_PATCHES;
    } else if (s.stride == 2 && s.kernel > s.padding) {
        s.how = CUDA_FOLDED;
        s.before = (s.padding + 1) / 2;
        s.taps = (s.kernel - 1 - s.padding) / 2 + s.before + 1;
        s.offset = 2 * s.before - s.padding;
    }
    return s.how == CUDA_NOT_SPREAD ? none : s;
}

cuda_layout cuda_convolution_input(const fth_plan *plan, const fth_convolution_attributes *a, fth_value x)
{
    cuda_layout l = cuda_standard(plan, x);
    fth_type type = fth_plan_type(plan, x);
    if (a->groups > 1)
        return cuda_channels_last(&type.shape, l.type, l.c);
    const cuda_spreading spread = spread_for(plan, a, x);
    if (spread.how != CUDA_NOT_SPREAD) {
        l.nhwc = true;
        l.spread = spread;
        l.channels = spread.how == CUDA_FOLDED ? 16 * spread.taps
                                               : (int)fth_align_up((size_t)(spread.kernel * spread.kernel * l.c), 8);
    }
    return l;
}

cuda_layout cuda_convolution_output(const fth_plan *plan, const fth_convolution_attributes *a, fth_value y)
{
    cuda_layout l = cuda_standard(plan, y);
    fth_type type = fth_plan_type(plan, y);
    /* An image, which a transposed convolution may read here, has fewer channels of padding. */
    const int channels = a->groups > 1 ? l.c : cuda_padded_channels(l.type, l.c, false);
    return cuda_channels_last(&type.shape, l.type, channels);
}

cuda_layout cuda_weight_layout(const fth_plan *plan, const fth_convolution_attributes *a, const fth_shape *weight,
                               fth_value x)
{
    cuda_type compute = cuda_compute_type(plan);
    int outputs = (int)weight->dims[0];
    if (a->groups > 1)
        return cuda_channels_last(weight, compute, (int)weight->dims[1]);
    cuda_layout input = cuda_convolution_input(plan, a, x);
    cuda_layout l = cuda_channels_last(weight, compute, input.channels);
    l.batch = cuda_padded_channels(compute, outputs, false);
    l.nhwc = l.nhwc || l.batch != l.n;
    if (input.spread.how != CUDA_NOT_SPREAD) {
        l.nhwc = true;
        l.is_weight = true;
        l.spread = input.spread;
    }
    return l;
}

cuda_layout cuda_bias_layout(const fth_plan *plan, int channels, fth_value bias)
{
    fth_shape shape = fth_plan_type(plan, bias).shape;
    return cuda_channels_last(&shape, cuda_compute_type(plan), channels);
}

/* ---- weights ---- */

/* `value` as `wanted`, itself or a copy; none if there is no such copy yet. */
static fth_plan_value find_copy(const fth_plan *plan, fth_plan_value value, const cuda_layout *wanted)
{
    fth_plan_value copy = value;
    if (cuda_layout_equal(cuda_layout_of(plan, value), wanted))
        return value;
    for (copy = fth_plan_next_copy(plan, value, FTH_NO_PLAN_VALUE); fth_plan_value_exists(copy);
         copy = fth_plan_next_copy(plan, value, copy))
        if (cuda_layout_equal(cuda_layout_of(plan, copy), wanted))
            break;
    return copy;
}

/* Adds to the casts, and makes a step of them when there are enough. */
static fth_status collect_one(fth_plan *plan, const pending_cast *cast, pending_cast *casts, int *count)
{
    fth_status status = FTH_OK;
    casts[(*count)++] = *cast;
    if (*count == CASTS_PER_STEP) {
        FTH_TRY(add_casts(plan, false, casts, *count));
        *count = 0;
    }
out:
    return status;
}

static fth_status collect(fth_plan *plan, fth_value parameter, const cuda_layout *wanted, pending_cast *casts,
                          int *count)
{
    fth_status status = FTH_OK;
    const fth_plan_value from = fth_plan_value_of(plan, parameter);
    fth_plan_value copy;
    if (fth_plan_storage(plan, from) != FTH_IN_PARAMETERS || fth_plan_value_exists(find_copy(plan, from, wanted)))
        return FTH_OK;
    FTH_TRY(fth_plan_add_value(plan, &copy));
    FTH_TRY(cuda_set_layout(plan, copy, wanted));
    fth_plan_note_copy(plan, copy, from);
    FTH_TRY(collect_one(plan, &(pending_cast){.from = from, .to = copy, .cast = describe(wanted)}, casts, count));
out:
    return status;
}

/* The layout of `several` tensors like `parameter`, one behind the other. */
static cuda_layout joined_layout(const fth_plan *plan, fth_value parameter, int several, cuda_type type)
{
    fth_shape shape = fth_plan_type(plan, parameter).shape;
    shape.dims[0] *= several;
    return cuda_plain(&shape, type);
}

/* The same for `several` that are cast into one, which counts as a copy of the first. */
static fth_status collect_joined(fth_plan *plan, const fth_value *parameters, int several, cuda_type type,
                                 pending_cast *casts, int *count)
{
    fth_status status = FTH_OK;
    const cuda_layout joined = joined_layout(plan, parameters[0], several, type);
    const cuda_layout each = joined_layout(plan, parameters[0], 1, type);
    fth_plan_value copy;
    if (fth_plan_value_exists(find_copy(plan, fth_plan_value_of(plan, parameters[0]), &joined)))
        return FTH_OK;
    FTH_TRY(fth_plan_add_value(plan, &copy));
    FTH_TRY(cuda_set_layout(plan, copy, &joined));
    fth_plan_note_copy(plan, copy, fth_plan_value_of(plan, parameters[0]));
    for (int i = 0; i < several; i++) {
        const pending_cast cast = {.from = fth_plan_value_of(plan, parameters[i]),
                                   .to = copy,
                                   .to_offset = (size_t)i * (size_t)cuda_layout_elements(&each) * cuda_type_size(type),
                                   .cast = describe(&each)};
        FTH_TRY(collect_one(plan, &cast, casts, count));
    }
out:
    return status;
}

static fth_status cast_all(fth_plan *plan)
{
    fth_status status = FTH_OK;
    const fth_graph *graph = fth_plan_graph(plan);
    pending_cast casts[CASTS_PER_STEP];
    int count = 0;
    for (int n = 0; n < fth_graph_forward_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        if (node->op == &fth_op_qkv_linear) {
            FTH_TRY(collect_joined(plan, &node->inputs[1], 3, cuda_compute_type(plan), casts, &count));
            FTH_TRY(collect_joined(plan, &node->inputs[4], 3, cuda_compute_type(plan), casts, &count));
        }
        const bool transposed = node->op == &fth_op_convolution_grad_input;
        if (node->op != &fth_op_convolution && !transposed && node->op != &fth_op_linear)
            continue;
        fth_shape weight = fth_plan_type(plan, node->inputs[1]).shape;
        if (node->op != &fth_op_linear && cuda_depthwise_fits(node->attributes, &weight))
            continue; /* has its own */
        const fth_value image = transposed ? node->outputs[0] : node->inputs[0];
        cuda_layout layout = node->op == &fth_op_linear ? cuda_plain(&weight, cuda_compute_type(plan))
                                                        : cuda_weight_layout(plan, node->attributes, &weight, image);
        FTH_TRY(collect(plan, node->inputs[1], &layout, casts, &count));
        if (node->input_count > 2) {
            cuda_layout bias =
                cuda_bias_layout(plan, node->op == &fth_op_convolution ? layout.batch : layout.n, node->inputs[2]);
            FTH_TRY(collect(plan, node->inputs[2], &bias, casts, &count));
        }
    }
    if (count > 0)
        FTH_TRY(add_casts(plan, false, casts, count));
out:
    return status;
}

static fth_status cast_once(fth_plan *plan)
{
    plan_notes *notes = fth_plan_notes(plan);
    if (notes->weights_cast)
        return FTH_OK;
    notes->weights_cast = true;
    return cast_all(plan);
}

fth_status cuda_read_weights(fth_plan *plan, const fth_value *parameters, int count, cuda_type type, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    const cuda_layout joined = joined_layout(plan, parameters[0], count, type);
    pending_cast casts[CASTS_PER_STEP];
    int more = 0;
    FTH_TRY(cast_once(plan));
    FTH_TRY(collect_joined(plan, parameters, count, type, casts, &more)); /* nothing, unless it is of another kind */
    if (more > 0)
        FTH_TRY(add_casts(plan, false, casts, more));
    *as = find_copy(plan, fth_plan_value_of(plan, parameters[0]), &joined);
out:
    return status;
}

fth_status cuda_read_weight(fth_plan *plan, fth_value parameter, const cuda_layout *wanted, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    pending_cast one;
    int count = 0;
    FTH_TRY(cast_once(plan));
    if (fth_plan_storage(plan, fth_plan_value_of(plan, parameter)) == FTH_IN_PARAMETERS) {
        FTH_TRY(collect(plan, parameter, wanted, &one, &count)); /* nothing, unless it is of another kind */
        if (count > 0)
            FTH_TRY(add_casts(plan, false, &one, 1));
    }
    FTH_TRY(cuda_read_as(plan, fth_plan_value_of(plan, parameter), wanted, as));
out:
    return status;
}

/* ---- gradients ---- */

bool cuda_gradients_in_a_row(const fth_plan *plan, const fth_value *gradients, int count)
{
    const fth_graph *graph = fth_plan_graph(plan);
    size_t end = 0;
    for (int i = 0; i < count; i++) {
        if (fth_plan_storage(plan, fth_plan_value_of(plan, gradients[i])) != FTH_IN_GRADIENTS)
            return false;
        const fth_value_info *info = fth_graph_value(graph, gradients[i]);
        const size_t offset = fth_graph_value(graph, info->gradient_of)->offset;
        if (i > 0 && offset != end)
            return false;
        end = offset + (size_t)fth_shape_count(&info->type.shape);
    }
    return true;
}

fth_status cuda_begin_gradient(fth_plan *plan, fth_value gradient, const cuda_layout *layout, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    FTH_TRY(cuda_fix_plain(plan, gradient));
    FTH_TRY(cuda_begin_write(plan, fth_plan_value_of(plan, gradient), layout, as));
out:
    return status;
}

/* Casts the gradients that wait. */
static fth_status cast_gradients(fth_plan *plan, plan_notes *notes)
{
    fth_status status = FTH_OK;
    if (notes->gradient_count > 0)
        FTH_TRY(add_casts(plan, true, notes->gradients, notes->gradient_count));
    notes->gradient_count = 0;
    notes->gradient_elements = 0;
out:
    return status;
}

fth_status cuda_end_gradient(fth_plan *plan, fth_value gradient, fth_plan_value as)
{
    fth_status status = FTH_OK;
    plan_notes *notes = fth_plan_notes(plan);
    if (!fth_plan_value_equal(as, fth_plan_value_of(plan, gradient))) {
        pending_cast one = {
            .from = as, .to = fth_plan_value_of(plan, gradient), .cast = describe(cuda_layout_of(plan, as))};
        if (fth_plan_storage(plan, fth_plan_value_of(plan, gradient)) != FTH_IN_GRADIENTS)
            return add_casts(plan, true, &one, 1); /* somebody computes with it: now */
        notes->gradients[notes->gradient_count++] = one;
        notes->gradient_elements += cuda_layout_elements(cuda_layout_of(plan, as));
    }
    if (notes->gradient_count == CASTS_PER_STEP || notes->gradient_elements > WAITING_ELEMENTS)
        FTH_TRY(cast_gradients(plan, notes));
out:
    return status;
}

/* ---- a plan's begin and end ---- */

static fth_status begin_plan(fth_plan *plan, void **notes)
{
    (void)plan;
    return fth_allocate(1, sizeof(plan_notes), notes);
}

static fth_status end_plan(fth_plan *plan, void *notes, bool failed)
{
    fth_status status = failed ? FTH_OK : cast_gradients(plan, notes);
    free(notes);
    return status;
}

const fth_backend_planning cuda_planning = {.plan_begin = begin_plan, .plan_end = end_plan};
