/* Device memory and copies (memory.c): entries of the table, and their opening and closing. */
#ifndef FTH_BACKEND_CUDA_MEMORY_H
#define FTH_BACKEND_CUDA_MEMORY_H

#include "backend/cuda/cuda_device.h"

fth_status cuda_open_copies(cuda_device *cuda);
void cuda_close_copies(cuda_device *cuda);
fth_status cuda_allocate(fth_device *device, size_t size_bytes, void **memory);
void cuda_release(fth_device *device, void *memory); /* NULL is fine */
fth_status cuda_copy_in(fth_device *device, void *to, const void *from, size_t size_bytes);
fth_status cuda_copy_batch(fth_device *device, void *to, const void *from, size_t size_bytes);
fth_status cuda_copy_out(fth_device *device, void *to, const void *from, size_t size_bytes);
fth_status cuda_free_memory(fth_device *device, size_t *free_bytes, size_t *total_bytes);
fth_status cuda_fill_zero(fth_device *device, void *memory, size_t size_bytes);

#endif
