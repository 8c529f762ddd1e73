/* PyTorch's codes of element types, as programs of torch.export have them. */
#ifndef FTH_TENSOR_TORCH_DTYPE_H
#define FTH_TENSOR_TORCH_DTYPE_H

#include "tensor/tensor.h"

enum {
    FTH_TORCH_U8 = 1,
    FTH_TORCH_I8 = 2,
    FTH_TORCH_I16 = 3,
    FTH_TORCH_I32 = 4,
    FTH_TORCH_I64 = 5,
    FTH_TORCH_F16 = 6,
    FTH_TORCH_F32 = 7,
    FTH_TORCH_F64 = 8,
    FTH_TORCH_BOOL = 12,
    FTH_TORCH_BF16 = 13,
    FTH_TORCH_U16 = 28,
    FTH_TORCH_U32 = 34,
    FTH_TORCH_U64 = 35
};

/* "int64", also for types that farthing does not have; "an unknown type" for other codes. */
const char *fth_torch_dtype_name(int64_t torch_dtype);
/* False where farthing has no such type. */
bool fth_torch_dtype_find(int64_t torch_dtype, fth_dtype *dtype);
/* Floating point of any size, for example to tell what can have a gradient. */
bool fth_torch_dtype_is_float(int64_t torch_dtype);

#endif
