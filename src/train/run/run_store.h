/* A run that lives in a store, so that it survives its machine:
 *
 *     <url>/run.json                      what was asked, as in a run folder
 *     <url>/tokenizer.json                of a run on text
 *     <url>/network.json                  of a run on a network that PyTorch exported
 *     <url>/events/<owner>[-<part>].jsonl each owner's events; together, in order, they are the
 *         run's events.jsonl
 *     <url>/checkpoints/                  see checkpoint.h; names carry the owner's number
 *     <url>/best/step-<n>-f<owner>.safetensors  the best model so far
 *     <url>/best.safetensors, last.safetensors  when the run has ended
 *     <url>/lease.json                    who owns the run (spot.h)
 *
 *     open -> take (waits for the lease) -> fetch (the record becomes a local folder) -> begin
 *         (mirrors the record)
 *          -> put files, flush -> release
 *
 * Owners are numbered by the lease's fencing number. Every write is guarded: an owner that lost the
 * run writes nothing more, and what it may still have under way lies under names that carry its
 * number and lose against its successor's, or is put under a condition that its successor's put
 * breaks (run_models.c). Calls are the training thread's, except for guard, flush, poke, the best
 * model's and those that say "any thread". */
#ifndef FTH_TRAIN_RUN_STORE_H
#define FTH_TRAIN_RUN_STORE_H

#include "spot/spot.h"
#include "train/train_internal.h"

typedef struct fth_run_store fth_run_store;

/* Opens the store that --checkpoints names. The options outlive it. */
fth_status fth_run_store_open(const fth_train_options *options, fth_run_store **run);
/* Stops mirroring. A lease that was not released stays until it lapses. */
void fth_run_store_free(fth_run_store *run);

fth_store *fth_run_store_get(const fth_run_store *run);
const char *fth_run_store_url(const fth_run_store *run);
int64_t fth_run_store_owner(const fth_run_store *run);      /* this owner's number; 0 before the record was read */
int64_t fth_run_store_last_owner(const fth_run_store *run); /* of the last events that were there then; 0: none */

/* Takes the lease, however long another machine holds it, and logs which one. `for_a_run`: waits
 * until there is a run to take (a standby). FTH_INTERRUPTED if `stop` is asked. */
fth_status fth_run_store_take(fth_run_store *run, fth_stop *stop, bool for_a_run);
/* A process that trains the run together with peers, of which another may have the lease now
 * (fth_lease_options). What is pointed to outlives the run store. */
typedef struct fth_run_group {
    const char *group;        /* "" for the first process of it */
    const char *name;         /* of this process's node */
    const atomic_bool *leads; /* whether it leads the group */
    fth_stop *lost;           /* asked instead of the take's `stop` when the lease is lost */
} fth_run_group;
/* Before the take. */
void fth_run_store_set_group(fth_run_store *run, const fth_run_group *group);
/* After it; "" without a lease. */
void fth_run_store_get_group(const fth_run_store *run, char group[FTH_LEASE_GROUP_BYTES]);
/* How the last take went. */
typedef struct fth_takeover {
    double waited_s;        /* for the lease */
    double previous_seen_s; /* when the owner before was last seen alive, wall clock; 0: there was none, or it left in
                                  order */
    double previous_process_s; /* and how long its process had run by then; 0: not known */
} fth_takeover;
fth_takeover fth_run_store_get_takeover(const fth_run_store *run);

/* The run's record, if there is a run; *text NULL otherwise. Needs no lease. */
typedef struct fth_stored_record {
    char *run;    /* run.json */
    json_t *json; /* the same, read */
    char *events;
    size_t events_bytes;
    bool begun; /* it took a step that the store knows of: an event or a checkpoint says so */
    bool finished;
} fth_stored_record;
fth_status fth_run_store_read(fth_run_store *run, fth_stored_record *record);
void fth_stored_record_release(fth_stored_record *record);
/* Removes the record of a run that has not begun; the lease is held, or off. What is mirrored is
 * mirrored no longer. With `begins_again` its run.json stays, so that a kill before it is put again
 * does not change which run this is. */
fth_status fth_run_store_discard(fth_run_store *run, bool begins_again);

/* From now on the record in `folder` is mirrored; `stored_bytes` of its events are in the store
 * already. */
fth_status fth_run_store_begin(fth_run_store *run, const char *folder, size_t stored_bytes);
bool fth_run_store_is_mirrored(fth_run_store *run);
/* run.json, now, with this owner's number. */
fth_status fth_run_store_put_run(fth_run_store *run, bool is_new);
/* Asks for the events to be stored soon; or now. */
void fth_run_store_poke(fth_run_store *run);
fth_status fth_run_store_flush(fth_run_store *run);

/* The best model so far, as a file in memory that says its step; within `seconds` (0: while it
 * makes progress). What this owner has stored already is not stored again. */
fth_status fth_run_store_put_best(fth_run_store *run, const void *bytes, size_t size_bytes, double seconds);
/* At a stop with a deadline, after the checkpoint: the best model in the file `path`, which may be
 * of the last validation and nowhere else, if it fits; otherwise a warning. Nothing without a
 * deadline: then a checkpoint brings it. Any thread. */
void fth_run_store_put_best_in_time(fth_run_store *run, const char *path, fth_deadline deadline);
bool fth_run_store_has_best(const fth_run_store *run, int64_t step); /* has this owner stored it? */
/* The key under which the best model of `step` is stored, by any owner; NULL: it is not. free()
 * it. */
fth_status fth_run_store_find_best(fth_run_store *run, int64_t step, char **key);
/* Removes best models that are no longer the best, after a checkpoint that knows the new one; or
 * `all`, at the end. Failing is a warning. */
void fth_run_store_tidy_best(fth_run_store *run, bool all);
/* At the end: stores the models of the files that there are. A best model, of `best_step` (-1:
 * none), that is another machine's is brought here first. */
fth_status fth_run_store_put_models(fth_run_store *run, int64_t best_step, const char *best_path,
                                    const char *last_path);
/* Brings the models of a finished run into `folder`, unless they are there. Failing is a
 * warning. */
void fth_run_store_fetch_models(fth_run_store *run, const char *folder);

/* FTH_OK if this process owns the run for a while yet; FTH_PEER_LOST if another machine does. */
fth_status fth_run_store_guard(void *run);
/* Whether a guard or a conditional write has found that another machine has the run. Devices and
 * workers that are lost give FTH_PEER_LOST too, and are no reason to leave the run to others. */
bool fth_run_store_is_lost(const fth_run_store *run);
void fth_run_store_set_lost(fth_run_store *run);
/* Leaves the run free for the next owner at once. Any thread. */
fth_status fth_run_store_release(fth_run_store *run);
/* The same after storing the last events; a lease that cannot be given up is a warning.
 * FTH_PEER_LOST, and nothing is released, if another machine has the run. */
fth_status fth_run_store_leave(fth_run_store *run);

#endif
