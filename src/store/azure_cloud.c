/* See azure_internal.h: what is Azure's own: names, error codes, signing and verifying. */
#include <stdlib.h>
#include <string.h>

#include "store/azure_internal.h"

#define SIGNED_FOR_S 900.0 /* of a signature made for one request */

enum { CHECKED_RANGE_BYTES = 4 << 20 }; /* the service adds a checksum to ranges up to here */

/* ---- signing ---- */

static fth_status make_url(fth_bucket_request *request)
{
    fth_status status = FTH_OK;
    const fth_azure *azure = fth_azure_of(request->store);
    char *path = fth_azure_path(azure, request->key), *query = fth_sigv4_query(request->query, request->query_count);
    char *token = azure->token       ? strdup(azure->token)
                  : azure->key_bytes ? fth_azure_sign(azure, NULL, "racwdl", SIGNED_FOR_S)
                                     : strdup("");
    FTH_REQUIRE(path && query && token, FTH_NO_MEMORY, "no memory for an address");
    request->url = fth_format("%s/%s%s%s%s%s", azure->endpoint, path, *query || *token ? "?" : "", query,
                              *query && *token ? "&" : "", token);
    FTH_REQUIRE(request->url, FTH_NO_MEMORY, "no memory for an address");

out:
    free(path);
    free(query);
    free(token);
    return status;
}

static fth_status sign(fth_bucket_request *request)
{
    fth_status status = FTH_OK;
    int count = 0;
    bool ranged = false;
    FTH_TRY(make_url(request));
    FTH_TRY(fth_allocate((size_t)request->header_count + 3, sizeof *request->lines, &request->lines));
    for (int i = 0; i < request->header_count; i++) {
        request->lines[count++] = fth_format("%s: %s", request->headers[i].name, request->headers[i].value);
        ranged = ranged || strcmp(request->headers[i].name, "x-ms-range") == 0;
    }
    request->lines[count++] = strdup("x-ms-version: " FTH_AZURE_VERSION);
    if (ranged)
        request->lines[count++] = strdup("x-ms-range-get-content-md5: true");
    for (int i = 0; i < count; i++)
        FTH_REQUIRE(request->lines[i], FTH_NO_MEMORY, "no memory for a request");

out:
    return status;
}

/* ---- answers ---- */

static fth_status verify(const fth_store *store, const fth_http_response *response, const void *bytes,
                         size_t size_bytes)
{
    fth_status status = FTH_OK;
    char found[FTH_AZURE_MD5_TEXT], *told = fth_http_header(response, "Content-MD5");
    (void)store;
    if (told && bytes) {
        fth_azure_md5(bytes, size_bytes, found);
        FTH_REQUIRE(strcmp(found, told) == 0, FTH_CORRUPT, "what came is not what was stored (MD5)");
    }

out:
    free(told);
    return status;
}

static char *error_code(const fth_http_response *response)
{
    return fth_http_header(response, "x-ms-error-code");
}

static const char *keys_from(const fth_store *store)
{
    const fth_azure *azure = fth_azure_of(store);
    return azure->token       ? "AZURE_STORAGE_SAS_TOKEN or the address"
           : azure->key_bytes ? "AZURE_STORAGE_KEY"
                              : "nowhere; set AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_KEY";
}

static char *origin(const fth_store *store)
{
    return strdup(fth_azure_of(store)->endpoint);
}

/* ---- the table ---- */

static const fth_cloud_error errors[] = {
    {"ContainerNotFound", FTH_INVALID, FTH_NAMES_NOTHING, "there is no such container; create it, or mend the address"},
    {"BlobNotFound", FTH_INVALID, FTH_NAMES_NOTHING, "there is no such object"},
    {"ResourceNotFound", FTH_INVALID, FTH_NAMES_NOTHING,
     "there is no such container or object, or it is not public and no signature was given (AZURE_STORAGE_SAS_TOKEN)"},
    {"AuthenticationFailed", FTH_INVALID, FTH_NAMES_NOTHING,
     "the signature is refused: it has expired, or belongs to another account or container, or the key or this "
     "machine's "
     "clock is wrong"},
    {"AuthorizationPermissionMismatch", FTH_INVALID, FTH_NAMES_NOTHING,
     "the signature does not allow this; make one with the permissions read, add, create, write, delete and list"},
    {"AuthorizationFailure", FTH_INVALID, FTH_NAMES_NOTHING, "the account's network rules do not let this machine in"},
    {"AuthorizationServiceMismatch", FTH_INVALID, FTH_NAMES_NOTHING, "the signature is not for blobs"},
    {"AuthorizationResourceTypeMismatch", FTH_INVALID, FTH_NAMES_NOTHING,
     "the signature is not for this kind of resource"},
    {"PublicAccessNotPermitted", FTH_INVALID, FTH_NAMES_NOTHING,
     "it is not public; set AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_KEY"},
    {"NoAuthenticationInformation", FTH_INVALID, FTH_NAMES_NOTHING, "set AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_KEY"},
    {"ContainerBeingDeleted", FTH_INVALID, FTH_NAMES_NOTHING, "the container is being deleted"},
    {"LeaseIdMissing", FTH_INVALID, FTH_NAMES_NOTHING, "the object has an Azure lease; break it first"},
    {"Md5Mismatch", FTH_CORRUPT, FTH_NAMES_NOTHING, "what arrived is not what was sent (MD5)"},
    {"BlobImmutableDueToPolicy", FTH_INVALID, FTH_NAMES_NOTHING,
     "the container's policy does not let objects be changed"},
    {0},
};

const fth_bucket_kind fth_bucket_azure = {
    .range = "x-ms-range",
    .version = "etag",
    .match = "if-match",
    .quoted = true,
    .absent = {"if-none-match", "*"},
    .meta = "x-ms-meta-farthing",
    .most_range_bytes = CHECKED_RANGE_BYTES,
    .list = {{"restype", "container"}, {"comp", "list"}},
    .list_token = "marker",
    .elements = {.entry = "EnumerationResults/Blobs/Blob",
                 .key = "Name",
                 .size = "Properties/Content-Length",
                 .modified = "Properties/Last-Modified",
                 .version = "Properties/Etag",
                 .token = "EnumerationResults/NextMarker"},
    .no_bucket = "ContainerNotFound",
    .no_object = "BlobNotFound",
    .exists = "BlobAlreadyExists",
    .errors = errors,
    .error_code = error_code,
    .sign = sign,
    .verify = verify,
    .keys_from = keys_from,
    .origin = origin,
};
