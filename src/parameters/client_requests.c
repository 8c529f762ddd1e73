/* A worker's requests, each try signed separately and retried while the server is away or busy. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "http/local_token.h"
#include "parameters/client_internal.h"

#define REQUEST_S    300.0
#define RETRY_MOST_S 2.0

enum { MAX_HEADER_BYTES = 64 << 20 };

fth_status fth_client_ask_once(fth_worker_client *client, fth_http_client *http, const fth_question *q, double seconds,
                               fth_http_response *response)
{
    fth_status status = FTH_OK;
    char authorization[FTH_MAX_AUTHORIZATION + 32] = "Authorization: ", worker[FTH_MAX_WORKER_NAME + 32];
    char memory[96];
    fth_signer signer = client->connection.signer;
    bool has_key = *signer.access != '\0';
    const char *headers[5] = {worker, "Content-Type: application/octet-stream"};
    int header_count = 2;
    char *url = fth_format("%s%s", client->connection.whole_url, q->target);

    snprintf(worker, sizeof worker, "X-Farthing-Worker: %s", client->name);
    if (!has_key)
        FTH_TRY(fth_signer_find(client->connection.whole_url, &signer, &has_key));
    if (has_key) { /* for each try: a signature is valid once. With the user's own token the memory is not hashed. */
        bool as_it_is = q->memory > 0 && *signer.local;
        FTH_TRY(fth_signer_sign(&signer, q->method, q->target, q->body, as_it_is ? 0 : q->body_bytes,
                                authorization + strlen(authorization)));
        headers[header_count++] = authorization;
    }
    if (q->memory > 0) {
        snprintf(memory, sizeof memory, FTH_LOCAL_HEADER ": %ld %d %zu %" PRIu64, (long)getpid(), q->memory,
                 q->body_bytes, q->stamp);
        headers[header_count++] = memory;
    }
    fth_http_request request = {
        .method = q->method,
        .url = url,
        .headers = headers,
        .address = signer.local,
        .body = q->memory > 0 ? "" : q->body,
        .body_bytes = q->memory > 0 ? 0 : q->body_bytes,
        .into = q->into,
        .into_bytes = q->into_bytes,
        .max_body_bytes = MAX_HEADER_BYTES,
        .stall_s = q->wait_s + 30,
        .deadline = {fmin(fth_deadline_in(seconds + q->wait_s).at_seconds, client->deadline_s)}};
    FTH_TRY(fth_http_perform(http, &request, response));
    atomic_fetch_add(&client->traffic.sent_bytes, q->body_bytes);
    atomic_fetch_add(&client->traffic.received_bytes, response->body_bytes);

out:
    fth_wipe(&signer, sizeof signer);
    free(url);
    return status;
}

static double retry_after(const fth_http_response *response)
{
    char *text = fth_http_header(response, "Retry-After");
    double seconds = text ? strtod(text, NULL) : 0;
    free(text);
    return fmin(fmax(seconds, 0), 60);
}

static fth_status add_advice(fth_status status, const char *advice)
{
    char why[512];
    snprintf(why, sizeof why, "%s", fth_error_message());
    return fth_fail(status, "%s; %s", why, advice);
}

fth_status fth_client_fail_if_stopped(const fth_worker_client *client)
{
    return client->stop && client->stop->asked
               ? fth_fail(FTH_INTERRUPTED, "stopped while waiting for the parameter server %s", client->connection.url)
               : FTH_OK;
}

void fth_client_wait(const fth_worker_client *client, double seconds, fth_deadline deadline)
{
    const double look_every_s = 0.05;
    fth_deadline until = fth_deadline_in(fmin(seconds, fth_deadline_left_seconds(deadline)));
    while (!fth_deadline_passed(until) && !(client->stop && client->stop->asked)) {
        double wait_s = fmin(look_every_s, fmax(fth_deadline_left_seconds(until), 0));
        nanosleep(&(struct timespec){.tv_nsec = (long)(wait_s * 1e9)}, NULL);
    }
}

fth_deadline fth_client_give_up(const fth_worker_client *client)
{
    return (fth_deadline){fmin(fth_deadline_in(client->patience_s).at_seconds, client->deadline_s)};
}

fth_status fth_client_ask(fth_worker_client *client, const fth_question *q, fth_http_response *response)
{
    fth_backoff backoff = {.most_s = RETRY_MOST_S};
    fth_deadline deadline = fth_client_give_up(client);
    bool warned = false;
    for (;;) {
        *response = (fth_http_response){0};
        fth_status status = fth_client_ask_once(client, client->connection.http, q, REQUEST_S, response);
        bool busy = status == FTH_OK && (response->code == 503 || response->code == 429 || response->code == 500);
        if (status == FTH_IO && !client->connection.pinned_key && !client->connection.ca_file &&
            strncmp(client->connection.url, "https://", 8) == 0)
            return add_advice(
                status, "pass the fingerprint that the server printed as --server-pin (for functions: \"server_pin\")");
        if (status != FTH_OK && status != FTH_PEER_LOST && status != FTH_TIMEOUT)
            return status;
        if (status == FTH_OK && !busy)
            return FTH_OK;
        double pause_s = busy ? retry_after(response) : 0;
        char why[512];
        if (busy)
            snprintf(why, sizeof why, "it answered %d: %.400s", response->code, response->body ? response->body : "");
        else
            snprintf(why, sizeof why, "%s", fth_error_message());
        fth_http_response_release(response);
        if (!warned && backoff.tries >= 3)
            fth_log_warning("the parameter server %s does not accept requests; retrying for %.0f s: %s",
                            client->connection.url, client->patience_s, why);
        warned = warned || backoff.tries >= 3;
        fth_client_wait(client, fth_backoff_next_s(&backoff, pause_s), deadline);
        status = fth_client_fail_if_stopped(client);
        if (status != FTH_OK)
            return status;
        if (fth_deadline_passed((fth_deadline){client->deadline_s}))
            return fth_fail(FTH_TIMEOUT, "the parameter server %s did not accept a request in time: %s",
                            client->connection.url, why);
        if (fth_deadline_passed(deadline))
            return fth_fail(FTH_PEER_LOST,
                            "the parameter server %s did not accept a request for %.0f s (--server-timeout): %s",
                            client->connection.url, client->patience_s, why);
    }
}

fth_status fth_client_fail_refused(const fth_worker_client *client, fth_status status, const char *what,
                                   const fth_http_response *response)
{
    json_t *json = response->body ? json_loads(response->body, 0, NULL) : NULL;
    const char *error = json_string_value(json_object_get(json, "error"));
    bool signature = (response->code == 401 || response->code == 403) && !fth_client_has_reason(response, "clock") &&
                     !fth_client_has_reason(response, "host");
    fth_set_error("the parameter server %s refuses %s (%d): %.300s%s", client->connection.url, what, response->code,
                  error ? error : "no reason given",
                  signature ? "; set a worker's key in FARTHING_ACCESS_KEY and FARTHING_SECRET_KEY" : "");
    json_decref(json);
    return status;
}

bool fth_client_has_reason(const fth_http_response *response, const char *reason)
{
    json_t *json = response->body ? json_loads(response->body, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(json, "reason"));
    bool same = text && strcmp(text, reason) == 0;
    json_decref(json);
    return same;
}
