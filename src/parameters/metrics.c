/* What the server counts, as Prometheus reads it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parameters/parameters_internal.h"

const int64_t fth_staleness_bounds[FTH_STALENESS_BUCKETS] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

void fth_metrics_count_staleness(fth_parameters_metrics *metrics, int64_t staleness)
{
    int bucket = 0;
    while (bucket < FTH_STALENESS_BUCKETS && staleness > fth_staleness_bounds[bucket])
        bucket++;
    atomic_fetch_add(&metrics->staleness[bucket], 1);
    atomic_fetch_add(&metrics->staleness_sum, (uint64_t)staleness);
    if ((uint64_t)staleness > atomic_load(&metrics->staleness_max)) /* one thread counts */
        atomic_store(&metrics->staleness_max, (uint64_t)staleness);
}

static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP farthing_%s %s\n# TYPE farthing_%s %s\n", name, help, name, type);
}

static void single(FILE *out, const char *name, const char *type, const char *help, double value)
{
    head(out, name, type, help);
    fprintf(out, "farthing_%s %.17g\n", name, value);
}

static void print_count(void *out, const char *metric, int code, uint64_t count)
{
    fprintf(out, "farthing_requests_total{path=\"%s\",code=\"%d\"} %" PRIu64 "\n", metric, code, count);
}

static void print_requests(FILE *out, const fth_server *http)
{
    head(out, "requests_total", "counter",
         "Requests by path and code of the answer; code 0: others, or the client left");
    if (http)
        fth_server_visit_counts(http, print_count, out);
}

static void print_refusals(FILE *out, fth_parameters_metrics *metrics)
{
    head(out, "refused_total", "counter", "Requests refused, by reason");
    for (int i = FTH_REFUSAL_MALFORMED; i < FTH_REFUSALS; i++)
        fprintf(out, "farthing_refused_total{reason=\"%s\"} %" PRIu64 "\n", fth_refusal_name((fth_refusal)i),
                (uint64_t)atomic_load(&metrics->refused[i]));
    head(out, "signatures_total", "counter", "Signatures checked, by what they were");
    for (int i = FTH_SIGNATURE_GOOD; i <= FTH_SIGNATURE_FULL; i++)
        fprintf(out, "farthing_signatures_total{result=\"%s\"} %" PRIu64 "\n",
                fth_signature_result_name((fth_signature_result)i), (uint64_t)atomic_load(&metrics->signatures[i]));
}

static void print_unfit(FILE *out, fth_parameters *server)
{
    fth_worker worker;
    head(out, "worker_unfit_total", "counter", "Gradients refused for their numbers (not_finite, diverges), by worker");
    for (size_t i = 0; fth_workers_get_at(server->workers, i, &worker); i++)
        if (worker.unfit > 0)
            fprintf(out, "farthing_worker_unfit_total{worker=\"%s\"} %" PRId64 "\n", worker.name, worker.unfit);
}

/* Gives how many gradients there were. */
static uint64_t print_staleness(FILE *out, fth_parameters_metrics *metrics)
{
    uint64_t count = 0;
    head(out, "staleness", "histogram",
         "Versions between what a gradient was computed with and what it was applied to");
    for (int i = 0; i < FTH_STALENESS_BUCKETS; i++) {
        count += atomic_load(&metrics->staleness[i]);
        fprintf(out, "farthing_staleness_bucket{le=\"%" PRId64 "\"} %" PRIu64 "\n", fth_staleness_bounds[i], count);
    }
    count += atomic_load(&metrics->staleness[FTH_STALENESS_BUCKETS]);
    fprintf(out,
            "farthing_staleness_bucket{le=\"+Inf\"} %" PRIu64 "\nfarthing_staleness_sum %" PRIu64
            "\nfarthing_staleness_count %" PRIu64 "\n",
            count, (uint64_t)atomic_load(&metrics->staleness_sum), count);
    return count;
}

char *fth_metrics_format(fth_parameters *server)
{
    fth_parameters_metrics *metrics = &server->metrics;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    int live = fth_workers_live(server->workers);
    pthread_mutex_lock(&server->mutex);
    bool validated = server->validation.known;
    double accuracy = server->validation.accuracy;
    uint64_t copy_bytes = server->copy ? server->copy->size_bytes : 0;
    const fth_server *http = server->http;
    pthread_mutex_unlock(&server->mutex);
    int copies = atomic_load(&server->copies_alive);

    single(out, "version", "gauge", "Updates of the parameters so far", (double)atomic_load(&server->version));
    single(out, "workers", "gauge", "Workers whose lease lasts", live);
    single(out, "samples_total", "counter", "Samples behind the gradients taken by this process",
           (double)atomic_load(&metrics->samples));
    print_requests(out, http);
    print_refusals(out, metrics);
    print_unfit(out, server);
    single(out, "clipped_total", "counter", "Gradients scaled down to --clip-pushes",
           (double)atomic_load(&metrics->clipped));
    single(out, "void_steps_total", "counter", "Updates left out: a weight would not have stayed finite",
           (double)atomic_load(&metrics->void_steps));
    uint64_t gradients = print_staleness(out, metrics);
    single(out, "duplicates_total", "counter", "Pushes that were repeated and not applied again",
           (double)atomic_load(&metrics->duplicates));
    single(out, "leases_expired_total", "counter", "Workers let go because their lease ran out",
           (double)atomic_load(&metrics->expired));
    single(out, "received_bytes_total", "counter", "Bytes of gradients received",
           (double)atomic_load(&metrics->received_bytes));
    single(out, "sent_bytes_total", "counter", "Bytes of parameters given out",
           (double)atomic_load(&metrics->sent_bytes));
    head(out, "apply_seconds", "summary", "Time to log and apply a gradient");
    fprintf(out, "farthing_apply_seconds_sum %.9g\nfarthing_apply_seconds_count %" PRIu64 "\n",
            (double)atomic_load(&metrics->apply_ns) * 1e-9, gradients);
    single(out, "snapshots", "gauge", "Versions held for readers", copies);
    single(out, "log_bytes", "gauge", "Size of the newest log", (double)atomic_load(&metrics->log_bytes));
    single(out, "checkpoint_version", "gauge", "Version of the newest whole checkpoint",
           (double)atomic_load(&metrics->checkpoint_version));
    head(out, "memory_bytes", "gauge", "Memory: of bodies received and waiting, of copies for readers, of the process");
    fprintf(out,
            "farthing_memory_bytes{of=\"bodies\"} %" PRIu64 "\nfarthing_memory_bytes{of=\"snapshots\"} %" PRIu64
            "\nfarthing_memory_bytes{of=\"process\"} %" PRIu64 "\n",
            (http ? fth_server_body_bytes(http) : 0) + (uint64_t)atomic_load(&server->local_bytes),
            copy_bytes * (uint64_t)copies, resident_bytes());
    if (validated)
        single(out, "accuracy", "gauge", "Share of right answers at the last validation", accuracy);
    fclose(out);
    return text;
}
