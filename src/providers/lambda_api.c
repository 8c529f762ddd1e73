/* AWS Lambda's REST API: opening and invoking
 * (https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html).
 *
 * Lambda keeps no record of an invocation, so a caller that needs the result waits on the request
 * that started it (RequestResponse), up to 15 minutes. Event answers at once and loses the result,
 * which is enough for a function that invokes itself. */
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "providers/lambda_internal.h"

enum { MAX_NAME = 400, MAX_LOG_BYTES = 64 << 10 };

static void close_provider(fth_provider *base)
{
    fth_lambda_provider *provider = (fth_lambda_provider *)base;
    if (!provider)
        return;
    fth_aws_service_close(&provider->lambda);
    fth_credentials_free(provider->credentials);
    free(provider->endpoint);
    free(provider->region);
    free(provider->ca_file);
    free(provider);
}

static fth_status copy_text(const char *text, char **copy)
{
    *copy = text && *text ? strdup(text) : NULL;
    return *copy || !text || !*text ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an option");
}

static fth_status open_provider(const fth_provider_options *options, fth_provider **result)
{
    fth_status status = FTH_OK;
    fth_lambda_provider *provider = NULL;
    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *provider, &provider));
    provider->base.kind = &fth_provider_lambda;
    provider->detached = options->detached;
    provider->stop = options->stop;
    FTH_TRY(copy_text(options->host, &provider->endpoint));
    FTH_TRY(copy_text(options->region, &provider->region));
    FTH_TRY(copy_text(options->ca_file, &provider->ca_file));
    FTH_REQUIRE(!options->insecure, FTH_INVALID,
                "Lambda's certificate is always checked; --ca-file names the certificates to trust");
    FTH_TRY(fth_credentials_open(NULL, false, &provider->credentials));
    FTH_TRY(
        fth_aws_service_open("lambda", "AWS_ENDPOINT_URL_LAMBDA", options, provider->credentials, &provider->lambda));
    *result = &provider->base;
    provider = NULL;

out:
    close_provider(provider ? &provider->base : NULL);
    return status;
}

fth_status fth_lambda_path(const char *name, const char *rest, char **path)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_:$.";
    *path = NULL;
    if (!*name || strlen(name) > MAX_NAME || strspn(name, allowed) != strlen(name) || strstr(name, ".."))
        return fth_fail(FTH_INVALID,
                        "\"%.80s\" is not the name of a Lambda function; expected letters, digits, - and _, or an ARN",
                        name);
    char *escaped = fth_http_escape(name, false);
    *path = escaped ? fth_format("/2015-03-31/functions/%s%s", escaped, rest) : NULL;
    free(escaped);
    return *path ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an address");
}

/* ---- answers ---- */

static double read_figure(const char *report, const char *name)
{
    const char *at = report ? strstr(report, name) : NULL;
    char *end = NULL;
    double value = at ? strtod(at + strlen(name), &end) : NAN;
    return at && end > at + strlen(name) && isfinite(value) && value >= 0 ? value : NAN;
}

/* Reads the REPORT line of an invocation's logs: billed time, cold start, peak memory. */
static void read_report(const char *logs, fth_invocation_outcome *outcome)
{
    const char *report = NULL;
    for (const char *at = logs; at && (at = strstr(at, "REPORT RequestId:")); at++)
        report = at; /* the function may print this too; the last one is the platform's */
    outcome->duration_s = read_figure(report, "Billed Duration:") / 1000;
    outcome->start_s = read_figure(report, "Init Duration:") / 1000;
    outcome->peak_bytes = read_figure(report, "Max Memory Used:") * 1024 * 1024;
}

/* The last 4 KB of the logs, in base64. */
static char *read_log_tail(const fth_http_response *response)
{
    char *encoded = fth_http_header(response, "X-Amz-Log-Result"), *text = NULL;
    size_t length = encoded ? strlen(encoded) : 0;
    if (length > 0 && length <= MAX_LOG_BYTES && length % 4 == 0 && (text = malloc(length / 4 * 3 + 1))) {
        int bytes = EVP_DecodeBlock((unsigned char *)text, (const unsigned char *)encoded, (int)length);
        for (size_t i = length; bytes > 0 && i > length - 2 && encoded[i - 1] == '='; i--)
            bytes--;
        text[bytes > 0 ? bytes : 0] = '\0';
    }
    free(encoded);
    return text;
}

/* Explains a failed function: {"errorMessage", "errorType"}. */
static char *explain_failure(const char *kind, const fth_http_response *response)
{
    json_t *json = json_loadb(response->body, (size_t)response->body_bytes, JSON_DECODE_ANY, NULL);
    const char *message = json_string_value(json_object_get(json, "errorMessage"));
    const char *type = json_string_value(json_object_get(json, "errorType"));
    char *text = fth_format("%.80s%s%.400s", type ? type : kind, message ? ": " : "", message ? message : "");
    json_decref(json);
    return text;
}

static void read_answer(const fth_http_response *response, fth_invocation_outcome *outcome)
{
    char *failed = fth_http_header(response, "X-Amz-Function-Error");
    outcome->logs = read_log_tail(response);
    read_report(outcome->logs, outcome);
    if (failed) {
        outcome->state = FTH_INVOCATION_FAILED;
        outcome->error = explain_failure(failed, response);
    } else {
        json_t *json = json_loadb(response->body, (size_t)response->body_bytes, JSON_DECODE_ANY, NULL);
        outcome->state = FTH_INVOCATION_DONE;
        outcome->result = json_is_object(json) ? json_incref(json) : json ? json_pack("{s:O}", "value", json) : NULL;
        json_decref(json);
    }
    free(failed);
}

static fth_status read_invoked(const fth_lambda_provider *provider, const fth_rest_call *call,
                               const fth_http_response *response, fth_invocation_outcome *outcome)
{
    char *id = fth_http_header(response, "x-amzn-RequestId");
    fth_status status = FTH_OK;
    if (id)
        fth_printable_copy(outcome->id, sizeof outcome->id, id);
    if (!fth_rest_read_refusal(provider->lambda.rest, call, response, outcome)) {
        status = fth_rest_check(provider->lambda.rest, call, response, FTH_LAMBDA_KEYS_ADVICE);
        if (status == FTH_OK && !provider->detached)
            read_answer(response, outcome);
    }
    free(id);
    return status;
}

/* ---- invoke ---- */

static fth_status invoke(fth_provider *base, const char *name, const json_t *parameters, fth_deadline deadline,
                         fth_invocation_outcome *outcome)
{
    fth_status status = FTH_OK;
    fth_lambda_provider *provider = (fth_lambda_provider *)base;
    fth_http_response response = {0};
    char *path = NULL, *what = fth_format("invoke %s", name);
    char *body = parameters ? json_dumps(parameters, JSON_COMPACT) : strdup("{}");
    const fth_pair headers[] = {{"content-type", "application/json"},
                                {"x-amz-invocation-type", provider->detached ? "Event" : "RequestResponse"},
                                {"x-amz-log-type", "Tail"}};

    fth_invocation_outcome_init(outcome);
    FTH_REQUIRE(what && body, FTH_NO_MEMORY, "no memory for an invocation");
    FTH_TRY(fth_lambda_path(name, "/invocations", &path));
    fth_rest_call call = {.what = what,
                          .method = "POST",
                          .path = path,
                          .headers = headers,
                          .header_count = provider->detached ? 2 : 3,
                          .body = body,
                          .body_bytes = strlen(body),
                          .once = true,
                          .slow = !provider->detached,
                          .deadline = deadline};
    status = fth_aws_send(&provider->lambda, &call, &response);
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

static fth_status poll_nothing(fth_provider *provider, const char *name, const char *id, fth_deadline deadline,
                               fth_invocation_outcome *outcome)
{
    (void)provider, (void)deadline;
    fth_invocation_outcome_init(outcome);
    return fth_fail(FTH_UNSUPPORTED, "Lambda does not report the outcome of invocation %s of %s", id, name);
}

const fth_provider_kind fth_provider_lambda = {
    .name = "lambda",
    .summary = "AWS Lambda, by its REST API",
    .open = open_provider,
    .close = close_provider,
    .deploy = fth_lambda_deploy,
    .invoke = invoke,
    .poll = poll_nothing,
    .status = fth_lambda_status,
    .logs = fth_lambda_logs,
    .remove = fth_lambda_remove,
};
