/* Batch norm over rows of channels, at the speed of memory.
 *
 * A block is bx vectors of channels wide and by rows high; a thread keeps its channels and walks
 * down the rows, so that what belongs to a channel stays in registers. Reductions leave one partial
 * sum per block and channel; the last block of a column of blocks to finish adds them up, always in
 * the same order, and writes the result: no second launch. Statistics walk up the rows and the
 * passes after them walk down, so that each begins with what the one before it left in the L2
 * cache.
 *
 * Against cuDNN's batch norm nodes, which move 2.4 TB/s on an H200, see docs/CUDA.md for what these
 * reach. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/device.cuh"

namespace
{

enum { REDUCE_THREADS = 512, APPLY_THREADS = 256, UNROLL = 4 };

struct Shape {
    int64_t rows;
    int vectors; /* per row */
    int bx, by;
};

/* `widest`: vectors of a block side by side. */
Shape shape_of(int64_t rows, int64_t channels, int width, int threads, int widest)
{
    Shape s;
    s.rows = rows;
    s.vectors = (int)(channels / width);
    s.bx = s.vectors < widest ? s.vectors : widest;
    s.by = threads / s.bx;
    return s;
}

/* Reductions of what fits in the L2 cache end before the partial sums of a wide column are added
 * up: narrow columns spread that over several blocks. Large ones read longer pieces of memory. */
Shape reduction_shape(int64_t rows, int64_t channels, int width)
{
    return shape_of(rows, channels, width, REDUCE_THREADS, rows * channels <= 32 << 20 ? 8 : 32);
}

int columns_of(const Shape &s)
{
    return (s.vectors + s.bx - 1) / s.bx;
}

/* Blocks along the rows for a reduction: as many as run at the same time (two small or one large
 * per multiprocessor), each with some rows per thread. */
int splits_of(const Shape &s, int blocks)
{
    int64_t most = ceil_div(s.rows, (int64_t)s.by * UNROLL);
    int64_t wanted = blocks / columns_of(s);
    int64_t splits = most < wanted ? most : wanted;
    return splits < 1 ? 1 : (int)splits;
}

/* Adds a and b over the rows of a block, and over the blocks of the column. In the block that
 * finishes last it returns true, with the sums of channel `i` (of bx * V) in totals[i] and
 * totals[bx * V + i]; scratch: partial sums. */
template <int V>
__device__ bool reduce_columns(const Shape &s, int tx, int ty, bool active, float (&a)[V], float (&b)[V],
                               float *scratch, unsigned *counters, double *totals)
{
    constexpr int L = V % 4 == 0 ? 4 : 1; /* channels that a thread adds up in the end */
    constexpr int SHARED_DOUBLES = REDUCE_THREADS * (V > 2 * L ? V : 2 * L);
    __shared__ double partial[SHARED_DOUBLES]; /* the block's sums as floats, then the column's */
    float *shared = reinterpret_cast<float *>(partial);
    __shared__ bool last;
    const int tid = threadIdx.x;
    const int width = s.bx * V, splits = gridDim.y;
    int high = s.by;
    /* Rows of one warp first, where the block's width divides it. */
    bool keeps = active;
    if ((s.bx & (s.bx - 1)) == 0) {
        for (int offset = s.bx; offset < 32; offset <<= 1) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                a[i] += __shfl_xor_sync(0xffffffffu, a[i], offset);
                b[i] += __shfl_xor_sync(0xffffffffu, b[i], offset);
            }
        }
        int together = 32 / s.bx;
        keeps = active && ty % together == 0;
        ty /= together;
        high = REDUCE_THREADS / 32;
    }
    if (keeps) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            shared[(ty * s.bx + tx) * 2 * V + i] = a[i];
            shared[(ty * s.bx + tx) * 2 * V + V + i] = b[i];
        }
    }
    __syncthreads();
    const int64_t stride = (int64_t)s.vectors * V;
    const int64_t first = (int64_t)blockIdx.x * width;
    for (int item = tid; item < 2 * width; item += REDUCE_THREADS) {
        int which = item / width, channel = item % width;
        float sum = 0;
        for (int y = 0; y < high; y++)
            sum += shared[(y * s.bx + channel / V) * 2 * V + which * V + channel % V];
        if (splits == 1)
            totals[item] = sum;
        else if (first + channel < stride)
            scratch[((int64_t)which * splits + blockIdx.y) * stride + first + channel] = sum;
    }
    if (splits == 1) { /* few rows: there is nobody to wait for */
        __syncthreads();
        return true;
    }
    __threadfence();
    __syncthreads();
    if (tid == 0) {
        unsigned arrived = atomicAdd(&counters[blockIdx.x], 1);
        last = arrived == (unsigned)splits - 1;
        if (last)
            counters[blockIdx.x] = 0;
    }
    __syncthreads();
    if (!last)
        return false;
    __threadfence();
    /* Threads read L channels at a time; `parts` of them share each, and their sums are added in
     * order. With one load per channel and half the threads this took 20 us. */
    const int lanes = width / L, parts = REDUCE_THREADS / lanes;
    const int lane = tid % lanes, part = tid / lanes;
    if (part < parts) {
        const float *from = scratch + first + lane * L;
        const bool inside = first + lane * L < stride;
        double sums[2][L];
#pragma unroll
        for (int i = 0; i < L; i++)
            sums[0][i] = sums[1][i] = 0;
#pragma unroll 4
        for (int y = part; inside && y < splits; y += parts) {
            Vec<float, L> left, right;
            if constexpr (L == 4) {
                float4 l = __ldcg((const float4 *)(from + y * stride));
                float4 r = __ldcg((const float4 *)(from + ((int64_t)splits + y) * stride));
                left = {l.x, l.y, l.z, l.w};
                right = {r.x, r.y, r.z, r.w};
            } else {
                left.v[0] = __ldcg(from + y * stride);
                right.v[0] = __ldcg(from + ((int64_t)splits + y) * stride);
            }
#pragma unroll
            for (int i = 0; i < L; i++) {
                sums[0][i] += left.v[i];
                sums[1][i] += right.v[i];
            }
        }
#pragma unroll
        for (int i = 0; i < L; i++) {
            partial[part * width + lane * L + i] = sums[0][i];
            partial[(parts + part) * width + lane * L + i] = sums[1][i];
        }
    }
    __syncthreads();
    for (int item = tid; item < 2 * width; item += REDUCE_THREADS) {
        const int which = item / width, channel = item % width;
        double sum = 0;
        for (int y = 0; y < parts; y++)
            sum += partial[(which * parts + y) * width + channel];
        totals[item] = sum;
    }
    __syncthreads();
    return true;
}

/* ---- forward ---- */

template <typename T, int V>
__global__ void __launch_bounds__(REDUCE_THREADS, 2)
    statistics_kernel(Shape s, const T *x, float *scratch, unsigned *counters, float *mean, float *variance,
                      float *running_mean, float *running_variance, float momentum, int64_t logical)
{
    __shared__ double totals[2 * 32 * V];
    const int tx = threadIdx.x % s.bx, ty = threadIdx.x / s.bx;
    const int vector = blockIdx.x * s.bx + tx;
    const bool active = ty < s.by && vector < s.vectors;
    const int64_t stride = (int64_t)s.vectors * V;
    float sum[V], squares[V], pivot[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        sum[i] = squares[i] = pivot[i] = 0;
    if (active) {
        /* Sums around the first row's values: no cancellation where the mean is far from zero. */
        const Vec<T, V> p = load<T, V>(x + (int64_t)vector * V);
#pragma unroll
        for (int i = 0; i < V; i++)
            pivot[i] = to_float(p.v[i]);
        const int64_t step = (int64_t)gridDim.y * s.by;
        int64_t row = s.rows - 1 - ((int64_t)blockIdx.y * s.by + ty);
        for (; row - (UNROLL - 1) * step >= 0; row -= UNROLL * step) {
            Vec<T, V> in[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                in[u] = load<T, V>(x + (row - u * step) * stride + (int64_t)vector * V);
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float d = to_float(in[u].v[i]) - pivot[i];
                    sum[i] += d;
                    squares[i] = fmaf(d, d, squares[i]);
                }
        }
        for (; row >= 0; row -= step) {
            Vec<T, V> in = load<T, V>(x + row * stride + (int64_t)vector * V);
#pragma unroll
            for (int i = 0; i < V; i++) {
                float d = to_float(in.v[i]) - pivot[i];
                sum[i] += d;
                squares[i] = fmaf(d, d, squares[i]);
            }
        }
    }
    if (!reduce_columns<V>(s, tx, ty, active, sum, squares, scratch, counters, totals))
        return;
    const int width = s.bx * V;
    for (int i = threadIdx.x; i < width; i += REDUCE_THREADS) {
        int64_t c = (int64_t)blockIdx.x * width + i;
        if (c >= logical)
            continue;
        double count = (double)s.rows;
        double around = totals[i] / count;
        double var = totals[width + i] / count - around * around;
        var = var > 0 || var != var ? var : 0;
        double m = around + (double)to_float(x[c]);
        mean[c] = (float)m;
        variance[c] = (float)var;
        if (!running_mean)
            continue;
        double unbiased = count > 1 ? var * count / (count - 1) : var;
        running_mean[c] = (float)(running_mean[c] + momentum * (m - running_mean[c]));
        running_variance[c] = (float)(running_variance[c] + momentum * (unbiased - running_variance[c]));
    }
}

/* y = x * a + b per channel; the same expression wherever y's sign is needed again. */
struct Affine {
    float a, b;
};

__device__ __forceinline__ Affine affine_of(float scale, float shift, float mean, float variance, float epsilon)
{
    float a = scale * rsqrtf(variance + epsilon);
    return {a, fmaf(-mean, a, shift)};
}

template <typename T, int V, bool RELU, bool RESIDUAL>
__global__ void __launch_bounds__(APPLY_THREADS)
    apply_kernel(Shape s, const T *x, const T *residual, T *y, uint8_t *mask, const float *mean, const float *variance,
                 const float *scale, const float *shift, float epsilon, int64_t logical)
{
    const int tx = threadIdx.x % s.bx, ty = threadIdx.x / s.bx;
    const int vector = blockIdx.x * s.bx + tx;
    if (ty >= s.by || vector >= s.vectors)
        return;
    const int64_t stride = (int64_t)s.vectors * V;
    float a[V], b[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        int64_t c = (int64_t)vector * V + i;
        Affine f = c < logical ? affine_of(scale[c], shift[c], mean[c], variance[c], epsilon) : Affine{0, 0};
        a[i] = f.a;
        b[i] = f.b;
    }
    const int64_t step = (int64_t)gridDim.y * s.by;
    for (int64_t row = (int64_t)blockIdx.y * s.by + ty; row < s.rows; row += UNROLL * step) {
        Vec<T, V> in[UNROLL], more[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int64_t at = row + u * step;
            if (at < s.rows) {
                in[u] = load<T, V>(x + at * stride + (int64_t)vector * V);
                if (RESIDUAL)
                    more[u] = load<T, V>(residual + at * stride + (int64_t)vector * V);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int64_t at = row + u * step;
            if (at >= s.rows)
                break;
            Vec<T, V> out;
            unsigned bits = 0;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float value = fmaf(to_float(in[u].v[i]), a[i], b[i]);
                if (RESIDUAL)
                    value += to_float(more[u].v[i]);
                if (RELU) {
                    bits |= value <= 0 ? 0 : 1u << i;
                    value = value < 0 ? 0 : value;
                }
                out.v[i] = from_float<T>(value);
            }
            store<T, V>(y + at * stride + (int64_t)vector * V, out);
            if (RELU && RESIDUAL && mask)
                mask[at * s.vectors + vector] = (uint8_t)bits;
        }
    }
}

/* ---- backward ---- */

enum Masking { NO_MASK, BY_SIGN, BY_BITS };

template <typename T, int V, int MASK, bool TWO>
__global__ void __launch_bounds__(REDUCE_THREADS, 1)
    reduce_kernel(Shape s, const T *x, const T *dy, const T *dy2, const uint8_t *mask, T *g, float *scratch,
                  unsigned *counters, const float *mean, const float *variance, const float *scale, const float *shift,
                  float epsilon, float *dscale, float *dshift, int64_t logical)
{
    enum { ROWS = TWO ? 3 : 4 };
    __shared__ double totals[2 * 32 * V];
    const int tx = threadIdx.x % s.bx, ty = threadIdx.x / s.bx;
    const int vector = blockIdx.x * s.bx + tx;
    const bool active = ty < s.by && vector < s.vectors;
    const int64_t stride = (int64_t)s.vectors * V;
    float sum[V], product[V], m[V], a[V], b[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        sum[i] = product[i] = m[i] = a[i] = b[i] = 0;
    if (active) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = (int64_t)vector * V + i;
            if (c < logical) {
                m[i] = mean[c];
                if (MASK == BY_SIGN) {
                    Affine f = affine_of(scale[c], shift[c], mean[c], variance[c], epsilon);
                    a[i] = f.a;
                    b[i] = f.b;
                }
            }
        }
        const int64_t step = (int64_t)gridDim.y * s.by;
        for (int64_t row = s.rows - 1 - ((int64_t)blockIdx.y * s.by + ty); row >= 0; row -= ROWS * step) {
            Vec<T, V> in[ROWS], d[ROWS], d2[ROWS];
            unsigned bits[ROWS];
#pragma unroll
            for (int u = 0; u < ROWS; u++) {
                int64_t at = row - u * step;
                if (at >= 0) {
                    in[u] = load<T, V>(x + at * stride + (int64_t)vector * V);
                    d[u] = load<T, V>(dy + at * stride + (int64_t)vector * V);
                    if (TWO)
                        d2[u] = load<T, V>(dy2 + at * stride + (int64_t)vector * V);
                    if (MASK == BY_BITS)
                        bits[u] = mask[at * s.vectors + vector];
                }
            }
#pragma unroll
            for (int u = 0; u < ROWS; u++) {
                int64_t at = row - u * step;
                if (at < 0)
                    break;
                Vec<T, V> out;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float value = to_float(in[u].v[i]), gradient = to_float(d[u].v[i]);
                    if (TWO)
                        gradient += to_float(d2[u].v[i]);
                    if (MASK == BY_BITS)
                        gradient = bits[u] >> i & 1 ? gradient : 0;
                    if (MASK == BY_SIGN)
                        gradient = fmaf(value, a[i], b[i]) <= 0 ? 0 : gradient;
                    out.v[i] = from_float<T>(gradient);
                    if (TWO)
                        gradient = to_float(out.v[i]); /* what the second pass will read */
                    sum[i] += gradient;
                    product[i] = fmaf(gradient, value - m[i], product[i]);
                }
                if (g)
                    store<T, V>(g + at * stride + (int64_t)vector * V, out);
            }
        }
    }
    if (!reduce_columns<V>(s, tx, ty, active, sum, product, scratch, counters, totals))
        return;
    const int width = s.bx * V;
    for (int i = threadIdx.x; i < width; i += REDUCE_THREADS) {
        int64_t c = (int64_t)blockIdx.x * width + i;
        if (c >= logical)
            continue;
        dshift[c] = (float)totals[i];
        dscale[c] = (float)(totals[width + i] / sqrt((double)variance[c] + epsilon));
    }
}

/* dx = a * (g - dshift / M - xhat * dscale / M) = a * g + k1 * x + k0 */
template <typename T, int V, bool SIGN>
__global__ void __launch_bounds__(APPLY_THREADS)
    gradient_kernel(Shape s, const T *x, const T *g, T *dx, const float *mean, const float *variance,
                    const float *scale, const float *shift, const float *dscale, const float *dshift, float epsilon,
                    int64_t logical)
{
    const int tx = threadIdx.x % s.bx, ty = threadIdx.x / s.bx;
    const int vector = blockIdx.x * s.bx + tx;
    if (ty >= s.by || vector >= s.vectors)
        return;
    const int64_t stride = (int64_t)s.vectors * V;
    const float share = (float)(1.0 / (double)s.rows);
    float a[V], b[V], k1[V], k0[V], m[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        int64_t c = (int64_t)vector * V + i;
        a[i] = b[i] = k1[i] = k0[i] = m[i] = 0;
        if (c < logical) {
            Affine f = affine_of(scale[c], shift[c], mean[c], variance[c], epsilon);
            a[i] = f.a;
            b[i] = f.b;
            m[i] = mean[c];
            if (dscale) {
                k1[i] = -f.a * rsqrtf(variance[c] + epsilon) * dscale[c] * share;
                k0[i] = -f.a * dshift[c] * share;
            }
        }
    }
    const int64_t step = (int64_t)gridDim.y * s.by;
    for (int64_t row = (int64_t)blockIdx.y * s.by + ty; row < s.rows; row += UNROLL * step) {
        Vec<T, V> in[UNROLL], d[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int64_t at = row + u * step;
            if (at < s.rows) {
                in[u] = load<T, V>(x + at * stride + (int64_t)vector * V);
                d[u] = load<T, V>(g + at * stride + (int64_t)vector * V);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int64_t at = row + u * step;
            if (at >= s.rows)
                break;
            Vec<T, V> out;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float value = to_float(in[u].v[i]), gradient = to_float(d[u].v[i]);
                if (SIGN)
                    gradient = fmaf(value, a[i], b[i]) <= 0 ? 0 : gradient;
                out.v[i] = from_float<T>(fmaf(a[i], gradient, fmaf(k1[i], value - m[i], k0[i])));
            }
            store<T, V>(dx + at * stride + (int64_t)vector * V, out);
        }
    }
}

/* ---- sums of columns, bias ---- */

template <typename T, int V, int WHAT>
__global__ void __launch_bounds__(REDUCE_THREADS, 2)
    column_sums_kernel(Shape s, const T *x, const T *y, T *dx, float *scratch, unsigned *counters, float *sums,
                       int64_t logical)
{
    constexpr int U = WHAT == CUDA_NOTHING ? UNROLL : 2; /* rows at once: two blocks fit on a multiprocessor */
    __shared__ double totals[2 * 32 * V];
    const int tx = threadIdx.x % s.bx, ty = threadIdx.x / s.bx;
    const int vector = blockIdx.x * s.bx + tx;
    const bool active = ty < s.by && vector < s.vectors;
    const int64_t stride = (int64_t)s.vectors * V;
    float sum[V], unused[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        sum[i] = unused[i] = 0;
    if (active) {
        const int64_t step = (int64_t)gridDim.y * s.by;
        for (int64_t row = s.rows - 1 - ((int64_t)blockIdx.y * s.by + ty); row >= 0; row -= U * step) {
            Vec<T, V> in[U], read[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                int64_t at = row - u * step;
                if (at >= 0) {
                    in[u] = load<T, V>(x + at * stride + (int64_t)vector * V);
                    if (WHAT != CUDA_NOTHING)
                        read[u] = load<T, V>(y + at * stride + (int64_t)vector * V);
                }
            }
#pragma unroll
            for (int u = 0; u < U; u++) {
                int64_t at = row - u * step;
                if (at < 0)
                    break;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    if (WHAT != CUDA_NOTHING)
                        in[u].v[i] =
                            from_float<T>(compute<WHAT, sizeof(T) == 2>(to_float(read[u].v[i]), to_float(in[u].v[i])));
                    sum[i] += to_float(in[u].v[i]);
                }
                if (WHAT != CUDA_NOTHING)
                    store<T, V>(dx + at * stride + (int64_t)vector * V, in[u]);
            }
        }
    }
    if (!reduce_columns<V>(s, tx, ty, active, sum, unused, scratch, counters, totals))
        return;
    const int width = s.bx * V;
    for (int i = threadIdx.x; i < width; i += REDUCE_THREADS) {
        int64_t c = (int64_t)blockIdx.x * width + i;
        if (c < logical)
            sums[c] = (float)totals[i];
    }
}

template <typename T, int V>
__global__ void __launch_bounds__(APPLY_THREADS)
    bias_kernel(Shape s, const T *x, const float *bias, bool relu, T *y, int64_t logical)
{
    const int tx = threadIdx.x % s.bx, ty = threadIdx.x / s.bx;
    const int vector = blockIdx.x * s.bx + tx;
    if (ty >= s.by || vector >= s.vectors)
        return;
    const int64_t stride = (int64_t)s.vectors * V;
    float b[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        b[i] = bias && (int64_t)vector * V + i < logical ? bias[(int64_t)vector * V + i] : 0;
    const int64_t step = (int64_t)gridDim.y * s.by;
    for (int64_t row = (int64_t)blockIdx.y * s.by + ty; row < s.rows; row += UNROLL * step) {
        Vec<T, V> in[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (row + u * step < s.rows)
                in[u] = load<T, V>(x + (row + u * step) * stride + (int64_t)vector * V);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (row + u * step >= s.rows)
                break;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float value = to_float(in[u].v[i]) + b[i];
                in[u].v[i] = from_float<T>(relu && value < 0 ? 0 : value);
            }
            store<T, V>(y + (row + u * step) * stride + (int64_t)vector * V, in[u]);
        }
    }
}

dim3 apply_grid(const Shape &s, int processors)
{
    int64_t most = ceil_div(s.rows, (int64_t)s.by * UNROLL);
    int64_t wanted = ceil_div(8 * processors, columns_of(s));
    return dim3((unsigned)columns_of(s), (unsigned)(most < wanted ? (most < 1 ? 1 : most) : wanted));
}

} // namespace

extern "C" {

size_t cuda_reduction_floats(const cuda_launch *launch, int64_t rows, int64_t channels, cuda_type type)
{
    int width = type == CUDA_TYPE_F32 ? (channels % 4 == 0 ? 4 : 1) : (channels % 8 == 0 ? 8 : 1);
    Shape s = reduction_shape(rows, channels, width);
    return 2 * (size_t)splits_of(s, 2 * launch->processors) * (size_t)channels;
}

size_t cuda_norm_mask_bytes(cuda_type type, int64_t rows, int64_t channels)
{
    int width = type == CUDA_TYPE_F32 ? (channels % 4 == 0 ? 4 : 1) : (channels % 8 == 0 ? 8 : 1);
    return (size_t)(rows * (channels / width));
}

cudaError_t cuda_launch_norm_statistics(const cuda_launch *launch, const cuda_norm *n, const void *x, float *scratch)
{
    return with_vectors(n->type, n->channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        Shape s = reduction_shape(n->rows, n->channels, V);
        dim3 grid((unsigned)columns_of(s), (unsigned)splits_of(s, 2 * launch->processors));
        statistics_kernel<T, V><<<grid, REDUCE_THREADS, 0, launch->stream>>>(
            s, (const T *)x, scratch, launch->counters, n->mean, n->variance, n->running_mean, n->running_variance,
            n->momentum, n->logical);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_norm_apply(const cuda_launch *launch, const cuda_norm *n, const float *mean,
                                   const float *variance, const void *x, const void *residual, void *y, uint8_t *mask)
{
    return with_vectors(n->type, n->channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        Shape s = shape_of(n->rows, n->channels, V, APPLY_THREADS, 32);
        auto kernel = n->relu ? (residual ? apply_kernel<T, V, true, true> : apply_kernel<T, V, true, false>)
                              : (residual ? apply_kernel<T, V, false, true> : apply_kernel<T, V, false, false>);
        kernel<<<apply_grid(s, launch->processors), APPLY_THREADS, 0, launch->stream>>>(
            s, (const T *)x, (const T *)residual, (T *)y, mask, mean, variance, n->scale, n->shift, n->epsilon,
            n->logical);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_norm_reduce(const cuda_launch *launch, const cuda_norm *n, const void *x, const void *dy,
                                    const void *dy2, const uint8_t *mask, void *g, float *dscale, float *dshift,
                                    float *scratch)
{
    return with_vectors(n->type, n->channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        Shape s = reduction_shape(n->rows, n->channels, V);
        dim3 grid((unsigned)columns_of(s), (unsigned)splits_of(s, launch->processors));
        auto kernel = dy2 ? (mask      ? reduce_kernel<T, V, BY_BITS, true>
                             : n->relu ? reduce_kernel<T, V, BY_SIGN, true>
                                       : reduce_kernel<T, V, NO_MASK, true>)
                          : (mask      ? reduce_kernel<T, V, BY_BITS, false>
                             : n->relu ? reduce_kernel<T, V, BY_SIGN, false>
                                       : reduce_kernel<T, V, NO_MASK, false>);
        kernel<<<grid, REDUCE_THREADS, 0, launch->stream>>>(s, (const T *)x, (const T *)dy, (const T *)dy2, mask,
                                                            (T *)g, scratch, launch->counters, n->mean, n->variance,
                                                            n->scale, n->shift, n->epsilon, dscale, dshift, n->logical);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_norm_gradient(const cuda_launch *launch, const cuda_norm *n, const void *x, const void *g,
                                      bool masked, const float *dscale, const float *dshift, void *dx)
{
    return with_vectors(n->type, n->channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        Shape s = shape_of(n->rows, n->channels, V, APPLY_THREADS, 32);
        auto kernel = masked ? gradient_kernel<T, V, true> : gradient_kernel<T, V, false>;
        kernel<<<apply_grid(s, launch->processors), APPLY_THREADS, 0, launch->stream>>>(
            s, (const T *)x, (const T *)g, (T *)dx, n->mean, n->variance, n->scale, n->shift, dscale, dshift,
            n->epsilon, n->logical);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_column_sums(const cuda_launch *launch, cuda_elementwise what, cuda_type type, int64_t rows,
                                    int64_t channels, int64_t logical, const void *x, const void *y, void *dx,
                                    float *sums, float *scratch)
{
    return with_vectors(type, channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        Shape s = reduction_shape(rows, channels, V);
        dim3 grid((unsigned)columns_of(s), (unsigned)splits_of(s, 2 * launch->processors));
        auto kernel = what == CUDA_RELU_GRAD        ? column_sums_kernel<T, V, CUDA_RELU_GRAD>
                      : what == CUDA_GELU_GRAD      ? column_sums_kernel<T, V, CUDA_GELU_GRAD>
                      : what == CUDA_GELU_TANH_GRAD ? column_sums_kernel<T, V, CUDA_GELU_TANH_GRAD>
                                                    : column_sums_kernel<T, V, CUDA_NOTHING>;
        kernel<<<grid, REDUCE_THREADS, 0, launch->stream>>>(s, (const T *)x, (const T *)y, (T *)dx, scratch,
                                                            launch->counters, sums, logical);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_bias(const cuda_launch *launch, cuda_type type, int64_t rows, int64_t channels, int64_t logical,
                             const void *x, const float *bias, bool relu, void *y)
{
    return with_vectors(type, channels, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int V = decltype(width)::value;
        Shape s = shape_of(rows, channels, V, APPLY_THREADS, 32);
        bias_kernel<T, V><<<apply_grid(s, launch->processors), APPLY_THREADS, 0, launch->stream>>>(
            s, (const T *)x, bias, relu, (T *)y, logical);
        return cudaGetLastError();
    });
}

} // extern "C"
