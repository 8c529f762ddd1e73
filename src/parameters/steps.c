/* Steps: when one is complete, how gradients add up to it, the update; and doing all that again from the log. */
#include <math.h>
#include <stdio.h>
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
    int64_t most = fth_workers_most_live(server->workers);
    server->gathered = over || most >= consistency->count;
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

bool fth_step_is_complete(fth_parameters *server, const char *worker)
{
    int64_t have = server->step_gradients + (worker != NULL), count = server->options.consistency.count;
    if (have == 0 || server->options.consistency.kind != FTH_CONSISTENCY_SYNC)
        return have > 0;
    if (count > 0 && have >= count)
        return true;
    if (count > 0 && !server->gathered && fth_workers_most_live(server->workers) < count)
        return false; /* they have not all been there yet */
    /* A gradient counts although its worker has left since; live workers that have not pushed one are waited for. */
    return fth_workers_all_contributed(server->workers, atomic_load(&server->version), worker);
}

/* What a step began as it stays, also where the server goes on with another consistency. */
bool fth_step_is_averaged(const fth_parameters *server)
{
    return server->step_gradients > 0 ? server->step_averaged
                                      : server->options.consistency.kind == FTH_CONSISTENCY_SYNC;
}

/* ---- what is fit to be applied ----
 *
 * Numbers that are finite by themselves can still ruin a model: at once where the update overflows, or as surely where it
 * moves a weight so far that nothing can be computed with it. Neither gets into the log. Sums cannot overflow, since each
 * gradient is refused that would let them. */

/* By the learning rate alone no weight moves farther than this in a step. Weights that are learnt stay below 1000. */
static const double FARTHEST = 1e6;

static double weight_of(const fth_gradient *gradient, bool averaged)
{
    return averaged ? (double)gradient->samples : 1;
}

static bool moves_too_far(const fth_parameters *server, const fth_gradient *gradient)
{
    return (double)gradient->largest * gradient->scale * fth_engine_learning_rate(server->engine) > FARTHEST;
}

static bool sums_overflow(const fth_parameters *server, const fth_gradient *gradient, double weight)
{
    return server->step_largest + weight * gradient->scale * gradient->largest > FTH_UPDATE_LIMIT ||
           server->step_largest_buffer + weight * gradient->largest_buffer > FTH_UPDATE_LIMIT;
}

/* Whether a step by this gradient alone leaves everything finite. */
static fth_status try_alone(fth_parameters *server, const fth_gradient *gradient, double rate, bool *finite)
{
    fth_guarded_update update = {.learning_rate = rate,
                                 .update = atomic_load(&server->version) + 1,
                                 .largest = (double)gradient->largest * gradient->scale};
    *finite = fth_update_guard_allows(server->guard, &update);
    if (*finite)
        return FTH_OK;
    fth_gradient_add(server->layout, gradient, gradient->scale, true, server->vectors.gradients);
    return fth_update_guard_try(server->guard, &update, finite);
}

fth_refusal fth_step_judge(fth_parameters *server, fth_gradient *gradient, bool averaged, bool steps, double rate,
                           char message[FTH_MAX_REFUSAL])
{
    double weight = weight_of(gradient, averaged);
    bool finite = true;
    if (moves_too_far(server, gradient) || sums_overflow(server, gradient, weight))
        fth_gradient_measure(server->layout, gradient); /* what is known so far is a bound, and may be too wide */
    if (moves_too_far(server, gradient)) {
        snprintf(message, FTH_MAX_REFUSAL,
                 "it diverges: its largest number is %.3g, which at a learning rate of %g moves a weight by more than "
                 "%g; lower the learning rate, or start the server with --clip-pushes",
                 (double)gradient->largest, fth_engine_learning_rate(server->engine), FARTHEST);
        return FTH_REFUSAL_DIVERGES;
    }
    if (sums_overflow(server, gradient, weight)) {
        snprintf(
            message, FTH_MAX_REFUSAL,
            "it diverges: its largest number, %.3g, times its samples overflows; lower the learning rate, or start "
            "the server with --clip-pushes",
            (double)fmaxf(gradient->largest, gradient->largest_buffer));
        return FTH_REFUSAL_DIVERGES;
    }
    if (!steps || server->step_gradients > 0)
        return FTH_REFUSAL_NONE;
    if (try_alone(server, gradient, rate, &finite) != FTH_OK) {
        snprintf(message, FTH_MAX_REFUSAL, "the update failed: %s", fth_error_message());
        return FTH_REFUSAL_BUSY;
    }
    if (finite)
        return FTH_REFUSAL_NONE;
    snprintf(message, FTH_MAX_REFUSAL,
             "it diverges: the update would leave a weight, or the optimizer's state, that is not a finite number");
    return FTH_REFUSAL_DIVERGES;
}

void fth_step_clip(fth_parameters *server, fth_gradient *gradient, double most)
{
    if (most <= 0)
        return;
    double norm = fth_gradient_norm(server->layout, gradient);
    if (norm <= most)
        return;
    gradient->scale = (float)(most / norm);
    atomic_fetch_add(&server->metrics.clipped, 1);
}

/* ---- steps ---- */

/* For a live line, from what workers say of their batches; not while a log is replayed. */
static void note_for_display(fth_parameters *server, const fth_gradient *gradient)
{
    double now = fth_clock_seconds();
    bool known = isfinite(gradient->loss) && gradient->correct >= 0;
    fth_step_result result = {.loss = known ? gradient->loss : 0,
                              .correct = known ? gradient->correct : 0,
                              .samples = known ? gradient->samples : 0};
    if (server->started_s == 0)
        return;
    pthread_mutex_lock(&server->mutex);
    fth_window_add(&server->live.window, &result, now - server->live.at_s);
    server->live.at_s = now;
    server->live.samples = server->samples;
    pthread_mutex_unlock(&server->mutex);
}

/* Everything of a gradient but its numbers for trained parameters. */
static void note_gradient(fth_parameters *server, const fth_gradient *gradient, double weight)
{
    if (gradient->has_buffers) {
        fth_gradient_add_buffers(server->layout, gradient, (float)weight, server->step_buffer_samples == 0,
                                 server->buffer_sum);
        server->step_buffer_samples += gradient->samples;
        server->step_largest_buffer += weight * gradient->largest_buffer;
    }
    server->step_largest += weight * gradient->scale * gradient->largest;
    server->step_gradients++;
    server->step_samples += gradient->samples;
    server->samples += gradient->samples;
    atomic_fetch_add(&server->metrics.samples, (uint64_t)gradient->samples);
    server->line.samples += gradient->samples;
    server->line.pushes++;
    if (isfinite(gradient->loss)) {
        server->line.loss += gradient->loss * (double)gradient->samples;
        server->line.loss_samples += gradient->samples;
    }
    if (gradient->correct >= 0) {
        server->line.correct += gradient->correct;
        server->line.correct_samples += gradient->samples;
    }
    note_for_display(server, gradient);
}

static void scale(float *vector, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        vector[i] *= factor;
}

static void tell_void_step(fth_parameters *server)
{
    char message[160];
    snprintf(message, sizeof message,
             "the update to version %lld is left out: a weight would no longer be a finite number. Lower the learning "
             "rate, or use --clip",
             (long long)atomic_load(&server->version) + 1);
    fth_log_warning("%s", message);
    fth_parameters_tell(
        server, "warning",
        json_pack("{s:I, s:s}", "step", (json_int_t)atomic_load(&server->version) + 1, "message", message));
    atomic_fetch_add(&server->metrics.void_steps, 1);
}

/* The parameters are updated, unless that is left out; the rest of a step, and the version moves on. */
static void end_step(fth_parameters *server, bool updated)
{
    const fth_layout *layout = server->layout;
    int64_t version = atomic_load(&server->version);

    if (!updated)
        tell_void_step(server);
    if (updated && server->step_buffer_samples > 0) {
        if (server->step_averaged)
            scale(server->buffer_sum, (float)(1.0 / (double)server->step_buffer_samples), layout->buffer_floats);
        memcpy(server->vectors.buffers, server->buffer_sum, layout->buffer_floats * sizeof(float));
    }
    server->step_gradients = server->step_samples = server->step_buffer_samples = 0;
    server->step_largest = server->step_largest_buffer = 0;
    atomic_store(&server->version, version + 1);
    atomic_fetch_add(&server->metrics.applied, 1);
    fth_step_note_progress(server);
}

fth_status fth_step_make(fth_parameters *server, double rate)
{
    fth_status status = FTH_OK;
    bool updated = false;
    double share = server->step_averaged && server->step_samples > 0 ? 1.0 / (double)server->step_samples : 1;
    if (share != 1)
        scale(server->vectors.gradients, (float)share, server->layout->trained_floats);
    if (server->step_gradients > 0) /* none: of a log, all of whose gradients were unfit */
        FTH_TRY(fth_update_guard_apply(server->guard,
                                       &(fth_guarded_update){.learning_rate = rate,
                                                             .update = atomic_load(&server->version) + 1,
                                                             .largest = server->step_largest * share},
                                       &updated));
    end_step(server, updated);

out:
    return status;
}

/* Updates straight from where the gradient is. */
static fth_status update_from(fth_parameters *server, const fth_gradient *gradient, double rate, bool *updated)
{
    const fth_layout *layout = server->layout;
    for (int i = 0; i < layout->trained; i++)
        server->pieces[i] = (fth_gradient_piece){layout->tensors[i].vector_offset, (size_t)layout->tensors[i].count,
                                                 gradient->parts[i].values->data};
    return fth_update_guard_apply(server->guard,
                                  &(fth_guarded_update){.learning_rate = rate,
                                                        .update = atomic_load(&server->version) + 1,
                                                        .largest = gradient->largest,
                                                        .pieces = server->pieces,
                                                        .count = (size_t)layout->trained,
                                                        .scale = gradient->scale},
                                  updated);
}

fth_status fth_step_take(fth_parameters *server, const fth_gradient *gradient, bool averaged, bool steps, double rate)
{
    fth_status status = FTH_OK;
    bool first = server->step_gradients == 0, updated = false;
    double weight = weight_of(gradient, averaged);
    /* A step that is one gradient's needs no sum; either way gives the same numbers. */
    bool direct =
        steps && first && !averaged && server->train->clip <= 0 && fth_gradient_is_plain(server->layout, gradient);

    server->step_averaged = averaged;
    if (direct)
        FTH_TRY(update_from(server, gradient, rate, &updated));
    else
        fth_gradient_add(server->layout, gradient, (float)weight * gradient->scale, first, server->vectors.gradients);
    note_gradient(server, gradient, weight);
    if (direct)
        end_step(server, updated);
    else if (steps)
        FTH_TRY(fth_step_make(server, rate));

out:
    return status;
}

void fth_step_note_push(fth_parameters *server, const fth_gradient *gradient, bool stepped, int64_t staleness)
{
    fth_workers_note_push(server->workers, gradient->worker,
                          &(fth_accepted_push){.sequence = gradient->sequence,
                                               .version = atomic_load(&server->version),
                                               .staleness = staleness,
                                               .stepped = stepped});
}

/* ---- replay ---- */

/* Older versions applied and acknowledged whatever was finite. Such a gradient is left out now; the version moves on
 * nevertheless, since what follows in the log counts on it. */
static fth_status skip_gradient(fth_parameters *server, const fth_gradient *gradient, bool steps, double rate,
                                const char *why)
{
    fth_log_warning("the log has a gradient of worker %s (sequence %lld, version %lld) that is left out: %s",
                    gradient->worker, (long long)gradient->sequence, (long long)atomic_load(&server->version), why);
    return steps ? fth_step_make(server, rate) : FTH_OK;
}

static fth_status replay_gradient(fth_parameters *server, const fth_log_record *record)
{
    fth_status status = FTH_OK;
    fth_gradient gradient = {0};
    char message[FTH_MAX_REFUSAL] = "";
    fth_refusal refusal =
        fth_gradient_parse(server->layout, record->body, (size_t)record->body_bytes, &gradient, message);

    FTH_REQUIRE(refusal == FTH_REFUSAL_NONE, FTH_CORRUPT, "a gradient in the log does not fit this model: %s", message);
    FTH_REQUIRE(fth_workers_get(server->workers, gradient.worker, NULL), FTH_CORRUPT,
                "the log has a gradient of worker %s, which never registered", gradient.worker);
    int64_t staleness = record->version - gradient.version;
    bool steps = record->flags & FTH_LOG_STEPS, averaged = record->flags & FTH_LOG_AVERAGED;
    fth_step_clip(server, &gradient, server->log_clip);
    if (!(record->flags & FTH_LOG_JUDGED))
        refusal = fth_step_judge(server, &gradient, averaged, steps, record->rate, message);
    FTH_REQUIRE(refusal == FTH_REFUSAL_NONE || refusal == FTH_REFUSAL_DIVERGES, FTH_NO_MEMORY, "%s", message);
    if (refusal == FTH_REFUSAL_DIVERGES)
        FTH_TRY(skip_gradient(server, &gradient, steps, record->rate, message));
    else
        FTH_TRY(fth_step_take(server, &gradient, averaged, steps, record->rate));
    fth_step_note_push(server, &gradient, steps, staleness);

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
    bool known = record->kind == FTH_LOG_REGISTER ? fth_workers_join(server->workers, name, instance, access)
                                                  : fth_workers_get(server->workers, name, NULL);
    FTH_REQUIRE(known, FTH_CORRUPT, "worker %s in the log is unknown", name);
    if (record->kind == FTH_LOG_UNREGISTER)
        fth_workers_leave(server->workers, name);

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
    case FTH_LOG_CLIP: server->log_clip = record->rate; return FTH_OK;
    }
    return fth_fail(FTH_CORRUPT, "a record of kind %d in the log: a newer version wrote it", (int)record->kind);
}

int64_t fth_parameters_replayed_version(void *server)
{
    return atomic_load(&((fth_parameters *)server)->version);
}
