/* The products of Winograd's forward pass and gradient of the inputs alone, at one level of
 * instructions. Includes the kernels, whose products are theirs alone; products.c has those of the
 * weights' gradient. */
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
        tile_group group;
        find_group(&pass, first, least(size, pass.tiles.count - first), &group);
        const int64_t rows = sizes_of(&pass, &group, 0).rows;
        for (int64_t p = 0; p < POINTS; p++) {
            const product_sizes sizes = sizes_of(&pass, &group, class_of_point(&pass, p));
            multiply(&sizes, pass.v + p * group_stride(rows, depth), pass.u + p * weights_stride(depth, sizes.columns),
                     pass.m + p * group_stride(rows, sizes.columns), 0, sizes.columns, &(expectations){{NULL}});
        }
    }
    return 2.0 * count_products(&c->out) * (double)(depth * c->out.planes);
}
