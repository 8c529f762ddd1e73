/* Consecutive nodes of a plan, for kernels that compute several of them at once. */
#ifndef FTH_BACKEND_CPU_NEIGHBOURS_H
#define FTH_BACKEND_CPU_NEIGHBOURS_H

#include "backend/cpu/cpu_internal.h"

/* How many nodes of the graph the plan runs. */
int cpu_node_count(const fth_plan *plan);
const fth_node *cpu_producer_of(const fth_plan *plan, fth_value value); /* NULL: not computed by a node */

/* True if `value` is read, and only by the `most` nodes that follow the one that computes it. */
bool cpu_is_read_only_behind(const fth_plan *plan, fth_value value, int most);
/* The node after the one that computes `value` if it is the only reader, else NULL. */
const fth_node *cpu_only_reader_behind(const fth_plan *plan, fth_value value);

#endif
