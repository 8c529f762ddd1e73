/* Linear layers with few rows and large weights, all three passes; see level/thin_linear.c. */
#ifndef FTH_BACKEND_CPU_THIN_LINEAR_H
#define FTH_BACKEND_CPU_THIN_LINEAR_H

#include "backend/cpu/linear.h"

enum { THIN_LINEAR_ROWS = 8 };

/* x (rows, features), weight (outputs, features), y (rows, outputs). */
typedef struct thin_linear {
    int64_t rows; /* at most THIN_LINEAR_ROWS */
    int64_t features, outputs;
    bool relu;
} thin_linear;

/* Biases and their gradient may be NULL. */
typedef struct thin_linear_kernels {
    void (*forward)(const thin_linear *l, const float *x, const float *weight, const float *bias, float *y);
    void (*grad_input)(const thin_linear *l, const float *dy, const float *weight, float *dx);
    void (*grad_weights)(const thin_linear *l, const float *x, const float *dy, float *dweight, float *dbias);
} thin_linear_kernels;

bool cpu_thin_linear_fits(const cpu_linear_shapes *shapes);

/* Like cpu_add_linear() and its gradients (linear.h), for shapes that fit. */
fth_status cpu_add_thin_linear(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x, fth_plan_value weight,
                               fth_plan_value bias_or_none, bool relu, fth_plan_value y);
fth_status cpu_add_thin_linear_grad_input(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value dy,
                                          fth_plan_value weight, fth_plan_value dx);
fth_status cpu_add_thin_linear_grad_weights(fth_plan *plan, const cpu_linear_shapes *shapes, fth_plan_value x,
                                            fth_plan_value dy, fth_plan_value dweight, fth_plan_value dbias_or_none);

#endif
