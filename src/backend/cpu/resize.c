/* Resizing of images in padded blocks of channels, in f32. Where pixels come from is found once
 * in a run for each row and column; the rest is a weighted sum of blocks. Gradients are
 * scattered within a map, which one thread computes, so that sums have a fixed order. */
#include "backend/cpu/cpu_internal.h"
#include "backend/resize_place.h"

typedef struct resizing {
    fth_resize_axis rows, columns;
    int64_t maps, block; /* maps of `block` channels */
} resizing;

/* One output: the distance in floats of its four sources from the map's first, and their
 * weights. */
typedef struct sources {
    int64_t at[4];
    float weights[4];
    int count;
} sources;

static sources sources_of(const resizing *r, const fth_resize_place *row, const fth_resize_place *column)
{
    sources s = {.count = 0};
    for (int below = 0; below <= (row->second > row->first); below++) {
        for (int right = 0; right <= (column->second > column->first); right++) {
            const int64_t h = below ? row->second : row->first, w = right ? column->second : column->first;
            s.at[s.count] = (h * r->columns.in + w) * r->block;
            s.weights[s.count++] =
                (below ? row->weight : 1 - row->weight) * (right ? column->weight : 1 - column->weight);
        }
    }
    return s;
}

CPU_VECTORIZED static void gather(const float *x, const sources *s, float *y, int64_t block)
{
    if (s->count == 1) {
        memcpy(y, x + s->at[0], (size_t)block * sizeof *y);
        return;
    }
    for (int64_t c = 0; c < block; c++) {
        float sum = s->weights[0] * x[s->at[0] + c];
        for (int i = 1; i < s->count; i++)
            sum += s->weights[i] * x[s->at[i] + c];
        y[c] = sum;
    }
}

CPU_VECTORIZED static void scatter(const float *dy, const sources *s, float *dx, int64_t block)
{
    for (int i = 0; i < s->count; i++) {
        float *to = dx + s->at[i];
        FTH_INDEPENDENT
        for (int64_t c = 0; c < block; c++)
            to[c] += s->weights[i] * dy[c];
    }
}

static void find_places(const resizing *r, fth_resize_place *places)
{
    for (int i = 0; i < r->rows.out; i++)
        places[i] = fth_resize_place_of(&r->rows, i);
    for (int i = 0; i < r->columns.out; i++)
        places[r->rows.out + i] = fth_resize_place_of(&r->columns, i);
}

/* Values: x, places, y. */
static fth_status run_resize(const cpu_call *call, const fth_run *run)
{
    (void)run;
    resizing r;
    CPU_GET_BLOCK(call, &r);
    const float *x = call->data[0];
    fth_resize_place *places = call->data[1];
    float *y = call->data[2];
    const int64_t in = (int64_t)r.rows.in * r.columns.in * r.block;
    find_places(&r, places);
#pragma omp parallel for collapse(2) schedule(static) if (r.maps * r.rows.out * r.columns.out * r.block > 1 << 15)
    for (int64_t map = 0; map < r.maps; map++) {
        for (int oh = 0; oh < r.rows.out; oh++) {
            float *to = y + (map * r.rows.out + oh) * r.columns.out * r.block;
            for (int ow = 0; ow < r.columns.out; ow++) {
                const sources s = sources_of(&r, &places[oh], &places[r.rows.out + ow]);
                gather(x + map * in, &s, to + ow * r.block, r.block);
            }
        }
    }
    return FTH_OK;
}

/* Values: dy, places, dx. */
static fth_status run_resize_grad(const cpu_call *call, const fth_run *run)
{
    (void)run;
    resizing r;
    CPU_GET_BLOCK(call, &r);
    const float *dy = call->data[0];
    fth_resize_place *places = call->data[1];
    float *dx = call->data[2];
    const int64_t in = (int64_t)r.rows.in * r.columns.in * r.block;
    find_places(&r, places);
#pragma omp parallel for schedule(static) if (r.maps * r.rows.out * r.columns.out * r.block > 1 << 15)
    for (int64_t map = 0; map < r.maps; map++) {
        memset(dx + map * in, 0, (size_t)in * sizeof *dx);
        for (int oh = 0; oh < r.rows.out; oh++) {
            const float *from = dy + (map * r.rows.out + oh) * r.columns.out * r.block;
            for (int ow = 0; ow < r.columns.out; ow++) {
                const sources s = sources_of(&r, &places[oh], &places[r.rows.out + ow]);
                scatter(from + ow * r.block, &s, dx + map * in, r.block);
            }
        }
    }
    return FTH_OK;
}

static fth_status prepare(fth_plan *plan, const fth_node *node, fth_value x,
                          fth_status (*run)(const cpu_call *, const fth_run *))
{
    fth_status status = FTH_OK;
    const fth_shape from = fth_plan_type(plan, node->inputs[0]).shape, to = fth_plan_type(plan, node->outputs[0]).shape;
    const fth_shape image = fth_plan_type(plan, x).shape;
    const cpu_format from_layout = cpu_padded_blocks(plan, &from, dnnl_f32);
    const cpu_format to_layout = cpu_padded_blocks(plan, &to, dnnl_f32);
    const resizing r = {.rows = fth_resize_axis_of(node->attributes, 0, image.dims[2]),
                        .columns = fth_resize_axis_of(node->attributes, 1, image.dims[3]),
                        .maps = from_layout.padded_dims[0] * from_layout.padded_dims[1] / cpu_level_of(plan)->lanes,
                        .block = cpu_level_of(plan)->lanes};
    cpu_call call = {.run = run, .value_count = 3, .write_count = 2};
    CPU_SET_BLOCK(&call, &r);
    FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[0]), &from_layout, &call.values[0]));
    FTH_TRY(cpu_add_scratch(plan, (size_t)(r.rows.out + r.columns.out) * sizeof(fth_resize_place), &call.values[1]));
    FTH_TRY(cpu_begin_write_rounded(plan, fth_plan_value_of(plan, node->outputs[0]), &to_layout, &call.values[2]));
    FTH_TRY(cpu_add_call(plan, node->op->name, &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), call.values[2]));
out:
    return status;
}

static fth_status prepare_resize(fth_plan *plan, const fth_node *node)
{
    return prepare(plan, node, node->inputs[0], run_resize);
}

static fth_status prepare_resize_grad(fth_plan *plan, const fth_node *node)
{
    return prepare(plan, node, node->outputs[0], run_resize_grad);
}

const fth_kernel cpu_resize = {&fth_op_resize, prepare_resize};
const fth_kernel cpu_resize_grad = {&fth_op_resize_grad, prepare_resize_grad};
