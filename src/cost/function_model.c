/* See function_model.h. */
#include "cost/function_model.h"

#include <math.h>
#include <string.h>

#define LEAST_VM_S   60.0 /* clouds bill a minute at least */
#define MARGIN_S     2.0  /* that a function stops before its limit */
#define MOST_SAMPLES 1e15

fth_job_estimate fth_estimate_functions(const fth_job_shape *job, const fth_function_fleet *fleet)
{
    const fth_function_price *price = fleet->price;
    const double vcpus = fleet->memory_mb / price->mb_per_vcpu, bytes = job->push_bytes + job->pull_bytes;
    const double compute_s = job->batches_per_push * job->batch_s / vcpus;
    const double alone_s = compute_s + 2 * fleet->latency_s + bytes / fleet->bytes_per_s;
    const double round_s = fmax(alone_s, fleet->functions * bytes / fleet->server_bytes_per_s);
    const double pushes = ceil(job->samples / (job->batch * job->batches_per_push));
    const double rounds = ceil(pushes / fleet->functions);
    const double rounds_each = floor((fleet->limit_s - fleet->start_s - MARGIN_S) / round_s); /* in one invocation */
    fth_job_estimate estimate = {.seconds = INFINITY, .usd = INFINITY, .exchange_share = 1 - compute_s / round_s};
    if (!(rounds_each >= 1))
        return estimate;
    const double starts = ceil(rounds / rounds_each);
    estimate.seconds = rounds * round_s + starts * fleet->start_s;
    estimate.invocations = starts * fmin(fleet->functions, pushes);
    estimate.gb_s = fmin(fleet->functions, pushes) * estimate.seconds * fleet->memory_mb / 1024;
    estimate.sent_bytes = pushes * job->push_bytes;
    estimate.sending_usd = estimate.sent_bytes / 1e9 * price->usd_per_gb_out;
    estimate.usd = estimate.gb_s * price->usd_per_gb_second +
                   estimate.invocations * price->usd_per_million_requests / 1e6 + estimate.sending_usd;
    return estimate;
}

fth_job_estimate fth_estimate_vm(const fth_job_shape *job, const fth_price *vm, double start_s)
{
    const double seconds = start_s + ceil(job->samples / job->batch) * job->batch_s / vm->vcpus;
    return (fth_job_estimate){.seconds = seconds, .usd = fmax(seconds, LEAST_VM_S) / 3600 * vm->usd_per_hour};
}

const fth_price *fth_estimate_choose_vm(const fth_catalogue *catalogue, const char *cloud, const char *instance,
                                        const fth_job_shape *job, double start_s)
{
    const fth_price *best = NULL;
    for (size_t i = 0; i < catalogue->count; i++) {
        const fth_price *price = &catalogue->prices[i];
        if (!(price->vcpus > 0) || strcmp(price->market, "on-demand") != 0 ||
            (*instance && strcmp(price->instance, instance) != 0))
            continue;
        const bool nearer = best && strcmp(price->cloud, cloud) == 0 && strcmp(best->cloud, cloud) != 0;
        const bool farther = best && strcmp(price->cloud, cloud) != 0 && strcmp(best->cloud, cloud) == 0;
        if (!best || nearer ||
            (!farther && fth_estimate_vm(job, price, start_s).usd < fth_estimate_vm(job, best, start_s).usd))
            best = price;
    }
    return best;
}

const fth_price *fth_estimate_find_spot(const fth_catalogue *catalogue, const fth_price *on_demand)
{
    for (size_t i = 0; i < catalogue->count; i++) {
        const fth_price *price = &catalogue->prices[i];
        if (strcmp(price->market, "spot") == 0 && strcmp(price->cloud, on_demand->cloud) == 0 &&
            strcmp(price->instance, on_demand->instance) == 0 && strcmp(price->region, on_demand->region) == 0)
            return price;
    }
    return NULL;
}

static bool are_functions_cheaper(const fth_job_shape *job, double samples, const fth_function_fleet *fleet,
                                  const fth_price *vm, double vm_start_s)
{
    fth_job_shape shape = *job;
    shape.samples = samples;
    return fth_estimate_functions(&shape, fleet).usd < fth_estimate_vm(&shape, vm, vm_start_s).usd;
}

double fth_estimate_break_even(const fth_job_shape *job, const fth_function_fleet *fleet, const fth_price *vm,
                               double vm_start_s)
{
    double low = job->batch, high = MOST_SAMPLES;
    if (!are_functions_cheaper(job, low, fleet, vm, vm_start_s))
        return 0;
    if (are_functions_cheaper(job, high, fleet, vm, vm_start_s))
        return INFINITY;
    while (high / low >
           1.001) { /* cost grows with samples on both sides; for functions it starts lower and grows faster */
        const double middle = sqrt(low * high);
        if (are_functions_cheaper(job, middle, fleet, vm, vm_start_s))
            low = middle;
        else
            high = middle;
    }
    return low;
}
