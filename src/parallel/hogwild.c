/* The strategy: hands batches to workers and gathers what they did. See hogwild.h.
 *
 * A step copies the batch into a free slot and gives the sums of what was finished meanwhile; only
 * where no slot is free does it wait, then until half of the queue is used up, so that neither side
 * wakes the other for every small batch. A drain waits until nothing is under way: every batch
 * handed out is then part of the weights, once.
 *
 * Whose momentum. By default the optimizer's vectors are shared as the weights are: N workers
 * then follow, with a delay of N - 1 updates, the path that one would, they are part of every
 * checkpoint, and memory does not grow with N. With --hogwild-momentum worker each has its own,
 * as in PyTorch's example, which averages over its own batches only; a checkpoint then has their
 * mean, and a resume gives that to each. A worker's own count of updates, for adamw's
 * correction, is the N-th part of all. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "parallel/hogwild.h"
#include "train/model/run_network.h"

enum { MAX_DEATHS_OF_A_BATCH = 3, MAX_DEATHS_IN_A_ROW = 8, NOT_WAITING = 1 << 30 };
#define LOOK_EVERY_S   0.01 /* at processes */
#define END_PATIENCE_S 30.0

typedef struct hogwild hogwild;

/* A worker as the trainer's process sees it: a thread or a process. */
typedef struct member {
    hogwild *all;
    int number;
    pthread_t thread;
    pid_t process;
    bool started;
} member;

struct hogwild {
    const fth_train_options *options;
    const fth_dataset *dataset;
    hogwild_head *head;
    int descriptor;
    bool processes;
    member members[FTH_MAX_WORKERS];
    int taken; /* slots that are not free */
    double loss;
    int64_t correct, samples; /* gathered and not given */
    double looked_s;
    double moved_s; /* when a result last came */
    int deaths_in_a_row;
    int64_t lost;
    json_t *events;
};

/* ---- starting and ending ---- */

static bool hogwild_starts_processes(const fth_train_options *options)
{
    return options->peers.processes > 0;
}

static int choose_workers(const fth_train_options *options)
{
    int cores = fth_processors_usable();
    int64_t asked = options->peers.processes > 0 ? options->peers.processes : options->peers.workers;
    if (asked > cores)
        fth_log_warning("%d workers on %s take turns; %s", (int)asked, FTH_COUNTED(cores, "usable core"),
                        options->peers.processes > 0 ? "more processes than cores are no faster"
                                                     : "--workers 0 starts one per core");
    if (asked == 0)
        asked = cores < FTH_MAX_WORKERS ? cores : FTH_MAX_WORKERS;
    return (int)asked;
}

static void *run_thread(void *context)
{
    member *worker = context;
    hogwild_work(worker->all->head, worker->number, worker->all->options, worker->all->dataset, 0);
    return NULL;
}

static fth_status start(hogwild *all, int number)
{
    fth_status status = FTH_OK;
    member *worker = &all->members[number];

    worker->all = all;
    worker->number = number;
    if (all->processes) {
        FTH_TRY(hogwild_process_start(all->descriptor, number, &worker->process));
    } else {
        int failure = fth_thread_start(&worker->thread, "hogwild", run_thread, worker);
        FTH_REQUIRE(failure == 0, FTH_NO_MEMORY, "start worker %d: %s", number, strerror(failure));
    }
    worker->started = true;

out:
    return status;
}

/* False if a thread does not end; then what it uses has to stay. */
static bool end_workers(hogwild *all)
{
    bool ended = true;
    fth_deadline deadline = fth_deadline_in(END_PATIENCE_S);
    atomic_store(&all->head->stop, true);
    atomic_fetch_add(&all->head->work, 1);
    fth_futex_wake(&all->head->work, FTH_MAX_WORKERS);
    for (int i = 0; i < all->head->worker_count; i++) {
        member *worker = &all->members[i];
        if (!worker->started)
            continue;
        if (all->processes)
            fth_child_wait(worker->process, deadline);
        else if (!fth_thread_join_by(worker->thread, deadline))
            ended = false;
    }
    return ended;
}

static void hogwild_close(void *state)
{
    hogwild *all = state;
    if (!all)
        return;
    if (all->head && !end_workers(all)) {
        fth_log_warning("a worker thread did not end within %g s and is left behind", END_PATIENCE_S);
        return;
    }
    hogwild_region_free(all->head);
    if (all->descriptor >= 0)
        close(all->descriptor);
    json_decref(all->events);
    free(all);
}

static void share_state(hogwild *all)
{
    hogwild_head *head = all->head;
    fth_engine_vectors common = hogwild_get_vectors(head, -1);
    for (int w = 0; head->worker_state && w < head->worker_count; w++) {
        fth_engine_vectors own = hogwild_get_vectors(head, w);
        for (int i = 0; i < head->model.sizes.state_count; i++)
            memcpy(own.state[i], common.state[i], head->model.sizes.trained * sizeof(float));
    }
}

static fth_status hogwild_open(fth_engine *engine, const fth_train_options *options, void **state)
{
    fth_status status = FTH_OK;
    hogwild *all = NULL;
    json_t *json = fth_options_to_json(&fth_train_option_table, options, false);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    hogwild_plan plan = {.workers = choose_workers(options),
                         .processes = hogwild_starts_processes(options),
                         .worker_state = options->peers.hogwild_momentum == FTH_OWNED_BY_WORKER,
                         .options = text,
                         .network = fth_run_network_text(options),
                         .engine = engine};

    FTH_REQUIRE(text, FTH_NO_MEMORY, "no memory for the options");
    FTH_TRY(fth_allocate(1, sizeof *all, &all));
    all->options = options;
    all->dataset = fth_engine_get_options(engine)->dataset;
    all->processes = plan.processes;
    all->descriptor = -1;
    all->events = json_array();
    FTH_TRY(hogwild_region_create(&plan, &all->head, &all->descriptor));
    fth_engine_vectors vectors = hogwild_get_vectors(all->head, -1);
    FTH_TRY(fth_engine_move_vectors(engine, &vectors));
    share_state(all);
    atomic_store(&all->head->wake_at, NOT_WAITING);
    all->moved_s = fth_clock_seconds();
    for (int i = 0; i < plan.workers; i++)
        FTH_TRY(start(all, i));
    *state = all;
    all = NULL;

out:
    hogwild_close(all);
    free(text);
    json_decref(json);
    return status;
}

/* ---- workers that fail, hang or are lost ---- */

static void offer(hogwild *all)
{
    atomic_fetch_add(&all->head->work, 1);
    if (atomic_load(&all->head->idle) > 0)
        fth_futex_wake(&all->head->work, 1);
}

/* A part of its update may have been made: the batch is computed again by another, as a sample that
 * was drawn twice. */
static fth_status give_back_batches(hogwild *all, int number, const char *reason, int64_t *batch)
{
    *batch = -1;
    for (int s = 0; s < all->head->slot_count; s++) {
        hogwild_slot *slot = hogwild_get_slot(all->head, s);
        uint32_t word = atomic_load(&slot->state);
        if (hogwild_state_of(word) != SLOT_BUSY || hogwild_worker_of(word) != number)
            continue;
        *batch = slot->number;
        if (++slot->deaths >= MAX_DEATHS_OF_A_BATCH)
            return fth_fail(FTH_PEER_LOST,
                            "%d worker processes in turn were lost with batch %" PRId64 ", the last by %s",
                            slot->deaths, *batch, reason);
        atomic_store(&slot->busy_since_s, 0);
        atomic_store(&slot->state, SLOT_FULL);
        offer(all);
    }
    return FTH_OK;
}

static fth_status replace(hogwild *all, int number, const char *reason)
{
    fth_status status = FTH_OK;
    member *worker = &all->members[number];
    int64_t batch = -1;
    pid_t process = worker->process;

    worker->started = false;
    all->lost++;
    fth_log_warning("worker process %d (%d) was lost: %s", number, (int)process, reason);
    status = give_back_batches(all, number, reason, &batch);
    bool replaced = status == FTH_OK && ++all->deaths_in_a_row <= MAX_DEATHS_IN_A_ROW;
    json_t *event =
        json_pack("{s:s, s:f, s:i, s:i, s:s, s:b, s:I}", "event", "worker_lost", "time", 0.0, "worker", number,
                  "process", (int)process, "reason", reason, "replaced", replaced, "lost", (json_int_t)all->lost);
    if (event && batch >= 0)
        json_object_set_new(event, "batch", json_integer(batch));
    json_array_append_new(all->events, event);
    if (status != FTH_OK)
        goto out;
    FTH_REQUIRE(replaced, FTH_PEER_LOST, "%s lost without one batch done between them, the last by %s",
                FTH_COUNTED(all->deaths_in_a_row, "worker process"), reason);
    FTH_TRY(start(all, number));

out:
    return status;
}

static fth_status report_failure(hogwild *all, int number, fth_status status)
{
    const char *message = hogwild_get_worker(all->head, number)->message;
    if (status == FTH_DIVERGED) /* no worker's fault */
        return fth_fail(status, "%.1000s", message);
    return fth_fail(status, "worker %d: %.1000s", number, message);
}

static fth_status look_for_hangs(hogwild *all, double now)
{
    double timeout_s = all->options->peers.worker_timeout_s;
    if (now - all->moved_s < timeout_s)
        return FTH_OK;
    bool busy = false;
    for (int s = 0; s < all->head->slot_count; s++) {
        hogwild_slot *slot = hogwild_get_slot(all->head, s);
        uint32_t word = atomic_load(&slot->state);
        double since = atomic_load(&slot->busy_since_s);
        if (hogwild_state_of(word) != SLOT_BUSY)
            continue;
        busy = true;
        if (since <= 0 || now - since < timeout_s)
            continue;
        int number = hogwild_worker_of(word);
        if (!all->processes)
            return fth_fail(FTH_TIMEOUT,
                            "worker %d hangs: it has had batch %" PRId64 " for %.0f s; see --worker-timeout", number,
                            (int64_t)slot->number, now - since);
        fth_log_warning("worker process %d hangs: it has had batch %" PRId64 " for %.0f s and is ended", number,
                        (int64_t)slot->number, now - since);
        kill(all->members[number].process, SIGKILL);
        all->moved_s = now;
    }
    return busy ? FTH_OK : fth_fail(FTH_TIMEOUT, "no worker took a batch for %.0f s", now - all->moved_s);
}

static fth_status look_after_workers(hogwild *all)
{
    fth_status status = FTH_OK;
    double now = fth_clock_seconds();

    if (now - all->looked_s < LOOK_EVERY_S)
        return FTH_OK;
    all->looked_s = now;
    for (int i = 0; i < all->head->worker_count; i++) {
        hogwild_worker *worker = hogwild_get_worker(all->head, i);
        if (atomic_load(&worker->failed))
            return report_failure(all, i, worker->status);
        char reason[96];
        if (all->processes && hogwild_process_is_gone(all->members[i].process, reason, sizeof reason))
            FTH_TRY(replace(all, i, reason));
    }

out:
    return status;
}

/* ---- batches ---- */

static fth_status gather(hogwild *all)
{
    for (int s = 0; all->taken > 0 && s < all->head->slot_count; s++) {
        hogwild_slot *slot = hogwild_get_slot(all->head, s);
        uint32_t word = atomic_load_explicit(&slot->state, memory_order_acquire);
        if (hogwild_state_of(word) != SLOT_DONE)
            continue;
        if (slot->status != FTH_OK)
            return report_failure(all, hogwild_worker_of(word), slot->status);
        all->loss += slot->result.loss * (double)slot->result.samples;
        all->correct += slot->result.correct;
        all->samples += slot->result.samples;
        all->deaths_in_a_row = 0;
        all->moved_s = fth_clock_seconds();
        all->taken--;
        atomic_store_explicit(&slot->state, SLOT_FREE, memory_order_release);
    }
    return FTH_OK;
}

/* Waits until so many slots are free. A worker that was killed after its last store may not have
 * woken us: sleeps are short, and what counts is what the slots say. */
static fth_status wait_for_free(hogwild *all, int wanted)
{
    fth_status status = FTH_OK;
    hogwild_head *head = all->head;
    double slice_s = all->processes ? LOOK_EVERY_S : 0.1;

    if (all->taken == 0)
        return FTH_OK;
    for (;;) {
        uint32_t seen = atomic_load(&head->finished);
        FTH_TRY(gather(all));
        int missing = wanted - (head->slot_count - all->taken);
        if (missing <= 0)
            break;
        FTH_TRY(look_after_workers(all));
        FTH_TRY(look_for_hangs(all, fth_clock_seconds()));
        atomic_store(&head->wake_at, seen + (uint32_t)missing);
        fth_futex_sleep(&head->finished, seen, slice_s);
    }

out:
    atomic_store(&head->wake_at, atomic_load(&head->finished) + NOT_WAITING);
    return status;
}

static void fill(hogwild *all, const fth_batch *batch, double learning_rate)
{
    hogwild_head *head = all->head;
    int number = 0;
    while (atomic_load_explicit(&hogwild_get_slot(head, number)->state, memory_order_relaxed) != SLOT_FREE)
        number++;
    hogwild_slot *slot = hogwild_get_slot(head, number);
    hogwild_put_batch(head, number, batch);
    slot->learning_rate = learning_rate;
    slot->update = batch->number + 1; /* every batch is one */
    if (head->worker_state)
        slot->update = (batch->number + head->worker_count) / head->worker_count;
    slot->deaths = 0;
    atomic_store(&slot->busy_since_s, 0);
    atomic_store(&slot->number, batch->number);
    if (all->taken++ == 0)
        all->moved_s = fth_clock_seconds();
    atomic_store_explicit(&slot->state, SLOT_FULL, memory_order_release);
    offer(all);
}

static void give(hogwild *all, fth_step_result *result)
{
    *result = (fth_step_result){.loss = all->samples > 0 ? all->loss / (double)all->samples : 0,
                                .correct = all->correct,
                                .samples = all->samples};
    all->loss = 0;
    all->correct = all->samples = 0;
}

static fth_status hogwild_step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    fth_status status = FTH_OK;
    hogwild *all = state;
    int queue = all->head->slot_count - all->head->worker_count;

    FTH_TRY(gather(all));
    FTH_TRY(look_after_workers(all));
    if (all->taken == all->head->slot_count)
        FTH_TRY(wait_for_free(all, (queue + 1) / 2));
    fill(all, batch, learning_rate);
    give(all, result);

out:
    return status;
}

/* The mean of the workers' vectors becomes the common ones, which a checkpoint has. */
static void average_state(hogwild_head *head)
{
    fth_engine_vectors common = hogwild_get_vectors(head, -1);
    for (int i = 0; head->worker_state && i < head->model.sizes.state_count; i++) {
        float *sum = common.state[i];
        memcpy(sum, hogwild_get_vectors(head, 0).state[i], head->model.sizes.trained * sizeof(float));
        for (int w = 1; w < head->worker_count; w++) {
            const float *own = hogwild_get_vectors(head, w).state[i];
            for (size_t f = 0; f < head->model.sizes.trained; f++)
                sum[f] += own[f];
        }
        float share = 1.0f / (float)head->worker_count;
        for (size_t f = 0; head->worker_count > 1 && f < head->model.sizes.trained; f++)
            sum[f] *= share;
    }
}

static fth_status hogwild_drain(void *state, fth_step_result *result)
{
    fth_status status = FTH_OK;
    hogwild *all = state;

    FTH_TRY(wait_for_free(all, all->head->slot_count));
    average_state(all->head);
    give(all, result);

out:
    return status;
}

static json_t *hogwild_take_event(void *state)
{
    hogwild *all = state;
    json_t *event = json_incref(json_array_get(all->events, 0));
    json_array_remove(all->events, 0);
    return event;
}

static void hogwild_describe(const void *state, json_t *event)
{
    const hogwild *all = state;
    json_object_set_new(event, "workers", json_integer(all->head->worker_count));
    json_object_set_new(event, "worker_kind", json_string(all->processes ? "process" : "thread"));
}

static fth_status hogwild_check(const fth_train_options *options)
{
    if (options->peers.workers > 0 && options->peers.processes > 0)
        return fth_fail(FTH_INVALID, "--workers are threads and --processes are processes: give one of them");
    if (options->optimizer.accumulate > 1)
        return fth_fail(FTH_INVALID, "--strategy hogwild updates after every batch: --accumulate cannot be above 1; "
                                     "use a larger --batch");
    return FTH_OK;
}

/* Processes do not have the data. */
static bool hogwild_makes_images(const fth_train_options *options)
{
    return !hogwild_starts_processes(options);
}

static const char *const hogwild_options[] = {"workers", "processes", "hogwild-momentum", "worker-timeout", NULL};

const fth_strategy fth_strategy_hogwild = {
    .name = "hogwild",
    .summary = "workers that update one model without locks",
    .options = hogwild_options,
    .optimizer = FTH_OPTIMIZER_OF_WORKERS,
    .has_workers = true,
    .validates_alongside = true,
    .takes_checkpoints = true,
    .check = hogwild_check,
    .starts_processes = hogwild_starts_processes,
    .makes_images = hogwild_makes_images,
    .open = hogwild_open,
    .describe = hogwild_describe,
    .step = hogwild_step,
    .drain = hogwild_drain,
    .take_event = hogwild_take_event,
    .close = hogwild_close,
};
