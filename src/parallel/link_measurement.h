/* Measuring the network between nodes with the sums that training would make, among processes that
 * a launcher has started on them. */
#ifndef FTH_PARALLEL_LINK_MEASUREMENT_H
#define FTH_PARALLEL_LINK_MEASUREMENT_H

#include "parallel/scaling_model.h"

typedef struct fth_link_measurement {
    int rank, nodes; /* 0 and 1 without a launcher */
    fth_link link;   /* where there is more than one node */
} fth_link_measurement;

/* Meets the other processes and takes leave of them. Each of them has to call it, with the same
 * options. FTH_INTERRUPTED if `stop` is asked. */
fth_status fth_link_measure(const fth_train_options *options, fth_stop *stop, fth_link_measurement *measurement);

#endif
