/* A request to stop, with a deadline and a reason: from a signal, a preemption notice, a lost
 * lease, a budget.
 *
 * Any thread may request a stop. The training thread checks `asked` between steps and during
 * evaluation, which costs one load. The first request sets the reason; later ones can only shorten
 * the deadline. */
#ifndef FTH_BASE_STOP_H
#define FTH_BASE_STOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"

typedef enum fth_stop_kind {
    FTH_STOP_NONE,
    FTH_STOP_REQUEST,    /* a person or a supervisor: save, no hurry */
    FTH_STOP_PREEMPTION, /* the machine will vanish at the deadline: save in time */
    FTH_STOP_FENCED      /* another machine owns the run: write nothing more to the store */
} fth_stop_kind;

typedef struct fth_stop_reason {
    fth_stop_kind kind;
    fth_deadline deadline; /* far away where there is none */
    double asked_at_s;     /* fth_clock_seconds() */
    char source[32];       /* "signal", "aws", "gcp", "azure", "file", "lease" */
    char message[256];     /* for people: "AWS will terminate this instance at 08:22:00Z" */
} fth_stop_reason;

typedef struct fth_stop {
    atomic_bool asked; /* read without the lock */
    pthread_mutex_t mutex;
    fth_stop_reason reason;
} fth_stop;

#define FTH_STOP_INITIALIZER                                                                                           \
    {                                                                                                                  \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                                                             \
    }

/* `deadline_s`: seconds from now; INFINITY: none. Safe from any thread; not from a signal handler
 * (we have none). */
void fth_stop_ask(fth_stop *stop, fth_stop_kind kind, double deadline_s, const char *source, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* A copy of the reason; its kind is FTH_STOP_NONE if no stop was requested or `stop` is NULL. */
fth_stop_reason fth_stop_get(const fth_stop *stop);

#endif
