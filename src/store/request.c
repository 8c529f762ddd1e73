/* See store_internal.h: one request of a store with its retries, over connections that the store
 * keeps.
 *
 * A client serves one request at a time, so the store keeps as many as it has had requests at once,
 * and the one used last (its connection is the least likely to have been closed) is taken first. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_internal.h"

enum { TOLD_AFTER_TRIES = 3, CAUSE_BYTES = 1024 };

static fth_status take_client(fth_store *store, fth_http_client **client)
{
    *client = NULL;
    pthread_mutex_lock(&store->mutex);
    if (store->idle_count > 0)
        *client = store->idle[--store->idle_count];
    pthread_mutex_unlock(&store->mutex);
    if (*client)
        return FTH_OK;
    const char *ca_file = getenv("AWS_CA_BUNDLE");
    fth_http_client_options options = {.ca_file = ca_file && *ca_file ? ca_file : NULL};
    return fth_http_client_open(&options, client);
}

static void give_client(fth_store *store, fth_http_client *client)
{
    pthread_mutex_lock(&store->mutex);
    bool kept = store->idle_count < FTH_STORE_IDLE_CLIENTS;
    if (kept)
        store->idle[store->idle_count++] = client;
    pthread_mutex_unlock(&store->mutex);
    if (!kept)
        fth_http_client_free(client);
}

/* ---- one try ---- */

typedef struct fth_try {
    fth_store_meter *meter;
    bool sends; /* the body counts, not the answer */
    uint64_t counted_bytes;
} fth_try;

static int count_bytes(void *context, uint64_t sent_bytes, uint64_t received_bytes)
{
    fth_try *attempt = context;
    uint64_t now_bytes = attempt->sends ? sent_bytes : received_bytes;
    int64_t more = (int64_t)(now_bytes - attempt->counted_bytes);
    attempt->counted_bytes = now_bytes;
    return fth_store_meter_add(attempt->meter, more) ? 0 : 1;
}

static bool worth_retrying(int code)
{
    return code == 408 || code == 429 || code == 500 || code == 502 || code == 503 || code == 504;
}

/* A proxy may cut a part of an object short without breaking the connection; the header still says
 * what it was. */
static fth_status check_range(const fth_http_response *response)
{
    uint64_t first, last;
    char *text = response->code == 206 ? fth_http_header(response, "Content-Range") : NULL;
    bool told = text && sscanf(text, "bytes %" SCNu64 "-%" SCNu64, &first, &last) == 2;
    free(text);
    if (!told || last - first + 1 == response->body_bytes)
        return FTH_OK;
    return fth_fail(FTH_CORRUPT, "%" PRIu64 " bytes came of the %" PRIu64 " that were announced", response->body_bytes,
                    last - first + 1);
}

/* *retry: the try failed, and another may succeed. */
static fth_status attempt_once(fth_store *store, fth_store_call *call, fth_http_response *response, bool *retry)
{
    fth_status status = FTH_OK;
    fth_http_client *client = NULL;
    fth_http_request request = call->request;
    fth_try attempt = {.meter = call->meter, .sends = request.body_bytes > 0};

    *retry = false;
    FTH_TRY(take_client(store, &client));
    if (call->prepare)
        FTH_TRY(call->prepare(call->context, &request));
    request.deadline = call->deadline;
    request.stall_s = call->stall_s > 0 ? call->stall_s : fmax(2, store->deadline_s / 4);
    request.connect_s = fmin(10, fmax(1, store->deadline_s / 4));
    if (call->meter) {
        request.progress = count_bytes;
        request.progress_context = &attempt;
    }
    status = fth_http_perform(client, &request, response);
    *retry = status == FTH_PEER_LOST;
    if (status == FTH_OK && response->code < 300) {
        status = check_range(response);
        if (status == FTH_OK && call->check)
            status = call->check(call->context, response);
        *retry = status == FTH_CORRUPT;
    }

out:
    if (call->meter && status == FTH_OK && response->code < 300)
        fth_store_meter_add(call->meter, (int64_t)((attempt.sends ? request.body_bytes : response->body_bytes) -
                                                   attempt.counted_bytes)); /* what was not told yet */
    else if (call->meter)
        fth_store_meter_add(call->meter, -(int64_t)attempt.counted_bytes);
    if (client)
        give_client(store, client);
    return status;
}

/* ---- tries ---- */

static double retry_after_s(const fth_http_response *response)
{
    char *text = fth_http_header(response, "Retry-After");
    double seconds = text ? strtod(text, NULL) : 0; /* a date instead of seconds gives 0 or a year: no matter */
    free(text);
    return seconds > 0 && seconds < 300 ? seconds : 0;
}

/* Sleeps, looking up now and then whether the transfer has been cancelled. */
static bool pause_before_next(fth_store_call *call, fth_backoff *backoff, double at_least_s)
{
    double wait_s = fth_backoff_next_s(backoff, at_least_s);
    if (fth_deadline_left_seconds(call->deadline) <= wait_s)
        return false;
    fth_deadline until = fth_deadline_in(wait_s);
    while (!fth_deadline_passed(until) && (!call->meter || fth_store_meter_add(call->meter, 0))) {
        double slice_s = fmin(0.1, fth_deadline_left_seconds(until));
        struct timespec time = {.tv_nsec = (long)(slice_s * 1e9)};
        nanosleep(&time, NULL);
    }
    return true;
}

static fth_status explain_cancelled(const fth_store_call *call)
{
    return fth_fail(FTH_INTERRUPTED, "%s: cancelled", call->what);
}

/* To the owner of a run, FTH_PEER_LOST means that another machine has the run, and not that a
 * server is out of reach. */
static fth_status status_of_giving_up(fth_status status)
{
    return status == FTH_PEER_LOST ? FTH_IO : status;
}

static fth_status give_up(const fth_store_call *call, fth_status last, const char *cause, bool answered)
{
    return fth_fail(status_of_giving_up(last), "%s: given up after %d %s: %s; %s", call->what, call->tries,
                    call->tries == 1 ? "try" : "tries", cause,
                    answered
                        ? "the server is there, but not well: try again later"
                        : "is the address right (of an S3 server: --s3-endpoint), and can it be reached from here?");
}

static fth_status send_until_done(fth_store *store, fth_store_call *call, fth_http_response *response)
{
    fth_backoff backoff = {.first_s = 0.1, .most_s = 5};
    fth_status last = FTH_OK;
    char cause[CAUSE_BYTES] = "";
    bool answered = false; /* whatever it was */
    if (!call->meter)
        call->meter = fth_store_watched;
    call->tries = 0;
    call->uncertain = false;
    for (;;) {
        bool retry = false;
        fth_http_response_release(response);
        if (call->meter && !fth_store_meter_add(call->meter, 0))
            return explain_cancelled(call);
        call->tries++;
        fth_status status = attempt_once(store, call, response, &retry);
        if (status == FTH_INTERRUPTED)
            return explain_cancelled(call);
        answered = answered || response->code > 0;
        if (status == FTH_OK && response->code >= 300 && !worth_retrying(response->code)) {
            if (call->mend && call->mend(call->context, response))
                continue;
            return FTH_OK;
        }
        if (status == FTH_OK && response->code < 300)
            return FTH_OK;
        if (status == FTH_TIMEOUT &&
            last != FTH_OK) /* the time ran out in a later try: what failed before tells more */
            return give_up(call, last, cause, answered);
        if (status != FTH_OK && !retry)
            return fth_fail_within(status_of_giving_up(status), "%s", call->what);
        double at_least_s = 0;
        if (status == FTH_OK) {
            at_least_s = retry_after_s(response);
            status = fth_fail(FTH_IO, "the server answered %d", response->code);
        }
        call->uncertain = true;
        last = status;
        snprintf(cause, sizeof cause, "%s", fth_error_message());
        fth_store_note_failure(call->what, cause);
        if (call->tries >= TOLD_AFTER_TRIES && call->tries <= TOLD_AFTER_TRIES + 1)
            fth_log_warning("%s: %s; trying again", call->what, fth_error_message());
        if (!pause_before_next(call, &backoff, at_least_s))
            return give_up(call, status, cause, answered);
    }
}

fth_status fth_store_send(fth_store *store, fth_store_call *call, fth_http_response *response)
{
    fth_store_note_begin(call->what);
    fth_status status = send_until_done(store, call, response);
    fth_store_note_end(status == FTH_OK);
    return status;
}
