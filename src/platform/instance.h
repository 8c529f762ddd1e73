/* One process of a function, started when there is something to run and used again while it lives:
 * the contract that it speaks, its files, its logs. Used by one thread at a time. */
#ifndef FTH_PLATFORM_INSTANCE_H
#define FTH_PLATFORM_INSTANCE_H

#include <stdatomic.h>

#include "platform/actions.h"

typedef struct fth_instance fth_instance;

typedef struct fth_instance_options {
    const fth_action *action;      /* outlives the instance */
    const char *folder;            /* of its own: made here, and removed with the instance */
    const char *program;           /* the function's binary, for actions without a command or package */
    bool needs_words;              /* `program` is farthing itself: "worker openwhisk" or "worker lambda" follows */
    const char *api_url, *api_key; /* of the platform's REST APIs, UUID:KEY; NULL: there are none */
    const atomic_bool *stop;       /* set: whatever runs is asked to end, and is "lost" if it does not answer soon */
} fth_instance_options;

/* What one run gave; release it. */
typedef struct fth_instance_run {
    const char *kind;          /* of a failure, as activations.h lists them; NULL: it succeeded */
    json_t *result;            /* what the function answered, also an error that it reported; or NULL */
    char *error;               /* for people */
    char *error_type;          /* Lambda's; or NULL */
    double start_s, end_s;     /* wall clock */
    double duration_s, init_s; /* init_s: of a cold start; NAN: it was warm */
    double peak_bytes;         /* NAN: not known */
    char limited_by[16];
} fth_instance_run;
void fth_instance_run_release(fth_instance_run *run);

/* Nothing is started yet: the first run does. */
fth_status fth_instance_create(const fth_instance_options *options, fth_instance **instance);
void fth_instance_free(fth_instance *instance);
/* Its process was killed or ended while nothing ran: the instance can only be freed. */
bool fth_instance_has_ended(fth_instance *instance);
/* Runs one activation with `value`, any JSON, and puts its logs into `log_folder`. Whatever goes
 * wrong is in `run`. False: the process has ended, or had to be, and the instance can only be
 * freed. */
bool fth_instance_invoke(fth_instance *instance, const char *id, const json_t *value, const char *log_folder,
                         fth_instance_run *run);

#endif
