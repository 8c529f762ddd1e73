/* What a loader's session has of the batch cache: items by their ids, for as long as there is a
 * host that gives them.
 *
 *     connected --(socket closed, or no answer)--> lost --(a thread of its own registers again)--> connected
 *
 * Who asks is never kept for long: after PATIENCE_S without anything from the cache, or at once
 * while the connection is lost, the answer is to read the data directly. What lies in the memory of
 * a host that has gone is still found. Any thread. */
#ifndef FTH_BATCHES_CLIENT_SUPPLY_H
#define FTH_BATCHES_CLIENT_SUPPLY_H

#include "batches/client/client_connection.h"

typedef struct fth_cache_source fth_cache_source;

/* When a supply must be registered: before it is opened; if that works, or else later; or later in
 * any case, since the host is known to be away. The last two need a spec that leaves nothing to be
 * chosen. */
typedef enum fth_registration_time {
    FTH_REGISTER_NOW,
    FTH_REGISTER_NOW_OR_LATER,
    FTH_REGISTER_LATER
} fth_registration_time;

/* Registers a job with `spec`, which becomes complete; under the number `job` again, if that is not
 * 0 and still free. The address must outlive it. */
fth_status fth_cache_source_open(const fth_batches_address *address, fth_job_spec *spec, uint64_t job,
                                 fth_registration_time time, fth_deadline deadline, fth_cache_source **source);
bool fth_cache_source_is_connected(fth_cache_source *source);
/* The job is done with it. */
void fth_cache_source_close(fth_cache_source *source);
uint64_t fth_cache_source_job(fth_cache_source *source);
const char *fth_cache_source_why(const fth_cache_source *source); /* that form was chosen */

typedef enum fth_cache_answer {
    FTH_CACHE_LEASED,  /* leased */
    FTH_CACHE_PENDING, /* ask again */
    FTH_CACHE_MISSED,  /* do not wait for it: read it yourself, or ask again */
    FTH_CACHE_FAILED   /* nobody could make it; the error message says why */
} fth_cache_answer;
fth_cache_answer fth_cache_source_get(fth_cache_source *source, fth_item_id id, fth_deadline deadline,
                                      fth_item_lease *lease);
/* Why the cache last failed to give something that was waited for, and the status of that; "" and
 * FTH_OK: it has not since it last did. */
fth_status fth_cache_source_explain(fth_cache_source *source, char *text, size_t size);
/* The same without waiting: true if it is leased. */
bool fth_cache_source_look(fth_cache_source *source, fth_item_id id, fth_item_lease *lease);
/* An item that is not what it should be, though its checksum is right: it is made again. */
void fth_cache_source_report_lost(fth_cache_source *source, fth_item_id id);

void fth_cache_source_set_position(fth_cache_source *source, int64_t next, int64_t stride, int64_t end);
void fth_cache_source_count(fth_cache_source *source, fth_slot_counter counter, uint64_t amount);
/* Adds what was counted so far, and what the coordinator says of the job, if it answers by then. */
void fth_cache_source_add_figures(fth_cache_source *source, fth_deadline deadline, fth_batches_figures *figures);
void fth_cache_source_abandon(fth_cache_source *source); /* in a process that was forked */

#endif
