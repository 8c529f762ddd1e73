/* Prefetchers: who prepares items. A row of fth_prefetch_kind each, listed in prefetch.c;
 * --prefetch names one or several, separated by commas.
 *
 *     threads:4            threads of the coordinator
 *     workers              other machines that ask for work: farthing worker prefetch --server URL
 *     functions            those that are deployed (OpenWhisk, Lambda; their addresses come from --functions
 * URL[,URL...]) http://…, https://…  one function, by its address: an order is POSTed, the answer is a receipt
 *
 * The coordinator offers orders to prefetchers in the order of its schedule; each takes as many as
 * it can work on. An order ends in `done` once, with a receipt or a failure. One that is lost (a
 * worker killed, an answer that never comes) ends as FTH_PEER_LOST or FTH_TIMEOUT when its deadline
 * passes, and the coordinator gives it to somebody else. A function that starts cold is waited for:
 * until it has answered once, its deadline is the long one. */
#ifndef FTH_BATCHES_PREFETCH_H
#define FTH_BATCHES_PREFETCH_H

#include "batches/prefetch/item_task.h"

/* What prefetchers need of the coordinator, or of a worker that asks one. Any thread. */
typedef struct fth_order_source {
    void *context;
    /* The next order for this prefetcher, waiting until `deadline`; false: none. */
    bool (*take)(void *context, const char *prefetcher, fth_deadline deadline, fth_order *order);
    void (*done)(void *context, const char *prefetcher, const fth_order *order, fth_status status, const char *reason,
                 const fth_prefetch_result *result, double cost_usd);
    /* Lends a data set's preparer, by name. */
    fth_status (*set)(void *context, const char *data, fth_prefetch_set **set);
    fth_cache *cache;
} fth_order_source;

typedef struct fth_prefetch_options {
    const char *address;                  /* of the coordinator, for functions that hand in entries over HTTP */
    const char *functions;                /* addresses of "functions", with commas between them */
    int concurrency;                      /* orders that a function has at a time; 0: 8 */
    double cold_start_s;                  /* how long a function's first answer may take; 0: 60 */
    double answer_s;                      /* how long others may; 0: 20 */
    double usd_per_gb_s, usd_per_request; /* of functions */
    double function_memory_gb;
} fth_prefetch_options;

typedef struct fth_prefetch_kind {
    const char *name, *summary; /* "threads", for help */
    const char *schemes;        /* of those that are named by an address: "http:// https://"; NULL: named by `name` */
    fth_status (*check)(const char *argument); /* "4" of "threads:4", a URL, or "" */
    fth_status (*start)(const char *argument, const fth_order_source *source, const fth_prefetch_options *options,
                        void **state);
    void (*stop)(void *state); /* within seconds */
} fth_prefetch_kind;
extern const fth_prefetch_kind fth_prefetch_threads, fth_prefetch_workers, fth_prefetch_functions, fth_prefetch_http;

typedef struct fth_prefetchers fth_prefetchers;
/* FTH_INVALID for what is no list of them, naming those there are. */
fth_status fth_prefetch_check(const char *text);
fth_status fth_prefetchers_start(const char *text, const fth_order_source *source, const fth_prefetch_options *options,
                                 fth_prefetchers **prefetchers);
void fth_prefetchers_stop(fth_prefetchers *prefetchers);

#endif
