/* Access control of a server: signatures or a token, the names the server answers to, pages in
 * browsers, and requests per second. A server has it as fth_server_options.access.
 *
 *     rate -> origin -> signature or token -> role        each step may refuse the request
 *                    `-> host, for unsigned requests
 *
 * The body is read afterwards and checked against its signed hash (fth_access_check_body). */
#ifndef FTH_HTTP_ACCESS_H
#define FTH_HTTP_ACCESS_H

#include "http/server.h"
#include "http/signature.h"

typedef struct fth_access_options {
    const char *address;         /* the one that is served */
    const char *keys;            /* lines as in signature.h; NULL: requests are not signed */
    const char *host_names;      /* further names of the server, comma-separated; or NULL */
    const char *certificate_pem; /* its names count too; or NULL */
    double max_requests_per_s;   /* of one address; 0: any number */
    bool open_reads;             /* routes that need the role read need no signature */
    bool open;                   /* without keys: anyone on this machine may do everything */
    int port;                    /* that will be served; 0: any free one */
} fth_access_options;

/* Without keys only this machine may be served, else FTH_INVALID. Callers then need this user's
 * token for the server (local_token.h), unless it is `open`. */
fth_status fth_access_create(const fth_access_options *options, fth_access **access);
void fth_access_free(fth_access *access);
bool fth_access_keyed(const fth_access *access); /* true if there are keys */
/* Keeps the signatures seen in `folder`, so that a request accepted once is not accepted again
 * after a restart. */
fth_status fth_access_remember(fth_access *access, const char *folder);

/* The key that signed an admitted request; NULL if there are no keys, or none was needed. */
const fth_signed *fth_access_signer(const fth_exchange *exchange);
/* True if the body is the signed one, or need not be signed; else refuses the request. */
bool fth_access_check_body(fth_exchange *exchange);
/* How many signatures had this result. */
uint64_t fth_access_count_signatures(const fth_access *access, fth_signature_result result);

#endif
