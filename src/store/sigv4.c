/* See sigv4.h. */
#include "store/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http/http.h"

enum { DIGEST_BYTES = 32, MAX_PAIRS = 32, DATE_BYTES = 17 };

/* The words in which the two dialects differ. */
typedef struct fth_dialect {
    const char *algorithm, *key_prefix, *ending, *header_prefix, *query_prefix;
} fth_dialect;

static const fth_dialect amazon = {"AWS4-HMAC-SHA256", "AWS4", "aws4_request", "x-amz-", "X-Amz-"};
static const fth_dialect google = {"GOOG4-HMAC-SHA256", "GOOG4", "goog4_request", "x-goog-", "X-Goog-"};

static void hmac(const void *key, size_t key_bytes, const char *text, unsigned char digest[DIGEST_BYTES])
{
    unsigned length = DIGEST_BYTES;
    HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text, strlen(text), digest, &length);
}

static int compare_pairs(const void *a, const void *b)
{
    const fth_pair *first = a, *second = b;
    int order = strcmp(first->name, second->name);
    return order ? order : strcmp(first->value, second->value);
}

/* ---- canonical text ---- */

char *fth_sigv4_query(const fth_pair *query, int count)
{
    fth_pair escaped[MAX_PAIRS];
    char *text = strdup("");
    if (count > MAX_PAIRS)
        count = MAX_PAIRS;
    for (int i = 0; i < count; i++)
        escaped[i] = (fth_pair){fth_http_escape(query[i].name, false), fth_http_escape(query[i].value, false)};
    qsort(escaped, (size_t)count, sizeof escaped[0], compare_pairs);
    for (int i = 0; i < count; i++) {
        char *longer = fth_format("%s%s%s=%s", text, i ? "&" : "", escaped[i].name, escaped[i].value);
        free(text);
        text = longer;
        free((char *)escaped[i].name);
        free((char *)escaped[i].value);
    }
    return text;
}

/* "name:value\n" of each header in order, and "name;name;..." of the same. */
static void canonical_headers(const fth_pair *headers, int count, char **lines, char **names)
{
    *lines = strdup("");
    *names = strdup("");
    for (int i = 0; i < count; i++) {
        char *longer = fth_format("%s%s:%s\n", *lines, headers[i].name, headers[i].value);
        free(*lines);
        *lines = longer;
        longer = fth_format("%s%s%s", *names, i ? ";" : "", headers[i].name);
        free(*names);
        *names = longer;
    }
}

static void signature_of(const fth_sigv4 *request, const fth_dialect *dialect, const char *date, const char *scope,
                         const char *canonical, char hex[65])
{
    unsigned char key[DIGEST_BYTES], next[DIGEST_BYTES];
    char hash[65], day[9];
    snprintf(day, sizeof day, "%.8s", date);
    fth_hex_sha256(canonical, strlen(canonical), hash);
    char *to_sign = fth_format("%s\n%s\n%s\n%s", dialect->algorithm, date, scope, hash);
    char *first = fth_format("%s%s", dialect->key_prefix, request->secret_key);
    hmac(first, strlen(first), day, key);
    hmac(key, sizeof key, request->region, next);
    hmac(next, sizeof next, request->service, key);
    hmac(key, sizeof key, dialect->ending, next);
    hmac(next, sizeof next, to_sign, key);
    fth_hex_encode(key, sizeof key, hex);
    fth_wipe(next, sizeof next);
    fth_wipe(key, sizeof key);
    fth_wipe_text(first);
    free(to_sign);
}

static void date_text(double wall_s, char text[DATE_BYTES])
{
    time_t whole = (time_t)wall_s;
    struct tm parts;
    gmtime_r(&whole, &parts);
    strftime(text, DATE_BYTES, "%Y%m%dT%H%M%SZ", &parts);
}

/* ---- headers ---- */

fth_status fth_sigv4_sign(const fth_sigv4 *request, char ***result)
{
    fth_status status = FTH_OK;
    const fth_dialect *dialect = request->google ? &google : &amazon;
    fth_pair headers[MAX_PAIRS];
    char date[DATE_BYTES], signature[65], **lines = NULL;
    int count = 0;
    char *date_name = fth_format("%sdate", dialect->header_prefix);
    char *hash_name = fth_format("%scontent-sha256", dialect->header_prefix);
    char *token_name = fth_format("%ssecurity-token", dialect->header_prefix);
    char *scope = NULL, *query = NULL, *block = NULL, *names = NULL, *canonical = NULL;

    *result = NULL;
    FTH_REQUIRE(request->header_count <= MAX_PAIRS - 8 && request->query_count <= MAX_PAIRS - 8, FTH_INVALID,
                "a request with too many headers cannot be signed");
    for (; count < request->header_count; count++)
        headers[count] = request->headers[count];
    date_text(request->wall_s, date);
    headers[count++] = (fth_pair){"host", request->host};
    headers[count++] = (fth_pair){date_name, date};
    headers[count++] = (fth_pair){hash_name, request->payload_hash};
    if (request->session_token)
        headers[count++] = (fth_pair){token_name, request->session_token};
    qsort(headers, (size_t)count, sizeof headers[0], compare_pairs);

    scope = fth_format("%.8s/%s/%s/%s", date, request->region, request->service, dialect->ending);
    query = fth_sigv4_query(request->query, request->query_count);
    canonical_headers(headers, count, &block, &names);
    canonical = fth_format("%s\n%s\n%s\n%s\n%s\n%s", request->method, request->path, query, block, names,
                           request->payload_hash);
    signature_of(request, dialect, date, scope, canonical, signature);

    FTH_TRY(fth_allocate((size_t)count + 2, sizeof *lines, &lines));
    for (int i = 0; i < count; i++)
        lines[i] = *headers[i].value ? fth_format("%s: %s", headers[i].name, headers[i].value)
                                     : fth_format("%s;", headers[i].name); /* libcurl's way of an empty header */
    lines[count] = fth_format("Authorization: %s Credential=%s/%s, SignedHeaders=%s, Signature=%s", dialect->algorithm,
                              request->access_key, scope, names, signature);
    *result = lines;

out:
    free(date_name);
    free(hash_name);
    free(token_name);
    free(scope);
    free(query);
    free(block);
    free(names);
    free(canonical);
    return status;
}

void fth_sigv4_free_lines(char **lines)
{
    for (char **line = lines; line && *line; line++)
        fth_wipe_text(*line); /* one of them may hold a session token */
    free(lines);
}

fth_status fth_sigv4_expect(const fth_sigv4 *request, const char *date, const fth_pair *headers, int count,
                            char signature[65])
{
    fth_status status = FTH_OK;
    char *block = NULL, *names = NULL;
    char *scope = fth_format("%.8s/%s/%s/%s", date, request->region, request->service, amazon.ending);
    char *query = fth_sigv4_query(request->query, request->query_count);
    canonical_headers(headers, count, &block, &names);
    char *canonical = fth_format("%s\n%s\n%s\n%s\n%s\n%s", request->method, request->path, query, block, names,
                                 request->payload_hash);
    FTH_REQUIRE(scope && query && block && names && canonical, FTH_NO_MEMORY, "no memory to check a signature");
    signature_of(request, &amazon, date, scope, canonical, signature);

out:
    free(scope);
    free(query);
    free(block);
    free(names);
    free(canonical);
    return status;
}

/* ---- links ---- */

fth_status fth_sigv4_presign(const fth_sigv4 *request, double seconds, char **result)
{
    const fth_dialect *dialect = request->google ? &google : &amazon;
    fth_pair query[MAX_PAIRS];
    char date[DATE_BYTES], expires[24], signature[65], *names[6];
    static const char *const words[] = {"Algorithm", "Credential",    "Date",
                                        "Expires",   "SignedHeaders", "Security-Token"};
    int count = 0;

    *result = NULL;
    if (seconds < 1 || seconds > 604800)
        return fth_fail(FTH_INVALID, "a link can be good for 1 second to 7 days, not for %g s", seconds);
    if (request->query_count > MAX_PAIRS - 8)
        return fth_fail(FTH_INVALID, "a request with too many parameters cannot be signed");
    for (; count < request->query_count; count++)
        query[count] = request->query[count];
    for (size_t i = 0; i < FTH_COUNT_OF(words); i++)
        names[i] = fth_format("%s%s", dialect->query_prefix, words[i]);
    date_text(request->wall_s, date);
    snprintf(expires, sizeof expires, "%.0f", seconds);
    char *scope = fth_format("%.8s/%s/%s/%s", date, request->region, request->service, dialect->ending);
    char *credential = fth_format("%s/%s", request->access_key, scope);
    query[count++] = (fth_pair){names[0], dialect->algorithm};
    query[count++] = (fth_pair){names[1], credential};
    query[count++] = (fth_pair){names[2], date};
    query[count++] = (fth_pair){names[3], expires};
    query[count++] = (fth_pair){names[4], "host"};
    if (request->session_token)
        query[count++] = (fth_pair){names[5], request->session_token};
    char *text = fth_sigv4_query(query, count);
    char *canonical = fth_format("%s\n%s\n%s\nhost:%s\n\nhost\nUNSIGNED-PAYLOAD", request->method, request->path, text,
                                 request->host);
    signature_of(request, dialect, date, scope, canonical, signature);
    *result = fth_format("%s&%sSignature=%s", text, dialect->query_prefix, signature);
    for (size_t i = 0; i < FTH_COUNT_OF(words); i++)
        free(names[i]);
    free(scope);
    free(credential);
    free(text);
    free(canonical);
    return FTH_OK;
}
