/* The strategy interface, driven by the real trainer with strategies that only this test has.
 *
 * "relay" has what a server's worker has: somebody else owns the optimizer and decides the end, and results come late, so
 * that the trainer has to drain.
 *
 * "group" is what data-parallel training needs: ranks, each a thread with a trainer and a runs folder of its own, as if
 * on machines of their own. They train one run: one finds it and leads, the others write nothing. Each has a part of every
 * batch; they sum their gradients once per update, end, stop and save together, and continue without a rank that is
 * lost. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "base/process.h"
#include "tensor/tensor.h"
#include "train/server_support.h"
#include "train/shared_run.h"
#include "train/strategy.h"

enum { MAX_RANKS = 4 };

/* ---- running ---- */

static fth_train_options options_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A small share of the built-in digits; flags are split at spaces. */
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
    snprintf(text, sizeof text, "--data digits --share 1/50 --model linear --runs %s/runs --threads 1 %s", test_folder,
             flags);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));)
        argv[argc++] = word;
    if (fth_options_set_defaults(&fth_train_option_table, &options) != FTH_OK ||
        fth_options_read_flags(&fth_train_option_table, &options, argc, argv, positional, &positional_count, &help) !=
            FTH_OK)
        fail_msg("%s", fth_error_message());
    return options;
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
    return options->accumulate > 1 ? fth_fail(FTH_INVALID, "a relay does not accumulate") : FTH_OK;
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
        {"--strategy relay --checkpoints /tmp/nowhere", "the model is the server's"},
        {"--strategy pain", "did you mean plain?"},
        {"--strategy zebra", "known strategies: plain, relay"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_stop stop = FTH_STOP_INITIALIZER;
        fth_train_outcome outcome;
        fth_train_options options = options_of("%s", cases[i].flags);
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
    bool met;          /* one looks for the run, */
    json_t *run;       /* and found this */
} group;

struct rank {
    group *all;
    int number;
    int64_t lost_at_batch; /* 0: never */
    fth_engine *engine;
    fth_stop *stop;
    fth_engine_sizes sizes;
    fth_engine_vectors vectors; /* the engine's, in memory of the test's */
    float *gradients, *sum;
    json_t *position; /* lent to peers during synchronize() */
    fth_intent intent;
};

static void wait_for_change(group *all)
{
    struct timespec until = fth_deadline_timespec(fth_deadline_in(60));
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

static void leave(rank *self)
{
    group *all = self->all;
    pthread_mutex_lock(&all->mutex);
    all->ranks[self->number] = NULL;
    all->size--;
    all->arrived = 0;
    all->broken = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->mutex);
}

/* The parts go to those that are there, in order; the first of them saves. */
static fth_peer_place place_of(const rank *self)
{
    int before = 0;
    for (int i = 0; i < self->number; i++)
        before += self->all->ranks[i] != NULL;
    return (fth_peer_place){.part = {before, self->all->size}, .follows = before > 0};
}

/* ---- group: the strategy ---- */

static group the_group;
static int64_t lost_at_batch[MAX_RANKS], stop_at_batch[MAX_RANKS];
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
    *self = (rank){.all = all, .number = this_rank, .stop = stop};
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
    self->lost_at_batch = lost_at_batch[self->number];
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
    *place = place_of(self);

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

    self->intent = *intent;
    FTH_TRY(meet(self));
    for (int i = 0; i < MAX_RANKS; i++) {
        const rank *peer = self->all->ranks[i];
        if (!peer)
            continue;
        agreed.end = agreed.end ? agreed.end : peer->intent.end;
        agreed.stop = agreed.stop || peer->intent.stop;
        agreed.checkpoint = agreed.checkpoint || peer->intent.checkpoint;
    }
    FTH_TRY(meet(self));
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
    if (++all->rejoining == all->size) {
        all->rejoining = 0;
        all->generation++;
        all->broken = false;
        pthread_cond_broadcast(&all->changed);
    }
    while (all->generation == generation)
        wait_for_change(all);
    *place = place_of(self);
    pthread_mutex_unlock(&all->mutex);
    return FTH_OK;
}

/* Sums the gradients of the group of batches over all ranks, in the same order everywhere, and updates. */
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

static fth_status group_step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    fth_status status = FTH_OK;
    rank *self = state;
    fth_group place = fth_engine_group(self->engine, batch);

    if (stop_at_batch[self->number] > 0 && batch->number >= stop_at_batch[self->number])
        fth_stop_ask(self->stop, FTH_STOP_REQUEST, INFINITY, "test", "batch %lld", (long long)batch->number);
    if (self->lost_at_batch > 0 && batch->number == self->lost_at_batch) {
        leave(self);
        return fth_fail(FTH_IO, "killed for the test");
    }
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
    (void)event;
    ((trainee *)context)->shown++;
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

static void train_group(trainee *ranks, int count, const char *flags)
{
    the_group =
        (group){.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .size = count, .exchanges = 0};
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
    memset(lost_at_batch, 0, sizeof lost_at_batch);
    memset(stop_at_batch, 0, sizeof stop_at_batch);
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
    assert_int_equal(samples, 3 * 400);
    assert_true(test_exists("runs0/run/checkpoints") && ranks[0].shown > 0 && !ranks[0].outcome.follows);
    for (int i = 1; i < 3; i++)
        assert_true(ranks[i].outcome.follows && ranks[i].shown == 0);
    assert_false(test_exists("runs1") || test_exists("runs2"));
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
    stop_at_batch[1] = 5;
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
        lost_at_batch[lost] = 4 + lost;
        train_group(ranks, 3, flags);
        assert_int_equal(ranks[lost].status, FTH_IO);
        for (int i = 0; i < 3; i++)
            if (i != lost && ranks[i].status != FTH_OK)
                fail_msg("rank %d after the loss of %d: %s", i, lost, ranks[i].message);
        assert_true(compare_models("runs/alone", lost == 0 ? "runs1/run" : "runs0/run") < rounding);
        release(ranks, 3);
    }
}

/* All end as the one that looks for the run does: it finds that there is nothing left to do, or none at all. */
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
    fth_beginning found = {0}, followed = {0};
    json_t *run = NULL;
    fth_train_options whole = options_of("--data https://me:secret@host.example/x.tar --threads 2 --lr 0.25 --seed 7");
    assert_int_equal(fth_beginning_prepare(&whole, &found), FTH_OK);
    assert_int_equal(fth_shared_run_describe(&found, NULL, &run), FTH_OK);
    char *text = json_dumps(run, 0);
    assert_null(strstr(text, "secret"));
    free(text);
    assert_int_equal(fth_shared_run_follow(&asked, run, &followed), FTH_OK);
    assert_string_equal(followed.options.data, "https://host.example/x.tar");
    assert_true(followed.options.lr == 0.25 && followed.options.seed == 7 && followed.options.threads == 3);
    assert_string_equal(followed.id, found.id);
    assert_string_equal(followed.identity, found.identity);
    fth_beginning_release(&followed);

    json_object_set_new(run, "id", json_string("../elsewhere")); /* from a peer that has gone mad */
    assert_int_equal(fth_shared_run_follow(&asked, run, &followed), FTH_CORRUPT);
    fth_beginning_release(&followed);
    fth_beginning_release(&found);
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
        TEST(what_one_finds_holds_for_all),
        TEST(followers_take_the_options_of_the_run),
    };
    return cmocka_run_group_tests(tests, test_make_folder, test_remove_folder);
}
