/* Preparing items: fetch, decode, transform, collate; the same in the coordinator's threads, in
 * workers on other machines and in functions, bit for bit what the loader of a run without the
 * cache makes.
 *
 * A batch is made in place, in room that the cache gives, by one thread or by several that each
 * take pieces of it. It is put only once all of it is right. A sample that cannot be read, whoever
 * tries, is a bad image: in a batch the next readable sample takes its place, as in a loader, and
 * the batch says so; as an item of its own it says why. Anything else that fails (a store that does
 * not answer, no memory) fails the order, and leaves nothing in the cache. */
#ifndef FTH_BATCHES_PREPARE_H
#define FTH_BATCHES_PREPARE_H

#include <stdatomic.h>

#include "batches/cache/cache.h"
#include "batches/job.h"

/* What is to be made. */
typedef struct fth_order {
    fth_item_id id;
    fth_item_kind kind;
    fth_job_spec spec; /* of a job that needs it */
    int64_t number;    /* the batch; or the sample */
    double needed_s;   /* when it is needed, by this process's fth_clock_seconds(); 0: at once */
} fth_order;
json_t *fth_order_save(const fth_order *order);
/* Checks that a sample's id is that of the rest; a batch's is checked by who has the data set. */
fth_status fth_order_load(const json_t *json, fth_order *order);

/* [ID, SIZE, "CHECKSUM as 16 hex digits"] */
json_t *fth_receipt_save(const fth_receipt *receipt);
fth_status fth_receipt_load(const json_t *json, fth_receipt *receipt);

/* What it cost. */
typedef struct fth_prefetch_result {
    fth_receipt receipt;
    double fetch_s, decode_s, transform_s; /* of all threads together */
    uint64_t fetched_bytes;
    int64_t samples, decoded;            /* samples in it; images that were decoded for it */
    int64_t bad;                         /* samples that cannot be read */
    char bad_name[160], bad_reason[160]; /* of the first */
} fth_prefetch_result;
/* {"receipt":[ID, SIZE, "CHECKSUM as 16 hex digits"], and the other members by their names}. */
json_t *fth_prefetch_result_save(const fth_prefetch_result *result);
fth_status fth_prefetch_result_load(const json_t *json, fth_prefetch_result *result);

typedef struct fth_prefetch_set fth_prefetch_set;     /* a data set; any thread */
typedef struct fth_prefetch_tools fth_prefetch_tools; /* one thread's tools */

/* `address` as --data has it. */
fth_status fth_prefetch_set_open(const char *address, const fth_dataset_options *options, fth_prefetch_set **set);
void fth_prefetch_set_free(fth_prefetch_set *set);
const fth_dataset *fth_prefetch_set_dataset(const fth_prefetch_set *set);
const char *fth_prefetch_set_version(const fth_prefetch_set *set);

/* Once *stop (may be NULL) is set, what it fetches ends with FTH_INTERRUPTED. */
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
