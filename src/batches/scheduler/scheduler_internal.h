/* What the scheduler's files share. Who owns what:
 *
 *     scheduler_items.c    the table of known items, by id; their states, sizes, and lists of those that nobody needs
 * soon scheduler_jobs.c     jobs, and groups of items that they have in common scheduler_consumers.c  the processes of
 * jobs (consumers), and the needs that connect them with items scheduler_makers.c   who prepares items, and what they
 * failed at scheduler_evict.c    what is dropped scheduler_advice.c   measured costs, and what they advise scheduler.c
 * the events
 *
 * Records are in pools and refer to each other by index, from 1 on; 0 is none. A pool may move when
 * it grows: an index stays valid, a pointer into it does not. */
#ifndef FTH_BATCHES_SCHEDULER_INTERNAL_H
#define FTH_BATCHES_SCHEDULER_INTERNAL_H

#include "batches/scheduler/scheduler.h"

/* ---- items ---- */

/* Ready items that no consumer comes to within its lookahead, in the order in which they were put
 * there. */
typedef enum fth_item_list {
    FTH_LIST_NONE,
    FTH_LIST_SPENT, /* no job will ask for it */
    FTH_LIST_FOUND, /* of a cache from before; no job is known that asks for it */
    FTH_LIST_LATER, /* a job comes to it later */
    FTH_LISTS
} fth_item_list;

typedef struct fth_known_item {
    fth_item_id id;
    uint64_t size_bytes; /* while it is being made: what is expected */
    uint64_t checksum;
    uint64_t job;          /* for which it was made */
    double taken_s;        /* when it was given to a maker */
    int64_t place;         /* the sample; or where in the order of its group the batch begins, over all epochs */
    uint32_t next;         /* in its bucket, or in the list of free records */
    uint32_t needs;        /* the first */
    uint32_t newer, older; /* in its list */
    uint32_t group;        /* 0: not known, and then it has no needs */
    uint32_t decoded;      /* images that were decoded for it */
    uint32_t failure;
    uint8_t state, kind, list;
    uint8_t prefetcher; /* who was given it last */
    bool wanted;
} fth_known_item;

typedef struct fth_item_table {
    fth_known_item *items;
    uint32_t count, capacity, free; /* records in use or freed; room; the first that is free */
    uint32_t *buckets, bucket_mask;
    uint32_t oldest[FTH_LISTS], newest[FTH_LISTS];
    uint64_t list_bytes[FTH_LISTS];
    uint64_t counts[FTH_ITEM_FAILED + 1], bytes[FTH_ITEM_FAILED + 1]; /* by state */
} fth_item_table;

void fth_item_table_release(fth_item_table *table);
uint32_t fth_item_table_find(const fth_item_table *table, fth_item_id id);
/* The item of that id, which may be new: unknown state. 0: no memory. */
uint32_t fth_item_table_add(fth_item_table *table, fth_item_id id);
void fth_item_table_forget(fth_item_table *table, uint32_t item);
void fth_item_table_set_state(fth_item_table *table, uint32_t item, fth_item_state state, uint64_t size_bytes);
void fth_item_table_move(fth_item_table *table, uint32_t item, fth_item_list list);
/* Bytes of entries that are there or being made. */
uint64_t fth_item_table_used(const fth_item_table *table);

/* ---- groups, jobs, consumers, needs ---- */

/* Which item a batch of a sequence is, so that only the first of several equal jobs has to find its
 * samples. */
typedef struct fth_batch_memo {
    int64_t place, whole;
    uint32_t item; /* 0: none */
} fth_batch_memo;

/* Items of one kind that jobs may have in common: the samples of a split, or the batches of a
 * sequence. */
typedef struct fth_item_group {
    fth_item_id signature; /* zero: unused */
    fth_item_kind kind;
    bool recurring;        /* they come again every epoch */
    int64_t set_count;     /* samples of the split */
    uint32_t *samples;     /* item of each sample; of batches NULL */
    fth_batch_memo *memos; /* by place; of samples NULL */
    int jobs, making;
    uint64_t made;
    double mean_bytes; /* of an item; 0: not known */
    double order_s;    /* from taking an order to its end */
} fth_item_group;

typedef struct fth_scheduled_job {
    uint64_t id;
    uint32_t group;
    fth_job_spec spec;
    int64_t set_count, per_epoch;
    fth_item_kind kind;
    struct fth_consumer **consumers;
    size_t consumer_count, consumer_capacity;
    int64_t position;  /* of a job without consumers: where it was */
    double left_s;     /* when the last consumer left, or it was added */
    bool expired;      /* it has had no consumers for long */
    char refusal[160]; /* why nothing is prepared for it; "": it is */
    bool refusal_told;
    uint64_t decoded_for_it, decoded_by_others;
    int64_t *plan; /* (batch): room for a plan's samples */
} fth_scheduled_job;

/* A batch that a consumer comes to. */
typedef struct fth_consumer_step {
    uint32_t needs;   /* the first */
    uint32_t untried; /* the first whose item may have to be prepared; 0: none */
    uint32_t missing; /* needs whose item is not ready */
} fth_consumer_step;

/* A process of a job. Its steps are numbered in turn, modulo 2^32; those from `first` to before
 * `end_turn` are known, in a ring. */
typedef struct fth_consumer {
    fth_scheduled_job *job;
    uint32_t index; /* among the scheduler's consumers */
    int process;
    bool fresh; /* its window is opened for the first time, or after a jump */
    int64_t next, stride, end;
    fth_consumer_step *steps;
    uint32_t step_capacity; /* a power of two */
    uint32_t first, end_turn,
        untried;       /* the step of `next`; after the last; the first that may have something to prepare */
    double interval_s; /* between batches, waits left out; 0: not known */
    double moved_s;
    double asked_s;    /* when it began to wait for its next batch; 0: it has not */
    double answered_s; /* and when that was ready */
    double waiting_s,
        waited_s; /* since when it waits for an item, 0: it does not; for how long it has waited since it moved */
} fth_consumer;

/* A step's use of an item. */
typedef struct fth_item_need {
    uint32_t item;
    uint32_t previous, next; /* needs of the same item */
    uint32_t sibling;        /* the next need of the same step */
    uint32_t consumer, turn;
} fth_item_need;

/* ---- makers ---- */

enum {
    FTH_MAX_PREFETCHERS = 64,
    FTH_PREFETCHER_NAME = 128,
    FTH_ANY_PREFETCHER = -1 /* one that has failed at nothing */
};

typedef struct fth_item_failure {
    uint64_t prefetchers;   /* who failed at it, a bit each */
    int tries, lacked_room; /* the cache's failures are counted apart */
    double retry_s;
    fth_status status;
    char reason[480];
} fth_item_failure;

typedef struct fth_prefetcher_list {
    char names[FTH_MAX_PREFETCHERS][FTH_PREFETCHER_NAME];
    double seen_s[FTH_MAX_PREFETCHERS];
    int count;
    fth_item_failure **failures; /* by index less 1; NULL: free */
    size_t failure_count, failure_capacity;
    uint32_t *again; /* items to be tried again */
    size_t again_count, again_capacity;
} fth_prefetcher_list;

int fth_prefetcher_list_find(fth_prefetcher_list *prefetchers, const char *name, double now_s);
/* The item's trouble, made if it has none; NULL: no memory. */
fth_item_failure *fth_item_failure_add(fth_scheduler *scheduler, uint32_t item);
void fth_item_failure_forget(fth_scheduler *scheduler, uint32_t item);
/* Whether there is a maker at work other than this one. */
bool fth_prefetcher_list_has_other(const fth_prefetcher_list *prefetchers, int prefetcher, double now_s);
/* Whether this maker may try it (again) now. */
bool fth_prefetcher_may_try(const fth_scheduler *scheduler, uint32_t item, int prefetcher, double now_s);
/* When somebody may try something again, after now. */
double fth_prefetchers_next_try(const fth_scheduler *scheduler, double now_s);

/* ---- victims, costs ---- */

enum { FTH_MAX_EVICTION_CANDIDATES = 256 };

/* Items that are needed last, the last of all first; as of some time ago. */
typedef struct fth_eviction_candidates {
    struct {
        double needed_s;
        uint32_t item;
    } list[FTH_MAX_EVICTION_CANDIDATES];
    size_t count, at;
    double made_s;
} fth_eviction_candidates;

/* Means over items of a kind, for one sample. */
typedef struct fth_costs {
    int64_t samples;
    double fetch_s, decode_s, transform_s, bytes, fetched_bytes;
} fth_costs;

struct fth_scheduler {
    fth_scheduler_options options;
    double now_s; /* the latest that an event had */
    fth_item_table items;
    fth_prefetcher_list prefetchers;
    fth_eviction_candidates candidates;
    fth_scheduled_job **jobs; /* by id */
    size_t job_count, job_capacity;
    fth_consumer **consumers; /* some NULL */
    size_t consumer_count, consumer_capacity;
    fth_item_group *groups; /* by index less 1 */
    size_t group_count, group_capacity;
    fth_item_need *needs;
    uint32_t need_count, need_capacity, free_need;
    uint32_t *wanted;
    size_t wanted_count, wanted_capacity;
    fth_costs costs[FTH_ITEM_KINDS];
    fth_scheduler_figures totals;
};

/* ---- scheduler_jobs.c ---- */
fth_scheduled_job *fth_scheduler_find_job(const fth_scheduler *scheduler, uint64_t id);
fth_item_group *fth_scheduler_group(const fth_scheduler *scheduler, uint32_t number); /* NULL for 0 */
bool fth_job_is_active(const fth_scheduled_job *job);                                 /* it has consumers */
/* The first batch that it still needs. */
int64_t fth_job_position(const fth_scheduled_job *job);
/* Where in the order of its group a batch begins, in samples, over all epochs. */
int64_t fth_job_place(const fth_scheduled_job *job, int64_t number);
/* Samples of all parts of a batch. */
int64_t fth_job_whole(const fth_scheduled_job *job, int64_t number);
/* The item, which may be new: of unknown state. 0: no memory. */
uint32_t fth_job_find_sample(fth_scheduler *scheduler, const fth_scheduled_job *job, int64_t sample);
uint32_t fth_job_find_batch(fth_scheduler *scheduler, const fth_scheduled_job *job, int64_t number);
/* An item without needs: forgotten, or put in a list. */
void fth_item_settle(fth_scheduler *scheduler, uint32_t item);
void fth_item_drop(fth_scheduler *scheduler, uint32_t item); /* forgotten, with all that belongs to it */
void fth_jobs_expire(fth_scheduler *scheduler);
/* Prepares nothing more for the jobs of a group whose batches are larger than the memory, as far as
 * is known; or for all of them, for a `reason`. */
void fth_jobs_refuse_too_large(fth_scheduler *scheduler, uint32_t group);
void fth_jobs_refuse(fth_scheduler *scheduler, uint32_t group, const char *reason);
void fth_jobs_release(fth_scheduler *scheduler);

/* ---- scheduler_consumers.c ---- */
void fth_consumer_close(fth_scheduler *scheduler, fth_consumer *consumer);
/* Takes all batches out of its window. */
void fth_consumer_clear(fth_scheduler *scheduler, fth_consumer *consumer);
/* How long before it is needed an item must be begun. */
double fth_consumer_lead_s(const fth_scheduler *scheduler, const fth_consumer *consumer);
/* When a consumer is expected at a step. */
double fth_consumer_time(const fth_scheduler *scheduler, const fth_consumer *consumer, uint32_t turn);
/* When an item is needed next; it has needs. */
double fth_item_needed_s(const fth_scheduler *scheduler, uint32_t item, uint32_t *need);
int64_t fth_consumer_number(const fth_consumer *consumer, uint32_t turn);
/* The consumer's next item to prepare, of those that nobody failed at; 0: none. */
uint32_t fth_consumer_candidate(fth_scheduler *scheduler, fth_consumer *consumer);
/* An item becomes ready, or is no longer: for those who need it. */
void fth_needs_ready(fth_scheduler *scheduler, uint32_t item);
void fth_needs_missing(fth_scheduler *scheduler, uint32_t item);
/* An item is to be prepared again: who needs it looks at it again. */
void fth_needs_rewind(fth_scheduler *scheduler, uint32_t item);
void fth_consumers_release(fth_scheduler *scheduler);

/* ---- scheduler_evict.c ---- */
/* How urgent an item is that is to be prepared. */
typedef enum fth_urgency {
    FTH_AHEAD, /* it has time */
    FTH_SOON,  /* it must be begun now, to be there in time */
    FTH_NOW    /* somebody waits for it */
} fth_urgency;
/* Whether there is room for an item that is needed at that time, or would be if something less
 * urgent went. */
bool fth_scheduler_has_room(fth_scheduler *scheduler, uint64_t size_bytes, double needed_s, fth_urgency urgency);

/* ---- scheduler_advice.c ---- */
void fth_costs_add(fth_costs *costs, const fth_prefetch_result *result);
uint64_t fth_scheduler_expected_bytes(const fth_scheduler *scheduler, const fth_known_item *item);

#endif
