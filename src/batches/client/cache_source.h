/* Where a job's session gets its items: by id, from the host of this machine, for as long as there
 * is one.
 *
 *     connected --(socket closed, or no answer)--> lost --(a thread registers again)--> connected
 *
 * Callers never wait for long: after PATIENCE_S without an item, or at once while the connection is
 * lost, they are told to read the data directly. Items in the memory of a host that is gone are
 * still found. Any thread. */
#ifndef FTH_BATCHES_CLIENT_CACHE_SOURCE_H
#define FTH_BATCHES_CLIENT_CACHE_SOURCE_H

#include "batches/client/client_connection.h"

typedef struct fth_cache_source fth_cache_source;

/* When a job must be registered: before the source is opened; then if that works, or else later; or
 * later in any case, since the host is known to be away. The last two require a complete spec. */
typedef enum fth_registration_time {
    FTH_REGISTER_NOW,
    FTH_REGISTER_NOW_OR_LATER,
    FTH_REGISTER_LATER
} fth_registration_time;

/* Registers a job and completes its `spec`; under the number `job` again if that is not 0 and still
 * free. `address` outlives the source. */
fth_status fth_cache_source_open(const fth_batches_address *address, fth_job_spec *spec, uint64_t job,
                                 fth_registration_time time, fth_deadline deadline, fth_cache_source **source);
bool fth_cache_source_is_connected(fth_cache_source *source);
/* Tells the host that the job is done. */
void fth_cache_source_close(fth_cache_source *source);
uint64_t fth_cache_source_job(fth_cache_source *source);
const char *fth_cache_source_why(const fth_cache_source *source); /* why the cache format was chosen */

typedef enum fth_cache_answer {
    FTH_CACHE_LEASED,  /* leased */
    FTH_CACHE_PENDING, /* ask again */
    FTH_CACHE_MISSED,  /* do not wait: read it directly, or ask again */
    FTH_CACHE_FAILED   /* it could not be made; the error message says why */
} fth_cache_answer;
fth_cache_answer fth_cache_source_get(fth_cache_source *source, fth_item_id id, fth_deadline deadline,
                                      fth_item_lease *lease);
/* Why the cache last failed to deliver an item that was waited for, and the status of that. "" and
 * FTH_OK: it has delivered since. */
fth_status fth_cache_source_explain(fth_cache_source *source, char *text, size_t size);
/* The same without waiting: true if the item is leased. */
bool fth_cache_source_look(fth_cache_source *source, fth_item_id id, fth_item_lease *lease);
/* Reports an item with wrong contents but a valid checksum. It is made again. */
void fth_cache_source_report_lost(fth_cache_source *source, fth_item_id id);

void fth_cache_source_set_position(fth_cache_source *source, int64_t next, int64_t stride, int64_t end);
void fth_cache_source_count(fth_cache_source *source, fth_slot_counter counter, uint64_t amount);
/* Adds the counters, and the coordinator's figures of the job if they arrive in time. */
void fth_cache_source_add_figures(fth_cache_source *source, fth_deadline deadline, fth_batches_figures *figures);
void fth_cache_source_abandon(fth_cache_source *source); /* in a forked process */

#endif
