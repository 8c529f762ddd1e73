/* See validator.h. */
#include "parameters/validator.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/process.h"

static const double LOOK_EVERY_S = 0.1, SNAPSHOT_WAIT_S = 10;

struct fth_served_validator {
    const fth_server_parts *parts;
    pthread_t thread; /* for the thread that starts and joins */
    bool running;
    fth_stop stop; /* also ends an evaluation */

    /* For the validating thread only. */
    fth_device *device;
    fth_engine *engine;

    pthread_mutex_t mutex;   /* guards what follows */
    pthread_cond_t stopping; /* signalled when `stop` is asked */
    bool known;
    fth_validation last;
};

static fth_status load_snapshot(fth_served_validator *v, const fth_parameter_snapshot *snapshot)
{
    fth_status status = FTH_OK;
    fth_weights *weights = NULL;
    size_t size = 0;
    int fd = fth_parameter_snapshot_file(snapshot, &size);
    void *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

    FTH_REQUIRE(bytes != MAP_FAILED, FTH_NO_MEMORY, "no memory to look at a copy of the parameters");
    FTH_TRY(fth_weights_parse(bytes, size, "the server's parameters", "", &weights));
    FTH_TRY(fth_engine_load_weights(v->engine, weights, false, "the server's parameters", NULL));

out:
    fth_weights_free(weights);
    if (bytes != MAP_FAILED)
        munmap(bytes, size);
    return status;
}

static fth_status evaluate(fth_served_validator *v, fth_engine *engine, const fth_stop *stop,
                           fth_evaluation *evaluation)
{
    fth_status status = FTH_OK;
    const fth_served_model *model = v->parts->model;
    fth_loader *loader = NULL;
    int64_t count = fth_dataset_get_info(model->dataset)->count[FTH_VALIDATION];
    int64_t batch = fth_engine_evaluation_batch(engine, fth_engine_get_options(engine)->train->batch, count);
    fth_loader_options options = {.split = FTH_VALIDATION,
                                  .batch = batch,
                                  .seed = (uint64_t)model->train->seed,
                                  .threads = 1,
                                  .batch_limit = fth_batches_per_epoch(count, batch)};

    FTH_TRY(fth_loader_open(model->dataset, &options, &loader));
    FTH_TRY(fth_engine_evaluate(engine, loader, stop, (fth_deadline){INFINITY}, NULL, evaluation));
    FTH_REQUIRE(isfinite(evaluation->loss), FTH_DIVERGED, "the loss of validation is not a finite number");

out:
    fth_loader_free(loader);
    return status;
}

/* Records the validation as an "epoch" event. */
static void publish(fth_served_validator *v, int64_t version, const fth_evaluation *evaluation)
{
    pthread_mutex_lock(&v->mutex);
    v->known = true;
    v->last = (fth_validation){.version = version, .accuracy = evaluation->accuracy, .loss = evaluation->loss};
    pthread_mutex_unlock(&v->mutex);
    fth_served_record_append(
        v->parts->record, "epoch",
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:f}", "epoch", (json_int_t)(version / v->parts->options->validate_every),
                  "step", (json_int_t)version, "validation_loss", evaluation->loss, "validation_accuracy",
                  evaluation->accuracy, "elapsed_s", fth_served_position_elapsed_s(v->parts->position), "evaluate_s",
                  evaluation->seconds));
    fth_log_info("version %lld: accuracy %.2f %%, loss %.4f", (long long)version, 100 * evaluation->accuracy,
                 evaluation->loss);
}

/* Waits until the server has `version`; false when it stops. */
static bool wait_for_version(fth_served_validator *v, int64_t version)
{
    pthread_mutex_lock(&v->mutex);
    while (!v->stop.asked && fth_served_position_version(v->parts->position) < version) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(LOOK_EVERY_S));
        pthread_cond_clockwait(&v->stopping, &v->mutex, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&v->mutex);
    return !v->stop.asked;
}

static fth_status open_engine(fth_served_validator *v)
{
    fth_status status = FTH_OK;
    const fth_served_model *model = v->parts->model;
    fth_engine_options options = {.train = model->train,
                                  .longest = model->input.longest,
                                  .task = model->task,
                                  .channels = model->input.channels,
                                  .height = model->input.height,
                                  .width = model->input.width,
                                  .classes = model->classes,
                                  .training_samples = model->epoch_samples > 0 ? model->epoch_samples : 1,
                                  .evaluate_only = true};
    FTH_TRY(fth_device_open("cpu", &(fth_device_options){.threads = 1}, &v->device));
    FTH_TRY(fth_engine_create(&options, v->device, &v->engine));

out:
    return status;
}

static void *run_validator(void *context)
{
    fth_served_validator *v = context;
    int64_t every = v->parts->options->validate_every, next = 0;

    fth_status status = open_engine(v);
    while (status == FTH_OK && wait_for_version(v, next)) {
        fth_parameter_snapshot *snapshot = fth_parameter_snapshots_get(v->parts->snapshots, next, SNAPSHOT_WAIT_S);
        fth_evaluation evaluation = {0};
        if (!snapshot)
            continue; /* slow readers hold all snapshots; try again */
        int64_t version = fth_parameter_snapshot_version(snapshot);
        status = load_snapshot(v, snapshot);
        if (status == FTH_OK)
            status = evaluate(v, v->engine, &v->stop, &evaluation);
        if (status == FTH_OK)
            publish(v, version, &evaluation);
        else if (status == FTH_DIVERGED) /* the applying thread handles divergence */
            status = FTH_OK;
        next = version - version % every + every;
        fth_parameter_snapshot_release(snapshot);
    }
    if (status != FTH_OK && status != FTH_INTERRUPTED)
        fth_log_warning("validation has ended: %s", fth_error_message());
    fth_engine_free(v->engine);
    fth_device_close(v->device);
    return NULL;
}

void fth_served_validator_run_last(fth_served_validator *v)
{
    fth_evaluation evaluation = {0};
    int64_t version = v ? fth_served_position_version(v->parts->position) : 0;
    if (!v || (v->known && v->last.version == version))
        return;
    if (evaluate(v, v->parts->model->engine, NULL, &evaluation) == FTH_OK)
        publish(v, version, &evaluation);
    else
        fth_log_warning("the last version was not validated: %s", fth_error_message());
}

bool fth_served_validator_get(fth_served_validator *v, fth_validation *validation)
{
    if (!v)
        return false;
    pthread_mutex_lock(&v->mutex);
    bool known = v->known;
    if (known)
        *validation = v->last;
    pthread_mutex_unlock(&v->mutex);
    return known;
}

/* ---- beginning and end ---- */

fth_status fth_served_validator_start(const fth_server_parts *parts, fth_served_validator **result)
{
    fth_status status = FTH_OK;
    fth_served_validator *v = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *v, &v));
    v->parts = parts;
    v->stop = (fth_stop)FTH_STOP_INITIALIZER;
    pthread_mutex_init(&v->mutex, NULL);
    pthread_cond_init(&v->stopping, NULL);
    v->running = fth_thread_start(&v->thread, "validate", run_validator, v) == 0;
    FTH_REQUIRE(v->running, FTH_NO_MEMORY, "no thread to validate");
    *result = v;
    v = NULL;

out:
    fth_served_validator_free(v);
    return status;
}

void fth_served_validator_stop(fth_served_validator *v)
{
    fth_stop_ask(&v->stop, FTH_STOP_REQUEST, INFINITY, "server", "the server stops");
    pthread_mutex_lock(&v->mutex);
    pthread_cond_broadcast(&v->stopping);
    pthread_mutex_unlock(&v->mutex);
}

void fth_served_validator_join(fth_served_validator *v)
{
    if (v->running)
        pthread_join(v->thread, NULL);
    v->running = false;
}

void fth_served_validator_free(fth_served_validator *v)
{
    if (!v)
        return;
    fth_served_validator_stop(v);
    fth_served_validator_join(v);
    pthread_cond_destroy(&v->stopping);
    pthread_mutex_destroy(&v->mutex);
    free(v);
}
