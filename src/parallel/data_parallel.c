/* Data-parallel training: processes that each compute the gradients of their part of every batch,
 * sum them, and make the same update.
 *
 *     data_parallel.c            the strategy: who does what when
 *     data_parallel_group.c      which processes there are: launcher, membership, collective
 *     data_parallel_state.c      how they come to the same state
 *     data_parallel_agree.c      what they agree on before each update
 *     data_parallel_exchange.c   the sum of gradients, through the host
 *     data_parallel_devices.c    the same on GPUs
 *     data_parallel_shard.c      an update of which each makes a part
 *     data_parallel_times.c      where each one's time goes
 *
 * A part's gradients are weighted by its share of the batch's samples, so their sum is the mean
 * over the whole batch, whatever the sizes of the parts. The sums are the same bits in every
 * worker, and so is all that follows from them: clipping, f16's loss scale, the update. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/data_parallel.h"
#include "parallel/parallel_internal.h"

/* ---- meeting ---- */

static void close_worker(void *state)
{
    fth_data_parallel *self = state;
    if (!self)
        return;
    if (self->exchange) {
        if (fth_gradient_exchange_is_busy(self->exchange)) /* after a failure, in the middle of an update */
            fth_worker_group_abort(self->group, "this worker ends");
        fth_gradient_exchange_end_group(self->exchange);
    }
    fth_data_parallel_close_devices(self);
    fth_worker_group_close(self->group); /* before the memory that its collective uses */
    fth_update_shards_free(self->shards);
    fth_gradient_exchange_free(self->exchange);
    fth_worker_times_free(self->times);
    if (self->buffers_before)
        fth_engine_device(self->engine)->backend->release(fth_engine_device(self->engine), self->buffers_before);
    json_decref(self->events);
    free(self);
}

static fth_status meet(const fth_train_options *options, fth_stop *stop, void **state, json_t **run)
{
    fth_status status = FTH_OK;
    fth_data_parallel *self = NULL;
    fth_launched launched = {0};

    *state = NULL;
    *run = NULL;
    FTH_TRY(fth_allocate(1, sizeof *self, &self));
    self->stop = stop;
    self->events = json_array();
    FTH_TRY(fth_worker_times_create(&self->times));
    FTH_TRY(fth_launcher_find(&launched));
    FTH_TRY(fth_worker_group_open(&launched, options, stop, &self->group));
    FTH_TRY(fth_worker_group_find_run(self->group, run));
    *state = self;
    self = NULL;

out:
    fth_launched_release(&launched);
    close_worker(self);
    return status;
}

static fth_status share_run(void *state, const json_t *run)
{
    fth_data_parallel *self = state;
    return fth_worker_group_share_run(self->group, run);
}

static const char *get_node(const void *state)
{
    const fth_data_parallel *self = state;
    return fth_worker_group_node(self->group);
}

static int count_processors(const void *state)
{
    const fth_data_parallel *self = state;
    return fth_worker_group_processors(self->group);
}

/* ---- groups ---- */

enum { DEVICE_BUCKET_BYTES = 25 << 20 }; /* as PyTorch's; links of GPUs are too fast for it to matter much */

/* What this worker does, for the rendezvous, which finds one stuck that keeps others waiting in an
 * exchange. */
static void report(fth_data_parallel *self, const char *activity)
{
    self->activity = activity;
    fth_worker_group_report(self->group, self->number, activity);
}

static const char *const exchanging = "exchanging", *const computing = "computing", *const between = "between updates";

/* For validation, and for synchronized batch norms. */
static fth_status sum(void *state, double *values, size_t count)
{
    fth_data_parallel *self = state;
    const char *activity = self->activity ? self->activity : between;
    if (self->apart)
        return FTH_OK;
    report(self, exchanging);
    fth_status status = fth_worker_group_translate_status(
        self->group, fth_collective_sum(fth_worker_group_collective(self->group), values, count));
    report(self, activity);
    return status;
}

static void note_group(fth_data_parallel *self)
{
    const fth_group_view *view = fth_worker_group_view(self->group);
    json_t *members = json_array();
    for (int r = 0; r < view->size; r++) {
        const fth_group_member *member = &view->members[r];
        json_t *entry = json_pack("{s:i, s:s, s:s, s:i, s:I}", "rank", r, "host", member->host, "node", member->node,
                                  "local_rank", member->local_rank, "process", (json_int_t)member->process);
        if (member->facts)
            json_object_set(entry, "facts", member->facts);
        json_array_append_new(members, entry);
    }
    json_array_append_new(self->events,
                          json_pack("{s:s, s:I, s:i, s:i, s:s, s:o}", "event", "group", "generation",
                                    (json_int_t)view->generation, "workers", view->size, "nodes", view->nodes,
                                    "transport", fth_collective_transport(fth_worker_group_collective(self->group)),
                                    "members", members));
}

/* Joins a group, the first or the next one. */
static fth_status form_group(fth_data_parallel *self, fth_peer_place *place)
{
    fth_status status = FTH_OK;

    fth_gradient_exchange_end_group(self->exchange);
    fth_data_parallel_close_devices(self);
    FTH_TRY(fth_worker_group_form(self->group, fth_gradient_exchange_memory(self->exchange)));
    const fth_group_view *view = fth_worker_group_view(self->group);
    FTH_TRY(fth_worker_group_translate_status(
        self->group, fth_gradient_exchange_begin_group(self->exchange, fth_worker_group_collective(self->group),
                                                       view->rank, view->size)));
    FTH_TRY(fth_data_parallel_open_devices(self, fth_engine_get_options(self->engine)->train));
    fth_peers peers = {.sum = sum, .context = self, .group = self->devices};
    if (self->devices &&
        !fth_engine_is_synchronized(self->engine)) /* else in one piece, behind all sums of batch norms */
        peers.bucket_floats = DEVICE_BUCKET_BYTES / sizeof(float);
    FTH_TRY(fth_engine_set_peers(self->engine, view->size > 1 ? peers : (fth_peers){0}));
    *place = (fth_peer_place){.part = {view->rank, view->size}, .follows = view->rank > 0, .present = view->present};
    self->tally = (fth_update_tally){0};
    note_group(self);

out:
    return status;
}

/* Once on each machine that shows nothing else. */
static void say_where_it_shows(const fth_data_parallel *self)
{
    const fth_group_view *view = fth_worker_group_view(self->group);
    const fth_group_member *own = &view->members[view->rank];
    if (own->node_number > 0 && own->local_rank == 0)
        fth_log_info("%s has joined: %s on %s; %s shows the progress and keeps the run", own->node,
                     FTH_COUNTED(view->size, "worker"), FTH_COUNTED(view->nodes, "node"), view->members[0].node);
}

/* The same until it succeeds: while this process prepared itself, or waits for others, members may
 * be lost. */
static fth_status form_first_group(fth_data_parallel *self, fth_peer_place *place)
{
    enum { MOST_LOSSES = 100 };
    fth_status status = FTH_PEER_LOST;
    bool told = false;
    for (int losses = 0; losses < MOST_LOSSES; losses += status == FTH_PEER_LOST) {
        status = form_group(self, place);
        if (status == FTH_PEER_LOST)
            fth_log_warning("%s; forming the group again", fth_error_message());
        else if (status == FTH_TIMEOUT && !told)
            fth_log_info("waiting: %s", fth_error_message());
        else if (status != FTH_TIMEOUT)
            break;
        told = told || status == FTH_TIMEOUT;
    }
    if (status == FTH_OK)
        say_where_it_shows(self);
    return status;
}

static fth_status announce(void *state, const json_t *found)
{
    const fth_data_parallel *self = state;
    return fth_worker_group_announce(self->group, found);
}

static fth_status connect_worker(fth_engine *engine, const fth_train_options *options, fth_stop *stop, void **state,
                                 fth_peer_place *place)
{
    fth_status status = FTH_OK;
    fth_data_parallel *self = NULL;
    json_t *run = NULL;

    if (!*state)
        FTH_TRY(meet(options, stop, state, &run));
    self = *state;
    self->engine = engine;
    fth_gradient_exchange_options exchange = {.wire = (fth_wire)options->peers.wire,
                                              .after_backward = fth_engine_is_synchronized(engine)};
    FTH_TRY(fth_bucket_parse(options->peers.bucket, &exchange.bucket_bytes));
    FTH_TRY(fth_gradient_exchange_create(engine, &exchange, &self->exchange));
    if (options->peers.shard_update)
        FTH_TRY(fth_update_shards_create(engine, fth_shared_memory_get(fth_gradient_exchange_memory(self->exchange)),
                                         &self->shards));
    FTH_TRY(form_first_group(self, place));

out:
    json_decref(run);
    return status;
}

static fth_status synchronize(void *state, json_t **position)
{
    return fth_data_parallel_synchronize(state, position);
}

static fth_status open_worker(fth_engine *engine, const fth_train_options *options, void **state)
{
    fth_data_parallel *self = *state;
    (void)engine;
    (void)options;
    fth_worker_times_pause(self->times);
    return FTH_OK;
}

static fth_status rejoin(void *state, fth_peer_place *place)
{
    fth_data_parallel *self = state;
    fth_status status = form_group(self, place);
    if (status == FTH_TIMEOUT) {
        const fth_group_view *view = fth_worker_group_view(self->group);
        place->follows = view->rank > 0;
        place->present = view->present;
    }
    fth_worker_times_pause(self->times);
    return status;
}

/* ---- updates ---- */

static fth_status agree(void *state, fth_intent *intent)
{
    fth_data_parallel *self = state;
    fth_worker_times_pause(self->times);
    report(self, exchanging);
    fth_status status = fth_data_parallel_agree(self, intent);
    report(self, between);
    fth_worker_times_add(self->times, FTH_WORKER_WAITS);
    return status;
}

/* Adds the batch to the tally. That it diverged is left to the exchange, where all workers hear of
 * it. */
static fth_status compute(fth_data_parallel *self, const fth_batch *batch, const fth_group *place)
{
    fth_update_tally *tally = &self->tally;
    fth_step_result own = {0};
    const fth_gradients_watch *watch = NULL;
    fth_status status = FTH_OK;

    if (place->first)
        *tally = (fth_update_tally){0};
    if (place->last && !self->devices)
        status = fth_worker_group_translate_status(self->group, fth_gradient_exchange_start(self->exchange, &watch));
    if (status == FTH_OK)
        status = watch ? fth_engine_compute_watched(self->engine, batch, place, watch, &own)
                       : fth_engine_compute(self->engine, batch, place, &own);
    if (status == FTH_DIVERGED) {
        tally->diverged = true;
        status = FTH_OK;
    }
    tally->loss += tally->diverged ? NAN : own.loss * (double)own.samples;
    tally->correct += own.correct;
    tally->samples += own.samples;
    return status;
}

/* The result of the update is that of all workers. */
static fth_status sum_tallies(fth_data_parallel *self, fth_step_result *result)
{
    fth_status status = FTH_OK;
    double sums[] = {self->tally.loss, (double)self->tally.correct, (double)self->tally.samples};

    FTH_TRY(fth_worker_group_translate_status(
        self->group, fth_collective_sum(fth_worker_group_collective(self->group), sums, FTH_COUNT_OF(sums))));
    if (!isfinite(sums[0]))
        FTH_TRY(fth_engine_fail_diverged(self->engine,
                                         isnan(sums[0]) ? "the loss is not a number" : "the loss is infinite"));
    *result = (fth_step_result){
        .loss = sums[2] > 0 ? sums[0] / sums[2] : 0, .correct = (int64_t)sums[1], .samples = (int64_t)sums[2]};

out:
    return status;
}

/* Gradients and results. The sum of results is short: before the gradients it takes as long as
 * others are late. Where gradients are under way already it has to come after them. */
static fth_status exchange(fth_data_parallel *self, fth_step_result *result)
{
    fth_status status = FTH_OK;
    const bool overlaps = !self->devices && fth_gradient_exchange_bucket(self->exchange) > 0;

    if (!overlaps) {
        FTH_TRY(sum_tallies(self, result));
        fth_worker_times_add(self->times, FTH_WORKER_WAITS);
    }
    FTH_TRY(fth_worker_group_translate_status(self->group, self->devices
                                                               ? fth_engine_wait_for_sums(self->engine)
                                                               : fth_gradient_exchange_finish(self->exchange)));
    if (overlaps)
        FTH_TRY(sum_tallies(self, result));
    fth_worker_times_add(self->times, FTH_WORKER_EXCHANGES);

out:
    return status;
}

/* The gradients of a batch, and behind a group's last one their sum over all workers. */
static fth_status compute_and_exchange(fth_data_parallel *self, const fth_batch *batch, const fth_group *place,
                                       fth_step_result *result)
{
    fth_status status = FTH_OK;

    report(self, computing);
    FTH_TRY(compute(self, batch, place));
    fth_worker_times_add(self->times, FTH_WORKER_COMPUTES);
    if (!place->last)
        goto out;
    report(self, exchanging);
    FTH_TRY(exchange(self, result));

out:
    return status;
}

static fth_status update(fth_data_parallel *self, double learning_rate, int64_t number)
{
    fth_status status = FTH_OK;

    if (self->shards)
        return fth_update_shards_update(self->shards, self->group, learning_rate, number);
    FTH_TRY(fth_engine_update(self->engine, learning_rate, number));
    FTH_TRY(fth_engine_check_update(self->engine));

out:
    return status;
}

static fth_status step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    fth_status status = FTH_OK;
    fth_data_parallel *self = state;
    const fth_group place = fth_engine_group(self->engine, batch);

    *result = (fth_step_result){0};
    self->number = place.update;
    self->next_batch = batch->number + 1;
    fth_worker_times_add(self->times, FTH_WORKER_LOADS);
    if (place.first)
        FTH_TRY(fth_data_parallel_keep_buffers(self));
    status = compute_and_exchange(self, batch, &place, result);
    if (status == FTH_OK && place.last)
        status = update(self, learning_rate, place.update);
    if (status == FTH_PEER_LOST) { /* the message stays that of the loss */
        fth_status back = fth_data_parallel_put_buffers_back(self);
        FTH_TRY(back == FTH_OK ? status : back);
    }
    FTH_TRY(status);
    report(self, between);
    if (place.last)
        fth_worker_times_add(self->times, FTH_WORKER_UPDATES);

out:
    return status;
}

static bool is_at_epoch_end(const fth_data_parallel *self)
{
    const fth_engine_options *options = fth_engine_get_options(self->engine);
    return self->next_batch % fth_batches_per_epoch(options->training_samples, options->train->batch) == 0;
}

/* All updates are made; the running statistics of rank 0 are those that are validated and saved. */
static fth_status drain(void *state, fth_step_result *result)
{
    fth_status status = FTH_OK;
    fth_data_parallel *self = state;
    json_t *event = NULL;

    *result = (fth_step_result){0};
    if (self->apart || !fth_worker_group_collective(self->group))
        return FTH_OK;
    report(self, exchanging);
    FTH_TRY(fth_data_parallel_share_buffers(self));
    if (self->shards)
        FTH_TRY(fth_update_shards_gather(self->shards, self->group));
    if (is_at_epoch_end(self) || self->finishing) {
        FTH_TRY(fth_worker_times_gather(self->times, self->group, &event));
        if (event)
            json_array_append_new(self->events, event);
    }
    report(self, between);

out:
    return status;
}

static bool is_whole(const void *state)
{
    const fth_data_parallel *self = state;
    return !self->shards || fth_update_shards_is_whole(self->shards);
}

/* ---- what it says about itself ---- */

static void describe(const void *state, json_t *event)
{
    const fth_data_parallel *self = state;
    const fth_group_view *view = fth_worker_group_view(self->group);
    if (!fth_worker_group_collective(self->group)) /* it waits for others, as an event of its own says */
        return;
    json_object_set_new(event, "workers", json_integer(view->size));
    json_object_set_new(event, "worker_kind", json_string("process"));
    json_object_set_new(event, "nodes", json_integer(view->nodes));
    json_object_set_new(event, "generation", json_integer(view->generation));
    json_object_set_new(event, "transport",
                        json_string(fth_collective_transport(fth_worker_group_collective(self->group))));
}

static json_t *take_event(void *state)
{
    fth_data_parallel *self = state;
    json_t *event = json_incref(json_array_get(self->events, 0));
    json_array_remove(self->events, 0);
    return event;
}

static fth_status check(const fth_train_options *options)
{
    if (options->peers.batch_per_worker > 0 && fth_options_is_set(&fth_train_option_table, options, "batch"))
        return fth_fail(FTH_INVALID,
                        "--batch is what all workers have together, --batch-per-worker what each has: give "
                        "one of them");
    return FTH_OK;
}

static const char *const options_of_row[] = {"batch-per-worker", "scale-lr",     "wire",       "bucket",
                                             "transport",        "shard-update", "batch-norm", NULL};

const fth_strategy fth_strategy_data_parallel = {
    .name = "data-parallel",
    .summary = "workers with a part of every batch each; `farthing launch` starts them",
    .options = options_of_row,
    .optimizer = FTH_OPTIMIZER_OF_ENGINE,
    .takes_checkpoints = true,
    .keeps_data_on_device = true,
    .check = check,
    .meet = meet,
    .share_run = share_run,
    .get_node = get_node,
    .count_processors = count_processors,
    .announce = announce,
    .connect = connect_worker,
    .synchronize = synchronize,
    .open = open_worker,
    .describe = describe,
    .agree = agree,
    .rejoin = rejoin,
    .step = step,
    .drain = drain,
    .is_whole = is_whole,
    .sum = sum,
    .take_event = take_event,
    .close = close_worker,
};
