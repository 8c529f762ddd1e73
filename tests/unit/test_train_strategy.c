/* The strategy interface, driven by the real trainer with strategies that only this test has.
 *
 * "relay" has what a server's worker has: somebody else owns the optimizer and decides the end, and
 * results come late, so that the trainer has to drain.
 *
 * "group" is what data-parallel training needs: ranks, each a thread with a trainer and a runs
 * folder of its own, as if on machines of their own. They train one run: one finds it and leads,
 * the others write nothing. Each has a part of every batch; they sum their gradients once per
 * update, end, stop and save together, and continue without a rank that is lost. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "bands.h"
#include "base/process.h"
#include "tensor/tensor.h"
#include "train/engine/server_support.h"
#include "train/loop/strategy.h"
#include "train/run/run_store.h"
#include "train/run/shared_run.h"

enum { MAX_RANKS = 4, TRAINING = 400, VALIDATION = 200 };

/* ---- running ---- */

static fth_train_options options_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Flags are split at spaces. */
static fth_train_options options_of(const char *format, ...)
{
    fth_train_options options;
    char flags[600], text[1200], *argv[64];
    const char *positional[64];
    int argc = 0, positional_count = 0;
    bool help;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(flags, sizeof flags, format, arguments);
    va_end(arguments);
    snprintf(text, sizeof text, "--data %s/bands --model linear --runs %s/runs --threads 1 %s", test_folder,
             test_folder, flags);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));)
        argv[argc++] = word;
    if (fth_options_set_defaults(&fth_train_option_table, &options) != FTH_OK ||
        fth_options_read_flags(&fth_train_option_table, &options, argc, argv, positional, &positional_count, &help) !=
            FTH_OK)
        fail_msg("%s", fth_error_message());
    return options;
}

static int set_up(void **state)
{
    char folder[TEST_MAX_PATH];
    if (test_make_folder(state) != 0)
        return -1;
    write_bands(test_path(folder, "bands"), TRAINING, VALIDATION);
    return 0;
}

static int remove_runs(void **state)
{
    (void)state;
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'/runs*", test_folder);
    return system(command);
}

/* ---- one engine, as the real "single" has it: the reference for what others compute ---- */

static fth_status plain_open(fth_engine *engine, const fth_train_options *options, void **state)
{
    (void)options;
    *state = engine;
    return FTH_OK;
}

static fth_status plain_step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    return fth_engine_step(state, batch, learning_rate, result);
}

static void plain_close(void *state)
{
    (void)state;
}

static const char *const plain_options[] = {"processes", NULL};
static const fth_strategy plain = {.name = "plain",
                                   .summary = "for comparison",
                                   .options = plain_options,
                                   .takes_checkpoints = true,
                                   .open = plain_open,
                                   .step = plain_step,
                                   .close = plain_close};

/* ---- relay ---- */

typedef struct relay {
    fth_engine *engine;
    fth_step_result late; /* not returned yet */
    int64_t batches, drains;
} relay;

static relay the_relay;

static fth_status relay_open(fth_engine *engine, const fth_train_options *options, void **state)
{
    (void)options;
    the_relay = (relay){.engine = engine};
    *state = &the_relay;
    return FTH_OK;
}

static fth_status relay_step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    relay *all = state;
    *result = all->late;
    fth_status status = fth_engine_step(all->engine, batch, learning_rate, &all->late);
    result->finished = ++all->batches == 7;
    return status;
}

static fth_status relay_drain(void *state, fth_step_result *result)
{
    relay *all = state;
    *result = all->late;
    all->late = (fth_step_result){0};
    all->drains++;
    return FTH_OK;
}

static fth_status relay_check(const fth_train_options *options)
{
    return options->optimizer.accumulate > 1 ? fth_fail(FTH_INVALID, "a relay does not accumulate") : FTH_OK;
}

static const char *const relay_options[] = {"server", "compress", NULL};
static const fth_strategy relay_strategy = {.name = "relay",
                                            .summary = "somebody else decides",
                                            .options = relay_options,
                                            .optimizer = FTH_OPTIMIZER_OF_SERVER,
                                            .ended_by = "relay",
                                            .check = relay_check,
                                            .open = relay_open,
                                            .step = relay_step,
                                            .drain = relay_drain,
                                            .close = plain_close};

static const fth_strategy *const strategies[] = {&plain, &relay_strategy, NULL};

static void an_end_elsewhere_is_drained_and_named(void **state)
{
    (void)state;
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_train_outcome outcome;
    fth_train_options options = options_of("--strategy relay --batch 50 --epochs 9 --name relayed");
    assert_int_equal(fth_train(&options, strategies, NULL, &stop, &outcome), FTH_OK);
    assert_string_equal(json_string_value(json_object_get(outcome.end, "reason")), "relay");
    assert_int_equal(json_integer_value(json_object_get(outcome.end, "steps")), 7);
    assert_int_equal(json_integer_value(json_object_get(outcome.end, "samples")), 7 * 50); /* the late one too */
    assert_true(the_relay.drains >= 1);
    fth_train_outcome_release(&outcome);
    fth_options_release(&fth_train_option_table, &options);
}

static void options_are_checked_against_the_row(void **state)
{
    (void)state;
    static const struct {
        const char *flags, *message;
    } cases[] = {
        {"--strategy plain --server http://x", "--server needs --strategy relay"},
        {"--strategy relay --processes 2", "--processes needs --strategy plain"},
        {"--strategy relay --accumulate 2", "does not accumulate"},
        {"--strategy relay --checkpoints %s", "the model is the server's"},
        {"--strategy pain", "did you mean plain?"},
        {"--strategy zebra", "known strategies: plain, relay"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_stop stop = FTH_STOP_INITIALIZER;
        fth_train_outcome outcome;
        char nowhere[TEST_MAX_PATH];
        test_path(nowhere, "nowhere");
        fth_train_options options = options_of(cases[i].flags, nowhere);
        assert_int_equal(fth_train(&options, strategies, NULL, &stop, &outcome), FTH_INVALID);
        assert_message_of(cases[i].flags, cases[i].message);
        assert_null(outcome.run_folder);
        fth_train_outcome_release(&outcome);
        fth_options_release(&fth_train_option_table, &options);
    }
}

/* ---- group: the peers ---- */

typedef struct rank rank;

typedef struct group {
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    rank *ranks[MAX_RANKS]; /* NULL: lost, or not there yet */
    int size;               /* that are there, or expected */
    int arrived, rejoining;
    int64_t meetings, generation;
    bool broken;       /* one is lost: whoever waits for it fails until the rest has rejoined */
    int64_t exchanges; /* counted by the first rank alone */
    atomic_bool hangs; /* one does */
    int least;         /* ranks, fewer than which do not train */
    json_t *run;       /* that one of them found */
} group;

struct rank {
    group *all;
    int number;
    int order; /* who has the lowest leads */
    int looks; /* for the others, in vain, while it is cut off */
    fth_engine *engine;
    fth_stop *stop;
    fth_engine_sizes sizes;
    fth_engine_vectors vectors; /* the engine's, in memory of the test's */
    float *gradients, *sum;
    json_t *position; /* lent to peers during synchronize() */
    fth_intent intent;
    double *values; /* lent to peers during sum() */
    bool ended;     /* has agreed on the end */
};

static void wait_for_change(group *all)
{
    struct timespec until = fth_deadline_timespec(test_deadline_in(60));
    if (pthread_cond_clockwait(&all->changed, &all->mutex, CLOCK_MONOTONIC, &until) != 0)
        abort(); /* a peer hangs */
}

/* Returns when all have called it. */
static fth_status meet(rank *self)
{
    group *all = self->all;
    fth_status status = FTH_OK;
    pthread_mutex_lock(&all->mutex);
    int64_t meeting = all->meetings;
    if (!all->broken && ++all->arrived == all->size) {
        all->arrived = 0;
        all->meetings++;
        pthread_cond_broadcast(&all->changed);
    }
    while (!all->broken && all->meetings == meeting)
        wait_for_change(all);
    if (all->meetings == meeting)
        status = fth_fail(FTH_PEER_LOST, "a rank is lost");
    pthread_mutex_unlock(&all->mutex);
    return status;
}

/* With the mutex held: the group is whole again when all that are left have asked for it. */
static void rejoin_if_all_ask(group *all)
{
    if (all->rejoining == 0 || all->rejoining < all->size)
        return;
    all->rejoining = 0;
    all->generation++;
    all->broken = false;
    pthread_cond_broadcast(&all->changed);
}

static void leave(rank *self)
{
    group *all = self->all;
    pthread_mutex_lock(&all->mutex);
    all->ranks[self->number] = NULL;
    all->size--;
    all->arrived = 0;
    all->broken = true;
    rejoin_if_all_ask(all);
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->mutex);
}

/* The parts go to those that are there, in order; the first of them leads. */
static fth_peer_place place_of(const rank *self)
{
    int before = 0;
    for (int i = 0; i < MAX_RANKS; i++)
        before += self->all->ranks[i] && self->all->ranks[i]->order < self->order;
    return (fth_peer_place){.part = {before, self->all->size}, .follows = before > 0, .present = 1};
}

/* ---- group: the strategy ---- */

static group the_group;

/* What happens to a rank, and when: batches and updates count from 1, 0 is never. */
static struct {
    int64_t lost_at_batch, stop_at_batch, notice_at_batch;
    int64_t hangs_at_batch;   /* it comes back when another has a record of the run */
    int64_t cut_off_at_batch; /* for about a second, as one of three machines */
    bool lost_before_training;
    bool lost_in_last_drain, lost_at_end; /* the latter while peers wait for what it saves */
    bool lost_in_validation, stop_in_validation;
} plans[MAX_RANKS];
static rank *made[MAX_RANKS];        /* to be freed after their engines */
static _Thread_local int this_rank;  /* the training thread's */
static _Thread_local bool found_run; /* this one did, and not a peer */

/* The first rank to come looks for the run. */
static fth_status group_meet(const fth_train_options *options, fth_stop *stop, void **state, json_t **run)
{
    fth_status status = FTH_OK;
    group *all = &the_group;
    rank *self = NULL;

    (void)options;
    FTH_TRY(fth_allocate(1, sizeof *self, &self));
    *self = (rank){.all = all, .number = this_rank, .order = this_rank, .stop = stop};
    *state = made[self->number] = self;
    pthread_mutex_lock(&all->mutex);
    found_run = self->number == 0; /* so that it is always the same */
    while (!found_run && !all->run)
        wait_for_change(all);
    *run = found_run ? NULL : json_deep_copy(all->run);
    pthread_mutex_unlock(&all->mutex);

out:
    return status;
}

static fth_status group_share_run(void *state, const json_t *run)
{
    rank *self = state;
    group *all = self->all;
    pthread_mutex_lock(&all->mutex);
    all->run = json_deep_copy(run);
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->mutex);
    return FTH_OK;
}

static fth_status group_connect(fth_engine *engine, const fth_train_options *options, fth_stop *stop, void **state,
                                fth_peer_place *place)
{
    fth_status status = FTH_OK;
    rank *self = *state;

    (void)options;
    (void)stop;
    self->engine = engine;
    self->sizes = fth_engine_get_sizes(engine);
    FTH_TRY(fth_allocate_aligned(self->sizes.parameters * sizeof(float), &self->vectors.parameters));
    FTH_TRY(fth_allocate_aligned(self->sizes.buffers * sizeof(float) + 1, &self->vectors.buffers));
    for (int i = 0; i < self->sizes.state_count; i++)
        FTH_TRY(fth_allocate_aligned(self->sizes.trained * sizeof(float), &self->vectors.state[i]));
    FTH_TRY(fth_allocate_aligned(self->sizes.trained * sizeof(float), &self->gradients));
    FTH_TRY(fth_allocate_aligned(self->sizes.trained * sizeof(float), &self->sum));
    FTH_TRY(fth_engine_move_vectors(engine, &self->vectors));
    pthread_mutex_lock(&the_group.mutex);
    the_group.ranks[self->number] = self;
    pthread_mutex_unlock(&the_group.mutex);
    FTH_TRY(meet(self));
    pthread_mutex_lock(&the_group.mutex); /* one may be lost meanwhile */
    *place = place_of(self);
    pthread_mutex_unlock(&the_group.mutex);

out:
    return status;
}

static int64_t batches_of(const rank *peer)
{
    return json_integer_value(json_object_get(peer->position, "batches"));
}

static fth_status group_synchronize(void *state, json_t **position)
{
    fth_status status = FTH_OK;
    rank *self = state, *furthest = NULL;
    json_t *theirs = NULL;

    if (plans[self->number].lost_before_training) {
        leave(self);
        return fth_fail(FTH_IO, "killed at the beginning for the test");
    }
    self->position = *position;
    FTH_TRY(meet(self));
    for (int i = 0; i < MAX_RANKS; i++) {
        rank *peer = self->all->ranks[i];
        if (peer && (!furthest || batches_of(peer) > batches_of(furthest)))
            furthest = peer;
    }
    if (furthest != self) {
        theirs = json_deep_copy(furthest->position);
        memcpy(self->vectors.parameters, furthest->vectors.parameters, self->sizes.parameters * sizeof(float));
        memcpy(self->vectors.buffers, furthest->vectors.buffers, self->sizes.buffers * sizeof(float));
        for (int i = 0; i < self->sizes.state_count; i++)
            memcpy(self->vectors.state[i], furthest->vectors.state[i], self->sizes.trained * sizeof(float));
    }
    FTH_TRY(meet(self));
    if (theirs) {
        json_decref(*position);
        *position = theirs;
        theirs = NULL;
    }

out:
    json_decref(theirs);
    return status;
}

static fth_status group_open(fth_engine *engine, const fth_train_options *options, void **state)
{
    (void)engine;
    (void)options;
    (void)state;
    return FTH_OK;
}

static fth_status group_agree(void *state, fth_intent *intent)
{
    fth_status status = FTH_OK;
    rank *self = state;
    fth_intent agreed = {0};
    int leaving = 0;

    if (self->ended && plans[self->number].lost_at_end) {
        leave(self);
        return fth_fail(FTH_IO, "killed at the end for the test");
    }
    self->intent = *intent;
    FTH_TRY(meet(self));
    for (int i = 0; i < MAX_RANKS; i++) {
        const rank *peer = self->all->ranks[i];
        if (!peer)
            continue;
        agreed.end = agreed.end ? agreed.end : peer->intent.end;
        agreed.stop = agreed.stop || (peer->intent.stop && !peer->intent.leave);
        leaving += peer->intent.leave;
        agreed.checkpoint = agreed.checkpoint || peer->intent.checkpoint;
    }
    agreed.stop = agreed.stop || leaving == self->all->size;
    FTH_TRY(meet(self));
    self->ended = self->ended || agreed.end;
    if (!agreed.end && !agreed.stop && leaving > 0) {
        FTH_REQUIRE(intent->leave, FTH_PEER_LOST, "a rank leaves");
        leave(self);
        return FTH_OK;
    }
    if (agreed.stop && !intent->stop)
        fth_stop_ask(self->stop, FTH_STOP_REQUEST, INFINITY, "peer", "a peer was asked to stop");
    *intent = agreed;

out:
    return status;
}

static fth_status group_rejoin(void *state, fth_peer_place *place)
{
    rank *self = state;
    group *all = self->all;
    pthread_mutex_lock(&all->mutex);
    int64_t generation = all->generation;
    if (self->looks > 0) { /* it does not reach the others */
        pthread_mutex_unlock(&all->mutex);
        usleep(500000);
        all->hangs = --self->looks > 0;
        *place = (fth_peer_place){.present = 1.0 / 3};
        return fth_fail(FTH_TIMEOUT, "1 of 2 ranks is there");
    }
    if (!all->ranks[self->number]) { /* back, after the others */
        all->ranks[self->number] = self;
        self->order += MAX_RANKS;
        all->size++;
        all->broken = true;
        all->arrived = 0;
        pthread_cond_broadcast(&all->changed);
    }
    if (all->size < all->least) {
        pthread_mutex_unlock(&all->mutex);
        return fth_fail(FTH_TIMEOUT, "%d of %d ranks are there", all->size, all->least);
    }
    all->rejoining++;
    rejoin_if_all_ask(all);
    while (all->generation == generation)
        wait_for_change(all);
    *place = place_of(self);
    pthread_mutex_unlock(&all->mutex);
    return FTH_OK;
}

/* Sums the gradients of the group of batches over all ranks, in the same order everywhere, and
 * updates. */
static fth_status exchange(rank *self, double learning_rate, int64_t update)
{
    fth_status status = FTH_OK;
    const fth_gradient_piece whole = {.count = self->sizes.trained, .values = self->sum};

    FTH_TRY(fth_service_read(self->engine, self->gradients, NULL));
    FTH_TRY(meet(self));
    memset(self->sum, 0, self->sizes.trained * sizeof(float));
    for (int i = 0; i < MAX_RANKS; i++)
        for (size_t f = 0; self->all->ranks[i] && f < self->sizes.trained; f++)
            self->sum[f] += self->all->ranks[i]->gradients[f];
    if (place_of(self).part.index == 0)
        self->all->exchanges++;
    FTH_TRY(meet(self));
    FTH_TRY(fth_service_update(self->engine, learning_rate, update, 1, &whole, 1));
    FTH_TRY(fth_engine_check_update(self->engine));

out:
    return status;
}

/* Until rank 1 has a record of the run. */
static fth_status hang(rank *self)
{
    self->all->hangs = true;
    leave(self);
    while (!test_exists("runs1/run/run.json"))
        usleep(1000);
    self->all->hangs = false;
    return fth_fail(FTH_PEER_LOST, "cut off for a while");
}

static fth_status group_sum(void *state, double *values, size_t count)
{
    fth_status status = FTH_OK;
    rank *self = state;
    double sums[8] = {0};

    assert_true(count <= FTH_COUNT_OF(sums));
    if (plans[self->number].lost_in_validation) {
        leave(self);
        return fth_fail(FTH_IO, "killed in validation for the test");
    }
    if (plans[self->number].stop_in_validation) {
        plans[self->number].stop_in_validation = false;
        fth_stop_ask(self->stop, FTH_STOP_REQUEST, INFINITY, "test", "in validation");
    }
    self->values = values;
    FTH_TRY(meet(self));
    for (int i = 0; i < MAX_RANKS; i++)
        for (size_t v = 0; self->all->ranks[i] && v < count; v++)
            sums[v] += self->all->ranks[i]->values[v];
    FTH_TRY(meet(self));
    memcpy(values, sums, count * sizeof *values);

out:
    return status;
}

static fth_status group_drain(void *state, fth_step_result *result)
{
    rank *self = state;
    *result = (fth_step_result){0};
    if (self->ended && plans[self->number].lost_in_last_drain) {
        leave(self);
        return fth_fail(FTH_IO, "killed in the last drain for the test");
    }
    return meet(self);
}

static fth_status group_step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    fth_status status = FTH_OK;
    rank *self = state;
    fth_group place = fth_engine_group(self->engine, batch);
    const int me = self->number;

    if (plans[me].stop_at_batch > 0 && batch->number >= plans[me].stop_at_batch)
        fth_stop_ask(self->stop, FTH_STOP_REQUEST, INFINITY, "test", "batch %lld", (long long)batch->number);
    if (plans[me].notice_at_batch > 0 && batch->number >= plans[me].notice_at_batch)
        fth_stop_ask(self->stop, FTH_STOP_PREEMPTION, 60, "test", "batch %lld", (long long)batch->number);
    if (plans[me].lost_at_batch > 0 && batch->number == plans[me].lost_at_batch) {
        leave(self);
        return fth_fail(FTH_IO, "killed for the test");
    }
    if (plans[me].hangs_at_batch > 0 && batch->number == plans[me].hangs_at_batch) {
        plans[me].hangs_at_batch = 0;
        return hang(self);
    }
    if (plans[me].cut_off_at_batch > 0 && batch->number == plans[me].cut_off_at_batch) {
        plans[me].cut_off_at_batch = 0;
        self->looks = 3;
        self->all->hangs = true;
        leave(self);
        return fth_fail(FTH_PEER_LOST, "cut off for a while");
    }
    if (self->all->hangs)
        usleep(5000); /* so that the run is not over before */
    FTH_TRY(fth_engine_compute(self->engine, batch, &place, result));
    if (place.last)
        FTH_TRY(exchange(self, learning_rate, place.update));

out:
    return status;
}

static const fth_strategy group_strategy = {.name = "group",
                                            .summary = "ranks that train one model together",
                                            .optimizer = FTH_OPTIMIZER_OF_ENGINE,
                                            .takes_checkpoints = true,
                                            .meet = group_meet,
                                            .share_run = group_share_run,
                                            .connect = group_connect,
                                            .synchronize = group_synchronize,
                                            .open = group_open,
                                            .agree = group_agree,
                                            .rejoin = group_rejoin,
                                            .step = group_step,
                                            .drain = group_drain,
                                            .sum = group_sum,
                                            .close = plain_close};
static const fth_strategy *const with_group[] = {&plain, &group_strategy, NULL};

/* ---- group: running it ---- */

typedef struct trainee {
    int number;
    char flags[300];
    fth_stop stop;
    int shown; /* events and steps that the observer saw */
    pthread_t thread;
    fth_status status;
    fth_train_outcome outcome;
    char message[300];
} trainee;

static void on_progress(void *context, const fth_progress *progress)
{
    (void)progress;
    ((trainee *)context)->shown++;
}

static void on_event(void *context, const json_t *event)
{
    ((trainee *)context)->shown++;
    if (strcmp(json_string_value(json_object_get(event, "event")), "waiting") == 0) {
        pthread_mutex_lock(&the_group.mutex);
        the_group.least = 1; /* from now on one is enough */
        pthread_mutex_unlock(&the_group.mutex);
    }
}

static void *train_rank(void *context)
{
    trainee *self = context;
    fth_train_observer observer = {.context = self, .progress = on_progress, .event = on_event};
    fth_train_options options =
        options_of("--strategy group --runs %s/runs%d --name run %s", test_folder, self->number, self->flags);
    this_rank = self->number;
    self->status = fth_train(&options, with_group, &observer, &self->stop, &self->outcome);
    if (self->status != FTH_OK)
        snprintf(self->message, sizeof self->message, "%s", fth_error_message());
    fth_options_release(&fth_train_option_table, &options);
    return NULL;
}

static int waits_below; /* ranks */

static void train_group(trainee *ranks, int count, const char *flags)
{
    the_group = (group){
        .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .size = count, .least = waits_below};
    for (int i = 0; i < count; i++) {
        ranks[i].number = i;
        snprintf(ranks[i].flags, sizeof ranks[i].flags, "%s", flags);
        ranks[i].stop = (fth_stop)FTH_STOP_INITIALIZER;
        assert_int_equal(fth_thread_start(&ranks[i].thread, "rank", train_rank, &ranks[i]), 0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(ranks[i].thread, NULL);
}

static void release(trainee *ranks, int count)
{
    json_decref(the_group.run);
    for (int i = 0; i < count; i++) {
        fth_train_outcome_release(&ranks[i].outcome);
        free(made[i]->vectors.parameters);
        free(made[i]->vectors.buffers);
        for (int v = 0; v < made[i]->sizes.state_count; v++)
            free(made[i]->vectors.state[v]);
        free(made[i]->gradients);
        free(made[i]->sum);
        free(made[i]);
    }
    memset(plans, 0, sizeof plans);
}

static void assert_all_ended_well(const trainee *ranks, int count)
{
    for (int i = 0; i < count; i++)
        if (ranks[i].status != FTH_OK)
            fail_msg("rank %d: %s", i, ranks[i].message);
}

/* What one engine makes of the same options. */
static void train_alone(const char *flags)
{
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_train_outcome outcome;
    fth_train_options options = options_of("--strategy plain --name alone %s", flags);
    if (fth_train(&options, with_group, NULL, &stop, &outcome) != FTH_OK)
        fail_msg("%s", fth_error_message());
    fth_train_outcome_release(&outcome);
    fth_options_release(&fth_train_option_table, &options);
}

/* The largest difference between the weights of two runs. */
static double compare_models(const char *left, const char *right)
{
    fth_safetensors *files[2] = {NULL};
    const char *const names[] = {left, right};
    double largest = 0;
    for (int i = 0; i < 2; i++) {
        char path[TEST_MAX_PATH], name[100];
        snprintf(name, sizeof name, "%s/last.safetensors", names[i]);
        if (fth_safetensors_open(test_path(path, name), &files[i]) != FTH_OK)
            fail_msg("%s", fth_error_message());
    }
    assert_true(fth_safetensors_count(files[0]) > 0);
    for (size_t t = 0; t < fth_safetensors_count(files[0]); t++) {
        const fth_tensor_view *ours = fth_safetensors_get(files[0], t);
        const fth_tensor_view *theirs = fth_safetensors_find(files[1], ours->name);
        assert_true(theirs && ours->dtype == FTH_F32);
        for (int64_t f = 0; f < fth_shape_count(&ours->shape); f++) {
            float pair[2];
            memcpy(&pair[0], (const char *)ours->data + f * (int64_t)sizeof(float), sizeof(float));
            memcpy(&pair[1], (const char *)theirs->data + f * (int64_t)sizeof(float), sizeof(float));
            largest = fmax(largest, fabs((double)pair[0] - pair[1]));
        }
    }
    for (int i = 0; i < 2; i++)
        fth_safetensors_free(files[i]);
    return largest;
}

/* The results of two runs: as many right, and losses that differ as sums in another order do. */
static void compare_validation(const char *left, const char *right)
{
    char paths[2][TEST_MAX_PATH];
    fth_record_summary a = {0}, b = {0};
    assert_int_equal(fth_record_read(test_path(paths[0], left), &a), FTH_OK);
    assert_int_equal(fth_record_read(test_path(paths[1], right), &b), FTH_OK);
    assert_true(a.validation.count > 0 && a.validation.count == b.validation.count);
    for (size_t i = 0; i < a.validation.count; i++) {
        assert_true(a.validation.points[i].accuracy == b.validation.points[i].accuracy);
        assert_true(fabs(a.validation.points[i].loss - b.validation.points[i].loss) < 1e-4);
    }
    assert_true(a.finished && b.finished && a.steps == b.steps && a.kept.step == b.kept.step);
    fth_record_release(&a);
    fth_record_release(&b);
}

/* How many events of this name a record has. */
static int count_events(const char *run, const char *name)
{
    char path[TEST_MAX_PATH];
    int count = 0;
    fth_record_summary summary = {0};
    assert_int_equal(fth_record_read(test_path(path, run), &summary), FTH_OK);
    for (size_t i = 0; i < json_array_size(summary.events); i++) {
        const json_t *event = json_array_get(summary.events, i);
        count += strcmp(json_string_value(json_object_get(event, "event")), name) == 0;
    }
    fth_record_release(&summary);
    return count;
}

/* Sums in another order: 400 products of f32 near 1, over 27 updates. */
static const double rounding = 1e-4;

static void ranks_train_what_one_does(void **state)
{
    (void)state;
    trainee ranks[3] = {0};
    const char *flags = "--batch 47 --epochs 3 --lr 0.1 --seed 3"; /* parts of 15, 16 and 16; at last 8, 8 and 8 */
    train_alone(flags);
    train_group(ranks, 3, flags);
    assert_all_ended_well(ranks, 3);
    assert_true(compare_models("runs/alone", "runs0/run") < rounding);
    assert_int_equal(the_group.exchanges, 27);
    int64_t samples = 0;
    for (int i = 0; i < 3; i++)
        samples += json_integer_value(json_object_get(ranks[i].outcome.end, "samples"));
    assert_int_equal(samples, 3 * TRAINING);
    assert_true(test_exists("runs0/run/checkpoints") && ranks[0].shown > 0 && !ranks[0].outcome.follows);
    for (int i = 1; i < 3; i++)
        assert_true(ranks[i].outcome.follows && ranks[i].shown == 0);
    assert_false(test_exists("runs1") || test_exists("runs2"));
    compare_validation("runs/alone", "runs0/run");
    release(ranks, 3);
}

static void accumulated_batches_are_exchanged_once(void **state)
{
    (void)state;
    trainee ranks[2] = {0};
    const char *flags = "--batch 40 --accumulate 4 --epochs 2 --lr 0.1"; /* 10 batches: updates of 4, 4 and 2 */
    train_alone(flags);
    train_group(ranks, 2, flags);
    assert_all_ended_well(ranks, 2);
    assert_int_equal(the_group.exchanges, 6);
    assert_true(compare_models("runs/alone", "runs0/run") < rounding);
    release(ranks, 2);
}

/* Of all three, one is asked; all stop after the same update, and resume there. */
static void a_stop_of_one_stops_all(void **state)
{
    (void)state;
    trainee ranks[3] = {0};
    plans[1].stop_at_batch = 5;
    const char *flags = "--batch 47 --epochs 2 --lr 0.1 --resume";
    train_alone("--batch 47 --epochs 2 --lr 0.1");
    train_group(ranks, 3, flags);
    assert_all_ended_well(ranks, 3);
    for (int i = 0; i < 3; i++)
        assert_true(ranks[i].outcome.interrupted);
    release(ranks, 3);
    trainee again[2] = {0}; /* with fewer, of which only the first has a checkpoint */
    train_group(again, 2, flags);
    assert_all_ended_well(again, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(json_integer_value(json_object_get(again[i].outcome.end, "steps")), 18);
    assert_true(compare_models("runs/alone", "runs0/run") < rounding);
    release(again, 2);
}

static void the_others_continue_without_a_lost_rank(void **state)
{
    (void)state;
    const char *flags = "--batch 47 --epochs 2 --lr 0.1";
    train_alone(flags);
    for (int lost = 0; lost < 3; lost++) {
        trainee ranks[3] = {0};
        remove_runs(NULL);
        train_alone(flags);
        plans[lost].lost_at_batch = 4 + lost;
        train_group(ranks, 3, flags);
        assert_int_equal(ranks[lost].status, FTH_IO);
        for (int i = 0; i < 3; i++)
            if (i != lost && ranks[i].status != FTH_OK)
                fail_msg("rank %d after the loss of %d: %s", i, lost, ranks[i].message);
        assert_true(compare_models("runs/alone", lost == 0 ? "runs1/run" : "runs0/run") < rounding);
        release(ranks, 3);
    }
}

/* Wherever the one that leads is lost, its successor has a record of the same run, with the models,
 * on its machine. */
static void another_leads_when_the_first_is_lost(void **state)
{
    (void)state;
    const char *flags = "--batch 47 --epochs 2 --lr 0.1 --checkpoint-every 1";
    for (int64_t at = 1; at < 18; at += 1 + at / 2) {
        trainee ranks[3] = {0};
        remove_runs(NULL);
        train_alone(flags);
        plans[0].lost_at_batch = at;
        train_group(ranks, 3, flags);
        for (int i = 1; i < 3; i++)
            if (ranks[i].status != FTH_OK)
                fail_msg("rank %d, lost at %lld: %s", i, (long long)at, ranks[i].message);
        assert_true(compare_models("runs/alone", "runs1/run") < rounding);
        assert_true(!ranks[1].outcome.follows && ranks[2].outcome.follows && !test_exists("runs2"));
        assert_string_equal(ranks[1].outcome.id, "run");
        assert_int_equal(count_events("runs1/run", "resume"), 1);
        assert_int_equal(count_events("runs1/run", "end"), 1);
        assert_true(count_events("runs1/run", "checkpoint") > 0 && test_exists("runs1/run/best.safetensors"));
        release(ranks, 3);
    }
}

static void a_rank_may_be_lost_before_training(void **state)
{
    (void)state;
    const char *flags = "--batch 47 --epochs 1 --lr 0.1";
    for (int lost = 0; lost < 2; lost++) {
        trainee ranks[3] = {0};
        remove_runs(NULL);
        train_alone(flags);
        plans[lost].lost_before_training = true;
        train_group(ranks, 3, flags);
        for (int i = 0; i < 3; i++)
            if ((ranks[i].status == FTH_OK) == (i == lost))
                fail_msg("rank %d after the loss of %d: %s", i, lost, ranks[i].message);
        assert_true(compare_models("runs/alone", lost == 0 ? "runs1/run" : "runs0/run") < rounding);
        release(ranks, 3);
    }
}

/* In the last drain, in a validation, and when all wait for what one of them saves. */
static void a_rank_may_be_lost_at_the_very_end(void **state)
{
    (void)state;
    const char *flags = "--batch 47 --steps 14 --lr 0.1";
    for (int kind = 0; kind < 3; kind++) {
        for (int lost = 0; lost < 3; lost++) {
            trainee ranks[3] = {0};
            remove_runs(NULL);
            train_alone(flags);
            plans[lost].lost_in_last_drain = kind == 0;
            plans[lost].lost_at_end = kind == 1;
            plans[lost].lost_in_validation = kind == 2;
            train_group(ranks, 3, flags);
            for (int i = 0; i < 3; i++)
                if ((ranks[i].status == FTH_OK) == (i == lost))
                    fail_msg("kind %d, rank %d after the loss of %d: %s", kind, i, lost, ranks[i].message);
            const char *run = lost == 0 ? "runs1/run" : "runs0/run";
            assert_true(compare_models("runs/alone", run) < rounding);
            assert_int_equal(count_events(run, "end"), 1);
            release(ranks, 3);
        }
    }
}

/* A rank whose machine is being preempted goes alone, and no step is lost; when all go, they save
 * and stop. */
static void a_preempted_rank_leaves_alone(void **state)
{
    (void)state;
    const char *flags = "--batch 47 --epochs 2 --lr 0.1 --resume";
    for (int leaves = 0; leaves < 2; leaves++) {
        trainee ranks[3] = {0};
        remove_runs(NULL);
        train_alone("--batch 47 --epochs 2 --lr 0.1");
        plans[leaves].notice_at_batch = 7;
        train_group(ranks, 3, flags);
        assert_all_ended_well(ranks, 3);
        for (int i = 0; i < 3; i++)
            assert_true(ranks[i].outcome.left == (i == leaves) && ranks[i].outcome.interrupted == (i == leaves));
        const char *run = leaves == 0 ? "runs1/run" : "runs0/run";
        assert_true(compare_models("runs/alone", run) < rounding);
        assert_int_equal(the_group.exchanges, 18); /* none was made again */
        assert_int_equal(test_exists("runs0/run/events.jsonl") ? count_events("runs0/run", "left") : 0, leaves == 0);
        release(ranks, 3);
    }
    trainee all[2] = {0}, again[1] = {0};
    remove_runs(NULL);
    train_alone("--batch 47 --epochs 2 --lr 0.1");
    plans[0].notice_at_batch = plans[1].notice_at_batch = 5;
    train_group(all, 2, flags);
    assert_all_ended_well(all, 2);
    for (int i = 0; i < 2; i++)
        assert_true(all[i].outcome.interrupted && !all[i].outcome.left);
    release(all, 2);
    train_group(again, 1, flags);
    assert_all_ended_well(again, 1);
    assert_int_equal(the_group.exchanges, 18 - 6); /* those after the checkpoint of the stop */
    assert_true(compare_models("runs/alone", "runs0/run") < rounding);
    release(again, 1);
}

/* Fewer than the least number save once and wait. */
static void too_few_save_and_wait(void **state)
{
    (void)state;
    trainee ranks[2] = {0};
    const char *flags = "--batch 47 --epochs 2 --lr 0.1";
    train_alone(flags);
    plans[1].lost_at_batch = 6;
    waits_below = 2;
    train_group(ranks, 2, flags);
    waits_below = 0;
    assert_int_equal(ranks[0].status, FTH_OK);
    assert_int_equal(count_events("runs0/run", "waiting"), 1);
    assert_int_equal(count_events("runs0/run", "checkpoint"), 2); /* then, and at the end */
    assert_true(compare_models("runs/alone", "runs0/run") < rounding);
    release(ranks, 2);
}

/* A stop in a validation that is shared out ends it in all; the resumed run validates then. */
static void a_stop_in_a_validation_stops_all(void **state)
{
    (void)state;
    const char *flags = "--batch 47 --epochs 2 --lr 0.1 --resume";
    trainee ranks[2] = {0}, again[2] = {0};
    train_alone("--batch 47 --epochs 2 --lr 0.1");
    plans[1].stop_in_validation = true;
    train_group(ranks, 2, flags);
    assert_all_ended_well(ranks, 2);
    assert_true(ranks[0].outcome.interrupted && ranks[1].outcome.interrupted);
    release(ranks, 2);
    train_group(again, 2, flags);
    assert_all_ended_well(again, 2);
    compare_validation("runs/alone", "runs0/run");
    release(again, 2);
}

/* The run lives in a store. The one that leads is cut off, and yet renews its lease: its successor
 * takes that at once, and it comes back as one that follows. */
static void a_former_leader_comes_back_and_follows(void **state)
{
    (void)state;
    trainee ranks[2] = {0};
    char flags[300], url[TEST_MAX_PATH], folder[TEST_MAX_PATH];
    fth_run_store *store = NULL;
    fth_stored_record record = {0};
    const char *of_run = "--batch 47 --epochs 200 --lr 0.005 --checkpoint-every 100 --validate-every 10";
    snprintf(flags, sizeof flags, "%s --checkpoints %s --lease 1s --watch none", of_run, test_path(url, "runs-store"));
    train_alone(of_run);
    plans[0].hangs_at_batch = 7;
    train_group(ranks, 2, flags);
    assert_all_ended_well(ranks, 2);
    assert_true(ranks[0].outcome.follows && !ranks[1].outcome.follows && !ranks[0].outcome.fenced);
    assert_true(compare_models("runs/alone", "runs1/run") < rounding);
    assert_true(test_exists("runs1/run/best.safetensors"));

    fth_train_options options = options_of("--checkpoints %s", url);
    assert_int_equal(fth_run_store_open(&options, &store), FTH_OK);
    assert_int_equal(fth_run_store_read(store, &record), FTH_OK);
    assert_true(record.finished);
    assert_int_equal(fth_run_store_last_owner(store), 2); /* two owners */
    assert_int_equal(fth_record_restore(test_path(folder, "runs-copy"), record.run, record.events, record.events_bytes),
                     FTH_OK);
    assert_int_equal(count_events("runs-copy", "resume"), 1);
    fth_stored_record_release(&record);
    fth_run_store_free(store);
    fth_options_release(&fth_train_option_table, &options);
    release(ranks, 2);
}

/* One that follows is cut off, alone, but for the store: it waits for the others, and neither takes
 * the run from the one that leads nor saves what it has, which is old. */
static void a_rank_that_is_cut_off_does_not_take_the_lease(void **state)
{
    (void)state;
    trainee ranks[2] = {0};
    char flags[300], url[TEST_MAX_PATH];
    fth_run_store *store = NULL;
    fth_stored_record record = {0};
    const char *of_run = "--batch 47 --epochs 100 --lr 0.005 --checkpoint-every 100 --validate-every 10";
    snprintf(flags, sizeof flags, "%s --checkpoints %s --lease 60s --watch none", of_run,
             test_path(url, "cut-off-store"));
    train_alone(of_run);
    plans[1].cut_off_at_batch = 7;
    train_group(ranks, 2, flags);
    assert_all_ended_well(ranks, 2);
    assert_true(!ranks[0].outcome.follows && ranks[1].outcome.follows);
    assert_true(!ranks[0].outcome.fenced && !ranks[1].outcome.fenced);
    assert_true(compare_models("runs/alone", "runs0/run") < rounding);
    assert_false(test_exists("runs1/run"));

    fth_train_options options = options_of("--checkpoints %s", url);
    assert_int_equal(fth_run_store_open(&options, &store), FTH_OK);
    assert_int_equal(fth_run_store_read(store, &record), FTH_OK);
    assert_true(record.finished);
    assert_int_equal(fth_run_store_last_owner(store), 1);
    fth_stored_record_release(&record);
    fth_run_store_free(store);
    fth_options_release(&fth_train_option_table, &options);
    release(ranks, 2);
}

/* All end as the one that looks for the run does: it finds that there is nothing left to do, or
 * none at all. */
static void what_one_finds_holds_for_all(void **state)
{
    (void)state;
    trainee ranks[2] = {0}, again[2] = {0}, missing[2] = {0};
    const char *flags = "--batch 50 --epochs 1 --resume";
    train_group(ranks, 2, flags);
    assert_all_ended_well(ranks, 2);
    assert_null(json_object_get(the_group.run, "run"));
    release(ranks, 2);
    train_group(again, 2, flags);
    assert_all_ended_well(again, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(again[i].outcome.already_finished && again[i].outcome.follows == (i == 1));
        assert_int_equal(json_integer_value(json_object_get(again[i].outcome.end, "steps")), 8);
    }
    release(again, 2);
    train_group(missing, 2, "--resume nowhere");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(missing[i].status, FTH_INVALID);
        assert_non_null(strstr(missing[i].message, "nowhere"));
    }
    assert_false(test_exists("runs1"));
    release(missing, 2);
}

/* Followers take what makes the run, and keep how they run: what they are told has no secrets. */
static void followers_take_the_options_of_the_run(void **state)
{
    (void)state;
    fth_train_options asked = options_of("--threads 3 --lr 0.5 --strategy plain");
    fth_run_selection found = {0}, followed = {0};
    json_t *run = NULL;
    fth_train_options whole = options_of("--data https://me:secret@host.example/x.tar --threads 2 --lr 0.25 --seed 7");
    assert_int_equal(fth_run_selection_prepare(&whole, &found), FTH_OK);
    assert_int_equal(fth_shared_run_describe(&found, NULL, &run), FTH_OK);
    char *text = json_dumps(run, 0);
    assert_null(strstr(text, "secret"));
    free(text);
    assert_int_equal(fth_shared_run_follow(&asked, run, &followed), FTH_OK);
    assert_string_equal(followed.options.data.address, "https://host.example/x.tar");
    assert_true(followed.options.optimizer.lr == 0.25 && followed.options.seed == 7 && followed.options.threads == 3);
    assert_string_equal(followed.id, found.id);
    assert_string_equal(followed.identity, found.identity);
    fth_run_selection_release(&followed);

    json_object_set_new(run, "id", json_string("../elsewhere")); /* from a peer that has gone mad */
    assert_int_equal(fth_shared_run_follow(&asked, run, &followed), FTH_CORRUPT);
    fth_run_selection_release(&followed);
    fth_run_selection_release(&found);
    json_decref(run);
    fth_options_release(&fth_train_option_table, &asked);
    fth_options_release(&fth_train_option_table, &whole);
}

#define TEST(function) cmocka_unit_test_teardown(function, remove_runs)

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(an_end_elsewhere_is_drained_and_named),
        TEST(options_are_checked_against_the_row),
        TEST(ranks_train_what_one_does),
        TEST(accumulated_batches_are_exchanged_once),
        TEST(a_stop_of_one_stops_all),
        TEST(the_others_continue_without_a_lost_rank),
        TEST(another_leads_when_the_first_is_lost),
        TEST(a_rank_may_be_lost_before_training),
        TEST(a_rank_may_be_lost_at_the_very_end),
        TEST(a_preempted_rank_leaves_alone),
        TEST(too_few_save_and_wait),
        TEST(a_stop_in_a_validation_stops_all),
        TEST(a_former_leader_comes_back_and_follows),
        TEST(a_rank_that_is_cut_off_does_not_take_the_lease),
        TEST(what_one_finds_holds_for_all),
        TEST(followers_take_the_options_of_the_run),
    };
    return cmocka_run_group_tests(tests, set_up, test_remove_folder);
}
