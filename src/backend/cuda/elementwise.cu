/* Activations, sums, dropout and the loss. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/random.cuh"

namespace
{

enum { THREADS = 256 };

template <int WHAT, typename T>
__global__ void __launch_bounds__(THREADS) elementwise_kernel(size_t count, const T *a, const T *b, T *y)
{
    constexpr int V = 16 / sizeof(T), U = 2;
    constexpr bool TWO = reads_two<WHAT>(), ROUGH = sizeof(T) == 2;
    const size_t vectors = count / V, step = (size_t)gridDim.x * THREADS;
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    for (; i < vectors; i += U * step) {
        Vec<T, V> left[U], right[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            if (i + u * step < vectors) {
                left[u] = load<T, V>(a + (i + u * step) * V);
                if (TWO)
                    right[u] = load<T, V>(b + (i + u * step) * V);
            }
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (i + u * step >= vectors)
                break;
#pragma unroll
            for (int k = 0; k < V; k++)
                left[u].v[k] =
                    from_float<T>(compute<WHAT, ROUGH>(to_float(left[u].v[k]), TWO ? to_float(right[u].v[k]) : 0));
            store<T, V>(y + (i + u * step) * V, left[u]);
        }
    }
    for (size_t k = vectors * V + (size_t)blockIdx.x * THREADS + threadIdx.x; k < count; k += step)
        y[k] = from_float<T>(compute<WHAT, ROUGH>(to_float(a[k]), TWO ? to_float(b[k]) : 0));
}

unsigned blocks_for(const cuda_launch *launch, size_t work)
{
    int64_t blocks = ceil_div((int64_t)work, THREADS), most = 8 * (int64_t)launch->processors;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

template <typename T>
cudaError_t run_elementwise(const cuda_launch *launch, cuda_elementwise what, size_t count, const void *a,
                            const void *b, void *y)
{
    unsigned blocks = blocks_for(launch, count / (16 / sizeof(T)) / 2);
    switch (what) {
#define LAUNCH(name)                                                                                                   \
    case name:                                                                                                         \
        elementwise_kernel<name, T>                                                                                    \
            <<<blocks, THREADS, 0, launch->stream>>>(count, (const T *)a, (const T *)b, (T *)y);                       \
        return cudaGetLastError();
        LAUNCH(CUDA_RELU)
        LAUNCH(CUDA_RELU_GRAD)
        LAUNCH(CUDA_GELU)
        LAUNCH(CUDA_GELU_GRAD)
        LAUNCH(CUDA_GELU_TANH)
        LAUNCH(CUDA_GELU_TANH_GRAD)
        LAUNCH(CUDA_TANH)
        LAUNCH(CUDA_TANH_GRAD)
        LAUNCH(CUDA_ADD)
        LAUNCH(CUDA_ADD_RELU)
#undef LAUNCH
    case CUDA_NOTHING: break;
    }
    return cudaErrorInvalidValue;
}

/* ---- dropout ---- */

enum { DROPPED_AT_ONCE = 8 };

template <typename T>
__global__ void __launch_bounds__(THREADS)
    dropout_kernel(const T *x, T *y, int64_t count, int64_t c, int64_t plane, bool nhwc, int64_t channels,
                   cuda_row_origin origin, const cuda_run_values *run, uint32_t id, uint32_t threshold, float scale)
{
    const uint64_t key = dropout_key(run, id);
    const int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * DROPPED_AT_ONCE;
    const uint64_t before = first_row(run, origin) * (uint64_t)(c * plane); /* elements of the whole batch */
    if (!nhwc && before % 2 == 0 && first + DROPPED_AT_ONCE <= count) {     /* one draw serves two neighbours */
        const Vec<T, 16 / sizeof(T)> *from = reinterpret_cast<const Vec<T, 16 / sizeof(T)> *>(x + first);
        Vec<T, 16 / sizeof(T)> *to = reinterpret_cast<Vec<T, 16 / sizeof(T)> *>(y + first);
        constexpr int V = 16 / sizeof(T);
#pragma unroll
        for (int part = 0; part < DROPPED_AT_ONCE / V; part++) {
            Vec<T, V> values = from[part];
#pragma unroll
            for (int k = 0; k < V; k += 2) {
                uint64_t bits = random_bits(key, (before + (uint64_t)(first + part * V + k)) >> 1);
                values.v[k] = from_float<T>(to_float(values.v[k]) * ((uint32_t)bits >= threshold ? scale : 0));
                values.v[k + 1] =
                    from_float<T>(to_float(values.v[k + 1]) * ((uint32_t)(bits >> 32) >= threshold ? scale : 0));
            }
            to[part] = values;
        }
        return;
    }
    for (int64_t i = first; i < first + DROPPED_AT_ONCE && i < count; i++) {
        uint64_t element = (uint64_t)i;
        if (nhwc) {
            int64_t channel = i % channels, pixel = i / channels;
            element = channel < c ? (uint64_t)((pixel / plane * c + channel) * plane + pixel % plane) : 0;
        }
        element += before;
        uint64_t bits = random_bits(key, element >> 1);
        bool keeps = (uint32_t)(bits >> (32 * (element & 1))) >= threshold;
        y[i] = from_float<T>(to_float(x[i]) * (keeps ? scale : 0)); /* NaN stays */
    }
}

/* ---- loss ---- */

/* One warp per row; the block that finishes last adds up the rows, in order. */
__global__ void __launch_bounds__(THREADS)
    cross_entropy_kernel(const float *logits, const int32_t *labels, int64_t batch, int64_t classes, float smoothing,
                         float *loss, float *probabilities, float *counted, float *scratch, unsigned *counter,
                         const cuda_run_values *run, cuda_announcement *announcement)
{
    __shared__ bool last;
    __shared__ double sums[3 * THREADS];
    const int lane = threadIdx.x % 32;
    const int64_t n = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (n < batch) {
        const float *row = logits + n * classes;
        float *p = probabilities + n * classes;
        float largest = -INFINITY;
        int best = 0x7fffffff;
        bool broken = false;
        for (int64_t k = lane; k < classes; k += 32) {
            broken = broken || row[k] != row[k];
            if (row[k] > largest || best == 0x7fffffff) {
                largest = row[k];
                best = (int)k;
            }
        }
        for (int offset = 16; offset > 0; offset >>= 1) {
            float other = __shfl_xor_sync(0xffffffffu, largest, offset);
            int where = __shfl_xor_sync(0xffffffffu, best, offset);
            if (other > largest || (other == largest && where < best)) {
                largest = other;
                best = where;
            }
        }
        if (__any_sync(0xffffffffu, broken))
            largest = NAN;
        float sum = 0, logit_sum = 0;
        for (int64_t k = lane; k < classes; k += 32) {
            float e = expf(row[k] - largest);
            p[k] = e;
            sum += e;
            logit_sum += row[k];
        }
        sum = warp_sum(sum);
        logit_sum = warp_sum(logit_sum);
        float scale = 1 / sum;
        for (int64_t k = lane; k < classes; k += 32)
            p[k] *= scale;
        if (lane == 0) {
            int32_t label = labels[n];
            bool valid = label >= 0 && label < classes, ignored = label == CUDA_IGNORED_LABEL;
            double own = valid ? (double)row[label] : (double)NAN;
            scratch[n] = ignored ? 0
                                 : (float)(log((double)sum) + (double)largest - (1 - (double)smoothing) * own -
                                           (double)smoothing * (double)logit_sum / (double)classes);
            scratch[batch + n] = best == label ? 1.0f : 0.0f;
        }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned arrived = atomicAdd(counter, 1);
        last = arrived == gridDim.x - 1;
        if (last)
            *counter = 0;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    double total = 0, correct = 0, count = 0;
    for (int64_t i = threadIdx.x; i < batch; i += THREADS) {
        total += __ldcg(scratch + i);
        correct += __ldcg(scratch + batch + i);
        count += labels[i] != CUDA_IGNORED_LABEL;
    }
    sums[threadIdx.x] = total;
    sums[THREADS + threadIdx.x] = correct;
    sums[2 * THREADS + threadIdx.x] = count;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half >>= 1) {
        if ((int)threadIdx.x < half) {
            for (int k = 0; k < 3; k++)
                sums[k * THREADS + threadIdx.x] += sums[k * THREADS + threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        counted[0] = (float)sums[2 * THREADS];
        loss[0] = announcement->loss = sums[2 * THREADS] > 0 ? (float)(sums[0] / sums[2 * THREADS]) : 0;
        loss[1] = announcement->correct = (float)sums[THREADS];
        __threadfence_system(); /* the host must not see the number before the loss */
        announcement->sequence = run->sequence;
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_grad_kernel(const float *probabilities, const int32_t *labels, int64_t count, int64_t classes,
                              float smoothing, const float *counted, const cuda_run_values *run, T *gradient)
{
    const float scale = run->gradient_scale / counted[0], base = smoothing / (float)classes;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS) {
        int64_t n = i / classes, k = i % classes;
        float target = base + (labels[n] == k ? 1 - smoothing : 0);
        gradient[i] = from_float<T>(labels[n] == CUDA_IGNORED_LABEL ? 0 : (probabilities[i] - target) * scale);
    }
}

} // namespace

extern "C" {

cudaError_t cuda_launch_elementwise(const cuda_launch *launch, cuda_elementwise what, cuda_type type, size_t count,
                                    const void *a, const void *b, void *y)
{
    return with_type(type, [&](auto zero) { return run_elementwise<decltype(zero)>(launch, what, count, a, b, y); });
}

cudaError_t cuda_launch_dropout(cudaStream_t stream, cuda_type type, const void *x, void *y, int64_t n, int64_t c,
                                int64_t plane, bool nhwc, int64_t channels, cuda_row_origin origin,
                                const cuda_run_values *run, uint32_t id, uint32_t threshold, float scale)
{
    int64_t count = n * plane * (nhwc ? channels : c);
    int64_t blocks = ceil_div(count, THREADS * DROPPED_AT_ONCE);
    return with_type(type, [&](auto zero) {
        using T = decltype(zero);
        dropout_kernel<T><<<(unsigned)blocks, THREADS, 0, stream>>>((const T *)x, (T *)y, count, c, plane, nhwc,
                                                                    channels, origin, run, id, threshold, scale);
        return cudaGetLastError();
    });
}

cudaError_t cuda_launch_cross_entropy(const cuda_launch *launch, const float *logits, const int32_t *labels,
                                      int64_t batch, int64_t classes, float smoothing, float *loss,
                                      float *probabilities, float *counted, float *scratch, const cuda_run_values *run,
                                      cuda_announcement *announcement)
{
    cross_entropy_kernel<<<(unsigned)ceil_div(batch, THREADS / 32), THREADS, 0, launch->stream>>>(
        logits, labels, batch, classes, smoothing, loss, probabilities, counted, scratch, launch->counters, run,
        announcement);
    return cudaGetLastError();
}

cudaError_t cuda_launch_cross_entropy_grad(cudaStream_t stream, cuda_type type, const float *probabilities,
                                           const int32_t *labels, const float *counted, int64_t batch, int64_t classes,
                                           float smoothing, const cuda_run_values *run, void *gradient)
{
    int64_t count = batch * classes, blocks = ceil_div(count, THREADS);
    return with_type(type, [&](auto zero) {
        using T = decltype(zero);
        cross_entropy_grad_kernel<T><<<(unsigned)(blocks < 4096 ? blocks : 4096), THREADS, 0, stream>>>(
            probabilities, labels, count, classes, smoothing, counted, run, (T *)gradient);
        return cudaGetLastError();
    });
}

} // extern "C"
