/* Validation: of the weights as they are, while training waits; or of a copy of them, beside training.
 *
 * Beside training it has a thread, an engine and a device of one OpenMP thread of its own. One validation at a time:
 *
 *     epoch ends -> state.pending is set, the weights are copied, the thread starts
 *                   -> done       its epoch is told, the copy kept if it is the best, state.pending set back
 *                   -> cancelled  (a stop, a failure) state.pending stays: whoever resumes validates then, with the
 *                                 weights of the checkpoint
 *
 * There is no checkpoint while it goes on, except the one of a stop, which ends it. So whatever a resume starts from,
 * an epoch's event was either written before that checkpoint, or is undone by the resume, or is still pending. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "train/trainer_internal.h"

struct fth_validation {
    fth_device *device;
    fth_engine *engine; /* of the copy */
    fth_loader *loader;
    fth_epoch_facts facts; /* of the epoch it is for */
    double began_s;
    fth_stop cancel;
    pthread_t thread;
    bool running; /* the thread is to be joined */

    pthread_mutex_t mutex; /* guards what follows, until `done` */
    pthread_cond_t changed;
    bool done;
    fth_status status;
    char message[1024]; /* messages belong to a thread */
    fth_evaluation evaluation;
};

/* ---- results ---- */

/* Weights that are validated: where they are, and when they were. */
typedef struct candidate {
    fth_engine *engine;
    int64_t step, batches;
} candidate;

/* Is the last validation better than the model that is kept? Where they are equal by the measure of --best-by, the other
 * measure decides; where that is equal too, the earlier model stays. */
static bool is_best(const fth_trainer *trainer)
{
    const fth_train_state *state = &trainer->position.state;
    double loss = state->best_loss - state->validation_loss;
    double accuracy = state->validation_accuracy - state->best_accuracy;
    bool by_accuracy = strcmp(trainer->setup.options->best_by, "accuracy") == 0;
    double first = by_accuracy ? accuracy : loss, second = by_accuracy ? loss : accuracy;
    return state->best_step < 0 || first > 0 || (first == 0 && second > 0);
}

static fth_status keep_best(fth_trainer *trainer, const candidate *weights)
{
    fth_train_state *state = &trainer->position.state;
    if (!is_best(trainer))
        return FTH_OK;
    double began = fth_clock_seconds();
    fth_status status = fth_saver_save_model(trainer->saver, weights->engine, weights->step,
                                             state->counter_start + weights->batches, trainer->best_path);
    state->meters.checkpoint_s += fth_clock_seconds() - began;
    if (status == FTH_DIVERGED)
        return status;
    if (status != FTH_OK) { /* a later, better one gets its chance; the weights are in the next checkpoint too */
        fth_reporter_warn(trainer->reporter, "the best model so far could not be saved: %s", fth_error_message());
        return FTH_OK;
    }
    state->best_loss = state->validation_loss;
    state->best_accuracy = state->validation_accuracy;
    state->best_step = state->validation_step;
    fth_reporter_write(trainer->reporter, "best",
                       json_pack("{s:s, s:f, s:I, s:f, s:f, s:f, s:s, s:s}", "event", "best", "time", 0.0, "step",
                                 (json_int_t)weights->step, "epoch",
                                 (double)weights->batches / (double)trainer->position.batches_per_epoch,
                                 "validation_loss", state->best_loss, "validation_accuracy", state->best_accuracy, "by",
                                 trainer->setup.options->best_by, "file", trainer->best_path));
    return FTH_OK;
}

fth_status fth_trainer_keep_best(fth_trainer *trainer)
{
    return keep_best(trainer,
                     &(candidate){trainer->setup.engine, trainer->position.step, trainer->position.state.batches});
}

static const char *const not_finite = "the validation loss is not finite";

/* ---- while training waits ---- */

fth_status fth_trainer_validate(fth_trainer *trainer, fth_deadline deadline, fth_evaluation *evaluation)
{
    fth_status status = FTH_OK;
    fth_loader *loader = NULL;
    double began = fth_clock_seconds();

    fth_reporter_show_evaluating(trainer->reporter, true);
    FTH_TRY(fth_setup_open_loader(&trainer->setup, FTH_VALIDATION, 0, &loader));
    FTH_TRY(fth_engine_evaluate(trainer->setup.engine, loader, trainer->stop, deadline, NULL, evaluation));
    if (!isfinite(evaluation->loss))
        FTH_TRY(fth_engine_fail_diverged(trainer->setup.engine, not_finite));
    fth_position_set_validation(&trainer->position, evaluation, trainer->position.step);

out:
    fth_loader_free(loader);
    trainer->position.state.meters.evaluate_s += fth_clock_seconds() - began;
    fth_reporter_show_evaluating(trainer->reporter, false);
    return status;
}

static fth_status validate_now(fth_trainer *trainer, bool validated)
{
    fth_status status = FTH_OK;
    fth_evaluation evaluation;

    if (validated)
        FTH_TRY(fth_trainer_validate(trainer, (fth_deadline){INFINITY}, &evaluation));
    fth_reporter_write_bad_images(trainer->reporter);
    fth_reporter_sample_accelerator(trainer->reporter);
    fth_epoch_facts facts = fth_position_describe_epoch(&trainer->position);
    fth_reporter_write_epoch(trainer->reporter, &facts, validated ? &evaluation : NULL);
    if (validated)
        FTH_TRY(fth_trainer_keep_best(trainer));

out:
    return status;
}

/* ---- beside training ---- */

static void *evaluate(void *context)
{
    fth_validation *validation = context;
    fth_evaluation evaluation = {0};
    fth_status status = fth_engine_evaluate(validation->engine, validation->loader, &validation->cancel,
                                            (fth_deadline){INFINITY}, NULL, &evaluation);
    if (status == FTH_OK && !isfinite(evaluation.loss))
        status = fth_engine_fail_diverged(validation->engine, not_finite);
    pthread_mutex_lock(&validation->mutex);
    validation->status = status;
    validation->evaluation = evaluation;
    if (status != FTH_OK)
        snprintf(validation->message, sizeof validation->message, "%s", fth_error_message());
    validation->done = true;
    pthread_cond_signal(&validation->changed);
    pthread_mutex_unlock(&validation->mutex);
    return NULL;
}

static fth_status make_validation(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_validation *validation = NULL;
    const fth_dataset_info *info = fth_dataset_get_info(trainer->setup.dataset);
    fth_engine_options options = {.train = trainer->setup.options,
                                  .channels = info->channels,
                                  .height = info->height,
                                  .width = info->width,
                                  .classes = info->classes,
                                  .training_samples = info->count[FTH_TRAIN],
                                  .precision_before = fth_engine_precision(trainer->setup.engine),
                                  .evaluate_only = true,
                                  .keep_layout = true};

    FTH_TRY(fth_allocate(1, sizeof *validation, &validation));
    pthread_mutex_init(&validation->mutex, NULL);
    pthread_mutex_init(&validation->cancel.mutex, NULL);
    pthread_cond_init(&validation->changed, NULL);
    trainer->validation = validation;
    FTH_TRY(fth_device_open(trainer->setup.device->backend->name, &(fth_device_options){.threads = 1},
                            &validation->device));
    FTH_TRY(fth_engine_create(&options, validation->device, &validation->engine));

out:
    return status;
}

static fth_status begin_beside(fth_trainer *trainer)
{
    fth_status status = FTH_OK;

    if (!trainer->validation)
        FTH_TRY(make_validation(trainer));
    fth_validation *validation = trainer->validation;
    validation->facts = trainer->position.state.pending;
    validation->done = false;
    validation->cancel.asked = 0;
    validation->began_s = fth_clock_seconds();
    FTH_TRY(fth_engine_copy_weights(trainer->setup.engine, validation->engine));
    fth_loader_free(validation->loader);
    validation->loader = NULL;
    FTH_TRY(fth_setup_open_loader(&trainer->setup, FTH_VALIDATION, 0, &validation->loader));

    validation->running = fth_thread_start(&validation->thread, "validate", evaluate, validation) == 0;
    FTH_REQUIRE(validation->running, FTH_NO_MEMORY, "cannot start a thread for validation");

out:
    return status;
}

/* True when it is done. Nothing in it waits without a deadline of its own. */
static bool wait_until_done(fth_trainer *trainer, bool wait)
{
    const double look_every_s = 0.1;
    fth_validation *validation = trainer->validation;
    pthread_mutex_lock(&validation->mutex);
    while (wait && !validation->done && !(trainer->stop && trainer->stop->asked)) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(look_every_s));
        pthread_cond_clockwait(&validation->changed, &validation->mutex, CLOCK_MONOTONIC, &until);
    }
    bool done = validation->done;
    pthread_mutex_unlock(&validation->mutex);
    return done;
}

static void join(fth_validation *validation)
{
    pthread_join(validation->thread, NULL);
    validation->running = false;
    fth_loader_free(validation->loader);
    validation->loader = NULL;
}

static fth_status tell_validation(fth_trainer *trainer)
{
    fth_validation *validation = trainer->validation;
    const fth_epoch_facts *facts = &validation->facts;

    join(validation);
    trainer->position.state.meters.evaluate_s += fth_clock_seconds() - validation->began_s;
    if (validation->status != FTH_OK)
        return fth_fail(validation->status, "%s", validation->message);
    fth_position_set_validation(&trainer->position, &validation->evaluation, facts->step);
    fth_reporter_write_bad_images(trainer->reporter);
    fth_reporter_write_epoch(trainer->reporter, facts, &validation->evaluation);
    trainer->position.state.pending = (fth_epoch_facts){0};
    return keep_best(trainer, &(candidate){validation->engine, facts->step, facts->batches});
}

fth_status fth_trainer_follow_validation(fth_trainer *trainer, bool wait)
{
    fth_status status = FTH_OK;
    fth_train_state *state = &trainer->position.state;

    if (state->pending.epoch == 0)
        return FTH_OK;
    if (!trainer->validation || !trainer->validation->running) { /* left undone by the process before */
        state->pending.step = trainer->position.step;
        state->pending.batches = state->batches;
        FTH_TRY(begin_beside(trainer));
    }
    if (wait_until_done(trainer, wait))
        FTH_TRY(tell_validation(trainer));
    else if (wait)
        status = fth_fail(FTH_INTERRUPTED, "validation was interrupted");

out:
    return status;
}

void fth_trainer_cancel_validation(fth_trainer *trainer)
{
    fth_validation *validation = trainer->validation;
    if (!validation || !validation->running)
        return;
    validation->cancel.asked = 1;
    join(validation); /* it looks at the request between batches */
}

void fth_validation_free(fth_validation *validation)
{
    if (!validation)
        return;
    fth_loader_free(validation->loader);
    fth_engine_free(validation->engine);
    fth_device_close(validation->device);
    pthread_mutex_destroy(&validation->mutex);
    pthread_mutex_destroy(&validation->cancel.mutex);
    pthread_cond_destroy(&validation->changed);
    free(validation);
}

/* ---- the end of an epoch ---- */

fth_status fth_trainer_finish_epoch(fth_trainer *trainer, bool beside)
{
    fth_status status = FTH_OK;
    fth_train_state *state = &trainer->position.state;
    int64_t epoch = state->batches / trainer->position.batches_per_epoch;
    bool validated = epoch % trainer->setup.options->validate_every == 0;

    fth_reporter_write_step(trainer->reporter);
    FTH_TRY(fth_trainer_follow_validation(trainer, true)); /* epochs are told in their order */
    if (validated && beside) {
        fth_reporter_sample_accelerator(trainer->reporter);
        state->pending = fth_position_describe_epoch(&trainer->position);
        FTH_TRY(begin_beside(trainer));
    } else {
        FTH_TRY(validate_now(trainer, validated));
    }
    fth_position_begin_epoch(&trainer->position);
    fth_reporter_skip_pause(trainer->reporter);

out:
    return status;
}
