/* See s3_internal.h: addresses of buckets, and the tables of s3:// and gs://.
 *
 *     host style   https://BUCKET.s3.REGION.amazonaws.com/KEY   what AWS asks for
 *     path style   http://localhost:9000/BUCKET/KEY             other servers; buckets with dots,
 *                                                               which the certificates of the host
 *                                                               style do not cover */
#include <stdlib.h>
#include <string.h>

#include "store/s3_internal.h"

/* ---- addresses ---- */

/* The Host header that a client sends for "scheme://host:port": without the scheme's own port. */
static char *host_of(const char *origin)
{
    const char *host = strstr(origin, "://") + 3;
    const char *own = strncmp(origin, "https", 5) == 0 ? ":443" : ":80";
    size_t length = strlen(host), own_length = strlen(own);
    if (length > own_length && strcmp(host + length - own_length, own) == 0)
        length -= own_length;
    return strndup(host, length);
}

void fth_s3_set_address(fth_s3 *s3, const char *endpoint_origin, const char *endpoint_path)
{
    char *origin = endpoint_origin ? strdup(endpoint_origin)
                                   : fth_format("https://s3.%s.amazonaws.com%s", s3->region,
                                                strncmp(s3->region, "cn-", 3) == 0 ? ".cn" : "");
    const char *path = endpoint_path ? endpoint_path : "";
    free(s3->base);
    if (s3->host_style) {
        const char *host = strstr(origin, "://") + 3;
        char *longer = fth_format("%.*s%s.%s", (int)(host - origin), origin, s3->bucket.name, host);
        free(origin);
        origin = longer;
        s3->base = strdup(path);
    } else {
        s3->base = fth_format("%s/%s", path, s3->bucket.name);
    }
    free(s3->origin);
    free(s3->host);
    s3->origin = origin;
    s3->host = host_of(origin);
}

static const char *first_set(const char *given, const char *const *variables)
{
    if (given && *given)
        return given;
    for (; *variables; variables++) {
        const char *value = getenv(*variables);
        if (value && *value)
            return value;
    }
    return NULL;
}

/* Splits "http://host:port/path" and refuses what is none. */
static fth_status split_endpoint(const char *endpoint, char **origin, char **path)
{
    const char *host = strncmp(endpoint, "http://", 7) == 0    ? endpoint + 7
                       : strncmp(endpoint, "https://", 8) == 0 ? endpoint + 8
                                                               : NULL;
    if (!host)
        return fth_fail(FTH_INVALID, "the endpoint must begin with http:// or https://, as http://localhost:9000 does");
    size_t length = strcspn(host, "/?#");
    if (length == 0 || memchr(host, '@', length) || host[length] == '?' || host[length] == '#')
        return fth_fail(FTH_INVALID, "the endpoint must be of the form http://host:port, without user or query");
    *origin = strndup(endpoint, (size_t)(host - endpoint) + length);
    size_t path_length = strlen(host + length);
    while (path_length > 0 && host[length + path_length - 1] == '/')
        path_length--;
    *path = strndup(host + length, path_length);
    return FTH_OK;
}

const char *const fth_s3_styles[] = {"auto", "path", "host", NULL};

static fth_status choose_style(fth_s3 *s3, const char *style, bool has_endpoint)
{
    style = style && *style ? style : "auto";
    if (strcmp(style, "path") == 0)
        s3->host_style = false;
    else if (strcmp(style, "host") == 0)
        s3->host_style = true;
    else if (strcmp(style, "auto") == 0)
        s3->host_style = !has_endpoint && !strchr(s3->bucket.name, '.');
    else
        return fth_fail(FTH_INVALID, "'%s' is no style of address; there are path, host and auto", style);
    return FTH_OK;
}

/* ---- opening ---- */

static fth_status open_bucket(fth_store *store, const char *scheme, const char *rest, const fth_store_options *options)
{
    static const char *const endpoint_variables[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL};
    static const char *const google_variables[] = {"FARTHING_GS_ENDPOINT", NULL};
    static const char *const region_variables[] = {"AWS_REGION", "AWS_DEFAULT_REGION", NULL};
    fth_status status = FTH_OK;
    fth_s3 *s3 = NULL;
    char *origin = NULL, *base = NULL;

    FTH_TRY(fth_allocate(1, sizeof *s3, &s3));
    store->state = s3;
    pthread_mutex_init(&s3->mutex, NULL);
    s3->google = strcmp(scheme, "gs") == 0;
    s3->bucket.cloud = s3->google ? &fth_bucket_google : &fth_bucket_s3;
    size_t length = strcspn(rest, "/");
    s3->bucket.name = strndup(rest, length);
    /* Some tools take s3://KEY:SECRET@bucket; a message must not tell it. */
    FTH_REQUIRE(!strchr(s3->bucket.name, '@') && !strchr(s3->bucket.name, ':'), FTH_INVALID,
                "an address of %s:// holds no keys: the form is %s://bucket/prefix, and keys come from the environment "
                "or ~/.aws/credentials",
                scheme, scheme);
    FTH_REQUIRE(length > 0 && strspn(s3->bucket.name,
                                     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == length,
                FTH_INVALID, "%s://%s: '%s' cannot be the name of a bucket; the form is %s://bucket/prefix", scheme,
                rest, s3->bucket.name, scheme);
    const char *path = rest[length] ? rest + length + 1 : "";
    FTH_TRY(fth_store_read_prefix(store, path, strlen(path), &s3->bucket.prefix));

    FTH_TRY(fth_credentials_open(options->profile, s3->google, &s3->credentials));
    const char *endpoint =
        s3->google ? first_set(NULL, google_variables) : first_set(options->s3_endpoint, endpoint_variables);
    endpoint = endpoint ? endpoint : fth_credentials_endpoint(s3->credentials);
    s3->amazon = !endpoint && !s3->google;
    FTH_TRY(choose_style(s3, s3->google ? "path" : options->s3_style, endpoint != NULL));
    if (s3->google && !endpoint)
        endpoint = "https://storage.googleapis.com";
    if (endpoint)
        FTH_TRY(split_endpoint(endpoint, &origin, &base));
    const char *region = s3->google ? "auto" : first_set(options->s3_region, region_variables);
    region = region ? region : fth_credentials_region(s3->credentials);
    s3->region = strdup(region ? region : "us-east-1");
    FTH_REQUIRE(strspn(s3->region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
                    strlen(s3->region),
                FTH_INVALID, "'%s' cannot be the name of a region", s3->region);
    fth_s3_set_address(s3, origin, base);
    size_t url_length = strlen(rest);
    store->url = fth_format("%s://%.*s", scheme, (int)url_length - (rest[url_length - 1] == '/'), rest);

out:
    free(origin);
    free(base);
    return status;
}

static void free_bucket(void *state)
{
    fth_s3 *s3 = state;
    if (!s3)
        return;
    fth_credentials_free(s3->credentials);
    pthread_mutex_destroy(&s3->mutex);
    fth_bucket_release(&s3->bucket);
    free(s3->region);
    free(s3->origin);
    free(s3->host);
    free(s3->base);
    free(s3);
}

/* ---- links ---- */

static fth_status presign(fth_store *store, const char *method, const char *key, double seconds, char **url)
{
    fth_status status = FTH_OK;
    fth_s3 *s3 = fth_s3_of(store);
    fth_cloud_keys keys = {0};
    char *whole = fth_format("%s%s", s3->bucket.prefix, key), *escaped = fth_http_escape(whole, true);
    char *path = NULL, *query = NULL;

    FTH_TRY(fth_credentials_get(s3->credentials, &keys));
    pthread_mutex_lock(&s3->mutex);
    path = fth_format("%s/%s", s3->base, escaped);
    fth_sigv4 sign = {.google = s3->google,
                      .access_key = keys.access_key,
                      .secret_key = keys.secret_key,
                      .session_token = keys.session_token,
                      .region = s3->region,
                      .service = s3->google ? "storage" : "s3",
                      .method = method,
                      .host = s3->host,
                      .path = path,
                      .wall_s = fth_clock_wall_seconds() + s3->clock_offset_s};
    status = fth_sigv4_presign(&sign, seconds, &query);
    if (status == FTH_OK)
        *url = fth_format("%s%s?%s", s3->origin, path, query);
    pthread_mutex_unlock(&s3->mutex);
    if (status == FTH_OK && keys.expires_s > 0 && keys.expires_s < fth_clock_wall_seconds() + seconds)
        fth_log_warning("the link ends earlier than asked for, when the keys do, which came from %s",
                        fth_credentials_source(s3->credentials));

out:
    fth_cloud_keys_release(&keys);
    free(whole);
    free(escaped);
    free(path);
    free(query);
    return status;
}

/* ---- tables ---- */

#define BUCKET_FUNCTIONS                                                                                               \
    .open = open_bucket, .free = free_bucket, .get = fth_bucket_get, .get_range = fth_bucket_get_range,                \
    .stat = fth_bucket_stat, .list = fth_bucket_list, .get_file = fth_s3_get_file, .put = fth_s3_put,                  \
    .put_source = fth_s3_put_source, .put_file = fth_s3_put_file, .remove = fth_bucket_remove,                         \
    .probe_conditions = fth_s3_probe_conditions, .presign = presign

static const char *const s3_schemes[] = {"s3", NULL}, *const gs_schemes[] = {"gs", NULL};

const fth_store_kind fth_store_kind_s3 = {.name = "s3", .schemes = s3_schemes, BUCKET_FUNCTIONS};
const fth_store_kind fth_store_kind_gs = {.name = "gs", .schemes = gs_schemes, BUCKET_FUNCTIONS};
