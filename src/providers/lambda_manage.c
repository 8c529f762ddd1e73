/* AWS Lambda's REST API: deploying functions, their status, removing them.
 *
 *     deploy   new: create --> wait until Active
 *              old: code --> wait until Successful --> configuration --> wait until Successful */
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "providers/lambda_internal.h"

enum { MAX_INLINE_ZIP_BYTES = 50 << 20, MAX_PAGES = 100 };

static const double DEPLOY_WITHIN_S = 300;
static const double ROLE_WITHIN_S = 45; /* a new role takes a while to be known everywhere */

/* ---- requests ---- */

typedef struct lambda_request {
    const char *what, *method;
    const char *name, *rest; /* of the path; name NULL: "/functions" itself */
    const json_t *body;      /* or NULL */
    const char *marker;      /* of a list's next page; or NULL */
} lambda_request;

static fth_status send_request(fth_lambda_provider *provider, const lambda_request *request, fth_deadline deadline,
                               fth_http_response *response, bool *uncertain)
{
    fth_status status = FTH_OK;
    char *path = NULL, *body = request->body ? json_dumps(request->body, JSON_COMPACT) : NULL;
    const fth_pair type = {"content-type", "application/json"};
    const fth_pair query[] = {{"MaxItems", "50"}, {"Marker", request->marker ? request->marker : ""}};

    FTH_REQUIRE(body || !request->body, FTH_NO_MEMORY, "no memory to %s", request->what);
    if (request->name)
        FTH_TRY(fth_lambda_path(request->name, request->rest, &path));
    else
        path = strdup("/2015-03-31/functions");
    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for an address");
    bool lists = !request->name && !body;
    fth_rest_call call = {.what = request->what,
                          .method = request->method,
                          .path = path,
                          .query = query,
                          .query_count = !lists            ? 0
                                         : request->marker ? 2
                                                           : 1,
                          .headers = &type,
                          .header_count = body ? 1 : 0,
                          .body = body,
                          .body_bytes = body ? strlen(body) : 0,
                          .deadline = deadline};
    FTH_TRY(fth_aws_send(&provider->lambda, &call, response));
    if (uncertain)
        *uncertain = call.uncertain;

out:
    fth_wipe_text(body); /* environment variables may hold keys */
    free(path);
    return status;
}

/* FTH_INVALID for a refusal. */
static fth_status check(fth_lambda_provider *provider, const char *what, const fth_http_response *response)
{
    return fth_rest_check(provider->lambda.rest, &(fth_rest_call){.what = what}, response, FTH_LAMBDA_KEYS_ADVICE);
}

/* A request whose answer is an object; with `code`, a 404 is not a failure. */
static fth_status ask(fth_lambda_provider *provider, const lambda_request *request, int *code, json_t **json)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    *json = NULL;
    FTH_TRY(send_request(provider, request, (fth_deadline){0}, &response, NULL));
    if (code) {
        *code = response.code;
        if (response.code == 404)
            goto out;
    }
    FTH_TRY(check(provider, request->what, &response));
    FTH_TRY(fth_rest_parse(provider->lambda.rest, &(fth_rest_call){.what = request->what}, &response, json));

out:
    fth_http_response_release(&response);
    return status;
}

/* ---- deploy ---- */

/* The code as the API expects it: {"ZipFile"}, {"S3Bucket", "S3Key"} or {"ImageUri"}. */
static fth_status describe_code(const fth_function_spec *spec, json_t **code)
{
    fth_status status = FTH_OK;
    char *zip = NULL, *encoded = NULL;
    size_t size_bytes = 0;
    *code = NULL;
    if (spec->image && *spec->image) {
        *code = json_pack("{s:s}", "ImageUri", spec->image);
        goto out;
    }
    FTH_REQUIRE(spec->zip && *spec->zip, FTH_INVALID,
                "Lambda needs --zip FILE (`farthing functions package --zip FILE`) "
                "or --image URI of an image in ECR");
    if (strncmp(spec->zip, "s3://", 5) == 0) {
        const char *bucket = spec->zip + 5, *key = strchr(bucket, '/');
        FTH_REQUIRE(key && key > bucket && key[1], FTH_INVALID, "--zip s3://BUCKET/KEY, not \"%.200s\"", spec->zip);
        *code = json_pack("{s:s%, s:s}", "S3Bucket", bucket, (size_t)(key - bucket), "S3Key", key + 1);
        goto out;
    }
    status = fth_file_read_all(spec->zip, MAX_INLINE_ZIP_BYTES, &zip, &size_bytes);
    if (status == FTH_INVALID)
        FTH_TRY(fth_fail_within(status,
                                "Lambda takes a zip of 50 MB at most by itself; --code-store s3://BUCKET/FOLDER "
                                "sends it through a bucket"));
    FTH_TRY(status);
    FTH_REQUIRE(size_bytes > 4 && memcmp(zip, "PK", 2) == 0, FTH_INVALID, "%s is not a zip file", spec->zip);
    FTH_TRY(fth_allocate(size_bytes / 3 * 4 + 8, 1, &encoded));
    EVP_EncodeBlock((unsigned char *)encoded, (const unsigned char *)zip, (int)size_bytes);
    *code = json_pack("{s:s}", "ZipFile", encoded);

out:
    free(zip);
    free(encoded);
    if (status == FTH_OK && !*code)
        status = fth_fail(FTH_NO_MEMORY, "no memory for the code of %s", spec->name);
    return status;
}

/* The members of an update of the configuration; creation needs more. */
static json_t *describe_configuration(const fth_function_spec *spec)
{
    json_t *environment = spec->environment ? json_deep_copy(spec->environment) : json_object();
    json_t *json = json_pack("{s:i, s:i, s:{s:o}}", "Timeout", (int)ceil(spec->timeout_s), "MemorySize",
                             spec->memory_mb, "Environment", "Variables", environment);
    if (spec->role && *spec->role)
        json_object_set_new(json, "Role", json_string(spec->role));
    if (!spec->image || !*spec->image) {
        json_object_set_new(json, "Runtime", json_string("provided.al2023"));
        json_object_set_new(json, "Handler", json_string("bootstrap"));
    }
    return json;
}

/* Whether a retry may succeed: another update is in progress (409), or the role is too new (400).
 * */
static bool passes(const fth_http_response *response, bool updates)
{
    char *reason = fth_rest_reason(response);
    bool role = response->code == 400 && reason && strstr(reason, "cannot be assumed");
    free(reason);
    return role || (updates && response->code == 409);
}

static fth_status send_patiently(fth_lambda_provider *provider, const lambda_request *request, bool updates,
                                 fth_http_response *response)
{
    fth_backoff backoff = {.first_s = 0.5, .most_s = 5};
    fth_deadline role_until = fth_deadline_in(ROLE_WITHIN_S), until = fth_deadline_in(DEPLOY_WITHIN_S);
    for (;;) {
        fth_status status = send_request(provider, request, until, response, NULL);
        if (status != FTH_OK || !passes(response, updates))
            return status;
        if (!fth_rest_pause(provider->lambda.rest, &backoff, 0, response->code == 400 ? role_until : until))
            return fth_rest_is_stopped(provider->lambda.rest) ? fth_fail(FTH_INTERRUPTED, "%s: stopped", request->what)
                                                              : FTH_OK; /* the refusal is final */
        fth_http_response_release(response);
    }
}

/* Waits until the function is Active and its last update Successful. */
static fth_status wait_until_ready(fth_lambda_provider *provider, const char *name)
{
    fth_status status = FTH_OK;
    fth_backoff backoff = {.first_s = 0.2, .most_s = 3};
    fth_deadline until = fth_deadline_in(DEPLOY_WITHIN_S);
    json_t *json = NULL;
    const lambda_request request = {"wait for the function", "GET", name, "/configuration", NULL, NULL};
    for (;;) {
        json_decref(json);
        FTH_TRY(ask(provider, &request, NULL, &json));
        const char *state = json_string_value(json_object_get(json, "State"));
        const char *update = json_string_value(json_object_get(json, "LastUpdateStatus"));
        const char *reason = json_string_value(json_object_get(json, "StateReason"));
        const char *update_reason = json_string_value(json_object_get(json, "LastUpdateStatusReason"));
        bool failed = (state && strcmp(state, "Failed") == 0) || (update && strcmp(update, "Failed") == 0);
        FTH_REQUIRE(!failed, FTH_IO, "deploy %s: AWS Lambda says that it failed%s%.300s", name,
                    reason || update_reason ? ": " : "",
                    reason          ? reason
                    : update_reason ? update_reason
                                    : "");
        if ((!state || strcmp(state, "Active") == 0 || strcmp(state, "Inactive") == 0) &&
            (!update || strcmp(update, "Successful") == 0))
            break;
        if (!fth_rest_pause(provider->lambda.rest, &backoff, 0, until)) {
            FTH_REQUIRE(fth_rest_is_stopped(provider->lambda.rest), FTH_TIMEOUT,
                        "deploy %s: it is still %s after %.0f s; `farthing functions status %s` says how it is", name,
                        state ? state : "pending", DEPLOY_WITHIN_S, name);
            FTH_TRY(fth_fail(FTH_INTERRUPTED, "deploy %s: stopped", name));
        }
    }

out:
    json_decref(json);
    return status;
}

static fth_status create(fth_lambda_provider *provider, const fth_function_spec *spec, json_t *code, bool *exists)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    json_t *body = describe_configuration(spec);
    char *what = fth_format("create %s", spec->name);
    bool image = spec->image && *spec->image;

    *exists = false;
    FTH_REQUIRE(spec->role && *spec->role, FTH_INVALID,
                "a new Lambda function needs --role arn:aws:iam::ACCOUNT:role/NAME, which it runs under");
    json_object_set_new(body, "FunctionName", json_string(spec->name));
    json_object_set_new(body, "PackageType", json_string(image ? "Image" : "Zip"));
    json_object_set_new(body, "Architectures", json_pack("[s]", FTH_LAMBDA_ARCHITECTURE));
    json_object_set(body, "Code", code);
    FTH_REQUIRE(what && json_object_get(body, "Code"), FTH_NO_MEMORY, "no memory for the function %s", spec->name);
    const lambda_request request = {what, "POST", NULL, NULL, body, NULL};
    FTH_TRY(send_patiently(provider, &request, false, &response));
    *exists = response.code == 409;
    if (!*exists)
        FTH_TRY(check(provider, what, &response));

out:
    fth_http_response_release(&response);
    json_decref(body);
    free(what);
    return status;
}

static fth_status update(fth_lambda_provider *provider, const fth_function_spec *spec, json_t *code)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    json_t *configuration = describe_configuration(spec);
    char *what = fth_format("update %s", spec->name);

    if (!spec->image || !*spec->image)
        json_object_set_new(code, "Architectures", json_pack("[s]", FTH_LAMBDA_ARCHITECTURE));
    FTH_REQUIRE(what && configuration, FTH_NO_MEMORY, "no memory for the function %s", spec->name);
    const lambda_request new_code = {what, "PUT", spec->name, "/code", code, NULL};
    FTH_TRY(send_patiently(provider, &new_code, true, &response));
    FTH_TRY(check(provider, what, &response));
    FTH_TRY(wait_until_ready(provider, spec->name));
    fth_http_response_release(&response);
    const lambda_request new_configuration = {what, "PUT", spec->name, "/configuration", configuration, NULL};
    FTH_TRY(send_patiently(provider, &new_configuration, true, &response));
    FTH_TRY(check(provider, what, &response));

out:
    fth_http_response_release(&response);
    json_decref(configuration);
    free(what);
    return status;
}

fth_status fth_lambda_deploy(fth_provider *base, const fth_function_spec *spec)
{
    fth_status status = FTH_OK;
    fth_lambda_provider *provider = (fth_lambda_provider *)base;
    json_t *code = NULL, *present = NULL;
    int answer = 0;
    bool exists;

    FTH_REQUIRE(
        !spec->parameters || json_object_size(spec->parameters) == 0, FTH_INVALID,
        "a Lambda function has no parameters of its own: give them to `farthing functions invoke`, or as --env");
    FTH_TRY(describe_code(spec, &code));
    FTH_TRY(ask(provider, &(lambda_request){"look for the function", "GET", spec->name, "/configuration", NULL, NULL},
                &answer, &present));
    exists = present != NULL;
    if (!exists)
        FTH_TRY(create(provider, spec, code, &exists));
    if (exists)
        FTH_TRY(update(provider, spec, code));
    FTH_TRY(wait_until_ready(provider, spec->name));

out:
    json_decref(code);
    json_decref(present);
    return status;
}

/* ---- status ---- */

static void copy_member(const json_t *from, const char *theirs, json_t *to, const char *ours)
{
    json_t *value = json_object_get(from, theirs);
    if (json_is_string(value) || json_is_number(value))
        json_object_set(to, ours, value);
}

static json_t *summarize(const json_t *configuration)
{
    json_t *row = json_object(), *names = json_array(), *value;
    const char *key;
    copy_member(configuration, "FunctionName", row, "name");
    copy_member(configuration, "MemorySize", row, "memory_mb");
    copy_member(configuration, "Timeout", row, "timeout_s");
    copy_member(configuration, "CodeSize", row, "code_bytes");
    copy_member(configuration, "LastModified", row, "updated");
    copy_member(configuration, "Runtime", row, "runtime");
    copy_member(configuration, "State", row, "state");
    copy_member(configuration, "Role", row, "role");
    json_object_foreach(json_object_get(json_object_get(configuration, "Environment"), "Variables"), key, value)
        json_array_append_new(names, json_string(key));
    if (json_array_size(names) > 0)
        json_object_set(row, "environment", names);
    json_decref(names);
    return row;
}

static fth_status list_functions(fth_lambda_provider *provider, json_t *rows)
{
    fth_status status = FTH_OK;
    json_t *page = NULL, *configuration;
    char *marker = NULL;
    size_t i;
    for (int number = 0; number < MAX_PAGES; number++) {
        json_decref(page);
        FTH_TRY(ask(provider, &(lambda_request){"list functions", "GET", NULL, NULL, NULL, marker}, NULL, &page));
        json_array_foreach(json_object_get(page, "Functions"), i, configuration)
            json_array_append_new(rows, summarize(configuration));
        const char *next = json_string_value(json_object_get(page, "NextMarker"));
        free(marker);
        marker = next && *next ? strdup(next) : NULL;
        if (!marker)
            break;
    }

out:
    json_decref(page);
    free(marker);
    return status;
}

fth_status fth_lambda_status(fth_provider *base, const char *name, json_t **result)
{
    fth_status status = FTH_OK;
    fth_lambda_provider *provider = (fth_lambda_provider *)base;
    json_t *rows = json_array(), *json = NULL;
    int answer = 0;

    *result = NULL;
    if (name) {
        FTH_TRY(ask(provider, &(lambda_request){"ask for the function", "GET", name, "/configuration", NULL, NULL},
                    &answer, &json));
        FTH_REQUIRE(json, FTH_INVALID,
                    "AWS Lambda at %s has no function \"%s\"; `farthing functions status` lists them",
                    fth_rest_server(provider->lambda.rest), name);
        json_array_append_new(rows, summarize(json));
    } else {
        FTH_TRY(list_functions(provider, rows));
    }
    *result = rows;
    rows = NULL;

out:
    json_decref(rows);
    json_decref(json);
    return status;
}

/* ---- remove ---- */

fth_status fth_lambda_remove(fth_provider *base, const char *name)
{
    fth_status status = FTH_OK;
    fth_lambda_provider *provider = (fth_lambda_provider *)base;
    fth_http_response response = {0};
    bool uncertain = false;
    char *what = fth_format("remove %s", name);

    FTH_REQUIRE(what, FTH_NO_MEMORY, "no memory for a request");
    FTH_TRY(send_request(provider, &(lambda_request){what, "DELETE", name, "", NULL, NULL}, (fth_deadline){0},
                         &response, &uncertain));
    if (response.code != 404 || !uncertain) /* an earlier try may have removed it */
        FTH_TRY(check(provider, what, &response));

out:
    fth_http_response_release(&response);
    free(what);
    return status;
}
