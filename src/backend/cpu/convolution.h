/* Convolution as a table: the ways to compute one, and which of them is chosen.
 *
 * A way is a row of convolution.c's table, in a file of its own. Each pass is chosen by itself: the first row that fits it and
 * pays, so rows stand in order of preference, and the last one computes everything.
 *
 * A row may compute in f32 whatever the plan's type is: in a bf16 plan it reads images as f32, and what it writes is rounded to
 * bf16. `bf16` serves bf16 plans alone, and `direct` computes in the plan's type. */
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
    ROW(pixelwise)                                                                                                     \
    ROW(direct)

#define CPU_DECLARE(name) extern const cpu_convolution_algorithm cpu_##name##_convolution;
CPU_CONVOLUTION_ALGORITHMS(CPU_DECLARE)
#undef CPU_DECLARE

/* Who computes that pass of a convolution; the node is it or one of its gradients. */
const cpu_convolution_algorithm *cpu_convolution_chosen(const fth_plan *plan, const fth_node *node, cpu_pass pass);

/* The row that FARTHING_CONVOLUTION names, taken wherever it fits, for tests and measurements; NULL: none. */
fth_status cpu_convolution_forced(const cpu_convolution_algorithm **algorithm);

#endif
