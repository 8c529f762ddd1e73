/* See recurrence.h. The products of a step with the weights are of all the sequences that a thread
 * has, by weights in panels (level/multiply.h). The gradient keeps what flows into the sums with
 * the weight, and the states before each step, so that the weight's gradient is one product over
 * all steps of all sequences. */
#include "backend/portable/recurrence.h"

#include <string.h>

#include "backend/portable/portable.h"

enum { PART_ROWS = 48, DEPTH = 1024 }; /* of the weight's gradient; DEPTH: rows that are added up at a time */

recurrence recurrence_of(const fth_plan *plan, const fth_node *node, const portable_level *level)
{
    const fth_recurrent_attributes *a = node->attributes;
    const bool gradient = node->op == &fth_op_recurrent_grad;
    const fth_shape weight = fth_plan_type(plan, node->inputs[gradient ? 0 : 1]).shape;
    const fth_shape steps = fth_plan_type(plan, node->inputs[gradient ? 1 : 0]).shape;
    return (recurrence){.level = level,
                        .attributes = a,
                        .sequences = steps.dims[0] / a->length,
                        .hidden = weight.dims[1],
                        .gates = fth_recurrent_gates(a->kind)};
}

void recurrence_list(const fth_plan *plan, const fth_node *node, fth_value *values)
{
    const fth_recurrent_attributes *a = node->attributes;
    const bool gradient = node->op == &fth_op_recurrent_grad, has_c = a->initial && a->kind == FTH_LSTM;
    const int count = gradient ? RECURRENT_GRAD_SCRATCH : RECURRENT_SCRATCH;
    const int first_output = gradient ? (int)RECURRENT_GRAD_DPROJECTED : (int)RECURRENT_Y;
    const bool there[] = {true, true, a->bias, a->initial, has_c};
    const bool there_in_gradient[] = {true, true, true, true, a->initial, has_c, a->has_dy, a->has_dh, a->has_dc};
    int next = 0;
    for (int i = 0; i < first_output; i++)
        values[i] = (gradient ? there_in_gradient[i] : there[i]) ? node->inputs[next++] : FTH_NO_VALUE;
    for (int i = first_output; i < count; i++) {
        const fth_value output = node->outputs[i - first_output];
        /* y, gates and cells are needed to compute the next step. */
        const bool needed = gradient ? i == RECURRENT_GRAD_DPROJECTED : i <= RECURRENT_CELLS;
        values[i] = needed || fth_plan_is_used(plan, output) ? output : FTH_NO_VALUE;
    }
}

/* ---- scratch ---- */

/* Places in it, in floats. */
typedef struct recurrence_scratch {
    float *panels, *more_panels; /* weights; those of a GRU's third gate by themselves */
    float *turned;               /* weights turned around, while they are packed */
    float *zeros;                /* (H): the state before the first step */
    float *dr;                   /* (B length, G H): gradients of the sums with the weight; of a GRU alone */
    float *before;               /* (B length, H): the states before each step */
    float *dh, *dc;              /* (B, H) */
} recurrence_scratch;

static int64_t panel_floats(const recurrence *r, int64_t rows, int64_t columns)
{
    const int64_t width = r->level->panel_columns;
    return (columns + width - 1) / width * width * rows;
}

static int64_t part_scratch(const recurrence *r, bool gradient, float *at, recurrence_scratch *s)
{
    enum { ROOM = 16 }; /* behind what a product reads in whole vectors */
    const int64_t hidden = r->hidden, width = r->gates * hidden, rows = r->sequences * r->attributes->length;
    const bool gru = r->attributes->kind == FTH_GRU;
    const struct {
        float **place;
        int64_t floats;
    } parts[] = {
        {&s->panels, gradient ? panel_floats(r, width, hidden) : panel_floats(r, hidden, gru ? 2 * hidden : width)},
        {&s->more_panels, gru && !gradient ? panel_floats(r, hidden, hidden) : 0},
        {&s->turned, gradient ? 0 : hidden * width},
        {&s->zeros, hidden},
        {&s->dr, gradient && gru ? rows * width : 0},
        {&s->before, gradient ? rows * hidden + ROOM : 0},
        {&s->dh, gradient ? r->sequences * hidden : 0},
        {&s->dc, gradient ? r->sequences * hidden : 0},
    };
    int64_t end = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(parts); i++) {
        *parts[i].place = at ? at + end : NULL;
        end += (int64_t)fth_align_up((size_t)parts[i].floats, 16);
    }
    return end;
}

int64_t recurrence_scratch_floats(const recurrence *r, bool gradient)
{
    recurrence_scratch s;
    return part_scratch(r, gradient, NULL, &s);
}

/* ---- products ---- */

/* c = [c +] a b [+ bias]: rows of a and c are a_row and c_row apart, b is in panels. */
static void multiply(const recurrence *r, const float *a, int64_t a_row, const float *panels, float *c, int64_t c_row,
                     int64_t rows, int64_t columns, int64_t depth, const float *bias, bool accumulate)
{
    const portable_segment all = {0, depth};
    r->level->multiply(&(portable_product){.rows = rows,
                                           .columns = columns,
                                           .a = a,
                                           .a_rows = {rows, 0, a_row},
                                           .a_step = 1,
                                           .segments = &all,
                                           .segment_count = 1,
                                           .b = panels,
                                           .b_step = r->level->panel_columns,
                                           .b_panel = r->level->panel_columns * depth,
                                           .c = c,
                                           .c_rows = {rows, 0, c_row},
                                           .bias = bias,
                                           .accumulate = accumulate});
}

/* ---- steps ---- */

/* The row of step `i` of the order in which steps are taken. */
static int64_t row_of(const recurrence *r, int64_t sequence, int64_t i)
{
    const int64_t length = r->attributes->length;
    return sequence * length + (r->attributes->reverse ? length - 1 - i : i);
}

/* The states of a sequence before step `i`, among rows of steps or in the first states; NULL for
 * zeros. */
static const float *before(const recurrence *r, const float *steps, const float *first, int64_t sequence, int64_t i)
{
    if (i > 0)
        return steps + row_of(r, sequence, i - 1) * r->hidden;
    return first ? first + sequence * r->hidden : NULL;
}

void recurrence_begin(const recurrence *r, float *const *data)
{
    const float *weight = data[RECURRENT_WEIGHT];
    const int64_t hidden = r->hidden, width = r->gates * hidden;
    recurrence_scratch s;
    part_scratch(r, false, data[RECURRENT_SCRATCH], &s);
    for (int64_t row = 0; row < width; row++)
        for (int64_t k = 0; k < hidden; k++)
            s.turned[k * width + row] = weight[row * hidden + k];
    if (r->attributes->kind == FTH_GRU) {
        r->level->pack(s.turned, hidden, 2 * hidden, width, s.panels);
        r->level->pack(s.turned + 2 * hidden, hidden, hidden, width, s.more_panels);
    } else {
        r->level->pack(s.turned, hidden, width, width, s.panels);
    }
    memset(s.zeros, 0, (size_t)hidden * sizeof *s.zeros);
}

/* Adds the products with the weight to the gates' sums of step `i`, where the inputs' are already;
 * the third of a GRU goes to the cells. */
static void multiply_states(const recurrence *r, float *const *data, int64_t first, int64_t end, int64_t i)
{
    const int64_t hidden = r->hidden, width = r->gates * hidden, length = r->attributes->length, rows = end - first;
    const float *bias = data[RECURRENT_BIAS], *h = before(r, data[RECURRENT_Y], data[RECURRENT_H0], first, i);
    const int64_t h_row = i > 0 ? length * hidden : h ? hidden : 0;
    float *gates = data[RECURRENT_GATES] + row_of(r, first, i) * width;
    float *cells = data[RECURRENT_CELLS] + row_of(r, first, i) * hidden;
    recurrence_scratch s;
    part_scratch(r, false, data[RECURRENT_SCRATCH], &s);
    h = h ? h : s.zeros;
    const bool gru = r->attributes->kind == FTH_GRU;
    multiply(r, h, h_row, s.panels, gates, length * width, rows, gru ? 2 * hidden : width, hidden, bias, true);
    if (gru)
        multiply(r, h, h_row, s.more_panels, cells, length * hidden, rows, hidden, hidden,
                 bias ? bias + 2 * hidden : NULL, false);
}

static void finish_step(const recurrence *r, float *const *data, int64_t n, int64_t i)
{
    const int64_t hidden = r->hidden, row = row_of(r, n, i);
    float *gates = data[RECURRENT_GATES] + row * r->gates * hidden, *cells = data[RECURRENT_CELLS] + row * hidden;
    float *h = data[RECURRENT_Y] + row * hidden;
    if (r->attributes->kind == FTH_LSTM)
        r->level->lstm_cell(gates, before(r, data[RECURRENT_CELLS], data[RECURRENT_C0], n, i), cells, h, hidden);
    else
        r->level->gru_cell(gates, cells, before(r, data[RECURRENT_Y], data[RECURRENT_H0], n, i), h, hidden);
}

static void copy_last(const recurrence *r, const float *steps, int64_t n, float *last)
{
    if (last)
        memcpy(last + n * r->hidden, steps + row_of(r, n, r->attributes->length - 1) * r->hidden,
               (size_t)r->hidden * sizeof *last);
}

void recurrence_run(const recurrence *r, float *const *data, int64_t first, int64_t end)
{
    const int64_t width = r->gates * r->hidden, length = r->attributes->length;
    if (first >= end)
        return;
    if (data[RECURRENT_GATES] != data[RECURRENT_PROJECTED])
        memcpy(data[RECURRENT_GATES] + first * length * width, data[RECURRENT_PROJECTED] + first * length * width,
               (size_t)((end - first) * length * width) * sizeof(float));
    for (int64_t i = 0; i < length; i++) {
        multiply_states(r, data, first, end, i);
        for (int64_t n = first; n < end; n++)
            finish_step(r, data, n, i);
    }
    for (int64_t n = first; n < end; n++) {
        copy_last(r, data[RECURRENT_Y], n, data[RECURRENT_LAST_H]);
        copy_last(r, data[RECURRENT_CELLS], n, data[RECURRENT_LAST_C]);
    }
}

/* ---- gradient ---- */

void recurrence_begin_gradient(const recurrence *r, float *const *data)
{
    const int64_t hidden = r->hidden;
    recurrence_scratch s;
    part_scratch(r, true, data[RECURRENT_GRAD_SCRATCH], &s);
    r->level->pack(data[RECURRENT_GRAD_WEIGHT], r->gates * hidden, hidden, hidden, s.panels);
}

static void set_row(float *to, const float *from, int64_t count)
{
    if (from)
        memcpy(to, from, (size_t)count * sizeof *to);
    else
        memset(to, 0, (size_t)count * sizeof *to);
}

/* The gradients of the sums of step `i`, and of the states before it past the weight. */
static void differentiate_step(const recurrence *r, float *const *data, const recurrence_scratch *s, int64_t n,
                               int64_t i)
{
    const int64_t hidden = r->hidden, width = r->gates * hidden, row = row_of(r, n, i);
    const float *gates = data[RECURRENT_GRAD_GATES] + row * width, *cells = data[RECURRENT_GRAD_CELLS] + row * hidden;
    const float *h = before(r, data[RECURRENT_GRAD_Y], data[RECURRENT_GRAD_H0], n, i);
    float *ds = data[RECURRENT_GRAD_DPROJECTED] + row * width, *dh = s->dh + n * hidden;
    if (data[RECURRENT_GRAD_DY])
        r->level->add(dh, data[RECURRENT_GRAD_DY] + row * hidden, false, dh, hidden);
    if (r->attributes->kind == FTH_LSTM)
        r->level->lstm_slopes(gates, cells, before(r, data[RECURRENT_GRAD_CELLS], data[RECURRENT_GRAD_C0], n, i), dh,
                              s->dc + n * hidden, ds, hidden);
    else
        r->level->gru_slopes(gates, cells, h, dh, ds, s->dr + row * width, hidden);
    set_row(s->before + row * hidden, h, hidden);
}

/* Gradients of the sums with the weight: (B length, G H). */
static const float *weight_slopes(const recurrence *r, float *const *data, const recurrence_scratch *s)
{
    return r->attributes->kind == FTH_GRU ? s->dr : data[RECURRENT_GRAD_DPROJECTED];
}

void recurrence_run_gradient(const recurrence *r, float *const *data, int64_t first, int64_t end)
{
    const int64_t hidden = r->hidden, width = r->gates * hidden, length = r->attributes->length;
    recurrence_scratch s;
    part_scratch(r, true, data[RECURRENT_GRAD_SCRATCH], &s);
    if (first >= end)
        return;
    const float *dlast_h = data[RECURRENT_GRAD_DLAST_H], *dlast_c = data[RECURRENT_GRAD_DLAST_C];
    float *dh = s.dh + first * hidden, *dc = s.dc + first * hidden;
    set_row(dh, dlast_h ? dlast_h + first * hidden : NULL, (end - first) * hidden);
    set_row(dc, dlast_c ? dlast_c + first * hidden : NULL, (end - first) * hidden);
    for (int64_t i = length; i-- > 0;) {
        for (int64_t n = first; n < end; n++)
            differentiate_step(r, data, &s, n, i);
        multiply(r, weight_slopes(r, data, &s) + row_of(r, first, i) * width, length * width, s.panels, dh, hidden,
                 end - first, hidden, width, NULL, r->attributes->kind == FTH_GRU);
    }
    if (data[RECURRENT_GRAD_DH0])
        set_row(data[RECURRENT_GRAD_DH0] + first * hidden, dh, (end - first) * hidden);
    if (data[RECURRENT_GRAD_DC0])
        set_row(data[RECURRENT_GRAD_DC0] + first * hidden, dc, (end - first) * hidden);
}

int64_t recurrence_weight_parts(const recurrence *r)
{
    return (r->gates * r->hidden + PART_ROWS - 1) / PART_ROWS;
}

/* dweight = weight_slopesᵀ · before */
void recurrence_run_weights(const recurrence *r, float *const *data, int64_t part)
{
    const int64_t hidden = r->hidden, width = r->gates * hidden, rows = r->sequences * r->attributes->length;
    const int64_t first = part * PART_ROWS, count = width - first < PART_ROWS ? width - first : PART_ROWS;
    float *to = data[RECURRENT_GRAD_DWEIGHT];
    recurrence_scratch s;
    part_scratch(r, true, data[RECURRENT_GRAD_SCRATCH], &s);
    for (int64_t at = 0; to && at < rows; at += DEPTH) {
        const portable_segment some = {0, rows - at < DEPTH ? rows - at : DEPTH};
        r->level->multiply(&(portable_product){.rows = count,
                                               .columns = hidden,
                                               .a = weight_slopes(r, data, &s) + at * width + first,
                                               .a_rows = {count, 0, 1},
                                               .a_step = width,
                                               .segments = &some,
                                               .segment_count = 1,
                                               .b = s.before + at * hidden,
                                               .b_step = hidden,
                                               .b_panel = r->level->panel_columns,
                                               .c = to + first * hidden,
                                               .c_rows = {count, 0, hidden},
                                               .accumulate = at > 0});
    }
}

void recurrence_end_gradient(const recurrence *r, float *const *data)
{
    recurrence_scratch s;
    part_scratch(r, true, data[RECURRENT_GRAD_SCRATCH], &s);
    if (data[RECURRENT_GRAD_DBIAS])
        portable_sum_columns(r->level, weight_slopes(r, data, &s), r->sequences * r->attributes->length,
                             r->gates * r->hidden, data[RECURRENT_GRAD_DBIAS]);
}
