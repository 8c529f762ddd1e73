/* Resizing NHWC images, a vector of channels per thread. Gradients gather: each input element
 * adds up what the outputs made of it give, in order, so nothing is added atomically. */
#include "backend/cuda/device.cuh"

namespace
{

enum { THREADS = 256 };

struct Place {
    int vector, x, y;
    int64_t n;
};

__device__ __forceinline__ Place place_of(int64_t i, int vectors, int width, int height)
{
    Place p;
    p.vector = (int)(i % vectors);
    int64_t rest = i / vectors;
    p.x = (int)(rest % width);
    rest /= width;
    p.y = (int)(rest % height);
    p.n = rest / height;
    return p;
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS) resize_kernel(cuda_resizing r, const T *x, T *y, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int vectors = r.channels / V;
    const Place at = place_of(i, vectors, r.columns.out, r.rows.out);
    const fth_resize_place row = fth_resize_place_of(&r.rows, at.y), column = fth_resize_place_of(&r.columns, at.x);
    float sum[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = 0;
    for (int a = 0; a < (row.second > row.first ? 2 : 1); a++)
        for (int b = 0; b < (column.second > column.first ? 2 : 1); b++) {
            const int64_t h = at.n * r.rows.in + (a ? row.second : row.first);
            const Vec<T, V> in =
                load<T, V>(x + (h * r.columns.in + (b ? column.second : column.first)) * r.channels + at.vector * V);
            const float weight = (a ? row.weight : 1 - row.weight) * (b ? column.weight : 1 - column.weight);
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] = fmaf(weight, to_float(in.v[k]), sum[k]);
        }
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; k++)
        out.v[k] = from_float<T>(sum[k]);
    store<T, V>(y + i * V, out);
}

/* The outputs that may be made of input `in`: those whose place is less than 1 away from it, and
 * one more on each side, as the arithmetic rounds. */
__device__ __forceinline__ void outputs_of(const fth_resize_axis &r, int in, int *first, int *last)
{
    *first = 0;
    *last = r.out - 1;
    if (!(r.scale > 0))
        return;
    const float shift = r.bilinear && !r.align_corners ? 0.5f : 0;
    const float begin = ((float)in - 1 + shift) / r.scale - shift, end = ((float)in + 1 + shift) / r.scale - shift;
    if (in > 0 && begin > 1)
        *first = min((int)begin - 1, r.out - 1);
    if (in < r.in - 1) /* all that follow are made of the last one */
        *last = min((int)end + 2, r.out - 1);
}

/* What output `out` takes of input `in`. */
__device__ __forceinline__ float share_of(const fth_resize_axis &r, int out, int in, bool *any)
{
    const fth_resize_place at = fth_resize_place_of(&r, out);
    *any = at.first == in || at.second == in;
    return at.first == in ? 1 - at.weight : at.second == in ? at.weight : 0;
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS) resize_grad_kernel(cuda_resizing r, const T *dy, T *dx, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const Place at = place_of(i, r.channels / V, r.columns.in, r.rows.in);
    int first_y, last_y, first_x, last_x;
    outputs_of(r.rows, at.y, &first_y, &last_y);
    outputs_of(r.columns, at.x, &first_x, &last_x);
    float sum[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = 0;
    for (int oh = first_y; oh <= last_y; oh++) {
        bool any;
        const float of_row = share_of(r.rows, oh, at.y, &any);
        if (!any)
            continue;
        for (int ow = first_x; ow <= last_x; ow++) {
            const float of_column = share_of(r.columns, ow, at.x, &any);
            if (!any)
                continue;
            const Vec<T, V> in =
                load<T, V>(dy + ((at.n * r.rows.out + oh) * r.columns.out + ow) * r.channels + at.vector * V);
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] = fmaf(of_row * of_column, to_float(in.v[k]), sum[k]);
        }
    }
    Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; k++)
        out.v[k] = from_float<T>(sum[k]);
    store<T, V>(dx + i * V, out);
}

} // namespace

extern "C" {

cudaError_t cuda_launch_resize(cudaStream_t stream, const cuda_resizing *r, const void *x, void *y)
{
    return with_vectors(r->type, r->channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        const int64_t count = (int64_t)r->batch * r->rows.out * r->columns.out * (r->channels / V);
        resize_kernel<T, V>
            <<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(*r, (const T *)x, (T *)y, count);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_resize_grad(cudaStream_t stream, const cuda_resizing *r, const void *dy, void *dx)
{
    return with_vectors(r->type, r->channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        const int64_t count = (int64_t)r->batch * r->rows.in * r->columns.in * (r->channels / V);
        resize_grad_kernel<T, V>
            <<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(*r, (const T *)dy, (T *)dx, count);
        return cudaGetLastError();
    });
}

} // extern "C"
