/* What the files of src/platform share of a platform. */
#ifndef FTH_PLATFORM_PLATFORM_INTERNAL_H
#define FTH_PLATFORM_PLATFORM_INTERNAL_H

#include "platform/actions.h"
#include "platform/activations.h"
#include "platform/platform.h"

typedef struct fth_platform_call {
    const char *name;
    const json_t *value; /* any JSON; an OpenWhisk object gets the function's defaults */
    /* Called from a thread of the platform when the activation has ended and its record is written;
     * must not block. May be NULL. */
    void (*ended)(void *context, const char *id);
    void *context;
} fth_platform_call;

fth_status fth_platform_begin(fth_platform *platform, const fth_platform_call *call, char id[FTH_ACTIVATION_ID],
                              bool *throttled);
/* Sets the address and key of the REST APIs for functions. */
fth_status fth_platform_set_api(fth_platform *platform, const char *url, const char *key);

/* ---- reports.c: from the folder alone ---- */

/* Translates a record into a provider's outcome. */
void fth_activation_fill_outcome(const char *folder, const json_t *record, fth_invocation_outcome *outcome);
/* As fth_platform_status() and fth_platform_logs(). */
fth_status fth_describe_functions(const char *folder, const char *name, json_t **result);
fth_status fth_function_logs(const char *folder, const char *name, const char *id, char **text);

#endif
