/* Taking shards from the server; see shards.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parameters/client_internal.h"

#define POLL_S 3.0 /* how long the server may hold a request; short enough to notice a stop */

void fth_shard_lease_release(fth_shard_lease *lease)
{
    free(lease->url);
    free(lease->etag);
    *lease = (fth_shard_lease){0};
}

/* Posts `json`; registers again if the server no longer knows the worker. */
static fth_status post(fth_worker_client *client, const char *target, const json_t *json, double wait_s,
                       fth_http_response *response)
{
    fth_status status = FTH_OK;
    char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;

    FTH_REQUIRE(body, FTH_NO_MEMORY, "no memory for a request to the parameter server");
    const fth_question q = {
        .method = "POST", .target = target, .body = body, .body_bytes = strlen(body), .wait_s = wait_s};
    FTH_TRY(fth_client_ask(client, &q, response));
    if (response->code == 409 && fth_client_has_reason(response, "stranger")) {
        fth_http_response_release(response);
        FTH_TRY(fth_client_register(client));
        FTH_TRY(fth_client_ask(client, &q, response));
    }

out:
    free(body);
    return status;
}

static const char *text_of(const json_t *json, const char *name)
{
    const char *text = json_string_value(json_object_get(json, name));
    return text ? text : "";
}

static fth_status read_lease(const fth_worker_client *client, const json_t *json, fth_shard_lease *lease)
{
    fth_status status = FTH_OK;
    const char *shard = NULL;
    json_int_t epoch = -1, from = -1, to = -1, samples = -1, first = 0, seed = 0;

    FTH_REQUIRE(json_unpack((json_t *)json, "{s:s, s:I, s:I, s:I, s:I, s?I, s:I}", "shard", &shard, "epoch", &epoch,
                            "from", &from, "to", &to, "samples", &samples, "first", &first, "seed", &seed) == 0 &&
                    fth_shard_name_valid(shard) && epoch >= 0 && epoch <= FTH_MAX_SHARD_EPOCHS && from >= 0 &&
                    from < to && to <= samples && samples <= FTH_MAX_SHARD_SAMPLES && first >= 0 &&
                    first <= FTH_MAX_SHARD_SAMPLES,
                FTH_CORRUPT, "%s sent a shard lease that is not valid", client->connection.url);
    *lease = (fth_shard_lease){.epoch = epoch,
                               .from = from,
                               .to = to,
                               .samples = samples,
                               .first = first,
                               .seed = (uint64_t)seed,
                               .url = fth_format("%s", text_of(json, "url")),
                               .etag = fth_format("%s", text_of(json, "etag"))};
    snprintf(lease->shard, sizeof lease->shard, "%s", shard);
    FTH_REQUIRE(lease->url && lease->etag, FTH_NO_MEMORY, "no memory for a shard's address");

out:
    if (status != FTH_OK)
        fth_shard_lease_release(lease);
    return status;
}

/* Asks once; the server may hold the request for `wait_s`. */
static fth_status ask_for_shard(fth_worker_client *client, const fth_shard_offer *brought, double wait_s,
                                fth_shard_lease *lease, fth_shard_answer *answer)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    json_t *given = NULL, *shard = NULL, *asked = NULL;

    if (brought)
        shard = json_pack("{s:s, s:s, s:I, s:I}", "run", brought->run, "name", brought->name, "samples",
                          (json_int_t)brought->samples, "epochs", (json_int_t)brought->epochs);
    asked = json_pack("{s:s, s:f, s:O*}", "worker", client->name, "wait", wait_s, "shard", shard);
    FTH_TRY(post(client, "/takeShard", asked, wait_s, &response));
    if (response.code == 409 && fth_client_has_reason(&response, "finished")) {
        *answer = FTH_SHARD_DONE;
        goto out;
    }
    if (response.code != 200) {
        status = fth_client_fail_refused(client, FTH_INVALID, "to lease a shard", &response);
        goto out;
    }
    given = response.body ? json_loads(response.body, 0, NULL) : NULL;
    const json_t *description = json_object_get(given, "lease");
    *answer = json_is_null(description) ? FTH_SHARD_WAIT : FTH_SHARD_TAKEN;
    if (*answer == FTH_SHARD_TAKEN)
        FTH_TRY(read_lease(client, description, lease));

out:
    json_decref(given);
    json_decref(shard);
    json_decref(asked);
    fth_http_response_release(&response);
    return status;
}

fth_status fth_worker_take_shard(fth_worker_client *client, const fth_shard_offer *brought, fth_deadline deadline,
                                 fth_shard_lease *lease, fth_shard_answer *answer)
{
    fth_status status = FTH_OK;
    *lease = (fth_shard_lease){0};
    *answer = FTH_SHARD_WAIT;
    do {
        double wait_s = fmax(fmin(POLL_S, fth_deadline_left_seconds(deadline)), 0);
        FTH_TRY(fth_client_fail_if_stopped(client));
        FTH_TRY(ask_for_shard(client, brought, wait_s, lease, answer));
    } while (*answer == FTH_SHARD_WAIT && !fth_deadline_passed(deadline));

out:
    return status;
}
