/* Dropout, and noise for each sample: stochastic depth is written as
 *
 *     noise = empty((N, 1, 1, 1)).bernoulli_(keep).div_(keep);  x * noise
 *
 * which is a dropout of ones, with a probability of 1 - keep and one draw a sample. */
#include <math.h>

#include "exported/lowering.h"

/* Ones that are dropped, of the size of `view`, which is not in memory yet. */
static fth_status drop_ones(lowering *l, double probability, fth_view *view)
{
    fth_status status = FTH_OK;
    fth_host_tensor one = {.torch_dtype = FTH_TORCH_F32, .numbers = &(double){1}};
    fth_view ones;
    fth_exported_dim dims[FTH_MAX_RANK];

    for (int d = 0; d < view->rank; d++)
        dims[d] = fth_view_dim(view, d);
    FTH_REQUIRE(fth_view_has_batch(view), FTH_UNSUPPORTED,
                "noise that is the same for all samples; draw it for each (\"row\" mode)");
    FTH_TRY(lowering_add_constant(l, &one, &ones));
    FTH_TRY(fth_view_expand(&ones, view->rank, dims));
    FTH_TRY(fth_view_arrange_plain(lowering_graph(l), &ones));
    if (probability > 0 && !lowering_options(l)->no_dropout)
        FTH_TRY(fth_op_add_dropout(lowering_graph(l), (float)probability, ones.value, &ones.value));
    *view = ones;
out:
    return status;
}

static fth_status scale_by(lowering *l, double factor, fth_view *x)
{
    fth_expression expression = {0};
    fth_expression_apply(&expression, FTH_FUNCTION_MUL, fth_expression_input(0),
                         fth_expression_number(&expression, factor), FTH_NO_OPERAND);
    return lowering_apply(l, &expression, x);
}

fth_status lowering_add_noise(lowering *l, lowering_noise noise, fth_view *view)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(noise.kind == LOWERING_KEPT || noise.kind == LOWERING_SCALED, FTH_UNSUPPORTED,
                "a tensor is read before it is filled");
    FTH_TRY(drop_ones(l, 1 - noise.keep, view));
    if (noise.kind == LOWERING_KEPT) /* not divided by `keep`, as a dropout does */
        FTH_TRY(scale_by(l, noise.keep, view));
out:
    return status;
}

/* ---- noise step by step ---- */

static fth_status empty(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    fth_view view = {.value = FTH_NO_VALUE};
    FTH_TRY(fth_view_expand(&view, output->rank, output->dims));
    lowering_set_noise(l, (lowering_noise){.kind = LOWERING_EMPTY}, &view);
out:
    return status;
}

static fth_status bernoulli(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    fth_view view = {.value = FTH_NO_VALUE};
    const double keep = lowering_number(l, "p", 0.5);

    FTH_REQUIRE(lowering_is_number(l, "p"), FTH_UNSUPPORTED, "its probabilities are a tensor");
    FTH_REQUIRE(keep > 0 && keep <= 1, FTH_UNSUPPORTED, "its probability is %g", keep);
    FTH_TRY(fth_view_expand(&view, output->rank, output->dims));
    lowering_set_noise(l, (lowering_noise){.kind = LOWERING_KEPT, .keep = keep}, &view);
out:
    return status;
}

/* Of noise by what it was kept with; any other division is a function. */
fth_status lowering_divide_noise(lowering *l, bool *done)
{
    fth_status status = FTH_OK;
    const lowering_noise noise = lowering_noise_of(l, "self");
    fth_view view = {.value = FTH_NO_VALUE};
    const fth_exported_value *output = lowering_output(l, 0);

    *done = noise.kind == LOWERING_KEPT && lowering_is_number(l, "other") &&
            fabs(lowering_number(l, "other", 0) - noise.keep) < 1e-12;
    if (!*done)
        goto out;
    FTH_TRY(fth_view_expand(&view, output->rank, output->dims));
    lowering_set_noise(l, (lowering_noise){.kind = LOWERING_SCALED, .keep = noise.keep}, &view);
out:
    return status;
}

/* ---- dropout ---- */

static bool drops(const lowering *l, double *probability)
{
    *probability = lowering_number(l, "p", 0.5);
    return *probability > 0 && lowering_bool(l, "train", true) && !lowering_options(l)->no_dropout;
}

static fth_status dropout(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x;
    double probability;
    FTH_TRY(lowering_tensor(l, lowering_lacks(l, "input") ? "self" : "input", &x)); /* in place it is self */
    if (drops(l, &probability))
        FTH_TRY(fth_op_add_dropout(lowering_graph(l), (float)probability, x.value, &x.value));
    lowering_set(l, 0, &x);
out:
    return status;
}

/* Whole channels: one draw for each sample and channel. */
static fth_status feature_dropout(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, noise = {.value = FTH_NO_VALUE}, y;
    fth_exported_dim dims[FTH_MAX_RANK];
    double probability;

    FTH_TRY(lowering_tensor(l, lowering_lacks(l, "input") ? "self" : "input", &x));
    y = x;
    if (drops(l, &probability)) {
        FTH_REQUIRE(x.rank >= 2, FTH_UNSUPPORTED, "its input has no channels");
        for (int d = 0; d < x.rank; d++)
            dims[d] = d < 2 ? fth_view_dim(&x, d) : (fth_exported_dim){.factor = 1};
        FTH_TRY(fth_view_expand(&noise, x.rank, dims));
        FTH_TRY(drop_ones(l, probability, &noise));
        FTH_TRY(lowering_binary(l, FTH_FUNCTION_MUL, &x, &noise, &y));
    }
    lowering_set(l, 0, &y);
out:
    return status;
}

/* ---- a number for every element ---- */

/* zeros, ones, full and their like, where the size depends on the batch (fold.h has the others). */
static fth_status fill(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    double number = lowering_number(l, "fill_value", lowering_number(l, "value", 0));
    fth_view view;

    FTH_REQUIRE(!lowering_argument(l, "value") && !lowering_argument(l, "fill_value"), FTH_UNSUPPORTED,
                "it fills a tensor with a number that is computed");
    if (lowering_is(l, "ones") || lowering_is(l, "ones_like") || lowering_is(l, "new_ones"))
        number = 1;
    const fth_host_tensor one = {.torch_dtype = output->torch_dtype, .numbers = &number};
    FTH_TRY(lowering_add_constant(l, &one, &view));
    FTH_TRY(fth_view_expand(&view, output->rank, output->dims));
    lowering_set(l, 0, &view);
out:
    return status;
}

const lowering_row lowering_noises[] = {
    {"empty", empty},         {"new_empty", empty}, {"empty_like", empty},
    {"bernoulli", bernoulli}, {"dropout", dropout}, {"feature_dropout", feature_dropout},
    {"zeros", fill},          {"ones", fill},       {"full", fill},
    {"new_zeros", fill},      {"new_ones", fill},   {"new_full", fill},
    {"zeros_like", fill},     {"ones_like", fill},  {"full_like", fill},
    {"fill", fill},           {"zero", fill},       {NULL, NULL},
};
