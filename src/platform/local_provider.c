/* This machine as a provider: a platform in this process, with its REST APIs on a loopback port,
 * through which functions invoke themselves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/platform.h"

static const double LOOK_EVERY_S = 0.2; /* interval for noticing a stop */

typedef struct local_provider {
    fth_provider provider;
    const fth_stop *stop; /* or NULL */
    fth_platform *platform;
    fth_platform_service *service;
} local_provider;

static fth_platform *platform_of(fth_provider *provider)
{
    return ((local_provider *)provider)->platform;
}

static void close_provider(fth_provider *provider)
{
    local_provider *local = (local_provider *)provider;
    if (!local)
        return;
    fth_platform_service_stop(local->service);
    fth_platform_close(local->platform);
    free(local);
}

static fth_status open_provider(const fth_provider_options *options, fth_provider **provider)
{
    fth_status status = FTH_OK;
    local_provider *local = NULL;

    *provider = NULL;
    FTH_TRY(fth_allocate(1, sizeof *local, &local));
    local->provider.kind = &fth_provider_local;
    local->stop = options->stop;
    FTH_TRY(fth_platform_open(&(fth_platform_options){.folder = options->host}, &local->platform));
    FTH_TRY(fth_platform_serve(local->platform, &(fth_platform_service_options){.key = options->key}, &local->service));
    *provider = &local->provider;
    local = NULL;

out:
    if (local)
        close_provider(&local->provider);
    return status;
}

static fth_status deploy(fth_provider *provider, const fth_function_spec *spec)
{
    return fth_platform_deploy(platform_of(provider), spec);
}

static fth_status invoke(fth_provider *provider, const char *name, const json_t *parameters, fth_deadline deadline,
                         fth_invocation_outcome *outcome)
{
    bool throttled = false;
    (void)deadline; /* does not wait */
    *outcome = (fth_invocation_outcome){.duration_s = NAN, .start_s = NAN, .peak_bytes = NAN};
    fth_status status = fth_platform_invoke(platform_of(provider), name, parameters, outcome->id, &throttled);
    outcome->state = throttled ? FTH_INVOCATION_THROTTLED : FTH_INVOCATION_RUNNING;
    return status;
}

static fth_status poll_one(fth_provider *provider, const char *name, const char *id, fth_deadline deadline,
                           fth_invocation_outcome *outcome)
{
    const fth_stop *stop = ((local_provider *)provider)->stop;
    (void)name;
    for (;;) {
        fth_deadline look = fth_deadline_in(LOOK_EVERY_S);
        if (deadline.at_seconds < look.at_seconds)
            look = deadline;
        fth_status status = fth_platform_poll(platform_of(provider), id, look, outcome);
        if (status != FTH_OK || outcome->state != FTH_INVOCATION_RUNNING || fth_deadline_passed(deadline) ||
            (stop && stop->asked))
            return status;
        fth_invocation_outcome_release(outcome);
    }
}

static fth_status status_of(fth_provider *provider, const char *name, json_t **result)
{
    return fth_platform_status(platform_of(provider), name, result);
}

static fth_status logs_of(fth_provider *provider, const char *name, const char *id, char **text)
{
    return fth_platform_logs(platform_of(provider), name, id, text);
}

static fth_status remove_one(fth_provider *provider, const char *name)
{
    return fth_platform_remove(platform_of(provider), name);
}

const fth_provider_kind fth_provider_local = {.name = "local",
                                              .summary = "processes of this machine, under limits",
                                              .ends_with_caller = true,
                                              .open = open_provider,
                                              .close = close_provider,
                                              .deploy = deploy,
                                              .invoke = invoke,
                                              .poll = poll_one,
                                              .status = status_of,
                                              .logs = logs_of,
                                              .remove = remove_one};
