/* The parts of a coordinator, as seen by its routes and reports. */
#ifndef FTH_BATCHES_COORDINATOR_INTERNAL_H
#define FTH_BATCHES_COORDINATOR_INTERNAL_H

#include <stdatomic.h>

#include "batches/coordinator/coordinator_state.h"
#include "batches/coordinator/coordinator_watch.h"
#include "http/access.h"

/* All are created before the first request, except `http` and `local`. */
typedef struct fth_coordinator_parts {
    const fth_served_sets *sets;
    fth_cache *cache;
    fth_dispatcher *dispatcher;
    fth_served_jobs *jobs;
    fth_agents *agents;
    fth_worker_orders *workers;
    fth_state_saver *saver; /* or NULL */
    fth_watcher *watcher;
    fth_access *access;
    const char *prefetch; /* --prefetch */
    bool has_workers;     /* among the prefetchers */
    uint64_t memory_bytes;
    double began_s;
    fth_server *_Atomic http;
    fth_local_clients *_Atomic local; /* or NULL */
} fth_coordinator_parts;

/* coordinator_routes.c */
extern const fth_route fth_coordinator_routes[]; /* context: fth_coordinator_parts */
void fth_coordinator_refuse(void *parts, fth_exchange *exchange, fth_access_refusal why, int code, const char *message);

/* coordinator_report.c */
/* What `caller` (NULL: anybody) may see. */
json_t *fth_coordinator_describe(const fth_coordinator_parts *parts, const fth_signed *caller);
/* All metrics in Prometheus' text format; free() it. NULL: no memory. */
char *fth_coordinator_format_metrics(const fth_coordinator_parts *parts);

#endif
