/* See azure_internal.h: a request with its signature, and what the service's error codes mean. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/azure_internal.h"

#define SIGNED_FOR_S 900.0 /* of a signature made for one request */

void fth_azure_add_header(fth_azure_request *request, const char *name, const char *value)
{
    if (request->header_count < FTH_AZURE_MAX_HEADERS)
        request->headers[request->header_count++] = fth_format("%s: %s", name, value);
}

void fth_azure_release(fth_azure_request *request)
{
    for (int i = 0; i < request->header_count; i++)
        free(request->headers[i]);
    free(request->name);
    free(request->url);
}

/* A fresh signature for each try. */
static fth_status prepare(void *context, fth_http_request *http)
{
    fth_status status = FTH_OK;
    fth_azure_request *request = context;
    const fth_azure *azure = fth_azure_of(request->store);
    char *path = fth_azure_path(azure, request->key);
    char *token = azure->token       ? strdup(azure->token)
                  : azure->key_bytes ? fth_azure_sign(azure, NULL, "racwdl", SIGNED_FOR_S)
                                     : strdup("");
    FTH_REQUIRE(path && token, FTH_NO_MEMORY, "no memory for an address");
    bool both = request->query && *token;
    free(request->url);
    request->url = fth_format("%s/%s%s%s%s%s", azure->endpoint, path, request->query || *token ? "?" : "",
                              request->query ? request->query : "", both ? "&" : "", token);
    FTH_REQUIRE(request->url, FTH_NO_MEMORY, "no memory for an address");
    http->url = request->url;

out:
    free(path);
    free(token);
    return status;
}

/* Compares the body with the checksum in the answer, where there is one. */
static fth_status check_body(void *context, const fth_http_response *response)
{
    const fth_azure_request *request = context;
    char found[FTH_AZURE_MD5_TEXT], *told = fth_http_header(response, "Content-MD5");
    const void *body = request->into ? request->into : response->body;
    fth_status status = FTH_OK;
    if (strcmp(request->method, "GET") == 0 && told && body) {
        fth_azure_md5(body, response->body_bytes, found);
        if (strcmp(found, told) != 0)
            status = fth_fail(FTH_CORRUPT, "what came is not what was stored (MD5)");
    }
    free(told);
    return status;
}

fth_status fth_azure_send(fth_azure_request *request, fth_http_response *response)
{
    fth_status status = FTH_OK;
    const char *lines[FTH_AZURE_MAX_HEADERS + 3];
    int count = 0;
    request->name = request->key ? fth_store_describe(request->store, request->key) : strdup(request->store->url);
    char *what = fth_format("%s %s", request->what, request->name);
    FTH_REQUIRE(request->name && what, FTH_NO_MEMORY, "no memory for an address");
    lines[count++] = "x-ms-version: " FTH_AZURE_VERSION;
    for (int i = 0; i < request->header_count; i++)
        lines[count++] = request->headers[i];
    lines[count] = NULL;
    fth_store_call call = {.what = what,
                           .request = {.method = request->method,
                                       .headers = lines,
                                       .body = request->body,
                                       .body_bytes = request->body_bytes,
                                       .into = request->into,
                                       .into_bytes = request->into_bytes,
                                       .max_body_bytes = request->max_body_bytes},
                           .deadline = request->deadline,
                           .prepare = prepare,
                           .check = check_body,
                           .context = request,
                           .meter = request->meter};
    status = fth_store_send(request->store, &call, response);
    request->uncertain = call.uncertain;

out:
    free(what);
    return status;
}

/* ---- answers ---- */

bool fth_azure_says(const fth_http_response *response, const char *code)
{
    char *said = fth_http_header(response, "x-ms-error-code");
    bool same = said && strcmp(said, code) == 0;
    free(said);
    return same;
}

static const struct {
    const char *code;
    fth_status status;
    const char *advice;
} known[] = {
    {"ContainerNotFound", FTH_INVALID, "there is no such container; create it, or mend the address"},
    {"BlobNotFound", FTH_INVALID, "there is no such object"},
    {"ResourceNotFound", FTH_INVALID,
     "there is no such container or object, or it is not public and no signature was given (AZURE_STORAGE_SAS_TOKEN)"},
    {"AuthenticationFailed", FTH_INVALID,
     "the signature is refused: it has expired, or belongs to another account or container, or the key or this "
     "machine's "
     "clock is wrong"},
    {"AuthorizationPermissionMismatch", FTH_INVALID,
     "the signature does not allow this; make one with the permissions read, add, create, write, delete and list"},
    {"AuthorizationFailure", FTH_INVALID, "the account's network rules do not let this machine in"},
    {"AuthorizationServiceMismatch", FTH_INVALID, "the signature is not for blobs"},
    {"AuthorizationResourceTypeMismatch", FTH_INVALID, "the signature is not for this kind of resource"},
    {"PublicAccessNotPermitted", FTH_INVALID, "it is not public; set AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_KEY"},
    {"NoAuthenticationInformation", FTH_INVALID, "set AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_KEY"},
    {"ContainerBeingDeleted", FTH_INVALID, "the container is being deleted"},
    {"LeaseIdMissing", FTH_INVALID, "somebody holds an Azure lease on the object; break it first"},
    {"Md5Mismatch", FTH_CORRUPT, "what arrived is not what was sent (MD5)"},
    {"BlobImmutableDueToPolicy", FTH_INVALID, "the container's policy does not let objects be changed"},
};

fth_status fth_azure_explain(const fth_azure_request *request, const fth_http_response *response)
{
    char *code = fth_http_header(response, "x-ms-error-code");
    fth_status status = FTH_OK;
    for (size_t i = 0; code && i < FTH_COUNT_OF(known); i++)
        if (strcmp(known[i].code, code) == 0)
            status = fth_fail(known[i].status, "%s %s: %s (%d %s)", request->what, request->name, known[i].advice,
                              response->code, code);
    if (status == FTH_OK)
        status = fth_fail(response->code == 403 || response->code == 404 ? FTH_INVALID : FTH_IO,
                          "%s %s: the server answered %d%s%s", request->what, request->name, response->code,
                          code ? " " : "", code ? code : "");
    free(code);
    return status;
}

void fth_azure_version(const fth_http_response *response, fth_store_version *version)
{
    char *tag = fth_http_header(response, "ETag");
    size_t quoted = tag && *tag == '"';
    snprintf(version->text, sizeof version->text, "%.*s", tag ? (int)strcspn(tag + quoted, "\"") : 0,
             tag ? tag + quoted : "");
    free(tag);
}

void fth_azure_add_match(fth_azure_request *request, const fth_store_version *version)
{
    char quoted[sizeof version->text + 2];
    snprintf(quoted, sizeof quoted, "\"%s\"", version->text);
    fth_azure_add_header(request, "If-Match", quoted);
}
