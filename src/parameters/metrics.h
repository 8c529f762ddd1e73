/* What the server counts, and refusals, which are counted. Counters are atomic. */
#ifndef FTH_PARAMETERS_METRICS_H
#define FTH_PARAMETERS_METRICS_H

#include <jansson.h>
#include <stdatomic.h>

#include "http/access.h"
#include "parameters/gradient.h"
#include "parameters/position.h"
#include "parameters/workers.h"

enum { FTH_STALENESS_BUCKETS = 12 };

/* What happens to a shard's lease (shards.h). */
typedef enum fth_lease_event {
    FTH_LEASE_TAKEN,
    FTH_LEASE_COMPLETED, /* the worker finished the epoch */
    FTH_LEASE_RETURNED,  /* it returned the shard, or unregistered */
    FTH_LEASE_LOST,      /* the worker's lease ran out */
    FTH_LEASE_EVENTS
} fth_lease_event;

typedef struct fth_parameters_metrics {
    const fth_served_position *position; /* set once */
    atomic_uint_fast64_t refused[FTH_REFUSALS];
    atomic_uint_fast64_t staleness[FTH_STALENESS_BUCKETS + 1], staleness_sum, staleness_max;
    atomic_uint_fast64_t received_bytes, sent_bytes, samples, duplicates, expired, clipped, void_steps;
    atomic_uint_fast64_t shard_leases[FTH_LEASE_EVENTS];
    atomic_int_fast64_t shards_listed, shards_held, shards_done; /* now */
    atomic_int_fast64_t checkpoint_version;
    atomic_uint_fast64_t log_bytes;
} fth_parameters_metrics;

fth_status fth_metrics_create(const fth_served_position *position, fth_parameters_metrics **metrics);
void fth_metrics_free(fth_parameters_metrics *metrics);

/* From the applying thread only: the maximum is kept without a lock. */
void fth_metrics_count_staleness(fth_parameters_metrics *metrics, int64_t staleness);
/* The histogram, for step events. */
json_t *fth_metrics_describe_staleness(const fth_parameters_metrics *metrics);

/* Counts the refusal and answers with its code, the message and the version. */
void fth_refuse(fth_parameters_metrics *metrics, fth_exchange *exchange, fth_refusal refusal, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Values of other parts now. */
typedef struct fth_metrics_gauges {
    fth_workers *workers;
    const fth_server *http; /* for its request counters; or NULL */
    const fth_access *access;
    int snapshots;
    uint64_t snapshots_bytes, bodies_bytes;
    double accuracy; /* NAN: not measured yet */
} fth_metrics_gauges;
/* All metrics in Prometheus' text format; free() it. NULL without memory. */
char *fth_metrics_format(const fth_parameters_metrics *metrics, const fth_metrics_gauges *gauges);

#endif
