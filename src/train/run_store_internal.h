/* The inside of a run in a store, shared by run_store.c and run_mirror.c. */
#ifndef FTH_TRAIN_RUN_STORE_INTERNAL_H
#define FTH_TRAIN_RUN_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "train/run_store.h"

enum { FTH_MIRRORED_FILES = 4 };

/* A file that was put, to know whether it changed. */
typedef struct mirrored_file {
    char key[64];
    int64_t size_bytes;
    double modified_s;
} mirrored_file;

struct fth_run_store {
    fth_store *store;
    bool leased;
    double period_s;
    fth_lease *lease; /* NULL: --lease off, or not taken yet */
    atomic_bool lost; /* another machine has it */
    int64_t owner;
    char *folder; /* of the local record; NULL before begin */

    pthread_mutex_t uploading; /* one upload of the record at a time; guards the next four */
    int64_t part;
    size_t part_begin, stored; /* bytes of events.jsonl before this part, and that are stored */
    mirrored_file files[FTH_MIRRORED_FILES];

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool poked, ending, running;
    pthread_t thread;
};

void fth_run_mirror_stop(fth_run_store *run);

#endif
