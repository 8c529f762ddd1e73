/* Rehearsals: a job runs on this machine under simulated interruptions, and the cost of each is
 * reported.
 *
 * plan.c         when which kind of interruption comes: from a trace, or drawn from a seed
 * simulation.c   metadata services of AWS, Google and Azure on loopback
 * machine.c      one "machine": a child process, its events, its end
 * rehearse.c     machine after machine until the job ends; the account
 * result.c       the account as JSON
 *
 *     spawn -> start-up -> training ----job ends----> exit 0                  the rehearsal is over
 *                             |
 *                             +--notice--> saving --> exit 75 within the notice  \
 *                             |               +-----> outlives it: kill -9        }  next machine
 *                             +--kill -9-------------------------------------->  / */
#ifndef FTH_REHEARSE_REHEARSE_H
#define FTH_REHEARSE_REHEARSE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/base.h"
#include "store/store.h"

/* ---- what happens to machines ---- */

typedef enum fth_interruption_kind {
    FTH_INTERRUPTION_KILL9,
    FTH_INTERRUPTION_SIGNAL, /* SIGTERM, then SIGKILL */
    FTH_INTERRUPTION_FILE,
    FTH_INTERRUPTION_AWS,
    FTH_INTERRUPTION_GCP,
    FTH_INTERRUPTION_AZURE,
    FTH_INTERRUPTION_KINDS
} fth_interruption_kind;

extern const char *const fth_interruption_names[FTH_INTERRUPTION_KINDS + 1]; /* ends with NULL */

typedef struct fth_interruption {
    fth_interruption_kind kind;
    double at_s;        /* after training began on this machine; after the start of the process if `from_spawn` */
    int64_t after_step; /* instead, if above 0: once this step is done */
    bool from_spawn;
    double notice_s; /* 0 for kill -9 */
    double gap_s;    /* until there is another machine */
} fth_interruption;

typedef struct fth_interruption_plan {
    fth_interruption *trace; /* if there is one, else: */
    size_t trace_count;
    double every_s, kill9_s; /* mean time to a notice, to a kill -9; 0: none come */
    int cloud;               /* kind of the notices; FTH_INTERRUPTION_KINDS: mixed, kill -9 among them */
    double notice_s;         /* 0: what that kind usually gives */
    double gap_s;
    uint64_t seed;
} fth_interruption_plan;

/* Reads a trace: a list of {at: 12s | after_step: 40, kind: aws, notice: 120s, gap: 5s}. */
fth_status fth_interruption_plan_read(const char *path, fth_interruption_plan *plan);
void fth_interruption_plan_release(fth_interruption_plan *plan);
/* The interruption of machine `number` (0 for the first); false: none. */
bool fth_interruption_plan_get(const fth_interruption_plan *plan, int64_t number, fth_interruption *interruption);

/* ---- rehearsing ---- */

/* A file that `farthing train` maps if FARTHING_PROGRESS_FILE names one, and keeps up to date, so
 * that its progress is known after a kill -9. */
typedef struct fth_progress_board {
    volatile int64_t step;
    volatile int64_t evaluating;
} fth_progress_board;

typedef struct fth_rehearsal_options {
    const char *program;          /* this program's file */
    const char *const *arguments; /* of the job, from "train" on; ends with NULL */
    const char *checkpoints;      /* the job's --checkpoints; "": none, all machines share one runs folder */
    fth_store_options store;      /* how to get at those */
    const char *folder;           /* where everything goes: made if missing, must be empty */
    const fth_interruption_plan *plan;
    int64_t interruptions;     /* then the job is left alone; 0: as many as come */
    bool verify;               /* also runs the job uninterrupted and compares the weights */
    bool keep;                 /* leaves what it stored under `checkpoints` there */
    double price_usd_per_hour; /* 0: what the job's record says, if anything */
    double limit_s;            /* gives up after this long; 0: a day */
    fth_stop *stop;            /* asked: ends the machine, clears the store, FTH_INTERRUPTED; may be NULL */
    /* Called with a line for each event; may be NULL. */
    void (*tell)(void *context, const char *line);
    void *tell_context;
} fth_rehearsal_options;

/* The outcome of one interruption. */
typedef struct fth_interruption_account {
    fth_interruption planned;
    const char *moment;   /* "start-up", "training", "evaluation" */
    double machine_s;     /* how long that machine lived */
    double notice_used_s; /* from the notice to the exit; NAN for kill -9 */
    bool outlived;        /* was killed at the end of its notice */
    int64_t step;         /* done when it ended */
    int64_t saved_step;   /* of the newest checkpoint that was reported complete; 0: none */
    int64_t resumed_step; /* where the next machine went on; -1: none did */
    int64_t steps_lost;
    double price_usd_per_hour;         /* NAN: unknown */
    double seconds_lost, dollars_lost; /* wasted machine time, including the next machine's start-up; NAN: unknown */
} fth_interruption_account;

typedef struct fth_rehearsal {
    fth_interruption_account *accounts;
    size_t count;
    int64_t machines, steps;           /* steps of the finished job */
    double seconds;                    /* machine time in all */
    double uninterrupted_s;            /* NAN: not verified */
    char *model, *uninterrupted_model; /* files with the final weights; the second NULL if not verified */
    bool equal;                        /* byte for byte; false if not verified */
    int64_t lost_before_checkpoint;    /* resumes from before a complete checkpoint: must be 0 */
    int64_t torn;                      /* checkpoints that a resume had to skip: must be 0 */
} fth_rehearsal;

/* Runs a rehearsal. If the job itself fails, so does this, with the results so far in
 * `rehearsal`. */
fth_status fth_rehearse(const fth_rehearsal_options *options, fth_rehearsal *rehearsal);
void fth_rehearsal_release(fth_rehearsal *rehearsal);
json_t *fth_rehearsal_to_json(const fth_rehearsal *rehearsal);

#endif
