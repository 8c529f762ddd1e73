/* Layouts of values (layout.c).
 *
 * Images lie as NHWC in the plan's compute type (f32, f16 or bf16), channels padded to whole
 * 16-byte vectors in the 16-bit types (images of up to 4 channels to 4); padding is zero and stays
 * zero. Features are rows. The layout of a value follows from the graph alone (cuda_standard), so
 * kernels agree without asking each other: they read inputs through cuda_read_as(), which converts
 * only where layouts differ, and write through cuda_begin_write() and cuda_end_write(). Weights
 * stay f32 in the flat vector; all of a plan's weights are cast by a few launches at its start, and
 * gradients of weights go back the same way (weights.c). */
#ifndef FTH_BACKEND_CUDA_LAYOUT_H
#define FTH_BACKEND_CUDA_LAYOUT_H

#include "backend/cuda/cuda_device.h"

typedef struct cuda_layout {
    cuda_type type;
    bool nhwc;             /* else plain; always false where both are the same */
    int n, c, h, w;        /* logical; features are (n, c, 1, 1), weights (O, I, KH, KW) */
    int batch, channels;   /* physical n and c */
    bool is_weight;        /* of a first layer: spread its way */
    cuda_spreading spread; /* images that a first layer reads, and its weights */
} cuda_layout;

cuda_type cuda_compute_type(const fth_plan *plan);
static inline size_t cuda_type_size(cuda_type type)
{
    return type == CUDA_TYPE_F32 || type == CUDA_TYPE_I32 ? 4 : type == CUDA_TYPE_U8 ? 1 : 2;
}

const cuda_layout *cuda_layout_of(const fth_plan *plan, fth_plan_value value);
fth_status cuda_set_layout(fth_plan *plan, fth_plan_value value, const cuda_layout *layout);
bool cuda_layout_equal(const cuda_layout *a, const cuda_layout *b);
int64_t cuda_layout_elements(const cuda_layout *layout); /* physical */
static inline int64_t cuda_rows(const cuda_layout *layout)
{
    return (int64_t)layout->n * layout->h * layout->w;
}

/* Channels padded for the compute type. */
int cuda_padded_channels(cuda_type type, int channels, bool image);
cuda_layout cuda_plain(const fth_shape *shape, cuda_type type);
cuda_layout cuda_channels_last(const fth_shape *shape, cuda_type type, int channels);
/* The layout that every kernel uses for `value` in this plan. */
cuda_layout cuda_standard(const fth_plan *plan, fth_value value);

fth_status cuda_read_as(fth_plan *plan, fth_plan_value value, const cuda_layout *wanted, fth_plan_value *as);
fth_status cuda_read(fth_plan *plan, fth_value value, fth_plan_value *as); /* in its standard layout */
fth_status cuda_begin_write(fth_plan *plan, fth_plan_value value, const cuda_layout *layout, fth_plan_value *as);
fth_status cuda_end_write(fth_plan *plan, fth_plan_value value, fth_plan_value as);
fth_status cuda_add_scratch(fth_plan *plan, size_t size_bytes, fth_plan_value *scratch);
/* Gives an output whose layout is not fixed a plain one in f32. */
fth_status cuda_fix_plain(fth_plan *plan, fth_value value);

/* How the rows of `value` are numbered through the whole batch. */
cuda_row_origin cuda_row_origin_of(const fth_plan *plan, fth_value value);

/* The node after the current one that alone reads `value`, or NULL. */
const fth_node *cuda_only_reader(const fth_plan *plan, fth_value value);

#endif
