/* See s3_internal.h: what is S3's own, and Google's: names, error codes, signatures. A request that
 * failed since the clock, the region or the keys were wrong is mended and sent again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/s3_internal.h"

enum { MAX_CONFLICTS = 8 };

/* Signatures are good for 15 minutes; a clock that is off by less needs no mending. */
static const double CLOCK_OFF_S = 240;

/* ---- signing ---- */

static fth_status sign(fth_bucket_request *request)
{
    fth_status status = FTH_OK;
    fth_s3 *s3 = fth_s3_of(request->store);
    fth_cloud_keys keys = {0};
    char *whole = request->key ? fth_format("%s%s", s3->bucket.prefix, request->key) : strdup("");
    char *escaped = fth_http_escape(whole, true), *path = NULL, *query = NULL, *region = NULL, *host = NULL;

    if (!request->payload_hash) {
        fth_hex_sha256(request->body ? request->body : "", (size_t)request->body_bytes, request->hash);
        request->payload_hash = request->hash;
    }
    FTH_TRY(fth_credentials_get(s3->credentials, &keys));
    pthread_mutex_lock(&s3->mutex);
    path = fth_format("%s/%s", s3->base, escaped);
    if (!request->key && *s3->base) /* the bucket itself: "/bucket" */
        path[strlen(path) - 1] = '\0';
    query = fth_sigv4_query(request->query, request->query_count);
    request->url = fth_format("%s%s%s%s", s3->origin, path, *query ? "?" : "", query);
    region = strdup(s3->region);
    host = strdup(s3->host);
    double wall_s = fth_clock_wall_seconds() + s3->clock_offset_s;
    pthread_mutex_unlock(&s3->mutex);
    fth_sigv4 whole_request = {.google = s3->google,
                               .access_key = keys.access_key,
                               .secret_key = keys.secret_key,
                               .session_token = keys.session_token,
                               .region = region,
                               .service = s3->google ? "storage" : "s3",
                               .method = request->method,
                               .host = host,
                               .path = path,
                               .query = request->query,
                               .query_count = request->query_count,
                               .headers = request->headers,
                               .header_count = request->header_count,
                               .payload_hash = request->payload_hash,
                               .wall_s = wall_s};
    FTH_TRY(fth_sigv4_sign(&whole_request, &request->lines));

out:
    fth_cloud_keys_release(&keys);
    free(whole);
    free(escaped);
    free(path);
    free(query);
    free(region);
    free(host);
    return status;
}

/* ---- mending ---- */

static bool mend_clock(fth_bucket_request *request, const fth_http_response *response)
{
    fth_s3 *s3 = fth_s3_of(request->store);
    char *date = fth_http_header(response, "Date");
    double theirs_s = fth_bucket_read_time(date), now_s = fth_clock_wall_seconds();
    free(date);
    if (request->mended_clock || theirs_s == 0)
        return false;
    pthread_mutex_lock(&s3->mutex);
    bool off = fabs(theirs_s - now_s - s3->clock_offset_s) > CLOCK_OFF_S;
    if (off)
        s3->clock_offset_s = theirs_s - now_s;
    pthread_mutex_unlock(&s3->mutex);
    if (off)
        fth_log_warning("this machine's clock is %.0f minutes %s the server's; going by the server's",
                        fabs(theirs_s - now_s) / 60, theirs_s > now_s ? "behind" : "ahead of");
    request->mended_clock = true;
    return off;
}

static bool mend_region(fth_bucket_request *request, const fth_http_response *response)
{
    fth_s3 *s3 = fth_s3_of(request->store);
    char *region = fth_http_header(response, "x-amz-bucket-region");
    if (!region)
        region = fth_xml_value(response->body, response->body_bytes, "Region");
    pthread_mutex_lock(&s3->mutex);
    bool other = !request->mended_region && !s3->google && region && *region && strcmp(region, s3->region) != 0 &&
                 strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(region);
    if (other) {
        fth_log_warning("the bucket '%s' is in the region %s, not in %s; going there (--s3-region saves this detour)",
                        s3->bucket.name, region, s3->region);
        free(s3->region);
        s3->region = strdup(region);
        if (s3->amazon)
            fth_s3_set_address(s3, NULL, NULL);
        request->mended_region = true;
    }
    pthread_mutex_unlock(&s3->mutex);
    free(region);
    return other;
}

static bool mend(void *context, const fth_http_response *response)
{
    fth_bucket_request *request = context;
    fth_s3 *s3 = fth_s3_of(request->store);
    bool mended = false;
    char *code = fth_xml_value(response->body, response->body_bytes, "Code");
    if (response->code == 301 || response->code == 307 || response->code == 400)
        mended = mend_region(request, response);
    if (!mended && (response->code == 403 || response->code == 400)) /* an answer to HEAD has no code: see the clock */
        mended = mend_clock(request, response);
    if (!mended && code && !request->mended_keys &&
        (strcmp(code, "ExpiredToken") == 0 || strcmp(code, "TokenRefreshRequired") == 0))
        mended = request->mended_keys = fth_credentials_renew(s3->credentials);
    bool busy = code && (strcmp(code, "RequestTimeout") == 0 || strcmp(code, "OperationAborted") == 0 ||
                         strcmp(code, "ConditionalRequestConflict") == 0 || strcmp(code, "BadDigest") == 0 ||
                         strcmp(code, "XAmzContentSHA256Mismatch") == 0);
    if (!mended && busy && request->conflicts < MAX_CONFLICTS) {
        fth_backoff backoff = {.first_s = 0.05, .most_s = 2, .tries = request->conflicts++};
        mended = fth_backoff_wait(&backoff, 0, request->deadline);
    }
    free(code);
    return mended;
}

/* ---- tables ---- */

static char *error_code(const fth_http_response *response)
{
    return fth_xml_value(response->body, response->body_bytes, "Code");
}

static const char *keys_from(const fth_store *store)
{
    return fth_credentials_source(fth_s3_of(store)->credentials);
}

static char *origin(const fth_store *store)
{
    fth_s3 *s3 = fth_s3_of(store);
    pthread_mutex_lock(&s3->mutex);
    char *text = strdup(s3->origin);
    pthread_mutex_unlock(&s3->mutex);
    return text;
}

static const fth_cloud_error errors[] = {
    {"NoSuchBucket", FTH_INVALID, FTH_NAMES_BUCKET,
     "there is no bucket '%s'; create it, or mend the address, the endpoint or the region"},
    {"InvalidBucketName", FTH_INVALID, FTH_NAMES_BUCKET,
     "'%s' cannot be the name of a bucket (3 to 63 small letters, digits, '-' and '.')"},
    {"NoSuchKey", FTH_INVALID, FTH_NAMES_NOTHING, "there is no such object"},
    {"InvalidAccessKeyId", FTH_INVALID, FTH_NAMES_KEYS,
     "the server does not know the access key, which came from %s; check it, and that the endpoint is the right one"},
    {"SignatureDoesNotMatch", FTH_INVALID, FTH_NAMES_KEYS,
     "the secret key does not fit the access key; both came from %s: check them"},
    {"ExpiredToken", FTH_INVALID, FTH_NAMES_KEYS,
     "the session token has expired; the keys came from %s: log in again, or set fresh ones"},
    {"TokenRefreshRequired", FTH_INVALID, FTH_NAMES_KEYS,
     "the session token has expired; the keys came from %s: log in again, or set fresh ones"},
    {"InvalidToken", FTH_INVALID, FTH_NAMES_KEYS,
     "the session token is not valid; the keys came from %s: is AWS_SESSION_TOKEN left over from other keys?"},
    {"RequestTimeTooSkewed", FTH_INVALID, FTH_NAMES_NOTHING,
     "this machine's clock differs from the server's by more than 15 minutes; set it right (timedatectl set-ntp true)"},
    {"RequestExpired", FTH_INVALID, FTH_NAMES_NOTHING, "this machine's clock is wrong; set it right"},
    {"AccessDenied", FTH_INVALID, FTH_NAMES_KEYS,
     "access denied: the keys, which came from %s, do not allow this; the bucket's policy or the role must"},
    {"AllAccessDisabled", FTH_INVALID, FTH_NAMES_BUCKET, "all access to the bucket '%s' has been disabled"},
    {"AuthorizationHeaderMalformed", FTH_INVALID, FTH_NAMES_NOTHING,
     "the region is wrong; give the bucket's own (--s3-region or AWS_REGION)"},
    {"PermanentRedirect", FTH_INVALID, FTH_NAMES_NOTHING,
     "the bucket is in another region; give it (--s3-region or AWS_REGION)"},
    {"InvalidObjectState", FTH_INVALID, FTH_NAMES_NOTHING, "the object is archived and must be restored first"},
    {"EntityTooLarge", FTH_INVALID, FTH_NAMES_NOTHING, "the object is larger than the server takes"},
    {"QuotaExceeded", FTH_IO, FTH_NAMES_BUCKET,
     "the quota of the bucket '%s' or its owner is used up; delete something"},
    {"XMinioStorageFull", FTH_IO, FTH_NAMES_NOTHING, "the server's disks are full; delete something"},
    {"InsufficientStorage", FTH_IO, FTH_NAMES_NOTHING, "the server's disks are full; delete something"},
    {"BadDigest", FTH_CORRUPT, FTH_NAMES_NOTHING, "what arrived is not what was sent (checksum)"},
    {"XAmzContentSHA256Mismatch", FTH_CORRUPT, FTH_NAMES_NOTHING, "what arrived is not what was sent (checksum)"},
    {"NotImplemented", FTH_UNSUPPORTED, FTH_NAMES_NOTHING, "the server cannot do that"},
    {0},
};

#define COMMON                                                                                                         \
    .range = "range", .list = {{"list-type", "2"}}, .list_token = "continuation-token", .list_after = "start-after",   \
    .no_bucket = "NoSuchBucket", .no_object = "NoSuchKey", .mute_heads = true, .errors = errors,                       \
    .error_code = error_code, .sign = sign, .mend = mend, .verify = fth_s3_verify, .keys_from = keys_from,             \
    .origin = origin

#define ELEMENTS(version_name)                                                                                         \
    {                                                                                                                  \
        .entry = "ListBucketResult/Contents", .key = "Key", .size = "Size", .modified = "LastModified",                \
        .version = version_name, .token = "ListBucketResult/NextContinuationToken",                                    \
        .more = "ListBucketResult/IsTruncated"                                                                         \
    }

const fth_bucket_kind fth_bucket_s3 = {
    COMMON,
    .version = "etag",
    .match = "if-match",
    .quoted = true,
    .absent = {"if-none-match", "*"},
    .meta = "x-amz-meta-",
    .elements = ELEMENTS("ETag"),
};

/* Under Amazon's signature Google ignores conditions; under its own they are on generations. */
const fth_bucket_kind fth_bucket_google = {
    COMMON,
    .version = "x-goog-generation",
    .match = "x-goog-if-generation-match",
    .absent = {"x-goog-if-generation-match", "0"},
    .meta = "x-goog-meta-",
    .elements = ELEMENTS("Generation"),
};
