/* Steps: when one is complete, how gradients add up to it, the update; and doing all that again from the log. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parameters/parameters_internal.h"

double fth_parameters_rate(const fth_parameters *server)
{
    double rate = 0;
    if (fth_service_rate(server->train, fth_engine_learning_rate(server->engine), atomic_load(&server->version),
                         server->updates_per_epoch, &rate) != FTH_OK)
        return fth_engine_learning_rate(server->engine);
    return rate;
}

/* How many gradients the next step takes; at least 1. With the mutex held. */
static int64_t gradients_needed(fth_parameters *server)
{
    if (server->options.consistency.kind != FTH_CONSISTENCY_SYNC)
        return 1;
    int64_t live = fth_workers_live(server->workers), count = server->options.consistency.count;
    if (count > 0 && !server->gathered && fth_workers_most_live(server->workers) < count)
        return count; /* they have not all been there yet */
    int64_t needed = count > 0 && count < live ? count : live;
    return needed > 0 ? needed : 1;
}

void fth_step_look_for_workers(fth_parameters *server)
{
    const fth_consistency *consistency = &server->options.consistency;
    if (consistency->kind != FTH_CONSISTENCY_SYNC || consistency->count == 0 || server->gathered ||
        server->step_gradients == 0)
        return;
    double now = fth_clock_seconds();
    if (server->gathering_since_s == 0)
        server->gathering_since_s = now;
    bool over = now - server->gathering_since_s >= server->options.gather_s;
    pthread_mutex_lock(&server->mutex);
    int64_t most = fth_workers_most_live(server->workers);
    server->gathered = over || most >= consistency->count;
    pthread_mutex_unlock(&server->mutex);
    if (most >= consistency->count || !over)
        return;
    char *message =
        fth_format("sync:%lld has waited %.4g s (--gather) for its workers, and %lld came: steps are made of "
                   "the gradients of those that are there",
                   (long long)consistency->count, server->options.gather_s, (long long)most);
    fth_log_warning("%s", message ? message : "");
    fth_parameters_tell(server, "warning",
                        json_pack("{s:I, s:s}", "step", (json_int_t)atomic_load(&server->version), "message",
                                  message ? message : "workers are missing"));
    free(message);
}

void fth_step_note_progress(fth_parameters *server)
{
    double progress = 0;
    if (server->train->steps > 0)
        progress = (double)atomic_load(&server->version) / (double)server->train->steps;
    else if (server->end_samples > 0)
        progress = (double)server->samples / (double)server->end_samples;
    atomic_store(&server->progress, progress);
}

bool fth_step_is_complete(fth_parameters *server, const fth_worker *giver)
{
    int64_t have = server->step_gradients + (giver != NULL);
    if (have == 0 || have < gradients_needed(server))
        return false;
    if (server->options.consistency.kind != FTH_CONSISTENCY_SYNC || server->options.consistency.count > 0)
        return true;
    int64_t version = atomic_load(&server->version);
    size_t position = 0;
    for (fth_worker *w = fth_workers_next(server->workers, &position); w;
         w = fth_workers_next(server->workers, &position))
        if (w != giver && w->contributed != version)
            return false;
    return true;
}

/* What a step began as it stays, also where the server goes on with another consistency. */
bool fth_step_is_averaged(const fth_parameters *server)
{
    return server->step_gradients > 0 ? server->step_averaged
                                      : server->options.consistency.kind == FTH_CONSISTENCY_SYNC;
}

/* Everything of a gradient but its numbers for trained parameters. */
static void note_gradient(fth_parameters *server, const fth_gradient *gradient, float weight)
{
    if (gradient->has_buffers) {
        fth_gradient_add_buffers(server->layout, gradient, weight, server->step_buffer_samples == 0,
                                 server->buffer_sum);
        server->step_buffer_samples += gradient->samples;
    }
    server->step_gradients++;
    server->step_samples += gradient->samples;
    server->samples += gradient->samples;
    atomic_fetch_add(&server->metrics.samples, (uint64_t)gradient->samples);
    server->window.samples += gradient->samples;
    server->window.pushes++;
    if (isfinite(gradient->loss)) {
        server->window.loss += gradient->loss * (double)gradient->samples;
        server->window.loss_samples += gradient->samples;
    }
    if (gradient->correct >= 0) {
        server->window.correct += gradient->correct;
        server->window.correct_samples += gradient->samples;
    }
}

static void scale(float *vector, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        vector[i] *= factor;
}

/* The parameters are updated; the rest of a step, and the version moves on. */
static void end_step(fth_parameters *server)
{
    const fth_layout *layout = server->layout;
    int64_t version = atomic_load(&server->version);

    if (server->step_buffer_samples > 0) {
        if (server->step_averaged)
            scale(server->buffer_sum, (float)(1.0 / (double)server->step_buffer_samples), layout->buffer_floats);
        memcpy(server->vectors.buffers, server->buffer_sum, layout->buffer_floats * sizeof(float));
    }
    server->step_gradients = server->step_samples = server->step_buffer_samples = 0;
    atomic_store(&server->version, version + 1);
    atomic_fetch_add(&server->metrics.applied, 1);
    fth_step_note_progress(server);
}

fth_status fth_step_make(fth_parameters *server, double rate)
{
    fth_status status = FTH_OK;
    if (server->step_averaged)
        scale(server->vectors.gradients, (float)(1.0 / (double)server->step_samples), server->layout->trained_floats);
    FTH_TRY(fth_engine_update(server->engine, rate, atomic_load(&server->version) + 1));
    end_step(server);

out:
    return status;
}

/* Updates straight from where the gradient is. */
static fth_status update_from(fth_parameters *server, const fth_gradient *gradient, double rate)
{
    const fth_layout *layout = server->layout;
    for (int i = 0; i < layout->trained; i++)
        server->pieces[i] = (fth_gradient_piece){layout->tensors[i].vector_offset, (size_t)layout->tensors[i].count,
                                                 gradient->parts[i].values->data};
    return fth_service_update(server->engine, rate, atomic_load(&server->version) + 1, server->pieces,
                              (size_t)layout->trained);
}

fth_status fth_step_take(fth_parameters *server, const fth_gradient *gradient, bool averaged, bool steps, double rate)
{
    fth_status status = FTH_OK;
    bool first = server->step_gradients == 0;
    float weight = averaged ? (float)gradient->samples : 1;
    /* A step that is one gradient's needs no sum; either way gives the same numbers. */
    bool direct =
        steps && first && !averaged && server->train->clip <= 0 && fth_gradient_is_plain(server->layout, gradient);

    server->step_averaged = averaged;
    if (direct)
        FTH_TRY(update_from(server, gradient, rate));
    else
        fth_gradient_add(server->layout, gradient, weight, first, server->vectors.gradients);
    note_gradient(server, gradient, weight);
    if (direct)
        end_step(server);
    else if (steps)
        FTH_TRY(fth_step_make(server, rate));

out:
    return status;
}

/* The worker's side of a gradient that is taken; with the mutex held. */
void fth_step_note_push(fth_parameters *server, fth_worker *worker, const fth_gradient *gradient, bool stepped,
                        int64_t staleness)
{
    int64_t version = atomic_load(&server->version);
    worker->sequence = gradient->sequence;
    worker->last_code = stepped ? 200 : 201;
    worker->last_version = version;
    worker->last_staleness = staleness;
    worker->contributed = stepped ? version - 1 : version;
    worker->in_flight = -1;
}

/* ---- replay ---- */

static fth_status replay_gradient(fth_parameters *server, const fth_log_record *record)
{
    fth_status status = FTH_OK;
    fth_gradient gradient = {0};
    char message[FTH_MAX_REFUSAL] = "";
    fth_refusal refusal =
        fth_gradient_parse(server->layout, record->body, (size_t)record->body_bytes, &gradient, message);

    FTH_REQUIRE(refusal == FTH_REFUSAL_NONE, FTH_CORRUPT, "a gradient in the log does not fit this model: %s", message);
    fth_worker *worker = fth_workers_find(server->workers, gradient.worker);
    FTH_REQUIRE(worker, FTH_CORRUPT, "a gradient in the log is of %s, who never registered", gradient.worker);
    int64_t staleness = record->version - gradient.version;
    bool steps = record->flags & FTH_LOG_STEPS;
    FTH_TRY(fth_step_take(server, &gradient, record->flags & FTH_LOG_AVERAGED, steps, record->rate));
    fth_step_note_push(server, worker, &gradient, steps, staleness);

out:
    fth_gradient_release(&gradient);
    return status;
}

static fth_status replay_worker(fth_parameters *server, const fth_log_record *record)
{
    fth_status status = FTH_OK;
    json_t *json = json_loadb(record->body, (size_t)record->body_bytes, 0, NULL);
    const char *name = NULL, *instance = NULL, *access = NULL;

    FTH_REQUIRE(json_unpack(json, "{s:s, s:s, s:s}", "worker", &name, "instance", &instance, "access", &access) == 0,
                FTH_CORRUPT, "a worker in the log is not valid");
    fth_worker *worker = record->kind == FTH_LOG_REGISTER ? fth_workers_join(server->workers, name, instance, access)
                                                          : fth_workers_find(server->workers, name);
    FTH_REQUIRE(worker, FTH_CORRUPT, "worker %s in the log is unknown", name);
    worker->lease_until_s = fth_clock_seconds() + server->options.lease_s;
    if (record->kind == FTH_LOG_UNREGISTER)
        fth_workers_leave(server->workers, worker);

out:
    json_decref(json);
    return status;
}

fth_status fth_parameters_replay(void *context, const fth_log_record *record)
{
    fth_parameters *server = context;
    switch (record->kind) {
    case FTH_LOG_GRADIENT: return replay_gradient(server, record);
    case FTH_LOG_STEP: return fth_step_make(server, record->rate);
    case FTH_LOG_REGISTER:
    case FTH_LOG_UNREGISTER: return replay_worker(server, record);
    }
    return fth_fail(FTH_CORRUPT, "a record of kind %d in the log: a newer version wrote it", (int)record->kind);
}

int64_t fth_parameters_replayed_version(void *server)
{
    return atomic_load(&((fth_parameters *)server)->version);
}
