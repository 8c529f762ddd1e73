/* A network without jumps, for comparisons in which rounding must not decide which way a gradient
 * takes. */
#ifndef FTH_TESTS_SMOOTH_GRAPH_H
#define FTH_TESTS_SMOOTH_GRAPH_H

#include "graph/graph.h"

/* The forward part of `graph` with GELU for each ReLU and averages that count padding for maxima,
 * and its gradients. The caller frees *smooth with fth_graph_free(). As smooth() in
 * tests/torch/make_fixtures.py. */
fth_status smooth_graph_create(const fth_graph *graph, fth_graph **smooth);

#endif
