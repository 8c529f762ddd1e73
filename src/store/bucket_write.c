/* See bucket_internal.h: writes under a condition, and deleting.
 *
 * A conditional put whose answer is lost is sent again, and may then be refused because of itself.
 * So each carries a number of its own in the metadata ("put"), and one that is refused after an
 * uncertain try looks whose object is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "store/bucket_internal.h"

void fth_bucket_make_number(char hex[33])
{
    unsigned char bytes[16] = {0};
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        snprintf((char *)bytes, sizeof bytes, "%.0f", fth_clock_wall_seconds() * 1e6);
    fth_hex_encode(bytes, sizeof bytes, hex);
}

void fth_bucket_add_condition(fth_bucket_request *request, const fth_store_put_options *options)
{
    const fth_bucket_kind *cloud = fth_bucket_of(request->store)->cloud;
    if (options->condition == FTH_STORE_IF_MATCH)
        fth_bucket_add_match(request, &options->match);
    else if (options->condition == FTH_STORE_IF_ABSENT)
        fth_bucket_add_header(request, cloud->absent.name, cloud->absent.value);
}

/* 412; 304 from old MinIO; 409 where two writers met for longer than we tried; 404 where the object
 * to be replaced is gone. */
bool fth_bucket_says_lost(const fth_store *store, const fth_http_response *response, fth_store_condition condition)
{
    const fth_bucket_kind *cloud = fth_bucket_of(store)->cloud;
    if (condition == FTH_STORE_ALWAYS)
        return false;
    if (response->code == 412 || response->code == 304)
        return true;
    if (response->code == 409)
        return !cloud->exists || fth_bucket_says(store, response, cloud->exists);
    return condition == FTH_STORE_IF_MATCH && response->code == 404 &&
           fth_bucket_says(store, response, cloud->no_object);
}

fth_status fth_bucket_look_whose(fth_store *store, const char *key, const char *number, fth_deadline deadline,
                                 bool *ours, fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    bool found = false;
    char *theirs = NULL;
    FTH_TRY(fth_bucket_head(store, key, deadline, &response, &found));
    theirs = found ? fth_bucket_meta(store, &response, "put") : NULL;
    *ours = theirs && strcmp(theirs, number) == 0;
    if (*ours)
        fth_bucket_version(store, &response, version);

out:
    fth_http_response_release(&response);
    free(theirs);
    return status;
}

fth_status fth_bucket_write(fth_bucket_request *request, fth_store_condition condition, const char *number, bool *lost,
                            fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_store *store = request->store;
    fth_http_response response = {0};
    FTH_TRY(fth_bucket_send(request, &response));
    if (fth_bucket_says_lost(store, &response, condition)) {
        bool ours = false;
        if (request->uncertain)
            FTH_TRY(fth_bucket_look_whose(store, request->key, number, request->deadline, &ours, version));
        *lost = !ours;
    } else if (response.code >= 300) {
        status = fth_bucket_explain(request, &response);
    } else {
        fth_bucket_version(store, &response, version);
    }

out:
    fth_http_response_release(&response);
    return status;
}

fth_status fth_bucket_remove(fth_store *store, const char *key, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_bucket_request request = {
        .store = store, .what = "delete", .method = "DELETE", .key = key, .deadline = deadline};
    FTH_TRY(fth_bucket_send(&request, &response));
    if (response.code >= 300 && !fth_bucket_says_absent(store, &response))
        status = fth_bucket_explain(&request, &response);

out:
    fth_http_response_release(&response);
    fth_bucket_end(&request);
    return status;
}
