/* Whether the server is well: a failure that ends it, and gradients that were refused for their
 * numbers. From any thread. */
#ifndef FTH_PARAMETERS_HEALTH_H
#define FTH_PARAMETERS_HEALTH_H

#include <jansson.h>

#include "parameters/gradient.h"
#include "parameters/position.h"
#include "parameters/record.h"
#include "parameters/workers.h"

typedef struct fth_health fth_health;

fth_status fth_health_create(const fth_served_position *position, fth_served_record *record, fth_workers *workers,
                             fth_health **health);
void fth_health_free(fth_health *health);

/* The server refuses all requests from now on, for the reason in the calling thread's error
 * message. The first failure is kept. */
void fth_health_fail(fth_health *health, fth_status status);
/* The failure, with its message as the calling thread's; FTH_OK without one. */
fth_status fth_health_get_failure(fth_health *health);
/* The same, after waiting at most `seconds` for one. */
fth_status fth_health_wait_for_failure(fth_health *health, double seconds);
void fth_health_set_stopping(fth_health *health);

/* Counts a gradient that was refused for its numbers; the first, tenth, hundredth ... of a worker
 * is a warning. True if `access` signed it as the worker's own, so that a step may be complete
 * without it. */
bool fth_health_note_unfit(fth_health *health, const fth_gradient *gradient, const char *access, const char *why);

/* The answer to /healthz, and its code. */
json_t *fth_health_describe(fth_health *health, int *code);

#endif
