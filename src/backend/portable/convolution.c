/* Convolution and its gradients, channels last: products of matrices that read the image where it
 * is.
 *
 *     y[pixel][o]    = sum over taps, c of x[pixel + tap][c] * weight[tap, c][o]
 *     dx[pixel][c]   = sum over taps, o of dy[pixel - tap][o] * weight[tap, o][c]
 *     dw[tap, c][o]  = sum over pixels of x[pixel + tap][c] * dy[pixel][o]
 *
 * Channels are next to each other, and so are the taps of a row of the kernel: a sum is a few long
 * stretches. What lies beyond the image's edge comes from a copy of one image with zeros around it.
 * Weights are packed for each run. */
#include <string.h>

#include "backend/portable/portable.h"
#include "backend/portable/winograd.h"

/* x (N, C, H, W), weight (O, C/groups, KH, KW), y (N, O, OH, OW); sizes of height and width by
 * axis. */
typedef struct convolution_call {
    portable_call call;
    int64_t batch, channels, filters, groups;
    int64_t in[2], out[2], kernel[2];
    int64_t stride[2], padding[2], dilation[2];
    int64_t padded[2], before[2]; /* the padded copy of an image, x or dy, and how far the image is inside it */
    bool pads;                    /* else there is no such copy */
    bool relu;
    bool winograd;
} convolution_call;

/* Both channels are whole vectors; with few of them the transforms cost more than they save. */
static bool suits_winograd(const convolution_call *c, const portable_level *level)
{
    return c->kernel[0] == 3 && c->kernel[1] == 3 && c->stride[0] == 1 && c->stride[1] == 1 && c->dilation[0] == 1 &&
           c->dilation[1] == 1 && c->groups == 1 && c->channels >= 16 && c->filters >= 16 &&
           c->channels % level->lanes == 0 && c->filters % level->lanes == 0;
}

/* An even number of outputs is computed from an image that has two pixels more. */
static void pad_for_winograd(convolution_call *c, const int64_t image[2], const int64_t result[2])
{
    for (int axis = 0; axis < 2; axis++) {
        c->padded[axis] = (result[axis] + 1) / 2 * 2 + 2;
        c->pads = c->pads || c->padded[axis] > image[axis];
    }
    for (int axis = 0; axis < 2 && !c->pads; axis++)
        c->padded[axis] = image[axis];
}

static portable_winograd winograd_forward(const convolution_call *c, const portable_level *level)
{
    return (portable_winograd){level, c->out[0], c->out[1], c->channels, c->filters, 9, 9 * c->channels, false};
}

static portable_winograd winograd_backward(const convolution_call *c, const portable_level *level)
{
    return (portable_winograd){level, c->in[0], c->in[1], c->filters, c->channels, 9 * c->channels, 9, true};
}

/* Of all three steps: what is not used is none. */
enum { IMAGE, OTHER, BIAS, SEGMENTS, PADDED, PANELS, SUMS, INPUT_TILES, OUTPUT_TILES, RESULT, BIAS_RESULT, VALUES };

static int64_t taps(const convolution_call *c)
{
    return c->kernel[0] * c->kernel[1];
}

static int64_t panels(const portable_level *level, int64_t columns)
{
    return (columns + level->panel_columns - 1) / level->panel_columns;
}

/* True if the taps of a row of the kernel are one stretch of an image. */
static bool taps_are_adjacent(const convolution_call *c)
{
    return c->dilation[1] == 1 && c->groups == 1;
}

/* ---- the image with zeros around it ---- */

/* The margin is zeroed with the first image, and stays. */
static const float *pad_image(const convolution_call *c, const float *images, const int64_t size[2], int64_t channels,
                              int64_t n)
{
    const float *image = images + n * size[0] * size[1] * channels;
    float *padded = c->call.data[PADDED];
    if (!c->pads)
        return image;
    if (n == 0)
        memset(padded, 0, (size_t)(c->padded[0] * c->padded[1] * channels) * sizeof *padded);
    const int64_t rows = c->padded[0] - c->before[0] < size[0] ? c->padded[0] - c->before[0] : size[0];
    const int64_t columns = c->padded[1] - c->before[1] < size[1] ? c->padded[1] - c->before[1] : size[1];
    for (int64_t h = 0; h < rows; h++)
        memcpy(padded + ((c->before[0] + h) * c->padded[1] + c->before[1]) * channels, image + h * size[1] * channels,
               (size_t)(columns * channels) * sizeof *padded);
    return padded;
}

/* What the output reads of x, edges included. */
static void pad_input(convolution_call *c)
{
    for (int axis = 0; axis < 2; axis++) {
        const int64_t read = (c->out[axis] - 1) * c->stride[axis] + (c->kernel[axis] - 1) * c->dilation[axis] + 1;
        c->pads = c->pads || c->padding[axis] > 0 || read > c->in[axis];
        c->padded[axis] = read;
        c->before[axis] = c->padding[axis];
    }
    for (int axis = 0; axis < 2 && !c->pads; axis++)
        c->padded[axis] = c->in[axis];
}

/* ---- forward ---- */

/* One tap of all weights of a group as rows of panels: element (k, j) is at weight[k * k_step + j *
 * j_step]. */
static void pack_tap(const portable_level *level, const float *weight, int64_t depth, int64_t k_step, int64_t columns,
                     int64_t j_step, int64_t all_rows, float *to)
{
    const int64_t width = level->panel_columns;
    for (int64_t column = 0; column < columns; column += width, to += all_rows * width)
        for (int64_t k = 0; k < depth; k++)
            for (int64_t j = 0; j < width; j++)
                to[k * width + j] = column + j < columns ? weight[k * k_step + (column + j) * j_step] : 0;
}

static fth_status run_winograd_forward(const portable_call *call, const fth_run *run)
{
    const convolution_call *c = (const convolution_call *)call;
    const portable_winograd w = winograd_forward(c, call->level);
    (void)run;
    portable_winograd_pack(&w, call->data[OTHER], call->data[PANELS]);
    for (int64_t n = 0; n < c->batch; n++)
        portable_winograd_run(&w, pad_image(c, call->data[IMAGE], c->in, c->channels, n), c->padded[1] * c->channels,
                              call->data[PANELS], call->data[INPUT_TILES], call->data[OUTPUT_TILES], call->data[BIAS],
                              c->relu, call->data[RESULT] + n * c->out[0] * c->out[1] * c->filters);
    return FTH_OK;
}

static fth_status run_forward(const portable_call *call, const fth_run *run)
{
    const convolution_call *c = (const convolution_call *)call;
    const portable_level *level = call->level;
    const int64_t depth = c->channels / c->groups, columns = c->filters / c->groups, rows = taps(c) * depth;
    const int64_t panel_floats = panels(level, columns) * rows * level->panel_columns;
    portable_segment *segments = (portable_segment *)call->data[SEGMENTS];
    int64_t count = 0;
    (void)run;

    for (int64_t kh = 0; kh < c->kernel[0]; kh++)
        for (int64_t kw = 0; kw < c->kernel[1]; kw += taps_are_adjacent(c) ? c->kernel[1] : 1)
            segments[count++] = (portable_segment){
                (kh * c->dilation[0] * c->padded[1] + kw * c->dilation[1]) * c->channels,
                taps_are_adjacent(c) ? c->kernel[1] * depth : depth,
            };
    for (int64_t g = 0; g < c->groups; g++)
        for (int64_t tap = 0; tap < taps(c); tap++)
            pack_tap(level, call->data[OTHER] + g * columns * rows + tap, depth, taps(c), columns, rows, rows,
                     call->data[PANELS] + g * panel_floats + tap * depth * level->panel_columns);
    for (int64_t n = 0; n < c->batch; n++) {
        const float *x = pad_image(c, call->data[IMAGE], c->in, c->channels, n);
        for (int64_t g = 0; g < c->groups; g++)
            level->multiply(&(portable_product){
                .rows = c->out[0] * c->out[1],
                .columns = columns,
                .a = x + g * depth,
                .a_rows = {c->out[1], c->stride[0] * c->padded[1] * c->channels, c->stride[1] * c->channels},
                .a_step = 1,
                .segments = segments,
                .segment_count = count,
                .b = call->data[PANELS] + g * panel_floats,
                .b_step = level->panel_columns,
                .b_panel = rows * level->panel_columns,
                .c = call->data[RESULT] + n * c->out[0] * c->out[1] * c->filters + g * columns,
                .c_rows = {c->out[1], c->out[1] * c->filters, c->filters},
                .bias = call->data[BIAS] ? call->data[BIAS] + g * columns : NULL,
                .relu = c->relu,
            });
    }
    return FTH_OK;
}

/* ---- gradient of the input ---- */

/* Rows first, first + stride, ... of dx on one axis all meet the same taps: those for which there
 * is a whole `place`, the distance from row i of them to the row of dy, within its padded copy,
 * that the tap leads to. */
static bool meets(const convolution_call *c, int axis, int64_t first, int64_t tap, int64_t *place)
{
    const int64_t distance = first + c->padding[axis] - tap * c->dilation[axis];
    if (distance % c->stride[axis] != 0)
        return false;
    *place = distance / c->stride[axis] + c->before[axis];
    return true;
}

static int64_t rows_from(const convolution_call *c, int axis, int64_t first)
{
    return (c->in[axis] - first + c->stride[axis] - 1) / c->stride[axis];
}

static void pad_output_gradient(convolution_call *c)
{
    for (int axis = 0; axis < 2; axis++) {
        int64_t lowest = 0, highest = c->out[axis] - 1;
        for (int64_t first = 0; first < c->stride[axis] && first < c->in[axis]; first++)
            for (int64_t tap = 0; tap < c->kernel[axis]; tap++) {
                int64_t place;
                if (!meets(c, axis, first, tap, &place))
                    continue;
                const int64_t last = place + rows_from(c, axis, first) - 1;
                lowest = place < lowest ? place : lowest;
                highest = last > highest ? last : highest;
            }
        c->pads = c->pads || lowest < 0 || highest >= c->out[axis];
        c->padded[axis] = highest - lowest + 1;
        c->before[axis] = -lowest;
    }
}

/* The part of one image's dx whose rows are first[0], first[0] + stride[0], ..., columns
 * likewise. */
static void run_part(const convolution_call *c, const float *dy, float *dx, const int64_t first[2],
                     const float *weight_panels, int64_t group_floats)
{
    const portable_level *level = c->call.level;
    const int64_t depth = c->filters / c->groups, columns = c->channels / c->groups;
    const int64_t pixels[2] = {rows_from(c, 0, first[0]), rows_from(c, 1, first[1])};
    portable_segment *segments = (portable_segment *)c->call.data[SEGMENTS];
    int64_t count = 0, rows = 0;

    for (int64_t kh = c->kernel[0] - 1; kh >= 0; kh--)
        for (int64_t kw = c->kernel[1] - 1; kw >= 0; kw--) {
            int64_t place[2];
            if (!meets(c, 0, first[0], kh, &place[0]) || !meets(c, 1, first[1], kw, &place[1]))
                continue;
            const int64_t offset = (place[0] * c->padded[1] + place[1]) * c->filters;
            if (count > 0 && c->groups == 1 && offset == segments[count - 1].offset + segments[count - 1].length)
                segments[count - 1].length += depth;
            else
                segments[count++] = (portable_segment){offset, depth};
            rows += depth;
        }
    for (int64_t g = 0; g < c->groups; g++)
        level->multiply(&(portable_product){
            .rows = pixels[0] * pixels[1],
            .columns = columns,
            .a = dy + g * depth,
            .a_rows = {pixels[1], c->padded[1] * c->filters, c->filters},
            .a_step = 1,
            .segments = segments,
            .segment_count = count,
            .b = weight_panels + g * group_floats,
            .b_step = level->panel_columns,
            .b_panel = rows * level->panel_columns,
            .c = dx + (first[0] * c->in[1] + first[1]) * c->channels + g * columns,
            .c_rows = {pixels[1], c->stride[0] * c->in[1] * c->channels, c->stride[1] * c->channels},
        });
}

/* The weights that a part meets, in the order of its segments; returns the floats they take in each
 * group. */
static int64_t pack_part(const convolution_call *c, const int64_t first[2], float *to)
{
    const portable_level *level = c->call.level;
    const int64_t depth = c->filters / c->groups, columns = c->channels / c->groups, width = level->panel_columns;
    int64_t place, rows = 0, packed = 0;
    for (int64_t kh = 0; kh < c->kernel[0]; kh++)
        for (int64_t kw = 0; kw < c->kernel[1]; kw++)
            rows += meets(c, 0, first[0], kh, &place) && meets(c, 1, first[1], kw, &place) ? depth : 0;
    const int64_t group_floats = panels(level, columns) * rows * width;
    for (int64_t kh = c->kernel[0] - 1; kh >= 0; kh--)
        for (int64_t kw = c->kernel[1] - 1; kw >= 0; kw--) {
            if (!meets(c, 0, first[0], kh, &place) || !meets(c, 1, first[1], kw, &place))
                continue;
            for (int64_t g = 0; g < c->groups; g++)
                pack_tap(level, c->call.data[OTHER] + g * depth * columns * taps(c) + kh * c->kernel[1] + kw, depth,
                         columns * taps(c), columns, taps(c), rows, to + g * group_floats + packed * width);
            packed += depth;
        }
    return group_floats;
}

static fth_status run_winograd_grad_input(const portable_call *call, const fth_run *run)
{
    const convolution_call *c = (const convolution_call *)call;
    const portable_winograd w = winograd_backward(c, call->level);
    (void)run;
    portable_winograd_pack(&w, call->data[OTHER], call->data[PANELS]);
    for (int64_t n = 0; n < c->batch; n++)
        portable_winograd_run(&w, pad_image(c, call->data[IMAGE], c->out, c->filters, n), c->padded[1] * c->filters,
                              call->data[PANELS], call->data[INPUT_TILES], call->data[OUTPUT_TILES], NULL, false,
                              call->data[RESULT] + n * c->in[0] * c->in[1] * c->channels);
    return FTH_OK;
}

static fth_status run_grad_input(const portable_call *call, const fth_run *run)
{
    const convolution_call *c = (const convolution_call *)call;
    int64_t first[2];
    (void)run;
    for (first[0] = 0; first[0] < c->stride[0] && first[0] < c->in[0]; first[0]++)
        for (first[1] = 0; first[1] < c->stride[1] && first[1] < c->in[1]; first[1]++) {
            const int64_t group_floats = pack_part(c, first, call->data[PANELS]);
            for (int64_t n = 0; n < c->batch; n++)
                run_part(c, pad_image(c, call->data[IMAGE], c->out, c->filters, n),
                         call->data[RESULT] + n * c->in[0] * c->in[1] * c->channels, first, call->data[PANELS],
                         group_floats);
        }
    return FTH_OK;
}

/* ---- gradients of weights and bias ---- */

/* All taps of a group, or a row of them, times the pixels of one image. */
static void add_image(const convolution_call *c, const float *x, const float *dy, int64_t dy_step, int64_t dy_panel,
                      int64_t group, bool accumulate)
{
    const int64_t depth = c->channels / c->groups, columns = c->filters / c->groups;
    const bool whole = taps_are_adjacent(c) && c->dilation[0] == 1; /* lines of `x` are rows of the kernel */
    float *sums = c->call.data[SUMS] + group * taps(c) * depth * columns;
    for (int64_t kh = 0; kh < (whole ? 1 : c->kernel[0]); kh++) {
        const int64_t line = whole ? c->kernel[1] * depth : depth;
        c->call.level->multiply(&(portable_product){
            .rows = (whole ? taps(c) : c->kernel[1]) * depth,
            .columns = columns,
            .a = x + kh * c->dilation[0] * c->padded[1] * c->channels + group * depth,
            .a_rows = {line, whole ? c->padded[1] * c->channels : c->dilation[1] * c->channels, 1},
            .a_step = c->stride[1] * c->channels,
            .segments = (const portable_segment *)c->call.data[SEGMENTS],
            .segment_count = c->out[0],
            .b = dy,
            .b_step = dy_step,
            .b_panel = dy_panel,
            .c = sums + kh * c->kernel[1] * depth * columns,
            .c_rows = {line, line * columns, columns},
            .accumulate = accumulate,
        });
    }
}

/* (taps, C, O) to (O, C, taps), within a group. */
static void unpack_weights(const convolution_call *c, const float *sums, float *weights)
{
    const int64_t depth = c->channels / c->groups, columns = c->filters / c->groups;
    for (int64_t o = 0; o < columns; o++)
        for (int64_t k = 0; k < depth; k++)
            for (int64_t tap = 0; tap < taps(c); tap++)
                weights[(o * depth + k) * taps(c) + tap] = sums[(tap * depth + k) * columns + o];
}

static fth_status run_winograd_grad_weights(const portable_call *call, const fth_run *run)
{
    const convolution_call *c = (const convolution_call *)call;
    const portable_winograd w = winograd_forward(c, call->level);
    const int64_t pixels = c->out[0] * c->out[1];
    (void)run;
    for (int64_t n = 0; n < c->batch; n++)
        portable_winograd_add_gradient(&w, pad_image(c, call->data[IMAGE], c->in, c->channels, n),
                                       c->padded[1] * c->channels, call->data[OTHER] + n * pixels * c->filters, n == 0,
                                       call->data[INPUT_TILES], call->data[OUTPUT_TILES], call->data[SUMS]);
    portable_winograd_unpack(&w, call->data[SUMS], call->data[RESULT]);
    portable_sum_columns(call->level, call->data[OTHER], c->batch * pixels, c->filters, call->data[BIAS_RESULT]);
    return FTH_OK;
}

static fth_status run_grad_weights(const portable_call *call, const fth_run *run)
{
    const convolution_call *c = (const convolution_call *)call;
    const portable_level *level = call->level;
    const int64_t pixels = c->out[0] * c->out[1], columns = c->filters / c->groups;
    const int64_t weights = taps(c) * (c->channels / c->groups) * columns;
    portable_segment *segments = (portable_segment *)call->data[SEGMENTS];
    (void)run;

    for (int64_t h = 0; h < c->out[0]; h++)
        segments[h] = (portable_segment){h * c->stride[0] * c->padded[1] * c->channels, c->out[1]};
    for (int64_t n = 0; n < c->batch; n++) {
        const float *x = pad_image(c, call->data[IMAGE], c->in, c->channels, n);
        const float *dy = call->data[OTHER] + n * pixels * c->filters;
        for (int64_t g = 0; g < c->groups; g++) {
            if (call->data[PANELS]) {
                level->pack(dy + g * columns, pixels, columns, c->filters, call->data[PANELS]);
                add_image(c, x, call->data[PANELS], level->panel_columns, pixels * level->panel_columns, g, n > 0);
            } else {
                add_image(c, x, dy + g * columns, c->filters, level->panel_columns, g, n > 0);
            }
        }
    }
    for (int64_t g = 0; g < c->groups; g++)
        unpack_weights(c, call->data[SUMS] + g * weights, call->data[RESULT] + g * weights);
    portable_sum_columns(level, call->data[OTHER], c->batch * pixels, c->filters, call->data[BIAS_RESULT]);
    return FTH_OK;
}

/* ---- preparing ---- */

static convolution_call describe(const fth_plan *plan, const fth_node *node, fth_value x, fth_value weight, fth_value y)
{
    const fth_convolution_attributes *a = node->attributes;
    const fth_shape in = fth_plan_type(plan, x).shape, kernel = fth_plan_type(plan, weight).shape;
    const fth_shape out = fth_plan_type(plan, y).shape;
    convolution_call c = {
        .call = {.value_count = VALUES},
        .batch = in.dims[0],
        .channels = in.dims[1],
        .filters = out.dims[1],
        .groups = a->groups,
        .relu = a->relu,
    };
    for (int i = 0; i < VALUES; i++)
        c.call.values[i] = FTH_NO_PLAN_VALUE;
    for (int axis = 0; axis < 2; axis++) {
        c.in[axis] = in.dims[2 + axis];
        c.out[axis] = out.dims[2 + axis];
        c.kernel[axis] = kernel.dims[2 + axis];
        c.stride[axis] = a->stride[axis];
        c.padding[axis] = a->padding[axis];
        c.dilation[axis] = a->dilation[axis];
    }
    return c;
}

static fth_status add_segments(fth_plan *plan, convolution_call *c, int64_t count)
{
    return portable_add_scratch(plan, (size_t)count * sizeof(portable_segment) / sizeof(float),
                                &c->call.values[SEGMENTS]);
}

static fth_status add_padded(fth_plan *plan, convolution_call *c, int64_t channels)
{
    if (!c->pads)
        return FTH_OK;
    return portable_add_scratch(plan, (size_t)(c->padded[0] * c->padded[1] * channels), &c->call.values[PADDED]);
}

/* Weights, or sums of their gradients, and tiles; or the same for the direct way. */
static fth_status add_winograd_scratch(fth_plan *plan, convolution_call *c, const portable_winograd *w, int packed,
                                       int64_t packed_floats)
{
    fth_status status = FTH_OK;
    FTH_TRY(portable_add_scratch(plan, (size_t)packed_floats, &c->call.values[packed]));
    FTH_TRY(portable_add_scratch(plan, (size_t)portable_winograd_input_floats(w), &c->call.values[INPUT_TILES]));
    FTH_TRY(portable_add_scratch(plan, (size_t)portable_winograd_output_floats(w), &c->call.values[OUTPUT_TILES]));
out:
    return status;
}

/* A pass from an image of `from` channels to one of `to`: forward, or the gradient of the input. */
static fth_status add_image_pass(fth_plan *plan, const fth_node *node, convolution_call *c,
                                 const portable_winograd *winograd, int64_t from, int64_t to)
{
    fth_status status = FTH_OK;
    const portable_level *level = portable_get_level(plan);
    fth_plan_value *values = c->call.values;

    FTH_TRY(portable_read(plan, node->inputs[0], true, &values[IMAGE]));
    FTH_TRY(portable_read(plan, node->inputs[1], false, &values[OTHER]));
    FTH_TRY(add_segments(plan, c, taps(c)));
    FTH_TRY(add_padded(plan, c, from));
    if (c->winograd)
        FTH_TRY(add_winograd_scratch(plan, c, winograd, PANELS, portable_winograd_weights_floats(winograd)));
    else
        FTH_TRY(portable_add_scratch(
            plan, (size_t)(panels(level, to / c->groups) * taps(c) * from * level->panel_columns), &values[PANELS]));
    FTH_TRY(portable_begin_write(plan, node->outputs[0], true, &values[RESULT]));
    FTH_TRY(portable_add_call(plan, node, &c->call, sizeof *c));
    FTH_TRY(portable_end_write(plan, node->outputs[0], values[RESULT]));
out:
    return status;
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const portable_level *level = portable_get_level(plan);
    convolution_call c = describe(plan, node, node->inputs[0], node->inputs[1], node->outputs[0]);

    c.call.run = run_forward;
    c.call.write_count = VALUES - SEGMENTS;
    pad_input(&c);
    c.winograd = suits_winograd(&c, level);
    if (c.winograd) {
        c.call.run = run_winograd_forward;
        pad_for_winograd(&c, c.in, c.out);
    }
    if (node->input_count > 2)
        FTH_TRY(portable_read(plan, node->inputs[2], false, &c.call.values[BIAS]));
    const portable_winograd winograd = winograd_forward(&c, level);
    FTH_TRY(add_image_pass(plan, node, &c, &winograd, c.channels, c.filters));
out:
    return status;
}

static fth_status prepare_grad_input(fth_plan *plan, const fth_node *node)
{
    const portable_level *level = portable_get_level(plan);
    convolution_call c = describe(plan, node, node->outputs[0], node->inputs[1], node->inputs[0]);

    c.call.run = run_grad_input;
    c.call.write_count = VALUES - SEGMENTS;
    pad_output_gradient(&c);
    /* With more padding than the kernel reaches, the gradient's edge would have to be cut off. */
    c.winograd = suits_winograd(&c, level) && c.padding[0] <= 2 && c.padding[1] <= 2;
    if (c.winograd) {
        c.call.run = run_winograd_grad_input;
        pad_for_winograd(&c, c.out, c.in);
    }
    const portable_winograd winograd = winograd_backward(&c, level);
    return add_image_pass(plan, node, &c, &winograd, c.filters, c.channels);
}

static fth_status prepare_grad_weights(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const portable_level *level = portable_get_level(plan);
    convolution_call c = describe(plan, node, node->inputs[0], node->outputs[0], node->inputs[1]);
    fth_plan_value *values = c.call.values;
    const int64_t columns = c.filters / c.groups;

    c.call.run = run_grad_weights;
    c.call.write_count = VALUES - SEGMENTS;
    pad_input(&c);
    c.winograd = suits_winograd(&c, level);
    if (c.winograd) {
        c.call.run = run_winograd_grad_weights;
        pad_for_winograd(&c, c.in, c.out);
    }
    FTH_TRY(portable_read(plan, node->inputs[0], true, &values[IMAGE]));
    FTH_TRY(portable_read(plan, node->inputs[1], true, &values[OTHER]));
    FTH_TRY(add_segments(plan, &c, c.out[0]));
    FTH_TRY(add_padded(plan, &c, c.channels));
    if (columns % level->lanes != 0)
        FTH_TRY(portable_add_scratch(
            plan, (size_t)(panels(level, columns) * c.out[0] * c.out[1] * level->panel_columns), &values[PANELS]));
    const portable_winograd winograd = winograd_forward(&c, level);
    if (c.winograd)
        FTH_TRY(add_winograd_scratch(plan, &c, &winograd, SUMS, 16 * c.channels * c.filters));
    else
        FTH_TRY(portable_add_scratch(plan, (size_t)(taps(&c) * c.channels * columns), &values[SUMS]));
    FTH_TRY(portable_begin_write(plan, node->outputs[0], false, &values[RESULT]));
    FTH_TRY(portable_begin_write(plan, node->outputs[1], false, &values[BIAS_RESULT]));
    FTH_TRY(portable_add_call(plan, node, &c.call, sizeof c));
out:
    return status;
}

const fth_kernel portable_convolution = {&fth_op_convolution, prepare_forward};
const fth_kernel portable_convolution_grad_input = {&fth_op_convolution_grad_input, prepare_grad_input};
const fth_kernel portable_convolution_grad_weights = {&fth_op_convolution_grad_weights, prepare_grad_weights};
