/* What follows from a plan's steps: which results overwrite an operand, the lifetime of each value
 * and so its place in the arena, and
 * which gradients are final after which step. */
#include <limits.h>
#include <stdlib.h>

#include "backend/plan_internal.h"

static void extend_lifetime(fth_plan *plan, fth_area *areas, fth_plan_value value, int step)
{
    fth_area *area = &areas[fth_plan_root(plan, value).index];
    if (step < area->first_step)
        area->first_step = step;
    if (step > area->last_step)
        area->last_step = step;
}

/* ---- writing over an operand ---- */

static int count_in_family(const fth_plan *plan, const fth_plan_value *values, int count, fth_plan_value root)
{
    int found = 0;
    for (int i = 0; i < count; i++)
        found += fth_plan_value_equal(fth_plan_root(plan, values[i]), root);
    return found;
}

/* Whether step `s` may write `written` into the memory of `read`. */
static bool can_overwrite(const fth_plan *plan, const fth_area *areas, int s, fth_plan_value written,
                          fth_plan_value read)
{
    const fth_step *step = &plan->steps[s].step;
    const plan_value *value = &plan->values[written.index];
    const fth_plan_value to = fth_plan_root(plan, written), from = fth_plan_root(plan, read);
    const bool is_input = from.index < fth_graph_value_count(plan->graph) &&
                          fth_graph_value(plan->graph, from.index)->kind == FTH_VALUE_INPUT;
    const int reads = count_in_family(plan, step->reads, step->read_count, from);

    return plan->values[to.index].storage == FTH_IN_ARENA && plan->values[from.index].storage == FTH_IN_ARENA &&
           !is_input && value->size_bytes == plan->values[read.index].size_bytes && /* elements of the same size */
           areas[to.index].first_step == s && areas[from.index].last_step == s &&
           /* every operand in that memory is one that may be overwritten, and nothing else is written there */
           reads > 0 && reads == count_in_family(plan, value->over, value->over_count, from) &&
           count_in_family(plan, step->writes, step->write_count, from) == 0 &&
           count_in_family(plan, step->writes, step->write_count, to) == 1;
}

static void overwrite_operands(fth_plan *plan, fth_area *areas)
{
    for (int s = 0; s < (int)plan->step_count; s++) {
        const fth_step *step = &plan->steps[s].step;
        for (int w = 0; w < step->write_count; w++) {
            const plan_value *value = &plan->values[step->writes[w].index];
            for (int i = 0; i < value->over_count; i++) {
                if (!can_overwrite(plan, areas, s, step->writes[w], value->over[i]))
                    continue;
                const fth_plan_value to = fth_plan_root(plan, step->writes[w]);
                const fth_plan_value from = fth_plan_root(plan, value->over[i]);
                plan->values[to.index].alias_of = from;
                areas[from.index].last_step = areas[to.index].last_step;
                areas[to.index] = (fth_area){.first_step = INT_MAX, .last_step = -1};
                break;
            }
        }
    }
}

/* ---- placing ---- */

fth_status fth_plan_place_values(fth_plan *plan)
{
    fth_status status = FTH_OK;
    fth_area *areas = NULL;
    FTH_TRY(fth_allocate(plan->value_count, sizeof *areas, &areas));
    FTH_TRY(fth_allocate(plan->value_count, sizeof *plan->area_of, &plan->area_of));
    for (size_t v = 0; v < plan->value_count; v++)
        areas[v] = (fth_area){.first_step = INT_MAX, .last_step = -1};
    for (size_t s = 0; s < plan->step_count; s++) {
        const fth_step *step = &plan->steps[s].step;
        for (int i = 0; i < step->read_count; i++)
            extend_lifetime(plan, areas, step->reads[i], (int)s);
        for (int i = 0; i < step->write_count; i++)
            extend_lifetime(plan, areas, step->writes[i], (int)s);
    }
    for (int v = 0; v < fth_graph_value_count(plan->graph); v++) {
        if (fth_graph_value(plan->graph, v)->kind == FTH_VALUE_INPUT)
            extend_lifetime(plan, areas, fth_plan_value_of(plan, v), 0); /* filled before the first step */
        if (plan->values[v].last_reader == INT_MAX)
            extend_lifetime(plan, areas, fth_plan_value_of(plan, v), (int)plan->step_count); /* read after the last */
    }
    overwrite_operands(plan, areas);
    for (size_t v = 0; v < plan->value_count; v++) {
        const int32_t root = fth_plan_root(plan, (fth_plan_value){(int32_t)v}).index;
        if (plan->values[root].storage != FTH_IN_ARENA)
            continue;
        if (plan->values[v].size_bytes > areas[root].size_bytes)
            areas[root].size_bytes = plan->values[v].size_bytes;
    }
    FTH_TRY(fth_memory_plan(areas, plan->value_count, &plan->arena_bytes));
    for (size_t v = 0; v < plan->value_count; v++)
        plan->area_of[v] = areas[v].offset;
out:
    free(areas);
    return status;
}

/* Parameters are in the order in which their gradients are finished, so the final gradients are
 * always a prefix of the vector. Steps may finish them in a slightly different order (a reorder
 * after the next gradient's kernel), so a range counts only once all ranges before it are final. */
fth_status fth_plan_find_ready_ranges(fth_plan *plan)
{
    fth_status status = FTH_OK;
    int *finished_by = NULL; /* by parameter: the last step that writes its gradient */
    int value_count = fth_graph_value_count(plan->graph);
    FTH_TRY(fth_allocate((size_t)value_count, sizeof *finished_by, &finished_by));
    for (size_t s = 0; s < plan->step_count; s++) {
        const fth_step *step = &plan->steps[s].step;
        for (int i = 0; i < step->write_count; i++) {
            const int32_t root = fth_plan_root(plan, step->writes[i]).index; /* of a gradient: a main value */
            if (plan->values[root].storage == FTH_IN_GRADIENTS)
                finished_by[fth_graph_value(plan->graph, root)->gradient_of] = (int)s;
        }
    }
    /* A gradient finished by step s is ready with all before it: walk parameters by offset, keep
     * the latest step. */
    for (int v = 0; v < value_count; v++) {
        const fth_value_info *info = fth_graph_value(plan->graph, v);
        if (info->kind != FTH_VALUE_PARAMETER || info->gradient == FTH_NO_VALUE)
            continue;
        int latest = finished_by[v];
        for (int u = 0; u < value_count; u++) {
            const fth_value_info *other = fth_graph_value(plan->graph, u);
            if (other->kind == FTH_VALUE_PARAMETER && other->gradient != FTH_NO_VALUE && other->offset < info->offset &&
                finished_by[u] > latest)
                latest = finished_by[u];
        }
        size_t end =
            info->offset + fth_align_up((size_t)fth_shape_count(&info->type.shape), FTH_ALIGNMENT / sizeof(float));
        if (end > plan->steps[latest].ready_floats)
            plan->steps[latest].ready_floats = end;
    }
out:
    free(finished_by);
    return status;
}
