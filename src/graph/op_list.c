/* Every op, as op_list.h lists them. */
#include "graph/ops.h"

const fth_op *const fth_op_list[] = {
#define ROW(name)  &fth_op_##name,
#define PAIR(name) &fth_op_##name, &fth_op_##name##_grad,
    FTH_OPS(ROW) FTH_ACTIVATIONS(PAIR)
#undef ROW
#undef PAIR
        NULL,
};
