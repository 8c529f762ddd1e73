/* Pulling parameters and pushing gradients, over the wire or through memory if the server is on
 * this machine (local.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parameters/client_internal.h"

#define POLL_S 3.0 /* of a long poll; short enough to notice a stop */

/* ---- pulling ---- */

fth_status fth_worker_check_layout(fth_worker_client *client, const fth_layout *layout, float *packed, int64_t *version)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_safetensors *tensors = NULL;
    void *bytes = NULL;
    char *text = NULL;
    uint64_t room = layout->packed_floats * sizeof(float) + (uint64_t)layout->count * 1024 + (1 << 20);

    FTH_TRY(fth_allocate(room, 1, &bytes));
    FTH_TRY(fth_client_ask(
        client, &(fth_question){.method = "GET", .target = "/getParameter", .into = bytes, .into_bytes = room},
        &response));
    if (response.code != 200) {
        status = fth_client_fail_refused(client, FTH_INVALID, "its parameters", &response);
        goto out;
    }
    FTH_TRY(fth_safetensors_parse(bytes, response.body_bytes, client->connection.url, &tensors));
    for (int i = 0; i < layout->count; i++) {
        const fth_layout_tensor *mine = &layout->tensors[i];
        const fth_tensor_view *theirs = fth_safetensors_find(tensors, mine->name);
        FTH_REQUIRE(theirs, FTH_INVALID, "%s has no %s: it serves another model, or freezes other layers",
                    client->connection.url, mine->name);
        FTH_REQUIRE(theirs->dtype == FTH_F32 && fth_shape_equal(&theirs->shape, &mine->shape), FTH_INVALID,
                    "%s has %s in another shape: it serves another model, image size or number of classes",
                    client->connection.url, mine->name);
        const fth_tensor_view *first = fth_safetensors_find(tensors, layout->tensors[0].name);
        FTH_REQUIRE((const float *)theirs->data - (const float *)first->data == (int64_t)mine->packed_offset,
                    FTH_INVALID, "%s has its tensors in another order: it freezes other layers than this worker",
                    client->connection.url);
    }
    FTH_REQUIRE((int)fth_safetensors_count(tensors) == layout->count, FTH_INVALID,
                "%s has tensors that this worker's model lacks: it serves another model", client->connection.url);
    text = fth_http_header(&response, "X-Farthing-Version");
    FTH_REQUIRE(text, FTH_CORRUPT, "%s does not say which version its parameters are", client->connection.url);
    *version = strtoll(text, NULL, 10);
    if (layout->count > 0) /* all others follow the first, as checked above */
        memcpy(packed, fth_safetensors_find(tensors, layout->tensors[0].name)->data,
               layout->packed_floats * sizeof(float));

out:
    free(text);
    fth_safetensors_free(tensors);
    free(bytes);
    fth_http_response_release(&response);
    return status;
}

/* Whether a 304 names a lower version than `since`: the server restarted from a checkpoint without
 * a log, and the version this worker waits for may need its gradient. */
static bool went_back(const fth_http_response *response, int64_t since)
{
    char *tag = fth_http_header(response, "ETag");
    bool back = response->code == 304 && tag && *tag == '"' && strtoll(tag + 1, NULL, 10) < since;
    free(tag);
    return back;
}

/* Pulls through memory if the server is on this machine. *done is false if it must go over the
 * wire. */
static fth_status pull_local(fth_worker_client *client, uint64_t bytes, int64_t *since, float *packed, int64_t *version,
                             bool *done)
{
    enum { TRIES = 8 }; /* a try fails only if the server makes three updates during it */
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char target[96] = "/getParameter?local=1";
    size_t length = strlen(target);

    for (int i = 0; client->is_local && !*done && i < TRIES; i++) {
        do {
            if (response.code == 304)
                FTH_TRY(fth_client_fail_if_stopped(client));
            if (went_back(&response, *since))
                *since = -1;
            target[length] = '\0';
            if (*since >= 0)
                snprintf(target + length, sizeof target - length, "&since=%" PRId64 "&wait=%d", *since, (int)POLL_S);
            fth_http_response_release(&response);
            FTH_TRY(fth_client_ask(
                client, &(fth_question){.method = "GET", .target = target, .wait_s = *since >= 0 ? POLL_S : 0},
                &response));
        } while (response.code == 304);
        if (response.code != 200 || !response.body)
            break;
        fth_local_result result = fth_local_copy(&client->view, response.body, bytes, packed, version);
        *done = result == FTH_LOCAL_COPIED;
        if (*done)
            atomic_fetch_add(&client->traffic.received_bytes, bytes);
        client->is_local = result != FTH_LOCAL_ELSEWHERE;
    }
    if (!*done) /* a restarted server may have other memory at the same path */
        fth_local_view_release(&client->view);

out:
    fth_http_response_release(&response);
    return status;
}

fth_status fth_worker_pull(fth_worker_client *client, const fth_layout *layout, int64_t since, float *packed,
                           int64_t *version)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char target[128], *text = NULL;
    uint64_t bytes = layout->packed_floats * sizeof(float);
    bool done = false;

    FTH_TRY(pull_local(client, bytes, &since, packed, version, &done));
    if (done)
        goto out;
    do {
        if (response.code == 304)
            FTH_TRY(fth_client_fail_if_stopped(client));
        int length = snprintf(target, sizeof target, "/getParameter?offset=0&count=%" PRIu64, layout->packed_floats);
        if (went_back(&response, since))
            since = -1;
        if (since >= 0)
            snprintf(target + length, sizeof target - (size_t)length, "&since=%" PRId64 "&wait=%d", since, (int)POLL_S);
        fth_http_response_release(&response);
        FTH_TRY(fth_client_ask(client,
                               &(fth_question){.method = "GET",
                                               .target = target,
                                               .into = packed,
                                               .into_bytes = bytes,
                                               .wait_s = since >= 0 ? POLL_S : 0},
                               &response));
    } while (response.code == 304);
    if (response.code != 200) {
        status = fth_client_fail_refused(client, FTH_INVALID, "its parameters", &response);
        goto out;
    }
    text = fth_http_header(&response, "X-Farthing-Version");
    FTH_REQUIRE(text && response.body_bytes == bytes, FTH_CORRUPT,
                "%s gave %" PRIu64 " bytes of parameters, not %" PRIu64, client->connection.url, response.body_bytes,
                bytes);
    *version = strtoll(text, NULL, 10);

out:
    free(text);
    fth_http_response_release(&response);
    return status;
}

/* ---- pushing ---- */

/* Registers again after the lease was lost. *done: the pending push had arrived. */
static fth_status come_back(fth_worker_client *client, int64_t pending, bool *done)
{
    fth_status status = fth_client_register(client);
    *done = status == FTH_OK && client->sequence >= pending;
    return status;
}

fth_status fth_worker_push(fth_worker_client *client, const fth_push *push, fth_push_outcome *outcome)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_push_body body = {0};
    int64_t sequence = client->sequence + 1;

    *outcome = FTH_PUSH_APPLIED;
    FTH_TRY(push->make(push->context, client->name, sequence, &body));
    for (int strange = 0;;) {
        fth_question q = {
            .method = "POST", .target = "/putGradient", .body = body.bytes, .body_bytes = body.size_bytes};
        if (client->is_local && body.fd > 0) {
            q.memory = body.fd;
            q.stamp = body.stamp;
        }
        FTH_TRY(fth_client_ask(client, &q, &response));
        if (q.memory > 0 && response.code == 400) { /* the server may not see this memory: another container or user */
            fth_http_response_release(&response);
            client->is_local = false;
            continue;
        }
        if (response.code != 409 || !fth_client_has_reason(&response, "stranger") || ++strange > 3)
            break;
        bool done = false;
        fth_http_response_release(&response);
        FTH_TRY(come_back(client, sequence, &done));
        if (done)
            goto out;
        if (client->sequence + 1 != sequence) { /* the server has lost some of this worker's pushes */
            sequence = client->sequence + 1;
            FTH_TRY(push->make(push->context, client->name, sequence, &body));
        }
    }
    client->sequence = sequence;
    if (response.code == 200 || response.code == 201)
        goto out;
    /* "version": the server restarted from a checkpoint older than the version this gradient was
     * computed from. */
    if (response.code == 409 &&
        (fth_client_has_reason(&response, "stale") || fth_client_has_reason(&response, "version")))
        *outcome = FTH_PUSH_STALE;
    else if (response.code == 409 && fth_client_has_reason(&response, "lease"))
        *outcome = FTH_PUSH_LEASE;
    else if (response.code == 409 && fth_client_has_reason(&response, "finished"))
        *outcome = FTH_PUSH_FINISHED;
    else if (fth_client_has_reason(&response, "not_finite"))
        status = fth_fail(FTH_DIVERGED, "a gradient is no longer a finite number");
    else if (fth_client_has_reason(&response, "diverges"))
        status = fth_client_fail_refused(client, FTH_DIVERGED, "a gradient", &response);
    else
        status = fth_client_fail_refused(client, FTH_INVALID, "a gradient", &response);
    if (*outcome == FTH_PUSH_STALE || *outcome == FTH_PUSH_LEASE)
        client->sequence = sequence - 1; /* not accepted */

out:
    fth_http_response_release(&response);
    return status;
}
