/* Whether a precision pays on this CPU. */
#ifndef FTH_BACKEND_CPU_RELATIVE_TIME_H
#define FTH_BACKEND_CPU_RELATIVE_TIME_H

#include "backend/cpu/cpu_internal.h"

/* See backend.h. */
double cpu_relative_time(fth_device *device, const fth_graph *graph, int64_t batch, fth_precision precision);

#endif
