/* Places areas with known lifetimes in one arena: largest first, each at the lowest offset where it
 * meets no area that is alive at the same time. Areas number in the thousands at most, so the
 * quadratic walk costs milliseconds. */
#include <stdint.h>
#include <stdlib.h>

#include "graph/graph.h"

static int compare_size(const void *a, const void *b)
{
    const fth_area *left = *(fth_area *const *)a, *right = *(fth_area *const *)b;
    if (left->size_bytes != right->size_bytes)
        return left->size_bytes > right->size_bytes ? -1 : 1;
    if (left->first_step != right->first_step)
        return left->first_step < right->first_step ? -1 : 1;
    return left < right ? -1 : left > right; /* qsort is not stable, and the plan must be reproducible */
}

static bool alive_together(const fth_area *a, const fth_area *b)
{
    return a->first_step <= b->last_step && b->first_step <= a->last_step;
}

/* `placed` is sorted by offset. */
static fth_status find_place(fth_area *area, fth_area *const *placed, size_t placed_count)
{
    size_t offset = 0;
    for (size_t i = 0; i < placed_count; i++) {
        const fth_area *other = placed[i];
        if (!alive_together(area, other))
            continue;
        if (other->offset >= offset && other->offset - offset >= area->size_bytes)
            break;
        size_t end = fth_align_up(other->offset + other->size_bytes, FTH_ALIGNMENT);
        if (end > offset)
            offset = end;
    }
    if (area->size_bytes > SIZE_MAX - 2 * FTH_ALIGNMENT - offset)
        return fth_fail(FTH_NO_MEMORY, "the plan needs more memory than can be addressed");
    area->offset = offset;
    return FTH_OK;
}

fth_status fth_memory_plan(fth_area *areas, size_t area_count, size_t *arena_bytes)
{
    fth_status status = FTH_OK;
    fth_area **by_size = NULL, **placed = NULL;
    size_t used_count = 0;

    *arena_bytes = 0;
    FTH_TRY(fth_allocate(area_count, sizeof *by_size, &by_size));
    FTH_TRY(fth_allocate(area_count, sizeof *placed, &placed));
    for (size_t i = 0; i < area_count; i++) {
        areas[i].offset = 0;
        if (areas[i].size_bytes > 0 && areas[i].first_step <= areas[i].last_step)
            by_size[used_count++] = &areas[i];
    }
    qsort(by_size, used_count, sizeof *by_size, compare_size);

    for (size_t i = 0; i < used_count; i++) {
        fth_area *area = by_size[i];
        FTH_TRY(find_place(area, placed, i));
        size_t at = i;
        for (; at > 0 && placed[at - 1]->offset > area->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = area;
        size_t end = fth_align_up(area->offset + area->size_bytes, FTH_ALIGNMENT);
        if (end > *arena_bytes)
            *arena_bytes = end;
    }

out:
    free(by_size);
    free(placed);
    return status;
}
