/* oneDNN 2.6 to 2.7 and 3.x behind one interface: their C APIs differ only in this file and
 * onednn.c, so kernels are written once.
 *
 * In 2.x a memory descriptor is a struct, and a primitive first needs an op descriptor; in 3.x both
 * are opaque handles. Here a format is a plain value that can be copied and discarded, and one call
 * describes a primitive. */
#ifndef FTH_BACKEND_CPU_ONEDNN_H
#define FTH_BACKEND_CPU_ONEDNN_H

#include <dnnl.h>

#include "base/base.h"

/* Turns oneDNN's status into ours; `what` names the call. */
fth_status cpu_status(dnnl_status_t status, const char *what);

#define CPU_TRY(call) FTH_TRY(cpu_status((call), #call))

/* ---- formats ---- */

/* A tensor's layout in memory: dimensions, dtype and order. What a format refers to lives as long
 * as the process; there are only as many as layouts in use. */
typedef struct cpu_format {
    int ndims;
    dnnl_dims_t dims, padded_dims;
    dnnl_data_type_t data_type;
    /* The distance between neighbours in each dimension, and of whole blocks in the dimension that
     * has blocks of `block` elements (1: none has). Unset if oneDNN keeps the layout to itself
     * (packed weights) or has not chosen one. */
    dnnl_dims_t strides;
    int64_t block;
#if DNNL_VERSION_MAJOR >= 3
    const_dnnl_memory_desc_t native;
#else
    const dnnl_memory_desc_t *native;
#endif
} cpu_format;

/* False if there is no such format. */
bool cpu_format_make(int ndims, const dnnl_dims_t dims, dnnl_data_type_t dtype, dnnl_format_tag_t tag,
                     cpu_format *format);
/* A view of part of a tensor; false if the blocks do not allow it. */
bool cpu_format_window(const cpu_format *whole, const dnnl_dims_t dims, const dnnl_dims_t offsets, cpu_format *window);
bool cpu_format_equal(const cpu_format *a, const cpu_format *b);
size_t cpu_format_size(const cpu_format *format); /* bytes */

/* The format that a primitive chose. The query must succeed. */
cpu_format cpu_query(const_dnnl_primitive_desc_t descriptor, dnnl_query_t what);
size_t cpu_scratchpad_size(const_dnnl_primitive_desc_t descriptor, cpu_format *format); /* 0: needs none */

/* Memory to be bound to data later. */
fth_status cpu_make_memory(const cpu_format *format, dnnl_engine_t engine, dnnl_memory_t *memory);

/* ---- descriptors of primitives ---- */

enum { CPU_MOST_PARTS = 16 }; /* inputs of a concatenation */

/* All use scratch memory that the caller provides. Those of backward passes also describe the
 * forward pass, which oneDNN requires as a hint. Primitives without weights use CPU_GRAD_INPUT as
 * their backward pass. */
typedef enum cpu_pass { CPU_FORWARD, CPU_GRAD_INPUT, CPU_GRAD_WEIGHTS } cpu_pass;

typedef struct cpu_convolution_description {
    bool training;
    cpu_format x, weight, weight_gradient, bias, y;
    bool has_bias;
    dnnl_dims_t strides, dilates, padding_begin, padding_end;
} cpu_convolution_description;
fth_status cpu_describe_convolution(dnnl_engine_t engine, const cpu_convolution_description *description, cpu_pass pass,
                                    dnnl_primitive_desc_t *descriptor);

typedef struct cpu_linear_description {
    bool training;
    cpu_format x, weight, weight_gradient, bias, y;
    bool has_bias;
} cpu_linear_description;
fth_status cpu_describe_linear(dnnl_engine_t engine, const cpu_linear_description *description, cpu_pass pass,
                               dnnl_primitive_desc_t *descriptor);

typedef struct cpu_pool_description {
    bool training;
    dnnl_alg_kind_t algorithm;
    cpu_format x, y;
    dnnl_dims_t strides, kernel, padding_begin, padding_end;
} cpu_pool_description;
fth_status cpu_describe_pool(dnnl_engine_t engine, const cpu_pool_description *description, cpu_pass pass,
                             dnnl_primitive_desc_t *descriptor);

/* y (N, M, P) = a (N, M, K) · b (N, K, P). */
fth_status cpu_describe_matrix_product(dnnl_engine_t engine, const cpu_format *a, const cpu_format *b,
                                       const cpu_format *y, dnnl_primitive_desc_t *descriptor);
fth_status cpu_describe_reorder(dnnl_engine_t engine, const cpu_format *from, const cpu_format *to,
                                dnnl_primitive_desc_t *descriptor);
fth_status cpu_describe_concat(dnnl_engine_t engine, const cpu_format *parts, int count, int dimension,
                               const cpu_format *whole, dnnl_primitive_desc_t *descriptor);
void cpu_free_descriptor(dnnl_primitive_desc_t descriptor); /* NULL is fine */

#endif
