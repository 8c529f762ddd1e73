/* Consecutive nodes of a plan. See neighbours.h. */
#include "backend/cpu/neighbours.h"

int cpu_node_count(const fth_plan *plan)
{
    const fth_graph *graph = fth_plan_graph(plan);
    return fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN ? fth_graph_node_count(graph)
                                                             : fth_graph_forward_node_count(graph);
}

const fth_node *cpu_producer_of(const fth_plan *plan, fth_value value)
{
    int producer = fth_graph_value(fth_plan_graph(plan), value)->producer;
    return producer >= 0 ? fth_graph_node(fth_plan_graph(plan), producer) : NULL;
}

bool cpu_is_read_only_behind(const fth_plan *plan, fth_value value, int most)
{
    const fth_graph *graph = fth_plan_graph(plan);
    const int made = fth_graph_value(graph, value)->producer;
    bool read = false;
    for (int n = 0; n < cpu_node_count(plan); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        for (int i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != value)
                continue;
            if (n > made + most)
                return false;
            read = true;
        }
    }
    return read;
}

const fth_node *cpu_only_reader_behind(const fth_plan *plan, fth_value value)
{
    const fth_graph *graph = fth_plan_graph(plan);
    const int next = fth_graph_value(graph, value)->producer + 1;
    return next < cpu_node_count(plan) && cpu_is_read_only_behind(plan, value, 1) ? fth_graph_node(graph, next) : NULL;
}
