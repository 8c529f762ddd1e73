/* The write-ahead log (wal.h) as the server uses it. With FTH_DURABILITY_CHECKPOINT there is no
 * log, and appending does nothing. For the applying thread, except where stated. */
#ifndef FTH_PARAMETERS_JOURNAL_H
#define FTH_PARAMETERS_JOURNAL_H

#include "parameters/parts.h"
#include "parameters/wal.h"

typedef struct fth_journal fth_journal;

fth_status fth_journal_create(const fth_server_parts *parts, fth_journal **journal);
void fth_journal_free(fth_journal *journal);

/* Replays what follows the checkpoint, then opens the log for new records. */
fth_status fth_journal_open(fth_journal *journal);
/* Closes a log that was replayed and will not be kept; a checkpoint must save its contents. */
void fth_journal_close(fth_journal *journal);

/* Appends a record for the current version. `blob` holds the body if fth_journal_reserve_blob()
 * reserved it; or NULL. */
fth_status fth_journal_append(fth_journal *journal, fth_log_kind kind, uint32_t flags, const void *body,
                              size_t size_bytes, fth_wal_blob *blob);
/* The same for a kind whose body is JSON; takes `json`, where NULL means no memory. */
fth_status fth_journal_append_json(fth_journal *journal, fth_log_kind kind, json_t *json);

/* Reserves a blob for a body; false if the body is small or there is no room. From any thread. */
bool fth_journal_reserve_blob(fth_journal *journal, uint64_t size_bytes, fth_wal_blob *blob);

/* Starts new files for what follows `version`, whose checkpoint is being made; and removes the
 * older ones once it is complete. Forgetting is safe from any thread. */
fth_status fth_journal_rotate(fth_journal *journal, int64_t version);
void fth_journal_forget(const fth_journal *journal, int64_t version);
fth_status fth_journal_sync(fth_journal *journal);
bool fth_journal_is_full(const fth_journal *journal); /* a checkpoint is due */

#endif
