/* See s3_internal.h: writing small objects, with and without conditions.
 *
 * A conditional put whose answer is lost is sent again, and may then be refused because of itself. So each carries a
 * number of its own in the metadata ("put"), and one that is refused after an uncertain try looks whose object is
 * there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "store/s3_internal.h"

void fth_s3_make_number(char hex[33])
{
    unsigned char bytes[16] = {0};
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        snprintf((char *)bytes, sizeof bytes, "%.0f", fth_clock_wall_seconds() * 1e6);
    fth_hex(bytes, sizeof bytes, hex);
}

static void add_condition(fth_s3_request *request, fth_store_condition condition, const fth_store_version *match)
{
    if (condition == FTH_STORE_IF_MATCH)
        fth_s3_add_match(request, match);
    else if (condition == FTH_STORE_IF_ABSENT && fth_s3_of(request->store)->google)
        fth_s3_add_header(request, "x-goog-if-generation-match", "0");
    else if (condition == FTH_STORE_IF_ABSENT)
        fth_s3_add_header(request, "if-none-match", "*");
}

/* The answers that mean "the condition does not hold": 412; 304 from old MinIO; 409 where two writers met for longer
 * than we tried; 404 where the object to be replaced is gone. */
static bool says_lost(fth_store_condition condition, const fth_http_response *response)
{
    if (condition == FTH_STORE_ALWAYS)
        return false;
    if (response->code == 412 || response->code == 304 || response->code == 409)
        return true;
    if (condition != FTH_STORE_IF_MATCH || response->code != 404)
        return false;
    char *code = fth_s3_xml_value(response->body, response->body_bytes, "Code");
    bool gone = code && strcmp(code, "NoSuchKey") == 0;
    free(code);
    return gone;
}

fth_status fth_s3_look_whose(fth_store *store, const char *key, const char *number, fth_deadline deadline, bool *ours,
                             fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    bool found = false;
    char *theirs = NULL;
    FTH_TRY(fth_s3_head(store, key, deadline, &response, &found));
    theirs = found ? fth_s3_meta(fth_s3_of(store), &response, "put") : NULL;
    *ours = theirs && strcmp(theirs, number) == 0;
    if (*ours)
        fth_s3_version(fth_s3_of(store), &response, version);

out:
    fth_http_response_release(&response);
    free(theirs);
    return status;
}

fth_status fth_s3_put(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                      const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                      fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_s3 *s3 = fth_s3_of(store);
    fth_http_response response = {0};
    fth_store_meter meter;
    char hash[65], number[33];
    fth_s3_request request = {.store = store,
                              .what = "put",
                              .method = "PUT",
                              .key = key,
                              .body = bytes ? bytes : "",
                              .body_bytes = size_bytes,
                              .payload_hash = hash,
                              .deadline = deadline};

    fth_store_meter_begin(&meter, size_bytes, options->progress);
    request.meter = options->progress ? &meter : NULL;
    fth_sha256_hex(request.body, size_bytes, hash);
    fth_s3_make_number(number);
    fth_s3_add_header(&request, "content-type",
                      options->content_type ? options->content_type : "application/octet-stream");
    fth_s3_add_meta(&request, "sha256", hash);
    fth_s3_add_meta(&request, "put", number);
    add_condition(&request, options->condition, &options->match);
    FTH_TRY(fth_s3_send(&request, &response));
    if (says_lost(options->condition, &response)) {
        bool ours = false;
        if (request.uncertain)
            FTH_TRY(fth_s3_look_whose(store, key, number, deadline, &ours, version));
        *lost = !ours;
    } else if (response.code != 200 && response.code != 201 && response.code != 204) {
        status = fth_s3_explain(&request, &response);
    } else {
        fth_s3_version(s3, &response, version);
        fth_store_meter_end(&meter, store);
    }

out:
    fth_http_response_release(&response);
    fth_s3_release(&request);
    return status;
}

fth_status fth_s3_remove(fth_store *store, const char *key, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_s3_request request = {.store = store, .what = "delete", .method = "DELETE", .key = key, .deadline = deadline};
    FTH_TRY(fth_s3_send(&request, &response));
    char *code = response.code == 404 ? fth_s3_xml_value(response.body, response.body_bytes, "Code") : NULL;
    bool gone = response.code < 300 || (response.code == 404 && !(code && strcmp(code, "NoSuchBucket") == 0));
    free(code);
    if (!gone)
        status = fth_s3_explain(&request, &response);

out:
    fth_http_response_release(&response);
    fth_s3_release(&request);
    return status;
}

/* ---- does the server keep to conditions? ---- */

static fth_status try_put(fth_store *store, const char *key, fth_store_condition condition, const char *match,
                          fth_deadline deadline, bool *lost, fth_store_version *version)
{
    fth_store_put_options options = {.condition = condition};
    snprintf(options.match.text, sizeof options.match.text, "%s", match);
    *lost = false;
    return fth_s3_put(store, key, "probe", 5, &options, deadline, lost, version);
}

static void set_bare_match(fth_s3 *s3, bool bare)
{
    pthread_mutex_lock(&s3->mutex);
    s3->bare_match = bare;
    pthread_mutex_unlock(&s3->mutex);
}

/* Puts a little object twice if absent, then over a version that is not there, then over the one that is: the second
 * and the third must be refused, the first and the last taken. */
fth_status fth_s3_probe_conditions(fth_store *store, fth_deadline deadline, char **why)
{
    fth_status status = FTH_OK;
    fth_s3 *s3 = fth_s3_of(store);
    fth_store_version version = {""}, next;
    char number[33], *key = NULL;
    const char *wrong = s3->google ? "1" : "00000000000000000000000000000000";
    bool lost = false, made = false;

    fth_s3_make_number(number);
    key = fth_format(".farthing/probe-%.16s", number);
    status = try_put(store, key, FTH_STORE_IF_ABSENT, "", deadline, &lost, &version);
    made = status == FTH_OK;
    if (made)
        status = try_put(store, key, FTH_STORE_IF_ABSENT, "", deadline, &lost, &next);
    if (status == FTH_UNSUPPORTED || (status == FTH_OK && !lost)) { /* refused as such, or ignored */
        *why = strdup("the server does not keep to \"If-None-Match: *\": it replaces what is there although it should "
                      "not. Two machines could both write, so what depends on it (leases, checkpoints that are never "
                      "overwritten) is refused; a newer server, or another store, is needed");
        status = FTH_OK;
    }
    if (status != FTH_OK || *why)
        goto out;
    FTH_TRY(try_put(store, key, FTH_STORE_IF_MATCH, wrong, deadline, &lost, &next));
    if (!lost) {
        *why =
            strdup("the server does not keep to \"If-Match\": it replaces an object of another version. Two machines "
                   "could both write, so what depends on it (leases) is refused; a newer server, or another store, "
                   "is needed");
        goto out;
    }
    FTH_TRY(try_put(store, key, FTH_STORE_IF_MATCH, version.text, deadline, &lost, &next));
    if (lost && !s3->google) { /* Ceph compares the header with the bare ETag */
        set_bare_match(s3, true);
        FTH_TRY(try_put(store, key, FTH_STORE_IF_MATCH, version.text, deadline, &lost, &next));
        if (!lost) { /* and bare, a wrong one must still be refused */
            FTH_TRY(try_put(store, key, FTH_STORE_IF_MATCH, wrong, deadline, &lost, &next));
            lost = !lost;
        }
    }
    if (lost) {
        set_bare_match(s3, false);
        *why = strdup("the server refuses \"If-Match\" even with the right version, so nothing can be replaced safely; "
                      "a newer server, or another store, is needed");
    }

out:
    if (made && status == FTH_OK && fth_s3_remove(store, key, deadline) != FTH_OK)
        fth_log_debug("the probe %s stays behind: %s", key, fth_error_message());
    free(key);
    return status;
}
