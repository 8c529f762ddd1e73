/* A coordinator's reports: /v1/status for people and tests, /metrics for Prometheus. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches/coordinator/coordinator_internal.h"
#include "http/prometheus.h"

static int count_clients(const fth_coordinator_parts *parts)
{
    const fth_local_clients *local = atomic_load(&parts->local);
    return local ? fth_local_clients_count(local) : 0;
}

/* ---- /v1/status ---- */

static json_t *describe_sets(const fth_coordinator_parts *parts, const fth_signed *caller)
{
    json_t *list = json_array();
    const fth_open_set *set;
    for (size_t i = 0; (set = fth_served_sets_get(parts->sets, i)); i++)
        if (!caller || fth_signed_may_read(caller, set->name))
            json_array_append_new(list, json_pack("{s:s, s:s, s:O*, s:I, s:I}", "name", set->name, "version",
                                                  set->version, "address", json_object_get(set->description, "address"),
                                                  "training", (json_int_t)set->count[FTH_TRAIN], "validation",
                                                  (json_int_t)set->count[FTH_VALIDATION]));
    return list;
}

static json_t *describe_jobs(const fth_coordinator_parts *parts, const fth_signed *caller)
{
    json_t *list = json_array();
    fth_served_job job;
    for (size_t i = 0; fth_served_jobs_get(parts->jobs, i, &job); i++)
        if (!caller || fth_signed_may_read(caller, job.spec.data))
            json_array_append_new(list, fth_served_job_describe(&job));
    return list;
}

static json_t *describe_cache(const fth_coordinator_parts *parts, const fth_scheduler_figures *figures)
{
    fth_segment_cache *segment = fth_cache_segment(parts->cache);
    json_t *json = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "name", fth_cache_name(parts->cache), "memory_bytes",
                             (json_int_t)parts->memory_bytes, "items", (json_int_t)figures->ready_items, "bytes",
                             (json_int_t)figures->ready_bytes, "evicted", (json_int_t)figures->evicted, "lost",
                             (json_int_t)figures->lost);
    if (segment)
        json_object_set_new(json, "used_bytes", json_integer((json_int_t)fth_segment_used(segment)));
    return json;
}

static json_t *describe_work(const fth_scheduler_figures *figures)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "prepared",
                     (json_int_t)figures->prepared, "making", (json_int_t)figures->making, "waiting",
                     (json_int_t)figures->waiting, "failed", (json_int_t)figures->failed, "failed_for_good",
                     (json_int_t)figures->failed_for_good, "tried_again", (json_int_t)figures->tried_again,
                     "decoded_images", (json_int_t)figures->decoded_images, "fetched_bytes",
                     (json_int_t)figures->fetched_bytes, "bad_samples", (json_int_t)figures->bad_samples, "fetch_s",
                     figures->fetch_s, "decode_s", figures->decode_s, "transform_s", figures->transform_s);
}

static json_t *describe_spending(const fth_cache_spending *spending)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:b}", "budget_usd_per_hour", spending->budget_usd_per_hour,
                     "cache_usd_per_hour", spending->cache_usd_per_hour, "this_hour_usd",
                     fth_cache_spending_this_hour(spending), "functions_usd", spending->functions_usd, "cache_usd",
                     spending->cache_usd, "exhausted", (int)fth_cache_spending_is_exhausted(spending));
}

/* --prefetch, without the passwords and tokens that addresses of functions may contain. */
static json_t *describe_prefetch(const fth_coordinator_parts *parts)
{
    char *text = strdup(parts->prefetch);
    if (text)
        fth_address_hide_secrets(text);
    json_t *json = json_string(text ? text : "");
    free(text);
    return json;
}

json_t *fth_coordinator_describe(const fth_coordinator_parts *parts, const fth_signed *caller)
{
    fth_scheduler_figures figures;
    fth_cache_spending spending;
    fth_dispatcher_get_figures(parts->dispatcher, &figures, &spending);
    return json_pack("{s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:i}", "up_s",
                     fth_clock_seconds() - parts->began_s, "data", describe_sets(parts, caller), "jobs",
                     describe_jobs(parts, caller), "cache", describe_cache(parts, &figures), "work",
                     describe_work(&figures), "spending", describe_spending(&spending), "failures",
                     fth_dispatcher_describe_failures(parts->dispatcher, caller), "prefetchers",
                     fth_dispatcher_describe_prefetchers(parts->dispatcher, caller), "prefetch",
                     describe_prefetch(parts), "lent_orders", (json_int_t)fth_worker_orders_count(parts->workers),
                     "agents", fth_agents_describe(parts->agents, caller), "clients", count_clients(parts));
}

/* ---- /metrics ---- */

typedef struct job_metric {
    const char *name, *type, *help;
    double (*get)(const fth_served_job *job);
} job_metric;

#define COUNTER(function, counter, unit)                                                                               \
    static double function(const fth_served_job *job)                                                                  \
    {                                                                                                                  \
        return (unit) * (double)job->counters[counter];                                                                \
    }
COUNTER(get_hits, FTH_SLOT_HITS, 1)
COUNTER(get_waits, FTH_SLOT_WAITS, 1)
COUNTER(get_misses, FTH_SLOT_MISSES, 1)
COUNTER(get_wait_s, FTH_SLOT_WAIT_NS, 1e-9)
COUNTER(get_bytes, FTH_SLOT_BYTES, 1)
COUNTER(get_fetch_s, FTH_SLOT_FETCH_NS, 1e-9)
COUNTER(get_decode_s, FTH_SLOT_DECODE_NS, 1e-9)
COUNTER(get_corrupt, FTH_SLOT_CORRUPT, 1)
COUNTER(get_samples, FTH_SLOT_SAMPLES, 1)
#undef COUNTER

static double get_usd(const fth_served_job *job)
{
    return job->usd;
}

static double get_next(const fth_served_job *job)
{
    return (double)job->next;
}

static double get_pace(const fth_served_job *job)
{
    return job->scheduled.pace;
}

static double get_decoded_for_it(const fth_served_job *job)
{
    return (double)job->scheduled.decoded_for_it;
}

static double get_decoded_by_others(const fth_served_job *job)
{
    return (double)job->scheduled.decoded_by_others;
}

static const job_metric job_metrics[] = {
    {"batches_job_samples_total", "counter", "Samples in the batches that the job has taken", get_samples},
    {"batches_job_hits_total", "counter", "Items that were ready when the job asked", get_hits},
    {"batches_job_waits_total", "counter", "Items that the job waited for", get_waits},
    {"batches_job_misses_total", "counter", "Items that the job fetched and decoded itself", get_misses},
    {"batches_job_wait_seconds_total", "counter", "Time the job has waited for items", get_wait_s},
    {"batches_job_bytes_total", "counter", "Bytes the job has read from the cache", get_bytes},
    {"batches_job_fetch_seconds_total", "counter", "Time the job has spent fetching data itself", get_fetch_s},
    {"batches_job_decode_seconds_total", "counter", "Time the job has spent decoding images itself", get_decode_s},
    {"batches_job_corrupt_total", "counter", "Damaged entries", get_corrupt},
    {"batches_job_decoded_for_it_total", "counter", "Images decoded because the job came first", get_decoded_for_it},
    {"batches_job_decoded_by_others_total", "counter", "Images it used that were decoded for another job",
     get_decoded_by_others},
    {"batches_job_usd_total", "counter", "Its share of the cost of functions and cache", get_usd},
    {"batches_job_position", "gauge", "The next batch of the job", get_next},
    {"batches_job_batches_per_second", "gauge", "Its pace", get_pace},
};

static void print_jobs(FILE *out, const fth_coordinator_parts *parts)
{
    fth_served_job job;
    for (size_t i = 0; i < FTH_COUNT_OF(job_metrics); i++) {
        const job_metric *metric = &job_metrics[i];
        fth_prometheus_head(out, metric->name, metric->type, metric->help);
        for (size_t j = 0; fth_served_jobs_get(parts->jobs, j, &job); j++) {
            fprintf(out, "farthing_%s{job=\"%" PRIu64 "\",name=\"", metric->name, job.id);
            fth_prometheus_label(out, job.name);
            fputs("\",data=\"", out);
            fth_prometheus_label(out, job.spec.data);
            fprintf(out, "\"} %.17g\n", metric->get(&job));
        }
    }
}

static void print_work(FILE *out, const fth_scheduler_figures *figures)
{
    fth_prometheus_value(out, "batches_prepared_total", "counter", "Items made", (double)figures->prepared);
    fth_prometheus_value(out, "batches_evicted_total", "counter", "Items dropped from the cache",
                         (double)figures->evicted);
    fth_prometheus_value(out, "batches_lost_total", "counter", "Items lost by the cache", (double)figures->lost);
    fth_prometheus_value(out, "batches_tried_again_total", "counter", "Failures after which an item was retried",
                         (double)figures->tried_again);
    fth_prometheus_value(out, "batches_failed_total", "counter", "Items that could not be made",
                         (double)figures->failed_for_good);
    fth_prometheus_value(out, "batches_decoded_images_total", "counter", "Images decoded",
                         (double)figures->decoded_images);
    fth_prometheus_value(out, "batches_bad_samples_total", "counter", "Samples that cannot be read",
                         (double)figures->bad_samples);
    fth_prometheus_value(out, "batches_fetched_bytes_total", "counter", "Bytes of data fetched",
                         (double)figures->fetched_bytes);
    fth_prometheus_head(out, "batches_seconds_total", "counter", "Time of prefetchers, by activity");
    fprintf(out,
            "farthing_batches_seconds_total{of=\"fetch\"} %.17g\nfarthing_batches_seconds_total{of=\"decode\"} %.17g\n"
            "farthing_batches_seconds_total{of=\"transform\"} %.17g\n",
            figures->fetch_s, figures->decode_s, figures->transform_s);
    fth_prometheus_value(out, "batches_cache_items", "gauge", "Items in the cache", (double)figures->ready_items);
    fth_prometheus_value(out, "batches_cache_bytes", "gauge", "Bytes of items in the cache",
                         (double)figures->ready_bytes);
}

static void print_spending(FILE *out, const fth_cache_spending *spending)
{
    fth_prometheus_head(out, "batches_usd_total", "counter", "Dollars spent");
    fprintf(out, "farthing_batches_usd_total{on=\"functions\"} %.17g\nfarthing_batches_usd_total{on=\"cache\"} %.17g\n",
            spending->functions_usd, spending->cache_usd);
    fth_prometheus_value(out, "batches_budget_exhausted", "gauge", "1: functions wait for the next hour",
                         fth_cache_spending_is_exhausted(spending));
}

char *fth_coordinator_format_metrics(const fth_coordinator_parts *parts)
{
    char *text = NULL;
    size_t size = 0, jobs = 0;
    int processes = 0;
    fth_scheduler_figures figures;
    fth_cache_spending spending;
    fth_served_job job;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fth_dispatcher_get_figures(parts->dispatcher, &figures, &spending);
    for (size_t i = 0; fth_served_jobs_get(parts->jobs, i, &job); i++) {
        jobs += job.processes > 0;
        processes += job.processes;
    }
    fth_prometheus_value(out, "batches_jobs", "gauge", "Jobs with processes", (double)jobs);
    fth_prometheus_value(out, "batches_processes", "gauge", "Processes of jobs", processes);
    fth_prometheus_value(out, "batches_clients", "gauge", "Connections to this machine's socket", count_clients(parts));
    fth_prometheus_value(out, "batches_agents", "gauge", "Other machines with jobs",
                         (double)fth_agents_count(parts->agents));
    fth_prometheus_value(out, "batches_cache_memory_bytes", "gauge", "--cache-memory", (double)parts->memory_bytes);
    print_work(out, &figures);
    print_spending(out, &spending);
    print_jobs(out, parts);
    fth_prometheus_requests(out, atomic_load(&parts->http));
    fth_prometheus_signatures(out, parts->access);
    fth_prometheus_head(out, "memory_bytes", "gauge", "Memory of the process, shared memory included");
    fprintf(out, "farthing_memory_bytes{of=\"process\"} %" PRIu64 "\n", fth_prometheus_resident_bytes());
    fclose(out);
    return text;
}
