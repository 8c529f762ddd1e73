/* See link_measurement.h. */
#include "parallel/link_measurement.h"

#include <math.h>
#include <stdlib.h>

#include "parallel/data_parallel_group.h"

enum { FLOATS = 1 << 21, TIMES = 4 };

/* The shortest time of a sum of so many floats. */
static fth_status time_sum(fth_collective *collective, float *values, size_t count, double *seconds)
{
    fth_status status = FTH_OK;
    *seconds = INFINITY;
    for (int i = 0; i < TIMES; i++) {
        double began = fth_clock_seconds();
        FTH_TRY(fth_collective_all_reduce(collective, values, count, FTH_WIRE_F32));
        *seconds = fmin(*seconds, fth_clock_seconds() - began);
    }
out:
    return status;
}

/* What a link must be like for the scaling model to give these times. */
static fth_link find_link(int nodes, double few_s, double many_s)
{
    double crossings = 2 * (nodes - 1) / (double)nodes;
    return (fth_link){.latency_s = few_s / 2,
                      .bytes_per_s = crossings * FLOATS * sizeof(float) / fmax(many_s - few_s, 1e-6)};
}

fth_status fth_link_measure(const fth_train_options *options, fth_stop *stop, fth_link_measurement *measurement)
{
    fth_status status = FTH_OK;
    fth_launched launched = {0};
    enum { MOST_LOSSES = 5 };
    fth_worker_group *group = NULL;
    float *values = NULL;
    double few_s, many_s;

    *measurement = (fth_link_measurement){.nodes = 1};
    FTH_TRY(fth_launcher_find(&launched));
    FTH_TRY(fth_worker_group_open(&launched, options, stop, &group));
    for (int losses = 0; losses < MOST_LOSSES; losses += status == FTH_PEER_LOST) {
        status = fth_worker_group_form(group, NULL);
        if (status != FTH_TIMEOUT && status != FTH_PEER_LOST)
            break;
        fth_log_info("waiting: %s", fth_error_message());
    }
    FTH_TRY(status);
    const fth_group_view *view = fth_worker_group_view(group);
    measurement->rank = view->rank;
    measurement->nodes = view->nodes;
    if (view->nodes < 2)
        goto out;
    fth_worker_group_set_finishing(group); /* the first to leave ends no sum of the others */
    FTH_TRY(fth_allocate(FLOATS, sizeof *values, &values));
    FTH_TRY(time_sum(fth_worker_group_collective(group), values, 1, &few_s));
    FTH_TRY(time_sum(fth_worker_group_collective(group), values, FLOATS, &many_s));
    measurement->link = find_link(view->nodes, few_s, many_s);
out:
    free(values);
    fth_worker_group_close(group);
    fth_launched_release(&launched);
    return status;
}
