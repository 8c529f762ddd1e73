/* See journal.h. */
#include "parameters/journal.h"

#include <stdlib.h>
#include <string.h>

#include "parameters/replay.h"

struct fth_journal {
    const fth_server_parts *parts;
    fth_wal *wal;    /* or NULL */
    double log_clip; /* the norm this log's gradients are clipped to; below 0: not logged yet */
};

fth_status fth_journal_create(const fth_server_parts *parts, fth_journal **journal)
{
    fth_status status = fth_allocate(1, sizeof **journal, journal);
    if (status == FTH_OK)
        (*journal)->parts = parts;
    return status;
}

void fth_journal_free(fth_journal *journal)
{
    if (!journal)
        return;
    fth_wal_free(journal->wal);
    free(journal);
}

static void count_bytes(const fth_journal *journal)
{
    atomic_store(&journal->parts->metrics->log_bytes, journal->wal ? fth_wal_size_bytes(journal->wal) : 0);
}

fth_status fth_journal_open(fth_journal *journal)
{
    const fth_server_parts *parts = journal->parts;
    fth_replay replay = {.parts = parts};
    /* Room for the log to grow while a slow checkpoint is written. */
    size_t map_bytes = (size_t)(2 * parts->options->max_log_bytes + 4 * parts->model->max_body_bytes);
    fth_wal_reader reader = {fth_replay_record, fth_replay_version, &replay};
    fth_status status =
        fth_wal_open(fth_served_record_state_folder(parts->record), parts->options->durability == FTH_DURABILITY_POWER,
                     map_bytes, &reader, &journal->wal);
    if (status != FTH_OK)
        return status;
    journal->log_clip = replay.clip;
    count_bytes(journal);
    return FTH_OK;
}

void fth_journal_close(fth_journal *journal)
{
    fth_wal_free(journal->wal);
    journal->wal = NULL;
    count_bytes(journal);
}

/* The norm is logged before the first gradient that is clipped to it. */
static fth_status append_clip(fth_journal *journal)
{
    double clip = journal->parts->options->clip_pushes;
    if (journal->log_clip == clip)
        return FTH_OK;
    fth_status status =
        fth_wal_append(journal->wal, &(fth_log_record){.kind = FTH_LOG_CLIP,
                                                       .version = fth_served_position_version(journal->parts->position),
                                                       .rate = clip});
    if (status == FTH_OK)
        journal->log_clip = clip;
    return status;
}

fth_status fth_journal_append(fth_journal *journal, fth_log_kind kind, uint32_t flags, const void *body,
                              size_t size_bytes, fth_wal_blob *blob)
{
    fth_status status = FTH_OK;
    int64_t version = fth_served_position_version(journal->parts->position);
    if (!journal->wal)
        return FTH_OK;
    if (kind == FTH_LOG_GRADIENT)
        status = append_clip(journal);
    if (status == FTH_OK)
        status = fth_wal_append(journal->wal,
                                &(fth_log_record){.kind = kind,
                                                  .flags = flags,
                                                  .version = version,
                                                  .rate = fth_served_model_rate(journal->parts->model, version),
                                                  .body = body,
                                                  .body_bytes = size_bytes,
                                                  .blob = blob});
    count_bytes(journal);
    return status;
}

fth_status fth_journal_append_json(fth_journal *journal, fth_log_kind kind, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    fth_status status = text ? fth_journal_append(journal, kind, 0, text, strlen(text), NULL)
                             : fth_fail(FTH_NO_MEMORY, "no memory for a record of the log");
    free(text);
    json_decref(json);
    return status;
}

bool fth_journal_reserve_blob(fth_journal *journal, uint64_t size_bytes, fth_wal_blob *blob)
{
    return journal->wal && fth_wal_reserve_blob(journal->wal, size_bytes, blob);
}

fth_status fth_journal_rotate(fth_journal *journal, int64_t version)
{
    fth_status status = journal->wal ? fth_wal_rotate(journal->wal, version) : FTH_OK;
    if (journal->log_clip > 0)
        journal->log_clip = -1; /* each log has its own record */
    return status;
}

void fth_journal_forget(const fth_journal *journal, int64_t version)
{
    fth_wal_forget(fth_served_record_state_folder(journal->parts->record), version);
}

fth_status fth_journal_sync(fth_journal *journal)
{
    return journal->wal ? fth_wal_sync(journal->wal) : FTH_OK;
}

bool fth_journal_is_full(const fth_journal *journal)
{
    return journal->wal && fth_wal_size_bytes(journal->wal) >= journal->parts->options->max_log_bytes;
}
