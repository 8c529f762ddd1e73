/* Batch normalization, channels last, with an optional residual and ReLU behind it. Where peers
 * have parts of the batch (fth_plan_options.synchronized) the plain kernels do it. */
#include <math.h>
#include <string.h>

#include "backend/batch_norm_sums.h"
#include "backend/portable/portable.h"

typedef struct batch_norm_call {
    portable_call call;
    int64_t rows, channels; /* rows: samples, or pixels of them */
    bool by_batch;          /* normalizes by the statistics of the batch, not by the running ones */
} batch_norm_call;

/* ---- forward ---- */

enum { X, SCALE, SHIFT, RESIDUAL, RUNNING_MEAN, RUNNING_VARIANCE, SUMS, FACTOR, Y, MEAN, VARIANCE, VALUES };

/* Into `mean` and `variance`; the running ones move. */
static void find_statistics(const batch_norm_call *c)
{
    const portable_call *call = &c->call;
    const fth_batch_norm_attributes *attributes = call->attributes;
    float *mean = call->data[MEAN];
    double *sums = (double *)call->data[SUMS];

    memset(sums, 0, (size_t)c->channels * sizeof *sums);
    call->level->sum_columns(call->data[X], c->rows, c->channels, c->channels, sums);
    for (int64_t i = 0; i < c->channels; i++) {
        const double found = sums[i] / (double)c->rows;
        mean[i] = (float)found;
        fth_batch_norm_move(&call->data[RUNNING_MEAN][i], found, attributes->momentum);
    }
    memset(sums, 0, (size_t)c->channels * sizeof *sums);
    call->level->sum_squares(call->data[X], c->rows, c->channels, mean, sums);
    for (int64_t i = 0; i < c->channels; i++) {
        const double variance = sums[i] / (double)c->rows;
        /* One value per channel has no unbiased variance; the biased one, zero, stands in for
         * it. */
        const double unbiased = c->rows > 1 ? sums[i] / (double)(c->rows - 1) : variance;
        call->data[VARIANCE][i] = (float)variance;
        fth_batch_norm_move(&call->data[RUNNING_VARIANCE][i], unbiased, attributes->momentum);
    }
}

static fth_status run_forward(const portable_call *call, const fth_run *run)
{
    const batch_norm_call *c = (const batch_norm_call *)call;
    const fth_batch_norm_attributes *attributes = call->attributes;
    float *factor = call->data[FACTOR];
    (void)run;

    if (c->by_batch) {
        find_statistics(c);
    } else {
        memcpy(call->data[MEAN], call->data[RUNNING_MEAN], (size_t)c->channels * sizeof(float));
        memcpy(call->data[VARIANCE], call->data[RUNNING_VARIANCE], (size_t)c->channels * sizeof(float));
    }
    for (int64_t i = 0; i < c->channels; i++)
        factor[i] = (float)(call->data[SCALE][i] / sqrt((double)call->data[VARIANCE][i] + attributes->epsilon));
    call->level->normalize(call->data[X], c->rows, c->channels, call->data[MEAN], factor, call->data[SHIFT],
                           call->data[RESIDUAL], attributes->relu, call->data[Y]);
    return FTH_OK;
}

static batch_norm_call describe(const fth_plan *plan, const fth_node *node, int values)
{
    const fth_batch_norm_attributes *attributes = node->attributes;
    const fth_shape shape = fth_plan_type(plan, node->inputs[0]).shape;
    batch_norm_call c = {
        .call = {.value_count = values},
        .rows = fth_shape_count(&shape) / shape.dims[1],
        .channels = shape.dims[1],
        .by_batch = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN && !attributes->fixed,
    };
    for (int i = 0; i < values; i++)
        c.call.values[i] = FTH_NO_PLAN_VALUE;
    return c;
}

/* Inputs as of plain/batch_norm.c: x, scale, shift, running mean and variance, residual. */
static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    batch_norm_call c = describe(plan, node, VALUES);
    fth_plan_value *values = c.call.values;

    if (fth_plan_get_options(plan).synchronized)
        return portable_add_plain(plan, node, &plain_batch_norm);
    c.call.run = run_forward;
    c.call.write_count = VALUES - (c.by_batch ? RUNNING_MEAN : SUMS);
    FTH_TRY(portable_read(plan, node->inputs[0], true, &values[X]));
    FTH_TRY(portable_read(plan, node->inputs[1], false, &values[SCALE]));
    FTH_TRY(portable_read(plan, node->inputs[2], false, &values[SHIFT]));
    FTH_TRY(portable_read(plan, node->inputs[3], false, &values[RUNNING_MEAN]));
    FTH_TRY(portable_read(plan, node->inputs[4], false, &values[RUNNING_VARIANCE]));
    if (node->input_count > 5)
        FTH_TRY(portable_read(plan, node->inputs[5], true, &values[RESIDUAL]));
    FTH_TRY(portable_add_scratch(plan, (size_t)c.channels * sizeof(double) / sizeof(float), &values[SUMS]));
    FTH_TRY(portable_add_scratch(plan, (size_t)c.channels, &values[FACTOR]));
    FTH_TRY(portable_begin_write(plan, node->outputs[0], true, &values[Y]));
    FTH_TRY(portable_begin_write(plan, node->outputs[1], false, &values[MEAN]));
    FTH_TRY(portable_begin_write(plan, node->outputs[2], false, &values[VARIANCE]));
    FTH_TRY(portable_add_call(plan, node, &c.call, sizeof c));
    FTH_TRY(portable_end_write(plan, node->outputs[0], values[Y]));
out:
    return status;
}

/* ---- gradient ---- */

enum {
    GRAD_X,
    GRAD_Y,
    GRAD_DY,
    GRAD_SCALE,
    GRAD_MEAN,
    GRAD_VARIANCE,
    GRAD_SUMS,    /* (2, C) doubles */
    GRAD_NUMBERS, /* (3, C) */
    GRAD_DX,
    GRAD_DSCALE,
    GRAD_DSHIFT,
    GRAD_DRESIDUAL,
    GRAD_VALUES
};

/* The formula is in plain/batch_norm.c. */
static fth_status run_gradient(const portable_call *call, const fth_run *run)
{
    const batch_norm_call *c = (const batch_norm_call *)call;
    const fth_batch_norm_attributes *attributes = call->attributes;
    const float *y = attributes->relu ? call->data[GRAD_Y] : NULL;
    double *sums = (double *)call->data[GRAD_SUMS], *products = sums + c->channels;
    float *factor = call->data[GRAD_NUMBERS], *offset = factor + c->channels, *slope = offset + c->channels;
    (void)run;

    memset(sums, 0, (size_t)c->channels * 2 * sizeof *sums);
    call->level->sum_gradients(call->data[GRAD_X], y, call->data[GRAD_DY], c->rows, c->channels, call->data[GRAD_MEAN],
                               sums, products);
    for (int64_t i = 0; i < c->channels; i++) {
        const double inverse_sd = 1 / sqrt((double)call->data[GRAD_VARIANCE][i] + attributes->epsilon);
        const double dscale = products[i] * inverse_sd;
        call->data[GRAD_DSCALE][i] = (float)dscale;
        call->data[GRAD_DSHIFT][i] = (float)sums[i];
        factor[i] = (float)(call->data[GRAD_SCALE][i] * inverse_sd);
        offset[i] = c->by_batch ? (float)(sums[i] / (double)c->rows) : 0;
        slope[i] = c->by_batch ? (float)(inverse_sd * dscale / (double)c->rows) : 0;
    }
    call->level->normalize_gradient(call->data[GRAD_X], y, call->data[GRAD_DY], c->rows, c->channels,
                                    call->data[GRAD_MEAN], factor, offset, slope, call->data[GRAD_DX],
                                    call->data[GRAD_DRESIDUAL]);
    return FTH_OK;
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    batch_norm_call c = describe(plan, node, GRAD_VALUES);
    fth_plan_value *values = c.call.values;
    const bool residual = fth_plan_is_used(plan, node->outputs[3]);

    if (fth_plan_get_options(plan).synchronized)
        return portable_add_plain(plan, node, &plain_batch_norm_grad);
    c.call.run = run_gradient;
    c.call.write_count = GRAD_VALUES - GRAD_SUMS;
    for (int i = GRAD_X; i <= GRAD_VARIANCE; i++)
        FTH_TRY(portable_read(plan, node->inputs[i], i <= GRAD_DY, &values[i]));
    FTH_TRY(portable_add_scratch(plan, (size_t)c.channels * 2 * sizeof(double) / sizeof(float), &values[GRAD_SUMS]));
    FTH_TRY(portable_add_scratch(plan, (size_t)c.channels * 3, &values[GRAD_NUMBERS]));
    FTH_TRY(portable_begin_write(plan, node->outputs[0], true, &values[GRAD_DX]));
    FTH_TRY(portable_begin_write(plan, node->outputs[1], false, &values[GRAD_DSCALE]));
    FTH_TRY(portable_begin_write(plan, node->outputs[2], false, &values[GRAD_DSHIFT]));
    if (residual)
        FTH_TRY(portable_begin_write(plan, node->outputs[3], true, &values[GRAD_DRESIDUAL]));
    FTH_TRY(portable_add_call(plan, node, &c.call, sizeof c));
    FTH_TRY(portable_end_write(plan, node->outputs[0], values[GRAD_DX]));
    if (residual)
        FTH_TRY(portable_end_write(plan, node->outputs[3], values[GRAD_DRESIDUAL]));
out:
    return status;
}

const fth_kernel portable_batch_norm = {&fth_op_batch_norm, prepare_forward};
const fth_kernel portable_batch_norm_grad = {&fth_op_batch_norm_grad, prepare_gradient};
