/* Dtypes and shapes, and their conversion to the f32 that training computes in. */
#include "tensor/tensor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are little-endian at rest and used in place");

static const struct {
    const char *name;
    size_t size_bytes;
} dtypes[] = {
    [FTH_BOOL] = {"BOOL", 1}, [FTH_U8] = {"U8", 1},   [FTH_I8] = {"I8", 1},     [FTH_I16] = {"I16", 2},
    [FTH_U16] = {"U16", 2},   [FTH_F16] = {"F16", 2}, [FTH_BF16] = {"BF16", 2}, [FTH_I32] = {"I32", 4},
    [FTH_U32] = {"U32", 4},   [FTH_F32] = {"F32", 4}, [FTH_F64] = {"F64", 8},   [FTH_I64] = {"I64", 8},
    [FTH_U64] = {"U64", 8},
};

size_t fth_dtype_size_bytes(fth_dtype dtype)
{
    assert((size_t)dtype < FTH_COUNT_OF(dtypes));
    return dtypes[dtype].size_bytes;
}

const char *fth_dtype_name(fth_dtype dtype)
{
    assert((size_t)dtype < FTH_COUNT_OF(dtypes));
    return dtypes[dtype].name;
}

bool fth_dtype_find(const char *name, fth_dtype *dtype)
{
    for (size_t i = 0; i < FTH_COUNT_OF(dtypes); i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *dtype = (fth_dtype)i;
            return true;
        }
    }
    return false;
}

bool fth_shape_equal(const fth_shape *a, const fth_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[i])
            return false;
    }
    return true;
}

/* A zero anywhere makes the product 0, however large the rest; otherwise what does not fit stays at
 * the largest number, which no buffer has. */
int64_t fth_shape_count(const fth_shape *shape)
{
    int64_t count = 1;
    bool too_large = false;
    for (int i = 0; i < shape->rank; i++) {
        assert(shape->dims[i] >= 0);
        if (shape->dims[i] == 0)
            return 0;
        too_large |= __builtin_mul_overflow(count, shape->dims[i], &count);
    }
    return too_large ? INT64_MAX : count;
}

/* A product that does not fit stays at the largest number, which no buffer has. */
fth_shape fth_shape_with_batch(const fth_shape *shape, int64_t batch)
{
    fth_shape resolved = *shape;
    for (int i = 0; i < resolved.rank; i++) {
        const int64_t rows = fth_rows_per_sample(shape->dims[i]);
        if (rows > 0 && __builtin_mul_overflow(rows, batch, &resolved.dims[i]))
            resolved.dims[i] = INT64_MAX;
    }
    return resolved;
}

fth_shape fth_shape_with_tokens(const fth_shape *shape, int64_t tokens)
{
    fth_shape resolved = *shape;
    for (int i = 0; i < resolved.rank; i++) {
        if (resolved.dims[i] == FTH_TOKENS)
            resolved.dims[i] = tokens;
    }
    return resolved;
}

/* "N", "197N", "T" or "768" */
static int format_dim(int64_t dim, char *text, size_t size)
{
    const int64_t rows = fth_rows_per_sample(dim);
    if (dim == FTH_TOKENS || rows == 1)
        return snprintf(text, size, "%c", dim == FTH_TOKENS ? 'T' : 'N');
    return snprintf(text, size, "%lld%s", (long long)(rows > 0 ? rows : dim), rows > 0 ? "N" : "");
}

void fth_shape_format(const fth_shape *shape, char *text, size_t size)
{
    char all[FTH_MAX_RANK * 24 + 4];
    size_t length = 0;
    all[length++] = '(';
    for (int i = 0; i < shape->rank; i++) {
        length += (size_t)snprintf(all + length, sizeof all - length, "%s", i ? ", " : "");
        length += (size_t)format_dim(shape->dims[i], all + length, sizeof all - length);
    }
    snprintf(all + length, sizeof all - length, ")");
    snprintf(text, size, "%s", all);
}

/* ---- conversion ---- */

/* Items are copied out one by one, for a tensor in a mapped file may lie at any address. */
#define CONVERT(type, expression)                                                                                      \
    do {                                                                                                               \
        for (size_t i = 0; i < count; i++) {                                                                           \
            type x;                                                                                                    \
            memcpy(&x, bytes + i * sizeof x, sizeof x);                                                                \
            values[i] = (float)(expression);                                                                           \
        }                                                                                                              \
        return FTH_OK;                                                                                                 \
    } while (0)

fth_status fth_tensor_view_to_f32(const fth_tensor_view *view, float *values, size_t count)
{
    const unsigned char *bytes = view->data;
    int64_t own_count = fth_shape_count(&view->shape);
    if ((uint64_t)own_count != count) {
        char shape[FTH_MAX_RANK * 24];
        fth_shape_format(&view->shape, shape, sizeof shape);
        return fth_fail(FTH_INVALID, "tensor '%s' has shape %s, so %lld values, not %zu", view->name, shape,
                        (long long)own_count, count);
    }
    switch (view->dtype) {
    case FTH_BOOL: CONVERT(uint8_t, x != 0);
    case FTH_U8: CONVERT(uint8_t, x);
    case FTH_I8: CONVERT(int8_t, x);
    case FTH_I16: CONVERT(int16_t, x);
    case FTH_U16: CONVERT(uint16_t, x);
    case FTH_F16: CONVERT(uint16_t, fth_f16_to_float(x));
    case FTH_BF16: CONVERT(uint16_t, fth_bf16_to_float(x));
    case FTH_I32: CONVERT(int32_t, x);
    case FTH_U32: CONVERT(uint32_t, x);
    case FTH_F32:
        if (count > 0)
            memcpy(values, bytes, count * sizeof *values);
        return FTH_OK;
    case FTH_F64: CONVERT(double, x);
    case FTH_I64: CONVERT(int64_t, x);
    case FTH_U64: CONVERT(uint64_t, x);
    }
    return fth_fail(FTH_UNSUPPORTED, "tensor '%s' has an unknown dtype (%d)", view->name, (int)view->dtype);
}
