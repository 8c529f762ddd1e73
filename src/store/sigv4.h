/* Signatures of requests: AWS's version 4, and Google's GOOG4, which differs in names only.
 *
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 * https://cloud.google.com/storage/docs/authentication/signatures */
#ifndef FTH_STORE_SIGV4_H
#define FTH_STORE_SIGV4_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

typedef struct fth_pair {
    const char *name, *value;
} fth_pair;

typedef struct fth_sigv4 {
    bool google; /* GOOG4-HMAC-SHA256 and x-goog-... instead of AWS4-HMAC-SHA256 and x-amz-... */
    const char *access_key, *secret_key;
    const char *session_token; /* NULL: none */
    const char *region, *service;

    const char *method;
    const char *host;      /* as the Host header will be */
    const char *path;      /* escaped, as it will be sent */
    const fth_pair *query; /* not escaped */
    int query_count;
    const fth_pair *headers; /* to be signed and sent: names in small letters; not host, date, hash and token */
    int header_count;
    const char *payload_hash; /* hex SHA-256 of the body, or "UNSIGNED-PAYLOAD" */
    double wall_s;
} fth_sigv4;

/* The query string, escaped and in order; free() it. NULL: no memory. */
char *fth_sigv4_query(const fth_pair *query, int count);

/* The lines of a signed request ("name: value": the given headers, date, hash, token,
 * authorization), ended by NULL. Free it with fth_sigv4_free_lines(). */
fth_status fth_sigv4_sign(const fth_sigv4 *request, char ***lines);
void fth_sigv4_free_lines(char **lines);

/* For a server that checks a signature: what it has to be. `headers` are those that the client has
 * signed, in its order; request's own headers, host, token, google and wall_s are not used. `date`
 * is "20261116T120000Z". */
fth_status fth_sigv4_expect(const fth_sigv4 *request, const char *date, const fth_pair *headers, int count,
                            char signature[65]);

/* The query string that makes a URL good for `seconds`; free() it. Only host is signed. */
fth_status fth_sigv4_presign(const fth_sigv4 *request, double seconds, char **query);

#endif
