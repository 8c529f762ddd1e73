/* Platforms that run functions, as a table: OpenWhisk and AWS Lambda through their REST APIs
 * (openwhisk_api.c, lambda_api.c), and this machine (platform/local_provider.c). Used by `farthing
 * functions`, and by functions that invoke themselves. */
#ifndef FTH_PROVIDERS_PROVIDER_H
#define FTH_PROVIDERS_PROVIDER_H

#include <jansson.h>

#include "base/base.h"

/* Lambda's name for the architecture of this program and the functions it packs. */
#if defined(__aarch64__)
#define FTH_LAMBDA_ARCHITECTURE "arm64"
#else
#define FTH_LAMBDA_ARCHITECTURE "x86_64"
#endif

/* The line that ends an OpenWhisk action's logs of an activation, on both output streams. */
#define FTH_OPENWHISK_END_OF_LOGS "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX\n"

typedef struct fth_provider_kind fth_provider_kind;

typedef struct fth_provider_options {
    const char *host; /* OpenWhisk's API host or URL; Lambda's endpoint; local: folder of its state. NULL: from the
                       * environment and the usual files (~/.wskprops; AWS's) */
    const char *key;  /* OpenWhisk's UUID:KEY; NULL: from the environment or ~/.wskprops. Lambda uses AWS credentials */
    const char *region;   /* Lambda; NULL: AWS's usual ways */
    const char *ca_file;  /* NULL: the system's certificates */
    bool insecure;        /* OpenWhisk: accept any certificate, as `wsk -i` */
    bool detached;        /* do not wait for invocations (Lambda: invocation type Event); see invoke() below */
    const fth_stop *stop; /* ends all waiting; may be NULL */
} fth_provider_options;

typedef struct fth_provider {
    const fth_provider_kind *kind;
} fth_provider;

/* A function to create or replace. */
typedef struct fth_function_spec {
    const char *name;
    const char *image;          /* OpenWhisk: "user/image:tag"; local: NULL: the program's own small binary */
    const char *zip;            /* Lambda, local: file; Lambda: or s3://bucket/key, where it is already; NULL: none */
    const char *role;           /* Lambda: ARN */
    const char *contract;       /* local: "openwhisk" or "lambda" */
    const char *const *command; /* local: another program instead, NULL-terminated; NULL: none */
    int memory_mb;              /* 256 */
    double timeout_s;           /* 300 */
    const json_t *environment;  /* object of strings; may hold secrets. Or NULL */
    const json_t *parameters;   /* OpenWhisk's default parameters; or NULL */
    bool invokes_itself;        /* OpenWhisk: gets the name space's key (annotation provide-api-key) */
} fth_function_spec;

typedef enum fth_invocation_state {
    FTH_INVOCATION_RUNNING,
    FTH_INVOCATION_DONE,      /* `result` is its answer */
    FTH_INVOCATION_FAILED,    /* reported an error, was killed, ran out of time or memory: `error` */
    FTH_INVOCATION_THROTTLED, /* not accepted now; retry later */
    FTH_INVOCATION_UNKNOWN    /* no answer came; it may be running */
} fth_invocation_state;

/* Zeroed, or filled by a provider; release it. */
typedef struct fth_invocation_outcome {
    fth_invocation_state state;
    char id[80];
    json_t *result;       /* object; or NULL */
    char *error;          /* a message; or NULL */
    char *logs;           /* if the platform returns them at once; or NULL */
    double duration_s;    /* as measured or billed by the platform; NAN: not given */
    double start_s;       /* of a cold start (init); NAN: not given */
    double peak_bytes;    /* NAN: not given */
    double retry_after_s; /* if throttled: how long to wait; 0: not given */
} fth_invocation_outcome;
/* Sets RUNNING, and all else to unknown. */
void fth_invocation_outcome_init(fth_invocation_outcome *outcome);
/* Sets UNKNOWN, for the reason in the calling thread's error message. */
void fth_invocation_outcome_set_unknown(fth_invocation_outcome *outcome);
void fth_invocation_outcome_release(fth_invocation_outcome *outcome);

struct fth_provider_kind {
    const char *name, *summary;
    bool ends_with_caller; /* close() ends running functions */
    fth_status (*open)(const fth_provider_options *options, fth_provider **provider);
    void (*close)(fth_provider *provider);
    fth_status (*deploy)(fth_provider *provider, const fth_function_spec *spec);
    /* Starts an invocation; any thread. OpenWhisk answers at once: RUNNING with an id to poll().
     * Lambda cannot be polled, so its invoke() waits for the end, at most until `deadline`, unless
     * the provider is `detached`: the outcome then stays RUNNING. Throttling and failures of the
     * function are outcomes; UNKNOWN means that the answer was lost and the function may be
     * running. FTH_INVALID: refused permanently (no such function, wrong key); other failures: not
     * started. */
    fth_status (*invoke)(fth_provider *provider, const char *name, const json_t *parameters, fth_deadline deadline,
                         fth_invocation_outcome *outcome);
    /* Waits for the end of a RUNNING invocation, at most until `deadline`; then RUNNING, or UNKNOWN
     * if the platform does not answer. Any thread. FTH_UNSUPPORTED: cannot be polled (Lambda). */
    fth_status (*poll)(fth_provider *provider, const char *name, const char *id, fth_deadline deadline,
                       fth_invocation_outcome *outcome);
    /* Describes all functions (`name` NULL) or one: [{"name", "memory_mb", "timeout_s", "image" or
     * "code_bytes", "updated", "state"}], as far as known, never values of variables or parameters.
     * One function also has its last invocations, if the platform keeps them: "invocations":
     * [{"id", "state", "started", "duration_s"}], the newest first. */
    fth_status (*status)(fth_provider *provider, const char *name, json_t **result);
    fth_status (*logs)(fth_provider *provider, const char *name, const char *id, char **text); /* id NULL: the last */
    fth_status (*remove)(fth_provider *provider, const char *name);
};

extern const fth_provider_kind fth_provider_openwhisk, fth_provider_lambda;

#endif
