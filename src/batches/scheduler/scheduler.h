/* The scheduler: what to prepare next, what to keep, what to drop. It has no clock, thread, socket
 * or memory of its own to fill: tests run through courses of events. The coordinator calls it under
 * its lock.
 *
 * For each job it knows where its processes are and how fast they go, and from its spec which items
 * come next. An item is needed at the earliest time at which any process will ask for it. Items are
 * prepared in the order of need, as far ahead as lookahead and memory allow, each once, however
 * many jobs need it. Nothing is dropped while there is room. When memory is short, this goes first:
 *
 *     what no job will ask for again, the oldest first
 *     what jobs come to later than their lookahead, the last passed first: it is farthest from all of them
 *     what is needed last, but only for something that is needed earlier
 *
 * A job that is paused or stuck is expected to stay so for as long as it already has: what it needs
 * soon goes to others in time. Nothing in here decides what a job gets, only when: order and
 * contents are the spec's. */
#ifndef FTH_BATCHES_SCHEDULER_H
#define FTH_BATCHES_SCHEDULER_H

#include "batches/job.h"
#include "batches/prefetch/item_task.h"

typedef struct fth_scheduler fth_scheduler;
typedef struct fth_scheduler_options {
    uint64_t memory_bytes;
    int max_tries;      /* of an item, before its failure is given to the jobs; 0: 3 */
    double lookahead_s; /* how far ahead of need items are prepared, where memory allows; 0: 10 */
} fth_scheduler_options;

fth_status fth_scheduler_create(const fth_scheduler_options *options, fth_scheduler **scheduler);
void fth_scheduler_free(fth_scheduler *scheduler);

/* ---- jobs ---- */

/* The spec's form must be chosen. FTH_INVALID if it does not fit the set, or the job is there
 * already. */
fth_status fth_scheduler_add_job(fth_scheduler *scheduler, uint64_t job, const fth_job_spec *spec, int64_t set_count,
                                 double now_s);
void fth_scheduler_remove_job(fth_scheduler *scheduler, uint64_t job);
const fth_job_spec *fth_scheduler_job_spec(const fth_scheduler *scheduler, uint64_t job); /* lent; NULL: no such job */
/* One process of a job needs batches next, next + stride, ... below end (0: none). Cheap where
 * nothing has changed. */
void fth_scheduler_set_position(fth_scheduler *scheduler, uint64_t job, int process, int64_t next, int64_t stride,
                                int64_t end, double now_s);
/* A job without processes keeps its place for a minute; then nothing is kept for it any more. */
void fth_scheduler_remove_process(fth_scheduler *scheduler, uint64_t job, int process);
double fth_scheduler_pace(const fth_scheduler *scheduler, uint64_t job); /* batches a second; 0: not known */
/* Why nothing is prepared for a job: one of its batches takes more than all of the memory. NULL: it
 * is prepared for. Lent until the next call. */
const char *fth_scheduler_refusal(const fth_scheduler *scheduler, uint64_t job);
/* The same for each job once, to be reported; NULL: no more. */
const char *fth_scheduler_next_refusal(fth_scheduler *scheduler, const fth_job_spec **spec);
/* A process waits for it, whose position is set: it comes before everything else. False: nothing
 * that the job comes to soon. */
bool fth_scheduler_want(fth_scheduler *scheduler, uint64_t job, fth_item_id id, double now_s);

/* ---- items ---- */
typedef enum fth_item_state {
    FTH_ITEM_UNKNOWN,
    FTH_ITEM_WAITING,
    FTH_ITEM_BEING_MADE,
    FTH_ITEM_READY,
    FTH_ITEM_FAILED
} fth_item_state;
/* The next item to prepare, for `maker`; false: none is due. It is then being made, until done or
 * failed. A maker gets what it has failed at again only when all others have, after a pause. What a
 * process waits for is given to a second maker as well when the first takes much longer than usual:
 * who is done first counts, and the first one's failure does not. Then call fth_scheduler_evict(),
 * which makes the room that was counted on. */
bool fth_scheduler_take(fth_scheduler *scheduler, const char *prefetcher, double now_s, fth_order *order);
void fth_scheduler_done(fth_scheduler *scheduler, const fth_order *order, const fth_prefetch_result *result,
                        double now_s);
/* Tried again, by another maker where possible, max_tries times in all; then failed, with the
 * cause, until all jobs have passed it or one begins again before it. FTH_NO_MEMORY, which is the
 * cache's, is tried ten times as often; FTH_INVALID, FTH_UNSUPPORTED and FTH_NO_SPACE (larger than
 * the whole cache) not again. True: failed for good. */
bool fth_scheduler_failed(fth_scheduler *scheduler, const fth_order *order, const char *prefetcher, fth_status status,
                          const char *reason, double now_s);
/* Of entries that a cache has from before. */
void fth_scheduler_found(fth_scheduler *scheduler, const fth_receipt *receipt);
/* The cache has lost it (a server was restarted, an entry was damaged). */
void fth_scheduler_lost(fth_scheduler *scheduler, fth_item_id id);
/* Whether some process comes to an item within its window. */
bool fth_scheduler_needs(const fth_scheduler *scheduler, fth_item_id id);
/* Why there has been no room for an item that is to be prepared, more than once; NULL: there was,
 * or it was not tried. Lent until the next call. */
const char *fth_scheduler_lacks_room(const fth_scheduler *scheduler, fth_item_id id);
/* `receipt` of what is ready, and `reason` of what has failed (lent until the next call), may be
 * NULL. */
fth_item_state fth_scheduler_state(const fth_scheduler *scheduler, fth_item_id id, fth_receipt *receipt,
                                   const char **reason);
/* Up to `room` ids to drop now, so that memory is kept and at least `needed_bytes` become free (0:
 * the limit is enough). They are forgotten. */
size_t fth_scheduler_evict(fth_scheduler *scheduler, uint64_t needed_bytes, double now_s, fth_item_id *ids,
                           size_t room);
/* When take() has something for somebody: now, or, if nothing happens before, at most a second
 * later. For timers. */
double fth_scheduler_next_event(fth_scheduler *scheduler, double now_s);

/* ---- what is cached for a job, and where one that joins begins ---- */

/* By measured cost; `why` says it in a line, with the figures. `files`: samples are image files.
 * Before add_job. */
fth_cache_format fth_scheduler_choose_format(const fth_scheduler *scheduler, const fth_job_spec *spec,
                                             int64_t set_count, bool files, char why[256]);
/* Samples by which a job's epochs begin later, so that it joins the others where they are; 0 where
 * nothing is shared. Where all that the others have had since the beginning of an epoch is still
 * there, it begins with that epoch: the first such. */
int64_t fth_scheduler_choose_rotation(const fth_scheduler *scheduler, const fth_job_spec *spec, int64_t set_count);

/* ---- figures ---- */
typedef struct fth_scheduler_figures {
    uint64_t memory_bytes, ready_items, ready_bytes, making, waiting, failed; /* now */
    uint64_t prepared, evicted, lost, tried_again, failed_for_good;           /* in all */
    uint64_t decoded_images, fetched_bytes, bad_samples;
    double fetch_s, decode_s, transform_s;
} fth_scheduler_figures;
void fth_scheduler_get_figures(const fth_scheduler *scheduler, fth_scheduler_figures *figures);

typedef struct fth_scheduler_job_figures {
    int64_t position;           /* the first batch that some process of it still needs */
    int64_t ready_ahead;        /* batches from there on that are ready, in a row, all processes together */
    double pace;                /* batches a second; 0: not known */
    uint64_t decoded_for_it;    /* images that were decoded because it came first */
    uint64_t decoded_by_others; /* that it used, decoded because of another job */
} fth_scheduler_job_figures;
/* False: no such job. */
bool fth_scheduler_get_job_figures(const fth_scheduler *scheduler, uint64_t job, fth_scheduler_job_figures *figures);

#endif
