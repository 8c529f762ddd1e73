/* See coordinator_link.h. */
#include "batches/coordinator_link.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "http/http.h"
#include "http/local_token.h"

enum { MAX_ANSWER_BYTES = 64 << 20 };
#define CONNECT_S 2.0

struct fth_coordinator_link {
    char *url;               /* for messages */
    char *whole_url;         /* without a '/' at the end */
    fth_http_client *client; /* used by the thread whose turn it is */
    pthread_mutex_t mutex;
    pthread_cond_t next_turn;
    uint64_t turn, last_ticket; /* guarded by mutex */
};

fth_status fth_coordinator_link_open(const fth_coordinator_link_options *options, fth_coordinator_link **result)
{
    fth_status status = FTH_OK;
    fth_coordinator_link *link = NULL;
    size_t length;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *link, &link));
    pthread_mutex_init(&link->mutex, NULL);
    pthread_cond_init(&link->next_turn, NULL);
    link->turn = 1;
    link->url = fth_address_public(options->url);
    link->whole_url = fth_address_whole(options->url);
    FTH_REQUIRE(link->url && link->whole_url, FTH_NO_MEMORY, "no memory for an address");
    FTH_REQUIRE(strncmp(link->url, "http://", 7) == 0 || strncmp(link->url, "https://", 8) == 0, FTH_INVALID,
                "\"%s\" is not a coordinator's address; expected http://HOST:PORT", link->url);
    for (length = strlen(link->whole_url); length > 0 && link->whole_url[length - 1] == '/';)
        link->whole_url[--length] = '\0';
    FTH_TRY(fth_http_client_open(
        &(fth_http_client_options){.ca_file = options->ca_file, .pinned_key = options->pinned_key}, &link->client));
    *result = link;
    link = NULL;

out:
    fth_coordinator_link_free(link);
    return status;
}

void fth_coordinator_link_free(fth_coordinator_link *link)
{
    if (!link)
        return;
    fth_http_client_free(link->client);
    fth_wipe_text(link->whole_url);
    free(link->url);
    pthread_mutex_destroy(&link->mutex);
    pthread_cond_destroy(&link->next_turn);
    free(link);
}

const char *fth_coordinator_link_url(const fth_coordinator_link *link)
{
    return link->url;
}

/* ---- requests ---- */

static void wait_for_turn(fth_coordinator_link *link)
{
    pthread_mutex_lock(&link->mutex);
    uint64_t ticket = ++link->last_ticket;
    while (link->turn != ticket)
        pthread_cond_wait(&link->next_turn, &link->mutex);
    pthread_mutex_unlock(&link->mutex);
}

static void end_turn(fth_coordinator_link *link)
{
    pthread_mutex_lock(&link->mutex);
    link->turn++;
    pthread_cond_broadcast(&link->next_turn);
    pthread_mutex_unlock(&link->mutex);
}

/* Signs and performs a request for `target`. */
static fth_status perform(fth_coordinator_link *link, const char *target, fth_http_request *request,
                          fth_http_response *response)
{
    fth_status status = FTH_OK;
    char authorization[FTH_MAX_AUTHORIZATION + 32] = "Authorization: ";
    const char *headers[] = {request->headers ? request->headers[0] : NULL, NULL, NULL};
    char *url = fth_format("%s%s", link->whole_url, target);
    bool has_turn = false, is_signed = false;
    fth_signer signer;

    FTH_REQUIRE(url, FTH_NO_MEMORY, "no memory for a request");
    FTH_TRY(fth_signer_find(link->whole_url, &signer, &is_signed));
    if (is_signed) {
        FTH_TRY(fth_signer_sign(&signer, request->method, target, request->body, request->body_bytes,
                                authorization + strlen(authorization)));
        headers[headers[0] ? 1 : 0] = authorization;
    }
    request->url = url;
    request->headers = headers;
    request->address = signer.local;
    request->connect_s = CONNECT_S;
    wait_for_turn(link);
    has_turn = true;
    FTH_TRY(fth_http_perform(link->client, request, response));

out:
    if (has_turn)
        end_turn(link);
    if (status != FTH_OK)
        status = fth_fail_within(status, "coordinator %s", link->url);
    fth_wipe(&signer, sizeof signer);
    fth_wipe_text(url);
    return status;
}

/* Fails with the error in an answer. */
static fth_status fail_answer(const fth_coordinator_link *link, const fth_http_response *response)
{
    json_t *answer = json_loadb(response->body ? response->body : "", response->body_bytes, 0, NULL);
    const char *error = json_string_value(json_object_get(answer, "error"));
    const char *name = json_string_value(json_object_get(answer, "status"));
    fth_status status = name ? fth_status_find(name) : response->code >= 500 ? FTH_PEER_LOST : FTH_INVALID;
    if (status == FTH_OK) /* a refusal is never a success, whatever status it names */
        status = FTH_IO;
    if (error)
        status = fth_fail(status, "coordinator %s: %s", link->url, error);
    else
        status = fth_fail(status, "coordinator %s: answer %d", link->url, response->code);
    json_decref(answer);
    return status;
}

fth_status fth_coordinator_ask(fth_coordinator_link *link, const char *method, const char *target, const json_t *body,
                               fth_deadline deadline, json_t **answer)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    *answer = NULL;
    FTH_REQUIRE(text || !body, FTH_NO_MEMORY, "no memory for a request to the coordinator");
    fth_http_request request = {.method = method,
                                .headers = text ? (const char *[]){"Content-Type: application/json", NULL} : NULL,
                                .body = text,
                                .body_bytes = text ? strlen(text) : 0,
                                .max_body_bytes = MAX_ANSWER_BYTES,
                                .deadline = deadline};
    FTH_TRY(perform(link, target, &request, &response));
    if (response.code != 200) {
        status = fail_answer(link, &response);
        goto out;
    }
    *answer = json_loadb(response.body ? response.body : "", response.body_bytes, 0, NULL);
    FTH_REQUIRE(*answer, FTH_CORRUPT, "coordinator %s: its answer is not JSON", link->url);

out:
    free(text);
    fth_http_response_release(&response);
    return status;
}

/* ---- entries ---- */

static void write_item_target(fth_item_id id, char *target, size_t size)
{
    char text[FTH_ITEM_ID_TEXT];
    fth_item_id_format(id, text);
    snprintf(target, size, "/v1/items/%s", text);
}

fth_status fth_coordinator_get_item(fth_coordinator_link *link, const fth_receipt *receipt, fth_deadline deadline,
                                    void *entry, bool *found)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_http_request request = {
        .method = "GET", .into = entry, .into_bytes = receipt->size_bytes, .deadline = deadline};
    char target[64];

    *found = false;
    write_item_target(receipt->id, target, sizeof target);
    FTH_TRY(perform(link, target, &request, &response));
    if (response.code == 404)
        goto out;
    if (response.code != 200) {
        status = fail_answer(link, &response);
        goto out;
    }
    FTH_TRY(fth_item_check(entry, response.body_bytes, receipt->id, receipt));
    *found = true;

out:
    fth_http_response_release(&response);
    return status;
}

fth_status fth_coordinator_put_item(fth_coordinator_link *link, const void *entry, const fth_receipt *receipt,
                                    fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_http_request request = {.method = "PUT",
                                .headers = (const char *[]){"Content-Type: application/octet-stream", NULL},
                                .body = entry,
                                .body_bytes = receipt->size_bytes,
                                .deadline = deadline};
    char target[64];

    write_item_target(receipt->id, target, sizeof target);
    FTH_TRY(perform(link, target, &request, &response));
    if (response.code != 200)
        status = fail_answer(link, &response);

out:
    fth_http_response_release(&response);
    return status;
}
