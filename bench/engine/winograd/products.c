/* The products of our Winograd kernels alone, and a bare loop of multiply-adds to compare them
 * with, at one level of instructions. Includes the kernels, whose products are theirs alone. */
#include "backend/cpu/level/winograd_weights.c"

#include "products.h"

/* The numbers are those of the products, as the clock depends on them: where all are alike it is 9
 * % higher on Zen 4. */
static double bare(double operations, const float *numbers)
{
    enum { CHAINS = 12 }; /* more than two units times four cycles */
    const int64_t count = (int64_t)(operations / (2.0 * CHAINS * LANES)) + 1;
    const vector x = load(numbers), y = load(numbers + LANES);
    vector sum[CHAINS];
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        sum[i] = broadcast((float)i);
    for (int64_t n = 0; n < count; n++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            sum[i] = multiply_add(x, y, sum[i]);
        __asm__ volatile(""); /* or the compiler multiplies but once */
    }
#pragma GCC unroll 12
    for (int i = 1; i < CHAINS; i++)
        sum[0] += sum[i];
    const double made = 2.0 * CHAINS * LANES * (double)count;
    return sum_lanes(sum[0]) != 0 ? made : -made; /* so that the sums are made */
}

static double multiply_all(const winograd_correlation *forward, float *scratch)
{
    const gradient g = {.forward = forward, .tiles = tile_up(&forward->out), .chain = CHAIN};
    const cutting cut = cut_up(forward, &g.tiles, 1);
    float *blocks = scratch + cut.ranges * range_floats(forward);
    for (int64_t n = 0; n < count_tasks(&cut); n++) {
        const task t = find_task(&g, &cut, n, blocks);
        const block *b = &t.block;
        for (int64_t first = t.begin; first < t.end; first += GROUP) {
            group tiles;
            find_group(&g, &t, first, &tiles);
            for (int64_t c = 0; c < b->channels; c += STRIP)
                multiply_strip(&g, b, c, minimum(STRIP, b->channels - c), &tiles, NULL);
        }
    }
    return 2.0 * count_products(&forward->out) * (double)(forward->in.planes * forward->out.planes);
}

const bench_products AT_LEVEL(bench_products) = {
    .bare = bare, .grad_weights = multiply_all, .correlate = AT_LEVEL(bench_correlate)};
