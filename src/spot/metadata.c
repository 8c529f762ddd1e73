/* Requests to a cloud's metadata service: never through a proxy, never for long, never trusted to
 * make sense.
 *
 * AWS asks for a token first (IMDSv2). The answer to that request travels with a small hop limit,
 * one by default, so in a container behind a bridge it never arrives, while everything else works.
 * That looks like a service that is down; so after a token request that timed out we ask without:
 * an answer other than 401 means that it does not insist on tokens, a 401 that it does, and that
 * nobody will tell this machine about its end until the hop limit is raised. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spot/spot_internal.h"

enum { MAX_BODY_BYTES = 64 << 10, TOKEN_SECONDS = 21600, RENEW_BEFORE_SECONDS = 300 };

const char *const fth_cloud_names[FTH_CLOUD_COUNT] = {"aws", "gcp", "azure"};
static const char *const endpoint_variables[FTH_CLOUD_COUNT] = {"FARTHING_AWS_METADATA", "FARTHING_GCP_METADATA",
                                                                "FARTHING_AZURE_METADATA"};
/* By address: a name would have to be looked up, which takes seconds where there is no such
 * name. */
static const char usual_endpoint[] = "http://169.254.169.254";

const char fth_hop_limit_advice[] =
    "the AWS metadata service gives this process no token, as in a container behind a bridge; let it: aws ec2 "
    "modify-instance-metadata-options --http-put-response-hop-limit 2 --instance-id ID, or use the host's network";

fth_status fth_metadata_open(fth_cloud cloud, const atomic_bool *closing, fth_metadata *metadata)
{
    const char *endpoint = getenv(endpoint_variables[cloud]);
    if (!endpoint || !*endpoint)
        endpoint = usual_endpoint;
    memset(metadata, 0, sizeof *metadata);
    metadata->cloud = cloud;
    metadata->closing = closing;
    if (strcmp(endpoint, "off") != 0)
        snprintf(metadata->endpoint, sizeof metadata->endpoint, "%s", endpoint);
    size_t length = strlen(metadata->endpoint);
    if (length > 0 && metadata->endpoint[length - 1] == '/')
        metadata->endpoint[length - 1] = '\0';
    return fth_http_client_open(&(fth_http_client_options){.no_proxy = true, .attentive = true}, &metadata->client);
}

void fth_metadata_close(fth_metadata *metadata)
{
    fth_http_client_free(metadata->client);
    metadata->client = NULL;
}

static int should_end(void *context, uint64_t sent_bytes, uint64_t received_bytes)
{
    (void)sent_bytes, (void)received_bytes;
    const fth_metadata *metadata = context;
    return (metadata->closing && *metadata->closing) || (metadata->enough && *metadata->enough);
}

static fth_status perform(fth_metadata *metadata, const char *method, const char *path, const char *const *headers,
                          const char *body, double timeout_s, fth_http_response *response)
{
    memset(response, 0, sizeof *response);
    if (!*metadata->endpoint)
        return fth_fail(FTH_UNSUPPORTED, "the %s metadata service is switched off (%s)",
                        fth_cloud_names[metadata->cloud], endpoint_variables[metadata->cloud]);
    char *url = fth_format("%s%s", metadata->endpoint, path);
    fth_http_request request = {
        .method = method,
        .url = url,
        .headers = headers,
        .body = body,
        .body_bytes = body ? strlen(body) : 0,
        .max_body_bytes = MAX_BODY_BYTES,
        .connect_s = timeout_s < 5 ? timeout_s : 5,
        .stall_s = timeout_s + 1, /* a long poll is silent */
        .deadline = fth_deadline_in(timeout_s),
        .progress = should_end,
        .progress_context = metadata,
    };
    fth_status status = fth_http_perform(metadata->client, &request, response);
    free(url);
    return status;
}

/* ---- the AWS token ---- */

static fth_status fetch_token(fth_metadata *metadata, double timeout_s)
{
    const char *const headers[] = {"X-aws-ec2-metadata-token-ttl-seconds: 21600", NULL};
    fth_http_response response = {0};
    metadata->token[0] = '\0';
    fth_status status = perform(metadata, "PUT", "/latest/api/token", headers, "", timeout_s, &response);
    if (status == FTH_OK && response.code == 200) {
        const char *text = fth_metadata_text(&response);
        size_t length = strlen(text);
        bool plain = length > 0 && length < sizeof metadata->token;
        for (size_t i = 0; plain && i < length; i++)
            plain = isgraph((unsigned char)text[i]);
        if (plain) {
            memcpy(metadata->token, text, length + 1);
            metadata->token_until_s = fth_clock_seconds() + TOKEN_SECONDS - RENEW_BEFORE_SECONDS;
            metadata->refused = false;
        } else {
            status = fth_fail(FTH_CORRUPT, "the AWS metadata service's token is not one");
        }
    } else if (status == FTH_OK) {
        status = fth_fail(FTH_IO, "the AWS metadata service answers a request for a token with %d", response.code);
    }
    fth_http_response_release(&response);
    return status;
}

static fth_status get_with_token(fth_metadata *metadata, const char *path, double timeout_s,
                                 fth_http_response *response)
{
    char header[sizeof metadata->token + 32];
    snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", metadata->token);
    const char *const headers[] = {header, NULL};
    return perform(metadata, "GET", path, *metadata->token ? headers : NULL, NULL, timeout_s, response);
}

static fth_status get_aws(fth_metadata *metadata, const char *path, double timeout_s, fth_http_response *response)
{
    memset(response, 0, sizeof *response);
    fth_deadline deadline = fth_deadline_in(timeout_s);
    /* A service that gave no token is asked for one again each time: the hop limit can be raised
     * while we run. */
    bool fresh = *metadata->token && fth_clock_seconds() < metadata->token_until_s;
    fth_status status = fresh ? FTH_OK : fetch_token(metadata, timeout_s * 0.5);
    bool no_answer = status == FTH_TIMEOUT || status == FTH_PEER_LOST;
    if (status != FTH_OK && !no_answer)
        return status;
    status = get_with_token(metadata, path, fth_deadline_left_seconds(deadline), response);
    if (status != FTH_OK || response->code != 401)
        return status;
    if (no_answer) {
        metadata->refused = true;
        fth_http_response_release(response);
        memset(response, 0, sizeof *response);
        return fth_fail(FTH_TIMEOUT, "%s", fth_hop_limit_advice);
    }
    /* The token has ended before its time: the service was restarted, or the machine moved. */
    fth_http_response_release(response);
    memset(response, 0, sizeof *response);
    status = fetch_token(metadata, fth_deadline_left_seconds(deadline));
    return status == FTH_OK ? get_with_token(metadata, path, fth_deadline_left_seconds(deadline), response) : status;
}

fth_status fth_metadata_get(fth_metadata *metadata, const char *path, double timeout_s, fth_http_response *response)
{
    static const char *const gcp[] = {"Metadata-Flavor: Google", NULL}, *const azure[] = {"Metadata: true", NULL};
    if (metadata->cloud == FTH_CLOUD_AWS)
        return get_aws(metadata, path, timeout_s, response);
    return perform(metadata, "GET", path, metadata->cloud == FTH_CLOUD_GCP ? gcp : azure, NULL, timeout_s, response);
}

fth_status fth_metadata_post(fth_metadata *metadata, const char *path, const char *json, double timeout_s,
                             fth_http_response *response)
{
    const char *const headers[] = {"Metadata: true", "Content-Type: application/json", NULL};
    return perform(metadata, "POST", path, headers, json, timeout_s, response);
}

/* ---- answers ---- */

const char *fth_metadata_text(fth_http_response *response)
{
    if (!response->body)
        return "";
    char *begin = response->body, *end = begin + strlen(begin);
    while (end > begin && isspace((unsigned char)end[-1]))
        *--end = '\0';
    while (isspace((unsigned char)*begin))
        begin++;
    return begin;
}

double fth_metadata_now(const fth_http_response *response)
{
    double now;
    char *date = fth_http_header(response, "Date");
    bool known = date && fth_parse_time(date, &now);
    free(date);
    return known ? now : fth_clock_wall_seconds();
}

bool fth_parse_time(const char *text, double *wall_s)
{
    /* Names of days and months are English here, whatever the user's language is. */
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm parts = {0};
    char month[4], zone[4];
    int end = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &parts.tm_year, &parts.tm_mon, &parts.tm_mday, &parts.tm_hour,
               &parts.tm_min, &parts.tm_sec, &end) == 6) {
        const char *rest = text + end;
        if (*rest == '.') /* fractions */
            rest += 1 + strspn(rest + 1, "0123456789");
        if (strcmp(rest, "Z") != 0)
            return false;
        parts.tm_mon -= 1;
    } else if (sscanf(text, "%*3s, %2d %3s %4d %2d:%2d:%2d %3s", &parts.tm_mday, month, &parts.tm_year, &parts.tm_hour,
                      &parts.tm_min, &parts.tm_sec, zone) == 7 &&
               strcmp(zone, "GMT") == 0) {
        const char *found = strlen(month) == 3 ? strstr(months, month) : NULL;
        if (!found || (found - months) % 3 != 0)
            return false;
        parts.tm_mon = (int)(found - months) / 3;
    } else {
        return false;
    }
    if (parts.tm_year < 2000 || parts.tm_year > 9999 || parts.tm_mon < 0 || parts.tm_mon > 11 || parts.tm_mday < 1 ||
        parts.tm_mday > 31 || parts.tm_hour > 23 || parts.tm_min > 59 || parts.tm_sec > 60 || parts.tm_hour < 0 ||
        parts.tm_min < 0 || parts.tm_sec < 0)
        return false;
    parts.tm_year -= 1900;
    *wall_s = (double)timegm(&parts);
    return true;
}
