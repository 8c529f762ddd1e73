/* The products of Winograd's forward pass and gradient of the inputs alone, at one level of instructions. Includes the kernels, whose
 * products are theirs alone; products.c has those of the weights' gradient. */
#include "backend/cpu/level/winograd_correlate.c"

#include "products.h"

double AT_LEVEL(bench_correlate)(const winograd_correlation *c, float *scratch)
{
    const int64_t size = choose_groups(c, 1).size, depth = c->in.planes;
    const winograd_source in = {0};
    const winograd_target out = {0};
    winograd_pass pass = {c, &in, &out, NULL, .tiles = tile_up(&c->out), .u = scratch};
    pass.v = scratch + POINTS * weights_stride(depth, c->out.planes);
    pass.m = pass.v + POINTS * group_stride((size + ROWS - 1) / ROWS * ROWS, depth);
    for (int64_t first = 0; first < pass.tiles.count; first += size) {
        const int64_t count = least(size, pass.tiles.count - first);
        const product_sizes sizes = {(count + ROWS - 1) / ROWS * ROWS, depth, c->out.planes};
        for (int64_t p = 0; p < POINTS; p++)
            multiply(&sizes, pass.v + p * group_stride(sizes.rows, depth),
                     pass.u + p * weights_stride(depth, sizes.columns),
                     pass.m + p * group_stride(sizes.rows, sizes.columns), 0, sizes.columns, &(expectations){{NULL}});
    }
    return 2.0 * POINTS * (double)(depth * c->out.planes * pass.tiles.count);
}
