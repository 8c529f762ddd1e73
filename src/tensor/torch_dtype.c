/* See torch_dtype.h. */
#include "tensor/torch_dtype.h"

static const struct {
    const char *name;
    bool known, is_float;
    fth_dtype dtype;
} types[] = {
    [FTH_TORCH_U8] = {"uint8", true, false, FTH_U8},
    [FTH_TORCH_I8] = {"int8", true, false, FTH_I8},
    [FTH_TORCH_I16] = {"int16", true, false, FTH_I16},
    [FTH_TORCH_I32] = {"int32", true, false, FTH_I32},
    [FTH_TORCH_I64] = {"int64", true, false, FTH_I64},
    [FTH_TORCH_F16] = {"float16", true, true, FTH_F16},
    [FTH_TORCH_F32] = {"float32", true, true, FTH_F32},
    [FTH_TORCH_F64] = {"float64", true, true, FTH_F64},
    [9] = {"complex32", false, false, FTH_U8},
    [10] = {"complex64", false, false, FTH_U8},
    [11] = {"complex128", false, false, FTH_U8},
    [FTH_TORCH_BOOL] = {"bool", true, false, FTH_BOOL},
    [FTH_TORCH_BF16] = {"bfloat16", true, true, FTH_BF16},
    [FTH_TORCH_U16] = {"uint16", true, false, FTH_U16},
    [29] = {"float8_e4m3fn", false, true, FTH_U8},
    [30] = {"float8_e5m2", false, true, FTH_U8},
    [31] = {"float8_e4m3fnuz", false, true, FTH_U8},
    [32] = {"float8_e5m2fnuz", false, true, FTH_U8},
    [33] = {"float8_e8m0fnu", false, true, FTH_U8},
    [FTH_TORCH_U32] = {"uint32", true, false, FTH_U32},
    [FTH_TORCH_U64] = {"uint64", true, false, FTH_U64},
};

static bool is_listed(int64_t code)
{
    return code >= 0 && code < (int64_t)FTH_COUNT_OF(types) && types[code].name;
}

const char *fth_torch_dtype_name(int64_t torch_dtype)
{
    return is_listed(torch_dtype) ? types[torch_dtype].name : "an unknown type";
}

bool fth_torch_dtype_find(int64_t torch_dtype, fth_dtype *dtype)
{
    const bool found = is_listed(torch_dtype) && types[torch_dtype].known;
    if (found)
        *dtype = types[torch_dtype].dtype;
    return found;
}

bool fth_torch_dtype_is_float(int64_t torch_dtype)
{
    return is_listed(torch_dtype) && types[torch_dtype].is_float;
}
