/* The scheduler: what to make next, what to keep, what to drop. It has no clock, thread, socket or
 * cache of its own, so tests run whole courses of events. The coordinator calls it under its lock.
 *
 * For each job it knows the positions and speeds of its processes, and from its spec which items
 * come next. An item is needed at the earliest time at which any process will ask for it. Items are
 * made in the order of need, as far ahead as lookahead and memory allow, once for all jobs. Nothing
 * is dropped while there is room. When memory is short, these are dropped first:
 *
 *     items that no job will ask for again, oldest first
 *     items that jobs reach after their lookahead; the last passed first, as it is farthest
 *         from all
 *     items needed last, but only for one that is needed earlier
 *
 * A job that is paused or stuck is expected to stay so for as long again, so that the items it
 * would need soon make room for others. The scheduler never decides what a job gets, only when:
 * order and contents follow from the spec. */
#ifndef FTH_BATCHES_SCHEDULER_H
#define FTH_BATCHES_SCHEDULER_H

#include "batches/job.h"
#include "batches/prefetch/order.h"

typedef struct fth_scheduler fth_scheduler;
typedef struct fth_scheduler_options {
    uint64_t memory_bytes;
    int max_tries;      /* of an item, before the jobs are told; 0: 3 */
    double lookahead_s; /* how far ahead of need items are made, if memory allows; 0: 10 */
} fth_scheduler_options;

fth_status fth_scheduler_create(const fth_scheduler_options *options, fth_scheduler **scheduler);
void fth_scheduler_free(fth_scheduler *scheduler);

/* ---- jobs ---- */

/* The spec's format must be chosen. FTH_INVALID if it does not fit the set, or the job exists. */
fth_status fth_scheduler_add_job(fth_scheduler *scheduler, uint64_t job, const fth_job_spec *spec, int64_t set_count,
                                 double now_s);
void fth_scheduler_remove_job(fth_scheduler *scheduler, uint64_t job);
const fth_job_spec *fth_scheduler_job_spec(const fth_scheduler *scheduler, uint64_t job); /* lent; NULL: no such job */
/* A process of a job needs batches next, next + stride, ... below end (0: no end). Cheap if nothing
 * has changed. */
void fth_scheduler_set_position(fth_scheduler *scheduler, uint64_t job, int process, int64_t next, int64_t stride,
                                int64_t end, double now_s);
/* A job without processes keeps its place for a minute; after that, nothing is kept for it. */
void fth_scheduler_remove_process(fth_scheduler *scheduler, uint64_t job, int process);
double fth_scheduler_pace(const fth_scheduler *scheduler, uint64_t job); /* batches per second; 0: unknown */
/* Why nothing is made for a job: one of its batches exceeds the whole memory. NULL: there is no
 * reason. Lent until the next call. */
const char *fth_scheduler_refusal(const fth_scheduler *scheduler, uint64_t job);
/* The same, once for each job, for reports; NULL: no more. */
const char *fth_scheduler_next_refusal(fth_scheduler *scheduler, const fth_job_spec **spec);
/* A process whose position is known waits for an item, which then comes before all others. False:
 * the item is not in the job's window. */
bool fth_scheduler_want(fth_scheduler *scheduler, uint64_t job, fth_item_id id, double now_s);

/* ---- items ---- */
typedef enum fth_item_state {
    FTH_ITEM_UNKNOWN,
    FTH_ITEM_WAITING,
    FTH_ITEM_BEING_MADE,
    FTH_ITEM_READY,
    FTH_ITEM_FAILED
} fth_item_state;
/* The next item for `prefetcher` to make; false: none is due. It is in progress until done or
 * failed. A prefetcher gets an item it has failed at only after all others have failed, and a
 * pause. An item that a process waits for is also given to a second prefetcher if the first takes
 * much longer than usual: the first to finish wins, and a failure of the original one is ignored.
 * Call fth_scheduler_evict() next, which frees the memory that was counted on. */
bool fth_scheduler_take(fth_scheduler *scheduler, const char *prefetcher, double now_s, fth_order *order);
void fth_scheduler_done(fth_scheduler *scheduler, const fth_order *order, const fth_prefetch_result *result,
                        double now_s);
/* The item is tried again, by another prefetcher if possible, max_tries times in all. Then it has
 * failed, with the reason, until all jobs have passed it or one restarts before it. FTH_NO_MEMORY,
 * the cache's failure, is tried ten times as often; FTH_INVALID, FTH_UNSUPPORTED and FTH_NO_SPACE
 * (larger than the whole cache) are not retried. True: failed for good. */
bool fth_scheduler_failed(fth_scheduler *scheduler, const fth_order *order, const char *prefetcher, fth_status status,
                          const char *reason, double now_s);
/* For entries that are in the cache from the start. */
void fth_scheduler_found(fth_scheduler *scheduler, const fth_receipt *receipt);
/* The cache has lost it: a server was restarted, or an entry was damaged. */
void fth_scheduler_lost(fth_scheduler *scheduler, fth_item_id id);
/* Whether an item is in the window of a process. */
bool fth_scheduler_needs(const fth_scheduler *scheduler, fth_item_id id);
/* Why there was no room for an item, more than once; NULL: there was, or it was not tried. Lent
 * until the next call. */
const char *fth_scheduler_lacks_room(const fth_scheduler *scheduler, fth_item_id id);
/* `receipt` is for ready items and `reason` for failed ones, lent until the next call; both may be
 * NULL. */
fth_item_state fth_scheduler_state(const fth_scheduler *scheduler, fth_item_id id, fth_receipt *receipt,
                                   const char **reason);
/* At most `room` ids to drop now, to stay within the memory and to free at least `needed_bytes`.
 * They are forgotten. */
size_t fth_scheduler_evict(fth_scheduler *scheduler, uint64_t needed_bytes, double now_s, fth_item_id *ids,
                           size_t room);
/* When take() will have an item for some prefetcher: now or, if nothing else happens, at most a
 * second later. For timers. */
double fth_scheduler_next_event(fth_scheduler *scheduler, double now_s);

/* ---- choices for a new job ---- */

/* Chooses the format by measured cost; `why` gets a line with the figures. `files`: samples are
 * image files. Call before add_job. */
fth_cache_format fth_scheduler_choose_format(const fth_scheduler *scheduler, const fth_job_spec *spec,
                                             int64_t set_count, bool files, char why[256]);
/* Samples by which a job's epochs begin later, so that it joins the others at their position; 0 if
 * nothing is shared. If everything since the beginning of an epoch is still cached, it begins with
 * the first such epoch. */
int64_t fth_scheduler_choose_rotation(const fth_scheduler *scheduler, const fth_job_spec *spec, int64_t set_count);

/* ---- figures ---- */
typedef struct fth_scheduler_figures {
    uint64_t memory_bytes, ready_items, ready_bytes, making, waiting, failed; /* now */
    uint64_t prepared, evicted, lost, tried_again, failed_for_good;           /* totals */
    uint64_t decoded_images, fetched_bytes, bad_samples;
    double fetch_s, decode_s, transform_s;
} fth_scheduler_figures;
void fth_scheduler_get_figures(const fth_scheduler *scheduler, fth_scheduler_figures *figures);

typedef struct fth_scheduler_job_figures {
    int64_t position;           /* the first batch that some process still needs */
    int64_t ready_ahead;        /* ready batches from there on, without a gap, over all processes */
    double pace;                /* batches per second; 0: unknown */
    uint64_t decoded_for_it;    /* images decoded because it came first */
    uint64_t decoded_by_others; /* images it used that were decoded for another job */
} fth_scheduler_job_figures;
/* False: no such job. */
bool fth_scheduler_get_job_figures(const fth_scheduler *scheduler, uint64_t job, fth_scheduler_job_figures *figures);

#endif
