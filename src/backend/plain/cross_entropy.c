/* Softmax cross-entropy with label smoothing: target = (1-s) * one_hot + s/C. */
#include "backend/plain/plain.h"

#include <math.h>

static double target(const fth_cross_entropy_attributes *attributes, int64_t classes, int64_t c, int64_t label)
{
    double smoothing = attributes->label_smoothing;
    return (c == label ? 1 - smoothing : 0) + smoothing / (double)classes;
}

/* -sum over c of target[c] * log(probabilities[c]), with log p = z - max - log sum exp(z - max); 0
 * where the label is ignored. A prediction, *best, is the first largest logit. */
static double row_loss(const fth_cross_entropy_attributes *attributes, const float *z, int64_t classes, int64_t label,
                       float *probabilities, int64_t *best)
{
    double sum = 0, loss = 0;
    *best = 0;
    for (int64_t c = 1; c < classes; c++)
        if (z[c] > z[*best])
            *best = c;
    for (int64_t c = 0; c < classes; c++)
        sum += exp((double)z[c] - z[*best]);
    for (int64_t c = 0; c < classes; c++) {
        double log_probability = (double)z[c] - z[*best] - log(sum);
        double share = label == FTH_IGNORED_LABEL ? 0 : target(attributes, classes, c, label);
        if (share != 0)
            loss -= share * log_probability;
        probabilities[c] = (float)exp(log_probability);
    }
    return loss;
}

/* loss = mean over the rows that count */
static fth_status run_cross_entropy(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *logits = call->inputs[0].floats; /* (R, C) */
    const int32_t *labels = call->inputs[1].ints; /* (R) */
    float *loss = call->outputs[0].floats;        /* (2) */
    float *probabilities = call->outputs[1].floats;
    const int64_t rows = call->inputs[0].shape.dims[0], classes = call->inputs[0].shape.dims[1];
    double total = 0;
    int64_t correct = 0, count = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t best;
        total +=
            row_loss(call->attributes, logits + r * classes, classes, labels[r], probabilities + r * classes, &best);
        correct += best == labels[r];
        count += labels[r] != FTH_IGNORED_LABEL;
    }
    loss[0] = count > 0 ? (float)(total / (double)count) : 0;
    loss[1] = (float)correct;
    call->outputs[2].floats[0] = (float)count;
    return FTH_OK;
}

/* dlogits = (probabilities - target) * gradient_scale / count */
static fth_status run_cross_entropy_grad(const plain_call *call, const fth_run *run)
{
    const float *probabilities = call->inputs[0].floats; /* (R, C) */
    const int32_t *labels = call->inputs[1].ints;        /* (R) */
    float *dlogits = call->outputs[0].floats;            /* (R, C) */
    const int64_t rows = call->inputs[0].shape.dims[0], classes = call->inputs[0].shape.dims[1];
    const double scale = run->gradient_scale / (double)call->inputs[2].floats[0];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < classes; c++) {
            const double share = target(call->attributes, classes, c, labels[r]);
            dlogits[r * classes + c] =
                labels[r] == FTH_IGNORED_LABEL ? 0 : (float)((probabilities[r * classes + c] - share) * scale);
        }
    return FTH_OK;
}

const plain_kernel plain_softmax_cross_entropy = {&fth_op_softmax_cross_entropy, run_cross_entropy, 0};
const plain_kernel plain_softmax_cross_entropy_grad = {&fth_op_softmax_cross_entropy_grad, run_cross_entropy_grad, 0};
