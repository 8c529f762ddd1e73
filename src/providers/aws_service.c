/* An AWS service through its REST API: its address, and requests signed with version 4
 * (store/sigv4.h). See lambda_internal.h. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/lambda_internal.h"

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* ---- where ---- */

static const char *choose_region(const fth_provider_options *options, const fth_credentials *credentials)
{
    return options->region && *options->region ? options->region
           : variable("AWS_REGION")            ? variable("AWS_REGION")
           : variable("AWS_DEFAULT_REGION")    ? variable("AWS_DEFAULT_REGION")
                                               : fth_credentials_region(credentials);
}

/* Finds the endpoint as AWS's tools do: the service's variable, the general variable, the profile.
 * */
static const char *choose_endpoint(const char *name, const fth_provider_options *options,
                                   const fth_credentials *credentials)
{
    const char *ignored = variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    if (options->host && *options->host)
        return options->host;
    if (ignored && strcasecmp(ignored, "true") == 0)
        return NULL;
    return variable(name)                 ? variable(name)
           : variable("AWS_ENDPOINT_URL") ? variable("AWS_ENDPOINT_URL")
                                          : fth_credentials_endpoint(credentials);
}

static fth_status split_address(const char *address, char **host, char **prefix)
{
    bool url = strncmp(address, "https://", 8) == 0 || strncmp(address, "http://", 7) == 0;
    const char *name = url ? strstr(address, "://") + 3 : "";
    size_t length = strcspn(name, "/");
    if (length == 0 || strpbrk(name, "@?# \t\r\n\"\\<>"))
        return fth_fail(FTH_INVALID, "the address of AWS's API has the form https://HOST[:PORT], without user or query "
                                     "(--host, AWS_ENDPOINT_URL_LAMBDA, AWS_ENDPOINT_URL)");
    size_t path_length = strlen(name + length);
    while (path_length > 0 && name[length + path_length - 1] == '/')
        path_length--;
    *host = strndup(name, length);
    *prefix = strndup(name + length, path_length);
    return *host && *prefix ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an address");
}

/* ---- signatures ---- */

static fth_status sign(void *context, const fth_rest_call *call, char ***lines)
{
    fth_status status = FTH_OK;
    const fth_aws_service *service = context;
    fth_cloud_keys keys = {0};
    char hash[65], *whole = NULL, *path = NULL;

    *lines = NULL;
    FTH_TRY(fth_credentials_get(service->credentials, &keys));
    fth_hex_sha256(call->body, call->body_bytes, hash);
    /* All services but S3 sign the path escaped twice. */
    whole = fth_format("%s%s", service->prefix, call->path);
    path = whole ? fth_http_escape(whole, true) : NULL;
    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a signature");
    FTH_TRY(fth_sigv4_sign(&(fth_sigv4){.access_key = keys.access_key,
                                        .secret_key = keys.secret_key,
                                        .session_token = keys.session_token,
                                        .region = service->region,
                                        .service = service->name,
                                        .method = call->method,
                                        .host = service->host,
                                        .path = path,
                                        .query = call->query,
                                        .query_count = call->query_count,
                                        .headers = call->headers,
                                        .header_count = call->header_count,
                                        .payload_hash = hash,
                                        .wall_s = fth_clock_wall_seconds()},
                           lines));

out:
    fth_cloud_keys_release(&keys);
    free(whole);
    free(path);
    return status;
}

fth_status fth_aws_service_open(const char *name, const char *endpoint_variable, const fth_provider_options *options,
                                fth_credentials *credentials, fth_aws_service *service)
{
    fth_status status = FTH_OK;
    const char *endpoint = choose_endpoint(endpoint_variable, options, credentials);
    const char *region = choose_region(options, credentials);
    const char *bundle = variable("AWS_CA_BUNDLE");
    char *address = NULL, *base = NULL;

    *service = (fth_aws_service){.name = name, .credentials = credentials};
    FTH_REQUIRE(region || endpoint, FTH_INVALID,
                "no AWS region: give --region, set AWS_REGION, or write it to ~/.aws/config (aws configure)");
    region = region ? region : "us-east-1"; /* other servers rarely check it */
    FTH_REQUIRE(strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(region), FTH_INVALID,
                "\"%.40s\" is not an AWS region, such as eu-west-1", region);
    address = endpoint ? strdup(endpoint)
                       : fth_format("https://%s.%s.amazonaws.com%s", name, region,
                                    strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
    service->region = strdup(region);
    FTH_REQUIRE(address && service->region, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(split_address(address, &service->host, &service->prefix));
    base = fth_format("%s%s%s", strncmp(address, "https://", 8) == 0 ? "https://" : "http://", service->host,
                      service->prefix);
    FTH_REQUIRE(base, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(
        fth_rest_open(&(fth_rest_options){.platform = strcmp(name, "lambda") == 0 ? "AWS Lambda" : "AWS CloudWatch",
                                          .base = base,
                                          .advice = "are the region (--region, AWS_REGION) and the address (--host, "
                                                    "AWS_ENDPOINT_URL) right, and can it be reached from here?",
                                          .ca_file = options->ca_file ? options->ca_file : bundle,
                                          .stop = options->stop,
                                          .authorize = sign,
                                          .context = service},
                      &service->rest));

out:
    free(address);
    free(base);
    if (status != FTH_OK)
        fth_aws_service_close(service);
    return status;
}

void fth_aws_service_close(fth_aws_service *service)
{
    fth_rest_free(service->rest);
    free(service->region);
    free(service->host);
    free(service->prefix);
    *service = (fth_aws_service){0};
}

static bool keys_have_expired(const fth_http_response *response)
{
    if (response->code != 400 && response->code != 403)
        return false;
    char *type = fth_http_header(response, "x-amzn-ErrorType");
    char *reason = fth_rest_reason(response);
    bool expired = (type && strncmp(type, "ExpiredToken", 12) == 0) ||
                   (reason && strcasestr(reason, "token") && strcasestr(reason, "expired"));
    free(type);
    free(reason);
    return expired;
}

fth_status fth_aws_send(fth_aws_service *service, fth_rest_call *call, fth_http_response *response)
{
    fth_status status = fth_rest_send(service->rest, call, response);
    if (status != FTH_OK || !keys_have_expired(response) || !fth_credentials_renew(service->credentials))
        return status;
    fth_http_response_release(response);
    return fth_rest_send(service->rest, call, response);
}
