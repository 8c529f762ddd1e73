/* Convolution as a table of algorithms, and the choice among them.
 *
 * An algorithm is a row of convolution.c's table, in a file of its own. Each pass is chosen
 * separately: the first row that fits it and pays. Rows are in order of preference, and the last
 * one computes everything.
 *
 * All rows but `bf16`, which needs AMX, serve f32 and bf16 plans. In a bf16 plan they read images
 * as f32, compute in f32 and round their results, except that `narrow` leaves them in f32; `direct`
 * computes in bf16 where the processor gains by it. */
#ifndef FTH_BACKEND_CPU_CONVOLUTION_H
#define FTH_BACKEND_CPU_CONVOLUTION_H

#include "backend/cpu/cpu_internal.h"

typedef struct cpu_convolution_shapes {
    fth_shape x, weight, y;
    bool bias; /* it has a bias, or the bias's gradient is wanted */
} cpu_convolution_shapes;

/* The shapes of a convolution; `node` is it or one of its gradients. */
cpu_convolution_shapes cpu_convolution_shapes_of(const fth_plan *plan, const fth_node *node);

/* A convolution's bias, or none. */
fth_plan_value cpu_convolution_bias(const fth_plan *plan, const fth_node *node);
/* Where to write the gradients of the weight and of the bias (none if it is not wanted); both are
 * plain. */
fth_status cpu_convolution_place_gradients(fth_plan *plan, const fth_node *node, fth_plan_value *dweight,
                                           fth_plan_value *dbias);

/* `node` may belong to another pass than `pass`. */
typedef struct cpu_convolution_algorithm {
    const char *name;
    bool (*fits)(const fth_plan *plan, const fth_node *node, cpu_pass pass); /* the algorithm can compute it */
    bool (*pays)(const fth_plan *plan, const fth_node *node, cpu_pass pass); /* faster than rows below; NULL: always */
    fth_status (*forward)(fth_plan *plan, const fth_node *node);
    fth_status (*grad_input)(fth_plan *plan, const fth_node *node);
    fth_status (*grad_weights)(fth_plan *plan, const fth_node *node);
} cpu_convolution_algorithm;

/* Every algorithm, in order of preference. To add one, write a file that defines
 * cpu_NAME_convolution, and add a row here. */
#define CPU_CONVOLUTION_ALGORITHMS(ROW)                                                                                \
    ROW(depthwise)                                                                                                     \
    ROW(narrow)                                                                                                        \
    ROW(bf16)                                                                                                          \
    ROW(winograd)                                                                                                      \
    ROW(strided)                                                                                                       \
    ROW(pointwise)                                                                                                     \
    ROW(pixelwise)                                                                                                     \
    ROW(direct)

#define CPU_DECLARE(name) extern const cpu_convolution_algorithm cpu_##name##_convolution;
CPU_CONVOLUTION_ALGORITHMS(CPU_DECLARE)
#undef CPU_DECLARE

/* Speed of the row `direct` in the plan's dtype relative to f32. Below 1, it computes in f32 as
 * well. */
double cpu_convolution_gain(const fth_plan *plan);

/* The algorithm that computes a pass of a convolution; `node` is the convolution or one of its
 * gradients. */
const cpu_convolution_algorithm *cpu_convolution_chosen(const fth_plan *plan, const fth_node *node, cpu_pass pass);

/* The row that FARTHING_CONVOLUTION names, used wherever it fits, for tests and measurements; NULL:
 * not set. */
fth_status cpu_convolution_forced(const cpu_convolution_algorithm **algorithm);

#endif
