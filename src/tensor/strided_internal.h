/* Tensors in files: a part of a storage, with any strides. Every number comes from the file, so
 * each is checked before it is used. Contiguous tensors, nearly all, are used where they lie;
 * others are copied. */
#ifndef FTH_TENSOR_STRIDED_INTERNAL_H
#define FTH_TENSOR_STRIDED_INTERNAL_H

#include "tensor/tensor.h"

/* Copies of tensors that do not lie row by row in a file. */
typedef struct fth_tensor_copies {
    void **items;
    size_t count, capacity;
    uint64_t bytes, limit_bytes;
} fth_tensor_copies;

/* Tensors that are not contiguous occupy the file too; only expanded ones take more than they have
 * there. */
fth_tensor_copies fth_tensor_copies_of(uint64_t file_size_bytes);
void fth_tensor_copies_release(fth_tensor_copies *copies);

/* A description as a file has it, in items of the storage. */
typedef struct fth_strided {
    const char *origin, *name; /* for errors */
    fth_dtype dtype;
    fth_shape shape;               /* no dimension is negative */
    int64_t strides[FTH_MAX_RANK]; /* nor any stride */
    int64_t offset;                /* of the first number */
    const unsigned char *storage;  /* at any alignment */
    uint64_t storage_size_bytes;
} fth_strided;

/* Checks the description and makes a view of the tensor, or of a copy. The view's name is the
 * description's. `first`, unless NULL, becomes where the first number lies in the file, which is
 * the same for tied tensors; NULL for a tensor without numbers. */
fth_status fth_strided_view(const fth_strided *tensor, fth_tensor_copies *copies, fth_tensor_view *view,
                            const void **first);

#endif
