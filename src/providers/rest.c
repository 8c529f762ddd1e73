/* See rest.h. A client of http.h handles one request at a time, so a pool of them is kept. */
#include "providers/rest.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { IDLE_CLIENTS = 16, MAX_ANSWER_BYTES = 32 << 20, REASON_CHARACTERS = 400 };

static const double DEFAULT_DEADLINE_S = 60;
static const double CONNECT_FOR_S = 20; /* for a server that cannot be reached at all */
static const double MAX_RETRY_AFTER_S = 300;

struct fth_rest {
    char *platform, *base, *advice, *server, *ca_file;
    bool insecure;
    const fth_stop *stop;
    fth_status (*authorize)(void *context, const fth_rest_call *call, char ***lines);
    void *context;
    pthread_mutex_t mutex; /* guards what follows */
    fth_http_client *idle[IDLE_CLIENTS];
    int idle_count;
};

/* "https://host" of "https://host/path". */
static char *origin_of(const char *base)
{
    char *origin = fth_http_harmless_url(base), *host = origin ? strstr(origin, "://") : NULL;
    if (host)
        host[3 + strcspn(host + 3, "/")] = '\0';
    return origin;
}

fth_status fth_rest_open(const fth_rest_options *options, fth_rest **result)
{
    fth_status status = FTH_OK;
    fth_rest *rest = NULL;
    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *rest, &rest));
    pthread_mutex_init(&rest->mutex, NULL);
    rest->insecure = options->insecure;
    rest->stop = options->stop;
    rest->authorize = options->authorize;
    rest->context = options->context;
    rest->platform = strdup(options->platform);
    rest->advice = strdup(options->advice);
    rest->base = strdup(options->base);
    rest->server = origin_of(options->base);
    rest->ca_file = options->ca_file ? strdup(options->ca_file) : NULL;
    FTH_REQUIRE(rest->platform && rest->advice && rest->base && rest->server && (rest->ca_file || !options->ca_file),
                FTH_NO_MEMORY, "no memory for a client of %s", options->platform);
    *result = rest;
    rest = NULL;

out:
    fth_rest_free(rest);
    return status;
}

void fth_rest_free(fth_rest *rest)
{
    if (!rest)
        return;
    for (int i = 0; i < rest->idle_count; i++)
        fth_http_client_free(rest->idle[i]);
    pthread_mutex_destroy(&rest->mutex);
    free(rest->platform);
    free(rest->base);
    free(rest->advice);
    free(rest->server);
    free(rest->ca_file);
    free(rest);
}

const char *fth_rest_server(const fth_rest *rest)
{
    return rest->server;
}

bool fth_rest_is_stopped(const fth_rest *rest)
{
    return rest->stop && rest->stop->asked;
}

/* ---- connections ---- */

static fth_status take_client(fth_rest *rest, fth_http_client **client)
{
    *client = NULL;
    pthread_mutex_lock(&rest->mutex);
    if (rest->idle_count > 0)
        *client = rest->idle[--rest->idle_count];
    pthread_mutex_unlock(&rest->mutex);
    if (*client)
        return FTH_OK;
    return fth_http_client_open(
        &(fth_http_client_options){.ca_file = rest->ca_file, .insecure = rest->insecure, .attentive = true}, client);
}

static void give_client(fth_rest *rest, fth_http_client *client)
{
    pthread_mutex_lock(&rest->mutex);
    bool kept = client && rest->idle_count < IDLE_CLIENTS;
    if (kept)
        rest->idle[rest->idle_count++] = client;
    pthread_mutex_unlock(&rest->mutex);
    if (!kept)
        fth_http_client_free(client);
}

/* ---- tries ---- */

static int look_for_stop(void *context, uint64_t sent_bytes, uint64_t received_bytes)
{
    (void)sent_bytes, (void)received_bytes;
    return fth_rest_is_stopped(context) ? 1 : 0;
}

static fth_status attempt(fth_rest *rest, const fth_rest_call *call, fth_deadline deadline, fth_http_response *response)
{
    fth_status status = FTH_OK;
    fth_http_client *client = NULL;
    char **lines = NULL, *url = NULL;
    char *query = fth_sigv4_query(call->query, call->query_count);

    url = query ? fth_format("%s%s%s%s", rest->base, call->path, *query ? "?" : "", query) : NULL;
    FTH_REQUIRE(url, FTH_NO_MEMORY, "no memory for a request");
    FTH_TRY(rest->authorize(rest->context, call, &lines));
    FTH_TRY(take_client(rest, &client));
    double left_s = fth_deadline_left_seconds(deadline);
    status = fth_http_perform(client,
                              &(fth_http_request){.method = call->method,
                                                  .url = url,
                                                  .headers = (const char *const *)lines,
                                                  .body = call->body,
                                                  .body_bytes = call->body_bytes,
                                                  .max_body_bytes = MAX_ANSWER_BYTES,
                                                  .connect_s = fmin(10, fmax(1, left_s / 4)),
                                                  .stall_s = call->slow ? fmax(1, left_s) : 30,
                                                  .deadline = deadline,
                                                  .progress = look_for_stop,
                                                  .progress_context = rest},
                              response);

out:
    fth_sigv4_free_lines(lines);
    give_client(rest, client);
    free(query);
    free(url);
    return status;
}

bool fth_rest_pause(const fth_rest *rest, fth_backoff *backoff, double at_least_s, fth_deadline deadline)
{
    double wait_s = fth_backoff_next_s(backoff, at_least_s);
    if (fth_deadline_left_seconds(deadline) <= wait_s)
        return false;
    fth_deadline until = fth_deadline_in(wait_s);
    while (!fth_deadline_passed(until) && !fth_rest_is_stopped(rest)) {
        double slice_s = fmin(0.05, fth_deadline_left_seconds(until));
        nanosleep(&(struct timespec){.tv_nsec = (long)(slice_s * 1e9)}, NULL);
    }
    return !fth_rest_is_stopped(rest);
}

static bool worth_retrying(int code)
{
    return code == 408 || code == 429 || code == 500 || code == 502 || code == 503 || code == 504;
}

double fth_rest_retry_after_s(const fth_http_response *response)
{
    char *text = fth_http_header(response, "Retry-After");
    double seconds = text ? strtod(text, NULL) : 0; /* a date gives 0 or a year, which is harmless */
    free(text);
    return seconds > 0 ? fmin(seconds, MAX_RETRY_AFTER_S) : 0;
}

static fth_status explain_stop(const fth_rest *rest, const fth_rest_call *call)
{
    return fth_fail(FTH_INTERRUPTED, "%s on %s at %s: stopped", call->what, rest->platform, rest->server);
}

/* Prefixes the current message with the call. */
static fth_status give_up(const fth_rest *rest, const fth_rest_call *call, fth_status status, bool sent, int tries)
{
    char cause[512];
    snprintf(cause, sizeof cause, "%s", fth_error_message());
    return fth_fail(status, "%s on %s at %s: %s (%s)%s%s", call->what, rest->platform, rest->server, cause,
                    FTH_COUNTED(tries, "try"), sent ? "" : "; ", sent ? "" : rest->advice);
}

fth_status fth_rest_send(fth_rest *rest, fth_rest_call *call, fth_http_response *response)
{
    fth_backoff backoff = {.first_s = 0.2, .most_s = 5};
    fth_deadline deadline = call->deadline.at_seconds > 0 ? call->deadline : fth_deadline_in(DEFAULT_DEADLINE_S);
    fth_deadline connect_until = fth_deadline_in(fmin(CONNECT_FOR_S, fth_deadline_left_seconds(deadline)));
    call->uncertain = false;
    *response = (fth_http_response){0};
    for (int tries = 1;; tries++) {
        fth_http_response_release(response);
        if (fth_rest_is_stopped(rest))
            return explain_stop(rest, call);
        fth_status status = attempt(rest, call, deadline, response);
        if (status == FTH_INTERRUPTED)
            return explain_stop(rest, call);
        if (status == FTH_OK && (call->once || !worth_retrying(response->code)))
            return FTH_OK;
        bool unreached = response->failure == FTH_HTTP_UNREACHED || response->failure == FTH_HTTP_UNRESOLVED;
        bool lost = status == FTH_PEER_LOST || status == FTH_TIMEOUT;
        if (status != FTH_OK && !lost) /* a certificate error, a wrong address, an answer that is too large */
            return give_up(rest, call, status, status != FTH_IO, tries);
        if (call->once && !unreached)
            return give_up(rest, call, FTH_PEER_LOST, true, tries);
        double at_least_s = status == FTH_OK ? fth_rest_retry_after_s(response) : 0;
        if (status == FTH_OK) {
            char *reason = fth_rest_reason(response);
            fth_set_error("it answered %d%s%s", response->code, reason ? ": " : "", reason ? reason : "");
            free(reason);
        }
        call->uncertain = call->uncertain || !unreached;
        if (!fth_rest_pause(rest, &backoff, at_least_s, unreached ? connect_until : deadline)) {
            if (fth_rest_is_stopped(rest))
                return explain_stop(rest, call);
            return give_up(rest, call, FTH_IO, !unreached, tries);
        }
    }
}

/* ---- answers ---- */

fth_status fth_rest_parse(const fth_rest *rest, const fth_rest_call *call, const fth_http_response *response,
                          json_t **json)
{
    json_error_t error;
    *json = response->body ? json_loadb(response->body, (size_t)response->body_bytes, JSON_REJECT_DUPLICATES, &error)
                           : NULL;
    if (*json)
        return FTH_OK;
    return fth_fail(FTH_CORRUPT, "%s on %s at %s: the answer (code %d) is not JSON; is this %s's address?", call->what,
                    rest->platform, rest->server, response->code, rest->platform);
}

char *fth_rest_reason(const fth_http_response *response)
{
    static const char *const names[] = {"error", "message", "Message", "errorMessage"};
    char *reason = NULL;
    json_t *json = response->body ? json_loadb(response->body, (size_t)response->body_bytes, 0, NULL) : NULL;
    for (size_t i = 0; i < FTH_COUNT_OF(names) && !reason; i++) {
        const char *text = json_string_value(json_object_get(json, names[i]));
        reason = text && *text ? strndup(text, REASON_CHARACTERS) : NULL;
    }
    json_decref(json);
    return reason;
}

fth_status fth_rest_check(const fth_rest *rest, const fth_rest_call *call, const fth_http_response *response,
                          const char *keys_advice)
{
    if (response->code >= 200 && response->code < 300)
        return FTH_OK;
    if (response->code >= 300 && response->code < 400) {
        char *to = fth_http_header(response, "Location");
        char *shown = to ? fth_http_harmless_url(to) : NULL;
        fth_set_error("%s on %s at %s: it answered %d, a redirection%s%.200s; give the final address", call->what,
                      rest->platform, rest->server, response->code, shown ? " to " : "", shown ? shown : "");
        free(to);
        free(shown);
        return FTH_INVALID;
    }
    char *reason = fth_rest_reason(response);
    bool keys = response->code == 401 || response->code == 403;
    fth_set_error("%s on %s at %s: it answered %d%s%s%s%s", call->what, rest->platform, rest->server, response->code,
                  reason ? ": " : "", reason ? reason : "", keys ? "; " : "", keys ? keys_advice : "");
    free(reason);
    return FTH_INVALID;
}

bool fth_rest_read_refusal(const fth_rest *rest, const fth_rest_call *call, const fth_http_response *response,
                           fth_invocation_outcome *outcome)
{
    const int code = response->code;
    const bool throttled = code == 429 || code == 503;
    if (!throttled && code != 408 && code < 500)
        return false;
    char *reason = fth_rest_reason(response);
    if (throttled) {
        outcome->state = FTH_INVOCATION_THROTTLED;
        outcome->retry_after_s = fth_rest_retry_after_s(response);
        outcome->error = fth_format("not accepted now (%d): %s", code,
                                    reason        ? reason
                                    : code == 429 ? "too many invocations at once"
                                                  : "the service is busy");
    } else {
        outcome->state = FTH_INVOCATION_UNKNOWN;
        outcome->error = fth_format("%s at %s answered %d%s%s", call->what, rest->server, code, reason ? ": " : "",
                                    reason ? reason : "");
    }
    free(reason);
    return true;
}
