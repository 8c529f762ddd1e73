/* OpenWhisk's REST API: deploying actions, their status and logs, removing them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "providers/openwhisk_internal.h"

enum { LIST_PAGE = 200, MAX_PAGES = 50, SHOWN_ACTIVATIONS = 20, TIME_BYTES = 32 };

static fth_deadline soon(void)
{
    return (fth_deadline){0}; /* the default time of a request */
}

/* ---- deploy ---- */

/* Adds {"key", "value"}; environment variables are parameters of /init ("init"). */
static void add_parameters(json_t *parameters, const json_t *values, bool environment)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)values, key, value)
    {
        json_t *parameter = json_pack("{s:s, s:O}", "key", key, "value", value);
        if (environment)
            json_object_set_new(parameter, "init", json_true());
        json_array_append_new(parameters, parameter);
    }
}

static json_t *describe(const fth_function_spec *spec)
{
    json_t *parameters = json_array(), *annotations = json_array();
    add_parameters(parameters, spec->parameters, false);
    add_parameters(parameters, spec->environment, true);
    if (spec->invokes_itself)
        json_array_append_new(annotations, json_pack("{s:s, s:b}", "key", "provide-api-key", "value", 1));
    return json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:I, s:i}, s:o, s:o}", "namespace", "_", "name",
                     fth_openwhisk_bare_name(spec->name), "exec", "kind", "blackbox", "image", spec->image, "limits",
                     "timeout", (json_int_t)llround(spec->timeout_s * 1000), "memory", spec->memory_mb, "parameters",
                     parameters, "annotations", annotations);
}

fth_status fth_openwhisk_deploy(fth_provider *base, const fth_function_spec *spec)
{
    fth_status status = FTH_OK;
    fth_openwhisk_provider *provider = (fth_openwhisk_provider *)base;
    fth_http_response response = {0};
    json_t *action = NULL;
    char *path = NULL, *body = NULL, *what = fth_format("deploy %s", spec->name);

    FTH_REQUIRE(spec->image && *spec->image, FTH_INVALID,
                "OpenWhisk runs an image that its hosts can pull: --image USER/NAME:TAG (`farthing functions package "
                "--image FILE` writes one; push it with skopeo or podman)");
    FTH_TRY(fth_openwhisk_action_path(spec->name, &path));
    action = describe(spec);
    body = action ? json_dumps(action, JSON_COMPACT) : NULL;
    FTH_REQUIRE(what && body, FTH_NO_MEMORY, "no memory for the action %s", spec->name);
    fth_rest_call call = {.what = what,
                          .method = "PUT",
                          .path = path,
                          .query = (const fth_pair[]){{"overwrite", "true"}},
                          .query_count = 1,
                          .body = body,
                          .body_bytes = strlen(body)};
    FTH_TRY(fth_rest_send(provider->rest, &call, &response));
    FTH_TRY(fth_rest_check(provider->rest, &call, &response, FTH_OPENWHISK_KEYS_ADVICE));

out:
    fth_http_response_release(&response);
    json_decref(action);
    fth_wipe_text(body);
    free(path);
    free(what);
    return status;
}

/* ---- status ---- */

static void set_time(json_t *object, const char *key, const json_t *milliseconds)
{
    char text[TIME_BYTES];
    double wall_s = json_is_number(milliseconds) ? json_number_value(milliseconds) / 1000 : 0;
    if (wall_s <= 0 || wall_s > 1e11)
        return;
    fth_clock_format_utc(wall_s, text, sizeof text);
    json_object_set_new(object, key, json_string(text));
}

/* The keys of parameters; values may be secret. */
static json_t *list_keys(const json_t *parameters, bool environment)
{
    json_t *keys = json_array();
    size_t i;
    json_t *parameter;
    json_array_foreach(parameters, i, parameter)
    {
        json_t *key = json_object_get(parameter, "key");
        if (json_is_string(key) && json_is_true(json_object_get(parameter, "init")) == environment)
            json_array_append(keys, key);
    }
    return keys;
}

static json_t *summarize(const json_t *action)
{
    const json_t *limits = json_object_get(action, "limits"), *exec = json_object_get(action, "exec");
    const json_t *parameters = json_object_get(action, "parameters");
    const json_t *image = json_object_get(exec, "image"), *version = json_object_get(action, "version");
    const char *name = json_string_value(json_object_get(action, "name"));
    json_t *row = json_pack("{s:s}", "name", name ? name : "?");
    if (json_is_number(json_object_get(limits, "memory")))
        fth_json_set_number(row, "memory_mb", json_number_value(json_object_get(limits, "memory")));
    if (json_is_number(json_object_get(limits, "timeout")))
        fth_json_set_number(row, "timeout_s", json_number_value(json_object_get(limits, "timeout")) / 1000);
    if (json_is_string(image))
        json_object_set(row, "image", (json_t *)image);
    if (json_is_string(version))
        json_object_set(row, "version", (json_t *)version);
    set_time(row, "updated", json_object_get(action, "updated"));
    if (json_array_size(parameters) > 0) {
        json_object_set_new(row, "parameters", list_keys(parameters, false));
        json_object_set_new(row, "environment", list_keys(parameters, true));
    }
    return row;
}

static json_t *summarize_activation(const json_t *activation)
{
    static const char *const states[] = {"done", "application error", "developer error", "internal error"};
    const json_t *code = json_object_get(activation, "statusCode"), *duration = json_object_get(activation, "duration");
    const char *id = json_string_value(json_object_get(activation, "activationId"));
    json_t *row = json_pack("{s:s}", "id", id ? id : "?");
    json_int_t number = json_is_integer(code) ? json_integer_value(code) : -1;
    if (number >= 0 && number < (json_int_t)FTH_COUNT_OF(states))
        json_object_set_new(row, "state", json_string(states[number]));
    set_time(row, "started", json_object_get(activation, "start"));
    if (json_is_number(duration))
        fth_json_set_number(row, "duration_s", json_number_value(duration) / 1000);
    return row;
}

static fth_status list_actions(fth_openwhisk_provider *provider, json_t *rows)
{
    fth_status status = FTH_OK;
    json_t *page = NULL;
    char *path = NULL, limit[16], skip[16];
    size_t i, count = LIST_PAGE;
    json_t *action;

    FTH_TRY(fth_openwhisk_action_path(NULL, &path));
    snprintf(limit, sizeof limit, "%d", LIST_PAGE);
    for (int number = 0; number < MAX_PAGES && count == LIST_PAGE; number++) {
        snprintf(skip, sizeof skip, "%d", number * LIST_PAGE);
        const fth_pair query[] = {{"limit", limit}, {"skip", skip}};
        json_decref(page);
        FTH_TRY(fth_openwhisk_get(provider, "list actions", path, query, FTH_COUNT_OF(query), soon(), NULL, &page));
        json_array_foreach(page, i, action) json_array_append_new(rows, summarize(action));
        count = json_array_size(page);
    }

out:
    json_decref(page);
    free(path);
    return status;
}

/* The newest activations of an action. */
static fth_status list_activations(fth_openwhisk_provider *provider, const char *name, int count, json_t **list)
{
    fth_status status = FTH_OK;
    char *path = NULL, limit[16];
    *list = NULL;
    snprintf(limit, sizeof limit, "%d", count);
    const fth_pair query[] = {{"limit", limit}, {"name", fth_openwhisk_bare_name(name)}};
    FTH_TRY(fth_openwhisk_activation_path(name, NULL, &path));
    FTH_TRY(fth_openwhisk_get(provider, "list activations", path, query, FTH_COUNT_OF(query), soon(), NULL, list));

out:
    free(path);
    return status;
}

static fth_status describe_one(fth_openwhisk_provider *provider, const char *name, json_t *rows)
{
    fth_status status = FTH_OK;
    json_t *action = NULL, *list = NULL, *activation;
    char *path = NULL;
    size_t i;
    int code = 0;

    FTH_TRY(fth_openwhisk_action_path(name, &path));
    FTH_TRY(fth_openwhisk_get(provider, "ask for the action", path, (const fth_pair[]){{"code", "false"}}, 1, soon(),
                              &code, &action));
    FTH_REQUIRE(action, FTH_INVALID, "OpenWhisk at %s has no action \"%s\"; `farthing functions status` lists them",
                fth_rest_server(provider->rest), name);
    json_t *row = summarize(action), *invocations = json_array();
    json_array_append_new(rows, row);
    json_object_set_new(row, "invocations", invocations);
    FTH_TRY(list_activations(provider, name, SHOWN_ACTIVATIONS, &list));
    json_array_foreach(list, i, activation) json_array_append_new(invocations, summarize_activation(activation));

out:
    json_decref(action);
    json_decref(list);
    free(path);
    return status;
}

fth_status fth_openwhisk_status(fth_provider *base, const char *name, json_t **result)
{
    fth_status status = FTH_OK;
    fth_openwhisk_provider *provider = (fth_openwhisk_provider *)base;
    json_t *rows = json_array();
    *result = NULL;
    FTH_TRY(name ? describe_one(provider, name, rows) : list_actions(provider, rows));
    *result = rows;
    rows = NULL;

out:
    json_decref(rows);
    return status;
}

/* ---- logs ---- */

fth_status fth_openwhisk_logs(fth_provider *base, const char *name, const char *id, char **text)
{
    fth_status status = FTH_OK;
    fth_openwhisk_provider *provider = (fth_openwhisk_provider *)base;
    json_t *list = NULL, *logs = NULL;
    char *path = NULL, *whole = NULL;
    int code = 0;

    *text = NULL;
    if (!id) {
        FTH_TRY(list_activations(provider, name, 1, &list));
        id = json_string_value(json_object_get(json_array_get(list, 0), "activationId"));
        FTH_REQUIRE(id, FTH_INVALID, "no activation of \"%s\" has ended yet at %s", name,
                    fth_rest_server(provider->rest));
    }
    FTH_TRY(fth_openwhisk_activation_path(name, id, &path));
    whole = fth_format("%s/logs", path);
    FTH_REQUIRE(whole, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_openwhisk_get(provider, "ask for the logs", whole, NULL, 0, soon(), &code, &logs));
    FTH_REQUIRE(logs, FTH_INVALID, "OpenWhisk at %s has no activation \"%.80s\": it has not ended, or there is none",
                fth_rest_server(provider->rest), id);
    *text = fth_openwhisk_join_logs(json_object_get(logs, "logs"));
    if (!*text)
        *text = strdup("");

out:
    json_decref(list);
    json_decref(logs);
    free(path);
    free(whole);
    return status;
}

/* ---- remove ---- */

fth_status fth_openwhisk_remove(fth_provider *base, const char *name)
{
    fth_status status = FTH_OK;
    fth_openwhisk_provider *provider = (fth_openwhisk_provider *)base;
    fth_http_response response = {0};
    char *path = NULL, *what = fth_format("remove %s", name);

    FTH_REQUIRE(what, FTH_NO_MEMORY, "no memory for a request");
    FTH_TRY(fth_openwhisk_action_path(name, &path));
    fth_rest_call call = {.what = what, .method = "DELETE", .path = path};
    FTH_TRY(fth_rest_send(provider->rest, &call, &response));
    if (response.code == 404 && call.uncertain) /* an earlier try has removed it */
        goto out;
    FTH_TRY(fth_rest_check(provider->rest, &call, &response, FTH_OPENWHISK_KEYS_ADVICE));

out:
    fth_http_response_release(&response);
    free(path);
    free(what);
    return status;
}
