/* How PyTorch's modules initialize their parameters, by the operator that reads them. */
#ifndef FTH_EXPORTED_INITIAL_H
#define FTH_EXPORTED_INITIAL_H

#include "exported/program.h"
#include "graph/graph.h"

/* For a parameter or a buffer by its number. One that no known layer reads is 0. */
fth_initializer fth_exported_initializer(const fth_exported *program, int number);

#endif
