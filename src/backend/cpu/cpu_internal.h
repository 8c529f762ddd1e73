/* Shared by the files of the CPU back end: the device, layouts, and steps made of oneDNN
 * primitives.
 *
 * A layout is a cpu_format (onednn.h), which includes the dtype: in bf16 plans, the mechanism that
 * changes layouts also converts numbers. Kernels let primitives choose (`any`), read their inputs
 * through cpu_read_as(), which adds a reorder only where layouts differ, and write through
 * cpu_begin_write() and cpu_end_write(), which honour layouts fixed in advance (flat vectors,
 * outputs). All of farthing's oneDNN calls are in this folder. */
#ifndef FTH_BACKEND_CPU_INTERNAL_H
#define FTH_BACKEND_CPU_INTERNAL_H

#include <string.h>

#include "backend/cpu/level.h"
#include "backend/cpu/onednn.h"
#include "backend/kernel.h"
#include "base/vectorized.h"

typedef struct cpu_device {
    fth_device base; /* first: backend.h hands out pointers to it */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    bool bf16;
    double bf16_gain;                    /* speed of oneDNN's products in bf16 relative to f32; often less than 1 */
    const struct bf16_kernels *products; /* in bf16 on AMX (bf16.h); NULL: AMX is missing, or may not be used */
    const cpu_level *level;
    const struct cpu_convolution_algorithm *convolution; /* used wherever it fits; NULL: the best (convolution.h) */
} cpu_device;

static inline cpu_device *cpu_device_of(const fth_plan *plan)
{
    return (cpu_device *)fth_plan_device(plan);
}

/* Our own kernels at the device's level. */
static inline const cpu_level *cpu_level_of(const fth_plan *plan)
{
    return cpu_device_of(plan)->level;
}

/* ---- bf16 (bf16_support.c) ---- */

bool cpu_supports_bf16(dnnl_engine_t engine);
bool cpu_has_bf16_instructions(void); /* AVX512_BF16, in use by oneDNN */
double cpu_bf16_gain(void);
fth_status cpu_refuse_bf16(const fth_device *device);

/* ---- layouts (layout.c) ---- */

/* The dtype in which the plan computes: f32 or bf16. */
dnnl_data_type_t cpu_compute_dtype(const fth_plan *plan);
/* The dtype in which oneDNN multiplies: the plan's, or f32 in a bf16 plan if that is faster.
 * Operands and results are then converted. */
dnnl_data_type_t cpu_product_dtype(const fth_plan *plan);

const cpu_format *cpu_layout(const fth_plan *plan, fth_plan_value value);
fth_status cpu_set_layout(fth_plan *plan, fth_plan_value value, const cpu_format *layout);

/* Row-major, or whatever the primitive prefers. */
cpu_format cpu_plain(const fth_shape *shape, dnnl_data_type_t dtype);
cpu_format cpu_any(const fth_shape *shape, dnnl_data_type_t dtype);
/* The layout that convolutions prefer: blocks of as many channels as the level has lanes if the
 * channels divide into them, else plain. */
cpu_format cpu_blocked(const fth_plan *plan, const fth_shape *image, dnnl_data_type_t dtype);
/* The same, where the last block may be padded with zeros. */
cpu_format cpu_padded_blocks(const fth_plan *plan, const fth_shape *image, dnnl_data_type_t dtype);
cpu_format cpu_channels_last(const fth_shape *image, dnnl_data_type_t dtype);
bool cpu_is_plain(const cpu_format *layout);
/* A layout for `shape` in the same order as `like`: blocks of 16, 8 or 4 channels, channels last,
 * or plain. */
cpu_format cpu_like(const cpu_format *like, const fth_shape *shape, dnnl_data_type_t dtype);
/* Elements in the buffer, channel padding included. */
size_t cpu_physical_count(const cpu_format *layout);

/* `value` in the layout `wanted`: itself, a copy made earlier, or a new copy through a reorder
 * step. */
fth_status cpu_read_as(fth_plan *plan, fth_plan_value value, const cpu_format *wanted, fth_plan_value *as);
/* `value` in row-major order and the given dtype. */
fth_status cpu_read_plain(fth_plan *plan, fth_value value, dnnl_data_type_t dtype, fth_plan_value *as);
/* An image in blocks of channels: in f32, or in the plan's dtype for kernels that read both
 * (level/stored.h). */
fth_status cpu_read_blocked(fth_plan *plan, fth_value value, fth_plan_value *as);
fth_status cpu_read_stored(fth_plan *plan, fth_value value, fth_plan_value *as);

/* A place to write `value` in the layout a primitive chose: the value itself, which takes that
 * layout, or a temporary if its layout is already fixed to another. cpu_end_write() then adds the
 * reorder. */
fth_status cpu_begin_write(fth_plan *plan, fth_plan_value value, const cpu_format *layout, fth_plan_value *as);
fth_status cpu_end_write(fth_plan *plan, fth_plan_value value, fth_plan_value as);
/* The same for a result that may be written in f32 but is stored in the plan's dtype; and for an
 * image in blocks of channels in that dtype. */
fth_status cpu_begin_write_rounded(fth_plan *plan, fth_plan_value value, const cpu_format *layout, fth_plan_value *as);
fth_status cpu_begin_write_stored(fth_plan *plan, fth_value value, fth_plan_value *as);
/* Makes an output's layout plain f32 unless it has one already. */
fth_status cpu_fix_plain(fth_plan *plan, fth_value value);

/* Scratch memory of a step. A kernel that needs some for each thread asks for a part for each of
 * fth_plan_threads(); thread t uses part t. Its call has the same number in `threads`. */
fth_status cpu_add_scratch(fth_plan *plan, size_t size_bytes, fth_plan_value *scratch);
fth_status cpu_add_scratch_floats(fth_plan *plan, int64_t count, fth_plan_value *scratch);

/* ---- steps (step.c) ---- */

enum { CPU_MAX_ARGUMENTS = 16 };

typedef struct cpu_argument {
    int name; /* DNNL_ARG_SRC ... */
    fth_plan_value value;
    bool written;
    const cpu_format *layout; /* NULL: the value's own */
} cpu_argument;

/* Adds a step that runs one primitive; takes *descriptor and leaves NULL. Scratch memory comes from
 * the arena. */
fth_status cpu_add_primitive(fth_plan *plan, const char *name, dnnl_primitive_desc_t *descriptor,
                             const cpu_argument *arguments, int argument_count);

enum { CPU_MAX_CALL_VALUES = 15 };

/* For our own kernels: a step whose state is a copy of `call` with the addresses of `values` filled
 * in. */
typedef struct cpu_call {
    fth_status (*run)(const struct cpu_call *call, const fth_run *run);
    void *data[CPU_MAX_CALL_VALUES];
    fth_plan_value values[CPU_MAX_CALL_VALUES]; /* or none */
    int value_count, write_count;               /* the last `write_count` values are written, the rest are read */
    int threads;                                /* the plan's; cpu_add_call() sets it */
    int64_t sizes[8];
    float numbers[4];
    uint64_t id;
    const void *kernels; /* the table of a concept (level.h) */
    char block[128];     /* a struct of the kernel's own */
} cpu_call;

/* Store a struct in a call's block, and read it back. */
#define CPU_SET_BLOCK(call, from)                                                                                      \
    do {                                                                                                               \
        _Static_assert(sizeof *(from) <= sizeof(call)->block, "a call's block is too small for it");                   \
        memcpy((call)->block, from, sizeof *(from));                                                                   \
    } while (0)
#define CPU_GET_BLOCK(call, to) memcpy(to, (call)->block, sizeof *(to))

/* The step's name includes the level of its kernels. */
fth_status cpu_add_call(fth_plan *plan, const char *name, const cpu_call *call);

/* cpu_read_as() and cpu_begin_write_rounded() with the layout that a primitive chose. */
fth_status cpu_read_chosen(fth_plan *plan, fth_plan_value value, const_dnnl_primitive_desc_t descriptor,
                           dnnl_query_t what, fth_plan_value *as);
fth_status cpu_write_chosen(fth_plan *plan, fth_plan_value value, const_dnnl_primitive_desc_t descriptor,
                            dnnl_query_t what, fth_plan_value *as);

/* Computes a node by a kernel of plain/plain.h, on plain f32 and I32 tensors (plain.c). */
struct plain_kernel;
fth_status cpu_add_plain(fth_plan *plan, const fth_node *node, const struct plain_kernel *kernel);

/* Reads the dy of an activation's gradient in the layout of the node's first input, and makes a
 * place for dx (elementwise.c). */
fth_status cpu_begin_gradient(fth_plan *plan, const fth_node *node, fth_plan_value *dy, fth_plan_value *dx);

/* A value that a gradient reads long after it was computed: the value itself, or a recomputation
 * from one that is kept anyway. A GELU's result is recomputed if its own gradient keeps its input:
 * a transformer's widest values need not be kept twice, at a cost of a few percent of the time
 * (activation.c). */
fth_status cpu_read_again(fth_plan *plan, fth_value value, fth_plan_value *as);

/* x = max(x, 0) in place, after the primitive that computed x. Keeps NaN; a ReLU fused into
 * oneDNN's primitive would turn it into 0. */
fth_status cpu_add_relu(fth_plan *plan, fth_plan_value x);

/* ---- kernels ---- */

/* cpu_NAME for each fth_op_NAME of op_list.h. A new one is a file that defines it. */
#define CPU_KERNEL(name)      extern const fth_kernel cpu_##name;
#define CPU_KERNEL_PAIR(name) CPU_KERNEL(name) CPU_KERNEL(name##_grad)
FTH_OPS(CPU_KERNEL)
FTH_ACTIVATIONS(CPU_KERNEL_PAIR)
#undef CPU_KERNEL
#undef CPU_KERNEL_PAIR

/* Flat vectors (update.c). */
extern const fth_update_kernel cpu_updates[];
fth_status cpu_vector_add(fth_device *device, float *to, const float *from, size_t count);
fth_status cpu_vector_norm(fth_device *device, const float *values, size_t count, double *norm);

#define CPU_VECTORIZED FTH_VECTORIZED

#endif
