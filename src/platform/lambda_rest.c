/* Lambda's REST API, as AWS's tools use it (https://docs.aws.amazon.com/lambda/latest/api/):
 *
 *     /2015-03-31/functions                          list, create
 *     /2015-03-31/functions/NAME                     get, delete
 *     /2015-03-31/functions/NAME/code                update
 *     /2015-03-31/functions/NAME/configuration       get, update
 *     /2015-03-31/functions/NAME/invocations         invoke
 *
 * Requests are signed with the service's key. Code is a zip with a `bootstrap`, or an image's name,
 * which runs the program's own function. */
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "platform/runtime_api.h"
#include "platform/service_internal.h"

#define FUNCTIONS "/2015-03-31/functions"
#define ARN       "arn:aws:lambda:us-east-1:000000000000:function:"
enum { TAIL_BYTES = 4096, LONGEST_WAIT_S = 1000 };

/* ---- answers ---- */

static void refuse(fth_exchange *exchange, int code, const char *type, const char *message)
{
    char *text = fth_text_to_utf8(message);
    fth_exchange_set_header(exchange, "x-amzn-ErrorType", type);
    fth_exchange_answer_json(exchange, code,
                             json_pack("{s:s, s:s, s:s}", "Type", code < 500 ? "User" : "Service", "Message",
                                       text ? text : "", "message", text ? text : ""));
    free(text);
}

static void refuse_failure(fth_exchange *exchange, fth_status status)
{
    bool theirs = status == FTH_INVALID || status == FTH_CORRUPT;
    refuse(exchange, theirs ? 400 : 500, theirs ? "InvalidParameterValueException" : "ServiceException",
           fth_error_message());
}

static void refuse_missing(fth_exchange *exchange, const char *name)
{
    char message[FTH_ACTION_NAME + sizeof ARN + 32];
    snprintf(message, sizeof message, "Function not found: " ARN "%.64s", name);
    refuse(exchange, 404, "ResourceNotFoundException", message);
}

bool fth_lambda_admit(const fth_platform_service *service, fth_exchange *exchange)
{
    /* the signature covers the body, which has not arrived yet */
    if (fth_lambda_names_key(fth_service_get_key(service), exchange))
        return true;
    refuse(exchange, 403, "UnrecognizedClientException", "The security token included in the request is invalid.");
    return false;
}

/* ---- descriptions ---- */

/* Converts hex digits to base64, for Lambda's checksums. */
static json_t *checksum(const char *hex)
{
    unsigned char bytes[32], text[64];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] =
            strlen(hex) == 64 ? (unsigned char)(fth_hex_digit(hex[2 * i]) << 4 | fth_hex_digit(hex[2 * i + 1])) : 0;
    EVP_EncodeBlock(text, bytes, sizeof bytes);
    return json_string((const char *)text);
}

static json_t *describe(const json_t *facts, const json_t *environment)
{
    const char *name = fth_json_text(facts, "name", "");
    char modified[40];
    fth_clock_format_utc(json_number_value(json_object_get(facts, "updated")), modified, sizeof modified);
    modified[strcspn(modified, "Z")] = '\0';
    const bool image = !json_object_get(facts, "package");
    json_t *answer = json_pack(
        "{s:s, s:o, s:s, s:s, s:s, s:I, s:s, s:I, s:O, s:o, s:o, s:s, s:s, s:s, s:s, s:s, s:[s], s:{s:i}, s:{s:s}}",
        "FunctionName", name, "FunctionArn", json_sprintf(ARN "%s", name), "Runtime",
        fth_json_text(facts, "runtime", "provided.al2023"), "Role", fth_json_text(facts, "role", ""), "Handler",
        fth_json_text(facts, "handler", "bootstrap"), "CodeSize",
        json_integer_value(json_object_get(facts, "code_bytes")), "Description",
        fth_json_text(facts, "description", ""), "Timeout",
        (json_int_t)ceil(json_number_value(json_object_get(facts, "timeout_s"))), "MemorySize",
        json_object_get(facts, "memory_mb"), "LastModified", json_sprintf("%s.000+0000", modified), "CodeSha256",
        checksum(fth_json_text(facts, "code_sha256", "")), "Version", "$LATEST", "RevisionId",
        fth_json_text(facts, "revision", ""), "State", "Active", "LastUpdateStatus", "Successful", "PackageType",
        image ? "Image" : "Zip", "Architectures", FTH_LAMBDA_ARCHITECTURE, "EphemeralStorage", "Size", 512,
        "TracingConfig", "Mode", "PassThrough");
    if (json_object_size(environment) > 0)
        json_object_set_new(answer, "Environment",
                            json_pack("{s:o}", "Variables", json_incref((json_t *)(uintptr_t)environment)));
    return answer;
}

/* Answers with the configuration and, if `whole`, the location of the code. */
static void answer_function(const char *folder, const char *name, bool whole, int code, fth_exchange *exchange)
{
    fth_action action;
    fth_status status = fth_action_load(folder, name, &action);
    if (status != FTH_OK) {
        refuse_failure(exchange, status);
        return;
    }
    json_t *answer = describe(action.facts, action.environment);
    if (whole)
        answer = json_pack("{s:o, s:{s:s, s:s}, s:{}}", "Configuration", answer, "Code", "RepositoryType", "Local",
                           "Location", action.package ? action.package : "", "Tags");
    fth_action_release(&action);
    fth_exchange_answer_json(exchange, code, answer);
}

static void list_functions(const char *folder, fth_exchange *exchange)
{
    json_t *all = NULL, *shown = json_array(), *facts;
    size_t i;
    fth_status status = fth_action_list(folder, &all);
    json_array_foreach(all, i, facts) if (strcmp(fth_json_text(facts, "contract", ""), "lambda") == 0)
        json_array_append_new(shown, describe(facts, NULL));
    json_decref(all);
    if (status == FTH_OK) {
        fth_exchange_answer_json(exchange, 200, json_pack("{s:o}", "Functions", shown));
    } else {
        json_decref(shown);
        refuse_failure(exchange, status);
    }
}

/* ---- deploying ---- */

/* Decodes the zip of "ZipFile" into a file. */
static fth_status keep_zip(const char *folder, const char *base64, char **path)
{
    fth_status status = FTH_OK;
    size_t length = strlen(base64);
    unsigned char *bytes = malloc(length + 4);
    char id[33];

    FTH_REQUIRE(bytes, FTH_NO_MEMORY, "no memory for a zip");
    int size =
        length > 0 && length < INT32_MAX ? EVP_DecodeBlock(bytes, (const unsigned char *)base64, (int)length) : -1;
    FTH_REQUIRE(size > 0, FTH_INVALID,
                "Could not unzip uploaded file. Please check your file, then try to upload again.");
    for (int i = 0; i < 2 && base64[length - 1 - (size_t)i] == '='; i++) /* padding, which was counted */
        size--;
    FTH_TRY(fth_make_id(16, id));
    *path = fth_format("%s/" FTH_FILE_TEMPORARY "%s.zip", folder, id);
    FTH_TRY(fth_write_private(*path, bytes, (size_t)size));

out:
    free(bytes);
    return status;
}

/* A specification, based on the deployed function if there is one. */
typedef struct draft {
    fth_function_spec spec;
    fth_action old;
    json_t *more;
    char *zip;
    const char **command;
} draft;

static void release_draft(draft *all)
{
    if (all->zip)
        unlink(all->zip);
    free(all->zip);
    free(all->command);
    json_decref(all->more);
    fth_action_release(&all->old);
}

static void take_configuration(const json_t *given, draft *all)
{
    static const char *const texts[][2] = {
        {"Handler", "handler"}, {"Runtime", "runtime"}, {"Description", "description"}};
    const json_t *environment = json_object_get(given, "Environment");
    for (size_t i = 0; i < FTH_COUNT_OF(texts); i++)
        if (json_is_string(json_object_get(given, texts[i][0])))
            json_object_set(all->more, texts[i][1], json_object_get(given, texts[i][0]));
    if (json_is_string(json_object_get(given, "Role")))
        all->spec.role = fth_json_text(given, "Role", NULL);
    if (json_is_integer(json_object_get(given, "MemorySize")))
        all->spec.memory_mb = fth_json_int(given, "MemorySize");
    if (json_is_integer(json_object_get(given, "Timeout")))
        all->spec.timeout_s = json_number_value(json_object_get(given, "Timeout"));
    if (environment)
        all->spec.environment = json_object_get(environment, "Variables");
}

static fth_status take_code(const char *folder, const json_t *code, draft *all)
{
    const char *base64 = fth_json_text(code, "ZipFile", NULL);
    if (base64) {
        fth_status status = keep_zip(folder, base64, &all->zip);
        all->spec.zip = all->zip;
        return status;
    }
    all->spec.image = fth_json_text(code, "ImageUri", NULL);
    return all->spec.image
               ? FTH_OK
               : fth_fail(FTH_INVALID, "code is given as ZipFile, or as ImageUri, which runs this program's own "
                                       "function; there is no bucket here");
}

static void create_function(const char *folder, const json_t *given, fth_exchange *exchange)
{
    const char *name = fth_json_text(given, "FunctionName", "");
    draft all = {.spec = {.name = name, .contract = "lambda", .memory_mb = 128, .timeout_s = 3}, .more = json_object()};
    fth_status status = FTH_OK;

    if (fth_action_exists(folder, name)) {
        refuse(exchange, 409, "ResourceConflictException", "Function already exist");
    } else {
        take_configuration(given, &all);
        status = take_code(folder, json_object_get(given, "Code"), &all);
        if (status == FTH_OK)
            status = fth_action_store(folder, &all.spec, all.more);
        if (status == FTH_OK)
            answer_function(folder, name, false, 201, exchange);
        else
            refuse_failure(exchange, status);
    }
    release_draft(&all);
}

static void update_function(const char *folder, const char *name, const json_t *given, bool code,
                            fth_exchange *exchange)
{
    draft all = {.more = json_object()};
    fth_status status = fth_action_load(folder, name, &all.old);
    if (status == FTH_OK) {
        static const char *const kept[] = {"handler", "runtime", "description"};
        for (size_t i = 0; i < FTH_COUNT_OF(kept); i++)
            if (json_object_get(all.old.facts, kept[i]))
                json_object_set(all.more, kept[i], json_object_get(all.old.facts, kept[i]));
        all.spec = (fth_function_spec){.name = name,
                                       .contract = "lambda",
                                       .image = fth_json_text(all.old.facts, "image", NULL),
                                       .role = fth_json_text(all.old.facts, "role", NULL),
                                       .memory_mb = all.old.memory_mb,
                                       .timeout_s = all.old.timeout_s,
                                       .environment = all.old.environment,
                                       .parameters = all.old.parameters};
        if (code) {
            all.spec.image = NULL;
            status = take_code(folder, given, &all);
        } else {
            take_configuration(given, &all);
        }
    }
    if (status == FTH_OK)
        status = code ? fth_action_store(folder, &all.spec, all.more) : fth_action_change(folder, &all.spec, all.more);
    if (status == FTH_OK)
        answer_function(folder, name, false, 200, exchange);
    else
        refuse_failure(exchange, status);
    release_draft(&all);
}

/* ---- invoking ---- */

/* The last 4 KB of the log in base64. */
static void set_log_tail(const char *folder, const char *id, fth_exchange *exchange)
{
    char *text = NULL;
    unsigned char encoded[(TAIL_BYTES + 2) / 3 * 4 + 1];
    if (fth_activation_log_text(folder, id, &text) == FTH_OK) {
        size_t length = strlen(text), begin = length > TAIL_BYTES ? length - TAIL_BYTES : 0;
        EVP_EncodeBlock(encoded, (const unsigned char *)text + begin, (int)(length - begin));
        fth_exchange_set_header(exchange, "X-Amz-Log-Result", (const char *)encoded);
    }
    free(text);
}

/* The payload of a failure: the function's own error, or Lambda's message. */
static json_t *error_payload(const json_t *record, const char *id)
{
    const char *kind = fth_json_text(record, "kind", "");
    json_t *result = json_object_get(record, "result");
    if (result && strcmp(kind, "application") == 0)
        return json_incref(result);
    if (strcmp(kind, "timeout") == 0)
        return json_pack("{s:s, s:o}", "errorType", "Sandbox.Timedout", "errorMessage",
                         json_sprintf("RequestId: %s Error: Task timed out after %.2f seconds", id,
                                      json_number_value(json_object_get(record, "timeout_s"))));
    return json_pack("{s:s, s:o}", "errorType",
                     strcmp(kind, "memory") == 0 ? "Runtime.OutOfMemory" : "Runtime.ExitError", "errorMessage",
                     json_sprintf("RequestId: %s Error: %s", id, fth_json_text(record, "error", "unknown")));
}

static void answer_invocation(const fth_platform_service *service, fth_exchange *exchange, const char *id,
                              const json_t *record, const void *details)
{
    fth_exchange_set_header(exchange, "x-amzn-RequestId", id);
    if (!record) {
        refuse(exchange, 504, "ServiceException", "the function is still running");
        return;
    }
    const bool done = strcmp(fth_json_text(record, "state", ""), "done") == 0;
    json_t *payload = done ? json_incref(json_object_get(record, "result")) : error_payload(record, id);
    char *text = payload ? json_dumps(payload, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    fth_exchange_set_header(exchange, "X-Amz-Executed-Version", "$LATEST");
    if (!done)
        fth_exchange_set_header(exchange, "X-Amz-Function-Error", "Unhandled");
    if (details)
        set_log_tail(fth_service_folder(service), id, exchange);
    fth_exchange_answer(exchange, 200, "application/json", text ? text : "null", text ? strlen(text) : 4);
    free(text);
    json_decref(payload);
}

static void refuse_throttled(fth_exchange *exchange)
{
    fth_exchange_set_header(exchange, "x-amzn-ErrorType", "TooManyRequestsException");
    fth_exchange_answer_json(exchange, 429,
                             json_pack("{s:s, s:s, s:s}", "Type", "User", "message", "Rate Exceeded.", "Reason",
                                       "ConcurrentInvocationLimitExceeded"));
}

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
        fth_exchange_set_header(exchange, "x-amzn-RequestId", id);
        fth_exchange_answer(exchange, 202, "application/json", "", 0);
    }
}

static void invoke(fth_platform_service *service, const char *name, fth_exchange *exchange)
{
    static const char with_logs[] = "logs";
    size_t size;
    const char *body = fth_exchange_body(exchange, &size),
               *type = fth_exchange_header(exchange, "X-Amz-Invocation-Type");
    const char *logs = fth_exchange_header(exchange, "X-Amz-Log-Type");
    json_t *value = size > 0 ? json_loadb(body, size, JSON_DECODE_ANY, NULL) : json_object();
    bool throttled = false;

    type = type ? type : "RequestResponse";
    if (size > FTH_RUNTIME_MAX_PAYLOAD) {
        refuse(exchange, 413, "RequestTooLargeException", "the payload is larger than 6 MB");
    } else if (!value) {
        refuse(exchange, 400, "InvalidRequestContentException", "Could not parse request body into json");
    } else if (strcmp(type, "DryRun") == 0) {
        fth_exchange_answer(exchange, 204, "application/json", "", 0);
    } else if (strcmp(type, "Event") == 0) {
        start_only(service, name, value, exchange);
    } else if (strcmp(type, "RequestResponse") != 0) {
        refuse(exchange, 400, "InvalidParameterValueException",
               "the invocation type is RequestResponse, Event or DryRun");
    } else {
        fth_status status = fth_service_invoke(service, exchange, name, value, LONGEST_WAIT_S, answer_invocation,
                                               logs && strcasecmp(logs, "Tail") == 0 ? with_logs : NULL, &throttled);
        if (status != FTH_OK)
            refuse_failure(exchange, status);
        else if (throttled)
            refuse_throttled(exchange);
    }
    json_decref(value);
}

/* ---- paths ---- */

/* The name in "NAME" or "ARN:function:NAME[:QUALIFIER]" before the next slash; "" if invalid. */
static void read_name(const char *path, char name[FTH_ACTION_NAME], const char **rest)
{
    size_t length = strcspn(path, "/");
    *rest = path[length] ? path + length + 1 : "";
    char *text = strndup(path, length), *arn = text ? strstr(text, ":function:") : NULL;
    const char *begin = arn ? arn + strlen(":function:") : text ? text : "";
    snprintf(name, FTH_ACTION_NAME, "%.*s", (int)strcspn(begin, ":"), begin);
    free(text);
    if (!fth_action_name_is_valid(name))
        name[0] = '\0';
}

static void handle_function(fth_platform_service *service, const char *path, const json_t *given,
                            fth_exchange *exchange)
{
    const char *method = fth_exchange_method(exchange), *folder = fth_service_folder(service), *rest;
    char name[FTH_ACTION_NAME];
    const bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0, puts = strcmp(method, "PUT") == 0;

    read_name(path, name, &rest);
    if (!*name || !fth_action_exists(folder, name)) {
        refuse_missing(exchange, name);
    } else if (strcmp(rest, "invocations") == 0 && strcmp(method, "POST") == 0) {
        invoke(service, name, exchange);
    } else if (puts && (strcmp(rest, "code") == 0 || strcmp(rest, "configuration") == 0)) {
        if (json_is_object(given))
            update_function(folder, name, given, strcmp(rest, "code") == 0, exchange);
        else
            refuse(exchange, 400, "InvalidRequestContentException", "Could not parse request body into json");
    } else if (reads && (!*rest || strcmp(rest, "configuration") == 0)) {
        answer_function(folder, name, !*rest, 200, exchange);
    } else if (!*rest && strcmp(method, "DELETE") == 0) {
        fth_status status = fth_action_remove(folder, name);
        if (status == FTH_OK)
            fth_exchange_answer(exchange, 204, "application/json", "", 0);
        else
            refuse_failure(exchange, status);
    } else {
        refuse(exchange, 404, "ResourceNotFoundException", "this part of Lambda's API is not served here");
    }
}

void fth_lambda_handle(void *context, fth_exchange *exchange)
{
    fth_platform_service *service = context;
    const char *path = fth_exchange_path(exchange) + strlen(FUNCTIONS), *method = fth_exchange_method(exchange);
    size_t size;
    const char *body = fth_exchange_body(exchange, &size);
    json_t *given = NULL;

    if (!fth_lambda_is_signed(fth_service_get_key(service), exchange)) {
        refuse(exchange, 403, "InvalidSignatureException",
               "The request signature we calculated does not match the signature you provided. Check the key of the "
               "functions' service, and the clock.");
        return;
    }
    fth_exchange_set_authenticated(exchange);
    if (!strstr(path, "/invocations") && size > 0)
        given = json_loadb(body, size, 0, NULL);
    if (*path == '/' && path[1])
        handle_function(service, path + 1, given, exchange);
    else if (strcmp(path, "/") != 0 && *path)
        refuse(exchange, 404, "ResourceNotFoundException", "not found");
    else if (strcmp(method, "GET") == 0)
        list_functions(fth_service_folder(service), exchange);
    else if (strcmp(method, "POST") == 0 && json_is_object(given))
        create_function(fth_service_folder(service), given, exchange);
    else
        refuse(exchange, 400, "InvalidRequestContentException", "Could not parse request body into json");
    json_decref(given);
}
