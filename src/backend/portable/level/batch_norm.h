/* Batch norm of x (rows, channels), vectors along the channels. */
#include "backend/portable/level/level.h"
#include "backend/vector/vector.h"

static void sum_squares(const float *x, int64_t rows, int64_t channels, const float *mean, double *sums)
{
    for (int64_t begin = 0; begin < rows; begin += SUM_ROWS) {
        const int64_t end = begin + SUM_ROWS < rows ? begin + SUM_ROWS : rows;
        for (int64_t c = 0; c < channels; c += LANES) {
            const vector middle = load_part(mean + c, channels - c);
            vector sum = {0};
            for (int64_t r = begin; r < end; r++) {
                const vector deviation = load_part(x + r * channels + c, channels - c) - middle;
                sum += deviation * deviation;
            }
            for (int64_t i = 0; i < LANES && c + i < channels; i++)
                sums[c + i] += sum[i];
        }
    }
}

static void normalize(const float *x, int64_t rows, int64_t channels, const float *mean, const float *factor,
                      const float *shift, const float *residual, bool with_relu, float *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c += LANES) {
            const int64_t at = r * channels + c, count = channels - c;
            vector value = (load_part(x + at, count) - load_part(mean + c, count)) * load_part(factor + c, count) +
                           load_part(shift + c, count);
            if (residual)
                value += load_part(residual + at, count);
            store_part(y + at, with_relu ? cut_negative(value) : value, count);
        }
}

/* dy, 0 where ReLU cut. */
INLINE vector gradient_at(const float *y, const float *dy, int64_t at, int64_t count)
{
    const vector g = load_part(dy + at, count);
    return y ? (vector)(~(load_part(y + at, count) <= 0) & (vector_mask)g) : g;
}

static void sum_gradients(const float *x, const float *y, const float *dy, int64_t rows, int64_t channels,
                          const float *mean, double *sums, double *products)
{
    for (int64_t begin = 0; begin < rows; begin += SUM_ROWS) {
        const int64_t end = begin + SUM_ROWS < rows ? begin + SUM_ROWS : rows;
        for (int64_t c = 0; c < channels; c += LANES) {
            const vector middle = load_part(mean + c, channels - c);
            vector sum = {0}, product = {0};
            for (int64_t r = begin; r < end; r++) {
                const int64_t at = r * channels + c;
                const vector g = gradient_at(y, dy, at, channels - c);
                sum += g;
                product += g * (load_part(x + at, channels - c) - middle);
            }
            for (int64_t i = 0; i < LANES && c + i < channels; i++) {
                sums[c + i] += sum[i];
                products[c + i] += product[i];
            }
        }
    }
}

static void normalize_gradient(const float *x, const float *y, const float *dy, int64_t rows, int64_t channels,
                               const float *mean, const float *factor, const float *offset, const float *slope,
                               float *dx, float *dresidual)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c += LANES) {
            const int64_t at = r * channels + c, count = channels - c;
            const vector g = gradient_at(y, dy, at, count);
            const vector deviation = load_part(x + at, count) - load_part(mean + c, count);
            if (dresidual)
                store_part(dresidual + at, g, count);
            store_part(dx + at,
                       load_part(factor + c, count) *
                           (g - load_part(offset + c, count) - deviation * load_part(slope + c, count)),
                       count);
        }
}
