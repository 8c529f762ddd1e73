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

typedef struct fth_supply fth_supply;

/* When a supply must be registered: before it is opened; if that works, or else later; or later in
 * any case, since the host is known to be away. The last two need a spec that leaves nothing to be
 * chosen. */
typedef enum fth_supply_beginning { FTH_SUPPLY_NOW, FTH_SUPPLY_NOW_OR_LATER, FTH_SUPPLY_LATER } fth_supply_beginning;

/* Registers a job with `spec`, which becomes complete; under the number `job` again, if that is not
 * 0 and still free. The address must outlive it. */
fth_status fth_supply_open(const fth_batches_address *address, fth_job_spec *spec, uint64_t job,
                           fth_supply_beginning beginning, fth_deadline deadline, fth_supply **supply);
bool fth_supply_is_connected(fth_supply *supply);
/* The job is done with it. */
void fth_supply_close(fth_supply *supply);
uint64_t fth_supply_job(fth_supply *supply);
const char *fth_supply_why(const fth_supply *supply); /* that form was chosen */

typedef enum fth_supply_answer {
    FTH_SUPPLY_GIVEN,    /* leased */
    FTH_SUPPLY_NOT_YET,  /* ask again */
    FTH_SUPPLY_DIRECTLY, /* do not wait for it: read it yourself, or ask again */
    FTH_SUPPLY_FAILED    /* nobody could make it; the error message says why */
} fth_supply_answer;
fth_supply_answer fth_supply_get(fth_supply *supply, fth_item_id id, fth_deadline deadline, fth_item_lease *lease);
/* Why the cache last failed to give something that was waited for, and the status of that; "" and
 * FTH_OK: it has not since it last did. */
fth_status fth_supply_explain(fth_supply *supply, char *text, size_t size);
/* The same without waiting: true if it is leased. */
bool fth_supply_look(fth_supply *supply, fth_item_id id, fth_item_lease *lease);
/* An item that is not what it should be, though its checksum is right: it is made again. */
void fth_supply_report_lost(fth_supply *supply, fth_item_id id);

void fth_supply_set_position(fth_supply *supply, int64_t next, int64_t stride, int64_t end);
void fth_supply_count(fth_supply *supply, fth_slot_counter counter, uint64_t amount);
/* Adds what was counted so far, and what the coordinator says of the job, if it answers by then. */
void fth_supply_add_figures(fth_supply *supply, fth_deadline deadline, fth_batches_figures *figures);
void fth_supply_abandon(fth_supply *supply); /* in a process that was forked */

#endif
