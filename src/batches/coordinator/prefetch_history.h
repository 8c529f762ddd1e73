/* What prefetchers have done: each one's figures, the data sets that they fail on, and the latest
 * failures. Without a lock of its own: the dispatcher calls it under its mutex. */
#ifndef FTH_BATCHES_COORDINATOR_PREFETCH_HISTORY_H
#define FTH_BATCHES_COORDINATOR_PREFETCH_HISTORY_H

#include "batches/coordinator/coordinator_sets.h"

typedef struct fth_prefetch_history fth_prefetch_history;

typedef struct fth_prefetcher_record {
    char name[128];
    uint64_t tries, done, failures;
    double busy_s, usd;
    double seen_s; /* when it last asked for an order */
    char last_failure[480];
} fth_prefetcher_record;

typedef struct fth_dispatcher_failure {
    fth_item_id id;
    fth_status status;
    int set; /* index of its data set; -1: unknown */
    char reason[480];
} fth_dispatcher_failure;

/* `sets` (NULL: an agent, which opens none) outlives the history. */
fth_status fth_prefetch_history_create(const fth_served_sets *sets, fth_prefetch_history **history);
void fth_prefetch_history_free(fth_prefetch_history *history);

/* The record of a prefetcher, which is added if it is new. The last record stands for all
 * prefetchers beyond the limit. Lent as long as the history lives. */
fth_prefetcher_record *fth_prefetch_history_find(fth_prefetch_history *history, const char *name);

/* The status that jobs get for a failed order. One that timed out or lost its prefetcher does not
 * mean that the coordinator is lost. */
fth_status fth_prefetch_failure_status(fth_status status);

/* Notes how a prefetcher's order on data set `set` (-1: unknown) ended. True: this is the first
 * failure on a healthy set. */
bool fth_prefetch_history_note(fth_prefetch_history *history, const fth_prefetcher_record *prefetcher, int set,
                               fth_status status, const char *reason);
/* Why data set `set` (-1: unknown) cannot be read, if every active prefetcher failed with its last
 * order on it; NULL: at least one may work. */
const char *fth_prefetch_history_find_broken(const fth_prefetch_history *history, int set, fth_status *status);

/* The latest failure of an item, or NULL. */
const fth_dispatcher_failure *fth_prefetch_history_find_failure(const fth_prefetch_history *history, fth_item_id id);
void fth_prefetch_history_keep_failure(fth_prefetch_history *history, fth_item_id id, int set, fth_status status,
                                       const char *reason);
/* Keeps the failure of an order and logs it, unless the item's last failure was the same. The log
 * is limited to a few lines a minute. */
void fth_prefetch_history_report_failure(fth_prefetch_history *history, const fth_order *order, int set,
                                         fth_status status, const char *reason, double now);

/* For `caller` (NULL: anybody). Failures name samples, so only those of data sets that `caller` may
 * read are listed. */
/* [{"name", "tries", "done", "failures", "busy_s", "usd", "last_failure"}, ...] */
json_t *fth_prefetch_history_describe_prefetchers(const fth_prefetch_history *history, const fth_signed *caller);
json_t *fth_prefetch_history_describe_failures(const fth_prefetch_history *history, const fth_signed *caller);
/* What prefetchers were paid: {NAME: USD, ...}. */
json_t *fth_prefetch_history_save_paid(const fth_prefetch_history *history);
void fth_prefetch_history_load_paid(fth_prefetch_history *history, const json_t *paid);

#endif
