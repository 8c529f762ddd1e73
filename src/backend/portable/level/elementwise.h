/* Loops over elements, and over the rows of a matrix. */
#include "backend/portable/level/level.h"
#include "backend/vector/vector.h"
#include "graph/ops.h"

static void relu(const float *x, float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES)
        store_part(y + i, cut_negative(load_part(x + i, count - i)), count - i);
}

static void relu_gradient(const float *y, const float *dy, float *dx, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES) {
        const vector_mask cut = load_part(y + i, count - i) <= 0; /* NaN is not cut: its gradient passes */
        store_part(dx + i, (vector)(~cut & (vector_mask)load_part(dy + i, count - i)), count - i);
    }
}

static void add(const float *a, const float *b, bool with_relu, float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES) {
        const vector sum = load_part(a + i, count - i) + load_part(b + i, count - i);
        store_part(y + i, with_relu ? cut_negative(sum) : sum, count - i);
    }
}

enum { DROP_CHUNK = 1024 };

static void drop(const float *x, float *y, int64_t count, uint64_t first, fth_random_key key, uint32_t threshold,
                 float scale)
{
    union {
        uint64_t pairs[DROP_CHUNK / 2 + 1];
        uint32_t halves[DROP_CHUNK + 2]; /* little-endian: the low half is the even element */
    } bits;
    for (int64_t begin = 0; begin < count; begin += DROP_CHUNK) {
        const uint64_t number = first + (uint64_t)begin;
        const int64_t chunk = count - begin < DROP_CHUNK ? count - begin : DROP_CHUNK;
        for (int64_t i = 0; i < chunk / 2 + 1; i++)
            bits.pairs[i] = fth_random_bits(key, number / 2 + (uint64_t)i);
        const uint32_t *halves = bits.halves + number % 2;
        for (int64_t i = 0; i < chunk; i++)
            y[begin + i] = x[begin + i] * (halves[i] >= threshold ? scale : 0);
    }
}

/* Rows whose f32 sums are added to sums in double. */
enum { SUM_ROWS = 128 };

static void sum_columns(const float *x, int64_t rows, int64_t columns, int64_t step, double *sums)
{
    for (int64_t begin = 0; begin < rows; begin += SUM_ROWS) {
        const int64_t end = begin + SUM_ROWS < rows ? begin + SUM_ROWS : rows;
        for (int64_t j = 0; j < columns; j += LANES) {
            vector sum = {0};
            for (int64_t r = begin; r < end; r++)
                sum += load_part(x + r * step + j, columns - j);
            for (int64_t i = 0; i < LANES && j + i < columns; i++)
                sums[j + i] += sum[i];
        }
    }
}
