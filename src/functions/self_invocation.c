/* See self_invocation.h. OpenWhisk passes API host, key and name with each activation; Lambda has
 * name and credentials in the process's environment. */
#include "functions/self_invocation.h"

#include <stdio.h>
#include <string.h>

#include "http/http.h"
#include "providers/provider.h"

typedef struct self {
    const fth_provider_kind *kind;
    const char *name;
    fth_provider_options options;
} self;

static fth_status require_variable(const fth_invocation_event *event, const char *name, const char **value)
{
    *value = fth_invocation_variable(event, name);
    if (*value && **value)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "\"continue\": \"self\" needs the platform's %s, which is not set here", name);
}

/* "package/name" of "/guest/package/name"; the key implies the name space. */
static const char *without_namespace(const char *name)
{
    const char *slash = *name == '/' ? strchr(name + 1, '/') : NULL;
    return slash ? slash + 1 : name;
}

static fth_status find_self(const fth_invocation_event *event, self *found)
{
    fth_status status = FTH_OK;

    *found = (self){.options = {.detached = true, .stop = event->stop}};
    if (strcmp(event->platform, "lambda") == 0) {
        found->kind = &fth_provider_lambda;
        FTH_TRY(require_variable(event, "AWS_LAMBDA_FUNCTION_NAME", &found->name));
        found->options.host = fth_invocation_variable(event, "AWS_ENDPOINT_URL_LAMBDA");
        found->options.region = fth_invocation_variable(event, "AWS_REGION");
        goto out;
    }
    found->kind = &fth_provider_openwhisk;
    FTH_TRY(require_variable(event, "__OW_API_HOST", &found->options.host));
    FTH_TRY(require_variable(event, "__OW_API_KEY", &found->options.key));
    FTH_TRY(require_variable(event, "__OW_ACTION_NAME", &found->name));
    found->name = without_namespace(found->name);

out:
    return status;
}

fth_status fth_self_invocation_check(const fth_invocation_event *event)
{
    self found;
    return find_self(event, &found);
}

fth_status fth_self_invocation_start(const fth_invocation_event *event, const json_t *parameters, fth_deadline deadline,
                                     char id[FTH_SELF_ID_SIZE])
{
    fth_status status = FTH_OK;
    fth_provider *provider = NULL;
    fth_invocation_outcome outcome = {0};
    fth_backoff backoff = {0};
    double wait_s = 0;
    self found;

    FTH_TRY(find_self(event, &found));
    FTH_TRY(found.kind->open(&found.options, &provider));
    do {
        fth_invocation_outcome_release(&outcome);
        FTH_TRY(found.kind->invoke(provider, found.name, parameters, deadline, &outcome));
        wait_s = outcome.retry_after_s;
    } while (outcome.state == FTH_INVOCATION_THROTTLED && fth_backoff_wait(&backoff, wait_s, deadline));
    FTH_REQUIRE(outcome.state == FTH_INVOCATION_RUNNING || outcome.state == FTH_INVOCATION_DONE, FTH_IO,
                "the function could not invoke itself as %s: %s", found.name,
                outcome.error                               ? outcome.error
                : outcome.state == FTH_INVOCATION_THROTTLED ? "too many invocations are running"
                                                            : "the platform did not answer");
    snprintf(id, FTH_SELF_ID_SIZE, "%s", outcome.id);

out:
    fth_invocation_outcome_release(&outcome);
    if (provider)
        found.kind->close(provider);
    return status;
}
