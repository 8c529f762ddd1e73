/* Who may ask a server: signatures, names of the server, pages in browsers, and how often. */
#ifndef FTH_HTTP_ACCESS_H
#define FTH_HTTP_ACCESS_H

#include "http/server.h"
#include "http/signature.h"

typedef struct fth_access fth_access;

typedef struct fth_access_options {
    const char *address;         /* that is served */
    const char *keys;            /* lines as signature.h has them; NULL: nothing is signed */
    const char *host_names;      /* further names of the server, with commas between them; or NULL */
    const char *certificate_pem; /* which has names too; or NULL */
    double max_requests_per_s;   /* of one address; 0: any number */
    bool open_reads;             /* what needs the role read needs no signature */
    bool open;                   /* without keys: anyone on this machine may do everything */
    int port;                    /* that will be served; 0: any free one, see fth_access_set_port() */
} fth_access_options;

/* Without keys only this machine may be served: else FTH_INVALID. Callers then show this user's
 * token for the server (local_token.h), unless it is `open`. */
fth_status fth_access_create(const fth_access_options *options, fth_access **access);
void fth_access_free(fth_access *access);
bool fth_access_keyed(const fth_access *access); /* there are keys, and requests are signed */
/* Once the server listens: makes its token, if there is none yet. */
fth_status fth_access_set_port(fth_access *access, int port);
/* Requests that were good once, to a process before this one, are not good again: remembers them in
 * `folder`. */
fth_status fth_access_remember(fth_access *access, const char *folder);

/* Why a request is refused. */
typedef enum fth_access_refusal {
    FTH_ACCESS_FORBIDDEN,
    FTH_ACCESS_UNSIGNED,
    FTH_ACCESS_CLOCK,
    FTH_ACCESS_BODY,
    FTH_ACCESS_HOST,
    FTH_ACCESS_ORIGIN,
    FTH_ACCESS_BUSY,
    FTH_ACCESS_RATE
} fth_access_refusal;
/* The service's own way to answer a request that is refused. */
typedef struct fth_refuser {
    void *context;
    void (*refuse)(void *context, fth_exchange *exchange, fth_access_refusal why, const char *message);
} fth_refuser;

/* Decides about a request before its body is read: sets the caller's role, or refuses and gives
 * false. From any thread, as are those below. */
bool fth_access_admit(fth_access *access, const fth_refuser *refuser, fth_exchange *exchange, const fth_route *route,
                      fth_role *role);
/* Refuses a caller whose role is too low; for fth_server_options.forbid. */
void fth_access_forbid(const fth_refuser *refuser, fth_exchange *exchange, const fth_route *route, fth_role role);
/* The key that signed an admitted request; NULL if there are no keys, or none was needed. */
const fth_signed *fth_access_signer(const fth_exchange *exchange);
/* True if the body is what was signed, or nothing need be; else refuses. */
bool fth_access_check_body(const fth_access *access, const fth_refuser *refuser, fth_exchange *exchange);
/* How many signatures were found to be so. */
uint64_t fth_access_count_signatures(const fth_access *access, fth_signature_result result);

#endif
