/* Programs exported by PyTorch as graphs: each operator becomes the ops that compute the same.
 *
 * Views cost nothing (view.h), what depends on no input and no parameter is computed once, here
 * (fold.h), and what built-in models have fused is fused: a ReLU goes into the layer before it, a
 * sum and a ReLU into the batch norm before them, chains of elementwise functions into one op. */
#ifndef FTH_EXPORTED_LOWER_H
#define FTH_EXPORTED_LOWER_H

#include "exported/program.h"
#include "graph/graph.h"

typedef struct fth_exported_lower_options {
    bool no_dropout;   /* leaves dropout out */
    bool reinitialize; /* draws new weights by the kind of layer, as PyTorch does; else they are the program's */
} fth_exported_lower_options;

/* Adds the program's parameters and buffers under their names in the state_dict, those that are tied
 * under the first of their names, and the network. `inputs` has a value for each input of the user, in
 * the memory order that PyTorch gives it and with the batch first; *output is the first output, in
 * the shape that the program gives it. Operators that are not supported are reported all at once,
 * each with the user's own line. */
fth_status fth_exported_lower(const fth_exported *program, const fth_exported_lower_options *options, fth_graph *graph,
                              const fth_value *inputs, fth_value *output);

/* Only the check for operators that are not supported. */
fth_status fth_exported_check_operators(const fth_exported *program);

#endif
