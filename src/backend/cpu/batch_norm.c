/* Batch norm by our own loops, in any layout. Training computes sums, then a second pass uses them;
 * so does the gradient. In synchronized plans, the peers that have the other parts of the batch
 * exchange sums in between (batch_norm_sums.h). With running statistics there is only the second
 * pass.
 *
 * Adding a residual and ReLU are part of the passes. For the gradient, ReLU leaves one bit per
 * number, the node's mask. NaN stays NaN.
 *
 * An image is read in rows of vectors, each of up to as many adjacent numbers as the level has
 * lanes: channels, where these are innermost (blocked, channels last, features), else pixels of one
 * channel. Sums are taken around the first value of each channel. Parts of the batch are summed one
 * by one and added in a fixed order, so the result is the same for any number of threads. */
#include "backend/cpu/batch_norm.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend/batch_norm_sums.h"
#include "backend/cpu/cpu_internal.h"

enum { X, SCALE, SHIFT, RUNNING_MEAN, RUNNING_VARIANCE, RESIDUAL };
enum { Y, MEAN, VARIANCE, MASK };
enum { GRAD_X, GRAD_Y, GRAD_DY, GRAD_SCALE, GRAD_MEAN, GRAD_VARIANCE, GRAD_MASK };
enum { GRAD_DX, GRAD_DSCALE, GRAD_DSHIFT, GRAD_DRESIDUAL };

enum {
    LANES = BATCH_NORM_LANES,
    MAX_PARTS = 16,
    STREAMED = 1 << 18 /* numbers: too many for a core's caches, considering what else is read */
};

/* How to walk through the rows. An image has `groups` rows. Those of one block of channels begin
 * `lanes` apart, and blocks `block` apart. */
typedef struct walk {
    int64_t batch, channels, groups, groups_of_block, vectors, lanes;
    int64_t image, block, stride;
    int32_t last;    /* numbers in a row's last vector; the others have `lanes` */
    bool by_channel; /* lane l of group g is channel g * lanes + l; else all lanes of group g are channel g */
    bool padded;     /* the last group has all lanes; those past the last channel are 0 */
    bool bf16;
    bool fixed, synchronized; /* fixed: by running statistics in training too, which peers need not exchange */
    float epsilon, momentum;
} walk;

/* Element (n, c, h, w) is at n * strides[0] + c / block * strides[1] + c % block + h * strides[2] +
 * w * strides[3]. */
static fth_status describe(const fth_plan *plan, const fth_batch_norm_attributes *attributes, const cpu_format *layout,
                           walk *result)
{
    fth_status status = FTH_OK;
    const bool image = layout->ndims == 4;
    const int64_t lanes = cpu_level_of(plan)->lanes, plane = image ? layout->dims[2] * layout->dims[3] : 1;
    const int64_t column = image ? layout->strides[3] : 0, block = layout->block;
    walk w = {.batch = layout->dims[0],
              .channels = layout->dims[1],
              .image = layout->strides[0],
              .groups_of_block = 1,
              .bf16 = layout->data_type == dnnl_bf16,
              .fixed = attributes->fixed,
              .synchronized = fth_plan_get_options(plan).synchronized && !attributes->fixed,
              .epsilon = attributes->epsilon,
              .momentum = attributes->momentum};

    FTH_REQUIRE(plane == 1 || layout->strides[2] == layout->dims[3] * column, FTH_UNSUPPORTED,
                "batch norm cannot read a layout with gaps between rows");
    if (block > 1 || layout->strides[1] == 1 || plane == 1) { /* channels are innermost */
        w.by_channel = true;
        w.padded = block > 1;
        w.lanes = block > 1 && block < lanes ? block : lanes;
        w.groups_of_block = block > w.lanes ? block / w.lanes : 1;
        w.groups = (w.padded ? layout->padded_dims[1] : w.channels + w.lanes - 1) / w.lanes;
        w.block = block > 1 ? layout->strides[1] : w.lanes;
        w.vectors = plane;
        w.stride = plane == 1 ? 0 : column;
    } else {
        w.lanes = lanes;
        w.groups = w.channels;
        w.block = layout->strides[1];
        w.vectors = (plane + lanes - 1) / lanes;
        w.stride = lanes;
        w.last = (int32_t)(plane - (w.vectors - 1) * lanes);
    }
    *result = w;
out:
    return status;
}

static walk walk_of(const cpu_call *call)
{
    walk w;
    CPU_GET_BLOCK(call, &w);
    return w;
}

static int64_t begin_of(const walk *w, int64_t g)
{
    return g / w->groups_of_block * w->block + g % w->groups_of_block * w->lanes;
}

/* Channels may end within a vector. */
static int64_t lanes_of(const walk *w, int64_t g)
{
    const int64_t left = w->channels - g * w->lanes;
    return w->by_channel && !w->padded && left < w->lanes ? left : w->lanes;
}

/* The channel of lane l of group g; -1: padding. */
static int64_t channel_of(const walk *w, int64_t g, int64_t l)
{
    const int64_t c = w->by_channel ? g * w->lanes + l : g;
    return l < w->lanes && c < w->channels ? c : -1;
}

/* Copies each channel's value to the lanes of group g; 0 to lanes that are padding. */
static void spread(const walk *w, const float *values, int64_t g, float lanes[LANES])
{
    for (int64_t l = 0; l < LANES; l++) {
        const int64_t c = channel_of(w, g, l);
        lanes[l] = c >= 0 ? values[c] : 0;
    }
}

static size_t mask_bytes(const walk *w)
{
    return (size_t)(w->batch * w->groups * w->vectors) * sizeof(uint16_t);
}

/* ---- rows ---- */

/* Moves `row`, whose operands and lanes' values are set, to group g of image n. `masks` may be
 * NULL. */
static void enter_row(const walk *w, int64_t n, int64_t g, uint16_t *masks, batch_norm_row *row)
{
    row->at = n * w->image + begin_of(w, g);
    row->next = row->at + w->image;
    row->mask = masks ? masks + (n * w->groups + g) * w->vectors : NULL;
    row->vectors = w->vectors;
    row->stride = w->stride;
    row->lanes = lanes_of(w, g);
    row->last = w->by_channel ? row->lanes : w->last;
    row->bf16 = w->bf16;
    row->streamed = w->batch * w->image >= STREAMED && row->out != row->x && row->out != row->residual;
}

static int64_t count_parts(const walk *w)
{
    return w->batch < MAX_PARTS ? w->batch : MAX_PARTS;
}

/* Visits the images of a part of the batch. */
static void visit_part(const walk *w, void (*visit)(batch_norm_row *), uint16_t *masks, int64_t part, int64_t g,
                       batch_norm_row *row)
{
    const int64_t parts = count_parts(w);
    for (int64_t n = part * w->batch / parts; n < (part + 1) * w->batch / parts; n++) {
        enter_row(w, n, g, masks, row);
        visit(row);
    }
}

/* Scratch: the sums exchanged with peers, then those of the parts of this batch, two for each
 * lane. */
static size_t scratch_doubles(const walk *w)
{
    return fth_batch_norm_sum_count(w->channels) + (size_t)(count_parts(w) * w->groups * 2 * LANES);
}

/* A part's sums of one group. */
typedef struct part_sums {
    double first[LANES], second[LANES];
} part_sums;

/* What to sum: the loop over a row, its operands, the masks or NULL, and the value of each channel
 * that sums are taken around. */
typedef struct summation {
    void (*add)(batch_norm_row *);
    batch_norm_row start;
    uint16_t *masks;
    const float *around;
} summation;

static part_sums sum_part(const walk *w, const summation *s, int64_t part, int64_t g)
{
    part_sums sums;
    batch_norm_row row = s->start;
    spread(w, s->around, g, row.mean);
    visit_part(w, s->add, s->masks, part, g, &row);
    memcpy(sums.first, row.first, sizeof sums.first);
    memcpy(sums.second, row.second, sizeof sums.second);
    return sums;
}

/* Adds a part's sums to its channels in `sums`, which peers exchange. */
static void add_part(const walk *w, int64_t g, const part_sums *part, double *sums)
{
    for (int64_t l = 0; l < w->lanes; l++) {
        const int64_t c = channel_of(w, g, l);
        if (c >= 0) {
            sums[1 + c] += part->first[l];
            sums[1 + w->channels + c] += part->second[l];
        }
    }
}

/* Sums all groups, in `scratch` as laid out by scratch_doubles(). */
static void sum_images(const walk *w, const summation *s, double *scratch)
{
    const int64_t parts = count_parts(w);
    part_sums *found = (part_sums *)(scratch + fth_batch_norm_sum_count(w->channels));
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t part = 0; part < parts; part++)
        for (int64_t g = 0; g < w->groups; g++)
            found[part * w->groups + g] = sum_part(w, s, part, g);
    for (int64_t part = 0; part < parts; part++)
        for (int64_t g = 0; g < w->groups; g++)
            add_part(w, g, &found[part * w->groups + g], scratch);
}

/* Sums a single group, with the same result. */
static void sum_group(const walk *w, const summation *s, int64_t g, double *sums)
{
    for (int64_t part = 0; part < count_parts(w); part++) {
        const part_sums found = sum_part(w, s, part, g);
        add_part(w, g, &found, sums);
    }
}

/* Whether each thread takes groups of channels through both passes, so that the second finds in
 * cache what the first read. Not if peers have to exchange sums in between, or if there are too few
 * groups for the threads; then threads share the images as well. */
static bool goes_by_group(const walk *w, int threads)
{
    return !w->synchronized && (w->groups % threads == 0 || w->groups >= 4 * threads);
}

/* The channels of a group: [the result, *end). */
static int64_t channels_of(const walk *w, int64_t g, int64_t *end)
{
    const int64_t width = w->by_channel ? w->lanes : 1, begin = g * width;
    *end = begin + width < w->channels ? begin + width : w->channels;
    return begin;
}

/* Numbers per channel in this process's part of the batch. */
static int64_t count_elements(const walk *w)
{
    return w->batch * (w->by_channel ? w->vectors : (w->vectors - 1) * w->lanes + w->last);
}

static fth_status sum_over_peers(const walk *w, const fth_run *run, double *sums)
{
    return w->synchronized ? fth_plan_sum_over_peers(run, sums, fth_batch_norm_sum_count(w->channels)) : FTH_OK;
}

/* ---- forward ---- */

static float first_value(const walk *w, const void *x, int64_t c)
{
    const int64_t at = w->by_channel ? begin_of(w, c / w->lanes) + c % w->lanes : begin_of(w, c);
    if (!w->bf16)
        return ((const float *)x)[at];
    const uint32_t bits = (uint32_t)((const uint16_t *)x)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Values of a call. With running statistics, only those that the second pass needs are set. */
enum {
    IN_X,
    IN_SCALE,
    IN_SHIFT,
    IN_RESIDUAL, /* or none */
    AT_MEAN,
    AT_VARIANCE,
    AT_RUNNING_MEAN,
    AT_RUNNING_VARIANCE,
    AT_SCRATCH,
    OUT_Y,
    OUT_MASK /* or none */
};

/* Converts sums around each channel's first value to sums around 0, which peers exchange. */
static void move_sums(const walk *w, const float *around, int64_t begin, int64_t end, double *sums)
{
    const double elements = (double)count_elements(w);
    for (int64_t c = begin; c < end; c++) {
        double *first = &sums[1 + c], *second = &sums[1 + w->channels + c];
        *second += (double)around[c] * (2 * *first + elements * (double)around[c]);
        *first += elements * (double)around[c];
    }
}

static void set_statistics(const walk *w, const cpu_call *call, int64_t begin, int64_t end)
{
    float *mean = call->data[AT_MEAN], *variance = call->data[AT_VARIANCE];
    float *running_mean = call->data[AT_RUNNING_MEAN], *running_variance = call->data[AT_RUNNING_VARIANCE];
    for (int64_t c = begin; c < end; c++) {
        const fth_channel_statistics found = fth_batch_norm_statistics(call->data[AT_SCRATCH], c, w->channels);
        mean[c] = (float)found.mean;
        variance[c] = (float)found.variance;
        fth_batch_norm_move(&running_mean[c], found.mean, w->momentum);
        fth_batch_norm_move(&running_variance[c], found.unbiased, w->momentum);
    }
}

/* The second pass over parts [begin, end) of a group. */
static void normalize_parts(const walk *w, const cpu_call *call, int64_t begin, int64_t end, int64_t g)
{
    const batch_norm_kernels *kernels = call->kernels;
    batch_norm_row row = {.x = call->data[IN_X], .residual = call->data[IN_RESIDUAL], .out = call->data[OUT_Y]};
    float variances[LANES], scales[LANES];
    spread(w, call->data[AT_MEAN], g, row.mean);
    spread(w, call->data[AT_VARIANCE], g, variances);
    spread(w, call->data[IN_SCALE], g, scales);
    spread(w, call->data[IN_SHIFT], g, row.b);
    for (int l = 0; l < LANES; l++)
        row.a[l] = scales[l] / sqrtf(variances[l] + w->epsilon);
    for (int64_t part = begin; part < end; part++)
        visit_part(w, kernels->normalize, call->data[OUT_MASK], part, g, &row);
}

static fth_status run_by_running_statistics(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const walk w = walk_of(call);
    const int64_t parts = count_parts(&w);
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t part = 0; part < parts; part++)
        for (int64_t g = 0; g < w.groups; g++)
            normalize_parts(&w, call, part, part + 1, g);
    return FTH_OK;
}

static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const batch_norm_kernels *kernels = call->kernels;
    const walk w = walk_of(call);
    float *mean = call->data[AT_MEAN];
    double *sums = call->data[AT_SCRATCH];
    const summation values = {.add = kernels->add_values, .start = {.x = call->data[IN_X]}, .around = mean};

    for (int64_t c = 0; c < w.channels; c++) /* exact in f32 */
        mean[c] = first_value(&w, call->data[IN_X], c);
    memset(sums, 0, fth_batch_norm_sum_count(w.channels) * sizeof *sums);
    sums[0] = (double)count_elements(&w);
    if (goes_by_group(&w, call->threads)) {
#pragma omp parallel for schedule(static)
        for (int64_t g = 0; g < w.groups; g++) {
            int64_t end, begin = channels_of(&w, g, &end);
            sum_group(&w, &values, g, sums);
            move_sums(&w, mean, begin, end, sums);
            set_statistics(&w, call, begin, end);
            normalize_parts(&w, call, 0, count_parts(&w), g);
        }
        return FTH_OK;
    }
    sum_images(&w, &values, sums);
    move_sums(&w, mean, 0, w.channels, sums);
    FTH_TRY(sum_over_peers(&w, run, sums));
    set_statistics(&w, call, 0, w.channels);
    FTH_TRY(run_by_running_statistics(call, run));
out:
    return status;
}

static fth_status set_mask_layout(fth_plan *plan, const walk *w, fth_plan_value mask)
{
    cpu_format format;
    const dnnl_dims_t bytes = {(dnnl_dim_t)mask_bytes(w)};
    if (!cpu_format_make(1, bytes, dnnl_u8, dnnl_a, &format))
        return fth_fail(FTH_UNSUPPORTED, "oneDNN cannot describe the mask of a batch norm");
    return cpu_set_layout(plan, mask, &format);
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *a = node->attributes;
    const bool training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN && !a->fixed;
    const fth_plan_value running_mean = fth_plan_value_of(plan, node->inputs[RUNNING_MEAN]);
    const fth_plan_value running_variance = fth_plan_value_of(plan, node->inputs[RUNNING_VARIANCE]);
    const cpu_format layout = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[X]));
    walk w;
    cpu_call call = {.kernels = cpu_level_of(plan)->batch_norm, .value_count = OUT_MASK + 1};

    FTH_TRY(describe(plan, a, &layout, &w));
    for (int i = 0; i < call.value_count; i++)
        call.values[i] = FTH_NO_PLAN_VALUE;
    call.values[IN_X] = fth_plan_value_of(plan, node->inputs[X]);
    call.values[IN_SCALE] = fth_plan_value_of(plan, node->inputs[SCALE]);
    call.values[IN_SHIFT] = fth_plan_value_of(plan, node->inputs[SHIFT]);
    if (a->residual)
        FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[RESIDUAL]), &layout, &call.values[IN_RESIDUAL]));
    if (training) {
        FTH_TRY(cpu_fix_plain(plan, node->outputs[MEAN]));
        FTH_TRY(cpu_fix_plain(plan, node->outputs[VARIANCE]));
        call.values[AT_MEAN] = fth_plan_value_of(plan, node->outputs[MEAN]);
        call.values[AT_VARIANCE] = fth_plan_value_of(plan, node->outputs[VARIANCE]);
        call.values[AT_RUNNING_MEAN] = running_mean;
        call.values[AT_RUNNING_VARIANCE] = running_variance;
        FTH_TRY(cpu_add_scratch(plan, scratch_doubles(&w) * sizeof(double), &call.values[AT_SCRATCH]));
        call.write_count = OUT_MASK + 1 - AT_MEAN;
    } else {
        call.values[AT_MEAN] = running_mean;
        call.values[AT_VARIANCE] = running_variance;
        call.write_count = OUT_MASK + 1 - OUT_Y;
    }
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[Y]), &layout, &call.values[OUT_Y]));
    fth_plan_may_overwrite(plan, call.values[OUT_Y], call.values[IN_X]);
    fth_plan_may_overwrite(plan, call.values[OUT_Y], call.values[IN_RESIDUAL]);
    if (a->relu && fth_plan_is_used(plan, node->outputs[MASK])) {
        call.values[OUT_MASK] = fth_plan_value_of(plan, node->outputs[MASK]);
        FTH_TRY(set_mask_layout(plan, &w, call.values[OUT_MASK]));
    } else if (a->relu) {
        FTH_TRY(cpu_add_scratch(plan, mask_bytes(&w), &call.values[OUT_MASK]));
    }
    call.run = training ? run_forward : run_by_running_statistics;
    CPU_SET_BLOCK(&call, &w);
    FTH_TRY(cpu_add_call(plan, a->residual ? "batch_norm, add" : "batch_norm", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[Y]), call.values[OUT_Y]));
out:
    return status;
}

/* ---- backward ---- */

enum {
    GET_X,
    GET_DY,
    GET_MASK, /* or none */
    GET_MEAN,
    GET_VARIANCE,
    GET_SCALE,
    SET_DSCALE,
    SET_DSHIFT,
    SET_SCRATCH,
    SET_DRESIDUAL, /* dy through ReLU's mask, or none */
    SET_DX
};

/* Converts sums of g * (x - mean) to sums of g * normalized x, which peers exchange; and sets this
 * batch's gradients. Fixed statistics do not depend on x, so its gradient has no use for the
 * sums. */
static void set_parameter_gradients(const walk *w, const cpu_call *call, int64_t begin, int64_t end)
{
    const float *variance = call->data[GET_VARIANCE];
    float *dscale = call->data[SET_DSCALE], *dshift = call->data[SET_DSHIFT];
    double *sums = call->data[SET_SCRATCH];
    for (int64_t c = begin; c < end; c++) {
        double *product = &sums[1 + w->channels + c];
        *product /= sqrt((double)variance[c] + (double)w->epsilon);
        dshift[c] = (float)sums[1 + c];
        dscale[c] = (float)*product;
        if (w->fixed)
            sums[1 + c] = *product = 0;
    }
}

/* The second pass over parts [begin, end) of a group. */
static void differentiate_parts(const walk *w, const cpu_call *call, int64_t begin, int64_t end, int64_t g)
{
    const batch_norm_kernels *kernels = call->kernels;
    const float *variance = call->data[GET_VARIANCE], *scale = call->data[GET_SCALE];
    const double *sums = call->data[SET_SCRATCH];
    const bool kept = call->data[SET_DRESIDUAL];
    batch_norm_row row = {
        .x = call->data[GET_X], .dy = kept ? call->data[SET_DRESIDUAL] : call->data[GET_DY], .out = call->data[SET_DX]};
    spread(w, call->data[GET_MEAN], g, row.mean);
    for (int64_t l = 0; l < LANES; l++) {
        const int64_t c = channel_of(w, g, l);
        if (c < 0)
            continue; /* padding: stays 0 */
        const double inverse_sd = 1 / sqrt((double)variance[c] + (double)w->epsilon);
        row.a[l] = (float)(scale[c] * inverse_sd);
        row.b[l] = (float)(sums[1 + c] / sums[0]);
        row.c[l] = (float)(sums[1 + w->channels + c] / sums[0] * inverse_sd);
    }
    for (int64_t part = begin; part < end; part++)
        visit_part(w, kernels->differentiate, kept ? NULL : call->data[GET_MASK], part, g, &row);
}

static fth_status run_gradient(const cpu_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const batch_norm_kernels *kernels = call->kernels;
    const walk w = walk_of(call);
    const int64_t parts = count_parts(&w);
    double *sums = call->data[SET_SCRATCH];
    const summation gradients = {
        .add = kernels->add_gradients,
        .start = {.x = call->data[GET_X], .dy = call->data[GET_DY], .out = call->data[SET_DRESIDUAL]},
        .masks = call->data[GET_MASK],
        .around = call->data[GET_MEAN]};

    memset(sums, 0, fth_batch_norm_sum_count(w.channels) * sizeof *sums);
    sums[0] = (double)count_elements(&w);
    if (goes_by_group(&w, call->threads)) {
#pragma omp parallel for schedule(static)
        for (int64_t g = 0; g < w.groups; g++) {
            int64_t end, begin = channels_of(&w, g, &end);
            sum_group(&w, &gradients, g, sums);
            set_parameter_gradients(&w, call, begin, end);
            differentiate_parts(&w, call, 0, parts, g);
        }
        return FTH_OK;
    }
    sum_images(&w, &gradients, sums);
    set_parameter_gradients(&w, call, 0, w.channels);
    FTH_TRY(sum_over_peers(&w, run, sums));
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t part = 0; part < parts; part++)
        for (int64_t g = 0; g < w.groups; g++)
            differentiate_parts(&w, call, part, part + 1, g);
out:
    return status;
}

/* The gradient before the sum is also the residual's: dy itself, or dy through ReLU's mask, which
 * the summing pass writes. */
static fth_status place_residual_gradient(fth_plan *plan, const fth_node *node, const cpu_format *layout,
                                          fth_plan_value dy, fth_plan_value *written)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *a = node->attributes;
    const fth_value dresidual = node->outputs[GRAD_DRESIDUAL];
    *written = FTH_NO_PLAN_VALUE;
    if (!a->relu) {
        fth_plan_set_view(plan, fth_plan_value_of(plan, dresidual), dy);
    } else {
        *written = fth_plan_value_of(plan, dresidual);
        fth_plan_may_overwrite(plan, *written, dy);
    }
    FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, dresidual), layout));
out:
    return status;
}

static fth_status prepare_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *a = node->attributes;
    const cpu_format layout = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[GRAD_X]));
    fth_plan_value dy, kept = FTH_NO_PLAN_VALUE, scratch, dx;
    walk w;

    FTH_TRY(describe(plan, a, &layout, &w));
    FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[GRAD_DY]), &layout, &dy));
    if (a->residual)
        FTH_TRY(place_residual_gradient(plan, node, &layout, dy, &kept));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[GRAD_DSCALE]));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[GRAD_DSHIFT]));
    FTH_TRY(cpu_add_scratch(plan, scratch_doubles(&w) * sizeof(double), &scratch));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[GRAD_DX]), &layout, &dx));
    cpu_call call = {.run = run_gradient,
                     .kernels = cpu_level_of(plan)->batch_norm,
                     .values = {fth_plan_value_of(plan, node->inputs[GRAD_X]), dy,
                                a->relu ? fth_plan_value_of(plan, node->inputs[GRAD_MASK]) : FTH_NO_PLAN_VALUE,
                                fth_plan_value_of(plan, node->inputs[GRAD_MEAN]),
                                fth_plan_value_of(plan, node->inputs[GRAD_VARIANCE]),
                                fth_plan_value_of(plan, node->inputs[GRAD_SCALE]),
                                fth_plan_value_of(plan, node->outputs[GRAD_DSCALE]),
                                fth_plan_value_of(plan, node->outputs[GRAD_DSHIFT]), scratch, kept, dx},
                     .value_count = SET_DX + 1,
                     .write_count = SET_DX + 1 - SET_DSCALE};
    CPU_SET_BLOCK(&call, &w);
    FTH_TRY(cpu_add_call(plan, "batch_norm_grad", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[GRAD_DX]), dx));
out:
    return status;
}

const fth_kernel cpu_batch_norm = {&fth_op_batch_norm, prepare_forward};
const fth_kernel cpu_batch_norm_grad = {&fth_op_batch_norm_grad, prepare_grad};
