/* The cost of cache and functions, and whether more may be spent in this hour. Pure: callers pass
 * the time. */
#ifndef FTH_BATCHES_COORDINATOR_BUDGET_H
#define FTH_BATCHES_COORDINATOR_BUDGET_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct fth_cache_spending {
    double budget_usd_per_hour; /* 0: no limit */
    double cache_usd_per_hour;  /* paid whether it is used or not */
    int64_t hour;               /* since 1970; of the members below */
    double functions_this_hour_usd;
    double functions_usd, cache_usd; /* totals */
    double counted_to_s;             /* wall clock; up to when the cache is paid; 0: not started */
} fth_cache_spending;

/* Accounts for the time up to `now_s`, of the wall clock. Gives the cost of the cache since the
 * last call. */
double fth_cache_spending_advance(fth_cache_spending *spending, double now_s);
void fth_cache_spending_add_function(fth_cache_spending *spending, double usd);
/* Of this hour: functions so far, and the cache for the whole hour. */
double fth_cache_spending_this_hour(const fth_cache_spending *spending);
/* True if functions must wait for the next hour. */
bool fth_cache_spending_is_exhausted(const fth_cache_spending *spending);

json_t *fth_cache_spending_save(const fth_cache_spending *spending);
/* Keeps prices and budget, which may have changed. */
void fth_cache_spending_load(fth_cache_spending *spending, const json_t *json);

#endif
