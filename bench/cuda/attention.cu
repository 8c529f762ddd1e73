/* Attention's CUDA kernels by themselves: checked against plain double arithmetic for many shapes,
 * then timed.
 *
 *     ninja -C build bench_cuda_attention       where nvcc is; it needs no GPU
 *     build/bench_cuda_attention [check | quick | time]
 *
 * Rows of no sequence are full of NaN, and so are all outputs before a run. Exit 1 if something is
 * wrong. */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/attention.h"
#include "backend/cuda/device.cuh"

/* attention_mask.c */
extern "C" uint32_t attention_threshold(float probability);
extern "C" bool attention_keeps(uint64_t seed, uint64_t step, uint32_t id, uint64_t token, int heads, int head, int key,
                                float probability);

namespace
{

enum { DROPOUT = 5 }; /* an id */

void require(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

template <typename V> struct Buffer {
    V *data = nullptr;
    size_t count;
    explicit Buffer(size_t n) : count(n)
    {
        require(cudaMalloc(&data, std::max<size_t>(n, 4) * sizeof(V)), "cudaMalloc");
        require(cudaMemset(data, 0xff, std::max<size_t>(n, 4) * sizeof(V)), "cudaMemset"); /* NaN of every type */
    }
    explicit Buffer(const std::vector<V> &from) : Buffer(from.size())
    {
        require(cudaMemcpy(data, from.data(), count * sizeof(V), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    Buffer(const Buffer &) = delete;
    ~Buffer()
    {
        cudaFree(data);
    }
    std::vector<V> get() const
    {
        std::vector<V> to(count);
        require(cudaMemcpy(to.data(), data, count * sizeof(V), cudaMemcpyDeviceToHost), "cudaMemcpy");
        return to;
    }
};

float value_of(float x)
{
    return x;
}
float value_of(__half x)
{
    return __half2float(x);
}
float value_of(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template <typename T> T made_of(float x);
template <> float made_of<float>(float x)
{
    return x;
}
template <> __half made_of<__half>(float x)
{
    return __float2half(x);
}
template <> __nv_bfloat16 made_of<__nv_bfloat16>(float x)
{
    return __float2bfloat16(x);
}
cuda_type type_of(float)
{
    return CUDA_TYPE_F32;
}
cuda_type type_of(__half)
{
    return CUDA_TYPE_F16;
}
cuda_type type_of(__nv_bfloat16)
{
    return CUDA_TYPE_BF16;
}
const char *name_of(cuda_type type)
{
    return type == CUDA_TYPE_F32 ? "f32" : type == CUDA_TYPE_F16 ? "f16" : "bf16";
}

struct Problem {
    int heads, size, longest;
    int64_t tokens;
    std::vector<int32_t> ends;
    float probability;
    cuda_run_values run;
};

Problem make_problem(std::vector<int> lengths, int rest, int heads, int size, float probability)
{
    Problem p = {};
    p.heads = heads;
    p.size = size;
    p.probability = probability;
    for (int length : lengths) {
        p.tokens += length;
        p.longest = std::max(p.longest, length);
        p.ends.push_back((int32_t)p.tokens);
    }
    p.tokens += rest;
    p.run.seed = 7;
    p.run.step = 3;
    p.run.first_token = 1001;
    return p;
}

cuda_attention_shape shape_of(const Problem &p, cuda_type type)
{
    cuda_attention_shape a = {};
    a.type = type;
    a.tokens = p.tokens;
    a.sequences = (int)p.ends.size();
    a.heads = p.heads;
    a.size = p.size;
    a.longest = p.longest;
    a.probability = p.probability;
    a.dropout = DROPOUT;
    a.threshold = attention_threshold(p.probability);
    return a;
}

struct Reference {
    std::vector<double> y, dqkv;
    std::vector<double> statistics;
};

void one_head(const Problem &p, const std::vector<float> &qkv, const std::vector<float> &dy, size_t sequence, int head,
              Reference *r)
{
    const int64_t width = (int64_t)p.heads * p.size, stride = 3 * width;
    const int64_t first = sequence ? p.ends[sequence - 1] : 0, length = p.ends[sequence] - first;
    const double scale = 1 / sqrt((double)p.size), kept = 1 / (1 - (double)p.probability);
    const float *q = &qkv[first * stride + head * p.size], *k = q + width, *v = k + width;
    const float *g = &dy[first * width + head * p.size];
    double *y = &r->y[first * width + head * p.size], *dq = &r->dqkv[first * stride + head * p.size];
    std::vector<double> probability(length), dp(length);
    for (int64_t i = 0; i < length; i++) {
        double largest = -INFINITY, sum = 0, delta = 0;
        for (int64_t j = 0; j < length; j++) {
            double s = 0;
            for (int d = 0; d < p.size; d++)
                s += (double)q[i * stride + d] * k[j * stride + d];
            probability[j] = s * scale;
            largest = std::max(largest, s * scale);
        }
        for (int64_t j = 0; j < length; j++)
            sum += exp(probability[j] - largest);
        r->statistics[(first + i) * p.heads + head] = largest + log(sum);
        for (int64_t j = 0; j < length; j++) {
            probability[j] = exp(probability[j] - largest) / sum;
            const double mask =
                attention_keeps(p.run.seed, p.run.step, DROPOUT, p.run.first_token + (uint64_t)(first + i), p.heads,
                                head, (int)j, p.probability)
                    ? kept
                    : 0;
            dp[j] = 0;
            for (int d = 0; d < p.size; d++) {
                y[i * width + d] += probability[j] * mask * v[j * stride + d];
                dq[2 * width + j * stride + d] += probability[j] * mask * g[i * width + d];
                dp[j] += (double)g[i * width + d] * v[j * stride + d] * mask;
            }
            delta += probability[j] * dp[j];
        }
        for (int64_t j = 0; j < length; j++) {
            const double ds = probability[j] * (dp[j] - delta) * scale;
            for (int d = 0; d < p.size; d++) {
                dq[i * stride + d] += ds * k[j * stride + d];
                dq[width + j * stride + d] += ds * q[i * stride + d];
            }
        }
    }
}

Reference compute(const Problem &p, const std::vector<float> &qkv, const std::vector<float> &dy)
{
    Reference r;
    const size_t width = (size_t)p.heads * p.size;
    r.y.resize((size_t)p.tokens * width);
    r.dqkv.resize((size_t)p.tokens * width * 3);
    r.statistics.resize((size_t)p.tokens * p.heads);
    const size_t jobs = p.ends.size() * p.heads, many = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < many; t++)
        threads.emplace_back([&, t] {
            for (size_t job = t; job < jobs; job += many)
                one_head(p, qkv, dy, job / p.heads, (int)(job % p.heads), &r);
        });
    for (std::thread &thread : threads)
        thread.join();
    return r;
}

/* |a - b| / |b| of columns [from, to) of rows of `stride`; NaN anywhere gives NaN. */
template <typename V>
double difference(const std::vector<V> &a, const std::vector<double> &b, size_t stride, size_t from, size_t to)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < a.size(); i++)
        if (i % stride >= from && i % stride < to) {
            const double x = (double)value_of(a[i]);
            error += (x - b[i]) * (x - b[i]);
            norm += b[i] * b[i];
        }
    return sqrt(error / std::max(norm, 1e-30));
}

template <typename T> std::vector<T> random_rows(const Problem &p, size_t columns, unsigned seed)
{
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(65537); /* repeated: drawing is slow */
    for (float &number : numbers)
        number = normal(engine);
    std::vector<T> to((size_t)p.tokens * columns);
    for (size_t i = 0; i < to.size(); i++)
        to[i] = made_of<T>(i < (size_t)p.ends.back() * columns ? numbers[i % numbers.size()] : NAN);
    return to;
}

template <typename T> std::vector<float> floats(const std::vector<T> &from)
{
    std::vector<float> to(from.size());
    for (size_t i = 0; i < to.size(); i++)
        to[i] = value_of(from[i]);
    return to;
}

/* The largest ratio of an error to what is allowed. */
template <typename T> double check(const Problem &p, const char *what)
{
    const cuda_attention_shape a = shape_of(p, type_of(T()));
    const size_t width = (size_t)p.heads * p.size;
    const std::vector<T> qkv = random_rows<T>(p, 3 * width, 1), dy = random_rows<T>(p, width, 2);
    const Reference r = compute(p, floats(qkv), floats(dy));
    const Buffer<T> device_qkv(qkv), device_dy(dy), y(qkv.size() / 3);
    const Buffer<float> statistics((size_t)p.tokens * p.heads);
    const Buffer<int32_t> ends(p.ends);
    const Buffer<cuda_run_values> run(std::vector<cuda_run_values>{p.run});
    const size_t scratch_bytes = cuda_attention_scratch_bytes(&a);
    std::vector<T> runs[2];
    require(cuda_launch_attention(0, &a, device_qkv.data, ends.data, y.data, statistics.data, run.data), "attention");
    require(cudaDeviceSynchronize(), "attention");
    for (std::vector<T> &result : runs) {
        const Buffer<T> dqkv(qkv.size());
        const Buffer<char> scratch(scratch_bytes);
        require(cuda_launch_attention_grad(0, &a, device_qkv.data, ends.data, y.data, statistics.data, device_dy.data,
                                           dqkv.data, scratch_bytes ? (float *)scratch.data : nullptr, run.data),
                "attention_grad");
        require(cudaDeviceSynchronize(), "attention_grad");
        result = dqkv.get();
    }
    const bool same = memcmp(runs[0].data(), runs[1].data(), runs[0].size() * sizeof(T)) == 0;
    bool clear = true; /* rows of no sequence */
    for (size_t i = (size_t)p.ends.back() * 3 * width; i < runs[0].size(); i++)
        clear = clear && value_of(runs[0][i]) == 0;
    /* Sums of a few hundred terms in f32; in 16 bits probabilities, their gradients and results are
     * rounded to 2^-9 (bf16) or 2^-12 (f16) each, and so is y, from which the gradient's common
     * term comes. */
    const double bound = a.type == CUDA_TYPE_F32 ? 5e-6 : a.type == CUDA_TYPE_F16 ? 1.2e-3 : 9e-3;
    const double errors[5] = {
        difference(y.get(), r.y, width, 0, width), difference(statistics.get(), r.statistics, p.heads, 0, p.heads),
        difference(runs[0], r.dqkv, 3 * width, 0, width), difference(runs[0], r.dqkv, 3 * width, width, 2 * width),
        difference(runs[0], r.dqkv, 3 * width, 2 * width, 3 * width)};
    double worst = 0;
    for (double error : errors)
        worst = error / bound > worst || !(error == error) ? (error == error ? error / bound : INFINITY) : worst;
    if (p.longest == 1) /* one key: gradients of query and key are zero but for rounding */
        worst = std::max({errors[0], errors[1], errors[4]}) / bound;
    if (!same || !clear || !(worst <= 1)) {
        printf("WRONG %s %s, %d heads of %d, dropout %.2f: y %.1e statistics %.1e dq %.1e dk %.1e dv %.1e%s%s\n",
               name_of(a.type), what, p.heads, p.size, p.probability, errors[0], errors[1], errors[2], errors[3],
               errors[4], same ? "" : ", differs from run to run", clear ? "" : ", rows of no sequence are not zero");
        return INFINITY;
    }
    return worst;
}

/* `quick`: a few cases, for compute-sanitizer. */
template <typename T> bool check_all(bool quick)
{
    const struct {
        const char *name;
        std::vector<int> lengths;
        int rest;
    } batches[] = {{"one token", {1}, 3},
                   {"short", {2, 3, 1, 15, 16, 17}, 0},
                   {"around 64", {63, 64, 65, 20, 33}, 7},
                   {"around 128", {127, 128, 96, 100}, 40},
                   {"beyond 128", {129, 5, 191, 256, 193}, 16},
                   {"long", {512, 40, 513, 1}, 1}};
    bool fine = true;
    int count = 0;
    double worst = 0;
    for (const auto &batch : batches)
        for (int size : {64, 32, 128, 8, 24, 40, 72, 96, 12, 1, 100, 160, 256})
            for (float probability : {0.0f, 0.1f, 0.5f}) {
                if (quick && (probability == 0 || size % 40 != 24 || batch.lengths[0] == 512))
                    continue;
                if ((probability == 0.5f && size != 64 && size != 12) ||
                    (batch.lengths[0] > 128 && size != 64 && size != 32 && size != 128 && size != 12))
                    continue;
                const double ratio = check<T>(
                    make_problem(batch.lengths, batch.rest, size == 64 ? 3 : 2, size, probability), batch.name);
                fine = fine && ratio <= 1;
                worst = std::max(worst, ratio);
                count++;
            }
    printf("%s: %d cases, largest error %.2f of what is allowed: %s\n", name_of(type_of(T())), count, worst,
           fine ? "fine" : "WRONG");
    return fine;
}

/* Microseconds of a launch: medians of graph replays of many launches that rotate among copies of
 * the data. */
template <typename F> double microseconds(F launch)
{
    enum { LAUNCHES = 30, REPLAYS = 9 };
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    require(cudaStreamCreate(&stream), "cudaStreamCreate");
    require(cudaEventCreate(&begin), "cudaEventCreate");
    require(cudaEventCreate(&end), "cudaEventCreate");
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < LAUNCHES; i++)
        require(launch(stream, i), "launch");
    require(cudaStreamEndCapture(stream, &graph), "capture");
    require(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    std::vector<double> times;
    for (int i = 0; i < REPLAYS; i++) {
        float ms;
        require(cudaEventRecord(begin, stream), "cudaEventRecord");
        require(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
        require(cudaEventRecord(end, stream), "cudaEventRecord");
        require(cudaEventSynchronize(end), "cudaEventSynchronize");
        require(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        times.push_back(ms * 1e3 / LAUNCHES);
    }
    std::sort(times.begin(), times.end());
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    return times[REPLAYS / 2];
}

template <typename T> void time_one(const Problem &p, const char *what)
{
    enum { COPIES = 4 };
    const cuda_attention_shape a = shape_of(p, type_of(T()));
    const size_t width = (size_t)p.heads * p.size, rows = (size_t)p.tokens;
    std::vector<Buffer<T> *> qkv, dy, y, dqkv;
    for (int i = 0; i < COPIES; i++) {
        qkv.push_back(new Buffer<T>(random_rows<T>(p, 3 * width, (unsigned)i)));
        dy.push_back(new Buffer<T>(random_rows<T>(p, width, (unsigned)i + 100)));
        y.push_back(new Buffer<T>(rows * width));
        dqkv.push_back(new Buffer<T>(rows * width * 3));
    }
    const Buffer<float> statistics(rows * p.heads), scratch(cuda_attention_scratch_bytes(&a) / sizeof(float));
    const Buffer<int32_t> ends(p.ends);
    const Buffer<cuda_run_values> run(std::vector<cuda_run_values>{p.run});
    const double forward = microseconds([&](cudaStream_t stream, int i) {
        return cuda_launch_attention(stream, &a, qkv[i % COPIES]->data, ends.data, y[i % COPIES]->data, statistics.data,
                                     run.data);
    });
    const double backward = microseconds([&](cudaStream_t stream, int i) {
        return cuda_launch_attention_grad(stream, &a, qkv[i % COPIES]->data, ends.data, y[i % COPIES]->data,
                                          statistics.data, dy[i % COPIES]->data, dqkv[i % COPIES]->data, scratch.data,
                                          run.data);
    });
    const double mb = (double)rows * width * sizeof(T) / 1e6;
    printf("%-4s %-34s %2d heads of %3d, dropout %.1f: forward %7.1f us (%4.0f GB/s), backward %7.1f us (%4.0f GB/s)\n",
           name_of(a.type), what, p.heads, p.size, p.probability, forward, 4 * mb / forward * 1e3, backward,
           8 * mb / backward * 1e3);
    for (auto *list : {&qkv, &dy, &y, &dqkv})
        for (Buffer<T> *buffer : *list)
            delete buffer;
}

std::vector<int> natural(int count, int most)
{
    std::mt19937 engine(11);
    std::normal_distribution<double> normal(3.85, 0.33); /* of the logarithm; like AG News: mean 50 */
    std::vector<int> lengths;
    for (int i = 0; i < count; i++)
        lengths.push_back(std::min(most, std::max(10, (int)exp(normal(engine)))));
    return lengths;
}

void time_all()
{
    const std::vector<int> full(64, 128), half(64, 64), long_ones(16, 512), usual = natural(64, 128);
    int total = 0;
    for (int length : usual)
        total += length;
    Problem p = make_problem(usual, total / 32, 12, 64, 0.1f);
    p.longest = 128;
    printf("natural lengths: %d tokens, mean %.1f\n", total, total / 64.0);
    for (float probability : {0.1f, 0.0f}) {
        time_one<__nv_bfloat16>(make_problem(full, 0, 12, 64, probability), "64 sequences of 128");
        p.probability = probability;
        time_one<__nv_bfloat16>(p, "64 of natural lengths");
    }
    time_one<__half>(make_problem(full, 0, 12, 64, 0.1f), "64 sequences of 128");
    time_one<__nv_bfloat16>(make_problem(half, 0, 12, 64, 0.1f), "64 sequences of 64");
    time_one<__nv_bfloat16>(make_problem(full, 0, 12, 32, 0.1f), "64 sequences of 128");
    time_one<__nv_bfloat16>(make_problem(full, 0, 6, 128, 0.1f), "64 sequences of 128");
    time_one<__nv_bfloat16>(make_problem(long_ones, 0, 12, 64, 0.1f), "16 sequences of 512");
    time_one<float>(make_problem(full, 0, 12, 64, 0.1f), "64 sequences of 128");
    p.probability = 0.1f;
    time_one<float>(p, "64 of natural lengths");
}

} // namespace

int main(int count, char **arguments)
{
    const std::string what = count > 1 ? arguments[1] : "";
    setvbuf(stdout, nullptr, _IOLBF, 0);
    bool fine = true;
    if (what != "time") {
        fine = check_all<__nv_bfloat16>(what == "quick") && fine;
        fine = check_all<__half>(what == "quick") && fine;
        fine = check_all<float>(what == "quick") && fine;
    }
    if (what != "check" && what != "quick")
        time_all();
    return fine ? 0 : 1;
}
