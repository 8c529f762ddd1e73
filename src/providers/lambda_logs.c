/* Logs of a Lambda function, kept by CloudWatch: group /aws/lambda/NAME, one stream per process
 * (https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/). An invocation's lines
 * are between its START and REPORT lines. */
#include <stdlib.h>
#include <string.h>

#include "providers/lambda_internal.h"

enum { MAX_EVENTS = 10000, MAX_FILTER_PAGES = 20 };

static fth_status ask(fth_aws_service *service, const char *action, const json_t *body, json_t **json)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char *text = json_dumps(body, JSON_COMPACT), *target = fth_format("Logs_20140328.%s", action);
    const fth_pair headers[] = {{"content-type", "application/x-amz-json-1.1"}, {"x-amz-target", target}};

    *json = NULL;
    FTH_REQUIRE(text && target, FTH_NO_MEMORY, "no memory for a request");
    fth_rest_call call = {.what = "ask for the logs",
                          .method = "POST",
                          .path = "/",
                          .headers = headers,
                          .header_count = FTH_COUNT_OF(headers),
                          .body = text,
                          .body_bytes = strlen(text)};
    FTH_TRY(fth_aws_send(service, &call, &response));
    FTH_TRY(fth_rest_check(service->rest, &call, &response, FTH_LAMBDA_KEYS_ADVICE));
    FTH_TRY(fth_rest_parse(service->rest, &call, &response, json));

out:
    fth_http_response_release(&response);
    free(text);
    free(target);
    return status;
}

/* The stream of the invocation `id`, or the one written to last; or NULL. free() it. */
static fth_status find_stream(fth_aws_service *service, const char *group, const char *id, char **stream)
{
    fth_status status = FTH_OK;
    json_t *body = NULL, *json = NULL;
    char *next = NULL;
    *stream = NULL;
    if (!id) {
        body = json_pack("{s:s, s:s, s:b, s:i}", "logGroupName", group, "orderBy", "LastEventTime", "descending", 1,
                         "limit", 1);
        FTH_TRY(ask(service, "DescribeLogStreams", body, &json));
        const char *name =
            json_string_value(json_object_get(json_array_get(json_object_get(json, "logStreams"), 0), "logStreamName"));
        *stream = name ? strdup(name) : NULL;
        goto out;
    }
    char pattern[96];
    snprintf(pattern, sizeof pattern, "\"%.80s\"", id);
    for (int page = 0; page < MAX_FILTER_PAGES && !*stream; page++) {
        json_decref(body);
        json_decref(json);
        body = json_pack("{s:s, s:s}", "logGroupName", group, "filterPattern", pattern);
        if (next)
            json_object_set_new(body, "nextToken", json_string(next));
        FTH_TRY(ask(service, "FilterLogEvents", body, &json));
        const char *name =
            json_string_value(json_object_get(json_array_get(json_object_get(json, "events"), 0), "logStreamName"));
        const char *token = json_string_value(json_object_get(json, "nextToken"));
        *stream = name ? strdup(name) : NULL;
        free(next);
        next = token ? strdup(token) : NULL;
        if (!next)
            break;
    }

out:
    json_decref(body);
    json_decref(json);
    free(next);
    return status;
}

static bool has(const char *message, const char *word, const char *id)
{
    const char *at = strncmp(message, word, strlen(word)) == 0 ? strstr(message, "RequestId: ") : NULL;
    return at && (!id || strncmp(at + 11, id, strlen(id)) == 0);
}

/* The events of one invocation, from its START (or the last one) to its REPORT; all events if there
 * is no START. */
static char *cut_out(const json_t *events, const char *id)
{
    size_t first = 0, end = json_array_size(events), room = 1, used = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const char *message = json_string_value(json_object_get(json_array_get(events, i), "message"));
        if (message && has(message, "START ", id)) {
            first = i;
            end = json_array_size(events);
        } else if (message && has(message, "REPORT ", id) && end == json_array_size(events)) {
            end = i + 1;
        }
    }
    for (size_t i = first; i < end; i++)
        room += json_string_length(json_object_get(json_array_get(events, i), "message")) + 1;
    char *text = malloc(room);
    for (size_t i = first; text && i < end; i++) {
        const json_t *message = json_object_get(json_array_get(events, i), "message");
        size_t length = json_string_length(message);
        if (length == 0)
            continue;
        memcpy(text + used, json_string_value(message), length);
        used += length;
        if (text[used - 1] != '\n')
            text[used++] = '\n';
    }
    if (text)
        text[used] = '\0';
    return text;
}

fth_status fth_lambda_logs(fth_provider *base, const char *name, const char *id, char **text)
{
    fth_status status = FTH_OK;
    fth_lambda_provider *provider = (fth_lambda_provider *)base;
    fth_aws_service service = {0};
    json_t *body = NULL, *json = NULL;
    char *stream = NULL, *group = fth_format("/aws/lambda/%s", name);
    const fth_provider_options options = {
        .host = provider->endpoint, .region = provider->region, .ca_file = provider->ca_file, .stop = provider->stop};

    *text = NULL;
    FTH_REQUIRE(group, FTH_NO_MEMORY, "no memory for a name");
    FTH_TRY(
        fth_aws_service_open("logs", "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", &options, provider->credentials, &service));
    FTH_TRY(find_stream(&service, group, id, &stream));
    FTH_REQUIRE(stream, FTH_INVALID, "no logs of %s%s%s in %s: the last lines take a minute to get there", name,
                id ? ", invocation " : "", id ? id : "", group);
    body = json_pack("{s:s, s:s, s:i, s:b}", "logGroupName", group, "logStreamName", stream, "limit", MAX_EVENTS,
                     "startFromHead", 0);
    FTH_TRY(ask(&service, "GetLogEvents", body, &json));
    *text = cut_out(json_object_get(json, "events"), id);
    FTH_REQUIRE(*text, FTH_NO_MEMORY, "no memory for logs");

out:
    fth_aws_service_close(&service);
    json_decref(body);
    json_decref(json);
    free(stream);
    free(group);
    return status;
}
