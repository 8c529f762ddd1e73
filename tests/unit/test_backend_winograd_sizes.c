/* Own Winograd on the sizes that its blocking tells apart, by its kernels alone: weights larger
 * than the caches, sums in several blocks, groups of tiles that threads have each or together. Some
 * outputs are compared with sums in f64, and all of them between numbers of threads, which change
 * no bit. */
#include "support.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "backend/cpu/level.h"
#include "backend/cpu/winograd.h"

typedef struct sizes {
    int64_t batch, channels, outputs, height, width;
} sizes;

static const sizes every_size[] = {
    {1, 16, 16, 3, 5},    {25, 48, 80, 4, 8}, /* each thread has tiles of its own */
    {13, 96, 112, 5, 7},                      /* few tiles, which threads share */
    {200, 64, 144, 4, 4},                     /* several groups */
    {3, 1040, 80, 5, 7},                      /* sums in several blocks */
    {2, 80, 1040, 4, 6},
};

static float *allocate(int64_t count)
{
    float *values = aligned_alloc(64, ((size_t)count * sizeof(float) + 63) / 64 * 64);
    assert_non_null(values);
    return values;
}

static void fill(float *values, int64_t count, uint32_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / (float)(1 << 24) - 0.5F;
    }
}

static int64_t offset_of(const winograd_images *images, int64_t lanes, int64_t b, int64_t plane, int64_t i, int64_t j)
{
    const int64_t block = b * (images->planes / lanes) + plane / lanes;
    return ((block * images->height + i) * images->width + j) * lanes + plane % lanes;
}

/* One output, padding 1, in f64. */
static double sum_exactly(const winograd_correlation *c, int64_t lanes, const float *x, const winograd_weights *w,
                          int64_t b, int64_t n, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t k = 0; k < c->in.planes; k++) {
        for (int tap = 0; tap < 9; tap++) {
            const int64_t row = i + tap / 3 - 1, column = j + tap % 3 - 1;
            if (row < 0 || row >= c->in.height || column < 0 || column >= c->in.width)
                continue;
            sum += (double)x[offset_of(&c->in, lanes, b, k, row, column)] *
                   w->values[n * w->stride_n + k * w->stride_k + (w->turned ? 8 - tap : tap)];
        }
    }
    return sum;
}

static void check_size(const cpu_level *level, const sizes *s, bool turned)
{
    const winograd_correlation c = {.in = {s->batch, s->channels, s->height, s->width},
                                    .out = {s->batch, s->outputs, s->height, s->width},
                                    .begin_row = -1,
                                    .begin_column = -1};
    const int64_t inputs = s->batch * s->channels * s->height * s->width;
    const int64_t outputs = s->batch * s->outputs * s->height * s->width, weights = s->channels * s->outputs * 9;
    float *x = allocate(inputs), *values = allocate(weights), *first = allocate(outputs), *y = allocate(outputs);
    const winograd_weights w = {.values = values,
                                .stride_n = turned ? 9 : s->channels * 9,
                                .stride_k = turned ? s->outputs * 9 : 9,
                                .turned = turned};
    fill(x, inputs, 1);
    fill(values, weights, 2);
    for (int threads = 1; threads <= 3; threads++) {
        float *scratch = allocate(level->winograd->correlate_floats(&c, threads));
        const winograd_target to = {.values = threads == 1 ? first : y};
        omp_set_num_threads(threads);
        level->winograd->correlate(&c, &(winograd_source){.values = x}, &w, NULL, scratch, &to);
        free(scratch);
        if (threads > 1)
            assert_memory_equal(first, y, (size_t)outputs * sizeof *y);
    }
    /* Numbers of ±0.5 make products of 1/12 on average; a wrong one among them is a thousand times
     * the bound. */
    const double bound = 1e-4 / 12 * sqrt(9 * (double)s->channels);
    for (int64_t at = 0; at < outputs; at += outputs / 101 + 1) {
        const int64_t j = at % s->width, i = at / s->width % s->height, plane = at / (s->width * s->height);
        const int64_t n = plane % s->outputs, b = plane / s->outputs;
        const double wanted = sum_exactly(&c, level->lanes, x, &w, b, n, i, j);
        const double got = first[offset_of(&c.out, level->lanes, b, n, i, j)];
        if (!(fabs(got - wanted) <= bound))
            fail_msg("%s, %d to %d channels: output (%d, %d, %d, %d) is %g, not %g",
                     fth_vector_level_name(level->level), (int)s->channels, (int)s->outputs, (int)b, (int)n, (int)i,
                     (int)j, got, wanted);
    }
    free(x);
    free(values);
    free(first);
    free(y);
}

static void test_sizes(void **state)
{
    const fth_vector_level wanted = *(const fth_vector_level *)*state;
    const cpu_level *level;
    setenv("FARTHING_MAX_ISA", fth_vector_level_name(wanted), 1);
    assert_int_equal(cpu_level_choose(&level), FTH_OK);
    unsetenv("FARTHING_MAX_ISA");
    if (level->level != wanted)
        skip();
    for (size_t i = 0; i < FTH_COUNT_OF(every_size); i++) {
        check_size(level, &every_size[i], false);
        check_size(level, &every_size[i], true);
    }
}

int main(void)
{
    static fth_vector_level levels[] = {FTH_LEVEL_BASELINE, FTH_LEVEL_AVX2, FTH_LEVEL_AVX512};
    const struct CMUnitTest tests[] = {{"baseline", test_sizes, NULL, NULL, &levels[0]},
                                       {"avx2", test_sizes, NULL, NULL, &levels[1]},
                                       {"avx512", test_sizes, NULL, NULL, &levels[2]}};
    return cmocka_run_group_tests_name("sizes of own Winograd", tests, NULL, NULL);
}
