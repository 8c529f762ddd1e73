/* Linear layers with few rows and weights that fit no cache, as after the convolutions of VGG: x
 * (rows, features), weight (outputs, features), y (rows, outputs).
 *
 * The time is that of reading or writing the weights once. So all rows are computed together, CHUNK
 * features at a time: those of x or dx stay in the L1 cache while the weights of all outputs go
 * past, prefetched. There are always THIN_LINEAR_ROWS rows; the last row stands in for missing
 * ones.
 *
 * Measured on one Emerald Rapids core in a step of vgg19, 8 rows, 25088 features to 4096 outputs,
 * oneDNN 2.6's time and this one's: forward 82 and 64 ms, grad_input 57 and 34 ms, grad_weights 35
 * and 21 ms. The memory bandwidth would allow 24, 24 and 18. */
#include "backend/cpu/thin_linear.h"
#include "backend/vector/vector.h"

enum {
    ALL_ROWS = THIN_LINEAR_ROWS,
    CHUNK = 512,                      /* features, a multiple of LANES */
    SUMMED = REGISTERS == 32 ? 3 : 1, /* outputs whose sums stay in registers, ALL_ROWS rows each */
    SPREAD = 4,                       /* outputs whose weights are used at once where lanes are features */
    PAST_CACHES = 1 << 23             /* weights: more than any cache is expected to hold */
};

/* Addresses of ALL_ROWS rows. */
typedef struct row_pointers {
    const float *at[ALL_ROWS];
} row_pointers;

static row_pointers find_rows(const thin_linear *l, const float *x, int64_t stride)
{
    row_pointers rows;
    for (int64_t r = 0; r < ALL_ROWS; r++)
        rows.at[r] = x + (r < l->rows ? r : l->rows - 1) * stride;
    return rows;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- forward ---- */

/* Adds the products of features [begin, end) to y, for N outputs from o on. N is a constant once
 * inlined. */
INLINE void add_products(const thin_linear *l, const row_pointers *x, const float *weight, int64_t o, int64_t begin,
                         int64_t end, float *y, const int N)
{
    vector sum[SUMMED][ALL_ROWS];
    const float *w = weight + o * l->features;
    for (int n = 0; n < N; n++) {
        for (int r = 0; r < ALL_ROWS; r++)
            sum[n][r] = (vector){0};
    }
    int64_t k = begin;
    for (; k + LANES <= end; k += LANES) {
        vector of[SUMMED];
        for (int n = 0; n < N; n++) {
            of[n] = load(w + n * l->features + k);
            __builtin_prefetch(w + (N + n) * l->features + k);
        }
#pragma GCC unroll 8
        for (int r = 0; r < ALL_ROWS; r++) {
            const vector value = load(x->at[r] + k);
            for (int n = 0; n < N; n++)
                sum[n][r] = multiply_add(value, of[n], sum[n][r]);
        }
    }
    if (k < end) {
        for (int n = 0; n < N; n++) {
            const vector of = load_part(w + n * l->features + k, end - k);
            for (int r = 0; r < ALL_ROWS; r++)
                sum[n][r] = multiply_add(load_part(x->at[r] + k, end - k), of, sum[n][r]);
        }
    }
    for (int n = 0; n < N; n++) {
        for (int r = 0; r < l->rows; r++)
            y[r * l->outputs + o + n] += sum_lanes(sum[n][r]);
    }
}

static void forward(const thin_linear *l, const float *x, const float *weight, const float *bias, float *y)
{
    const row_pointers rows = find_rows(l, x, l->features);
    const int64_t blocks = (l->outputs + SUMMED - 1) / SUMMED;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < l->rows * l->outputs; i++)
        y[i] = bias ? bias[i % l->outputs] : 0;
#pragma omp parallel
    for (int64_t k = 0; k < l->features; k += CHUNK) {
        const int64_t end = least(k + CHUNK, l->features);
#pragma omp for schedule(static) nowait /* each thread gets the same outputs every time */
        for (int64_t i = 0; i < blocks; i++) {
            int64_t o = i * SUMMED;
            if (o + SUMMED <= l->outputs) {
                add_products(l, &rows, weight, o, k, end, y, SUMMED);
            } else {
                for (; o < l->outputs; o++)
                    add_products(l, &rows, weight, o, k, end, y, 1);
            }
        }
    }
    if (l->relu) {
        for (int64_t i = 0; i < l->rows * l->outputs; i++)
            y[i] = y[i] < 0 ? 0 : y[i]; /* keeps NaN */
    }
}

/* ---- gradients ---- */

/* Gathers dy of N outputs from o on. */
INLINE void read_gradients(const row_pointers *dy, int64_t o, float to[SPREAD][ALL_ROWS], const int N)
{
    for (int n = 0; n < N; n++) {
        for (int r = 0; r < ALL_ROWS; r++)
            to[n][r] = dy->at[r][o + n];
    }
}

/* Adds the contributions of N outputs from o on to dx: `width` features from k on, of ALL_ROWS
 * rows. */
INLINE void add_outputs(const thin_linear *l, const row_pointers *dy, const float *weight, int64_t o, int64_t k,
                        int64_t width, float dx[ALL_ROWS][CHUNK], const int N)
{
    const float *w = weight + o * l->features + k;
    float factors[SPREAD][ALL_ROWS];
    read_gradients(dy, o, factors, N);
    for (int64_t i = 0; i < width; i += LANES) {
        vector of[SPREAD];
        for (int n = 0; n < N; n++) {
            of[n] = load_part(w + n * l->features + i, width - i);
            __builtin_prefetch(w + (N + n) * l->features + i);
        }
#pragma GCC unroll 8
        for (int r = 0; r < ALL_ROWS; r++) {
            vector sum = load(dx[r] + i);
            for (int n = 0; n < N; n++)
                sum = multiply_add(broadcast(factors[n][r]), of[n], sum);
            store(dx[r] + i, sum);
        }
    }
}

static void grad_input(const thin_linear *l, const float *dy, const float *weight, float *dx)
{
    const row_pointers rows = find_rows(l, dy, l->outputs);
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < l->features; k += CHUNK) {
        const int64_t width = least(CHUNK, l->features - k);
        float sums[ALL_ROWS][CHUNK] = {{0}};
        int64_t o = 0;
        for (; o + SPREAD <= l->outputs; o += SPREAD)
            add_outputs(l, &rows, weight, o, k, width, sums, SPREAD);
        for (; o < l->outputs; o++)
            add_outputs(l, &rows, weight, o, k, width, sums, 1);
        for (int64_t r = 0; r < l->rows; r++) {
            for (int64_t i = 0; i < width; i += LANES)
                store_part(dx + r * l->features + k + i, load(sums[r] + i), width - i);
        }
    }
}

/* Computes the gradients of N outputs' weights, from o on, for features [begin, end). Rows of x
 * past l->rows count as zeros. */
INLINE void write_gradients(const thin_linear *l, const row_pointers *x, const row_pointers *dy, int64_t o,
                            int64_t begin, int64_t end, float *dweight, const int N, const bool past_caches)
{
    float factors[SPREAD][ALL_ROWS];
    read_gradients(dy, o, factors, N);
    for (int n = 0; n < N; n++) {
        for (int64_t r = l->rows; r < ALL_ROWS; r++)
            factors[n][r] = 0;
    }
    for (int64_t k = begin; k < end; k += LANES) {
        vector sum[SPREAD];
        for (int n = 0; n < N; n++)
            sum[n] = (vector){0};
#pragma GCC unroll 8
        for (int r = 0; r < ALL_ROWS; r++) {
            const vector value = load_part(x->at[r] + k, end - k);
            for (int n = 0; n < N; n++)
                sum[n] = multiply_add(broadcast(factors[n][r]), value, sum[n]);
        }
        for (int n = 0; n < N; n++) {
            float *to = dweight + (o + n) * l->features + k;
            if (past_caches)
                store_past_caches(to, sum[n]);
            else
                store_part(to, sum[n], end - k);
        }
    }
}

static void grad_weights(const thin_linear *l, const float *x, const float *dy, float *dweight, float *dbias)
{
    const row_pointers rows = find_rows(l, x, l->features), gradients = find_rows(l, dy, l->outputs);
    const bool aligned = (uintptr_t)dweight % VECTOR_BYTES == 0 && l->features % LANES == 0;
    const bool past_caches = aligned && l->features * l->outputs >= PAST_CACHES;
#pragma omp parallel
    {
        for (int64_t k = 0; k < l->features; k += CHUNK) {
            const int64_t end = least(k + CHUNK, l->features);
#pragma omp for schedule(static) nowait
            for (int64_t i = 0; i < l->outputs / SPREAD; i++) {
                if (past_caches)
                    write_gradients(l, &rows, &gradients, i * SPREAD, k, end, dweight, SPREAD, true);
                else
                    write_gradients(l, &rows, &gradients, i * SPREAD, k, end, dweight, SPREAD, false);
            }
#pragma omp for schedule(static) nowait
            for (int64_t o = l->outputs / SPREAD * SPREAD; o < l->outputs; o++)
                write_gradients(l, &rows, &gradients, o, k, end, dweight, 1, false);
        }
        finish_stores();
    }
    for (int64_t o = 0; dbias && o < l->outputs; o++) {
        float sum = 0;
        for (int64_t r = 0; r < l->rows; r++)
            sum += dy[r * l->outputs + o];
        dbias[o] = sum;
    }
}

const thin_linear_kernels AT_LEVEL(thin_linear) = {
    .forward = forward, .grad_input = grad_input, .grad_weights = grad_weights};
