/* The inside of the saver, shared by saver.c (saves in the background) and saver_last.c (the last
 * one). */
#ifndef FTH_TRAIN_SAVER_INTERNAL_H
#define FTH_TRAIN_SAVER_INTERNAL_H

#include <pthread.h>

#include "checkpoint/writer.h"
#include "train/save/interval.h"
#include "train/save/saver.h"
#include "train/engine/snapshot.h"

/* Belongs to the training thread, except where a comment says otherwise. */
struct fth_saver {
    fth_saver_options options;
    fth_publisher *publisher; /* is also the writer's */
    size_t state_bytes;       /* of a checkpoint, about; constant */

    fth_interval interval;
    fth_interval_facts facts; /* what it depends on; stall_s and save_s are filled in when they are needed */
    double step_s;            /* as last given */
    double saved_at_s;        /* the last save, or try: the position's elapsed time, */
    int64_t saved_step;       /* its step */
    int64_t saved_changes;    /* and its count of changes; -1: that save failed */
    bool failed;              /* the last save that ended, with this message */
    char message[768];

    fth_snapshot *snapshots[FTH_WRITER_SLOTS]; /* each belongs to the holder of its slot (writer.h) */
    pthread_t closer; /* publishes the last checkpoint, while the training thread watches the clock */
    bool closing;     /* it is to be joined */

    pthread_mutex_t mutex;  /* guards what follows */
    fth_writer *writer;     /* NULL until the first save; set once */
    int64_t restored_step;  /* where this process began */
    uint64_t size_bytes;    /* of the last checkpoint; 0: none yet */
    double save_s, stall_s; /* means of the last few; 0: not known yet */
};

/* Copies the state and hands it to the writer; the `last` save gets a thread of its own and this
 * one's priority. */
fth_status fth_saver_begin_save(fth_saver *saver, bool last);
/* Waits for saves under way and collects them. FTH_IO if the last failed, FTH_TIMEOUT at the
 * deadline. */
fth_status fth_saver_wait(fth_saver *saver, fth_deadline deadline);

#endif
