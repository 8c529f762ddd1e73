/* See scaling_advice.h. */
#include "parallel/scaling_advice.h"

#include <math.h>

static int64_t divide_up(int64_t number, int64_t by)
{
    return (number + by - 1) / by;
}

static int64_t whole_batch(const fth_scaling_run *run, int64_t workers)
{
    int64_t batch = run->batch_per_worker > 0 ? run->batch_per_worker * workers : run->batch;
    return batch < run->samples ? batch : run->samples;
}

int64_t fth_scaling_worker_batch(const fth_scaling_run *run, int nodes)
{
    int64_t workers = (int64_t)nodes * run->workers_per_node;
    return divide_up(whole_batch(run, workers), workers);
}

static double scale_rate(const fth_scaling_run *run, int workers)
{
    switch (run->rate_rule) {
    case FTH_RATE_SQRT: return run->learning_rate * sqrt(workers);
    case FTH_RATE_LINEAR: return run->learning_rate * workers;
    default: return run->learning_rate;
    }
}

fth_scaling_size fth_scaling_predict_size(const fth_scaling_run *run, const fth_worker_profile *profile, int nodes)
{
    fth_scaling_size size = {.nodes = nodes, .workers = nodes * run->workers_per_node};
    const fth_scaling_group group = {.nodes = nodes,
                                     .workers_per_node = run->workers_per_node,
                                     .link = run->link,
                                     .local = run->local,
                                     .rounds = run->rounds};
    const fth_scaling_exchange exchange = {.cost = fth_scaling_cost_of(&group),
                                           .workers = size.workers,
                                           .bytes_per_float = run->bytes_per_float,
                                           .sharded_update = run->sharded_update};

    size.batch = whole_batch(run, size.workers);
    size.worker_batch = fth_scaling_worker_batch(run, nodes);
    size.learning_rate = scale_rate(run, size.workers);
    /* Within one machine gradients are summed in memory, all at once behind the backward pass. */
    if (nodes > 1)
        size.bucket_floats =
            run->bucket_floats > 0 ? run->bucket_floats : fth_scaling_choose_bucket(profile, &exchange);
    size.step = fth_scaling_predict(profile, &exchange, size.bucket_floats);
    size.samples_per_s = (double)(size.batch * run->accumulate) / size.step.step_s;
    size.epoch_s = (double)divide_up(divide_up(run->samples, size.batch), run->accumulate) * size.step.step_s;
    size.epoch_usd = nodes * run->usd_per_hour * size.epoch_s / 3600;
    return size;
}

void fth_scaling_compare(fth_scaling_size *sizes, size_t count, const fth_scaling_size *one)
{
    for (size_t i = 0; i < count; i++)
        sizes[i].efficiency = sizes[i].samples_per_s / (sizes[i].nodes * one->samples_per_s);
}

/* Dollars, or what they are in proportion to. */
static double money(const fth_scaling_size *size)
{
    return isnan(size->epoch_usd) ? size->nodes * size->epoch_s : size->epoch_usd;
}

fth_scaling_advice fth_scaling_advise(const fth_scaling_size *sizes, size_t count)
{
    static const double as_good = 0.999; /* of two that cost the same, the one with fewer nodes */
    fth_scaling_advice advice = {0};
    for (size_t i = 1; i < count; i++) {
        const fth_scaling_size *size = &sizes[i], *balanced = &sizes[advice.balanced];
        if (money(size) < as_good * money(&sizes[advice.cheapest]))
            advice.cheapest = i;
        if (size->epoch_s < as_good * sizes[advice.fastest].epoch_s)
            advice.fastest = i;
        if (size->epoch_s * money(size) < as_good * balanced->epoch_s * money(balanced))
            advice.balanced = i;
    }
    advice.pays = sizes[advice.fastest].epoch_s <= 0.9 * sizes[0].epoch_s;
    return advice;
}
