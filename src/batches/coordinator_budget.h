/* What the cache and functions have cost, and whether more may be spent in this hour. Pure: times are given. */
#ifndef FTH_BATCHES_COORDINATOR_BUDGET_H
#define FTH_BATCHES_COORDINATOR_BUDGET_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct fth_spending {
    double budget_usd_per_hour; /* 0: no limit */
    double cache_usd_per_hour;  /* paid whether it is used or not */
    int64_t hour;               /* since 1970, of what follows */
    double functions_this_hour_usd;
    double functions_usd, cache_usd; /* in all */
    double counted_to_s;             /* wall clock, of the cache's cost; 0: not begun */
} fth_spending;

/* Counts up to `now_s`, of the wall clock. Gives what the cache has cost since the last call. */
double fth_spending_advance(fth_spending *spending, double now_s);
void fth_spending_add_function(fth_spending *spending, double usd);
/* Of this hour: functions so far, and the whole hour's cache. */
double fth_spending_this_hour(const fth_spending *spending);
/* True if functions must wait for the next hour. */
bool fth_spending_is_exhausted(const fth_spending *spending);

json_t *fth_spending_save(const fth_spending *spending);
/* Prices and budget stay as they are: they may have changed. */
void fth_spending_load(fth_spending *spending, const json_t *json);

#endif
