/* Expressions element by element, and their sums, means, largest and smallest numbers. */
#include "backend/plain/plain.h"

#include <math.h>

/* Walks over the elements of a shape to which a call's inputs are broadcast. */
typedef struct walk {
    const plain_call *call;
    fth_shape shape;
    int64_t strides[FTH_EXPRESSION_INPUTS][FTH_MAX_RANK];
    int64_t place[FTH_MAX_RANK];
    int64_t offsets[FTH_EXPRESSION_INPUTS]; /* of the inputs, at that place */
} walk;

static void begin_walk(walk *w, const plain_call *call, const fth_shape *shape)
{
    *w = (walk){.call = call, .shape = *shape};
    for (int i = 0; i < call->input_count; i++)
        fth_shape_broadcast_strides(&call->inputs[i].shape, shape, w->strides[i]);
}

static double evaluate(const walk *w, const fth_expression *expression)
{
    double inputs[FTH_EXPRESSION_INPUTS] = {0};
    for (int i = 0; i < w->call->input_count; i++) {
        const plain_tensor *input = &w->call->inputs[i];
        inputs[i] = input->dtype == FTH_I32 ? input->ints[w->offsets[i]] : (double)input->floats[w->offsets[i]];
    }
    return fth_expression_evaluate(expression, inputs);
}

/* To the next element in row-major order. */
static void step(walk *w)
{
    for (int axis = w->shape.rank - 1; axis >= 0; axis--) {
        const bool wraps = w->place[axis] == w->shape.dims[axis] - 1;
        const int64_t by = wraps ? -w->place[axis] : 1;
        w->place[axis] += by;
        for (int i = 0; i < w->call->input_count; i++)
            w->offsets[i] += by * w->strides[i][axis];
        if (!wraps)
            return;
    }
}

static fth_status run_pointwise(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_pointwise_attributes *attributes = call->attributes;
    walk w;
    begin_walk(&w, call, &call->outputs[0].shape);
    for (int64_t i = 0; i < call->outputs[0].count; i++, step(&w))
        call->outputs[0].floats[i] = (float)evaluate(&w, &attributes->expression);
    return FTH_OK;
}

static double combine(fth_reduction reduction, double so_far, double next)
{
    switch (reduction) {
    case FTH_REDUCE_MAX: return so_far != so_far || so_far > next ? so_far : next;
    case FTH_REDUCE_MIN: return so_far != so_far || so_far < next ? so_far : next;
    case FTH_REDUCE_SUM:
    case FTH_REDUCE_MEAN: break;
    }
    return so_far + next;
}

/* For each result, walks over the elements that belong to it: those of the reduced axes. */
static fth_status run_reduce(const plain_call *call, const fth_run *run)
{
    (void)run;
    const fth_reduce_attributes *a = call->attributes;
    fth_shape whole = {0}, outer, inner;
    for (int i = 0; i < call->input_count; i++)
        (void)fth_shape_broadcast(&whole, &call->inputs[i].shape);
    outer = inner = whole;
    for (int i = 0; i < whole.rank; i++)
        (a->axes >> i & 1 ? &outer : &inner)->dims[i] = 1;

    walk results, elements;
    const int64_t count = fth_shape_count(&inner);
    begin_walk(&results, call, &whole);
    results.shape = outer;
    begin_walk(&elements, call, &whole);
    elements.shape = inner;
    for (int64_t i = 0; i < call->outputs[0].count; i++, step(&results)) {
        for (int k = 0; k < call->input_count; k++)
            elements.offsets[k] = results.offsets[k];
        double sum = evaluate(&elements, &a->expression);
        step(&elements);
        for (int64_t n = 1; n < count; n++, step(&elements))
            sum = combine(a->reduction, sum, evaluate(&elements, &a->expression));
        call->outputs[0].floats[i] = (float)(a->reduction == FTH_REDUCE_MEAN ? sum / (double)count : sum);
    }
    return FTH_OK;
}

const plain_kernel plain_pointwise = {&fth_op_pointwise, run_pointwise, 0};
const plain_kernel plain_reduce = {&fth_op_reduce, run_reduce, 0};
