/* Convolution as a table: the ways to compute one, and which of them is chosen.
 *
 * A way is a row of convolution.c's table, in a file of its own. Each pass is chosen by itself: the first row that fits it and
 * pays, so rows stand in order of preference, and the last one computes everything.
 *
 * All rows but `bf16`, which is for AMX, may serve plans of both types. In a bf16 plan they read images as f32, compute in f32, and
 * round what they write, but for `narrow`, which leaves it in f32; `direct` computes in bf16 where the processor gains by it. */
#ifndef FTH_BACKEND_CPU_CONVOLUTION_H
#define FTH_BACKEND_CPU_CONVOLUTION_H

#include "backend/cpu/cpu_internal.h"

typedef struct cpu_convolution_shapes {
    fth_shape x, weight, y;
    bool bias; /* there is one, or its gradient is wanted */
} cpu_convolution_shapes;

/* Of a convolution, or the one whose gradient the node is. */
cpu_convolution_shapes cpu_convolution_shapes_of(const fth_plan *plan, const fth_node *node);

/* The bias of a convolution, or none. */
fth_plan_value cpu_convolution_bias(const fth_plan *plan, const fth_node *node);
/* Where the gradients of the weight and, if it is wanted, of the bias go, else none; both are plain. */
fth_status cpu_convolution_place_gradients(fth_plan *plan, const fth_node *node, fth_plan_value *dweight,
                                           fth_plan_value *dbias);

/* The node may be that of another pass than the one asked about. */
typedef struct cpu_convolution_algorithm {
    const char *name;
    bool (*fits)(const fth_plan *plan, const fth_node *node, cpu_pass pass); /* can compute it */
    bool (*pays)(const fth_plan *plan, const fth_node *node, cpu_pass pass); /* faster than rows below; NULL: always */
    fth_status (*forward)(fth_plan *plan, const fth_node *node);
    fth_status (*grad_input)(fth_plan *plan, const fth_node *node);
    fth_status (*grad_weights)(fth_plan *plan, const fth_node *node);
} cpu_convolution_algorithm;

/* Every way, in order of preference; a new one is a file that defines cpu_NAME_convolution, and its row here. */
#define CPU_CONVOLUTION_ALGORITHMS(ROW)                                                                                \
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

/* How many times as fast as in f32 the row `direct` may compute in the plan's type: below 1, it computes in f32 too. */
double cpu_convolution_gain(const fth_plan *plan);

/* Who computes that pass of a convolution; the node is it or one of its gradients. */
const cpu_convolution_algorithm *cpu_convolution_chosen(const fth_plan *plan, const fth_node *node, cpu_pass pass);

/* The row that FARTHING_CONVOLUTION names, taken wherever it fits, for tests and measurements; NULL: none. */
fth_status cpu_convolution_forced(const cpu_convolution_algorithm **algorithm);

#endif
