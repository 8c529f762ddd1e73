/* One process of a function, started on demand and reused while it lives: its contract, files and
 * logs. One thread at a time. */
#ifndef FTH_PLATFORM_INSTANCE_H
#define FTH_PLATFORM_INSTANCE_H

#include <stdatomic.h>

#include "platform/actions.h"

typedef struct fth_instance fth_instance;

typedef struct fth_instance_options {
    const fth_action *action;      /* outlives the instance */
    const char *folder;            /* its own, created here and removed with the instance */
    const char *program;           /* the function's binary, for actions without a command or package */
    bool needs_words;              /* `program` is farthing itself: "worker openwhisk" or "worker lambda" follows */
    const char *api_url, *api_key; /* of the platform's REST APIs; key: UUID:KEY; NULL: none */
    const atomic_bool *stop;       /* set: the function is asked to end, and is "lost" unless it answers soon */
} fth_instance_options;

/* The result of one run; release it. */
typedef struct fth_instance_run {
    const char *kind;          /* of a failure, see activations.h; NULL: success */
    json_t *result;            /* the function's answer, also an error it reported; or NULL */
    char *error;               /* a message */
    char *error_type;          /* Lambda's; or NULL */
    double start_s, end_s;     /* wall clock */
    double duration_s, init_s; /* init_s: of a cold start; NAN: warm */
    double peak_bytes;         /* NAN: unknown */
    char limited_by[16];
} fth_instance_run;
void fth_instance_run_release(fth_instance_run *run);

/* The first run starts the process. */
fth_status fth_instance_create(const fth_instance_options *options, fth_instance **instance);
void fth_instance_free(fth_instance *instance);
/* Whether its process has ended while idle: the instance can only be freed. */
bool fth_instance_has_ended(fth_instance *instance);
/* Runs one activation with `value`, any JSON, and writes its logs to `log_folder`. Failures are in
 * `run`. False: the process has ended or was killed, and the instance can only be freed. */
bool fth_instance_invoke(fth_instance *instance, const char *id, const json_t *value, const char *log_folder,
                         fth_instance_run *run);

#endif
