/* Functions that workers run in (OpenWhisk, Lambda, ...), and what they used, as "invocation"
 * events of the run's record, which the bill of a training is made of.
 *
 *     registered with "function" --unregistered with "usage"--> an event with what it said
 *                          +-------its lease ran out----------> an event "ended": "lost", with the seconds it was seen
 *
 * The applying thread's own, and before that the thread's that replays the log. */
#ifndef FTH_PARAMETERS_USAGE_H
#define FTH_PARAMETERS_USAGE_H

#include <jansson.h>

#include "parameters/record.h"

typedef struct fth_served_usage fth_served_usage;

/* The record outlives it. */
fth_status fth_served_usage_create(fth_served_record *record, fth_served_usage **usage);
void fth_served_usage_free(fth_served_usage *usage);

/* What is understood of a registration's "function": {"provider", "function", "id", "memory_mb"},
 * to be logged with it; the caller's. NULL where it is none, or was not given. */
json_t *fth_usage_read_function(const json_t *function);

/* `worker` has registered at `since_s` (wall clock) from `function`, which is copied; NULL: it runs
 * in none. */
void fth_served_usage_begin(fth_served_usage *usage, const char *worker, const json_t *function, double since_s);
/* It has unregistered, and says that its function used `said`; NULL: it says nothing. */
void fth_served_usage_end(fth_served_usage *usage, const char *worker, const json_t *said);
/* It was heard of last at `seen_s` (wall clock) and is let go. */
void fth_served_usage_lose(fth_served_usage *usage, const char *worker, double seen_s);
/* In a replay: it left, and whatever it used is in the record. */
void fth_served_usage_forget(fth_served_usage *usage, const char *worker);

/* For checkpoints: the functions there are. */
json_t *fth_served_usage_to_json(const fth_served_usage *usage);
void fth_served_usage_from_json(fth_served_usage *usage, const json_t *json);

#endif
