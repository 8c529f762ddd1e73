/* See metrics.h. */
#include "parameters/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/prometheus.h"

static const int64_t staleness_bounds[FTH_STALENESS_BUCKETS] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

fth_status fth_metrics_create(const fth_served_position *position, fth_parameters_metrics **metrics)
{
    fth_status status = fth_allocate(1, sizeof **metrics, metrics);
    if (status == FTH_OK)
        (*metrics)->position = position;
    return status;
}

void fth_metrics_free(fth_parameters_metrics *metrics)
{
    free(metrics);
}

void fth_metrics_count_staleness(fth_parameters_metrics *metrics, int64_t staleness)
{
    int bucket = 0;
    while (bucket < FTH_STALENESS_BUCKETS && staleness > staleness_bounds[bucket])
        bucket++;
    atomic_fetch_add(&metrics->staleness[bucket], 1);
    atomic_fetch_add(&metrics->staleness_sum, (uint64_t)staleness);
    if ((uint64_t)staleness > atomic_load(&metrics->staleness_max))
        atomic_store(&metrics->staleness_max, (uint64_t)staleness);
}

json_t *fth_metrics_describe_staleness(const fth_parameters_metrics *metrics)
{
    json_t *buckets = json_object();
    for (int i = 0; i <= FTH_STALENESS_BUCKETS; i++) {
        char name[32] = "more";
        if (i < FTH_STALENESS_BUCKETS)
            snprintf(name, sizeof name, "%" PRId64, staleness_bounds[i]);
        if (atomic_load(&metrics->staleness[i]) > 0)
            json_object_set_new(buckets, name, json_integer((json_int_t)atomic_load(&metrics->staleness[i])));
    }
    return json_pack("{s:o, s:I, s:I}", "at_most", buckets, "largest", (json_int_t)atomic_load(&metrics->staleness_max),
                     "sum", (json_int_t)atomic_load(&metrics->staleness_sum));
}

void fth_refuse(fth_parameters_metrics *metrics, fth_exchange *exchange, fth_refusal refusal, const char *format, ...)
{
    char message[FTH_MAX_REFUSAL];
    va_list arguments;
    va_start(arguments, format);
    fth_printable_format(message, sizeof message, format, arguments); /* it may quote text that is not UTF-8 */
    va_end(arguments);
    atomic_fetch_add(&metrics->refused[refusal], 1);
    int code = fth_refusal_code(refusal);
    if (code == 503 || code == 429)
        fth_exchange_set_header(exchange, "Retry-After", "1");
    json_t *json =
        json_pack("{s:i, s:s, s:s, s:I}", "code", code, "error", message, "reason", fth_refusal_name(refusal),
                  "version", (json_int_t)fth_served_position_version(metrics->position));
    fth_exchange_answer_json(exchange, code, json);
}

/* ---- Prometheus' text ---- */

static void print_refusals(FILE *out, const fth_parameters_metrics *metrics)
{
    fth_prometheus_head(out, "refused_total", "counter", "Requests refused, by reason");
    for (int i = FTH_REFUSAL_MALFORMED; i < FTH_REFUSALS; i++)
        fprintf(out, "farthing_refused_total{reason=\"%s\"} %" PRIu64 "\n", fth_refusal_name((fth_refusal)i),
                (uint64_t)atomic_load(&metrics->refused[i]));
}

static void print_shards(FILE *out, const fth_parameters_metrics *metrics)
{
    static const char *const events[FTH_LEASE_EVENTS] = {[FTH_LEASE_TAKEN] = "taken",
                                                         [FTH_LEASE_COMPLETED] = "completed",
                                                         [FTH_LEASE_RETURNED] = "returned",
                                                         [FTH_LEASE_LOST] = "lost"};
    fth_prometheus_head(out, "shard_leases_total", "counter",
                        "Shards taken by workers, and how that ended; refused_total{reason=\"lease\"} has pushes");
    for (int i = 0; i < FTH_LEASE_EVENTS; i++)
        fprintf(out, "farthing_shard_leases_total{event=\"%s\"} %" PRIu64 "\n", events[i],
                (uint64_t)atomic_load(&metrics->shard_leases[i]));
    fth_prometheus_head(out, "shards", "gauge", "Shards: listed by the server, held by workers, done");
    fprintf(out,
            "farthing_shards{state=\"listed\"} %" PRId64 "\nfarthing_shards{state=\"held\"} %" PRId64
            "\nfarthing_shards{state=\"done\"} %" PRId64 "\n",
            (int64_t)atomic_load(&metrics->shards_listed), (int64_t)atomic_load(&metrics->shards_held),
            (int64_t)atomic_load(&metrics->shards_done));
}

static void print_unfit(FILE *out, fth_workers *workers)
{
    fth_worker worker;
    fth_prometheus_head(out, "worker_unfit_total", "counter",
                        "Gradients refused for their numbers (not_finite, diverges), by worker");
    for (size_t i = 0; fth_workers_get_at(workers, i, &worker); i++)
        if (worker.unfit > 0)
            fprintf(out, "farthing_worker_unfit_total{worker=\"%s\"} %" PRId64 "\n", worker.name, worker.unfit);
}

/* Returns the number of gradients. */
static uint64_t print_staleness(FILE *out, const fth_parameters_metrics *metrics)
{
    uint64_t count = 0;
    fth_prometheus_head(out, "staleness", "histogram",
                        "Versions between what a gradient was computed with and what it was applied to");
    for (int i = 0; i < FTH_STALENESS_BUCKETS; i++) {
        count += atomic_load(&metrics->staleness[i]);
        fprintf(out, "farthing_staleness_bucket{le=\"%" PRId64 "\"} %" PRIu64 "\n", staleness_bounds[i], count);
    }
    count += atomic_load(&metrics->staleness[FTH_STALENESS_BUCKETS]);
    fprintf(out,
            "farthing_staleness_bucket{le=\"+Inf\"} %" PRIu64 "\nfarthing_staleness_sum %" PRIu64
            "\nfarthing_staleness_count %" PRIu64 "\n",
            count, (uint64_t)atomic_load(&metrics->staleness_sum), count);
    return count;
}

char *fth_metrics_format(const fth_parameters_metrics *metrics, const fth_metrics_gauges *gauges)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fth_prometheus_value(out, "version", "gauge", "Updates of the parameters so far",
                         (double)fth_served_position_version(metrics->position));
    fth_prometheus_value(out, "workers", "gauge", "Workers whose lease lasts", fth_workers_live(gauges->workers));
    fth_prometheus_value(out, "samples_total", "counter", "Samples behind the gradients taken by this process",
                         (double)atomic_load(&metrics->samples));
    fth_prometheus_requests(out, gauges->http);
    print_refusals(out, metrics);
    fth_prometheus_signatures(out, gauges->access);
    print_unfit(out, gauges->workers);
    fth_prometheus_value(out, "clipped_total", "counter", "Gradients scaled down to --clip-pushes",
                         (double)atomic_load(&metrics->clipped));
    fth_prometheus_value(out, "void_steps_total", "counter", "Updates left out: a weight would not have stayed finite",
                         (double)atomic_load(&metrics->void_steps));
    print_shards(out, metrics);
    uint64_t gradients = print_staleness(out, metrics);
    fth_prometheus_value(out, "duplicates_total", "counter", "Pushes that were repeated and not applied again",
                         (double)atomic_load(&metrics->duplicates));
    fth_prometheus_value(out, "leases_expired_total", "counter", "Workers let go because their lease ran out",
                         (double)atomic_load(&metrics->expired));
    fth_prometheus_value(out, "received_bytes_total", "counter", "Bytes of gradients received",
                         (double)atomic_load(&metrics->received_bytes));
    fth_prometheus_value(out, "sent_bytes_total", "counter", "Bytes of parameters given out",
                         (double)atomic_load(&metrics->sent_bytes));
    fth_prometheus_head(out, "apply_seconds", "summary", "Time to log and apply a gradient");
    fprintf(out, "farthing_apply_seconds_sum %.9g\nfarthing_apply_seconds_count %" PRIu64 "\n",
            fth_served_position_apply_s_here(metrics->position), gradients);
    fth_prometheus_value(out, "snapshots", "gauge", "Versions held for readers", gauges->snapshots);
    fth_prometheus_value(out, "log_bytes", "gauge", "Size of the newest log", (double)atomic_load(&metrics->log_bytes));
    fth_prometheus_value(out, "checkpoint_version", "gauge", "Version of the newest whole checkpoint",
                         (double)atomic_load(&metrics->checkpoint_version));
    fth_prometheus_head(out, "memory_bytes", "gauge",
                        "Memory: of bodies received and waiting, of copies for readers, of the process");
    fprintf(out,
            "farthing_memory_bytes{of=\"bodies\"} %" PRIu64 "\nfarthing_memory_bytes{of=\"snapshots\"} %" PRIu64
            "\nfarthing_memory_bytes{of=\"process\"} %" PRIu64 "\n",
            gauges->bodies_bytes, gauges->snapshots_bytes, fth_prometheus_resident_bytes());
    if (isfinite(gauges->accuracy))
        fth_prometheus_value(out, "accuracy", "gauge", "Share of right answers at the last validation",
                             gauges->accuracy);
    fclose(out);
    return text;
}
