/* Hogwild! (Niu, Recht, Ré, Wright 2011): workers that train one model in place, without locks.
 *
 * Workers are threads of this process, or processes (--processes) for crash isolation; either way
 * they are equal: each has a device of one OpenMP thread, an engine with plans and gradients of its
 * own, and parameters, batch-norm buffers and optimizer state in one region of memory, which
 * processes map. Each reads weights that others are writing, computes gradients, and adds its
 * update: plain stores of aligned f32, so that a reader sees the old or the new value of a number,
 * never a mixture, and an update that another overwrites is a small loss. These races are the
 * method.
 *
 *     hogwild.c           the strategy: hands batches out, gathers results, waits for workers
 *     hogwild_region.c    the region: where everything lies
 *     hogwild_batch.c     batches in it
 *     hogwild_worker.c    what a worker does
 *     hogwild_process.c   workers that are processes: starting them, noticing that one is gone
 *
 * Batches travel in slots of the region. A slot's state is one atomic word, so a process that is
 * killed at any point holds no lock and leaves a slot that names it:
 *
 *     free -> full (by the trainer's thread) -> busy (a worker, by compare-and-swap) -> done ->
 *         free (results gathered)
 *               ^                                 |
 *               '------- its worker is gone ------' */
#ifndef FTH_PARALLEL_HOGWILD_H
#define FTH_PARALLEL_HOGWILD_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/child.h"
#include "base/futex.h"
#include "parallel/parallel_internal.h"
#include "train/engine/engine.h"

enum { FTH_MAX_WORKERS = 256, HOGWILD_LINE = 64 };

typedef enum hogwild_slot_state { SLOT_FREE, SLOT_FULL, SLOT_BUSY, SLOT_DONE } hogwild_slot_state;

/* state: the slot's state in the low 8 bits, its worker above them while it is busy or done. */
typedef struct hogwild_slot {
    _Alignas(HOGWILD_LINE) _Atomic uint32_t state;
    _Atomic int64_t number; /* of the batch */
    int64_t count, epoch;
    bool recipes;   /* images are to be made */
    int64_t tokens; /* of text */
    double learning_rate;
    int64_t update;
    int deaths; /* workers that were lost with this batch */
    _Atomic double busy_since_s;

    fth_status status; /* of a slot that is done */
    fth_step_result result;
} hogwild_slot;

/* Written by a worker that cannot go on for a reason other than a batch; read once `failed` is
 * set. */
typedef struct hogwild_worker {
    _Alignas(HOGWILD_LINE) _Atomic bool failed;
    fth_status status;
    char message[1024]; /* also of a slot's status */
} hogwild_worker;

/* What a batch takes in a slot: hogwild_batch.c. */
typedef struct hogwild_batch_sizes {
    size_t input_bytes, recipe_bytes, answer_bytes;
} hogwild_batch_sizes;

/* Where the rest of the region lies: offsets from its head, as each process maps it somewhere
 * else. */
typedef struct hogwild_layout {
    size_t size_bytes; /* of the whole region */
    size_t workers_at, slots_at, inputs_at, recipes_at, answers_at, parameters_at, buffers_at, state_at, options_at;
    hogwild_batch_sizes batch; /* of a slot */
    size_t state_bytes;        /* of one vector of the optimizer */
    size_t options_bytes;      /* JSON, for processes */
    size_t network_at;         /* the text of an exported network, for processes; */
    size_t network_bytes;      /* 0: there is none */
} hogwild_layout;

/* What a worker's engine is made for. */
typedef struct hogwild_model {
    int channels, height, width, longest, classes; /* as fth_engine_options has them */
    fth_task task;
    int64_t training_samples, batch;
    fth_engine_sizes sizes;
    char backend[64], precision[16];
} hogwild_model;

/* The head of the region. All but the atomics is set before the first worker starts. */
typedef struct hogwild_head {
    uint64_t magic;
    pid_t parent;
    int worker_count, slot_count;
    bool worker_state; /* each worker has the optimizer's vectors of its own */
    hogwild_model model;
    hogwild_layout layout;

    _Alignas(HOGWILD_LINE) _Atomic uint32_t work; /* futex: changes when there is something to do, or to stop */
    _Atomic uint32_t idle;                        /* workers that wait for it */
    _Atomic bool stop;
    _Alignas(HOGWILD_LINE) _Atomic uint32_t finished; /* futex: batches that workers are done with */
    _Atomic uint32_t wake_at;                         /* the trainer is to be woken at that many */
} hogwild_head;

/* ---- the region ---- */

typedef struct hogwild_plan {
    int workers;
    bool processes, worker_state;
    const char *options;      /* JSON */
    const char *network;      /* text of an exported network; or NULL */
    const fth_engine *engine; /* the one that holds the weights */
} hogwild_plan;

/* Memory of this process, or, for processes, a memfd (*descriptor; -1 otherwise). */
fth_status hogwild_region_create(const hogwild_plan *plan, hogwild_head **head, int *descriptor);
/* What another process made. */
fth_status hogwild_region_open(int descriptor, hogwild_head **head);
void hogwild_region_free(hogwild_head *head); /* NULL is fine */

hogwild_worker *hogwild_get_worker(hogwild_head *head, int worker);
hogwild_slot *hogwild_get_slot(hogwild_head *head, int slot);
hogwild_batch_sizes hogwild_measure_batch(const hogwild_model *model);
/* Copies a batch into a slot; and the batch in a slot, lent. */
void hogwild_put_batch(hogwild_head *head, int slot, const fth_batch *batch);
fth_batch hogwild_get_batch(hogwild_head *head, int slot);
/* The shared vectors; `worker` says whose state, where workers have their own; -1: the common
 * one. */
fth_engine_vectors hogwild_get_vectors(hogwild_head *head, int worker);

static inline hogwild_slot_state hogwild_state_of(uint32_t word)
{
    return (hogwild_slot_state)(word & 255);
}

static inline int hogwild_worker_of(uint32_t word)
{
    return (int)(word >> 8);
}

/* ---- workers ---- */

/* Works until head->stop, or until `parent`, if not 0, is no longer this process's parent. Failures
 * are left in the region. `dataset` may be NULL where batches come with their images. */
void hogwild_work(hogwild_head *head, int worker, const fth_train_options *options, const fth_dataset *dataset,
                  pid_t parent);

/* Starts worker number `worker` as a process that maps the region behind `descriptor`. */
fth_status hogwild_process_start(int descriptor, int worker, pid_t *process);
/* True if it is gone; `reason` says how it ended. Does not wait. */
bool hogwild_process_is_gone(pid_t process, char *reason, size_t size);

#endif
