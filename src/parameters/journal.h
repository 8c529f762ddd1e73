/* What the applying thread logs before it acknowledges it: the write-ahead log (wal.h) as the
 * server uses it.
 *
 * With FTH_DURABILITY_CHECKPOINT there is no log, and logging is nothing to do. All but
 * fth_journal_reserve_blob() and fth_journal_forget(), which any thread may call, is the applying
 * thread's. */
#ifndef FTH_PARAMETERS_JOURNAL_H
#define FTH_PARAMETERS_JOURNAL_H

#include "parameters/metrics.h"
#include "parameters/parameters.h"
#include "parameters/replay.h"
#include "parameters/wal.h"

typedef struct fth_journal fth_journal;

typedef struct fth_journal_options {
    const char *folder; /* of state; outlives the journal, as what follows does */
    fth_durability durability;
    uint64_t max_log_bytes, max_body_bytes;
    double clip; /* what gradients are clipped to as they come; 0: nothing */
    const fth_served_model *model;
    const fth_served_position *position;
    fth_parameters_metrics *metrics;
} fth_journal_options;

fth_status fth_journal_create(const fth_journal_options *options, fth_journal **journal);
void fth_journal_free(fth_journal *journal);

/* Replays what follows the checkpoint, then opens the log for what comes. */
fth_status fth_journal_open(fth_journal *journal, fth_replay *replay);
/* Where no log is kept: closes the one that was replayed; a checkpoint has to hold from now on what
 * it has. */
void fth_journal_close(fth_journal *journal);

/* A record for the version there is. `blob` is where fth_journal_reserve_blob() put the body, or
 * NULL. */
fth_status fth_journal_append(fth_journal *journal, fth_log_kind kind, uint32_t flags, const void *body,
                              size_t size_bytes, fth_wal_blob *blob);
/* The same, of a kind whose body is JSON; takes `json`, NULL: no memory. */
fth_status fth_journal_append_json(fth_journal *journal, fth_log_kind kind, json_t *json);

/* A place in the log's file for a body that arrives; false, and none, where it is small or there is
 * no room. */
bool fth_journal_reserve_blob(fth_journal *journal, uint64_t size_bytes, fth_wal_blob *blob);

/* New files for what follows `version`, of which a checkpoint is being made; when it is whole,
 * older files can go. */
fth_status fth_journal_rotate(fth_journal *journal, int64_t version);
void fth_journal_forget(const fth_journal *journal, int64_t version);
fth_status fth_journal_sync(fth_journal *journal);
bool fth_journal_is_full(const fth_journal *journal); /* a checkpoint is due */

#endif
