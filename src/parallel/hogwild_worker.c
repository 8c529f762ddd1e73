/* What a worker does: takes the oldest batch that waits, computes gradients with the weights as
 * they are at that moment, and updates them in place. A thread of the trainer's process and a
 * process of its own do the same. */
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/race.h"
#include "parallel/hogwild.h"
#include "train/model/run_network.h"

#define SLEEP_S 1.0

static void leave_message(hogwild_head *head, int worker)
{
    hogwild_worker *own = hogwild_get_worker(head, worker);
    snprintf(own->message, sizeof own->message, "%s", fth_error_message());
}

static void fail_worker(hogwild_head *head, int worker, fth_status status)
{
    hogwild_worker *own = hogwild_get_worker(head, worker);
    leave_message(head, worker);
    own->status = status;
    atomic_store(&own->failed, true);
    atomic_fetch_add(&head->finished, 1);
    fth_futex_wake(&head->finished, 1);
}

/* In the order of their numbers: one worker does exactly what training without workers does. */
static int claim_oldest(hogwild_head *head, int worker)
{
    for (;;) {
        int oldest = -1;
        int64_t lowest = INT64_MAX;
        for (int s = 0; s < head->slot_count; s++) {
            hogwild_slot *slot = hogwild_get_slot(head, s);
            if (atomic_load_explicit(&slot->state, memory_order_acquire) != SLOT_FULL)
                continue;
            int64_t number = atomic_load_explicit(&slot->number, memory_order_relaxed);
            if (number < lowest) {
                lowest = number;
                oldest = s;
            }
        }
        if (oldest < 0)
            return -1;
        uint32_t expected = SLOT_FULL;
        if (atomic_compare_exchange_strong(&hogwild_get_slot(head, oldest)->state, &expected,
                                           SLOT_BUSY | (uint32_t)worker << 8))
            return oldest;
    }
}

static fth_status compute(hogwild_head *head, fth_engine *engine, int number)
{
    hogwild_slot *slot = hogwild_get_slot(head, number);
    const fth_batch batch = hogwild_get_batch(head, number);
    fth_group group = {.first = true, .last = true, .share = 1, .update = slot->update};
    FTH_RACE_BEGIN(hogwild_weights);
    fth_status status = fth_engine_compute(engine, &batch, &group, &slot->result);
    if (status == FTH_OK)
        status = fth_engine_update(engine, slot->learning_rate, slot->update);
    if (status == FTH_OK)
        status = fth_engine_check_update(engine);
    FTH_RACE_END(hogwild_weights);
    return status;
}

static void finish(hogwild_head *head, int worker, hogwild_slot *slot)
{
    bool failed = slot->status != FTH_OK; /* read before the slot is given back */
    atomic_store(&slot->state, SLOT_DONE | (uint32_t)worker << 8);
    uint32_t finished = atomic_fetch_add(&head->finished, 1) + 1;
    if ((int32_t)(finished - atomic_load(&head->wake_at)) >= 0 || failed)
        fth_futex_wake(&head->finished, 1);
}

static void loop(hogwild_head *head, int worker, fth_engine *engine, pid_t parent)
{
    while (!atomic_load(&head->stop) && (parent == 0 || getppid() == parent)) {
        uint32_t seen = atomic_load(&head->work);
        int number = claim_oldest(head, worker);
        if (number < 0) {
            atomic_fetch_add(&head->idle, 1);
            if (!atomic_load(&head->stop))
                fth_futex_sleep(&head->work, seen, SLEEP_S);
            atomic_fetch_sub(&head->idle, 1);
            continue;
        }
        hogwild_slot *slot = hogwild_get_slot(head, number);
        atomic_store_explicit(&slot->busy_since_s, fth_clock_seconds(), memory_order_relaxed);
        slot->status = compute(head, engine, number);
        if (slot->status != FTH_OK)
            leave_message(head, worker);
        finish(head, worker, slot);
    }
}

/* Workers use every core there is, and live on what the loader and the trainer's thread bring. The
 * usual scheduler lets those in at once, as they mostly sleep; under a real-time policy (chrt) they
 * would wait for the end of a worker's turn, 100 ms, so workers go one step down. Measured so, 2
 * workers on 2 cores, cifar-cnn: 34,600 samples/s before. */
static void give_way(void)
{
    struct sched_param parameters;
    int policy = 0;
    if (pthread_getschedparam(pthread_self(), &policy, &parameters) != 0 ||
        (policy != SCHED_RR && policy != SCHED_FIFO))
        return;
    if (parameters.sched_priority > sched_get_priority_min(policy)) {
        parameters.sched_priority--;
        pthread_setschedparam(pthread_self(), policy, &parameters);
    }
}

void hogwild_work(hogwild_head *head, int worker, const fth_train_options *options, const fth_dataset *dataset,
                  pid_t parent)
{
    fth_status status = FTH_OK;
    fth_device *device = NULL;
    fth_engine *engine = NULL;
    fth_engine_vectors vectors = hogwild_get_vectors(head, worker);
    fth_engine_options engine_options = {.train = options,
                                         .channels = head->model.channels,
                                         .height = head->model.height,
                                         .width = head->model.width,
                                         .longest = head->model.longest,
                                         .task = head->model.task,
                                         .classes = head->model.classes,
                                         .training_samples = head->model.training_samples,
                                         .precision_before = head->model.precision,
                                         .dataset = dataset,
                                         .shared = &vectors};

    give_way();
    FTH_TRY(fth_device_open(head->model.backend, &(fth_device_options){.threads = 1}, &device));
    FTH_TRY(fth_engine_create(&engine_options, device, &engine));
    FTH_TRY(fth_engine_prepare(engine, head->model.batch, FTH_PLAN_TRAIN));
    loop(head, worker, engine, parent);

out:
    if (status != FTH_OK)
        fail_worker(head, worker, status);
    fth_engine_free(engine);
    fth_device_close(device);
}

/* ---- as a process ---- */

static fth_status read_options(const hogwild_head *head, fth_train_options *options)
{
    fth_status status = FTH_OK;
    json_error_t error;
    json_t *json = json_loads((const char *)head + head->layout.options_at, 0, &error);

    FTH_REQUIRE(json, FTH_CORRUPT, "the options that workers share: %s", error.text);
    FTH_TRY(fth_options_set_defaults(&fth_train_option_table, options));
    FTH_TRY(fth_options_from_json(&fth_train_option_table, options, json, "the options that workers share"));
    if (head->layout.network_bytes > 0)
        FTH_TRY(fth_run_network_take(options, (const char *)head + head->layout.network_at, "the trainer"));

out:
    json_decref(json);
    return status;
}

fth_status fth_hogwild_worker_run(int descriptor, int worker)
{
    fth_status status = FTH_OK;
    hogwild_head *head = NULL;
    fth_train_options options = {0};

    FTH_TRY(hogwild_region_open(descriptor, &head));
    FTH_REQUIRE(worker >= 0 && worker < head->worker_count, FTH_INVALID, "there is no worker %d of %d", worker,
                head->worker_count);
    /* Nobody outlives the trainer; the second line is for one that was gone before the first took
     * effect. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    FTH_REQUIRE(getppid() == head->parent, FTH_PEER_LOST, "the trainer, process %d, is gone", (int)head->parent);
    FTH_TRY(read_options(head, &options));
    hogwild_work(head, worker, &options, NULL, head->parent);

out:
    fth_options_release(&fth_train_option_table, &options);
    hogwild_region_free(head);
    return status;
}
