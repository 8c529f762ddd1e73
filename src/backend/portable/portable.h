/* The portable back end: own kernels on the processor, without a library.
 *
 * It is for programs that must be small and start at once: functions (lists/function.c). It has one
 * thread, computes in f32, and gives the same numbers whenever it runs on processors of the same
 * level.
 *
 *     portable.c         the table and the device
 *     layout.c           layouts, and the steps that change them
 *     step.c             steps
 *     convolution.c ...  one file per op or family: prepares its steps
 *     packed_attention.c, product_attention.c
 *                        attention head by head, which the CPU back end takes too
 *     recurrence.c       LSTM and GRU, likewise
 *     level/             the loops (level.h), compiled once per level of vector instructions; the
 *                        device takes the best that the processor has, or that FARTHING_MAX_ISA
 *                        allows
 *
 * Tensors are plain, or channels-last where an op gains by it: (N, H, W, C) in memory, so that
 * vectors run along channels and the three products of a convolution need no rearranged copy of the
 * image. Ops without kernels of their own here take those of plain/plain.h. */
#ifndef FTH_BACKEND_PORTABLE_PORTABLE_H
#define FTH_BACKEND_PORTABLE_PORTABLE_H

#include "backend/plain/plain.h"
#include "backend/portable/level/level.h"

typedef struct portable_device {
    fth_device base; /* first: backend.h hands out pointers to it */
    const portable_level *level;
} portable_device;

/* The best of the processor, or of what FARTHING_MAX_ISA allows. */
fth_status portable_choose_level(const portable_level **level);
const portable_level *portable_get_level(const fth_plan *plan);

/* ---- layouts (layout.c) ---- */

/* An image of one channel, or of one pixel, is the same in both; it is called plain. */
typedef struct portable_layout {
    fth_type type;
    bool channels_last;
} portable_layout;

const portable_layout *portable_get_layout(const fth_plan *plan, fth_plan_value value); /* NULL until it is set */
fth_status portable_describe_plain(fth_plan *plan, fth_value value);

/* The plan value that holds `value` in that order: its own, a copy made earlier, or a new copy. */
fth_status portable_read(fth_plan *plan, fth_value value, bool channels_last, fth_plan_value *as);
/* A place to write `value` in that order: its own, or a temporary where its layout is fixed
 * otherwise (flat vectors, outputs); portable_end_write() then adds the copy. */
fth_status portable_begin_write(fth_plan *plan, fth_value value, bool channels_last, fth_plan_value *as);
fth_status portable_end_write(fth_plan *plan, fth_value value, fth_plan_value as);
fth_status portable_add_scratch(fth_plan *plan, size_t floats, fth_plan_value *scratch);

/* ---- steps (step.c) ---- */

enum { PORTABLE_MAX_VALUES = 16 };

typedef struct portable_call portable_call;

/* What each step's state begins with; ops add what they need behind it. */
struct portable_call {
    fth_status (*run)(const portable_call *call, const fth_run *run);
    const portable_level *level;
    const void *attributes;                     /* the op's own struct (ops.h) */
    int value_count, write_count;               /* the last `write_count` values are written, the others read */
    fth_plan_value values[PORTABLE_MAX_VALUES]; /* or none */
    float *data[PORTABLE_MAX_VALUES];           /* their addresses while it runs; NULL for none */
};

/* Adds a step of `node`, whose state is a copy of the `size_bytes` that begin with `call`; level
 * and attributes are filled in. */
fth_status portable_add_call(fth_plan *plan, const fth_node *node, const portable_call *call, size_t size_bytes);
/* The same for a step of no node, under a name. */
fth_status portable_add_named_call(fth_plan *plan, const char *name, const portable_call *call, size_t size_bytes);

/* Adds the step of a plain kernel, on plain inputs. */
fth_status portable_add_plain(fth_plan *plan, const fth_node *node, const plain_kernel *kernel);

/* sums[j] = sum over r of x[r][j] */
void portable_sum_columns(const portable_level *level, const float *x, int64_t rows, int64_t columns, float *sums);

/* ---- kernels ---- */

/* Every kernel: a new one is a file that defines portable_NAME for fth_op_NAME, and its row
 * here. */
#define PORTABLE_KERNELS(ROW)                                                                                          \
    ROW(convolution)                                                                                                   \
    ROW(convolution_grad_input)                                                                                        \
    ROW(convolution_grad_weights)                                                                                      \
    ROW(linear)                                                                                                        \
    ROW(linear_grad_input)                                                                                             \
    ROW(linear_grad_weights)                                                                                           \
    ROW(batch_norm)                                                                                                    \
    ROW(batch_norm_grad)                                                                                               \
    ROW(relu)                                                                                                          \
    ROW(relu_grad)                                                                                                     \
    ROW(add)                                                                                                           \
    ROW(dropout)                                                                                                       \
    ROW(attention)                                                                                                     \
    ROW(attention_grad)                                                                                                \
    ROW(dot_product_attention)                                                                                         \
    ROW(dot_product_attention_grad)                                                                                    \
    ROW(recurrent)                                                                                                     \
    ROW(recurrent_grad)                                                                                                \
    ROW(max_pool)                                                                                                      \
    ROW(max_pool_grad)                                                                                                 \
    ROW(reshape)

#define PORTABLE_DECLARE(name) extern const fth_kernel portable_##name;
PORTABLE_KERNELS(PORTABLE_DECLARE)
#undef PORTABLE_DECLARE

#endif
