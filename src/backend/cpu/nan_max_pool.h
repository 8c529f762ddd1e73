/* Max pooling that keeps NaN, in any layout; see nan_max_pool.c. pool.c hands the node over. */
#ifndef FTH_BACKEND_CPU_NAN_MAX_POOL_H
#define FTH_BACKEND_CPU_NAN_MAX_POOL_H

#include "backend/cpu/cpu_internal.h"

/* `y` is the layout of the output, in the input's order of dimensions. `where`: the layout of the places of the maxima, as oneDNN's
 * backward pass reads them; NULL: they are not wanted. */
fth_status cpu_own_max_pool(fth_plan *plan, const fth_node *node, const cpu_format *y, const cpu_format *where);

#endif
