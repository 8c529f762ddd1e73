/* See stepper.h. */
#include "train/loop/stepper.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/process.h"

/* Tells peers that wait for the end that this process still saves. */
typedef struct ending {
    pthread_t thread;
    bool running; /* it is to be joined */

    pthread_mutex_t mutex; /* guards what follows; the strategy's state is the thread's while it runs */
    pthread_cond_t changed;
    bool over;
    fth_status status;
    char message[512];
} ending;

struct fth_stepper {
    const fth_strategy *strategy; /* NULL, as the setup, before they are known */
    fth_setup *setup;
    fth_position *position;
    fth_reporter *reporter;
    fth_stop *stop;
    void *state; /* of the strategy; NULL before peers meet, it is connected or open */
    fth_peer_place place;
    fth_loader *loader;
    bool updating;          /* an update is being made, or failed */
    fth_train_state before; /* that update */
    bool unsettled;         /* the strategy has batches that it returned no result of, or peers have yet to drain */
    bool finished;          /* the strategy says that training is over */
    ending ending;
};

fth_status fth_stepper_create(fth_position *position, fth_reporter *reporter, fth_stop *stop, fth_stepper **stepper)
{
    fth_status status = fth_allocate(1, sizeof **stepper, stepper);
    if (status == FTH_OK)
        **stepper = (fth_stepper){.position = position,
                                  .reporter = reporter,
                                  .stop = stop,
                                  .ending = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}};
    return status;
}

fth_status fth_stepper_meet(fth_stepper *stepper, const fth_strategy *strategy, const fth_train_options *options,
                            json_t **run)
{
    *run = NULL;
    stepper->strategy = strategy;
    return strategy->meet ? strategy->meet(options, stepper->stop, &stepper->state, run) : FTH_OK;
}

bool fth_stepper_has_met(const fth_stepper *stepper)
{
    return stepper->strategy && stepper->strategy->meet;
}

int fth_stepper_count_processors(const fth_stepper *stepper)
{
    const fth_strategy *strategy = stepper->strategy;
    return strategy && strategy->count_processors && stepper->state ? strategy->count_processors(stepper->state) : 0;
}

const char *fth_stepper_get_node(const fth_stepper *stepper)
{
    return stepper->strategy->get_node ? stepper->strategy->get_node(stepper->state) : "";
}

fth_status fth_stepper_share_run(fth_stepper *stepper, const json_t *run)
{
    return stepper->strategy->share_run(stepper->state, run);
}

/* What has to be the same in all peers, besides options, by the names that messages have for it;
 * what explains other differences comes first. */
static json_t *describe_setup(const fth_setup *setup)
{
    enum { DIGEST_LENGTH = 12 }; /* enough to tell two apart */
    const fth_dataset_info *info = fth_dataset_get_info(setup->dataset);
    const bool text = info->kind == FTH_DATASET_TEXT;
    char digest[65] = "", tokenizer[65] = "";
    for (int i = 0; i < info->classes; i++) {
        char *both = fth_format("%s%s", digest, info->class_names[i]);
        if (!both)
            return NULL;
        fth_hex_sha256(both, strlen(both), digest);
        free(both);
    }
    if (text)
        fth_tokenizer_get_digest(info->text.tokenizer, tokenizer);
    digest[DIGEST_LENGTH] = tokenizer[DIGEST_LENGTH] = '\0';
    json_t *found = json_pack("{s:I, s:I, s:i, s:s, s:s*, s:I}", "number of training samples",
                              (json_int_t)info->count[FTH_TRAIN], "number of validation samples",
                              (json_int_t)info->count[FTH_VALIDATION], "number of classes", info->classes,
                              "sha256 of the class names", digest, "sha256 of the tokenizer", text ? tokenizer : NULL,
                              "number of parameters", (json_int_t)fth_engine_get_sizes(setup->engine).parameters);
    if (found && text)
        json_object_set_new(found, "number of training tokens",
                            json_integer(llround(info->text.mean_length * (double)info->count[FTH_TRAIN])));
    return found;
}

static fth_status announce(fth_stepper *stepper)
{
    json_t *found = describe_setup(stepper->setup);
    fth_status status = found ? stepper->strategy->announce(stepper->state, found)
                              : fth_fail(FTH_NO_MEMORY, "no memory to describe the data to peers");
    json_decref(found);
    return status;
}

fth_status fth_stepper_connect(fth_stepper *stepper, fth_setup *setup)
{
    fth_status status = FTH_OK;
    const fth_strategy *strategy = setup->strategy;

    stepper->strategy = strategy;
    stepper->setup = setup;
    if (strategy->announce && stepper->state)
        FTH_TRY(announce(stepper));
    if (strategy->connect)
        FTH_TRY(strategy->connect(setup->engine, setup->options, stepper->stop, &stepper->state, &stepper->place));
    stepper->position->state.workers = stepper->place.part.of > 0 ? stepper->place.part.of : 1;
    FTH_TRY(fth_setup_adapt_to_workers(setup, stepper->position)); /* a run that is continued has its own number */

out:
    return status;
}

void fth_stepper_free(fth_stepper *stepper)
{
    if (!stepper)
        return;
    fth_stepper_break_ending(stepper);
    pthread_mutex_destroy(&stepper->ending.mutex);
    pthread_cond_destroy(&stepper->ending.changed);
    if (stepper->state)
        stepper->strategy->close(stepper->state);
    fth_loader_free(stepper->loader);
    free(stepper);
}

static fth_status synchronize(fth_stepper *stepper)
{
    fth_status status = FTH_OK;
    const fth_setup *setup = stepper->setup;
    json_t *position = NULL;

    if (!stepper->strategy->synchronize)
        return FTH_OK;
    FTH_TRY(fth_position_save(stepper->position, setup->engine, &position));
    FTH_TRY(stepper->strategy->synchronize(stepper->state, &position));
    FTH_TRY(fth_position_restore(stepper->position, setup->engine, position));
    FTH_TRY(fth_setup_adapt_to_workers(stepper->setup, stepper->position));
    fth_position_start_clock(stepper->position);

out:
    json_decref(position);
    return status;
}

/* At the position, for this process's part of every batch. */
static fth_status open_loader(fth_stepper *stepper)
{
    fth_loader_free(stepper->loader);
    stepper->loader = NULL;
    fth_setup_set_part(stepper->setup, stepper->place.part);
    return fth_setup_open_loader(stepper->setup, FTH_TRAIN, stepper->position->state.batches, &stepper->loader);
}

/* Until there are enough peers for a group. */
static fth_status wait_for_group(fth_stepper *stepper)
{
    fth_status status = stepper->strategy->rejoin(stepper->state, &stepper->place);
    if (status == FTH_TIMEOUT)
        fth_log_info("waiting: %s", fth_error_message());
    while (status == FTH_TIMEOUT) /* every few seconds; a stop ends it */
        status = stepper->strategy->rejoin(stepper->state, &stepper->place);
    return status;
}

fth_status fth_stepper_form_again(fth_stepper *stepper)
{
    enum { MOST_LOSSES = 100 };
    fth_status status = FTH_PEER_LOST;
    for (int losses = 0; status == FTH_PEER_LOST && stepper->strategy->rejoin && losses < MOST_LOSSES; losses++) {
        fth_log_warning("%s; forming the group again", fth_error_message());
        status = wait_for_group(stepper);
    }
    return status;
}

/* Peers that have formed a group: what each has by itself need not be what all of them have. */
static bool has_to_drain(const fth_stepper *stepper)
{
    return stepper->strategy->drain && stepper->strategy->agree;
}

fth_status fth_stepper_open(fth_stepper *stepper)
{
    fth_status status = FTH_OK;
    const fth_setup *setup = stepper->setup;

    fth_position_start_clock(stepper->position); /* which a peer may ask for */
    FTH_TRY(synchronize(stepper));
    stepper->unsettled = has_to_drain(stepper);
    FTH_TRY(open_loader(stepper)); /* its threads work while the plan is made */
    int64_t samples = fth_part_samples(setup->part, setup->options->batch);
    if (!stepper->strategy->has_workers && samples > 0)
        FTH_TRY(fth_engine_prepare(setup->engine, samples, FTH_PLAN_TRAIN));
    FTH_TRY(stepper->strategy->open(setup->engine, setup->options, &stepper->state));

out:
    return status;
}

const void *fth_stepper_get_state(const fth_stepper *stepper)
{
    return stepper->state;
}

bool fth_stepper_follows(const fth_stepper *stepper)
{
    return stepper->place.follows;
}

double fth_stepper_get_present(const fth_stepper *stepper)
{
    return stepper->place.present;
}

/* ---- peers ---- */

fth_status fth_stepper_agree(fth_stepper *stepper, fth_intent *intent)
{
    const fth_strategy *strategy = stepper->strategy;
    return strategy->agree ? strategy->agree(stepper->state, intent) : FTH_OK;
}

static void write_strategy_events(fth_stepper *stepper)
{
    const fth_strategy *strategy = stepper->strategy;
    json_t *event = NULL;
    while (strategy->take_event && (event = strategy->take_event(stepper->state))) {
        json_object_set_new(event, "step", json_integer(stepper->position->step));
        fth_reporter_write_of_strategy(stepper->reporter, event);
    }
}

fth_status fth_stepper_rejoin(fth_stepper *stepper)
{
    fth_status status = FTH_OK;

    FTH_TRY(stepper->strategy->rejoin(stepper->state, &stepper->place));
    FTH_TRY(synchronize(stepper));
    stepper->unsettled = has_to_drain(stepper);
    FTH_TRY(open_loader(stepper));
    write_strategy_events(stepper);

out:
    return status;
}

/* The update that failed, if there is one, counts as not made; the time was spent. */
static void take_back_update(fth_stepper *stepper)
{
    fth_position *position = stepper->position;
    const fth_meters meters = position->state.meters;
    if (!stepper->updating)
        return;
    position->state = stepper->before;
    position->state.meters = meters;
    stepper->updating = false;
}

bool fth_stepper_take_back(fth_stepper *stepper, fth_status status)
{
    if (status != FTH_PEER_LOST || !stepper->strategy->rejoin)
        return false;
    take_back_update(stepper);
    return true;
}

fth_peers fth_stepper_get_peers(const fth_stepper *stepper)
{
    const bool sums = fth_stepper_has_peers(stepper) && stepper->strategy->sum;
    return sums ? (fth_peers){.sum = stepper->strategy->sum, .context = stepper->state} : (fth_peers){0};
}

bool fth_stepper_has_peers(const fth_stepper *stepper)
{
    return stepper->strategy && stepper->strategy->rejoin && stepper->place.part.of > 1;
}

/* ---- the end ---- */

/* In every agreement of the end, `checkpoint` means that a peer saves yet. */
static void *say_saving(void *context)
{
    const double every_s = 0.5; /* much less than what a peer waits for another before it counts as lost */
    fth_stepper *stepper = context;
    ending *self = &stepper->ending;

    pthread_mutex_lock(&self->mutex);
    while (self->status == FTH_OK) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(every_s));
        while (!self->over && pthread_cond_clockwait(&self->changed, &self->mutex, CLOCK_MONOTONIC, &until) == 0)
            ;
        if (self->over)
            break;
        pthread_mutex_unlock(&self->mutex);
        fth_intent intent = {.checkpoint = true};
        const fth_status status = fth_stepper_agree(stepper, &intent);
        pthread_mutex_lock(&self->mutex);
        self->status = status;
        if (status != FTH_OK)
            snprintf(self->message, sizeof self->message, "%s", fth_error_message());
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

fth_status fth_stepper_begin_ending(fth_stepper *stepper)
{
    ending *self = &stepper->ending;
    self->over = false;
    self->status = FTH_OK;
    if (!fth_stepper_has_peers(stepper))
        return FTH_OK;
    self->running = fth_thread_start(&self->thread, "ending", say_saving, stepper) == 0;
    return self->running ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no thread could be started for the end");
}

void fth_stepper_break_ending(fth_stepper *stepper)
{
    ending *self = &stepper->ending;
    if (!self->running)
        return;
    pthread_mutex_lock(&self->mutex);
    self->over = true;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    pthread_join(self->thread, NULL);
    self->running = false;
}

fth_status fth_stepper_end_together(fth_stepper *stepper)
{
    fth_status status = FTH_OK;
    ending *self = &stepper->ending;
    fth_intent intent = {.checkpoint = true};

    fth_stepper_break_ending(stepper);
    FTH_REQUIRE(self->status == FTH_OK, self->status, "%s", self->message);
    while (fth_stepper_has_peers(stepper) && intent.checkpoint) {
        intent = (fth_intent){0};
        FTH_TRY(fth_stepper_agree(stepper, &intent));
    }

out:
    self->status = FTH_OK;
    return status;
}

/* ---- updates ---- */

/* --scale-lr */
static double scale_of_workers(const char *how, int64_t workers)
{
    if (workers <= 1 || strcmp(how, "none") == 0)
        return 1;
    return strcmp(how, "sqrt") == 0 ? sqrt((double)workers) : (double)workers;
}

/* Of the next update. */
static double find_learning_rate(const fth_stepper *stepper)
{
    const fth_setup *setup = stepper->setup;
    fth_schedule_position position = {.step = stepper->position->step,
                                      .total_steps = stepper->position->total_steps,
                                      .steps_per_epoch = stepper->position->steps_per_epoch,
                                      .warmup =
                                          fth_amount_count(setup->options->warmup, stepper->position->total_steps),
                                      .decay_every = setup->options->decay_every,
                                      .decay_factor = setup->options->decay_factor};
    return fth_engine_learning_rate(setup->engine) * fth_schedule_factor(setup->schedule, &position) *
           scale_of_workers(setup->options->scale_lr, stepper->position->state.workers);
}

static void add_result(fth_stepper *stepper, const fth_step_result *result, double seconds)
{
    fth_position_add_result(stepper->position, result);
    fth_reporter_add_result(stepper->reporter, result, seconds);
}

fth_status fth_stepper_update(fth_stepper *stepper)
{
    fth_status status = FTH_OK;
    const fth_setup *setup = stepper->setup;
    fth_position *position = stepper->position;
    fth_meters *meters = &position->state.meters;
    const fth_batch *batch = NULL;
    double now = fth_clock_seconds();

    position->learning_rate = find_learning_rate(stepper);
    position->changes++;
    stepper->before = position->state;
    stepper->updating = true;
    do {
        fth_step_result result = {0};
        double began = now;
        FTH_TRY(fth_loader_next(stepper->loader, (fth_deadline){began + FTH_LOADER_TIMEOUT_S}, &batch));
        FTH_REQUIRE(batch && batch->number == position->state.batches, FTH_CORRUPT,
                    "the loader gave the wrong batch at position %" PRId64, position->state.batches);
        double ready = fth_clock_seconds();
        FTH_TRY(stepper->strategy->step(stepper->state, batch, position->learning_rate, &result));
        stepper->finished = result.finished;
        now = fth_clock_seconds();

        meters->data_wait_s += ready - began;
        meters->compute_s += now - ready;
        meters->decode_s += batch->decode_seconds;
        meters->fetch_s += batch->fetch_seconds;
        position->state.batches++;
        stepper->unsettled = stepper->strategy->drain != NULL;
        add_result(stepper, &result, now - began);
    } while (fth_engine_updates(setup->engine, position->state.batches) == position->step);

    stepper->updating = false;
    position->step++;
    position->state.elapsed_s = now - position->clock_origin_s;
    fth_reporter_show_step(stepper->reporter);
    write_strategy_events(stepper);
    fth_reporter_write_step_if_due(stepper->reporter);

out:
    return status;
}

fth_status fth_stepper_settle(fth_stepper *stepper)
{
    const fth_strategy *strategy = stepper->strategy;
    fth_step_result result = {0};
    if (!strategy->drain || (strategy->agree && !stepper->unsettled)) /* peers drain together, and only once */
        return FTH_OK;
    double began = fth_clock_seconds();
    fth_status status = strategy->drain(stepper->state, &result);
    write_strategy_events(stepper);
    if (status != FTH_OK)
        return status;
    stepper->unsettled = false;
    double seconds = fth_clock_seconds() - began;
    stepper->position->state.meters.compute_s += seconds;
    add_result(stepper, &result, seconds);
    return FTH_OK;
}

bool fth_stepper_can_save(const fth_stepper *stepper)
{
    const fth_strategy *strategy = stepper->strategy;
    return !strategy->is_whole || strategy->is_whole(stepper->state);
}

bool fth_stepper_is_at_epoch_end(const fth_stepper *stepper)
{
    const fth_position *position = stepper->position;
    const bool late = stepper->unsettled && !stepper->strategy->agree; /* peers' results come with each update */
    const bool counted = position->state.epoch_samples > 0 || late;
    return counted && position->state.batches % position->batches_per_epoch == 0;
}

const char *fth_stepper_ended_by(const fth_stepper *stepper)
{
    return stepper->finished ? stepper->strategy->ended_by : NULL;
}
