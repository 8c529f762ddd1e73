/* OpenWhisk's REST API, as `wsk` and `curl` use it
 * (apiv1swagger.json in https://github.com/apache/openwhisk, core/controller):
 *
 *     /api/v1/namespaces/{_|guest}/actions[/NAME]                    list, get, put, delete, post
 *     /api/v1/namespaces/{_|guest}/activations[/ID[/logs|/result]]   list, get
 *     /api/v1/web/guest/default/NAME[.json]                          web actions, without a key
 *
 * There is no container engine here: an action of kind "blackbox" runs the program's own function,
 * whatever image it names, and says so in the annotation "farthing-runs". */
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/runtime_api.h"
#include "platform/service_internal.h"

#define NAMESPACES "/api/v1/namespaces/"
enum { USUAL_LIST = 30, LONGEST_LIST = 200 };
static const double gateway_waits_s = 60; /* then a blocking call returns the activation's id */

/* ---- answers ---- */

static void refuse(fth_exchange *exchange, int code, const char *message)
{
    char id[33] = "";
    FTH_IGNORE(fth_make_id(16, id), "the answer is then without an id");
    char *text = fth_text_to_utf8(message);
    fth_exchange_answer_json(exchange, code, json_pack("{s:s, s:s}", "error", text ? text : "", "code", id));
    free(text);
}

static void refuse_missing(fth_exchange *exchange)
{
    refuse(exchange, 404, "The requested resource does not exist.");
}

/* Answers with the current error message; 400 for the caller's mistakes. */
static void refuse_failure(fth_exchange *exchange, fth_status status)
{
    refuse(exchange, status == FTH_INVALID || status == FTH_CORRUPT ? 400 : 500, fth_error_message());
}

bool fth_openwhisk_admit(const fth_platform_service *service, fth_exchange *exchange)
{
    const char *given = fth_exchange_header(exchange, "Authorization"), *key = fth_service_get_key(service)->whole;
    size_t length = strlen(key), room = (length + 2) / 3 * 4 + 1;
    unsigned char *expected = malloc(room);
    bool right = false;
    if (expected) {
        int size = EVP_EncodeBlock(expected, (const unsigned char *)key, (int)length);
        right = given && strncasecmp(given, "Basic ", 6) == 0 && strlen(given + 6) == (size_t)size &&
                CRYPTO_memcmp(given + 6, expected, (size_t)size) == 0;
        fth_wipe(expected, room);
        free(expected);
    }
    if (right) {
        fth_exchange_set_authenticated(exchange);
    } else {
        fth_exchange_set_header(exchange, "WWW-Authenticate", "Basic realm=\"farthing functions\"");
        refuse(exchange, 401, "The supplied authentication is invalid.");
    }
    return right;
}

void fth_openwhisk_namespaces(void *service, fth_exchange *exchange)
{
    (void)service;
    fth_exchange_answer_json(exchange, 200, json_pack("[s]", "guest"));
}

static json_t *pair(const char *key, json_t *value)
{
    return json_pack("{s:s, s:o}", "key", key, "value", value);
}

static int64_t milliseconds(const json_t *record, const char *key)
{
    return llround(json_number_value(json_object_get(record, key)) * 1000);
}

/* ---- actions ---- */

static json_t *describe_limits(const json_t *facts)
{
    return json_pack("{s:I, s:O, s:i, s:i}", "timeout", (json_int_t)milliseconds(facts, "timeout_s"), "memory",
                     json_object_get(facts, "memory_mb"), "logs", 10, "concurrency", 1);
}

static json_t *describe_annotations(const json_t *facts)
{
    json_t *given = json_object_get(facts, "annotations");
    json_t *annotations = json_is_array(given) ? json_deep_copy(given) : json_array();
    const char *runs = json_object_get(facts, "command")   ? "a command of this machine"
                       : json_object_get(facts, "package") ? "the zip's bootstrap"
                                                           : "the function of this program; no image is used";
    json_array_append_new(annotations, pair("exec", json_string("blackbox")));
    json_array_append_new(annotations, pair("farthing-runs", json_string(runs)));
    return annotations;
}

static json_t *describe_action(const json_t *facts)
{
    char version[32];
    snprintf(version, sizeof version, "0.0.%lld", (long long)json_integer_value(json_object_get(facts, "version")));
    return json_pack("{s:s, s:s, s:s, s:b, s:{s:s, s:s, s:b}, s:o, s:o, s:I}", "namespace", "guest", "name",
                     fth_json_text(facts, "name", ""), "version", version, "publish", 0, "exec", "kind", "blackbox",
                     "image", fth_json_text(facts, "image", "farthing-function"), "binary", 0, "annotations",
                     describe_annotations(facts), "limits", describe_limits(facts), "updated",
                     (json_int_t)milliseconds(facts, "updated"));
}

static void answer_action(const char *folder, const char *name, fth_exchange *exchange)
{
    fth_action action;
    const char *key;
    json_t *value;
    fth_status status = fth_action_load(folder, name, &action);
    if (status != FTH_OK) {
        refuse_failure(exchange, status);
        return;
    }
    json_t *answer = describe_action(action.facts), *parameters = json_array();
    json_object_foreach(action.parameters, key, value) json_array_append_new(parameters, pair(key, json_incref(value)));
    json_object_foreach(action.environment, key, value)
    {
        json_t *variable = pair(key, json_incref(value));
        json_object_set_new(variable, "init", json_true());
        json_array_append_new(parameters, variable);
    }
    json_object_set_new(answer, "parameters", parameters);
    fth_action_release(&action);
    fth_exchange_answer_json(exchange, 200, answer);
}

static void read_page(fth_exchange *exchange, size_t *skip, size_t *limit)
{
    const char *limit_text = fth_exchange_query(exchange, "limit"), *skip_text = fth_exchange_query(exchange, "skip");
    long most = limit_text ? strtol(limit_text, NULL, 10) : USUAL_LIST,
         first = skip_text ? strtol(skip_text, NULL, 10) : 0;
    *limit = most <= 0 || most > LONGEST_LIST ? LONGEST_LIST : (size_t)most;
    *skip = first > 0 ? (size_t)first : 0;
}

static void answer_actions(const char *folder, fth_exchange *exchange)
{
    json_t *all = NULL, *page = json_array(), *facts;
    size_t skip, limit, i;
    read_page(exchange, &skip, &limit);
    fth_status status = fth_action_list(folder, &all);
    json_array_foreach(all, i, facts) if (i >= skip && i < skip + limit)
        json_array_append_new(page, describe_action(facts));
    json_decref(all);
    if (status != FTH_OK) {
        json_decref(page);
        refuse_failure(exchange, status);
        return;
    }
    fth_exchange_answer_json(exchange, 200, page);
}

/* From an array of {"key", "value", "init"?} the parameters or, with `init`, the environment
 * variables for /init, as text. NULL if it is not such an array. */
static json_t *read_pairs(const json_t *pairs, bool init)
{
    json_t *object = json_object();
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        json_t *each = json_array_get(pairs, i), *value = json_object_get(each, "value");
        const char *key = json_string_value(json_object_get(each, "key"));
        if (!key || !value) {
            json_decref(object);
            return NULL;
        }
        if (json_is_true(json_object_get(each, "init")) != init)
            continue;
        char *text = init && !json_is_string(value) ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        json_object_set_new(object, key, text ? json_string(text) : json_incref(value));
        free(text);
    }
    return object;
}

/* Keeps what is not given as it was. */
static void keep_old(const fth_action *old, fth_function_spec *spec, json_t *more, bool has_exec)
{
    if (!has_exec)
        spec->image = fth_json_text(old->facts, "image", NULL);
    if (!spec->parameters) { /* given together with the environment */
        spec->parameters = old->parameters;
        spec->environment = old->environment;
    }
    if (spec->timeout_s == 0)
        spec->timeout_s = old->timeout_s;
    if (spec->memory_mb == 0)
        spec->memory_mb = old->memory_mb;
    if (!json_object_get(more, "annotations") && json_object_get(old->facts, "annotations"))
        json_object_set(more, "annotations", json_object_get(old->facts, "annotations"));
}

static void put_action(const char *folder, const char *name, fth_exchange *exchange)
{
    size_t size;
    const char *body = fth_exchange_body(exchange, &size), *overwrite = fth_exchange_query(exchange, "overwrite");
    json_t *given = size > 0 ? json_loadb(body, size, 0, NULL) : json_object(), *more = json_object();
    const json_t *exec = json_object_get(given, "exec"), *limits = json_object_get(given, "limits");
    const json_t *given_parameters = json_object_get(given, "parameters");
    const char *kind = fth_json_text(exec, "kind", "blackbox");
    json_t *parameters = given_parameters ? read_pairs(given_parameters, false) : NULL;
    json_t *variables = given_parameters ? read_pairs(given_parameters, true) : NULL;
    fth_action old = {0};
    const bool exists = fth_action_exists(folder, name);
    fth_function_spec spec = {.name = name,
                              .contract = "openwhisk",
                              .image = fth_json_text(exec, "image", NULL),
                              .memory_mb = fth_json_int(limits, "memory"),
                              .timeout_s = json_number_value(json_object_get(limits, "timeout")) / 1000,
                              .parameters = parameters,
                              .environment = variables};

    if (!json_is_object(given) || (given_parameters && !parameters)) {
        refuse(exchange, 400,
               "The request content was malformed: an object with \"exec\" is expected, and parameters "
               "as [{\"key\", \"value\"}]");
    } else if (exists && !(overwrite && strcmp(overwrite, "true") == 0)) {
        refuse(exchange, 409, "resource already exists");
    } else if (!exists && !exec) {
        refuse(exchange, 400, "exec undefined");
    } else if (strcmp(kind, "blackbox") != 0 || json_object_get(exec, "code")) {
        refuse(exchange, 400, "only images run here (exec.kind \"blackbox\", without code)");
    } else {
        if (json_is_array(json_object_get(given, "annotations")))
            json_object_set(more, "annotations", json_object_get(given, "annotations"));
        if (exists && fth_action_load(folder, name, &old) == FTH_OK)
            keep_old(&old, &spec, more, exec != NULL);
        if (spec.timeout_s == 0)
            spec.timeout_s = 60; /* OpenWhisk's default */
        fth_status status = exec ? fth_action_store(folder, &spec, more) : fth_action_change(folder, &spec, more);
        if (status == FTH_OK)
            answer_action(folder, name, exchange);
        else
            refuse_failure(exchange, status);
        fth_action_release(&old);
    }
    json_decref(parameters);
    json_decref(variables);
    json_decref(given);
    json_decref(more);
}

static void delete_action(const char *folder, const char *name, fth_exchange *exchange)
{
    fth_action action;
    fth_status status = fth_action_load(folder, name, &action);
    if (status == FTH_OK) {
        json_t *answer = describe_action(action.facts);
        fth_action_release(&action);
        if ((status = fth_action_remove(folder, name)) == FTH_OK) {
            fth_exchange_answer_json(exchange, 200, answer);
            return;
        }
        json_decref(answer);
    }
    refuse_failure(exchange, status);
}

/* ---- activations ---- */

static const char *status_name(const json_t *record, int *code)
{
    const char *kind = fth_json_text(record, "kind", "");
    if (strcmp(fth_json_text(record, "state", ""), "done") == 0) {
        *code = 0;
        return "success";
    }
    *code = strcmp(kind, "application") == 0 ? 1 : strcmp(kind, "internal") == 0 || strcmp(kind, "lost") == 0 ? 3 : 2;
    return *code == 1 ? "application error" : *code == 3 ? "whisk internal error" : "action developer error";
}

/* The result, or {"error": ...} in OpenWhisk's words. */
static json_t *result_of(const json_t *record)
{
    const char *kind = fth_json_text(record, "kind", "");
    json_t *result = json_object_get(record, "result");
    if (strcmp(kind, "timeout") == 0)
        return json_pack("{s:o}", "error",
                         json_sprintf("The action exceeded its time limits of %lld milliseconds.",
                                      (long long)milliseconds(record, "timeout_s")));
    if (strcmp(kind, "memory") == 0)
        return json_pack("{s:s}", "error", "The action exhausted its memory and was aborted.");
    if (result)
        return json_incref(result);
    return json_pack("{s:s}", "error", fth_json_text(record, "error", "unknown"));
}

static json_t *describe_activation(const char *folder, const json_t *record, bool whole)
{
    const char *id = fth_json_text(record, "id", ""), *name = fth_json_text(record, "action", "");
    int code;
    const char *status = status_name(record, &code);
    int64_t start = milliseconds(record, "start"), end = milliseconds(record, "end");
    json_t *annotations = json_array(), *lines = NULL;
    json_t *answer =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:b}", "namespace", "guest", "name", name, "version",
                  "0.0.1", "subject", "guest", "activationId", id, "start", (json_int_t)start, "end", (json_int_t)end,
                  "duration", (json_int_t)milliseconds(record, "duration_s"), "statusCode", code, "publish", 0);
    json_array_append_new(annotations, pair("path", json_sprintf("guest/%s", name)));
    json_array_append_new(annotations, pair("kind", json_string("blackbox")));
    json_array_append_new(annotations, pair("limits", describe_limits(record)));
    json_array_append_new(annotations,
                          pair("timeout", json_boolean(strcmp(fth_json_text(record, "kind", ""), "timeout") == 0)));
    json_array_append_new(annotations, pair("waitTime", json_integer(start - milliseconds(record, "created"))));
    if (json_object_get(record, "init_s"))
        json_array_append_new(annotations, pair("initTime", json_integer(milliseconds(record, "init_s"))));
    if (json_object_get(record, "peak_bytes"))
        json_array_append_new(annotations,
                              pair("farthing-peak-bytes", json_incref(json_object_get(record, "peak_bytes"))));
    json_object_set_new(answer, "annotations", annotations);
    if (whole) {
        if (fth_activation_log_lines(folder, id, &lines) != FTH_OK)
            fth_log_debug("no logs of activation %s: %s", id, fth_error_message());
        json_object_set_new(answer, "logs", lines);
        json_object_set_new(answer, "response",
                            json_pack("{s:s, s:i, s:b, s:o}", "status", status, "statusCode", code, "success",
                                      code == 0, "result", result_of(record)));
    }
    return answer;
}

static void answer_activations(const char *folder, fth_exchange *exchange)
{
    const char *docs = fth_exchange_query(exchange, "docs"), *name = fth_exchange_query(exchange, "name");
    const bool whole = docs && strcmp(docs, "true") == 0;
    json_t *records = NULL, *page = json_array(), *record;
    size_t skip, limit, i;
    read_page(exchange, &skip, &limit);
    fth_status status = fth_activation_list(folder, name, skip, limit, &records);
    json_array_foreach(records, i, record) if (strcmp(fth_json_text(record, "state", ""), "running") != 0)
        json_array_append_new(page, describe_activation(folder, record, whole));
    json_decref(records);
    if (status != FTH_OK) {
        json_decref(page);
        refuse_failure(exchange, status);
        return;
    }
    fth_exchange_answer_json(exchange, 200, page);
}

/* `part`: "", "logs" or "result". A running activation does not exist yet. */
static void answer_activation(const char *folder, const char *id, const char *part, fth_exchange *exchange)
{
    json_t *record = NULL, *lines = NULL;
    int code;
    if (fth_activation_read(folder, id, &record) != FTH_OK ||
        strcmp(fth_json_text(record, "state", ""), "running") == 0) {
        refuse_missing(exchange);
    } else if (strcmp(part, "logs") == 0) {
        fth_status status = fth_activation_log_lines(folder, id, &lines);
        if (status == FTH_OK)
            fth_exchange_answer_json(exchange, 200, json_pack("{s:o}", "logs", lines));
        else
            refuse_failure(exchange, status);
    } else if (strcmp(part, "result") == 0) {
        const char *status = status_name(record, &code);
        fth_exchange_answer_json(
            exchange, 200,
            json_pack("{s:o, s:s, s:b}", "result", result_of(record), "status", status, "success", code == 0));
    } else {
        fth_exchange_answer_json(exchange, 200, describe_activation(folder, record, true));
    }
    json_decref(record);
}

/* ---- invoking ---- */

static void answer_blocking(const fth_platform_service *service, fth_exchange *exchange, const char *id,
                            const json_t *record, const void *details)
{
    fth_exchange_set_header(exchange, "X-OpenWhisk-Activation-Id", id);
    if (!record) {
        fth_exchange_answer_json(exchange, 202, json_pack("{s:s}", "activationId", id));
        return;
    }
    int code = strcmp(fth_json_text(record, "state", ""), "done") == 0 ? 200 : 502;
    fth_exchange_answer_json(
        exchange, code, details ? result_of(record) : describe_activation(fth_service_folder(service), record, true));
}

static bool is_true(fth_exchange *exchange, const char *name)
{
    const char *value = fth_exchange_query(exchange, name);
    return value && strcmp(value, "true") == 0;
}

static void refuse_throttled(fth_exchange *exchange)
{
    refuse(exchange, 429, "Too many concurrent requests in flight; try again when some of them have ended.");
}

/* Invokes without waiting. */
static void start_only(fth_platform_service *service, const char *name, const json_t *value, fth_exchange *exchange)
{
    char id[80];
    bool throttled;
    fth_status status = fth_platform_invoke(fth_service_platform(service), name, value, id, &throttled);
    if (status != FTH_OK) {
        refuse_failure(exchange, status);
    } else if (throttled) {
        refuse_throttled(exchange);
    } else {
        fth_exchange_set_header(exchange, "X-OpenWhisk-Activation-Id", id);
        fth_exchange_answer_json(exchange, 202, json_pack("{s:s}", "activationId", id));
    }
}

static void invoke(fth_platform_service *service, const char *name, fth_exchange *exchange)
{
    static const char result_only[] = "result";
    size_t size;
    const char *body = fth_exchange_body(exchange, &size);
    json_t *value = size > 0 ? json_loadb(body, size, 0, NULL) : json_object();
    bool throttled = false;

    if (size > FTH_RUNTIME_MAX_PAYLOAD) {
        refuse(exchange, 413, "The request entity is larger than the 6 MB that a function takes.");
    } else if (!json_is_object(value) && !json_is_array(value)) {
        refuse(exchange, 400, "The request content was malformed: parameters are a JSON object.");
    } else if (!is_true(exchange, "blocking")) {
        start_only(service, name, value, exchange);
    } else {
        const void *details = is_true(exchange, "result") ? result_only : NULL;
        fth_status status =
            fth_service_invoke(service, exchange, name, value, gateway_waits_s, answer_blocking, details, &throttled);
        if (status != FTH_OK)
            refuse_failure(exchange, status);
        else if (throttled)
            refuse_throttled(exchange);
    }
    json_decref(value);
}

/* ---- paths ---- */

static void handle_action(fth_platform_service *service, const char *name, fth_exchange *exchange)
{
    const char *method = fth_exchange_method(exchange), *folder = fth_service_folder(service);
    if (!fth_action_name_is_valid(name))
        refuse(exchange, strcmp(method, "PUT") == 0 ? 400 : 404,
               "names of actions have letters, digits, - and _, and no package");
    else if (strcmp(method, "PUT") == 0)
        put_action(folder, name, exchange);
    else if (!fth_action_exists(folder, name))
        refuse_missing(exchange);
    else if (strcmp(method, "DELETE") == 0)
        delete_action(folder, name, exchange);
    else if (strcmp(method, "POST") == 0)
        invoke(service, name, exchange);
    else
        answer_action(folder, name, exchange);
}

/* Whether `path` is "WORD" or "WORD/rest"; *rest is what follows. */
static bool takes(const char *path, const char *word, const char **rest)
{
    size_t length = strlen(word);
    if (strncmp(path, word, length) != 0 || (path[length] != '\0' && path[length] != '/'))
        return false;
    *rest = path[length] ? path + length + 1 : path + length;
    return true;
}

void fth_openwhisk_handle(void *context, fth_exchange *exchange)
{
    fth_platform_service *service = context;
    const char *path = fth_exchange_path(exchange) + strlen(NAMESPACES), *rest, *folder = fth_service_folder(service);
    const char *method = fth_exchange_method(exchange);
    const bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    char id[FTH_ACTIVATION_ID];

    if (!takes(path, "_", &rest) && !takes(path, "guest", &rest)) {
        refuse(exchange, 403, "The supplied authentication is not authorized to access this resource.");
    } else if (takes(rest, "actions", &rest)) {
        if (*rest)
            handle_action(service, rest, exchange);
        else if (reads)
            answer_actions(folder, exchange);
        else
            refuse(exchange, 405, "The requested method is not supported here.");
    } else if (reads && takes(rest, "activations", &rest)) {
        size_t length = strcspn(rest, "/");
        if (!*rest) {
            answer_activations(folder, exchange);
        } else if (length >= sizeof id) {
            refuse_missing(exchange);
        } else {
            snprintf(id, sizeof id, "%.*s", (int)length, rest);
            answer_activation(folder, id, rest[length] ? rest + length + 1 : "", exchange);
        }
    } else {
        refuse_missing(exchange);
    }
}

/* ---- web actions ---- */

/* The value of the last annotation of that name; or NULL. */
static const json_t *find_annotation(const fth_action *action, const char *key)
{
    const json_t *annotations = json_object_get(action->facts, "annotations"), *value = NULL;
    for (size_t i = 0; i < json_array_size(annotations); i++) {
        const json_t *each = json_array_get(annotations, i);
        if (strcmp(fth_json_text(each, "key", ""), key) == 0)
            value = json_object_get(each, "value");
    }
    return value;
}

/* "require-whisk-auth" of a web action: true requires the key, a string or number requires it in a
 * header. Refuses other requests. */
static bool admit_to_web(const fth_platform_service *service, const fth_action *action, fth_exchange *exchange)
{
    const json_t *required = find_annotation(action, "require-whisk-auth");
    const char *given = fth_exchange_header(exchange, "X-Require-Whisk-Auth");
    char number[32] = "";
    if (!required || json_is_false(required))
        return true;
    if (json_is_true(required))
        return fth_openwhisk_admit(service, exchange);
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(required));
    const char *secret = json_is_integer(required) ? number : json_string_value(required);
    if (secret && given && strlen(secret) == strlen(given) && CRYPTO_memcmp(secret, given, strlen(given)) == 0)
        return true;
    refuse(exchange, 401, "Authentication is possible but has failed or not yet been provided.");
    return false;
}

/* Anonymous callers must not override the parameters that the action was deployed with. */
static bool overrides_parameters(const fth_action *action, const json_t *value)
{
    const char *key;
    json_t *own;
    json_object_foreach(action->parameters, key, own) if (json_object_get(value, key)) return true;
    return false;
}

static void answer_web(const fth_platform_service *service, fth_exchange *exchange, const char *id,
                       const json_t *record, const void *details)
{
    (void)service, (void)details;
    fth_exchange_set_header(exchange, "X-OpenWhisk-Activation-Id", id);
    if (!record)
        fth_exchange_answer_json(exchange, 202, json_pack("{s:s}", "activationId", id));
    else
        fth_exchange_answer_json(exchange, strcmp(fth_json_text(record, "state", ""), "done") == 0 ? 200 : 502,
                                 result_of(record));
}

void fth_openwhisk_web(void *context, fth_exchange *exchange)
{
    fth_platform_service *service = context;
    char name[FTH_ACTION_NAME + 8] = "";
    size_t size;
    const char *body = fth_exchange_body(exchange, &size);
    bool throttled = false;

    if (sscanf(fth_exchange_path(exchange), "/api/v1/web/%*[^/]/default/%71[^/]", name) != 1) {
        refuse_missing(exchange);
        return;
    }
    char *ending = strrchr(name, '.');
    if (ending && strcmp(ending, ".json") == 0)
        *ending = '\0';
    const char *folder = fth_service_folder(service);
    fth_action action = {0};
    if (!fth_action_exists(folder, name) || fth_action_load(folder, name, &action) != FTH_OK ||
        !json_is_true(find_annotation(&action, "web-export"))) {
        refuse_missing(exchange);
        fth_action_release(&action);
        return;
    }
    json_t *value = size > 0 ? json_loadb(body, size, 0, NULL) : json_object();
    if (!admit_to_web(service, &action, exchange))
        fth_log_debug("a request to the web action %s is refused", name);
    else if (!json_is_object(value))
        refuse(exchange, 400, "The request content was malformed: parameters are a JSON object.");
    else if (overrides_parameters(&action, value))
        refuse(exchange, 400, "The request defines parameters that are not allowed (e.g., reserved properties).");
    else if (fth_service_invoke(service, exchange, name, value, gateway_waits_s, answer_web, NULL, &throttled) !=
             FTH_OK)
        refuse_failure(exchange, FTH_IO);
    else if (throttled)
        refuse_throttled(exchange);
    fth_action_release(&action);
    json_decref(value);
}
