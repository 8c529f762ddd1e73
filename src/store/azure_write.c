/* See azure_internal.h: writing small objects, conditions, deleting.
 *
 * As over S3, each write carries a number of its own in the metadata, by which one that is refused after an uncertain
 * try recognises itself. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "store/azure_internal.h"

#define NUMBER_HEADER "x-ms-meta-farthingput"

void fth_azure_begin_write(fth_azure_request *request, const fth_store_put_options *options, const char *type_header,
                           char number[33])
{
    uint64_t drawn[2] = {0};
    if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn)
        drawn[0] = (uint64_t)(fth_clock_wall_seconds() * 1e6);
    snprintf(number, 33, "%016" PRIx64 "%016" PRIx64, drawn[0], drawn[1]);
    fth_azure_add_header(request, NUMBER_HEADER, number);
    fth_azure_add_header(request, type_header,
                         options->content_type ? options->content_type : "application/octet-stream");
    if (options->condition == FTH_STORE_IF_ABSENT)
        fth_azure_add_header(request, "If-None-Match", "*");
    else if (options->condition == FTH_STORE_IF_MATCH)
        fth_azure_add_match(request, &options->match);
}

static bool says_lost(const fth_http_response *response, fth_store_condition condition)
{
    if (condition == FTH_STORE_ALWAYS)
        return false;
    return response->code == 412 || fth_azure_says(response, "BlobAlreadyExists") ||
           (condition == FTH_STORE_IF_MATCH && fth_azure_says(response, "BlobNotFound"));
}

fth_status fth_azure_write(fth_azure_request *request, fth_store_condition condition, const char *number, bool *lost,
                           fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0}, there = {0};
    bool found = false;
    char *theirs = NULL;
    FTH_TRY(fth_azure_send(request, &response));
    if (response.code == 201) {
        fth_azure_version(&response, version);
        goto out;
    }
    if (!says_lost(&response, condition)) {
        status = fth_azure_explain(request, &response);
        goto out;
    }
    *lost = true;
    if (!request->uncertain)
        goto out;
    FTH_TRY(fth_azure_head(request->store, request->key, request->deadline, &there, &found));
    theirs = found ? fth_http_header(&there, NUMBER_HEADER) : NULL;
    if (theirs && strcmp(theirs, number) == 0) {
        *lost = false;
        fth_azure_version(&there, version);
    }

out:
    free(theirs);
    fth_http_response_release(&response);
    fth_http_response_release(&there);
    return status;
}

fth_status fth_azure_put(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                         const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                         fth_store_version *version)
{
    fth_status status = FTH_OK;
    char number[33], checksum[FTH_AZURE_MD5_TEXT];
    fth_store_meter meter;
    fth_azure_request request = {.store = store,
                                 .what = "put",
                                 .method = "PUT",
                                 .key = key,
                                 .body = bytes ? bytes : "",
                                 .body_bytes = size_bytes,
                                 .deadline = deadline,
                                 .meter = &meter};
    fth_store_meter_begin(&meter, size_bytes, options->progress);
    fth_azure_begin_write(&request, options, "Content-Type", number);
    fth_azure_add_header(&request, "x-ms-blob-type", "BlockBlob");
    fth_azure_md5(request.body, size_bytes, checksum);
    fth_azure_add_header(&request, "Content-MD5", checksum);
    FTH_TRY(fth_azure_write(&request, options->condition, number, lost, version));
    fth_store_meter_end(&meter, store);

out:
    fth_azure_release(&request);
    return status;
}

fth_status fth_azure_remove(fth_store *store, const char *key, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_azure_request request = {
        .store = store, .what = "delete", .method = "DELETE", .key = key, .deadline = deadline};
    FTH_TRY(fth_azure_send(&request, &response));
    bool gone = response.code == 202 || (response.code == 404 && !fth_azure_says(&response, "ContainerNotFound"));
    if (!gone)
        status = fth_azure_explain(&request, &response);

out:
    fth_azure_release(&request);
    fth_http_response_release(&response);
    return status;
}
