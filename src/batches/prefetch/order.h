/* Orders, what they result in, and both as JSON, between the coordinator, its workers and
 * functions. Each member of what arrives is checked. */
#ifndef FTH_BATCHES_PREFETCH_ORDER_H
#define FTH_BATCHES_PREFETCH_ORDER_H

#include <jansson.h>

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

#endif
