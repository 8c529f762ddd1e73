/* Accuracy, in a thread of its own with an engine of its own: a copy of the parameters is evaluated on the data's
 * validation part while gradients are applied. */
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "parameters/parameters_internal.h"

typedef struct validator {
    fth_parameters *server;
    fth_device *device;
    fth_engine *engine;
} validator;

static fth_status load_copy(validator *v, const fth_copy *copy)
{
    fth_status status = FTH_OK;
    fth_weights *weights = NULL;
    void *bytes = mmap(NULL, copy->size_bytes, PROT_READ, MAP_SHARED, copy->fd, 0);

    FTH_REQUIRE(bytes != MAP_FAILED, FTH_NO_MEMORY, "no memory to look at a copy of the parameters");
    FTH_TRY(fth_weights_parse(bytes, copy->size_bytes, "the server's parameters", "", &weights));
    FTH_TRY(fth_engine_load_weights(v->engine, weights, false, "the server's parameters", NULL));

out:
    fth_weights_free(weights);
    if (bytes != MAP_FAILED)
        munmap(bytes, copy->size_bytes);
    return status;
}

static fth_status evaluate(fth_parameters *server, fth_engine *engine, const fth_stop *stop, fth_evaluation *evaluation)
{
    fth_status status = FTH_OK;
    fth_loader *loader = NULL;
    int64_t count = fth_dataset_get_info(server->dataset)->count[FTH_VALIDATION];
    int64_t batch = fth_engine_evaluation_batch(engine, count);
    fth_loader_options options = {.split = FTH_VALIDATION,
                                  .batch = batch,
                                  .seed = (uint64_t)server->train->seed,
                                  .threads = 1,
                                  .batch_limit = fth_batches_per_epoch(count, batch)};

    FTH_TRY(fth_loader_open(server->dataset, &options, &loader));
    FTH_TRY(fth_engine_evaluate(engine, loader, stop, (fth_deadline){INFINITY}, NULL, evaluation));
    FTH_REQUIRE(isfinite(evaluation->loss), FTH_DIVERGED, "the loss of validation is not a finite number");

out:
    fth_loader_free(loader);
    return status;
}

/* What the record calls an epoch: here, a validation. */
static void publish(fth_parameters *server, int64_t version, const fth_evaluation *evaluation)
{
    pthread_mutex_lock(&server->mutex);
    server->validation.known = true;
    server->validation.version = version;
    server->validation.accuracy = evaluation->accuracy;
    server->validation.loss = evaluation->loss;
    pthread_mutex_unlock(&server->mutex);
    fth_parameters_tell(server, "epoch",
                        json_pack("{s:I, s:I, s:f, s:f, s:f, s:f}", "epoch",
                                  (json_int_t)(version / server->options.validate_every), "step", (json_int_t)version,
                                  "validation_loss", evaluation->loss, "validation_accuracy", evaluation->accuracy,
                                  "elapsed_s", fth_parameters_elapsed(server), "evaluate_s", evaluation->seconds));
    fth_log_info("version %lld: accuracy %.2f %%, loss %.4f", (long long)version, 100 * evaluation->accuracy,
                 evaluation->loss);
}

/* Waits until `version` is there; false when the server stops. */
static bool wait_for_version(fth_parameters *server, int64_t version)
{
    const double look_every_s = 0.1;
    pthread_mutex_lock(&server->mutex);
    while (!server->stopping && atomic_load(&server->version) < version) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(look_every_s));
        pthread_cond_clockwait(&server->changed, &server->mutex, CLOCK_MONOTONIC, &until);
    }
    bool goes_on = !server->stopping;
    pthread_mutex_unlock(&server->mutex);
    return goes_on;
}

static fth_status open_validator(validator *v)
{
    fth_status status = FTH_OK;
    fth_parameters *server = v->server;
    fth_engine_options options = {.train = server->train,
                                  .channels = server->channels,
                                  .height = server->height,
                                  .width = server->width,
                                  .classes = server->classes,
                                  .training_samples = server->epoch_samples > 0 ? server->epoch_samples : 1,
                                  .evaluate_only = true};
    FTH_TRY(fth_device_open("cpu", &(fth_device_options){.threads = 1}, &v->device));
    FTH_TRY(fth_engine_create(&options, v->device, &v->engine));

out:
    return status;
}

void fth_parameters_validate_last(fth_parameters *server)
{
    fth_evaluation evaluation = {0};
    int64_t version = fth_parameters_version(server);
    if (!server->dataset || server->options.validate_every <= 0 ||
        (server->validation.known && server->validation.version == version))
        return;
    if (evaluate(server, server->engine, NULL, &evaluation) == FTH_OK)
        publish(server, version, &evaluation);
    else
        fth_log_warning("the last version was not validated: %s", fth_error_message());
}

void *fth_parameters_validate(void *context)
{
    fth_parameters *server = context;
    validator v = {.server = server};
    int64_t every = server->options.validate_every, next = 0;

    fth_status status = open_validator(&v);
    while (status == FTH_OK && wait_for_version(server, next)) {
        fth_copy *copy = fth_parameters_get_copy(server, next, 10);
        fth_evaluation evaluation = {0};
        if (!copy)
            continue; /* slow readers have all the room; the next look may be luckier */
        status = load_copy(&v, copy);
        if (status == FTH_OK)
            status = evaluate(server, v.engine, &server->validation_stop, &evaluation);
        if (status == FTH_OK)
            publish(server, copy->version, &evaluation);
        else if (status == FTH_DIVERGED) /* the applying thread notices what concerns it */
            status = FTH_OK;
        next = copy->version - copy->version % every + every;
        fth_copy_unref(copy);
    }
    if (status != FTH_OK && status != FTH_INTERRUPTED)
        fth_log_warning("accuracy is no longer measured: %s", fth_error_message());
    fth_engine_free(v.engine);
    fth_device_close(v.device);
    return NULL;
}
