/* Batch norm by the statistics of a whole batch of which peers have a part each (batch_norm_sums.h). oneDNN makes its
 * sums and uses them in one call, with no place in between for an exchange, so these are loops of our own: sums, which
 * the exchange follows, and a pass that uses them; for the gradient the same. ReLU is a part of the passes, by the sign
 * of y, and NaN stays NaN.
 *
 * An image is walked in vectors of up to LANES numbers that lie side by side: channels, where these are innermost
 * (blocked, channels last, features), else pixels of one channel. Sums are made in f32 over short runs, around the first
 * value of each channel, and added up in double. Parts of the batch are summed in parallel and added in a fixed order: the
 * result is the same for any number of threads. */
#include <math.h>
#include <string.h>

#include "backend/batch_norm_sums.h"
#include "backend/cpu/batch_norm.h"

enum { X, SCALE, SHIFT, RUNNING_MEAN, RUNNING_VARIANCE, RESIDUAL };
enum { Y, MEAN, VARIANCE };
enum { GRAD_X, GRAD_Y, GRAD_DY, GRAD_SCALE, GRAD_MEAN, GRAD_VARIANCE };
enum { GRAD_DX, GRAD_DSCALE, GRAD_DSHIFT, GRAD_DRESIDUAL };

enum { LANES = 16, MAX_PARTS = 16, RUN = 256 /* vectors that are summed in f32 */ };

/* An image of `groups` rows of vectors: vector v of group g of image n begins at n * image + g * group + v * stride. */
typedef struct walk {
    int64_t batch, channels, groups, vectors, lanes;
    int64_t image, group, stride;
    int32_t last;    /* numbers in a row's last vector; the others have `lanes` */
    bool by_channel; /* lane l of group g is channel g * lanes + l, else all of them are of channel g */
    bool padded;     /* the last group has all lanes, of which those past the last channel are 0 */
    bool bf16, relu;
    float epsilon, momentum;
} walk;
_Static_assert(sizeof(walk) <= sizeof((cpu_call){0}.block), "it travels in its call");

static fth_status describe(const fth_batch_norm_attributes *attributes, const cpu_format *layout, bool relu,
                           walk *result)
{
    fth_status status = FTH_OK;
    const cpu_image_layout l = cpu_image_layout_of(layout);
    const int64_t plane = l.height * l.width;
    walk w = {.batch = l.batch,
              .channels = l.channels,
              .image = l.image,
              .bf16 = layout->data_type == dnnl_bf16,
              .relu = relu,
              .epsilon = attributes->epsilon,
              .momentum = attributes->momentum};

    FTH_REQUIRE(l.block <= LANES && (plane == 1 || l.row == l.width * l.column), FTH_UNSUPPORTED,
                "synchronized batch norm knows no layout with blocks of %lld channels or gaps between rows",
                (long long)l.block);
    if (l.block > 1 || l.group == 1 || plane == 1) { /* channels are innermost */
        w.by_channel = true;
        w.padded = l.block > 1;
        w.lanes = l.block > 1 ? l.block : LANES;
        w.groups = (l.channels + w.lanes - 1) / w.lanes;
        w.group = l.block > 1 ? l.group : w.lanes;
        w.vectors = plane;
        w.stride = plane == 1 ? 0 : l.column;
    } else {
        w.lanes = LANES;
        w.groups = l.channels;
        w.group = l.group;
        w.vectors = (plane + LANES - 1) / LANES;
        w.stride = LANES;
        w.last = (int32_t)(plane - (w.vectors - 1) * LANES);
    }
    *result = w;
out:
    return status;
}

static walk walk_of(const cpu_call *call)
{
    walk w;
    memcpy(&w, call->block, sizeof w);
    return w;
}

/* Channels may end within a vector. */
static int64_t lanes_of(const walk *w, int64_t g)
{
    const int64_t left = w->channels - g * w->lanes;
    return w->by_channel && !w->padded && left < w->lanes ? left : w->lanes;
}

/* What a channel has for the lanes of group g; 0 in lanes that are padding. */
static void spread(const walk *w, const float *values, int64_t g, float lanes[LANES])
{
    for (int64_t l = 0; l < LANES; l++) {
        const int64_t c = w->by_channel ? g * w->lanes + l : g;
        lanes[l] = l < w->lanes && c < w->channels ? values[c] : 0;
    }
}

#define INLINED static inline __attribute__((always_inline))

INLINED float load(const void *from, int64_t at, bool bf16)
{
    float value;
    if (!bf16)
        return ((const float *)from)[at];
    const uint32_t bits = (uint32_t)((const uint16_t *)from)[at] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest, halves to even; NaN stays NaN. */
INLINED void store(void *to, int64_t at, bool bf16, float value)
{
    if (!bf16) {
        ((float *)to)[at] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    ((uint16_t *)to)[at] = (uint16_t)(isnan(value) ? 0x7fc0 : rounded);
}

/* What a loop over one row of one image works on. `lanes` is of all vectors but the last. */
typedef struct row {
    const void *x, *dy, *y; /* y: NULL where there is no ReLU */
    void *out;
    int64_t at, vectors, stride;
    float mean[LANES]; /* or what the sums are taken around */
    float a[LANES], b[LANES], c[LANES];
    double first[LANES], second[LANES];
} row;

/* ---- one vector ---- */

INLINED void add_values(const row *r, int64_t at, int64_t lanes, bool bf16, float *first, float *second)
{
    for (int64_t l = 0; l < lanes; l++) {
        const float d = load(r->x, at + l, bf16) - r->mean[l];
        first[l] += d;
        second[l] += d * d;
    }
}

INLINED void add_gradients(const row *r, int64_t at, int64_t lanes, bool bf16, bool relu, float *first, float *second)
{
    for (int64_t l = 0; l < lanes; l++) {
        float g = load(r->dy, at + l, bf16);
        if (relu)
            g = load(r->y, at + l, bf16) <= 0 ? 0 : g;
        first[l] += g;
        second[l] += g * (load(r->x, at + l, bf16) - r->mean[l]);
    }
}

/* y = (x - mean) * a + b */
INLINED void normalize(const row *r, int64_t at, int64_t lanes, bool bf16, bool relu)
{
    for (int64_t l = 0; l < lanes; l++) {
        const float value = (load(r->x, at + l, bf16) - r->mean[l]) * r->a[l] + r->b[l];
        store(r->out, at + l, bf16, relu && value < 0 ? 0 : value);
    }
}

/* dx = (g - b - (x - mean) * c) * a */
INLINED void differentiate(const row *r, int64_t at, int64_t lanes, bool bf16, bool relu)
{
    for (int64_t l = 0; l < lanes; l++) {
        float g = load(r->dy, at + l, bf16);
        if (relu)
            g = load(r->y, at + l, bf16) <= 0 ? 0 : g;
        store(r->out, at + l, bf16, (g - r->b[l] - (load(r->x, at + l, bf16) - r->mean[l]) * r->c[l]) * r->a[l]);
    }
}

/* ---- one row ---- */

/* The `lanes` of all vectors of a row are a constant where they can be, and the type is: then the loops are vectors. */
typedef enum pass {
    ADD_VALUES,
    ADD_GRADIENTS,
    ADD_GRADIENTS_RELU,
    NORMALIZE,
    NORMALIZE_RELU,
    GRADIENT,
    GRADIENT_RELU
} pass;

INLINED void visit(const row *r, int64_t at, int64_t lanes, bool bf16, pass what, float *first, float *second)
{
    switch (what) {
    case ADD_VALUES: add_values(r, at, lanes, bf16, first, second); break;
    case ADD_GRADIENTS: add_gradients(r, at, lanes, bf16, false, first, second); break;
    case ADD_GRADIENTS_RELU: add_gradients(r, at, lanes, bf16, true, first, second); break;
    case NORMALIZE: normalize(r, at, lanes, bf16, false); break;
    case NORMALIZE_RELU: normalize(r, at, lanes, bf16, true); break;
    case GRADIENT: differentiate(r, at, lanes, bf16, false); break;
    case GRADIENT_RELU: differentiate(r, at, lanes, bf16, true); break;
    }
}

INLINED void visit_row(row *r, int64_t lanes, int64_t last, bool bf16, pass what)
{
    for (int64_t begin = 0; begin < r->vectors; begin += RUN) {
        const int64_t end = begin + RUN < r->vectors ? begin + RUN : r->vectors;
        const int64_t whole = end == r->vectors && last != lanes ? end - 1 : end;
        float first[LANES] = {0}, second[LANES] = {0};
        for (int64_t v = begin; v < whole; v++)
            visit(r, r->at + v * r->stride, lanes, bf16, what, first, second);
        if (whole < end)
            visit(r, r->at + whole * r->stride, last, bf16, what, first, second);
        for (int l = 0; l < LANES; l++) {
            r->first[l] += (double)first[l];
            r->second[l] += (double)second[l];
        }
    }
}

#define ROW_FUNCTION(name, what)                                                                                       \
    CPU_VECTORIZED static void name(row *r, int64_t lanes, int64_t last, bool bf16)                                    \
    {                                                                                                                  \
        if (lanes == LANES && bf16)                                                                                    \
            visit_row(r, LANES, last, true, what);                                                                     \
        else if (lanes == LANES)                                                                                       \
            visit_row(r, LANES, last, false, what);                                                                    \
        else                                                                                                           \
            visit_row(r, lanes, last, bf16, what);                                                                     \
    }
ROW_FUNCTION(add_values_of_row, ADD_VALUES)
ROW_FUNCTION(add_gradients_of_row, ADD_GRADIENTS)
ROW_FUNCTION(add_gradients_of_row_relu, ADD_GRADIENTS_RELU)
ROW_FUNCTION(normalize_row, NORMALIZE)
ROW_FUNCTION(normalize_row_relu, NORMALIZE_RELU)
ROW_FUNCTION(differentiate_row, GRADIENT)
ROW_FUNCTION(differentiate_row_relu, GRADIENT_RELU)

typedef void row_function(row *r, int64_t lanes, int64_t last, bool bf16);

static void run_row(const walk *w, row_function *function, row *r, int64_t n, int64_t g)
{
    const int64_t lanes = lanes_of(w, g);
    r->at = n * w->image + g * w->group;
    r->vectors = w->vectors;
    r->stride = w->stride;
    function(r, lanes, w->by_channel ? lanes : w->last, w->bf16);
}

/* ---- sums ---- */

static int64_t count_parts(const walk *w)
{
    return w->batch < MAX_PARTS ? w->batch : MAX_PARTS;
}

/* The sums of peers, then those of the parts of this batch: two for each lane. */
static size_t scratch_doubles(const walk *w)
{
    return fth_batch_norm_sum_count(w->channels) + (size_t)(count_parts(w) * w->groups * 2 * LANES);
}

/* Adds up all images, with `around` in each row as its mean; the sums go to sums[1 ...]. */
static void sum_images(const walk *w, row_function *function, const row *start, const float *around, double *sums)
{
    const int64_t parts = count_parts(w), groups = w->groups, channels = w->channels;
    double *partial = sums + fth_batch_norm_sum_count(channels);
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t part = 0; part < parts; part++)
        for (int64_t g = 0; g < groups; g++) {
            row r = *start;
            spread(w, around, g, r.mean);
            for (int64_t n = part * w->batch / parts; n < (part + 1) * w->batch / parts; n++)
                run_row(w, function, &r, n, g);
            double *to = partial + (part * groups + g) * 2 * LANES;
            memcpy(to, r.first, sizeof r.first);
            memcpy(to + LANES, r.second, sizeof r.second);
        }
    memset(sums + 1, 0, (size_t)(2 * channels) * sizeof *sums);
    for (int64_t part = 0; part < parts; part++)
        for (int64_t g = 0; g < groups; g++)
            for (int64_t l = 0; l < w->lanes; l++) {
                const int64_t c = w->by_channel ? g * w->lanes + l : g;
                const double *from = partial + (part * groups + g) * 2 * LANES + l;
                if (c < channels) {
                    sums[1 + c] += from[0];
                    sums[1 + channels + c] += from[LANES];
                }
            }
}

/* How many numbers a channel has in this process's part. */
static int64_t count_elements(const walk *w)
{
    return w->batch * (w->by_channel ? w->vectors : (w->vectors - 1) * LANES + w->last);
}

/* ---- forward ---- */

/* Values: x; mean, variance, running mean, running variance, scratch. */
static fth_status run_statistics(const cpu_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const walk w = walk_of(call);
    float *mean = call->data[1], *variance = call->data[2];
    float *running_mean = call->data[3], *running_variance = call->data[4];
    double *sums = call->data[5];
    const int64_t channels = w.channels, elements = count_elements(&w);
    const row start = {.x = call->data[0]};

    for (int64_t c = 0; c < channels; c++) /* its first value; exact in f32 */
        mean[c] = load(start.x, w.by_channel ? c / w.lanes * w.group + c % w.lanes : c * w.group, w.bf16);
    sum_images(&w, add_values_of_row, &start, mean, sums);
    sums[0] = (double)elements;
    for (int64_t c = 0; c < channels; c++) {
        double *first = &sums[1 + c], *second = &sums[1 + channels + c], around = mean[c];
        *second += around * (2 * *first + (double)elements * around);
        *first += (double)elements * around;
    }
    FTH_TRY(fth_plan_sum_over_peers(run, sums, fth_batch_norm_sum_count(channels)));
    for (int64_t c = 0; c < channels; c++) {
        const fth_channel_statistics found = fth_batch_norm_statistics(sums, c, channels);
        mean[c] = (float)found.mean;
        variance[c] = (float)found.variance;
        fth_batch_norm_move(&running_mean[c], found.mean, w.momentum);
        fth_batch_norm_move(&running_variance[c], found.unbiased, w.momentum);
    }
out:
    return status;
}

/* Values: x, mean, variance, scale, shift; y. */
static fth_status run_normalize(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const walk w = walk_of(call);
    const float *mean = call->data[1], *variance = call->data[2], *scale = call->data[3], *shift = call->data[4];
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t n = 0; n < w.batch; n++)
        for (int64_t g = 0; g < w.groups; g++) {
            row r = {.x = call->data[0], .out = call->data[5]};
            float variances[LANES], scales[LANES];
            spread(&w, mean, g, r.mean);
            spread(&w, variance, g, variances);
            spread(&w, scale, g, scales);
            spread(&w, shift, g, r.b);
            for (int l = 0; l < LANES; l++)
                r.a[l] = scales[l] / sqrtf(variances[l] + w.epsilon);
            run_row(&w, w.relu ? normalize_row_relu : normalize_row, &r, n, g);
        }
    return FTH_OK;
}

fth_status cpu_prepare_synchronized_norm(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *a = node->attributes;
    const fth_plan_value x = fth_plan_value_of(plan, node->inputs[X]);
    const fth_plan_value mean = fth_plan_value_of(plan, node->outputs[MEAN]);
    const fth_plan_value variance = fth_plan_value_of(plan, node->outputs[VARIANCE]);
    const cpu_format layout = *cpu_layout(plan, x);
    fth_plan_value scratch, y;
    walk w;

    FTH_TRY(describe(a, &layout, a->relu && !a->residual, &w));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[MEAN]));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[VARIANCE]));
    FTH_TRY(cpu_add_scratch(plan, scratch_doubles(&w) * sizeof(double), &scratch));
    cpu_call statistics = {.run = run_statistics,
                           .values = {x, mean, variance, fth_plan_value_of(plan, node->inputs[RUNNING_MEAN]),
                                      fth_plan_value_of(plan, node->inputs[RUNNING_VARIANCE]), scratch},
                           .value_count = 6,
                           .write_count = 5};
    memcpy(statistics.block, &w, sizeof w);
    FTH_TRY(cpu_add_call(plan, "batch_norm statistics, summed over peers", &statistics));
    cpu_write_in_place(plan, node->inputs[X], node->outputs[Y]);
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[Y]), &layout, &y));
    cpu_call apply = {.run = run_normalize,
                      .values = {x, mean, variance, fth_plan_value_of(plan, node->inputs[SCALE]),
                                 fth_plan_value_of(plan, node->inputs[SHIFT]), y},
                      .value_count = 6,
                      .write_count = 1};
    memcpy(apply.block, &w, sizeof w);
    FTH_TRY(cpu_add_call(plan, "batch_norm", &apply));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[Y]), y));
    if (a->residual)
        FTH_TRY(cpu_add_sum(plan, node->outputs[Y], node->inputs[RESIDUAL], a->relu, node->outputs[Y]));
out:
    return status;
}

/* ---- backward ---- */

/* Values: x, dy, y or none, mean, variance; dscale, dshift, scratch. */
static fth_status run_gradient_sums(const cpu_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const walk w = walk_of(call);
    const float *mean = call->data[3], *variance = call->data[4];
    float *dscale = call->data[5], *dshift = call->data[6];
    double *sums = call->data[7];
    const row start = {.x = call->data[0], .dy = call->data[1], .y = call->data[2]};

    sum_images(&w, w.relu ? add_gradients_of_row_relu : add_gradients_of_row, &start, mean, sums);
    sums[0] = (double)count_elements(&w);
    for (int64_t c = 0; c < w.channels; c++) {
        double *product = &sums[1 + w.channels + c];
        *product /= sqrt((double)variance[c] + (double)w.epsilon);
        dshift[c] = (float)sums[1 + c];
        dscale[c] = (float)*product;
    }
    FTH_TRY(fth_plan_sum_over_peers(run, sums, fth_batch_norm_sum_count(w.channels)));
out:
    return status;
}

/* Values: x, dy, y or none, mean, variance, scale, scratch; dx. */
static fth_status run_gradient(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const walk w = walk_of(call);
    const float *mean = call->data[3], *variance = call->data[4], *scale = call->data[5];
    const double *sums = call->data[6];
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t n = 0; n < w.batch; n++)
        for (int64_t g = 0; g < w.groups; g++) {
            row r = {.x = call->data[0], .dy = call->data[1], .y = call->data[2], .out = call->data[7]};
            spread(&w, mean, g, r.mean);
            for (int64_t l = 0; l < LANES; l++) {
                const int64_t c = w.by_channel ? g * w.lanes + l : g;
                if (l >= w.lanes || c >= w.channels)
                    continue; /* padding: stays 0 */
                const double inverse_sd = 1 / sqrt((double)variance[c] + (double)w.epsilon);
                r.a[l] = (float)(scale[c] * inverse_sd);
                r.b[l] = (float)(sums[1 + c] / sums[0]);
                r.c[l] = (float)(sums[1 + w.channels + c] / sums[0] * inverse_sd);
            }
            run_row(&w, w.relu ? differentiate_row_relu : differentiate_row, &r, n, g);
        }
    return FTH_OK;
}

fth_status cpu_prepare_synchronized_norm_grad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *a = node->attributes;
    const fth_plan_value x = fth_plan_value_of(plan, node->inputs[GRAD_X]);
    const fth_plan_value mean = fth_plan_value_of(plan, node->inputs[GRAD_MEAN]);
    const fth_plan_value variance = fth_plan_value_of(plan, node->inputs[GRAD_VARIANCE]);
    const cpu_format layout = *cpu_layout(plan, x);
    fth_plan_value dy, y = FTH_NO_PLAN_VALUE, scratch, dx;
    walk w;

    FTH_TRY(describe(a, &layout, a->relu && !a->residual, &w));
    if (a->residual) { /* its gradient has been through the ReLU */
        FTH_TRY(cpu_add_residual_gradient(plan, node, &layout));
        dy = fth_plan_value_of(plan, node->outputs[GRAD_DRESIDUAL]);
    } else {
        FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[GRAD_DY]), &layout, &dy));
    }
    if (w.relu)
        FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[GRAD_Y]), &layout, &y));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[GRAD_DSCALE]));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[GRAD_DSHIFT]));
    FTH_TRY(cpu_add_scratch(plan, scratch_doubles(&w) * sizeof(double), &scratch));
    cpu_call sums = {.run = run_gradient_sums,
                     .values = {x, dy, y, mean, variance, fth_plan_value_of(plan, node->outputs[GRAD_DSCALE]),
                                fth_plan_value_of(plan, node->outputs[GRAD_DSHIFT]), scratch},
                     .value_count = 8,
                     .write_count = 3};
    memcpy(sums.block, &w, sizeof w);
    FTH_TRY(cpu_add_call(plan, "batch_norm_grad sums over peers", &sums));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[GRAD_DX]), &layout, &dx));
    cpu_call gradient = {
        .run = run_gradient,
        .values = {x, dy, y, mean, variance, fth_plan_value_of(plan, node->inputs[GRAD_SCALE]), scratch, dx},
        .value_count = 8,
        .write_count = 1};
    memcpy(gradient.block, &w, sizeof w);
    FTH_TRY(cpu_add_call(plan, "batch_norm_grad", &gradient));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[GRAD_DX]), dx));
out:
    return status;
}
