/* Batches made from a data set of bytes in device memory: gathered, cropped, mirrored and
 * normalized in one pass, bit for bit as fth_augment() (data/image/augment.c) does it. And two
 * kernels that fail, for tests. */
#include "backend/cuda/device.cuh"

#include "tensor/recipe.h"

namespace
{

enum { THREADS = 256 };

/* One thread for each element of the batch, (count, channels, height, width). */
__global__ void __launch_bounds__(THREADS) gather_kernel(cuda_gathering g, int64_t elements, float *images)
{
    const int area = g.height * g.width;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < elements; i += (int64_t)gridDim.x * THREADS) {
        const uint32_t plane = (uint32_t)(i / area), at = (uint32_t)(i - (int64_t)plane * area);
        const int channel = (int)(plane % (uint32_t)g.channels);
        const fth_recipe recipe = ((const fth_recipe *)g.recipes)[plane / (uint32_t)g.channels];
        const int out_x = (int)(at % (uint32_t)g.width), y = (int)(at / (uint32_t)g.width) + recipe.down;
        const int x = (recipe.flip ? g.width - 1 - out_x : out_x) + recipe.right;
        const bool inside = y >= 0 && y < g.height && x >= 0 && x < g.width;
        const int64_t from = ((int64_t)recipe.sample * g.channels + channel) * area + (int64_t)y * g.width + x;
        /* Two roundings, as on the host, and not one. */
        images[i] =
            inside ? __fadd_rn(__fmul_rn((float)g.pixels[from], g.scale[channel]), g.shift[channel]) : g.shift[channel];
    }
}

__global__ void spin_kernel(uint64_t nanoseconds)
{
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
}

__global__ void trap_kernel()
{
    asm volatile("trap;");
}

} // namespace

extern "C" {

cudaError_t cuda_launch_gather(const cuda_launch *launch, const cuda_gathering *gathering, float *images)
{
    const int64_t elements = gathering->count * gathering->channels * gathering->height * gathering->width;
    const int64_t blocks = ceil_div(elements, THREADS), most = 16 * (int64_t)launch->processors;
    gather_kernel<<<(unsigned)(blocks < most ? blocks : most), THREADS, 0, launch->stream>>>(*gathering, elements,
                                                                                             images);
    return cudaGetLastError();
}

cudaError_t cuda_launch_spin(cudaStream_t stream, double seconds)
{
    spin_kernel<<<1, 1, 0, stream>>>((uint64_t)(seconds * 1e9));
    return cudaGetLastError();
}

cudaError_t cuda_launch_trap(cudaStream_t stream)
{
    trap_kernel<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}

} // extern "C"
