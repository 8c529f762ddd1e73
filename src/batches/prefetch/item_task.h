/* Making items: fetch, decode, transform, collate. The coordinator's threads, workers on other
 * machines and functions all do this, bit for bit as the loader of a run without the cache.
 *
 * A batch is made in place, in the cache's memory, by one or several threads that take pieces of
 * it. It is put only when it is complete. A sample that nobody can read is a bad image: in a batch
 * the next readable sample replaces it, as in a loader, and the batch lists it; as an item of its
 * own it holds the cause. Any other failure (a store that does not answer, no memory) fails the
 * order and leaves nothing in the cache. */
#ifndef FTH_BATCHES_PREPARE_H
#define FTH_BATCHES_PREPARE_H

#include <stdatomic.h>

#include "batches/cache/cache.h"
#include "batches/job.h"

/* An item to be made. */
typedef struct fth_order {
    fth_item_id id;
    fth_item_kind kind;
    fth_job_spec spec; /* of a job that needs it */
    int64_t number;    /* number of the batch or sample */
    double needed_s;   /* time of need by this process's fth_clock_seconds(); 0: at once */
} fth_order;
json_t *fth_order_save(const fth_order *order);
/* Checks a sample's id against the rest. A batch's id is checked where the data set is open. */
fth_status fth_order_load(const json_t *json, fth_order *order);

/* [ID, SIZE, "CHECKSUM as 16 hex digits"] */
json_t *fth_receipt_save(const fth_receipt *receipt);
fth_status fth_receipt_load(const json_t *json, fth_receipt *receipt);

/* A finished item and its cost. */
typedef struct fth_prefetch_result {
    fth_receipt receipt;
    double fetch_s, decode_s, transform_s; /* summed over threads */
    uint64_t fetched_bytes;
    int64_t samples, decoded;            /* samples in it; images decoded for it */
    int64_t bad;                         /* unreadable samples */
    char bad_name[160], bad_reason[160]; /* of the first */
} fth_prefetch_result;
/* {"receipt":[ID, SIZE, "CHECKSUM as 16 hex digits"], and the other members by name}. */
json_t *fth_prefetch_result_save(const fth_prefetch_result *result);
fth_status fth_prefetch_result_load(const json_t *json, fth_prefetch_result *result);

typedef struct fth_prefetch_set fth_prefetch_set;     /* an open data set; any thread */
typedef struct fth_prefetch_tools fth_prefetch_tools; /* the tools of one thread */

/* `address` as --data has it. */
fth_status fth_prefetch_set_open(const char *address, const fth_dataset_options *options, fth_prefetch_set **set);
void fth_prefetch_set_free(fth_prefetch_set *set);
const fth_dataset *fth_prefetch_set_dataset(const fth_prefetch_set *set);
const char *fth_prefetch_set_version(const fth_prefetch_set *set);

/* Once *stop (may be NULL) is set, reads fail with FTH_INTERRUPTED. */
fth_status fth_prefetch_tools_create(fth_prefetch_set *set, const atomic_bool *stop, fth_prefetch_tools **thread);
void fth_prefetch_tools_free(fth_prefetch_tools *thread);
fth_prefetch_set *fth_prefetch_tools_set(const fth_prefetch_tools *thread);

/* Makes the item and puts it into the cache. Encoded samples that a batch needs come from there
 * too, where it has them. FTH_INVALID: the order is wrong, whoever has it. FTH_NO_MEMORY: no room
 * in the cache. FTH_IO (the data has another version here), FTH_PEER_LOST, FTH_TIMEOUT: worth
 * another try, here or elsewhere. */
fth_status fth_prepare(fth_prefetch_tools *thread, const fth_order *order, fth_cache *cache, fth_deadline deadline,
                       fth_prefetch_result *result);

/* ---- the same, by several threads ---- */

typedef struct fth_item_task fth_item_task;
fth_status fth_item_task_begin(fth_prefetch_tools *thread, const fth_order *order, fth_cache *cache,
                               fth_deadline deadline, fth_item_task **task);
/* Takes a piece, and makes it; false: none was left. Any number of threads, each with tools for the
 * same preparer. */
bool fth_item_task_run_piece(fth_item_task *task, fth_prefetch_tools *thread);
int64_t fth_item_task_left(const fth_item_task *task); /* samples that nobody has taken */
/* Nobody takes pieces any more, and it ends as FTH_INTERRUPTED. */
void fth_item_task_stop(fth_item_task *task);
/* When nobody helps any more: puts the item, or says why it could not be made. Frees it. */
fth_status fth_item_task_end(fth_item_task *task, fth_prefetch_result *result);

#endif
