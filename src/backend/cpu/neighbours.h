/* Nodes that follow each other in a plan, for kernels that compute several of them at once. */
#ifndef FTH_BACKEND_CPU_NEIGHBOURS_H
#define FTH_BACKEND_CPU_NEIGHBOURS_H

#include "backend/cpu/cpu_internal.h"

/* Of the graph, as far as the plan runs it. */
int cpu_node_count(const fth_plan *plan);
const fth_node *cpu_producer_of(const fth_plan *plan, fth_value value); /* NULL: an input */

/* True if all nodes that read `value` are among the `most` nodes behind the one that makes it, and there are any. */
bool cpu_is_read_only_behind(const fth_plan *plan, fth_value value, int most);
/* The node behind the one that makes `value`, if it reads it and no other does; else NULL. */
const fth_node *cpu_only_reader_behind(const fth_plan *plan, fth_value value);

#endif
