/* The scheduler: what to prepare next, what to keep, what to drop. It has no clock, thread, socket or memory of its own to fill: tests
 * run through courses of events. The coordinator calls it under its lock.
 *
 * For each job it knows where its processes are and how fast they go, and from its spec which items come next. An item is
 * needed at the earliest time at which any job will ask for it. Items are prepared in the order of need, as far ahead as memory
 * allows; when memory is short, what is needed last, or by nobody, goes first. An item is prepared once, however
 * many jobs need it, and is kept until all of them have passed it, unless memory is short.
 *
 * Nothing in it decides what a job gets, only when: order and contents are the spec's. */
#ifndef FTH_BATCHES_SCHEDULER_H
#define FTH_BATCHES_SCHEDULER_H

#include "batches/job.h"
#include "batches/prepare.h"

typedef struct fth_scheduler fth_scheduler;
typedef struct fth_scheduler_options {
    uint64_t memory_bytes;
    int max_tries;      /* of an item, before its failure is given to the jobs; 0: 3 */
    double lookahead_s; /* how far ahead of need items are prepared, where memory allows; 0: 10 */
} fth_scheduler_options;

fth_status fth_scheduler_create(const fth_scheduler_options *options, fth_scheduler **scheduler);
void fth_scheduler_free(fth_scheduler *scheduler);

/* ---- jobs ---- */
fth_status fth_scheduler_add_job(fth_scheduler *scheduler, uint64_t job, const fth_job_spec *spec, int64_t set_count,
                                 double now_s);
void fth_scheduler_remove_job(fth_scheduler *scheduler, uint64_t job);
/* One process of a job needs next, next + stride, ... below end (0: none). */
void fth_scheduler_set_position(fth_scheduler *scheduler, uint64_t job, int process, int64_t next, int64_t stride,
                                int64_t end, double now_s);
void fth_scheduler_remove_process(fth_scheduler *scheduler, uint64_t job, int process);
double fth_scheduler_pace(const fth_scheduler *scheduler, uint64_t job); /* batches a second; 0: not known */
/* A process waits for it: it comes before everything else. */
void fth_scheduler_want(fth_scheduler *scheduler, uint64_t job, fth_item_id id, double now_s);

/* ---- items ---- */
typedef enum fth_item_state {
    FTH_ITEM_UNKNOWN,
    FTH_ITEM_WAITING,
    FTH_ITEM_BEING_MADE,
    FTH_ITEM_READY,
    FTH_ITEM_FAILED
} fth_item_state;
/* The next item to prepare, for `maker`, who has not failed at it; false: none is due. It is then being made. */
bool fth_scheduler_take(fth_scheduler *scheduler, const char *maker, double now_s, fth_order *order);
void fth_scheduler_done(fth_scheduler *scheduler, const fth_order *order, const fth_preparation *preparation,
                        double now_s);
/* Tried again by somebody else, max_tries times in all; then failed, with the cause. True: failed for good. */
bool fth_scheduler_failed(fth_scheduler *scheduler, const fth_order *order, const char *maker, fth_status status,
                          const char *reason, double now_s);
/* Of entries that a cache has from before. */
void fth_scheduler_found(fth_scheduler *scheduler, const fth_receipt *receipt);
/* The cache has lost it (a server was restarted, an entry was damaged). */
void fth_scheduler_lost(fth_scheduler *scheduler, fth_item_id id);
fth_item_state fth_scheduler_state(const fth_scheduler *scheduler, fth_item_id id, fth_receipt *receipt,
                                   const char **reason);
/* Up to `room` ids to drop now: what nobody needs, and, for at least `needed_bytes`, what is needed last. They are forgotten. */
size_t fth_scheduler_evict(fth_scheduler *scheduler, uint64_t needed_bytes, double now_s, fth_item_id *ids,
                           size_t room);
double fth_scheduler_next_event(const fth_scheduler *scheduler,
                                double now_s); /* when take() may have something; for timers */

/* ---- what is cached for a job, and where one that joins begins ---- */
/* By measured cost; `why` says it in a line, with the figures. Before add_job. */
fth_form fth_scheduler_choose_form(const fth_scheduler *scheduler, const fth_job_spec *spec, int64_t set_count,
                                   char why[256]);
/* Samples by which a job's epochs begin later, so that it joins the others where they are; 0 where nothing is shared. */
int64_t fth_scheduler_choose_rotation(const fth_scheduler *scheduler, const fth_job_spec *spec, int64_t set_count);

/* ---- figures ---- */
typedef struct fth_scheduler_figures {
    uint64_t ready_items, ready_bytes, making, waiting, failed, prepared, evicted, tried_again;
    uint64_t decoded_images; /* in all; and those that more than one job used */
    double fetch_s, decode_s, transform_s;
} fth_scheduler_figures;
void fth_scheduler_get_figures(const fth_scheduler *scheduler, fth_scheduler_figures *figures);

#endif
