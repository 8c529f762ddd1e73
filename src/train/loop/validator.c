/* See validator.h. */
#include "train/loop/validator.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"

/* The validation alongside training; all zero before the first. */
typedef struct background {
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
} background;

struct fth_validator {
    fth_validator_options with;
    fth_saver *saver; /* NULL, as the path: a peer keeps the best model */
    const char *best_path;
    fth_peers peers; /* sum NULL: none */
    background background;
};

/* ---- results ---- */

/* The weights to validate, and the step that they are of. */
typedef struct candidate {
    fth_engine *engine;
    int64_t step, batches;
} candidate;

/* Whether the last validation is better than the kept model. If they are equal by the measure of
 * --best-by, the other measure decides; if that is equal too, the earlier model stays. */
static bool is_best(const fth_train_state *state, fth_best_measure best_by)
{
    double loss = state->best_loss - state->validation_loss;
    double accuracy = state->validation_accuracy - state->best_accuracy;
    bool by_accuracy = best_by == FTH_BEST_BY_ACCURACY;
    double first = by_accuracy ? accuracy : loss, second = by_accuracy ? loss : accuracy;
    return state->best_step < 0 || first > 0 || (first == 0 && second > 0);
}

static fth_status keep_if_best(const fth_validator *validator, const candidate *weights)
{
    const fth_validator_options *with = &validator->with;
    const fth_best_measure best_by = with->setup->options->saving.best_by;
    fth_train_state *state = &with->position->state;
    if (!is_best(state, best_by))
        return FTH_OK;
    double began = fth_clock_seconds();
    fth_status status = fth_saver_save_model(validator->saver, weights->engine, weights->step,
                                             state->counter_start + weights->batches, validator->best_path);
    state->meters.checkpoint_s += fth_clock_seconds() - began;
    if (status == FTH_DIVERGED)
        return status;
    if (status != FTH_OK) { /* the next better model is tried again; the weights are also in the next checkpoint */
        fth_reporter_warn(with->reporter, "the best model so far could not be saved: %s", fth_error_message());
        return FTH_OK;
    }
    state->best_loss = state->validation_loss;
    state->best_accuracy = state->validation_accuracy;
    state->best_step = state->validation_step;
    if (!validator->saver)
        return FTH_OK;
    fth_reporter_write(with->reporter, "best",
                       json_pack("{s:s, s:f, s:I, s:f, s:f, s:f, s:s, s:s}", "event", "best", "time", 0.0, "step",
                                 (json_int_t)weights->step, "epoch",
                                 (double)weights->batches / (double)with->position->batches_per_epoch,
                                 "validation_loss", state->best_loss, "validation_accuracy", state->best_accuracy, "by",
                                 fth_best_measure_names[best_by], "file", validator->best_path));
    return FTH_OK;
}

static const char *const not_finite = "the validation loss is not finite";

/* ---- while training waits ---- */

/* Evaluates this process's part. After each batch, the peers agree on whether to continue. */
static fth_status count_with_peers(const fth_validator *validator, fth_loader *loader, fth_deadline deadline,
                                   fth_counts *counts)
{
    fth_status status = FTH_OK;
    const fth_validator_options *with = &validator->with;
    const fth_counting how = {.stop = with->stop, .deadline = deadline, .batches = 1};

    while (!counts->done) { /* all loop equally often: loaders of parts have the same number of batches */
        status = fth_engine_count(with->setup->engine, loader, &how, counts);
        double ends[] = {status == FTH_INTERRUPTED, status == FTH_TIMEOUT};
        if (status != FTH_INTERRUPTED && status != FTH_TIMEOUT)
            FTH_TRY(status);
        FTH_TRY(validator->peers.sum(validator->peers.context, ends, FTH_COUNT_OF(ends)));
        FTH_REQUIRE(ends[0] == 0, FTH_INTERRUPTED, "evaluation was interrupted");
        FTH_REQUIRE(ends[1] == 0, FTH_TIMEOUT, "evaluation did not end in time");
    }

out:
    return status;
}

static fth_status evaluate_with_peers(const fth_validator *validator, fth_loader *loader, fth_deadline deadline,
                                      fth_evaluation *evaluation)
{
    fth_status status = FTH_OK;
    const double began = fth_clock_seconds();
    fth_counts counts = {0};

    FTH_TRY(count_with_peers(validator, loader, deadline, &counts));
    double sums[] = {counts.loss, (double)counts.correct, (double)counts.samples};
    FTH_TRY(validator->peers.sum(validator->peers.context, sums, FTH_COUNT_OF(sums)));
    counts = (fth_counts){.loss = sums[0], .correct = (int64_t)sums[1], .samples = (int64_t)sums[2]};
    FTH_TRY(fth_counts_average(&counts, fth_clock_seconds() - began, evaluation));

out:
    return status;
}

static fth_status evaluate_now(const fth_validator *validator, fth_deadline deadline, fth_evaluation *evaluation)
{
    fth_status status = FTH_OK;
    const fth_validator_options *with = &validator->with;
    fth_engine *engine = with->setup->engine;
    fth_loader *loader = NULL;
    double began = fth_clock_seconds();

    fth_reporter_show_evaluating(with->reporter, true);
    FTH_TRY(fth_setup_open_loader(with->setup, FTH_VALIDATION, 0, &loader));
    FTH_TRY(validator->peers.sum ? evaluate_with_peers(validator, loader, deadline, evaluation)
                                 : fth_engine_evaluate(engine, loader, with->stop, deadline, NULL, evaluation));
    if (!isfinite(evaluation->loss))
        FTH_TRY(fth_engine_fail_diverged(engine, not_finite));
    fth_position_set_validation(with->position, evaluation, with->position->step);

out:
    fth_loader_free(loader);
    with->position->state.meters.evaluate_s += fth_clock_seconds() - began;
    fth_reporter_show_evaluating(with->reporter, false);
    return status;
}

/* Keeps the current weights. */
static fth_status keep_current_if_best(const fth_validator *validator)
{
    const fth_position *position = validator->with.position;
    return keep_if_best(validator,
                        &(candidate){validator->with.setup->engine, position->step, position->state.batches});
}

fth_status fth_validator_validate(fth_validator *validator, fth_deadline deadline)
{
    fth_evaluation evaluation;
    fth_status status = evaluate_now(validator, deadline, &evaluation);
    return status == FTH_OK ? keep_current_if_best(validator) : status;
}

fth_status fth_validator_keep_best(fth_validator *validator)
{
    const fth_position *position = validator->with.position;
    return position->state.validation_step == position->step ? keep_current_if_best(validator) : FTH_OK;
}

static fth_status finish_epoch_now(fth_validator *validator, bool validated)
{
    fth_status status = FTH_OK;
    fth_reporter *reporter = validator->with.reporter;
    fth_evaluation evaluation;

    if (validated)
        FTH_TRY(evaluate_now(validator, (fth_deadline){INFINITY}, &evaluation));
    fth_reporter_write_data(reporter);
    fth_reporter_sample_accelerator(reporter);
    fth_epoch_facts facts = fth_position_describe_epoch(validator->with.position);
    fth_reporter_write_epoch(reporter, &facts, validated ? &evaluation : NULL);
    if (validated)
        FTH_TRY(keep_current_if_best(validator));

out:
    return status;
}

/* ---- alongside training ---- */

static void *evaluate(void *context)
{
    background *task = context;
    fth_evaluation evaluation = {0};
    fth_status status =
        fth_engine_evaluate(task->engine, task->loader, &task->cancel, (fth_deadline){INFINITY}, NULL, &evaluation);
    if (status == FTH_OK && !isfinite(evaluation.loss))
        status = fth_engine_fail_diverged(task->engine, not_finite);
    pthread_mutex_lock(&task->mutex);
    task->status = status;
    task->evaluation = evaluation;
    if (status != FTH_OK)
        snprintf(task->message, sizeof task->message, "%s", fth_error_message());
    task->done = true;
    pthread_cond_signal(&task->changed);
    pthread_mutex_unlock(&task->mutex);
    return NULL;
}

static fth_status open_engine(fth_validator *validator)
{
    fth_status status = FTH_OK;
    background *task = &validator->background;
    const fth_setup *setup = validator->with.setup;
    fth_engine_options options = *fth_engine_get_options(setup->engine);

    options.training_samples = fth_dataset_get_info(setup->dataset)->count[FTH_TRAIN];
    options.dataset = NULL;
    options.shared = NULL;
    options.precision_before = fth_engine_precision(setup->engine);
    options.evaluate_only = options.keep_layout = true;
    if (!task->device)
        FTH_TRY(fth_device_open(setup->device->backend->name, &(fth_device_options){.threads = 1}, &task->device));
    FTH_TRY(fth_engine_create(&options, task->device, &task->engine));

out:
    return status;
}

static fth_status begin_alongside(fth_validator *validator)
{
    fth_status status = FTH_OK;
    background *task = &validator->background;
    const fth_setup *setup = validator->with.setup;

    if (!task->engine)
        FTH_TRY(open_engine(validator));
    task->facts = validator->with.position->state.pending;
    task->done = false;
    task->cancel.asked = 0;
    task->began_s = fth_clock_seconds();
    FTH_TRY(fth_engine_copy_weights(setup->engine, task->engine));
    fth_loader_free(task->loader);
    task->loader = NULL;
    FTH_TRY(fth_setup_open_loader(setup, FTH_VALIDATION, 0, &task->loader));

    task->running = fth_thread_start(&task->thread, "validate", evaluate, task) == 0;
    FTH_REQUIRE(task->running, FTH_NO_MEMORY, "cannot start a thread for validation");

out:
    return status;
}

/* True when it is done. Every wait in it has a deadline of its own. */
static bool wait_until_done(background *task, const fth_stop *stop, bool wait)
{
    const double look_every_s = 0.1;
    pthread_mutex_lock(&task->mutex);
    while (wait && !task->done && !(stop && stop->asked)) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(look_every_s));
        pthread_cond_clockwait(&task->changed, &task->mutex, CLOCK_MONOTONIC, &until);
    }
    bool done = task->done;
    pthread_mutex_unlock(&task->mutex);
    return done;
}

static void join(background *task)
{
    pthread_join(task->thread, NULL);
    task->running = false;
    fth_loader_free(task->loader);
    task->loader = NULL;
}

static fth_status finish_alongside(fth_validator *validator)
{
    background *task = &validator->background;
    const fth_validator_options *with = &validator->with;
    const fth_epoch_facts *facts = &task->facts;

    join(task);
    with->position->state.meters.evaluate_s += fth_clock_seconds() - task->began_s;
    if (task->status != FTH_OK)
        return fth_fail(task->status, "%s", task->message);
    fth_position_set_validation(with->position, &task->evaluation, facts->step);
    fth_reporter_write_data(with->reporter);
    fth_reporter_write_epoch(with->reporter, facts, &task->evaluation);
    with->position->state.pending = (fth_epoch_facts){0};
    return keep_if_best(validator, &(candidate){task->engine, facts->step, facts->batches});
}

fth_status fth_validator_follow(fth_validator *validator, bool wait)
{
    fth_status status = FTH_OK;
    fth_position *position = validator->with.position;

    if (position->state.pending.epoch == 0)
        return FTH_OK;
    if (!validator->background.running) { /* left by the previous process */
        position->state.pending.step = position->step;
        position->state.pending.batches = position->state.batches;
        FTH_TRY(begin_alongside(validator));
    }
    if (wait_until_done(&validator->background, validator->with.stop, wait))
        FTH_TRY(finish_alongside(validator));
    else if (wait)
        status = fth_fail(FTH_INTERRUPTED, "validation was interrupted");

out:
    return status;
}

void fth_validator_cancel(fth_validator *validator)
{
    background *task = &validator->background;
    if (!task->running)
        return;
    task->cancel.asked = 1;
    join(task); /* the request is checked between batches */
}

/* ---- within an epoch, and at its end ---- */

static bool ends_period(const fth_validator *validator)
{
    const fth_position *position = validator->with.position;
    return fth_period_ends(validator->with.setup->options->validate_every, position->step, position->steps_per_epoch);
}

bool fth_validator_is_due(const fth_validator *validator)
{
    const fth_position *position = validator->with.position;
    return position->state.batches % position->batches_per_epoch != 0 &&
           position->state.validation_step != position->step && ends_period(validator);
}

fth_status fth_validator_validate_within_epoch(fth_validator *validator)
{
    fth_status status = FTH_OK;
    fth_reporter *reporter = validator->with.reporter;
    fth_evaluation evaluation;

    fth_reporter_write_step(reporter);
    FTH_TRY(fth_validator_follow(validator, true)); /* of the last epoch */
    FTH_TRY(evaluate_now(validator, (fth_deadline){INFINITY}, &evaluation));
    fth_reporter_write_validation(reporter, &evaluation);
    FTH_TRY(keep_current_if_best(validator));
    fth_reporter_skip_pause(reporter);

out:
    return status;
}

fth_status fth_validator_finish_epoch(fth_validator *validator, bool alongside)
{
    fth_status status = FTH_OK;
    const fth_validator_options *with = &validator->with;
    fth_position *position = with->position;
    bool validated = ends_period(validator);

    fth_reporter_write_step(with->reporter);
    FTH_TRY(fth_validator_follow(validator, true)); /* epochs are recorded in order */
    if (validated && alongside) {
        fth_reporter_sample_accelerator(with->reporter);
        position->state.pending = fth_position_describe_epoch(position);
        FTH_TRY(begin_alongside(validator));
    } else {
        FTH_TRY(finish_epoch_now(validator, validated));
    }
    fth_position_begin_epoch(position);
    fth_reporter_skip_pause(with->reporter);

out:
    return status;
}

/* ---- lifetime ---- */

fth_status fth_validator_create(const fth_validator_options *options, fth_validator **validator)
{
    fth_status status = fth_allocate(1, sizeof **validator, validator);
    if (status != FTH_OK)
        return status;
    background *task = &(*validator)->background;
    (*validator)->with = *options;
    pthread_mutex_init(&task->mutex, NULL);
    pthread_mutex_init(&task->cancel.mutex, NULL);
    pthread_cond_init(&task->changed, NULL);
    return FTH_OK;
}

void fth_validator_set_saver(fth_validator *validator, fth_saver *saver, const char *best_path)
{
    validator->saver = saver;
    validator->best_path = best_path;
}

void fth_validator_set_peers(fth_validator *validator, fth_peers peers)
{
    validator->peers = peers;
}

void fth_validator_free(fth_validator *validator)
{
    if (!validator)
        return;
    background *task = &validator->background;
    fth_validator_cancel(validator);
    fth_loader_free(task->loader);
    fth_engine_free(task->engine);
    fth_device_close(task->device);
    pthread_mutex_destroy(&task->mutex);
    pthread_mutex_destroy(&task->cancel.mutex);
    pthread_cond_destroy(&task->changed);
    free(validator);
}
