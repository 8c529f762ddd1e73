/* See credentials.h: keys of a role, from the service that the cloud gives each container or
 * instance.
 *
 * Containers (ECS, EKS): AWS_CONTAINER_CREDENTIALS_RELATIVE_URI at 169.254.170.2, or ..._FULL_URI,
 * with the token of AWS_CONTAINER_AUTHORIZATION_TOKEN[_FILE]. Instances: IMDSv2 at 169.254.169.254,
 * elsewhere by AWS_EC2_METADATA_SERVICE_ENDPOINT or FARTHING_AWS_METADATA ("off": none). Neither is
 * ever asked through a proxy. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http/http.h"
#include "store/credentials.h"

static const double CONNECT_S = 1, REQUEST_S = 5;

static fth_status ask(const char *method, const char *url, const char *header, fth_http_response *response)
{
    fth_status status = FTH_OK;
    fth_http_client *client = NULL;
    fth_http_client_options options = {.no_proxy = true};
    const char *headers[] = {header, NULL};
    fth_http_request request = {.method = method,
                                .url = url,
                                .headers = headers,
                                .max_body_bytes = 64 << 10,
                                .connect_s = CONNECT_S,
                                .stall_s = REQUEST_S,
                                .deadline = fth_deadline_in(REQUEST_S)};
    FTH_TRY(fth_http_client_open(&options, &client));
    status = fth_http_perform(client, &request, response);
    if (status == FTH_PEER_LOST) /* means something else to the owner of a run (request.c) */
        status = fth_fail(FTH_IO, "%s", fth_error_message());

out:
    fth_http_client_free(client);
    return status;
}

/* The answer holds a token or keys. */
static void release(fth_http_response *response)
{
    fth_wipe_text(response->body);
    response->body = NULL;
    fth_http_response_release(response);
}

/* "2026-11-15T11:03:11Z" */
static double parse_time(const char *text)
{
    struct tm parts = {0};
    const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &parts) : NULL;
    return end ? (double)timegm(&parts) : 0;
}

static fth_status parse_keys(const char *text, const char *where, fth_cloud_keys *keys)
{
    fth_status status = FTH_OK;
    json_t *json = json_loads(text, 0, NULL);
    const char *key = json_string_value(json_object_get(json, "AccessKeyId"));
    const char *secret = json_string_value(json_object_get(json, "SecretAccessKey"));
    const char *token = json_string_value(json_object_get(json, "Token"));
    FTH_REQUIRE(key && secret, FTH_CORRUPT, "%s gave no keys; does the role still exist?", where);
    keys->access_key = strdup(key);
    keys->secret_key = strdup(secret);
    keys->session_token = token && *token ? strdup(token) : NULL;
    keys->expires_s = parse_time(json_string_value(json_object_get(json, "Expiration")));

out:
    json_decref(json);
    return status;
}

fth_status fth_credentials_from_container(fth_cloud_keys *keys)
{
    fth_status status = FTH_OK;
    const char *relative = getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *token = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *token_file = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    char *url = NULL, *header = NULL, *read = NULL;
    size_t size_bytes = 0;
    fth_http_response response = {0};

    if (relative && *relative)
        url = fth_format("http://169.254.170.2%s", relative);
    else if (full && *full)
        url = strdup(full);
    else
        return FTH_UNSUPPORTED;
    if (token_file && *token_file) {
        FTH_TRY(fth_file_read_all(token_file, 64 << 10, &read, &size_bytes));
        read[strcspn(read, "\r\n")] = '\0';
        token = read;
    }
    if (token && *token)
        header = fth_format("Authorization: %s", token);
    FTH_TRY(ask("GET", url, header, &response));
    FTH_REQUIRE(response.code == 200, FTH_IO, "the container's credential service answered %d", response.code);
    FTH_TRY(parse_keys(response.body, "the container's credential service", keys));

out:
    release(&response);
    free(url);
    fth_wipe_text(header);
    fth_wipe_text(read);
    return status;
}

static const char *metadata_endpoint(void)
{
    const char *ours = getenv("FARTHING_AWS_METADATA"), *theirs = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *disabled = getenv("AWS_EC2_METADATA_DISABLED");
    if (disabled && strcmp(disabled, "true") == 0)
        return NULL;
    if (theirs && *theirs) /* the narrower of the two: in a rehearsal only the notices are simulated */
        return theirs;
    if (ours && *ours)
        return strcmp(ours, "off") == 0 ? NULL : ours;
    return "http://169.254.169.254";
}

fth_status fth_credentials_from_instance(fth_cloud_keys *keys)
{
    static const char path[] = "latest/meta-data/iam/security-credentials/";
    fth_status status = FTH_OK;
    const char *endpoint = metadata_endpoint();
    char *base = NULL, *url = NULL, *header = NULL, *role = NULL;
    fth_http_response response = {0};

    if (!endpoint)
        return FTH_UNSUPPORTED;
    base = fth_path_join(endpoint, "");
    FTH_REQUIRE(base, FTH_NO_MEMORY, "no memory for an address");
    url = fth_format("%slatest/api/token", base);
    status = ask("PUT", url, "X-aws-ec2-metadata-token-ttl-seconds: 21600", &response);
    /* No answer, or another service (404, 405), or the service is switched off (403). */
    if (status != FTH_OK || (response.code >= 403 && response.code <= 405)) {
        status = FTH_UNSUPPORTED;
        goto out;
    }
    FTH_REQUIRE(response.code == 200, FTH_IO,
                "the instance's metadata service answered %d to the request for a token; in a container its hop limit "
                "must be 2 (aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2)",
                response.code);
    header = fth_format("X-aws-ec2-metadata-token: %s", response.body);
    release(&response);
    free(url);
    url = fth_format("%s%s", base, path);
    FTH_TRY(ask("GET", url, header, &response));
    if (response.code == 404) { /* an instance without a role */
        status = FTH_UNSUPPORTED;
        goto out;
    }
    FTH_REQUIRE(response.code == 200, FTH_IO, "the instance's metadata service answered %d", response.code);
    role = strndup(response.body, strcspn(response.body, "\r\n"));
    release(&response);
    free(url);
    url = fth_format("%s%s%s", base, path, role);
    FTH_TRY(ask("GET", url, header, &response));
    FTH_REQUIRE(response.code == 200, FTH_IO, "the instance's metadata service answered %d for the role %s",
                response.code, role);
    FTH_TRY(parse_keys(response.body, "the instance's metadata service", keys));

out:
    release(&response);
    free(base);
    free(url);
    fth_wipe_text(header);
    free(role);
    return status;
}
