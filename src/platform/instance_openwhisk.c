/* OpenWhisk's contract: the process serves /init and /run on a given port. */
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "platform/files.h"
#include "platform/instance_internal.h"

static const uint64_t max_answer_bytes = 8 << 20;

/* Finds a free port. Another program may take it before the process does; the process then ends,
 * which is noticed. */
static fth_status choose_port(int *port)
{
    fth_status status = FTH_OK;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FTH_REQUIRE(listener >= 0 && bind(listener, (struct sockaddr *)&address, size) == 0 &&
                    getsockname(listener, (struct sockaddr *)&address, &size) == 0,
                FTH_IO, "find a free port: %s", strerror(errno));
    *port = ntohs(address.sin_port);

out:
    if (listener >= 0)
        close(listener);
    return status;
}

static fth_status prepare(fth_instance *instance)
{
    fth_status status = choose_port(&instance->port);
    if (status == FTH_OK && !instance->client)
        status =
            fth_http_client_open(&(fth_http_client_options){.no_proxy = true, .attentive = true}, &instance->client);
    return status;
}

static fth_status add_variables(fth_instance *instance, fth_words *variables)
{
    char port[16];
    snprintf(port, sizeof port, "%d", instance->port);
    fth_status status = fth_variable_add(variables, "PORT", port);
    if (status == FTH_OK && instance->options.api_url)
        status = fth_variable_add(variables, "__OW_API_HOST", instance->options.api_url);
    return status;
}

static fth_status add_words(fth_instance *instance, fth_words *command)
{
    fth_status status = FTH_OK;
    if (instance->options.needs_words) {
        FTH_TRY(fth_words_add(command, "worker"));
        FTH_TRY(fth_words_add(command, "openwhisk"));
    }
    FTH_TRY(fth_words_add(command, "--address"));
    FTH_TRY(fth_words_add(command, "127.0.0.1"));
    FTH_TRY(fth_words_add(command, "--port"));
    FTH_TRY(fth_words_add(command, "%d", instance->port));

out:
    return status;
}

static int look(void *context, uint64_t sent_bytes, uint64_t received_bytes)
{
    (void)sent_bytes, (void)received_bytes;
    return !fth_instance_is_alive(context);
}

/* One request to the process. */
static fth_status ask(fth_instance *instance, const char *path, const json_t *body, double seconds,
                      fth_http_response *response)
{
    char url[64], *text = json_dumps(body, JSON_COMPACT);
    const char *headers[] = {"Content-Type: application/json", "Expect:", NULL};
    if (!text)
        return fth_fail(FTH_NO_MEMORY, "no memory for a request");
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", instance->port, path);
    fth_status status = fth_http_perform(instance->client,
                                         &(fth_http_request){.method = "POST",
                                                             .url = url,
                                                             .headers = headers,
                                                             .body = text,
                                                             .body_bytes = strlen(text),
                                                             .max_body_bytes = max_answer_bytes,
                                                             .stall_s = seconds + 60,
                                                             .deadline = fth_deadline_in(seconds),
                                                             .progress = look,
                                                             .progress_context = instance},
                                         response);
    fth_wipe_text(text);
    return status;
}

/* Sends /init as soon as the process listens. */
static fth_status initialize(fth_instance *instance, fth_instance_run *run)
{
    const fth_action *action = instance->options.action;
    fth_status status = FTH_OK;
    fth_deadline deadline = fth_deadline_in(FTH_INSTANCE_START_S);
    fth_http_response response = {0};
    json_t *body =
        json_pack("{s:{s:s, s:s, s:s, s:b, s:o}}", "value", "name", action->name, "main", "main", "code", "", "binary",
                  0, "env", action->environment ? json_incref(action->environment) : json_object());

    FTH_REQUIRE(body, FTH_NO_MEMORY, "no memory for a request");
    for (;;) {
        status = ask(instance, "/init", body, fth_deadline_left_seconds(deadline), &response);
        if (status == FTH_OK || response.failure != FTH_HTTP_UNREACHED || fth_deadline_passed(deadline) ||
            !fth_instance_is_alive(instance))
            break;
        fth_http_response_release(&response);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (status == FTH_OK && response.code != 200) {
        run->result = json_loadb(response.body ? response.body : "", response.body_bytes, 0, NULL);
        fth_instance_fail(run, "developer", "the function could not be initialized: %s",
                          fth_json_text(run->result, "error", "it gave no reason"));
    }
    instance->initialized = status == FTH_OK && response.code == 200;
    if (instance->initialized)
        run->init_s = fth_clock_seconds() - instance->began_s;

out:
    fth_http_response_release(&response);
    json_decref(body);
    return status;
}

/* Translates the answer as OpenWhisk's invoker does. */
static void translate_answer(const fth_http_response *response, fth_instance_run *run)
{
    run->result = json_loadb(response->body ? response->body : "", response->body_bytes, 0, NULL);
    const json_t *error = json_object_get(run->result, "error");
    if (!run->result) {
        fth_instance_fail(run, "developer", "the function's answer is not a JSON object or array");
    } else if (error || response->code != 200) {
        char *text = json_is_string(error) ? NULL : error ? json_dumps(error, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        fth_instance_fail(run, error ? "application" : "developer", "%s",
                          json_is_string(error) ? json_string_value(error)
                          : text                ? text
                                                : "the function failed and did not say why");
        free(text);
    }
}

static fth_status run_one(fth_instance *instance, const char *id, const json_t *value, fth_instance_run *run)
{
    const fth_action *action = instance->options.action;
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    json_t *body = NULL;
    char deadline_ms[32], version[32];

    if (!instance->initialized) {
        FTH_TRY(initialize(instance, run));
        if (run->kind) { /* not asked to run; another process may succeed */
            status = FTH_PEER_LOST;
            goto out;
        }
    }
    double began_s = fth_clock_seconds();
    snprintf(deadline_ms, sizeof deadline_ms, "%.0f", (fth_clock_wall_seconds() + action->timeout_s) * 1000);
    snprintf(version, sizeof version, "0.0.%lld",
             (long long)json_integer_value(json_object_get(action->facts, "version")));
    body =
        json_pack("{s:O, s:s, s:s+, s:s, s:s, s:s, s:s, s:s, s:s}", "value", value, "namespace", "guest", "action_name",
                  "/guest/", action->name, "action_version", version, "activation_id", id, "transaction_id", id,
                  "deadline", deadline_ms, "api_host", instance->options.api_url ? instance->options.api_url : "",
                  "api_key", instance->options.api_key ? instance->options.api_key : "");
    FTH_REQUIRE(body, FTH_NO_MEMORY, "no memory for a request");
    status = ask(instance, "/run", body, action->timeout_s + FTH_INSTANCE_GRACE_S, &response);
    run->duration_s = fth_clock_seconds() - began_s;
    FTH_TRY(status);
    translate_answer(&response, run);

out:
    fth_http_response_release(&response);
    json_decref(body);
    return status;
}

const fth_contract fth_contract_openwhisk = {
    .ends_logs = true, .prepare = prepare, .add_variables = add_variables, .add_words = add_words, .run = run_one};
