/* Bringing the numbers of views into the order that an op needs: see view.h. */
#include <string.h>

#include "exported/view.h"
#include "graph/ops.h"

/* Atoms that stay together: one dimension of a value's shape. */
typedef struct atom_run {
    int first, count; /* in a sequence of atoms */
    bool expanded;
} atom_run;

static int64_t batch_size(const fth_atom *atoms, const uint8_t *sequence, int count, bool *batch)
{
    int64_t size = 1;
    *batch = false;
    for (int i = 0; i < count; i++) {
        size *= atoms[sequence[i]].size;
        *batch = *batch || atoms[sequence[i]].batch;
    }
    return size;
}

/* A shape with one dimension for each part of a sequence of atoms. */
static fth_status shape_of_runs(const fth_view *view, const uint8_t *sequence, const atom_run *runs, int count,
                                bool with_expanded, fth_shape *shape)
{
    *shape = (fth_shape){.rank = count > 0 ? count : 1, .dims = {1}};
    if (count > FTH_MAX_RANK)
        return fth_fail(FTH_UNSUPPORTED, "its dimensions are permuted in too many ways");
    for (int r = 0; r < count; r++) {
        bool batch = false;
        int64_t size = batch_size(view->atoms, sequence + runs[r].first, runs[r].count, &batch);
        if (runs[r].expanded && !with_expanded)
            size = 1;
        else if (batch && r > 0)
            return fth_fail(FTH_UNSUPPORTED, "an op would need the batch behind another dimension");
        else if (batch)
            size = fth_batch_times(size);
        shape->dims[r] = size;
    }
    return FTH_OK;
}

static fth_status reshape_value(fth_graph *graph, fth_value *value, const fth_shape *shape)
{
    const fth_shape *own = &fth_graph_value(graph, *value)->type.shape;
    if (fth_shape_equal(own, shape))
        return FTH_OK;
    if (own->rank == 0) /* a parameter that is a number */
        return fth_op_add_pointwise(graph, &(const fth_expression){0}, value, 1, shape, value);
    return fth_op_add_reshape(graph, *shape, *value, value);
}

/* Permutes what is in memory: `wanted` are the atoms in memory in their new order. */
static fth_status permute_memory(fth_graph *graph, fth_view *view, const uint8_t *wanted, int count)
{
    fth_status status = FTH_OK;
    atom_run runs[FTH_VIEW_ATOMS];
    int run_count = 0, order[FTH_VIEW_ATOMS], place[FTH_VIEW_ATOMS];
    uint8_t memory[FTH_VIEW_ATOMS];
    bool moved = false;
    fth_shape shape;

    for (int i = 0; i < count; i++)
        memory[i] = (uint8_t)i;
    for (int i = 0; i < count; i++) { /* runs of the new order: neighbours in memory */
        if (i > 0 && wanted[i] == wanted[i - 1] + 1)
            runs[run_count - 1].count++;
        else
            runs[run_count++] = (atom_run){.first = wanted[i], .count = 1};
        moved = moved || wanted[i] != i;
    }
    if (!moved)
        return FTH_OK;
    for (int r = 0; r < run_count; r++) { /* their places in memory */
        place[r] = 0;
        for (int s = 0; s < run_count; s++)
            place[r] += runs[s].first < runs[r].first;
    }
    atom_run sorted[FTH_VIEW_ATOMS];
    for (int r = 0; r < run_count; r++) {
        sorted[place[r]] = runs[r];
        order[r] = place[r];
    }
    FTH_TRY(shape_of_runs(view, memory, sorted, run_count, true, &shape));
    FTH_TRY(reshape_value(graph, &view->value, &shape));
    FTH_TRY(fth_op_add_permute(graph, order, view->value, &view->value));
out:
    return status;
}

/* Copies the numbers along the atoms that are to be in memory and are not. */
static fth_status expand_memory(fth_graph *graph, fth_view *view, const uint8_t *sequence, int count)
{
    fth_status status = FTH_OK;
    atom_run runs[FTH_VIEW_ATOMS];
    int run_count = 0;
    fth_shape narrow, wide;
    fth_expression same = {0};

    for (int i = 0; i < count; i++) {
        const bool expanded = view->atoms[sequence[i]].expanded;
        if (i > 0 && runs[run_count - 1].expanded == expanded)
            runs[run_count - 1].count++;
        else
            runs[run_count++] = (atom_run){.first = i, .count = 1, .expanded = expanded};
    }
    FTH_TRY(shape_of_runs(view, sequence, runs, run_count, false, &narrow));
    FTH_TRY(shape_of_runs(view, sequence, runs, run_count, true, &wide));
    FTH_TRY(reshape_value(graph, &view->value, &narrow));
    FTH_TRY(fth_op_add_pointwise(graph, &same, &view->value, 1, &wide, &view->value));
out:
    return status;
}

/* Gives the atoms the numbers of their places in `sequence`, which are in memory now, and the others
 * those behind. */
static void renumber(fth_view *view, const uint8_t *sequence, int count)
{
    const fth_view before = *view;
    uint8_t place[FTH_VIEW_ATOMS] = {0};
    bool placed[FTH_VIEW_ATOMS] = {false};
    for (int i = 0; i < count; i++) {
        view->atoms[i] = before.atoms[sequence[i]];
        view->atoms[i].expanded = false;
        place[sequence[i]] = (uint8_t)i;
        placed[sequence[i]] = true;
    }
    for (int i = 0; i < before.atom_count; i++) {
        if (placed[i])
            continue;
        view->atoms[count] = before.atoms[i];
        place[i] = (uint8_t)count++;
    }
    for (int d = 0; d < view->rank; d++)
        for (int i = 0; i < view->dims[d].count; i++)
            view->dims[d].atoms[i] = place[before.dims[d].atoms[i]];
}

fth_status fth_view_arrange(fth_graph *graph, fth_view *view, const fth_atom_list *lists, int count)
{
    fth_status status = FTH_OK;
    uint8_t sequence[FTH_VIEW_ATOMS], present[FTH_VIEW_ATOMS];
    int length = 0, present_count = 0;
    atom_run parts[FTH_MAX_RANK];
    fth_shape shape;

    FTH_REQUIRE(count <= FTH_MAX_RANK, FTH_UNSUPPORTED, "a tensor has more than %d dimensions", FTH_MAX_RANK);
    for (int l = 0; l < count; l++) {
        parts[l] = (atom_run){.first = length, .count = lists[l].count};
        for (int i = 0; i < lists[l].count; i++) {
            sequence[length] = lists[l].atoms[i];
            if (!view->atoms[sequence[length]].expanded)
                present[present_count++] = sequence[length];
            length++;
        }
    }
    FTH_TRY(permute_memory(graph, view, present, present_count));
    if (present_count < length)
        FTH_TRY(expand_memory(graph, view, sequence, length));
    FTH_TRY(shape_of_runs(view, sequence, parts, count, true, &shape));
    renumber(view, sequence, length);
    FTH_TRY(reshape_value(graph, &view->value, &shape));
out:
    return status;
}
