/* Verifies AWS signatures, version 4, of requests to the Lambda API (store/sigv4.h creates them).
 * */
#include <ctype.h>
#include <math.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http/http.h"
#include "platform/service_internal.h"
#include "store/sigv4.h"

enum { MAX_HEADERS = 24, MAX_QUERY = 16 };
static const double clock_tolerance_s = 15 * 60;

/* The value of "name=value" in the Authorization header; free() it. */
static char *part_of(const char *authorization, const char *name)
{
    const char *at = strstr(authorization, name);
    return at ? strndup(at + strlen(name), strcspn(at + strlen(name), ", ")) : NULL;
}

bool fth_lambda_names_key(const fth_service_key *key, fth_exchange *exchange)
{
    const char *authorization = fth_exchange_header(exchange, "Authorization");
    if (!authorization || strncmp(authorization, "AWS4-HMAC-SHA256 ", 17) != 0)
        return false;
    char *credential = part_of(authorization, "Credential=");
    size_t length = strlen(key->first);
    bool named = credential && strncmp(credential, key->first, length) == 0 && credential[length] == '/';
    free(credential);
    return named;
}

static bool date_is_now(const char *date)
{
    struct tm parts = {0};
    const char *end = strptime(date, "%Y%m%dT%H%M%SZ", &parts);
    return end && !*end && fabs((double)timegm(&parts) - fth_clock_wall_seconds()) <= clock_tolerance_s;
}

/* Splits "a=1&b=2" in place; values are unescaped into fresh memory. */
static int split_query(char *text, fth_pair pairs[MAX_QUERY])
{
    int count = 0;
    for (char *word; text && *text && count < MAX_QUERY && (word = strsep(&text, "&"));) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = '\0';
        pairs[count++] = (fth_pair){fth_http_unescape(word), fth_http_unescape(value ? value : "")};
    }
    return count;
}

/* Finds the signed headers, "host;x-amz-date", splitting in place. False if one is missing, or host
 * or date is not signed. */
static bool find_headers(char *names, fth_exchange *exchange, fth_pair headers[MAX_HEADERS], int *count)
{
    bool host = false, date = false;
    *count = 0;
    for (char *name; names && (name = strsep(&names, ";"));) {
        const char *value = fth_exchange_header(exchange, name);
        if (!value || *count == MAX_HEADERS)
            return false;
        host = host || strcmp(name, "host") == 0;
        date = date || strcmp(name, "x-amz-date") == 0;
        headers[(*count)++] = (fth_pair){name, value};
    }
    return host && date;
}

/* The region of "KEY/20261116/REGION/lambda/aws4_request", split in place; NULL for other forms. */
static const char *region_of(char *credential, size_t key_length, const char *date)
{
    char *day = credential + key_length + 1, *region = strchr(day, '/'),
         *service = region ? strchr(region + 1, '/') : NULL;
    if (!service || strncmp(day, date, 8) != 0 || region - day != 8 || strcmp(service, "/lambda/aws4_request") != 0)
        return NULL;
    *service = '\0';
    return region + 1;
}

bool fth_lambda_is_signed(const fth_service_key *key, fth_exchange *exchange)
{
    const char *authorization = fth_exchange_header(exchange, "Authorization");
    const char *date = fth_exchange_header(exchange, "X-Amz-Date"), *target = fth_exchange_target(exchange);
    const char *claimed_hash = fth_exchange_header(exchange, "X-Amz-Content-Sha256");
    size_t size;
    const void *body = fth_exchange_body(exchange, &size);
    char hash[65], expected[65];
    fth_pair headers[MAX_HEADERS], query[MAX_QUERY];
    int header_count = 0, query_count = 0;
    bool right = false;

    if (!fth_lambda_names_key(key, exchange) || !date || !date_is_now(date))
        return false;
    char *credential = part_of(authorization, "Credential="), *names = part_of(authorization, "SignedHeaders=");
    char *signature = part_of(authorization, "Signature="), *raw_path = strndup(target, strcspn(target, "?"));
    char *raw_query = strchr(target, '?') ? strdup(strchr(target, '?') + 1) : NULL;
    /* services other than S3 escape the path twice */
    char *path = raw_path ? fth_http_escape(raw_path, true) : NULL;
    const char *region = credential ? region_of(credential, strlen(key->first), date) : NULL;
    fth_hex_sha256(body, size, hash);
    if (region && names && signature && path && (!claimed_hash || strcmp(claimed_hash, hash) == 0) &&
        find_headers(names, exchange, headers, &header_count)) {
        query_count = split_query(raw_query, query);
        fth_sigv4 request = {.access_key = key->first,
                             .secret_key = key->second,
                             .region = region,
                             .service = "lambda",
                             .method = fth_exchange_method(exchange),
                             .path = path,
                             .query = query,
                             .query_count = query_count,
                             .payload_hash = hash};
        right = fth_sigv4_expect(&request, date, headers, header_count, expected) == FTH_OK &&
                strlen(signature) == 64 && CRYPTO_memcmp(signature, expected, 64) == 0;
    }
    for (int i = 0; i < query_count; i++) {
        free((char *)(uintptr_t)query[i].name);
        free((char *)(uintptr_t)query[i].value);
    }
    free(credential);
    free(names);
    free(signature);
    free(raw_path);
    free(raw_query);
    free(path);
    return right;
}
