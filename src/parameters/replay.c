/* See replay.h. */
#include "parameters/replay.h"

#include <stdio.h>
#include <stdlib.h>

#include "parameters/updates.h"

/* Older versions applied any finite gradient. One that would now be refused is skipped, but the
 * version still advances, because later records depend on it. */
static fth_status skip_gradient(fth_replay *replay, const fth_gradient *gradient, const fth_update_how *how,
                                const char *why)
{
    fth_log_warning("skipping a gradient of worker %s (sequence %lld, version %lld) in the log: %s", gradient->worker,
                    (long long)gradient->sequence, (long long)fth_served_position_version(replay->parts->position),
                    why);
    return how->steps ? fth_updates_make_step(replay->parts->updates, how->rate) : FTH_OK;
}

/* Moves the position of the gradient's shard, as when the gradient was logged. */
static fth_status move_place(fth_replay *replay, const fth_gradient *gradient)
{
    const fth_shard_span *span = &gradient->span;
    fth_shard_state shard;
    if (!*span->name)
        return FTH_OK;
    fth_status status = fth_shards_move(replay->parts->shards, NULL, span);
    if (status == FTH_OK && fth_shards_get(replay->parts->shards, span->name, &shard) && shard.listed)
        fth_served_position_add_listed(replay->parts->position, span->to - span->from);
    return status;
}

static fth_status replay_gradient(fth_replay *replay, const fth_log_record *record)
{
    fth_status status = FTH_OK;
    fth_gradient gradient = {0};
    char message[FTH_MAX_REFUSAL] = "";
    fth_update_how how = {
        .averaged = record->flags & FTH_LOG_AVERAGED, .steps = record->flags & FTH_LOG_STEPS, .rate = record->rate};
    fth_refusal refusal =
        fth_gradient_parse(replay->parts->model->layout, record->body, (size_t)record->body_bytes, &gradient, message);

    FTH_REQUIRE(refusal == FTH_REFUSAL_NONE, FTH_CORRUPT, "a gradient in the log does not fit this model: %s", message);
    FTH_REQUIRE(fth_workers_get(replay->parts->workers, gradient.worker, NULL), FTH_CORRUPT,
                "the log has a gradient of worker %s, which never registered", gradient.worker);
    FTH_TRY(move_place(replay, &gradient));
    fth_gradient_clip(replay->parts->model, replay->parts->metrics, &gradient, replay->clip);
    if (!(record->flags & FTH_LOG_CHECKED))
        refusal = fth_updates_check(replay->parts->updates, &gradient, &how, message);
    FTH_REQUIRE(refusal == FTH_REFUSAL_NONE || refusal == FTH_REFUSAL_DIVERGES, FTH_NO_MEMORY, "%s", message);
    if (refusal == FTH_REFUSAL_DIVERGES)
        FTH_TRY(skip_gradient(replay, &gradient, &how, message));
    else
        FTH_TRY(fth_updates_add(replay->parts->updates, &gradient, &how));
    fth_workers_note_push(replay->parts->workers, gradient.worker,
                          &(fth_accepted_push){.sequence = gradient.sequence,
                                               .version = fth_served_position_version(replay->parts->position),
                                               .staleness = record->version - gradient.version,
                                               .stepped = how.steps},
                          NULL);

out:
    fth_gradient_release(&gradient);
    return status;
}

static fth_status replay_shard(fth_replay *replay, const fth_log_record *record)
{
    fth_status status = FTH_OK;
    fth_shard_state shard = {0};
    json_t *json = json_loadb(record->body, (size_t)record->body_bytes, 0, NULL);
    const char *name = NULL;
    json_int_t samples = 0, epochs = 0;

    FTH_REQUIRE(json_unpack(json, "{s:s, s:I, s:I}", "name", &name, "samples", &samples, "epochs", &epochs) == 0 &&
                    fth_shard_name_valid(name),
                FTH_CORRUPT, "a shard in the log is not valid");
    snprintf(shard.name, sizeof shard.name, "%s", name);
    shard.samples = samples;
    shard.epochs = epochs;
    FTH_TRY(fth_shards_add(replay->parts->shards, &shard));

out:
    json_decref(json);
    return status;
}

static fth_status replay_worker(fth_replay *replay, const fth_log_record *record)
{
    fth_status status = FTH_OK;
    json_t *json = json_loadb(record->body, (size_t)record->body_bytes, 0, NULL);
    const char *name = NULL, *instance = NULL, *access = NULL;

    FTH_REQUIRE(json_unpack(json, "{s:s, s:s, s:s}", "worker", &name, "instance", &instance, "access", &access) == 0,
                FTH_CORRUPT, "a worker in the log is not valid");
    bool known = record->kind == FTH_LOG_REGISTER ? fth_workers_join(replay->parts->workers, name, instance, access)
                                                  : fth_workers_get(replay->parts->workers, name, NULL);
    FTH_REQUIRE(known, FTH_CORRUPT, "worker %s in the log is unknown", name);
    if (record->kind == FTH_LOG_UNREGISTER) {
        fth_workers_leave(replay->parts->workers, name);
        fth_served_usage_forget(replay->parts->usage, name);
    } else {
        if (json_object_get(json, "function"))
            fth_workers_mark_function(replay->parts->workers, name);
        fth_served_usage_begin(replay->parts->usage, name, json_object_get(json, "function"),
                               json_number_value(json_object_get(json, "since_s")));
    }

out:
    json_decref(json);
    return status;
}

fth_status fth_replay_record(void *context, const fth_log_record *record)
{
    fth_replay *replay = context;
    switch (record->kind) {
    case FTH_LOG_GRADIENT: return replay_gradient(replay, record);
    case FTH_LOG_STEP: return fth_updates_make_step(replay->parts->updates, record->rate);
    case FTH_LOG_REGISTER:
    case FTH_LOG_UNREGISTER: return replay_worker(replay, record);
    case FTH_LOG_SHARD: return replay_shard(replay, record);
    case FTH_LOG_CLIP: replay->clip = record->rate; return FTH_OK;
    }
    return fth_fail(FTH_CORRUPT, "the log has a record of unknown kind %d: a newer farthing wrote it",
                    (int)record->kind);
}

int64_t fth_replay_version(void *context)
{
    const fth_replay *replay = context;
    return fth_served_position_version(replay->parts->position);
}
