/* Types of tensors, and safetensors: the one format in which tensors rest and travel. */
#ifndef FTH_TENSOR_TENSOR_H
#define FTH_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef enum fth_dtype {
    FTH_BOOL,
    FTH_U8,
    FTH_I8,
    FTH_I16,
    FTH_U16,
    FTH_F16,
    FTH_BF16,
    FTH_I32,
    FTH_U32,
    FTH_F32,
    FTH_F64,
    FTH_I64,
    FTH_U64
} fth_dtype;

size_t fth_dtype_size_bytes(fth_dtype dtype);
const char *fth_dtype_name(fth_dtype dtype); /* safetensors' name: "F32" */
bool fth_dtype_find(const char *name, fth_dtype *dtype);

enum { FTH_MAX_RANK = 8 };

/* dims[0] may be one of these in a graph, or fth_batch_times(k): a number that a plan fills in. */
#define FTH_BATCH  INT64_C(-1) /* samples of a batch */
#define FTH_TOKENS INT64_C(-2) /* tokens of a batch of text */

/* `rows` rows for each sample of a batch; at least 1. */
static inline int64_t fth_batch_times(int64_t rows)
{
    return rows == 1 ? FTH_BATCH : -1 - rows;
}

/* How many rows a sample has in a dimension of a graph; 0 for tokens and for fixed sizes. */
static inline int64_t fth_rows_per_sample(int64_t dim)
{
    return dim >= 0 || dim == FTH_TOKENS ? 0 : dim == FTH_BATCH ? 1 : -1 - dim;
}

typedef struct fth_shape {
    int rank;
    int64_t dims[FTH_MAX_RANK];
} fth_shape;

#define FTH_SHAPE(...) ((fth_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

bool fth_shape_equal(const fth_shape *a, const fth_shape *b);
int64_t fth_shape_count(const fth_shape *shape);                         /* product; batch must be resolved */
fth_shape fth_shape_with_batch(const fth_shape *shape, int64_t batch);   /* multiples of FTH_BATCH replaced */
fth_shape fth_shape_with_tokens(const fth_shape *shape, int64_t tokens); /* FTH_TOKENS replaced */
void fth_shape_format(const fth_shape *shape, char *text, size_t size);  /* "(N, 3, 32)", "(197N, 768)", "(T, 768)" */

/* ---- safetensors ---- */

/* A named tensor in memory that another object owns. */
typedef struct fth_tensor_view {
    const char *name;
    fth_dtype dtype;
    fth_shape shape;
    const void *data; /* row-major, little-endian; of a read file: at any alignment */
} fth_tensor_view;

typedef struct fth_metadata_entry {
    const char *key, *value;
} fth_metadata_entry;

/* Writes views (any order; the file is ordered as the reference writer orders it) with string
 * metadata. */
fth_status fth_safetensors_write(fth_file *file, const fth_tensor_view *views, size_t view_count,
                                 const fth_metadata_entry *metadata, size_t metadata_count);

/* The beginning of a file whose tensors follow one another in the order given, for callers that
 * have them so in memory (each tensor's data is left alone). Its size is a multiple of 8. free()
 * the bytes. */
fth_status fth_safetensors_header(const fth_tensor_view *views, size_t view_count, const fth_metadata_entry *metadata,
                                  size_t metadata_count, char **bytes, size_t *size_bytes);

/* A read, fully validated safetensors file: header within bounds, no holes, no overlaps, sizes
 * agree. */
typedef struct fth_safetensors fth_safetensors;

fth_status fth_safetensors_open(const char *path, fth_safetensors **tensors); /* maps the file */
/* Parses bytes that outlive the object; `origin` names them in errors. */
fth_status fth_safetensors_parse(const void *bytes, size_t size_bytes, const char *origin, fth_safetensors **tensors);
void fth_safetensors_free(fth_safetensors *tensors);

size_t fth_safetensors_count(const fth_safetensors *tensors);
const fth_tensor_view *fth_safetensors_get(const fth_safetensors *tensors, size_t index);
const fth_tensor_view *fth_safetensors_find(const fth_safetensors *tensors, const char *name); /* or NULL */
const char *fth_safetensors_metadata(const fth_safetensors *tensors, const char *key);         /* or NULL */
void fth_safetensors_visit_metadata(const fth_safetensors *tensors,
                                    void (*visit)(void *context, const char *key, const char *value), void *context);

/* Converts `view` (any float or integer dtype) to f32. */
fth_status fth_tensor_view_to_f32(const fth_tensor_view *view, float *values, size_t count);

/* ---- numbers that are not finite (finite.c) ---- */

/* True if all of `count` numbers, at any address, are finite in f32: no NaN, no infinity, no double
 * beyond f32's range. Integers always are. Reads about as fast as memory delivers. */
bool fth_numbers_are_finite(const void *numbers, fth_dtype dtype, size_t count);

/* The largest magnitude of F32, F16 or BF16 numbers, found as fast; INFINITY if one of them is not
 * finite. */
float fth_numbers_largest(const void *numbers, fth_dtype dtype, size_t count);

/* Are all numbers of a tensor finite? FTH_DIVERGED otherwise, with a message of the kind
 * "conv1.weight is NaN at (3, 0, 1, 1); 2 of its 864 numbers are not finite". */
fth_status fth_tensor_check_finite(const fth_tensor_view *view);
/* Checks views up to the first that is not finite. */
fth_status fth_tensors_check_finite(const fth_tensor_view *views, size_t count);

#endif
