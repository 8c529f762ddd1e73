/* oneDNN 2.6 to 2.7 and 3.x as one interface: what differs between their C APIs is in this file and onednn.c, and the kernels
 * are written once.
 *
 * In 2.x a memory descriptor is a struct, and a primitive is described by an op descriptor first; in 3.x both are behind
 * handles. Here a format is a plain value that can be copied and thrown away, and one call describes a primitive. */
#ifndef FTH_BACKEND_CPU_ONEDNN_H
#define FTH_BACKEND_CPU_ONEDNN_H

#include <dnnl.h>

#include "base/base.h"

/* Turns oneDNN's status into ours; `what` names the call. */
fth_status cpu_status(dnnl_status_t status, const char *what);

#define CPU_TRY(call) FTH_TRY(cpu_status((call), #call))

/* ---- formats ---- */

/* How a tensor lies in memory: dimensions, dtype and order. What a format refers to lives as long as the process; there
 * are as many as layouts in use. */
typedef struct cpu_format {
    int ndims;
    dnnl_dims_t dims, padded_dims;
    dnnl_data_type_t data_type;
    /* Where elements lie, unless oneDNN keeps that to itself (packed weights) or has not chosen yet: the distance of
     * neighbours in each dimension, of whole blocks in the one that has blocks of `block` elements; 1: none has. */
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
/* A part of a tensor, where it lies; false if blocks forbid it. */
bool cpu_format_window(const cpu_format *whole, const dnnl_dims_t dims, const dnnl_dims_t offsets, cpu_format *window);
bool cpu_format_equal(const cpu_format *a, const cpu_format *b);
size_t cpu_format_size(const cpu_format *format); /* bytes */

/* What a primitive chose; a query that must succeed. */
cpu_format cpu_query(const_dnnl_primitive_desc_t descriptor, dnnl_query_t what);
size_t cpu_scratchpad_size(const_dnnl_primitive_desc_t descriptor, cpu_format *format); /* 0: needs none */

/* Memory that is bound to data later. */
fth_status cpu_make_memory(const cpu_format *format, dnnl_engine_t engine, dnnl_memory_t *memory);

/* ---- descriptors of primitives ---- */

enum { CPU_MOST_PARTS = 16 }; /* of a concatenation */

/* All have scratch memory of the user's. Backward ones describe the forward pass first, which oneDNN wants as a hint. What has
 * no weights goes back by CPU_GRAD_INPUT. */
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
