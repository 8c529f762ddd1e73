/* Softmax cross-entropy on plain f32 logits. The batch is summed in one thread, in order: the loss
 * is the same for any number of threads. */
#include <math.h>

#include "backend/cpu/cpu_internal.h"

CPU_VECTORIZED static float row_maximum(const float *row, int64_t count)
{
    float largest = row[0];
    for (int64_t i = 1; i < count; i++)
        largest = row[i] > largest || row[i] != row[i] ? row[i] : largest; /* keeps NaN */
    return largest;
}

static fth_status run_loss(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const float *logits = call->data[0];
    const int32_t *labels = call->data[1];
    float *loss = call->data[2], *probabilities = call->data[3];
    const int64_t batch = call->sizes[0], classes = call->sizes[1];
    const double smoothing = call->numbers[0];
    double loss_sum = 0, correct = 0;
    for (int64_t n = 0; n < batch; n++) {
        const float *row = logits + n * classes;
        float *p = probabilities + n * classes;
        const float largest = row_maximum(row, classes);
        double sum = 0, logit_sum = 0;
        int64_t best = 0;
        for (int64_t c = 0; c < classes; c++) {
            p[c] = expf(row[c] - largest);
            sum += p[c];
            logit_sum += row[c];
            best = row[c] > row[best] ? c : best;
        }
        const float scale = (float)(1 / sum);
        for (int64_t c = 0; c < classes; c++)
            p[c] *= scale;
        const double log_sum = log(sum) + largest;
        loss_sum += log_sum - (1 - smoothing) * row[labels[n]] - smoothing * logit_sum / (double)classes;
        correct += best == labels[n];
    }
    loss[0] = (float)(loss_sum / (double)batch);
    loss[1] = (float)correct;
    return FTH_OK;
}

static fth_status run_gradient(const cpu_call *call, const fth_run *run)
{
    const float *probabilities = call->data[0];
    const int32_t *labels = call->data[1];
    float *gradient = call->data[2];
    const int64_t batch = call->sizes[0], classes = call->sizes[1];
    const float smoothing = call->numbers[0];
    const float scale = run->gradient_scale / (float)batch, base = smoothing / (float)classes;
    for (int64_t n = 0; n < batch; n++) {
        for (int64_t c = 0; c < classes; c++)
            gradient[n * classes + c] = (probabilities[n * classes + c] - base) * scale;
        gradient[n * classes + labels[n]] -= (1 - smoothing) * scale;
    }
    return FTH_OK;
}

static fth_status prepare_loss(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_cross_entropy_attributes *a = node->attributes;
    fth_shape shape = fth_plan_type(plan, node->inputs[0]).shape;
    fth_plan_value logits;
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &logits));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[0]));
    FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
    const cpu_call call = {.run = run_loss,
                           .values = {logits, fth_plan_value_of(plan, node->inputs[1]),
                                      fth_plan_value_of(plan, node->outputs[0]),
                                      fth_plan_value_of(plan, node->outputs[1])},
                           .value_count = 4,
                           .write_count = 2,
                           .sizes = {shape.dims[0], shape.dims[1]},
                           .numbers = {a->label_smoothing}};
    FTH_TRY(cpu_add_call(plan, "softmax_cross_entropy", &call));
out:
    return status;
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_cross_entropy_attributes *a = node->attributes;
    fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    FTH_TRY(cpu_fix_plain(plan, node->outputs[0]));
    const cpu_call call = {.run = run_gradient,
                           .values = {fth_plan_value_of(plan, node->inputs[0]),
                                      fth_plan_value_of(plan, node->inputs[1]),
                                      fth_plan_value_of(plan, node->outputs[0])},
                           .value_count = 3,
                           .write_count = 1,
                           .sizes = {shape.dims[0], shape.dims[1]},
                           .numbers = {a->label_smoothing}};
    FTH_TRY(cpu_add_call(plan, "softmax_cross_entropy_grad", &call));
out:
    return status;
}

const fth_kernel cpu_softmax_cross_entropy = {&fth_op_softmax_cross_entropy, prepare_loss};
const fth_kernel cpu_softmax_cross_entropy_grad = {&fth_op_softmax_cross_entropy_grad, prepare_gradient};
