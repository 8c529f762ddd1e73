/* The shape rule that max and average pooling share. */
#ifndef FTH_GRAPH_RULE_POOL_H
#define FTH_GRAPH_RULE_POOL_H

#include "graph/ops.h"

/* The type of the pooled output; windows as in PyTorch. */
fth_status fth_rule_infer_pool(const fth_pool_attributes *attributes, const fth_type *input, fth_type *output);
/* Fills in the input's shape, and clears `ceil` where it makes no difference. */
void fth_rule_complete_pool(const fth_graph *graph, fth_value x, fth_pool_attributes *attributes);

#endif
