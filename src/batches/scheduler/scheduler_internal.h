/* Shared by the scheduler's files:
 *
 *     scheduler_items.c        the table of items by id: states, sizes, lists of unneeded items
 *     scheduler_jobs.c         jobs, and the groups of items that they share
 *     scheduler_consumers.c    the processes of jobs, and the needs that connect them with items
 *     scheduler_prefetchers.c  the prefetchers, and their failures
 *     scheduler_evict.c        eviction
 *     scheduler_advice.c       measured costs, and the choices they lead to
 *     scheduler.c              the events
 *
 * Records are in pools and refer to each other by index, starting at 1; 0 is none. A pool may move
 * when it grows: indices stay valid, pointers into it do not. */
#ifndef FTH_BATCHES_SCHEDULER_INTERNAL_H
#define FTH_BATCHES_SCHEDULER_INTERNAL_H

#include "batches/scheduler/scheduler.h"

/* ---- items ---- */

/* Ready items outside all windows, in the order in which they were added. */
typedef enum fth_item_list {
    FTH_LIST_NONE,
    FTH_LIST_SPENT, /* no job will need it */
    FTH_LIST_FOUND, /* in the cache from the start; no known job needs it */
    FTH_LIST_LATER, /* a job needs it later */
    FTH_LISTS
} fth_item_list;

typedef struct fth_known_item {
    fth_item_id id;
    uint64_t size_bytes; /* while it is being made: the expected size */
    uint64_t checksum;
    uint64_t job;          /* for which it was made */
    double taken_s;        /* when a prefetcher took it */
    int64_t place;         /* the sample; or the position of the batch in the order of its group, over all epochs */
    uint32_t next;         /* in its bucket, or among free records */
    uint32_t needs;        /* the first */
    uint32_t newer, older; /* in its list */
    uint32_t group;        /* 0: unknown, and it has no needs */
    uint32_t decoded;      /* images that were decoded for it */
    uint32_t failure;
    uint8_t state, kind, list;
    uint8_t prefetcher; /* which last took it */
    bool wanted;
} fth_known_item;

typedef struct fth_item_table {
    fth_known_item *items;
    uint32_t count, capacity, free; /* records in use or freed; capacity; the first free one */
    uint32_t *buckets, bucket_mask;
    uint32_t oldest[FTH_LISTS], newest[FTH_LISTS];
    uint64_t list_bytes[FTH_LISTS];
    uint64_t counts[FTH_ITEM_FAILED + 1], bytes[FTH_ITEM_FAILED + 1]; /* by state */
} fth_item_table;

void fth_item_table_release(fth_item_table *table);
uint32_t fth_item_table_find(const fth_item_table *table, fth_item_id id);
/* The item of that id, which may be new, in unknown state. 0: no memory. */
uint32_t fth_item_table_add(fth_item_table *table, fth_item_id id);
void fth_item_table_forget(fth_item_table *table, uint32_t item);
void fth_item_table_set_state(fth_item_table *table, uint32_t item, fth_item_state state, uint64_t size_bytes);
void fth_item_table_move(fth_item_table *table, uint32_t item, fth_item_list list);
/* Bytes of entries that are ready or in progress. */
uint64_t fth_item_table_used(const fth_item_table *table);

/* ---- groups, jobs, consumers, needs ---- */

/* The item of a batch, so that only the first of several equal jobs computes its samples. */
typedef struct fth_batch_memo {
    int64_t place, whole;
    uint32_t item; /* 0: none */
} fth_batch_memo;

/* Items of one kind that jobs may share: the samples of a split, or the batches of a sequence. */
typedef struct fth_item_group {
    fth_item_id signature; /* zero: unused */
    fth_item_kind kind;
    bool recurring;        /* needed again in every epoch */
    int64_t set_count;     /* samples of the split */
    uint32_t *samples;     /* item of each sample; NULL for batches */
    fth_batch_memo *memos; /* by place; NULL for samples */
    int jobs, making;
    uint64_t made;
    double mean_bytes; /* of an item; 0: unknown */
    double order_s;    /* time from taking an order to its end */
} fth_item_group;

typedef struct fth_scheduled_job {
    uint64_t id;
    uint32_t group;
    fth_job_spec spec;
    int64_t set_count, per_epoch;
    fth_item_kind kind;
    struct fth_consumer **consumers;
    size_t consumer_count, consumer_capacity;
    int64_t position;  /* of a job without consumers: its last position */
    double left_s;     /* when the last consumer left, or the job was added */
    bool expired;      /* it has been without consumers for long */
    char refusal[160]; /* why nothing is made for it; "": no reason */
    bool refusal_told;
    uint64_t decoded_for_it, decoded_by_others;
    int64_t *plan; /* (batch): room for a plan's samples */
} fth_scheduled_job;

/* A batch in a consumer's window. */
typedef struct fth_consumer_step {
    uint32_t needs;   /* the first */
    uint32_t untried; /* the first whose item may have to be made; 0: none */
    uint32_t missing; /* needs whose item is not ready */
} fth_consumer_step;

/* A process of a job. Its steps are numbered modulo 2^32; those from `first` to before `end_turn`
 * are in a ring. */
typedef struct fth_consumer {
    fth_scheduled_job *job;
    uint32_t index; /* among the scheduler's consumers */
    int process;
    bool fresh; /* its window is new, or follows a jump */
    int64_t next, stride, end;
    fth_consumer_step *steps;
    uint32_t step_capacity;            /* a power of two */
    uint32_t first, end_turn, untried; /* the step of `next`; after the last; the first that may have an item to make */
    double interval_s;                 /* between batches, without waits; 0: unknown */
    double moved_s;
    double asked_s;             /* when it began to wait for its next batch; 0: it does not wait */
    double answered_s;          /* and when that was ready */
    double waiting_s, waited_s; /* when it began to wait for an item, 0: it does not; total wait since it last moved */
} fth_consumer;

/* The use of an item by a step. */
typedef struct fth_item_need {
    uint32_t item;
    uint32_t previous, next; /* needs of the same item */
    uint32_t sibling;        /* the next need of the same step */
    uint32_t consumer, turn;
} fth_item_need;

/* ---- prefetchers ---- */

enum {
    FTH_MAX_PREFETCHERS = 64,
    FTH_PREFETCHER_NAME = 128,
    FTH_ANY_PREFETCHER = -1 /* a prefetcher without failures */
};

typedef struct fth_item_failure {
    uint64_t prefetchers;   /* which failed at it, one bit each */
    int tries, lacked_room; /* the cache's failures are counted separately */
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
    uint32_t *again; /* items with failures */
    size_t again_count, again_capacity;
} fth_prefetcher_list;

int fth_prefetcher_list_find(fth_prefetcher_list *prefetchers, const char *name, double now_s);
/* The item's failure record, created if necessary; NULL: no memory. */
fth_item_failure *fth_item_failure_add(fth_scheduler *scheduler, uint32_t item);
void fth_item_failure_forget(fth_scheduler *scheduler, uint32_t item);
/* Whether another prefetcher is active. */
bool fth_prefetcher_list_has_other(const fth_prefetcher_list *prefetchers, int prefetcher, double now_s);
/* Whether this prefetcher may try the item now. */
bool fth_prefetcher_may_try(const fth_scheduler *scheduler, uint32_t item, int prefetcher, double now_s);
/* The next time, after now, at which some prefetcher may retry an item. */
double fth_prefetchers_next_try(const fth_scheduler *scheduler, double now_s);

/* ---- eviction, costs ---- */

enum { FTH_MAX_EVICTION_CANDIDATES = 256 };

/* Items needed last, in descending order of need, as of some time ago. */
typedef struct fth_eviction_candidates {
    struct {
        double needed_s;
        uint32_t item;
    } list[FTH_MAX_EVICTION_CANDIDATES];
    size_t count, at;
    double made_s;
} fth_eviction_candidates;

/* Mean cost of a sample, over items of one kind. */
typedef struct fth_costs {
    int64_t samples;
    double fetch_s, decode_s, transform_s, bytes, fetched_bytes;
} fth_costs;

struct fth_scheduler {
    fth_scheduler_options options;
    double now_s; /* the latest time of any event */
    fth_item_table items;
    fth_prefetcher_list prefetchers;
    fth_eviction_candidates candidates;
    fth_scheduled_job **jobs; /* by id */
    size_t job_count, job_capacity;
    fth_consumer **consumers; /* some NULL */
    size_t consumer_count, consumer_capacity;
    fth_item_group *groups; /* by index less 1 */
    size_t group_count, group_capacity;
    struct {
        fth_item_need *at;
        uint32_t count, capacity, unused; /* unused: the first of a list of free ones; 0: none */
    } needs;
    struct {
        uint32_t *items;
        size_t count, capacity;
    } wanted;
    fth_costs costs[FTH_ITEM_KINDS];
    fth_scheduler_figures totals;
};

/* ---- scheduler_jobs.c ---- */
fth_scheduled_job *fth_scheduler_find_job(const fth_scheduler *scheduler, uint64_t id);
fth_item_group *fth_scheduler_group(const fth_scheduler *scheduler, uint32_t number); /* NULL for 0 */
bool fth_job_is_active(const fth_scheduled_job *job);                                 /* it has consumers */
/* The first batch that it still needs. */
int64_t fth_job_position(const fth_scheduled_job *job);
/* The position of a batch in the order of its group, in samples, over all epochs. */
int64_t fth_job_place(const fth_scheduled_job *job, int64_t number);
/* Samples of a batch, over all parts. */
int64_t fth_job_whole(const fth_scheduled_job *job, int64_t number);
/* The item, which may be new, in unknown state. 0: no memory. */
uint32_t fth_job_find_sample(fth_scheduler *scheduler, const fth_scheduled_job *job, int64_t sample);
uint32_t fth_job_find_batch(fth_scheduler *scheduler, const fth_scheduled_job *job, int64_t number);
/* Handles an item that has lost its last need: forgets it, or lists it. */
void fth_item_settle(fth_scheduler *scheduler, uint32_t item);
void fth_item_drop(fth_scheduler *scheduler, uint32_t item); /* forgets it with all its records */
void fth_jobs_expire(fth_scheduler *scheduler);
/* Makes nothing more for the jobs of a group whose batches exceed the memory, as far as is known;
 * or, with a `reason`, for all its jobs. */
void fth_jobs_refuse_too_large(fth_scheduler *scheduler, uint32_t group);
void fth_jobs_refuse(fth_scheduler *scheduler, uint32_t group, const char *reason);
void fth_jobs_release(fth_scheduler *scheduler);

/* ---- scheduler_consumers.c ---- */
void fth_consumer_close(fth_scheduler *scheduler, fth_consumer *consumer);
/* Removes all batches from its window. */
void fth_consumer_clear(fth_scheduler *scheduler, fth_consumer *consumer);
/* How long before its need an item must be begun. */
double fth_consumer_lead_s(const fth_scheduler *scheduler, const fth_consumer *consumer);
/* When a consumer is expected at a step. */
double fth_consumer_time(const fth_scheduler *scheduler, const fth_consumer *consumer, uint32_t turn);
/* When an item, which has needs, is needed next. */
double fth_item_needed_s(const fth_scheduler *scheduler, uint32_t item, uint32_t *need);
int64_t fth_consumer_number(const fth_consumer *consumer, uint32_t turn);
/* The consumer's next item to make, among those without failures; 0: none. */
uint32_t fth_consumer_candidate(fth_scheduler *scheduler, fth_consumer *consumer);
/* Tells consumers that an item becomes ready, or no longer is. */
void fth_needs_ready(fth_scheduler *scheduler, uint32_t item);
void fth_needs_missing(fth_scheduler *scheduler, uint32_t item);
/* Has consumers consider an item again that must be made again. */
void fth_needs_rewind(fth_scheduler *scheduler, uint32_t item);
void fth_consumers_release(fth_scheduler *scheduler);

/* ---- scheduler_evict.c ---- */
/* The urgency of an item to be made. */
typedef enum fth_urgency {
    FTH_AHEAD, /* there is time */
    FTH_SOON,  /* must be begun now to be ready in time */
    FTH_NOW    /* a process waits for it */
} fth_urgency;
/* Whether there is room for an item needed at that time, perhaps after dropping less urgent
 * ones. */
bool fth_scheduler_has_room(fth_scheduler *scheduler, uint64_t size_bytes, double needed_s, fth_urgency urgency);

/* ---- scheduler_advice.c ---- */
void fth_costs_add(fth_costs *costs, const fth_prefetch_result *result);
uint64_t fth_scheduler_expected_bytes(const fth_scheduler *scheduler, const fth_known_item *item);

#endif
