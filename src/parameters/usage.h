/* Functions that workers run in (OpenWhisk, Lambda, ...), and what they used, as "invocation"
 * events of the run's record, from which the bill of a training is made.
 *
 *     registered with "function" --unregistered with "usage"--> an event with that usage
 *                          +-------its lease ran out----------> "ended": "lost", seconds until then
 *
 * For the applying thread, and before it for the thread that replays the log. */
#ifndef FTH_PARAMETERS_USAGE_H
#define FTH_PARAMETERS_USAGE_H

#include <jansson.h>

#include "parameters/record.h"

typedef struct fth_served_usage fth_served_usage;

/* The record outlives it. */
fth_status fth_served_usage_create(fth_served_record *record, fth_served_usage **usage);
void fth_served_usage_free(fth_served_usage *usage);

/* The known members of a registration's "function", to be logged with it: {"provider", "function",
 * "id", "memory_mb"}. The caller's; NULL if it is missing or not an object. */
json_t *fth_usage_read_function(const json_t *function);

/* `worker` registered at `since_s` (wall clock) from `function`, which is copied; NULL: from
 * none. */
void fth_served_usage_begin(fth_served_usage *usage, const char *worker, const json_t *function, double since_s);
/* It unregistered with the usage `reported`, or NULL. */
void fth_served_usage_end(fth_served_usage *usage, const char *worker, const json_t *reported);
/* Its lease ran out; it was last heard of at `seen_s` (wall clock). */
void fth_served_usage_lose(fth_served_usage *usage, const char *worker, double seen_s);
/* It left during a replay: its event is already in the record. */
void fth_served_usage_forget(fth_served_usage *usage, const char *worker);

/* For checkpoints: the functions that run. */
json_t *fth_served_usage_to_json(const fth_served_usage *usage);
void fth_served_usage_from_json(fth_served_usage *usage, const json_t *json);

#endif
