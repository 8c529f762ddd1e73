/* The writer: a background thread that writes snapshots during training.
 *
 * A thread of low priority and two slots, each of which stands for a snapshot's memory that the
 * owner keeps. At most one job is being written and one waits; so memory is bounded and training
 * never waits for a disk or a network.
 *
 *     free --claim--> claimed --submit--> waiting --> writing --> free, and a result to take
 *                                            |
 *                                            +--claim with `replace`--> claimed: a newer snapshot
 *                                                                       takes its place
 *
 * A job's `details` are the owner's. They come back exactly once: with the job that a claim
 * replaced, with the result, or through `drop` if the result is never taken. Every call but
 * fth_writer_free() is safe from any thread. */
#ifndef FTH_CHECKPOINT_WRITER_H
#define FTH_CHECKPOINT_WRITER_H

#include "base/base.h"
#include "store/store.h"

enum {
    FTH_WRITER_SLOTS = 2,
    FTH_WRITER_RESULTS = 16 /* that wait to be taken; the oldest is dropped to make room for another */
};

typedef struct fth_writer fth_writer;

typedef struct fth_writer_job {
    int slot;
    int kind; /* the owner's; a waiting job is replaced only by one whose kind has all its bits */
    int64_t step;
    void *details; /* the owner's */
} fth_writer_job;

typedef struct fth_writer_result {
    fth_writer_job job;
    fth_status status; /* FTH_INTERRUPTED: cancelled */
    char message[768];
    uint64_t size_bytes;
    double seconds;
} fth_writer_result;

typedef struct fth_writer_work {
    void *context;
    /* In the writer's thread, once, before anything else; slot 0 is claimed meanwhile. May be
     * NULL. */
    void (*prepare)(void *context);
    /* In the writer's thread, or in that of fth_writer_run(). Passes `progress` on to stores and
     * sets *size_bytes. */
    fth_status (*write)(void *context, const fth_writer_job *job, const fth_store_progress *progress,
                        uint64_t *size_bytes);
    /* Releases the details of a job that does not come back: its result made room for newer ones or
     * was never taken, or it still waited when the writer was freed. From any thread; must not call
     * the writer. May be NULL. */
    void (*drop)(void *context, const fth_writer_job *job);
} fth_writer_work;

fth_status fth_writer_create(const fth_writer_work *work, fth_writer **writer);
/* Cancels what is being written, drops what waits and results that were not taken, ends the
 * thread. */
void fth_writer_free(fth_writer *writer);

/* A slot to fill, or -1 if both are in use. `kind` is what is to be submitted. Where a job waits
 * that `kind` covers, that job is taken back into *replaced (its slot is the result);
 * replaced->slot is -1 otherwise. */
int fth_writer_claim(fth_writer *writer, int kind, fth_writer_job *replaced);
void fth_writer_submit(fth_writer *writer, const fth_writer_job *job);
void fth_writer_unclaim(fth_writer *writer, int slot); /* filling it failed */
/* Like submit, but writes in the calling thread, with its priority: for a caller that has nothing
 * else to do and little time. Call it when the writer is idle. */
void fth_writer_run(fth_writer *writer, const fth_writer_job *job);

/* The next result in the order of saving; false if there is none. */
bool fth_writer_take_result(fth_writer *writer, fth_writer_result *result);
/* Waits until nothing waits or is being written. FTH_TIMEOUT at the deadline. */
fth_status fth_writer_wait_idle(fth_writer *writer, fth_deadline deadline);
/* Cancels what is being written now, if its upload can still be cancelled. */
void fth_writer_cancel(fth_writer *writer);

/* What it is doing, for decisions against a deadline. */
typedef struct fth_writer_state {
    bool writing, waiting;
    double writing_since_s;
    uint64_t done_bytes, total_bytes; /* of the upload under way */
} fth_writer_state;
fth_writer_state fth_writer_look(fth_writer *writer);

#endif
