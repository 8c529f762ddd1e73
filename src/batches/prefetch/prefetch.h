/* Prefetchers, which make items. Each kind is a row of fth_prefetch_kind, listed in prefetch.c;
 * --prefetch names one or several, separated by commas.
 *
 *     threads:4            threads of the coordinator
 *     workers              other machines that ask for orders: farthing worker prefetch --server
 *                          URL
 *     functions            deployed functions (OpenWhisk, Lambda), at the addresses of --functions
 *     http://…, https://…  one function by its address: an order is POSTed, the answer is a receipt
 *
 * The coordinator offers orders in the sequence of its schedule; each prefetcher takes as many as
 * it can work on. An order ends once, in `done`, with a receipt or a failure. A lost order (a
 * killed worker, an answer that never comes) ends with FTH_PEER_LOST or FTH_TIMEOUT at its
 * deadline, and the coordinator gives it to another prefetcher. Until a function has answered once,
 * its deadline allows for a cold start. */
#ifndef FTH_BATCHES_PREFETCH_H
#define FTH_BATCHES_PREFETCH_H

#include "batches/prefetch/item_task.h"

/* What a prefetcher needs of the coordinator, or of a worker. Any thread. */
typedef struct fth_order_source {
    void *context;
    /* The next order for this prefetcher, waiting until `deadline`; false: none. */
    bool (*take)(void *context, const char *prefetcher, fth_deadline deadline, fth_order *order);
    void (*done)(void *context, const char *prefetcher, const fth_order *order, fth_status status, const char *reason,
                 const fth_prefetch_result *result, double cost_usd);
    /* Lends an open data set, by name. */
    fth_status (*set)(void *context, const char *data, fth_prefetch_set **set);
    fth_cache *cache;
} fth_order_source;

typedef struct fth_prefetch_options {
    const char *address;                  /* of the coordinator, for functions that upload entries over HTTP */
    const char *functions;                /* addresses of "functions", separated by commas */
    int concurrency;                      /* orders at a function at a time; 0: 8 */
    double cold_start_s;                  /* for a function's first answer; 0: 60 */
    double answer_s;                      /* for its other answers; 0: 20 */
    double usd_per_gb_s, usd_per_request; /* of functions */
    double function_memory_gb;
} fth_prefetch_options;

typedef struct fth_prefetch_kind {
    const char *name, *summary; /* "threads", for help */
    const char *schemes;        /* of kinds named by an address: "http:// https://"; NULL: named by `name` */
    fth_status (*check)(const char *argument); /* "4" of "threads:4", a URL, or "" */
    fth_status (*start)(const char *argument, const fth_order_source *source, const fth_prefetch_options *options,
                        void **state);
    void (*stop)(void *state); /* within seconds */
} fth_prefetch_kind;
extern const fth_prefetch_kind fth_prefetch_threads, fth_prefetch_workers, fth_prefetch_functions, fth_prefetch_http;

typedef struct fth_prefetchers fth_prefetchers;
/* FTH_INVALID lists the kinds that exist. */
fth_status fth_prefetch_check(const char *text);
fth_status fth_prefetchers_start(const char *text, const fth_order_source *source, const fth_prefetch_options *options,
                                 fth_prefetchers **prefetchers);
void fth_prefetchers_stop(fth_prefetchers *prefetchers);

#endif
