/* Softmax cross-entropy on plain f32 logits. Threads share the rows; their losses are added up in
 * order, so that the loss is the same for any number of threads. */
#include <math.h>

#include "backend/cpu/cpu_internal.h"
#include "backend/cpu/row_softmax.h"

/* What is added up of a row that counts. */
typedef struct row_result {
    double loss;
    bool correct;
} row_result;

/* Whether the first of the largest logits is the label's; comparisons with NaN are false. */
static bool is_correct(const float *row, int64_t classes, float largest, bool has_nan, int32_t label)
{
    int64_t best = 0;
    if (!has_nan && row[label] != largest)
        return false;
    for (int64_t c = 0; c < classes; c++)
        best = row[c] > row[best] ? c : best;
    return best == label;
}

CPU_VECTORIZED static void scale_row(float *row, int64_t count, float factor)
{
    for (int64_t i = 0; i < count; i++)
        row[i] *= factor;
}

static row_result compute_row(const float *row, int64_t classes, double smoothing, int32_t label, float *p)
{
    row_result result = {0};
    const bool counts = label != FTH_IGNORED_LABEL;
    const float largest = cpu_row_largest(row, classes), own = counts ? row[label] : 0;
    const double logit_sum = counts && smoothing > 0 ? cpu_row_sum(row, classes) : 0;
    const double sum = cpu_row_exponentials(row, largest, classes, p), log_sum = log(sum) + (double)largest;
    if (counts)
        result.correct = is_correct(row, classes, largest, isnan(sum), label);
    if (counts)
        result.loss = log_sum - (1 - smoothing) * (double)own - smoothing * logit_sum / (double)classes;
    scale_row(p, classes, (float)(1 / sum));
    return result;
}

/* Values: logits, labels, loss, probabilities, count, scratch. */
static fth_status run_loss(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const float *logits = call->data[0];
    const int32_t *labels = call->data[1];
    float *loss = call->data[2], *probabilities = call->data[3], *counted = call->data[4];
    row_result *results = call->data[5];
    const int64_t rows = call->sizes[0], classes = call->sizes[1];
    const double smoothing = (double)call->numbers[0];
    double loss_sum = 0;
    int64_t correct = 0, count = 0;
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (int64_t r = 0; r < rows; r++)
        results[r] = compute_row(logits + r * classes, classes, smoothing, labels[r], probabilities + r * classes);
    for (int64_t r = 0; r < rows; r++) {
        loss_sum += results[r].loss;
        correct += results[r].correct;
        count += labels[r] != FTH_IGNORED_LABEL;
    }
    loss[0] = count > 0 ? (float)(loss_sum / (double)count) : 0;
    loss[1] = (float)correct;
    counted[0] = (float)count;
    return FTH_OK;
}

CPU_VECTORIZED static void gradient_row(const float *probabilities, int64_t classes, float base, float scale,
                                        float *gradient)
{
    FTH_INDEPENDENT
    for (int64_t c = 0; c < classes; c++)
        gradient[c] = (probabilities[c] - base) * scale;
}

/* Values: probabilities, labels, count, gradient. */
static fth_status run_gradient(const cpu_call *call, const fth_run *run)
{
    const float *probabilities = call->data[0], *counted = call->data[2];
    const int32_t *labels = call->data[1];
    float *gradient = call->data[3];
    const int64_t rows = call->sizes[0], classes = call->sizes[1];
    const float smoothing = call->numbers[0];
    const float scale = run->gradient_scale / counted[0], base = smoothing / (float)classes;
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (int64_t r = 0; r < rows; r++) {
        float *to = gradient + r * classes;
        if (labels[r] == FTH_IGNORED_LABEL) {
            memset(to, 0, (size_t)classes * sizeof *to);
            continue;
        }
        gradient_row(probabilities + r * classes, classes, base, scale, to);
        to[labels[r]] -= (1 - smoothing) * scale;
    }
    return FTH_OK;
}

static fth_status prepare_loss(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_cross_entropy_attributes *a = node->attributes;
    fth_shape shape = fth_plan_type(plan, node->inputs[0]).shape;
    cpu_call call = {.run = run_loss,
                     .value_count = 6,
                     .write_count = 4,
                     .sizes = {shape.dims[0], shape.dims[1]},
                     .numbers = {a->label_smoothing}};
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &call.values[0]));
    call.values[1] = fth_plan_value_of(plan, node->inputs[1]);
    for (int i = 0; i < 3; i++) {
        FTH_TRY(cpu_fix_plain(plan, node->outputs[i]));
        call.values[2 + i] = fth_plan_value_of(plan, node->outputs[i]);
    }
    FTH_TRY(cpu_add_scratch(plan, (size_t)shape.dims[0] * sizeof(row_result), &call.values[5]));
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
    const cpu_call call = {
        .run = run_gradient,
        .values = {fth_plan_value_of(plan, node->inputs[0]), fth_plan_value_of(plan, node->inputs[1]),
                   fth_plan_value_of(plan, node->inputs[2]), fth_plan_value_of(plan, node->outputs[0])},
        .value_count = 4,
        .write_count = 1,
        .sizes = {shape.dims[0], shape.dims[1]},
        .numbers = {a->label_smoothing}};
    fth_plan_may_overwrite(plan, call.values[3], call.values[0]);
    FTH_TRY(cpu_add_call(plan, "softmax_cross_entropy_grad", &call));
out:
    return status;
}

const fth_kernel cpu_softmax_cross_entropy = {&fth_op_softmax_cross_entropy, prepare_loss};
const fth_kernel cpu_softmax_cross_entropy_grad = {&fth_op_softmax_cross_entropy_grad, prepare_gradient};
