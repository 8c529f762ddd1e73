/* LSTM and GRU, step by step. */
#include "backend/plain/plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes, and what both ops have. */
typedef struct layer {
    const fth_recurrent_attributes *a;
    int64_t sequences, hidden, gates; /* gates: G */
    const float *weight;              /* (G H, H) */
} layer;

static layer layer_of(const plain_call *call, const plain_tensor *weight, const plain_tensor *steps)
{
    const fth_recurrent_attributes *a = call->attributes;
    return (layer){.a = a,
                   .sequences = steps->shape.dims[0] / a->length,
                   .hidden = weight->shape.dims[1],
                   .gates = fth_recurrent_gates(a->kind),
                   .weight = weight->floats};
}

/* The row of step `i` of the order in which steps are taken. */
static int64_t row_of(const layer *l, int64_t sequence, int64_t i)
{
    return sequence * l->a->length + (l->a->reverse ? l->a->length - 1 - i : i);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* The state before step `i`: element k of a row of `steps`, or of the first state. */
static double before(const layer *l, const float *steps, const float *first, int64_t sequence, int64_t i, int64_t k)
{
    if (i > 0)
        return steps[row_of(l, sequence, i - 1) * l->hidden + k];
    return first ? first[sequence * l->hidden + k] : 0;
}

/* Row `gate` H + k of weight · h + bias */
static double recurrent_sum(const layer *l, const float *bias, const double *h, int64_t gate, int64_t k)
{
    const int64_t row = gate * l->hidden + k;
    double sum = bias ? bias[row] : 0;
    for (int64_t j = 0; j < l->hidden; j++)
        sum += l->weight[row * l->hidden + j] * h[j];
    return sum;
}

/* LSTM: c = f c + i g, h = o tanh(c). GRU: n = tanh(projected + r cell), h = (1 - z) n + z h. */
static fth_status run_recurrent(const plain_call *call, const fth_run *run)
{
    (void)run;
    fth_status status = FTH_OK;
    const layer l = layer_of(call, &call->inputs[1], &call->inputs[0]);
    const int states = 2 + l.a->bias;
    const float *projected = call->inputs[0].floats, *bias = l.a->bias ? call->inputs[2].floats : NULL;
    const float *h0 = l.a->initial ? call->inputs[states].floats : NULL;
    const float *c0 = l.a->initial && l.a->kind == FTH_LSTM ? call->inputs[states + 1].floats : NULL;
    float *y = call->outputs[0].floats, *gates = call->outputs[1].floats, *cells = call->outputs[2].floats;
    const int64_t hidden = l.hidden;
    double *h = NULL;

    FTH_TRY(fth_allocate((size_t)hidden, sizeof *h, &h));
    for (int64_t n = 0; n < l.sequences; n++) {
        for (int64_t i = 0; i < l.a->length; i++) {
            const int64_t row = row_of(&l, n, i);
            const float *x = projected + row * l.gates * hidden;
            float *g = gates + row * l.gates * hidden;
            for (int64_t k = 0; k < hidden; k++)
                h[k] = before(&l, y, h0, n, i, k);
            for (int64_t k = 0; k < hidden; k++) {
                double s[4];
                for (int64_t q = 0; q < l.gates; q++)
                    s[q] = recurrent_sum(&l, bias, h, q, k);
                const double cell = s[2];
                s[0] = sigmoid(x[k] + s[0]);
                s[1] = sigmoid(x[hidden + k] + s[1]);
                if (l.a->kind == FTH_LSTM) {
                    s[2] = tanh(x[2 * hidden + k] + s[2]);
                    s[3] = sigmoid(x[3 * hidden + k] + s[3]);
                    const double c = s[1] * before(&l, cells, c0, n, i, k) + s[0] * s[2];
                    cells[row * hidden + k] = (float)c;
                    y[row * hidden + k] = (float)(s[3] * tanh(c));
                } else {
                    s[2] = tanh(x[2 * hidden + k] + s[0] * cell);
                    cells[row * hidden + k] = (float)cell;
                    y[row * hidden + k] = (float)((1 - s[1]) * s[2] + s[1] * h[k]);
                }
                for (int64_t q = 0; q < l.gates; q++)
                    g[q * hidden + k] = (float)s[q];
            }
        }
        const int64_t last = row_of(&l, n, l.a->length - 1) * hidden;
        memcpy(call->outputs[3].floats + n * hidden, y + last, (size_t)hidden * sizeof *y);
        memcpy(call->outputs[4].floats + n * hidden, cells + last, (size_t)hidden * sizeof *cells);
    }
out:
    free(h);
    return status;
}

/* The gradient of one step's numbers k: `dh` and `dc` are those of its h and c, and become what
 * reaches the state before it by other ways than the weight. ds: of the sums of inputs; dr: of the
 * sums with the weight. */
static void differentiate(const layer *l, const float *g, double cell, double h_before, double c_before, double *dh,
                          double *dc, double *ds, double *dr)
{
    const int64_t hidden = l->hidden;
    if (l->a->kind == FTH_LSTM) {
        const double in = g[0], forget = g[hidden], candidate = g[2 * hidden], out = g[3 * hidden];
        const double t = tanh(cell), c = *dc + *dh * out * (1 - t * t);
        ds[0] = c * candidate * in * (1 - in);
        ds[1] = c * c_before * forget * (1 - forget);
        ds[2] = c * in * (1 - candidate * candidate);
        ds[3] = *dh * t * out * (1 - out);
        memcpy(dr, ds, 4 * sizeof *dr);
        *dc = c * forget;
        *dh = 0;
    } else {
        const double r = g[0], z = g[hidden], n = g[2 * hidden];
        ds[2] = *dh * (1 - z) * (1 - n * n);
        ds[1] = *dh * (h_before - n) * z * (1 - z);
        ds[0] = ds[2] * cell * r * (1 - r);
        dr[0] = ds[0];
        dr[1] = ds[1];
        dr[2] = ds[2] * r;
        *dh *= z;
    }
}

/* What the gradient reads and adds up. */
typedef struct backward {
    layer l;
    const float *gates, *cells, *y, *h0, *c0, *dy, *dlast_h, *dlast_c; /* NULL: none */
    double *dh, *dc, *dr, *dweight, *dbias;                            /* (H), (H), (G H), (G H, H), (G H) */
} backward;

static void differentiate_step(const backward *b, int64_t n, int64_t i, float *dprojected)
{
    const layer *l = &b->l;
    const int64_t hidden = l->hidden, row = row_of(l, n, i), width = l->gates * hidden;
    for (int64_t k = 0; k < hidden; k++) {
        double ds[4], dr[4];
        b->dh[k] += b->dy ? b->dy[row * hidden + k] : 0;
        differentiate(l, b->gates + row * width + k, b->cells[row * hidden + k], before(l, b->y, b->h0, n, i, k),
                      l->a->kind == FTH_LSTM ? before(l, b->cells, b->c0, n, i, k) : 0, &b->dh[k], &b->dc[k], ds, dr);
        for (int64_t q = 0; q < l->gates; q++) {
            dprojected[row * width + q * hidden + k] = (float)ds[q];
            b->dr[q * hidden + k] = dr[q];
        }
    }
    for (int64_t r = 0; r < width; r++) {
        b->dbias[r] += b->dr[r];
        for (int64_t j = 0; j < hidden; j++) {
            b->dweight[r * hidden + j] += b->dr[r] * before(l, b->y, b->h0, n, i, j);
            b->dh[j] += b->dr[r] * l->weight[r * hidden + j];
        }
    }
}

static void round_all(const double *from, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)from[i];
}

static fth_status run_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    fth_status status = FTH_OK;
    const plain_tensor *in = call->inputs;
    backward b = {.l = layer_of(call, &in[0], &in[1]), .gates = in[1].floats, .cells = in[2].floats, .y = in[3].floats};
    const fth_recurrent_attributes *a = b.l.a;
    const int64_t hidden = b.l.hidden, width = b.l.gates * hidden;
    double *memory = NULL;
    int next = 4;

    b.h0 = a->initial ? in[next++].floats : NULL;
    b.c0 = a->initial && a->kind == FTH_LSTM ? in[next++].floats : NULL;
    b.dy = a->has_dy ? in[next++].floats : NULL;
    b.dlast_h = a->has_dh ? in[next++].floats : NULL;
    b.dlast_c = a->has_dc ? in[next++].floats : NULL;
    FTH_TRY(fth_allocate((size_t)(2 * hidden + 2 * width + width * hidden), sizeof *memory, &memory));
    b.dh = memory;
    b.dc = b.dh + hidden;
    b.dr = b.dc + hidden;
    b.dbias = b.dr + width;
    b.dweight = b.dbias + width;
    memset(b.dbias, 0, (size_t)(width + width * hidden) * sizeof *b.dbias);
    for (int64_t n = 0; n < b.l.sequences; n++) {
        for (int64_t k = 0; k < hidden; k++) {
            b.dh[k] = b.dlast_h ? b.dlast_h[n * hidden + k] : 0;
            b.dc[k] = b.dlast_c ? b.dlast_c[n * hidden + k] : 0;
        }
        for (int64_t i = a->length; i-- > 0;)
            differentiate_step(&b, n, i, call->outputs[0].floats);
        round_all(b.dh, hidden, call->outputs[3].floats + n * hidden);
        round_all(b.dc, hidden, call->outputs[4].floats + n * hidden);
    }
    round_all(b.dweight, width * hidden, call->outputs[1].floats);
    round_all(b.dbias, width, call->outputs[2].floats);
out:
    free(memory);
    return status;
}

const plain_kernel plain_recurrent = {&fth_op_recurrent, run_recurrent, 0};
const plain_kernel plain_recurrent_grad = {&fth_op_recurrent_grad, run_grad, 0};
