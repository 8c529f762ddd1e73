/* See health.h. */
#include "parameters/health.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Gradients refused for their numbers since this process started; all but the count describes the
 * last. */
typedef struct unfit_gradients {
    int64_t count, version;
    double at_s;
    char worker[FTH_MAX_WORKER_NAME + 1], why[FTH_MAX_REFUSAL];
} unfit_gradients;

struct fth_health {
    const fth_served_position *position;
    fth_served_record *record;
    fth_workers *workers;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t failed;
    fth_status failure;
    char failure_message[512];
    bool stopping;
    unfit_gradients unfit;
};

fth_status fth_health_create(const fth_served_position *position, fth_served_record *record, fth_workers *workers,
                             fth_health **health)
{
    fth_status status = fth_allocate(1, sizeof **health, health);
    if (status != FTH_OK)
        return status;
    (*health)->position = position;
    (*health)->record = record;
    (*health)->workers = workers;
    pthread_mutex_init(&(*health)->mutex, NULL);
    pthread_cond_init(&(*health)->failed, NULL);
    return FTH_OK;
}

void fth_health_free(fth_health *health)
{
    if (!health)
        return;
    pthread_cond_destroy(&health->failed);
    pthread_mutex_destroy(&health->mutex);
    free(health);
}

/* ---- failing ---- */

void fth_health_fail(fth_health *health, fth_status status)
{
    pthread_mutex_lock(&health->mutex);
    if (health->failure == FTH_OK) {
        health->failure = status;
        snprintf(health->failure_message, sizeof health->failure_message, "%s", fth_error_message());
    }
    pthread_cond_broadcast(&health->failed);
    pthread_mutex_unlock(&health->mutex);
}

fth_status fth_health_wait_for_failure(fth_health *health, double seconds)
{
    struct timespec until = fth_deadline_timespec(fth_deadline_in(seconds));
    int error = 0;
    pthread_mutex_lock(&health->mutex);
    while (health->failure == FTH_OK && error == 0 && seconds > 0)
        error = pthread_cond_clockwait(&health->failed, &health->mutex, CLOCK_MONOTONIC, &until);
    fth_status status = health->failure != FTH_OK ? fth_fail(health->failure, "%s", health->failure_message) : FTH_OK;
    pthread_mutex_unlock(&health->mutex);
    return status;
}

fth_status fth_health_get_failure(fth_health *health)
{
    return fth_health_wait_for_failure(health, 0);
}

void fth_health_set_stopping(fth_health *health)
{
    pthread_mutex_lock(&health->mutex);
    health->stopping = true;
    pthread_mutex_unlock(&health->mutex);
}

/* ---- unfit gradients ---- */

static void warn_of_worker(fth_health *health, const char *worker, int64_t count, const char *why)
{
    int64_t reported = 1;
    while (reported < count)
        reported *= 10;
    if (reported != count)
        return;
    char *message = fth_format("worker %s: %lld of its gradients refused so far; %s", worker, (long long)count, why);
    fth_served_record_warn(health->record, fth_served_position_version(health->position), message ? message : why);
    free(message);
}

bool fth_health_note_unfit(fth_health *health, const fth_gradient *gradient, const char *access, const char *why)
{
    int64_t version = fth_served_position_version(health->position);
    int64_t count = fth_workers_note_unfit(health->workers, gradient->worker, access, gradient->version, version);

    pthread_mutex_lock(&health->mutex);
    health->unfit.count++;
    health->unfit.version = version;
    health->unfit.at_s = fth_clock_seconds();
    snprintf(health->unfit.worker, sizeof health->unfit.worker, "%s", count > 0 ? gradient->worker : "");
    snprintf(health->unfit.why, sizeof health->unfit.why, "%s", why);
    pthread_mutex_unlock(&health->mutex);
    if (count > 0)
        warn_of_worker(health, gradient->worker, count, why);
    return count > 0;
}

json_t *fth_health_describe(fth_health *health, int *code)
{
    pthread_mutex_lock(&health->mutex);
    const char *state = health->failure != FTH_OK ? "failed" : health->stopping ? "stopping" : "ok";
    bool well = health->failure == FTH_OK && !health->stopping;
    unfit_gradients unfit = health->unfit;
    pthread_mutex_unlock(&health->mutex);
    *code = well ? 200 : 503;
    json_t *json =
        json_pack("{s:i, s:s, s:I, s:I}", "code", *code, "status", state, "version",
                  (json_int_t)fth_served_position_version(health->position), "unfit", (json_int_t)unfit.count);
    if (unfit.count > 0)
        json_object_set_new(json, "last_unfit",
                            json_pack("{s:s, s:I, s:f, s:s}", "worker", unfit.worker, "version",
                                      (json_int_t)unfit.version, "seconds_ago", fth_clock_seconds() - unfit.at_s,
                                      "error", unfit.why));
    return json;
}
