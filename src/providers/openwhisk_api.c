/* OpenWhisk's REST API, as `wsk` uses it: address and key, invoking and polling
 * (https://github.com/apache/openwhisk/blob/master/docs/rest_api.md).
 *
 * Actions are invoked without waiting (202 and an id), because gateways cut off blocking calls
 * after a minute. The record of an activation exists once it has ended. */
#include <ctype.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "providers/openwhisk_internal.h"

enum { MAX_PROPERTIES_BYTES = 64 << 10, MAX_NAME = 512 };

/* ---- who asks, and where ---- */

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The value of NAME=value in ~/.wskprops, without spaces and quotes around it; or NULL. */
static char *find_property(const char *text, const char *name)
{
    size_t name_length = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *at = line + strspn(line, " \t");
        if (strncmp(at, name, name_length) != 0)
            continue;
        at += name_length;
        at += strspn(at, " \t");
        if (*at++ != '=')
            continue;
        at += strspn(at, " \t\"'");
        size_t length = strcspn(at, "\r\n");
        while (length > 0 && strchr(" \t\"'", at[length - 1]))
            length--;
        return length > 0 ? strndup(at, length) : NULL;
    }
    return NULL;
}

static fth_status read_properties(char **text)
{
    size_t size_bytes;
    const char *home = variable("HOME");
    char *path = variable("WSK_CONFIG_FILE") ? strdup(variable("WSK_CONFIG_FILE"))
                 : home                      ? fth_path_join(home, ".wskprops")
                                             : NULL;
    *text = NULL;
    fth_status status =
        path && fth_file_exists(path) ? fth_file_read_all(path, MAX_PROPERTIES_BYTES, text, &size_bytes) : FTH_OK;
    free(path);
    return status;
}

/* The first that is set: the option, wsk's variable, the action's own variable, the file. */
static char *choose(const char *option, const char *wsk, const char *own, const char *text, const char *property)
{
    const char *value = option && *option ? option : variable(wsk) ? variable(wsk) : variable(own);
    return value ? strdup(value) : find_property(text, property);
}

/* Completes "host", "host:port" or a URL to a URL without slashes at its end. */
static fth_status complete_host(const char *host, char **base)
{
    bool has_scheme = strncmp(host, "https://", 8) == 0 || strncmp(host, "http://", 7) == 0;
    const char *name = has_scheme ? strstr(host, "://") + 3 : host;
    size_t length = strlen(host);
    *base = NULL;
    for (const char *at = name; *at; at++)
        if (!isgraph((unsigned char)*at) || strchr("@?#\"\\<>", *at))
            return fth_fail(FTH_INVALID, "OpenWhisk's API host is HOST, HOST:PORT or https://HOST, without a key or "
                                         "query (--host, WHISK_APIHOST, or APIHOST= in ~/.wskprops)");
    if (!*name || *name == '/' || (!has_scheme && strstr(host, "://")))
        return fth_fail(FTH_INVALID, "OpenWhisk's API host \"%s\" is not HOST, HOST:PORT or https://HOST", host);
    while (length > 0 && host[length - 1] == '/')
        length--;
    *base = fth_format("%s%.*s", has_scheme ? "" : "https://", (int)length, host);
    return *base ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an address");
}

/* "Authorization: Basic ..." of UUID:KEY. */
static fth_status make_authorization(const char *key, char **line)
{
    static const char prefix[] = "Authorization: Basic ";
    size_t length = strlen(key);
    const char *colon = strchr(key, ':');
    *line = NULL;
    for (const char *at = key; *at; at++)
        if (!isgraph((unsigned char)*at))
            colon = NULL;
    if (!colon || colon == key || !colon[1] || length > 1024)
        return fth_fail(FTH_INVALID, "OpenWhisk's key has the form UUID:KEY, which this one does not have; "
                                     "`wsk property get --auth` shows it");
    fth_status status = fth_allocate(sizeof prefix + (length + 2) / 3 * 4 + 1, 1, line);
    if (status == FTH_OK) {
        memcpy(*line, prefix, sizeof prefix - 1);
        EVP_EncodeBlock((unsigned char *)*line + sizeof prefix - 1, (const unsigned char *)key, (int)length);
    }
    return status;
}

static fth_status authorize(void *context, const fth_rest_call *call, char ***lines)
{
    fth_status status = FTH_OK;
    char **made = NULL;
    const fth_openwhisk_provider *provider = context;
    *lines = NULL;
    FTH_TRY(fth_allocate(3, sizeof *made, &made));
    made[0] = strdup(provider->authorization);
    if (made[0] && call->body)
        made[1] = strdup("Content-Type: application/json");
    FTH_REQUIRE(made[0] && (made[1] || !call->body), FTH_NO_MEMORY, "no memory for a request");
    *lines = made;
    made = NULL;

out:
    fth_sigv4_free_lines(made);
    return status;
}

static void close_provider(fth_provider *base)
{
    fth_openwhisk_provider *provider = (fth_openwhisk_provider *)base;
    if (!provider)
        return;
    fth_rest_free(provider->rest);
    fth_wipe_text(provider->authorization);
    free(provider);
}

static fth_status open_provider(const fth_provider_options *options, fth_provider **result)
{
    fth_status status = FTH_OK;
    fth_openwhisk_provider *provider = NULL;
    char *text = NULL, *host = NULL, *key = NULL, *origin = NULL, *base = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *provider, &provider));
    provider->base.kind = &fth_provider_openwhisk;
    FTH_TRY(read_properties(&text));
    host = choose(options->host, "WHISK_APIHOST", "__OW_API_HOST", text, "APIHOST");
    FTH_REQUIRE(host, FTH_INVALID,
                "no OpenWhisk API host: give --host, set WHISK_APIHOST, or write APIHOST= to ~/.wskprops "
                "(`wsk property set --apihost HOST`)");
    key = choose(options->key, "WHISK_AUTH", "__OW_API_KEY", text, "AUTH");
    FTH_REQUIRE(key, FTH_INVALID,
                "no OpenWhisk key: set WHISK_AUTH, or write AUTH= to ~/.wskprops (`wsk property set --auth UUID:KEY`)");
    FTH_TRY(complete_host(host, &origin));
    FTH_TRY(make_authorization(key, &provider->authorization));
    base = fth_format("%s/api/v1/namespaces", origin);
    FTH_REQUIRE(base, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_rest_open(&(fth_rest_options){.platform = "OpenWhisk",
                                              .base = base,
                                              .advice = "is the API host right (--host, WHISK_APIHOST), and can it be "
                                                        "reached from here? --insecure takes any certificate",
                                              .ca_file = options->ca_file,
                                              .insecure = options->insecure,
                                              .stop = options->stop,
                                              .authorize = authorize,
                                              .context = provider},
                          &provider->rest));
    *result = &provider->base;
    provider = NULL;

out:
    close_provider(provider ? &provider->base : NULL);
    fth_wipe_text(text);
    fth_wipe_text(key);
    free(host);
    free(origin);
    free(base);
    return status;
}

/* ---- names ---- */

/* Splits off the name space; *name is the rest. */
static fth_status split_name(const char *whole, char **name_space, const char **name)
{
    bool qualified = *whole == '/';
    const char *slash = qualified ? strchr(whole + 1, '/') : NULL;
    *name = qualified ? (slash ? slash + 1 : "") : whole;
    *name_space = NULL;
    size_t length = strlen(whole);
    if (!**name || **name == '/' || (qualified && slash == whole + 1) || length > MAX_NAME ||
        whole[length - 1] == '/' || strstr(whole, ".."))
        return fth_fail(FTH_INVALID,
                        "\"%.80s\" is not the name of an action; expected NAME, PACKAGE/NAME or /NAMESPACE/NAME",
                        whole);
    *name_space = qualified ? strndup(whole + 1, (size_t)(slash - whole - 1)) : strdup("_");
    return *name_space ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a name");
}

const char *fth_openwhisk_bare_name(const char *name)
{
    const char *slash = *name == '/' ? strchr(name + 1, '/') : NULL;
    return slash ? slash + 1 : name;
}

/* /NAMESPACE/COLLECTION/MEMBER; `member` NULL: the name itself; "": the collection. */
static fth_status make_path(const char *whole, const char *collection, const char *member, char **path)
{
    fth_status status = FTH_OK;
    char *name_space = NULL, *escaped_space = NULL, *escaped = NULL;
    const char *name = "";
    *path = NULL;
    FTH_TRY(split_name(whole, &name_space, &name));
    escaped_space = fth_http_escape(name_space, false);
    escaped = fth_http_escape(member ? member : name, true);
    if (escaped_space && escaped)
        *path = fth_format("/%s/%s%s%s", escaped_space, collection, *escaped ? "/" : "", escaped);
    FTH_REQUIRE(*path, FTH_NO_MEMORY, "no memory for an address");

out:
    free(name_space);
    free(escaped_space);
    free(escaped);
    return status;
}

fth_status fth_openwhisk_action_path(const char *name, char **path)
{
    return name ? make_path(name, "actions", NULL, path) : make_path("all", "actions", "", path);
}

fth_status fth_openwhisk_activation_path(const char *name, const char *id, char **path)
{
    if (id && (!*id || strchr(id, '/') || strstr(id, "..")))
        return fth_fail(FTH_INVALID, "\"%.80s\" is not the id of an activation", id);
    return make_path(name, "activations", id ? id : "", path);
}

/* ---- activations ---- */

char *fth_openwhisk_join_logs(const json_t *lines)
{
    size_t room = 1, used = 0, i;
    json_t *line;
    json_array_foreach(lines, i, line) room += json_string_length(line) + 1;
    char *text = json_array_size(lines) > 0 ? malloc(room) : NULL;
    if (!text)
        return NULL;
    json_array_foreach(lines, i, line)
    {
        size_t length = json_string_length(line);
        if (length > 0)
            memcpy(text + used, json_string_value(line), length);
        used += length;
        text[used++] = '\n';
    }
    text[used] = '\0';
    return text;
}

static double milliseconds(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) / 1000 : NAN;
}

/* "initTime" exists only for cold starts. */
static double read_start(const json_t *annotations)
{
    size_t i;
    json_t *annotation;
    json_array_foreach(annotations, i, annotation)
    {
        const char *key = json_string_value(json_object_get(annotation, "key"));
        if (key && strcmp(key, "initTime") == 0)
            return milliseconds(json_object_get(annotation, "value"));
    }
    return NAN;
}

static void read_activation(const json_t *activation, fth_invocation_outcome *outcome)
{
    const json_t *response = json_object_get(activation, "response");
    json_t *result = json_object_get(response, "result");
    const char *id = json_string_value(json_object_get(activation, "activationId"));
    const char *status = json_string_value(json_object_get(response, "status"));
    bool done = json_is_true(json_object_get(response, "success"));
    if (id && *id)
        fth_printable_copy(outcome->id, sizeof outcome->id, id);
    outcome->state = done ? FTH_INVOCATION_DONE : FTH_INVOCATION_FAILED;
    outcome->result = json_is_object(result) ? json_incref(result) : NULL;
    outcome->duration_s = milliseconds(json_object_get(activation, "duration"));
    outcome->start_s = read_start(json_object_get(activation, "annotations"));
    outcome->logs = fth_openwhisk_join_logs(json_object_get(activation, "logs"));
    if (done)
        return;
    const json_t *error = json_object_get(result, "error");
    const char *reason = json_string_value(error);
    char *text = error && !reason ? json_dumps(error, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    outcome->error = fth_format("%.80s: %.400s", status ? status : "failed",
                                reason ? reason
                                : text ? text
                                       : "the record of the activation has no details");
    free(text);
}

fth_status fth_openwhisk_get(fth_openwhisk_provider *provider, const char *what, const char *path,
                             const fth_pair *query, int query_count, fth_deadline deadline, int *code, json_t **json)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_rest_call call = {
        .what = what, .method = "GET", .path = path, .query = query, .query_count = query_count, .deadline = deadline};
    *json = NULL;
    FTH_TRY(fth_rest_send(provider->rest, &call, &response));
    if (code) {
        *code = response.code;
        if (response.code == 404)
            goto out;
    }
    FTH_TRY(fth_rest_check(provider->rest, &call, &response, FTH_OPENWHISK_KEYS_ADVICE));
    FTH_TRY(fth_rest_parse(provider->rest, &call, &response, json));

out:
    fth_http_response_release(&response);
    return status;
}

/* ---- invoke and poll ---- */

/* Reads the answer to POST /actions/NAME. */
static fth_status read_invoked(fth_openwhisk_provider *provider, const fth_rest_call *call,
                               const fth_http_response *response, fth_invocation_outcome *outcome)
{
    fth_status status = FTH_OK;
    json_t *json = NULL;
    if (fth_rest_read_refusal(provider->rest, call, response, outcome))
        goto out;
    FTH_TRY(fth_rest_check(provider->rest, call, response, FTH_OPENWHISK_KEYS_ADVICE));
    FTH_TRY(fth_rest_parse(provider->rest, call, response, &json));
    const char *id = json_string_value(json_object_get(json, "activationId"));
    FTH_REQUIRE(id && *id && strlen(id) < sizeof outcome->id && fth_is_printable(id), FTH_CORRUPT,
                "%s on OpenWhisk at %s: the answer has no activationId", call->what, fth_rest_server(provider->rest));
    snprintf(outcome->id, sizeof outcome->id, "%s", id);

out:
    json_decref(json);
    return status;
}

static fth_status invoke(fth_provider *base, const char *name, const json_t *parameters, fth_deadline deadline,
                         fth_invocation_outcome *outcome)
{
    fth_status status = FTH_OK;
    fth_openwhisk_provider *provider = (fth_openwhisk_provider *)base;
    fth_http_response response = {0};
    char *path = NULL, *what = fth_format("invoke %s", name);
    char *body = parameters ? json_dumps(parameters, JSON_COMPACT) : strdup("{}");

    fth_invocation_outcome_init(outcome);
    FTH_REQUIRE(what && body, FTH_NO_MEMORY, "no memory for an invocation");
    FTH_TRY(fth_openwhisk_action_path(name, &path));
    fth_rest_call call = {.what = what,
                          .method = "POST",
                          .path = path,
                          .body = body,
                          .body_bytes = strlen(body),
                          .once = true,
                          .deadline = deadline};
    status = fth_rest_send(provider->rest, &call, &response);
    if (status == FTH_PEER_LOST) {
        fth_invocation_outcome_set_unknown(outcome);
        status = FTH_OK;
        goto out;
    }
    FTH_TRY(status);
    FTH_TRY(read_invoked(provider, &call, &response, outcome));

out:
    fth_http_response_release(&response);
    fth_wipe_text(body); /* parameters may hold keys */
    free(what);
    free(path);
    return status;
}

static fth_status poll_activation(fth_provider *base, const char *name, const char *id, fth_deadline deadline,
                                  fth_invocation_outcome *outcome)
{
    fth_status status = FTH_OK;
    fth_openwhisk_provider *provider = (fth_openwhisk_provider *)base;
    fth_backoff backoff = {.first_s = 0.1, .most_s = 2};
    json_t *activation = NULL;
    char *path = NULL, *what = fth_format("ask for activation %.80s", id);
    int code = 0;

    fth_invocation_outcome_init(outcome);
    snprintf(outcome->id, sizeof outcome->id, "%s", id);
    FTH_REQUIRE(what, FTH_NO_MEMORY, "no memory for a request");
    FTH_TRY(fth_openwhisk_activation_path(name, id, &path));
    do { /* 404: not ended yet */
        /* Each request has time of its own, so that a deadline that has passed still gets an
         * answer. */
        fth_deadline one = fth_deadline_in(fmax(10, fmin(60, fth_deadline_left_seconds(deadline))));
        status = fth_openwhisk_get(provider, what, path, NULL, 0, one, &code, &activation);
        if (status != FTH_OK && status != FTH_INTERRUPTED && status != FTH_INVALID) {
            fth_invocation_outcome_set_unknown(outcome);
            status = FTH_OK;
            goto out;
        }
        FTH_TRY(status);
    } while (code == 404 && fth_rest_pause(provider->rest, &backoff, 0, deadline));
    if (activation)
        read_activation(activation, outcome);
    else if (fth_rest_is_stopped(provider->rest))
        status = fth_fail(FTH_INTERRUPTED, "%s: stopped", what);

out:
    json_decref(activation);
    free(what);
    free(path);
    return status;
}

const fth_provider_kind fth_provider_openwhisk = {
    .name = "openwhisk",
    .summary = "Apache OpenWhisk, by its REST API",
    .open = open_provider,
    .close = close_provider,
    .deploy = fth_openwhisk_deploy,
    .invoke = invoke,
    .poll = poll_activation,
    .status = fth_openwhisk_status,
    .logs = fth_openwhisk_logs,
    .remove = fth_openwhisk_remove,
};
