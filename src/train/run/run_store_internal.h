/* The inside of a run in a store, shared by run_store.c, run_mirror.c and run_models.c. */
#ifndef FTH_TRAIN_RUN_STORE_INTERNAL_H
#define FTH_TRAIN_RUN_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "train/run/run_store.h"

struct fth_run_store {
    fth_store *store;
    bool leased;
    fth_run_group group; /* the lease's; all zero: there are no peers */
    double period_s, waited_s;
    _Atomic(fth_lease *) lease; /* NULL: --lease off, or not taken yet; released and replaced under `mutex` */
    atomic_bool lost;           /* another machine has it */
    int64_t owner, last_owner;  /* set before anything is written */

    struct {
        pthread_mutex_t mutex; /* one upload of the record at a time; guards the members below */
        char *folder;          /* of the local record; NULL: it is not mirrored */
        int64_t part;
        size_t part_begin, stored; /* bytes of events.jsonl before this part, and that are stored */
    } mirror;

    _Atomic int64_t best_step;   /* of the best model that this owner has stored; -1: none */
    _Atomic int64_t best_tidied; /* the same when the others were last removed */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool poked, ending, running;
    pthread_t thread;
};

void fth_run_mirror_stop(fth_run_store *run); /* ends its thread */
void fth_run_mirror_end(fth_run_store *run);  /* and the record is mirrored no longer */

/* For fth_store_progress: asked during a put and right before it takes effect, since a machine that
 * slept in between may have lost the run. */
bool fth_run_store_may_go_on(void *run, uint64_t done_bytes, uint64_t total_bytes);

/* Puts an object whose name does not carry the owner's number, so that a machine that lost the run
 * cannot put its own over it later. FTH_PEER_LOST if it `is_new` and there is one already. */
fth_status fth_run_store_put_as_owner(fth_run_store *run, const char *key, const void *bytes, size_t size_bytes,
                                      bool is_new);

#endif
