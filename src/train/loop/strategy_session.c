/* See strategy_session.h. */
#include "train/loop/strategy_session.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/process.h"
#include "model/exported_model.h"

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

struct fth_strategy_session {
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

fth_status fth_strategy_session_create(fth_position *position, fth_reporter *reporter, fth_stop *stop,
                                       fth_strategy_session **session)
{
    fth_status status = fth_allocate(1, sizeof **session, session);
    if (status == FTH_OK)
        **session =
            (fth_strategy_session){.position = position,
                                   .reporter = reporter,
                                   .stop = stop,
                                   .ending = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}};
    return status;
}

fth_status fth_strategy_session_meet(fth_strategy_session *session, const fth_strategy *strategy,
                                     const fth_train_options *options, json_t **run)
{
    *run = NULL;
    session->strategy = strategy;
    return strategy->meet ? strategy->meet(options, session->stop, &session->state, run) : FTH_OK;
}

bool fth_strategy_session_has_met(const fth_strategy_session *session)
{
    return session->strategy && session->strategy->meet;
}

int fth_strategy_session_count_processors(const fth_strategy_session *session)
{
    const fth_strategy *strategy = session->strategy;
    return strategy && strategy->count_processors && session->state ? strategy->count_processors(session->state) : 0;
}

const char *fth_strategy_session_get_node(const fth_strategy_session *session)
{
    return session->strategy->get_node ? session->strategy->get_node(session->state) : "";
}

fth_status fth_strategy_session_share_run(fth_strategy_session *session, const json_t *run)
{
    return session->strategy->share_run(session->state, run);
}

/* What must be the same in all peers besides options, by its names in messages. Differences that
 * explain others come first. */
static json_t *describe_setup(const fth_setup *setup)
{
    enum { DIGEST_LENGTH = 12 }; /* enough to tell two apart */
    const fth_dataset_info *info = fth_dataset_get_info(setup->dataset);
    const bool text = info->modality == FTH_MODALITY_TEXT;
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
    const fth_model *network = setup->options->own.network;
    char exported[DIGEST_LENGTH + 1] = "";
    if (network && fth_exported_model_digest(network))
        snprintf(exported, sizeof exported, "%.*s", DIGEST_LENGTH, fth_exported_model_digest(network));
    json_t *found = json_pack("{s:I, s:I, s:i, s:s, s:s*, s:s*, s:I}", "number of training samples",
                              (json_int_t)info->count[FTH_TRAIN], "number of validation samples",
                              (json_int_t)info->count[FTH_VALIDATION], "number of classes", info->classes,
                              "sha256 of the class names", digest, "sha256 of the tokenizer", text ? tokenizer : NULL,
                              "sha256 of the exported network", *exported ? exported : NULL, "number of parameters",
                              (json_int_t)fth_engine_get_sizes(setup->engine).parameters);
    if (found && text)
        json_object_set_new(found, "number of training tokens",
                            json_integer(llround(info->text.mean_length * (double)info->count[FTH_TRAIN])));
    return found;
}

static fth_status announce(fth_strategy_session *session)
{
    json_t *found = describe_setup(session->setup);
    fth_status status = found ? session->strategy->announce(session->state, found)
                              : fth_fail(FTH_NO_MEMORY, "no memory to describe the data to peers");
    json_decref(found);
    return status;
}

fth_status fth_strategy_session_connect(fth_strategy_session *session, fth_setup *setup)
{
    fth_status status = FTH_OK;
    const fth_strategy *strategy = setup->strategy;

    session->strategy = strategy;
    session->setup = setup;
    if (strategy->announce && session->state)
        FTH_TRY(announce(session));
    if (strategy->connect)
        FTH_TRY(strategy->connect(setup->engine, setup->options, session->stop, &session->state, &session->place));
    session->position->state.workers = session->place.part.of > 0 ? session->place.part.of : 1;
    FTH_TRY(fth_setup_adapt_to_workers(setup, session->position)); /* a run that is continued has its own number */

out:
    return status;
}

void fth_strategy_session_free(fth_strategy_session *session)
{
    if (!session)
        return;
    fth_strategy_session_break_ending(session);
    pthread_mutex_destroy(&session->ending.mutex);
    pthread_cond_destroy(&session->ending.changed);
    if (session->state)
        session->strategy->close(session->state);
    fth_loader_free(session->loader);
    free(session);
}

static fth_status synchronize(fth_strategy_session *session)
{
    fth_status status = FTH_OK;
    const fth_setup *setup = session->setup;
    json_t *position = NULL;

    if (!session->strategy->synchronize)
        return FTH_OK;
    FTH_TRY(fth_position_save(session->position, setup->engine, &position));
    FTH_TRY(session->strategy->synchronize(session->state, &position));
    FTH_TRY(fth_position_restore(session->position, setup->engine, position));
    FTH_TRY(fth_setup_adapt_to_workers(session->setup, session->position));
    fth_position_start_clock(session->position);

out:
    json_decref(position);
    return status;
}

/* Opens the loader at the position, for this process's part of every batch. */
static fth_status open_loader(fth_strategy_session *session)
{
    fth_loader_free(session->loader);
    session->loader = NULL;
    fth_setup_set_part(session->setup, session->place.part);
    return fth_setup_open_loader(session->setup, FTH_TRAIN, session->position->state.batches, &session->loader);
}

/* Peers that have formed a group: what each has by itself need not be what all of them have. */
static bool has_to_drain(const fth_strategy_session *session)
{
    return session->strategy->drain && session->strategy->agree;
}

fth_status fth_strategy_session_open(fth_strategy_session *session)
{
    fth_status status = FTH_OK;
    const fth_setup *setup = session->setup;

    fth_position_start_clock(session->position); /* which a peer may ask for */
    FTH_TRY(synchronize(session));
    session->unsettled = has_to_drain(session);
    FTH_TRY(open_loader(session)); /* its threads work while the plan is made */
    int64_t samples = fth_part_samples(setup->part, setup->options->batch);
    if (!session->strategy->has_workers && samples > 0)
        FTH_TRY(fth_engine_prepare(setup->engine, samples, FTH_PLAN_TRAIN));
    FTH_TRY(session->strategy->open(setup->engine, setup->options, &session->state));

out:
    return status;
}

fth_start_facts fth_strategy_session_describe_start(const fth_strategy_session *session, bool resumed)
{
    return (fth_start_facts){.resumed = resumed,
                             .strategy = session->strategy,
                             .strategy_state = session->state,
                             .parameters = fth_graph_trainable_count(fth_engine_graph(session->setup->engine))};
}

bool fth_strategy_session_follows(const fth_strategy_session *session)
{
    return session->place.follows;
}

double fth_strategy_session_get_present(const fth_strategy_session *session)
{
    return session->place.present;
}

/* ---- peers ---- */

fth_status fth_strategy_session_agree(fth_strategy_session *session, fth_intent *intent)
{
    const fth_strategy *strategy = session->strategy;
    return strategy->agree ? strategy->agree(session->state, intent) : FTH_OK;
}

static void write_strategy_events(fth_strategy_session *session)
{
    const fth_strategy *strategy = session->strategy;
    json_t *event = NULL;
    while (strategy->take_event && (event = strategy->take_event(session->state))) {
        json_object_set_new(event, "step", json_integer(session->position->step));
        fth_reporter_write_of_strategy(session->reporter, event);
    }
}

fth_status fth_strategy_session_form(fth_strategy_session *session)
{
    return session->strategy->rejoin(session->state, &session->place);
}

fth_status fth_strategy_session_synchronize(fth_strategy_session *session)
{
    fth_status status = FTH_OK;

    FTH_TRY(synchronize(session));
    session->unsettled = has_to_drain(session);
    FTH_TRY(open_loader(session));
    write_strategy_events(session);

out:
    return status;
}

/* The update that failed, if there is one, counts as not made; the time was spent. */
static void take_back_update(fth_strategy_session *session)
{
    fth_position *position = session->position;
    const fth_meters meters = position->state.meters;
    if (!session->updating)
        return;
    position->state = session->before;
    position->state.meters = meters;
    session->updating = false;
}

bool fth_strategy_session_take_back(fth_strategy_session *session, fth_status status)
{
    if (status != FTH_PEER_LOST || !session->strategy->rejoin)
        return false;
    take_back_update(session);
    return true;
}

fth_peers fth_strategy_session_get_peers(const fth_strategy_session *session)
{
    const bool sums = fth_strategy_session_has_peers(session) && session->strategy->sum;
    return sums ? (fth_peers){.sum = session->strategy->sum, .context = session->state} : (fth_peers){0};
}

bool fth_strategy_session_has_peers(const fth_strategy_session *session)
{
    return session->strategy && session->strategy->rejoin && session->place.part.of > 1;
}

/* ---- the end ---- */

/* In every agreement of the end, `checkpoint` means that a peer saves yet. */
static void *say_saving(void *context)
{
    const double every_s = 0.5; /* much less than what a peer waits for another before it counts as lost */
    fth_strategy_session *session = context;
    ending *self = &session->ending;

    pthread_mutex_lock(&self->mutex);
    while (self->status == FTH_OK) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(every_s));
        while (!self->over && pthread_cond_clockwait(&self->changed, &self->mutex, CLOCK_MONOTONIC, &until) == 0)
            ;
        if (self->over)
            break;
        pthread_mutex_unlock(&self->mutex);
        fth_intent intent = {.checkpoint = true};
        const fth_status status = fth_strategy_session_agree(session, &intent);
        pthread_mutex_lock(&self->mutex);
        self->status = status;
        if (status != FTH_OK)
            snprintf(self->message, sizeof self->message, "%s", fth_error_message());
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

fth_status fth_strategy_session_begin_ending(fth_strategy_session *session)
{
    ending *self = &session->ending;
    self->over = false;
    self->status = FTH_OK;
    if (!fth_strategy_session_has_peers(session))
        return FTH_OK;
    self->running = fth_thread_start(&self->thread, "ending", say_saving, session) == 0;
    return self->running ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no thread could be started for the end");
}

void fth_strategy_session_break_ending(fth_strategy_session *session)
{
    ending *self = &session->ending;
    if (!self->running)
        return;
    pthread_mutex_lock(&self->mutex);
    self->over = true;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    pthread_join(self->thread, NULL);
    self->running = false;
}

fth_status fth_strategy_session_end_together(fth_strategy_session *session)
{
    fth_status status = FTH_OK;
    ending *self = &session->ending;
    fth_intent intent = {.checkpoint = true};

    fth_strategy_session_break_ending(session);
    FTH_REQUIRE(self->status == FTH_OK, self->status, "%s", self->message);
    while (fth_strategy_session_has_peers(session) && intent.checkpoint) {
        intent = (fth_intent){0};
        FTH_TRY(fth_strategy_session_agree(session, &intent));
    }

out:
    self->status = FTH_OK;
    return status;
}

/* ---- updates ---- */

/* --scale-lr */
static double scale_of_workers(fth_rate_scaling how, int64_t workers)
{
    if (workers <= 1 || how == FTH_SCALE_NONE)
        return 1;
    return how == FTH_SCALE_SQRT ? sqrt((double)workers) : (double)workers;
}

/* Of the next update. */
static double find_learning_rate(const fth_strategy_session *session)
{
    const fth_setup *setup = session->setup;
    fth_schedule_position position = {
        .step = session->position->step,
        .total_steps = session->position->total_steps,
        .steps_per_epoch = session->position->steps_per_epoch,
        .warmup = fth_amount_count(setup->options->schedule.warmup, session->position->total_steps),
        .decay_every = setup->options->schedule.decay_every,
        .decay_factor = setup->options->schedule.decay_factor};
    return fth_engine_learning_rate(setup->engine) * fth_schedule_factor(setup->schedule, &position) *
           scale_of_workers(setup->options->optimizer.scale_lr, session->position->state.workers);
}

static void add_result(fth_strategy_session *session, const fth_step_result *result, double seconds)
{
    fth_position_add_result(session->position, result);
    fth_reporter_add_result(session->reporter, result, seconds);
}

fth_status fth_strategy_session_update(fth_strategy_session *session)
{
    fth_status status = FTH_OK;
    const fth_setup *setup = session->setup;
    fth_position *position = session->position;
    fth_meters *meters = &position->state.meters;
    const fth_batch *batch = NULL;
    double now = fth_clock_seconds();

    position->learning_rate = find_learning_rate(session);
    position->changes++;
    session->before = position->state;
    session->updating = true;
    do {
        fth_step_result result = {0};
        double began = now;
        FTH_TRY(fth_loader_next(session->loader, (fth_deadline){began + FTH_LOADER_TIMEOUT_S}, &batch));
        FTH_REQUIRE(batch && batch->number == position->state.batches, FTH_CORRUPT,
                    "the loader gave the wrong batch at position %" PRId64, position->state.batches);
        double ready = fth_clock_seconds();
        FTH_TRY(session->strategy->step(session->state, batch, position->learning_rate, &result));
        session->finished = result.finished;
        now = fth_clock_seconds();

        meters->data_wait_s += ready - began;
        meters->compute_s += now - ready;
        meters->decode_s += batch->decode_seconds;
        meters->fetch_s += batch->fetch_seconds;
        position->state.batches++;
        session->unsettled = session->strategy->drain != NULL;
        add_result(session, &result, now - began);
    } while (fth_engine_updates(setup->engine, position->state.batches) == position->step);

    session->updating = false;
    position->step++;
    position->state.elapsed_s = now - position->clock_origin_s;
    fth_reporter_show_step(session->reporter);
    write_strategy_events(session);
    fth_reporter_write_step_if_due(session->reporter);

out:
    return status;
}

fth_status fth_strategy_session_settle(fth_strategy_session *session)
{
    const fth_strategy *strategy = session->strategy;
    fth_step_result result = {0};
    if (!strategy->drain || (strategy->agree && !session->unsettled)) /* peers drain together, and only once */
        return FTH_OK;
    double began = fth_clock_seconds();
    fth_status status = strategy->drain(session->state, &result);
    write_strategy_events(session);
    if (status != FTH_OK)
        return status;
    session->unsettled = false;
    double seconds = fth_clock_seconds() - began;
    session->position->state.meters.compute_s += seconds;
    add_result(session, &result, seconds);
    return FTH_OK;
}

bool fth_strategy_session_can_save(const fth_strategy_session *session)
{
    const fth_strategy *strategy = session->strategy;
    return !strategy->is_whole || strategy->is_whole(session->state);
}

bool fth_strategy_session_is_at_epoch_end(const fth_strategy_session *session)
{
    const fth_position *position = session->position;
    const bool late = session->unsettled && !session->strategy->agree; /* peers' results come with each update */
    const bool counted = position->state.epoch_samples > 0 || late;
    return counted && position->state.batches % position->batches_per_epoch == 0;
}

const char *fth_strategy_session_ended_by(const fth_strategy_session *session)
{
    return session->finished ? session->strategy->ended_by : NULL;
}
