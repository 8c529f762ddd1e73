/* Softmax cross-entropy with label smoothing: target = (1-s) * one_hot + s/C. */
#include "backend/plain/plain.h"

#include <math.h>

static double target(const fth_cross_entropy_attributes *attributes, int64_t classes, int64_t c, int64_t label)
{
    double smoothing = attributes->label_smoothing;
    return (c == label ? 1 - smoothing : 0) + smoothing / (double)classes;
}

/* loss = mean over n of -sum over c of target[n,c] * log(probabilities[n,c]), with log p = z - max
 * - log sum exp(z - max). A prediction is the first largest logit. */
static fth_status run_cross_entropy(const plain_call *call, const fth_run *run)
{
    (void)run;
    const float *logits = call->inputs[0].floats; /* (N, C) */
    const int32_t *labels = call->inputs[1].ints; /* (N) */
    float *loss = call->outputs[0].floats;        /* (2) */
    float *probabilities = call->outputs[1].floats;
    const int64_t batch = call->inputs[0].shape.dims[0], classes = call->inputs[0].shape.dims[1];
    double total = 0;
    int64_t correct = 0;
    for (int64_t n = 0; n < batch; n++) {
        const float *z = &logits[n * classes];
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            if (z[c] > z[best])
                best = c;
        double sum = 0;
        for (int64_t c = 0; c < classes; c++)
            sum += exp((double)z[c] - z[best]);
        for (int64_t c = 0; c < classes; c++) {
            double log_probability = (double)z[c] - z[best] - log(sum);
            double share = target(call->attributes, classes, c, labels[n]);
            if (share != 0)
                total -= share * log_probability;
            probabilities[n * classes + c] = (float)exp(log_probability);
        }
        correct += best == labels[n];
    }
    loss[0] = (float)(total / (double)batch);
    loss[1] = (float)correct;
    return FTH_OK;
}

/* dlogits = (probabilities - target) * gradient_scale / N */
static fth_status run_cross_entropy_grad(const plain_call *call, const fth_run *run)
{
    const float *probabilities = call->inputs[0].floats; /* (N, C) */
    const int32_t *labels = call->inputs[1].ints;        /* (N) */
    float *dlogits = call->outputs[0].floats;            /* (N, C) */
    const int64_t batch = call->inputs[0].shape.dims[0], classes = call->inputs[0].shape.dims[1];
    for (int64_t n = 0; n < batch; n++)
        for (int64_t c = 0; c < classes; c++)
            dlogits[n * classes + c] =
                (float)((probabilities[n * classes + c] - target(call->attributes, classes, c, labels[n])) *
                        run->gradient_scale / (double)batch);
    return FTH_OK;
}

const plain_kernel plain_softmax_cross_entropy = {&fth_op_softmax_cross_entropy, run_cross_entropy, 0};
const plain_kernel plain_softmax_cross_entropy_grad = {&fth_op_softmax_cross_entropy_grad, run_cross_entropy_grad, 0};
