/* See rendezvous_client.h. */
#include "cluster/rendezvous_client.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/protocol.h"
#include "cluster/rendezvous.h"

enum { MAX_ANSWER = 64 << 20 };
static const double CONNECT_S = 2, PROBE_S = 3, PAUSE_S = 0.2, REPORT_S = 3;
static const double UNRESOLVED_S = 4; /* a name that is new may take a moment to be known */
static const double FOREIGN_S = 5;    /* something that accepts connections and gives no answer of ours */

struct fth_rendezvous_client {
    fth_http_client *http;
    char *address, *who, *authorization; /* the header; NULL: there is no token */
    char *moved;                         /* where the last answer said that the rendezvous is; NULL: here */
    int64_t generation;                  /* that the last probe found */
};

typedef struct give_up_call {
    fth_give_up give_up;
    void *context;
} give_up_call;

fth_status fth_rendezvous_client_open(const char *address, const char *token, const char *who,
                                      fth_rendezvous_client **result)
{
    fth_status status = FTH_OK;
    fth_rendezvous_client *client = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *client, &client));
    FTH_TRY(fth_http_client_open(&(fth_http_client_options){.no_proxy = true, .attentive = true}, &client->http));
    client->address = strdup(address);
    client->who = strdup(who);
    if (token && *token)
        client->authorization = fth_format("Authorization: Bearer %s", token);
    FTH_REQUIRE(client->address && client->who && (client->authorization || !token || !*token), FTH_NO_MEMORY,
                "no memory for a membership");
    *result = client;
    client = NULL;

out:
    fth_rendezvous_client_free(client);
    return status;
}

void fth_rendezvous_client_free(fth_rendezvous_client *client)
{
    if (!client)
        return;
    fth_http_client_free(client->http);
    free(client->address);
    free(client->who);
    fth_wipe_text(client->authorization);
    free(client->moved);
    free(client);
}

fth_status fth_rendezvous_client_point(fth_rendezvous_client *client, const char *address)
{
    if (strcmp(client->address, address) == 0)
        return FTH_OK;
    char *copy = strdup(address);
    if (!copy)
        return fth_fail(FTH_NO_MEMORY, "no memory for an address");
    free(client->address);
    client->address = copy;
    return FTH_OK;
}

/* ---- one request ---- */

static int watch(void *context, uint64_t sent_bytes, uint64_t received_bytes)
{
    const give_up_call *call = context;
    (void)sent_bytes;
    (void)received_bytes;
    return call->give_up(call->context);
}

static fth_status perform(fth_rendezvous_client *client, const char *method, const char *target,
                          const fth_rendezvous_bytes *body, bool with_token, fth_deadline deadline, fth_give_up give_up,
                          void *context, fth_http_response *response)
{
    give_up_call call = {give_up, context};
    free(client->moved);
    client->moved = NULL;
    const char *headers[] = {with_token ? client->authorization : NULL, NULL};
    char *url = fth_format("http://%s%s", client->address, target);
    if (!url) {
        *response = (fth_http_response){0};
        return fth_fail(FTH_NO_MEMORY, "no memory for a request");
    }
    double left_s = fth_deadline_left_seconds(deadline);
    fth_status status = fth_http_perform(client->http,
                                         &(fth_http_request){.method = method,
                                                             .url = url,
                                                             .headers = headers,
                                                             .body = body ? (body->bytes ? body->bytes : "") : NULL,
                                                             .body_bytes = body ? body->size : 0,
                                                             .max_body_bytes = MAX_ANSWER,
                                                             .connect_s = fmin(CONNECT_S, left_s + 0.001),
                                                             .stall_s = 3600,
                                                             .deadline = deadline,
                                                             .progress = give_up ? watch : NULL,
                                                             .progress_context = &call},
                                         response);
    free(url);
    return status;
}

static bool is_ours(const json_t *answer)
{
    const char *service = json_string_value(json_object_get(answer, "service"));
    return service && strcmp(service, FTH_RENDEZVOUS_NAME) == 0;
}

/* The message of a refusal; FTH_INVALID, but a rendezvous that is stopping or full may be asked
 * again. */
static fth_status explain_refusal(fth_rendezvous_client *client, int code, const json_t *answer)
{
    const char *error = json_string_value(json_object_get(answer, "error"));
    const char *moved = json_string_value(json_object_get(answer, "moved"));
    if (code == FTH_RENDEZVOUS_MOVED && moved)
        client->moved = strdup(moved);
    if (code == 503)
        return fth_fail(FTH_PEER_LOST, "the rendezvous at %s cannot serve %s now: %s", client->address, client->who,
                        error ? error : "it is stopping");
    if (code == 401)
        return fth_fail(FTH_INVALID, "the rendezvous at %s refuses %s: %s", client->address, client->who,
                        error ? error : "wrong token");
    if (!is_ours(answer))
        return fth_fail(FTH_INVALID, "what answers %s at %s is not a farthing rendezvous (HTTP %d)", client->who,
                        client->address, code);
    return fth_fail(FTH_INVALID, "%s", error ? error : "the rendezvous refuses and does not say why");
}

fth_status fth_rendezvous_client_post(fth_rendezvous_client *client, const char *path, const json_t *request,
                                      fth_deadline deadline, fth_give_up give_up, void *context, int *code,
                                      json_t **answer)
{
    fth_http_response response = {0};
    char *body = request ? json_dumps(request, JSON_COMPACT) : NULL;
    *answer = NULL;
    *code = 0;
    if (!body)
        return fth_fail(FTH_NO_MEMORY, "no memory for a request");
    fth_status status = perform(client, "POST", path, &(fth_rendezvous_bytes){body, strlen(body)}, true, deadline,
                                give_up, context, &response);
    free(body);
    if (status != FTH_OK)
        return status;
    *code = response.code;
    json_t *json = json_loadb(response.body, response.body_bytes, JSON_REJECT_DUPLICATES, NULL);
    fth_http_response_release(&response);
    if (*code >= 400 || !is_ours(json)) {
        status = explain_refusal(client, *code, json);
        json_decref(json);
        return status;
    }
    *answer = json;
    return FTH_OK;
}

int64_t fth_rendezvous_client_generation(const fth_rendezvous_client *client)
{
    return client->generation;
}

const char *fth_rendezvous_client_moved(const fth_rendezvous_client *client)
{
    return client->moved;
}

fth_status fth_rendezvous_client_bytes(fth_rendezvous_client *client, const char *target,
                                       const fth_rendezvous_bytes *request, fth_deadline deadline, fth_give_up give_up,
                                       void *context, int *code, fth_rendezvous_bytes *answer)
{
    fth_http_response response = {0};
    *answer = (fth_rendezvous_bytes){0};
    *code = 0;
    fth_status status =
        perform(client, request ? "PUT" : "GET", target, request, true, deadline, give_up, context, &response);
    if (status != FTH_OK)
        return status;
    *code = response.code;
    if (response.code >= 400) {
        json_t *json = json_loadb(response.body, response.body_bytes, JSON_REJECT_DUPLICATES, NULL);
        status = explain_refusal(client, *code, json);
        json_decref(json);
    } else {
        answer->bytes = response.body;
        answer->size = (size_t)response.body_bytes;
        response.body = NULL;
    }
    fth_http_response_release(&response);
    return status;
}

/* ---- the first contact ---- */

/* Why a probe failed; none of these: nothing listens there yet. */
typedef struct probe_failure {
    bool foreign;    /* another server, or one that does not answer */
    bool unresolved; /* the name does not resolve */
} probe_failure;

static fth_status probe(fth_rendezvous_client *client, double seconds, fth_give_up give_up, void *context,
                        probe_failure *failure)
{
    fth_http_response response = {0};
    fth_status status = perform(client, "GET", "/rendezvous", NULL, false, fth_deadline_in(fmin(PROBE_S, seconds)),
                                give_up, context, &response);
    *failure = (probe_failure){0};
    if (status != FTH_OK) {
        failure->unresolved = response.failure == FTH_HTTP_UNRESOLVED;
        failure->foreign = response.failure == FTH_HTTP_NO_ANSWER || response.failure == FTH_HTTP_NOT_HTTP;
        return response.failure == FTH_HTTP_NOT_HTTP ? FTH_INVALID : status;
    }
    json_t *json = json_loadb(response.body, response.body_bytes, JSON_REJECT_DUPLICATES, NULL);
    if (!is_ours(json)) { /* a gateway in front of a rendezvous that has not started answers 5xx */
        failure->foreign = true;
        status = fth_fail(response.code < 500 ? FTH_INVALID : FTH_PEER_LOST, "it answers HTTP %d", response.code);
    }
    const char *moved = json_string_value(json_object_get(json, "moved"));
    client->moved = moved ? strdup(moved) : NULL;
    client->generation = json_integer_value(json_object_get(json, "newest"));
    json_decref(json);
    fth_http_response_release(&response);
    return status;
}

/* The status and message of a caller that gives up. */
static fth_status explain_failure(const fth_rendezvous_client *client, fth_status status, bool foreign)
{
    if (status == FTH_OK || status == FTH_NO_MEMORY || status == FTH_INTERRUPTED)
        return status;
    if (foreign)
        return fth_fail_within(FTH_INVALID, "what %s finds at %s is not a farthing rendezvous", client->who,
                               client->address);
    return fth_fail_within(FTH_TIMEOUT, "%s cannot reach the rendezvous at %s", client->who, client->address);
}

fth_status fth_rendezvous_client_probe(fth_rendezvous_client *client, double seconds, fth_give_up give_up,
                                       void *context)
{
    probe_failure failure;
    fth_status status = probe(client, seconds, give_up, context, &failure);
    return explain_failure(client, status, failure.foreign && status == FTH_INVALID);
}

fth_status fth_rendezvous_client_reach(fth_rendezvous_client *client, fth_deadline deadline, fth_give_up give_up,
                                       void *context)
{
    double foreign_s = 0, unresolved_s = 0;
    for (;;) {
        probe_failure failure;
        double began_s = fth_clock_seconds();
        fth_status status = probe(client, fth_deadline_left_seconds(deadline), give_up, context, &failure);
        double took_s = fth_clock_seconds() - began_s + PAUSE_S;
        foreign_s = failure.foreign ? foreign_s + took_s : 0;
        unresolved_s = failure.unresolved ? unresolved_s + took_s : 0;
        bool foreign = foreign_s >= FOREIGN_S || (failure.foreign && status == FTH_INVALID);
        if (unresolved_s >= UNRESOLVED_S)
            return fth_fail_within(FTH_INVALID, "%s cannot find the rendezvous %s", client->who, client->address);
        if (status == FTH_OK || status == FTH_NO_MEMORY || status == FTH_INTERRUPTED || foreign ||
            fth_deadline_left_seconds(deadline) <= PAUSE_S)
            return explain_failure(client, status, foreign);
        fth_sleep(PAUSE_S);
    }
}

fth_status fth_rendezvous_report_lost(const char *address, const char *token, const char *node, int64_t process,
                                      const char *reason)
{
    fth_status status = FTH_OK;
    fth_rendezvous_client *client = NULL;
    json_t *request = NULL, *answer = NULL;
    char *who = fth_format("the agent of node %s", node);
    int code = 0;

    FTH_REQUIRE(who, FTH_NO_MEMORY, "no memory for a report");
    FTH_TRY(fth_rendezvous_client_open(address, token, who, &client));
    request = json_pack("{s:s, s:I, s:s}", "node", node, "process", (json_int_t)process, "reason", reason);
    status =
        fth_rendezvous_client_post(client, "/lost", request, fth_deadline_in(REPORT_S), NULL, NULL, &code, &answer);
    if (code == FTH_RENDEZVOUS_MOVED && client->moved) {
        FTH_TRY(fth_rendezvous_client_point(client, client->moved));
        status =
            fth_rendezvous_client_post(client, "/lost", request, fth_deadline_in(REPORT_S), NULL, NULL, &code, &answer);
    }

out:
    json_decref(request);
    json_decref(answer);
    fth_rendezvous_client_free(client);
    free(who);
    return status;
}
