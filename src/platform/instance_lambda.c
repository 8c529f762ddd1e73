/* Lambda's contract: the process polls a Runtime API of its own for events (runtime_api.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/files.h"
#include "platform/instance_internal.h"

#define REGION "us-east-1"

static fth_status prepare(fth_instance *instance)
{
    return instance->api ? FTH_OK : fth_runtime_api_start(&instance->api);
}

static fth_status add_credentials(const fth_instance *instance, fth_words *variables)
{
    fth_status status = FTH_OK;
    const char *key = instance->options.api_key, *colon = key ? strchr(key, ':') : NULL;
    char *first = NULL;

    if (!instance->options.api_url || !colon)
        return FTH_OK;
    first = strndup(key, (size_t)(colon - key));
    FTH_REQUIRE(first, FTH_NO_MEMORY, "no memory for variables");
    FTH_TRY(fth_variable_add(variables, "AWS_ENDPOINT_URL_LAMBDA", instance->options.api_url));
    FTH_TRY(fth_variable_add(variables, "AWS_ACCESS_KEY_ID", first));
    FTH_TRY(fth_variable_add(variables, "AWS_SECRET_ACCESS_KEY", colon + 1));

out:
    free(first);
    return status;
}

static fth_status add_variables(fth_instance *instance, fth_words *variables)
{
    const fth_action *action = instance->options.action;
    fth_status status = FTH_OK;
    char api[32], memory[16], group[FTH_ACTION_NAME + 16];

    snprintf(api, sizeof api, "127.0.0.1:%d", fth_runtime_api_port(instance->api));
    snprintf(memory, sizeof memory, "%d", action->memory_mb);
    snprintf(group, sizeof group, "/aws/lambda/%s", action->name);
    FTH_TRY(fth_variable_add(variables, "AWS_LAMBDA_RUNTIME_API", api));
    FTH_TRY(fth_variable_add(variables, "AWS_LAMBDA_FUNCTION_NAME", action->name));
    FTH_TRY(fth_variable_add(variables, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", memory));
    FTH_TRY(fth_variable_add(variables, "AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"));
    FTH_TRY(fth_variable_add(variables, "AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand"));
    FTH_TRY(fth_variable_add(variables, "AWS_LAMBDA_LOG_GROUP_NAME", group));
    FTH_TRY(fth_variable_add(variables, "AWS_LAMBDA_LOG_STREAM_NAME", action->revision));
    FTH_TRY(
        fth_variable_add(variables, "LAMBDA_TASK_ROOT", action->package ? action->package : instance->options.folder));
    FTH_TRY(fth_variable_add(variables, "_HANDLER", fth_json_text(action->facts, "handler", "bootstrap")));
    FTH_TRY(fth_variable_add(variables, "AWS_REGION", REGION));
    FTH_TRY(fth_variable_add(variables, "AWS_DEFAULT_REGION", REGION));
    FTH_TRY(add_credentials(instance, variables));

out:
    return status;
}

static fth_status add_words(fth_instance *instance, fth_words *command)
{
    fth_status status = FTH_OK;
    if (!instance->options.needs_words)
        return FTH_OK;
    FTH_TRY(fth_words_add(command, "worker"));
    FTH_TRY(fth_words_add(command, "lambda"));

out:
    return status;
}

/* An error's text: "ValueError: no such thing". */
static void describe_error(const fth_runtime_answer *answer, fth_instance_run *run)
{
    const char *type = fth_json_text(run->result, "errorType", answer->error_type ? answer->error_type : "");
    const char *message = fth_json_text(run->result, "errorMessage", "");
    fth_instance_fail(run, "application", "%s%s%s", type, *type && *message ? ": " : "",
                      *message ? message
                      : *type  ? ""
                               : "the function reported an error");
    run->error_type = *type ? strdup(type) : NULL;
}

static fth_status run_one(fth_instance *instance, const char *id, const json_t *value, fth_instance_run *run)
{
    const fth_action *action = instance->options.action;
    fth_status status = FTH_OK;
    char arn[200], trace[80], *body = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    fth_runtime_answer answer = {0};
    const bool cold = !instance->initialized;

    FTH_REQUIRE(body, FTH_NO_MEMORY, "no memory for an event");
    snprintf(arn, sizeof arn, "arn:aws:lambda:" REGION ":000000000000:function:%s", action->name);
    snprintf(trace, sizeof trace, "Root=1-%08x-%.8s%.4s000000000000;Sampled=0", (unsigned)fth_clock_wall_seconds(), id,
             id + 9);
    fth_runtime_event event = {.request_id = id,
                               .function_arn = arn,
                               .trace_id = trace,
                               .body = body,
                               .body_bytes = strlen(body),
                               .start_s = FTH_INSTANCE_START_S,
                               .timeout_s = action->timeout_s,
                               .grace_s = FTH_INSTANCE_GRACE_S};
    status = fth_runtime_api_invoke(instance->api, &event, fth_instance_is_alive, instance, &answer);
    if (!isnan(answer.delivered_s)) {
        instance->initialized = true;
        run->duration_s = fth_clock_seconds() - answer.delivered_s;
        if (cold)
            run->init_s = answer.delivered_s - instance->began_s;
    }
    FTH_TRY(status);
    run->result = json_loadb(answer.body ? answer.body : "", answer.body_bytes, JSON_DECODE_ANY, NULL);
    if (answer.failed) {
        describe_error(&answer, run);
        if (isnan(answer.delivered_s)) /* failed at its start: it takes no events */
            status = FTH_PEER_LOST;
    } else if (!run->result) {
        fth_instance_fail(run, "developer", "the function's answer is not JSON");
    }

out:
    fth_runtime_answer_release(&answer);
    free(body);
    return status;
}

const fth_contract fth_contract_lambda = {
    .prepare = prepare, .add_variables = add_variables, .add_words = add_words, .run = run_one};
