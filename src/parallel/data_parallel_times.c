/* See data_parallel_times.h. */
#include "parallel/data_parallel_times.h"

#include <stdlib.h>

struct fth_worker_times {
    double since; /* on the clock */
    double seconds[FTH_WORKER_ACTIVITIES];
};

static const char *const names[FTH_WORKER_ACTIVITIES] = {"compute_s", "data_wait_s", "exchange_s", "waiting_s",
                                                         "update_s"};

fth_status fth_worker_times_create(fth_worker_times **times)
{
    fth_status status = fth_allocate(1, sizeof **times, times);
    if (status == FTH_OK)
        fth_worker_times_pause(*times);
    return status;
}

void fth_worker_times_free(fth_worker_times *times)
{
    free(times);
}

void fth_worker_times_add(fth_worker_times *times, fth_worker_activity activity)
{
    double now = fth_clock_seconds();
    times->seconds[activity] += now - times->since;
    times->since = now;
}

void fth_worker_times_pause(fth_worker_times *times)
{
    times->since = fth_clock_seconds();
}

static int compare_seconds(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* Ranks that computed much longer than most: the others waited for them. */
static json_t *find_stragglers(const fth_group_view *view, const double *seconds)
{
    const double much = 1.2;
    json_t *stragglers = json_array();
    double *sorted = NULL;
    if (fth_allocate((size_t)view->size, sizeof *sorted, &sorted) != FTH_OK)
        return stragglers;
    for (int r = 0; r < view->size; r++)
        sorted[r] = seconds[r * FTH_WORKER_ACTIVITIES + FTH_WORKER_COMPUTES];
    qsort(sorted, (size_t)view->size, sizeof *sorted, compare_seconds);
    const double median = sorted[(view->size - 1) / 2];
    for (int r = 0; r < view->size; r++)
        if (seconds[r * FTH_WORKER_ACTIVITIES + FTH_WORKER_COMPUTES] > much * median)
            json_array_append_new(stragglers, json_integer(r));
    free(sorted);
    return stragglers;
}

static json_t *describe(const fth_group_view *view, const double *seconds)
{
    json_t *ranks = json_array();
    for (int r = 0; r < view->size; r++) {
        json_t *rank =
            json_pack("{s:i, s:s, s:s}", "rank", r, "host", view->members[r].host, "node", view->members[r].node);
        for (int i = 0; i < FTH_WORKER_ACTIVITIES; i++)
            json_object_set_new(rank, names[i], json_real(seconds[r * FTH_WORKER_ACTIVITIES + i]));
        json_array_append_new(ranks, rank);
    }
    return json_pack("{s:s, s:I, s:o, s:o}", "event", "ranks", "generation", (json_int_t)view->generation, "ranks",
                     ranks, "stragglers", find_stragglers(view, seconds));
}

fth_status fth_worker_times_gather(fth_worker_times *times, fth_worker_group *group, json_t **event)
{
    fth_status status = FTH_OK;
    const fth_group_view *view = fth_worker_group_view(group);
    const size_t count = (size_t)view->size * FTH_WORKER_ACTIVITIES;
    double *seconds = NULL;

    *event = NULL;
    FTH_TRY(fth_allocate(count, sizeof *seconds, &seconds));
    for (int i = 0; i < FTH_WORKER_ACTIVITIES; i++) {
        seconds[view->rank * FTH_WORKER_ACTIVITIES + i] = times->seconds[i];
        times->seconds[i] = 0;
    }
    FTH_TRY(fth_worker_group_translate_status(group,
                                              fth_collective_sum(fth_worker_group_collective(group), seconds, count)));
    if (seconds[FTH_WORKER_COMPUTES] > 0)
        *event = describe(view, seconds);
    fth_worker_times_pause(times);

out:
    free(seconds);
    return status;
}
