/* Batch norm's sums over peers: to doubles and back (backend/batch_norm_sums.h), a thread for each
 * channel. */
#include "backend/batch_norm_sums.h"
#include "backend/cuda/device.cuh"

namespace
{

enum { THREADS = 256 };

__global__ void pack_kernel(int64_t rows, int64_t channels, const float *mean, const float *variance, double *sums)
{
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c == 0)
        sums[0] = (double)rows;
    if (c >= channels)
        return;
    /* The variance is around the exact mean, of which this one is the nearest float: that costs
     * 1e-15 of its square. */
    const double m = mean[c];
    sums[1 + c] = (double)rows * m;
    sums[1 + channels + c] = (double)rows * ((double)variance[c] + m * m);
}

__global__ void unpack_kernel(int64_t channels, const double *sums, float momentum, float *mean, float *variance,
                              float *running_mean, float *running_variance)
{
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= channels || !(sums[0] > 0))
        return;
    const fth_channel_statistics found = fth_batch_norm_statistics(sums, c, channels);
    mean[c] = (float)found.mean;
    variance[c] = (float)found.variance;
    fth_batch_norm_move(&running_mean[c], found.mean, momentum);
    fth_batch_norm_move(&running_variance[c], found.unbiased, momentum);
}

__global__ void gradient_pack_kernel(int64_t rows, int64_t channels, const float *dscale, const float *dshift,
                                     double *sums)
{
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c == 0)
        sums[0] = (double)rows;
    if (c >= channels)
        return;
    sums[1 + c] = dshift[c];
    sums[1 + channels + c] = dscale[c];
}

/* The gradient divides by this part's rows, not by those of all. */
__global__ void gradient_unpack_kernel(int64_t rows, int64_t channels, const double *sums, float *dscale, float *dshift)
{
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= channels || !(sums[0] > 0))
        return;
    const double share = (double)rows / sums[0];
    dshift[c] = (float)(sums[1 + c] * share);
    dscale[c] = (float)(sums[1 + channels + c] * share);
}

unsigned blocks_of(const cuda_norm *n)
{
    return (unsigned)ceil_div(n->logical, THREADS);
}

} // namespace

extern "C" {

cudaError_t cuda_launch_norm_pack(const cuda_launch *launch, const cuda_norm *n, double *sums)
{
    pack_kernel<<<blocks_of(n), THREADS, 0, launch->stream>>>(n->rows, n->logical, n->mean, n->variance, sums);
    return cudaGetLastError();
}

cudaError_t cuda_launch_norm_unpack(const cuda_launch *launch, const cuda_norm *n, const double *sums)
{
    unpack_kernel<<<blocks_of(n), THREADS, 0, launch->stream>>>(n->logical, sums, n->momentum, n->mean, n->variance,
                                                                n->running_mean, n->running_variance);
    return cudaGetLastError();
}

cudaError_t cuda_launch_norm_gradient_pack(const cuda_launch *launch, const cuda_norm *n, const float *dscale,
                                           const float *dshift, double *sums)
{
    gradient_pack_kernel<<<blocks_of(n), THREADS, 0, launch->stream>>>(n->rows, n->logical, dscale, dshift, sums);
    return cudaGetLastError();
}

cudaError_t cuda_launch_norm_gradient_unpack(const cuda_launch *launch, const cuda_norm *n, const double *sums,
                                             float *dscale, float *dshift)
{
    gradient_unpack_kernel<<<blocks_of(n), THREADS, 0, launch->stream>>>(n->rows, n->logical, sums, dscale, dshift);
    return cudaGetLastError();
}

} // extern "C"
