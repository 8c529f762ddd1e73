/* An HTTP/1.1 server: a table of routes, handlers on a pool of threads, answers at once or later.
 *
 * A route states the role that a caller needs, the largest body, and the name under which its
 * requests are counted. The server enforces these before the handler runs: a caller whose role is
 * too low gets 403, and a body over the limit gets 413 before it is read.
 *
 * A handler runs once the whole request has arrived, including its body. It must not block. It
 * answers at once, or holds the exchange for another thread to answer (long_poll.h). Slow clients
 * cost memory, not threads. */
#ifndef FTH_HTTP_SERVER_H
#define FTH_HTTP_SERVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "http/role.h"

typedef struct fth_server fth_server;
typedef struct fth_exchange fth_exchange; /* one request and its answer */
typedef struct fth_access fth_access;     /* access.h */

typedef struct fth_route {
    const char *method; /* "GET"; GET routes answer HEAD too */
    const char *path;   /* "/getVersion"; a '*' at the end matches any rest */
    void (*handle)(void *context, fth_exchange *exchange);
    fth_role role;           /* the lowest that may call it */
    uint64_t max_body_bytes; /* 0: no body; FTH_SERVER_BODY: the server's max_body_bytes */
    const char *metric;      /* the name in request counts; NULL: the path */
} fth_route;

#define FTH_SERVER_BODY UINT64_MAX

/* Why access control refuses a request. */
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

typedef struct fth_server_options {
    const char *address;     /* NULL: 127.0.0.1; "0.0.0.0", "::1" */
    int port;                /* 0: any free one; see fth_server_port() */
    const fth_route *routes; /* ends with a NULL method; outlives the server */
    void *context;           /* passed to handlers and to the functions below */

    /* Access control, one of:
     * - `access` identifies callers by signature or token; `refuse` words its refusals.
     * - `admit` is called with method, path and headers, before the body is read. It sets the
     *   caller's role, or answers and returns false.
     * - neither: every caller has FTH_ROLE_NONE, and a route that needs more is an error. */
    fth_access *access;
    /* Answers a request that `access` refuses; `code` is the usual HTTP status for the reason. */
    void (*refuse)(void *context, fth_exchange *exchange, fth_access_refusal why, int code, const char *message);
    bool (*admit)(void *context, fth_exchange *exchange, const fth_route *route, fth_role *role);

    uint64_t max_body_bytes;               /* of routes with FTH_SERVER_BODY */
    const char *certificate_pem, *key_pem; /* TLS; NULL: plain */
    int threads;                           /* 0: 4 */
    /* 0: 1024; fewer if the process may not open twice as many files. A connection beyond the limit
     * is accepted and others are closed instead (connections.c): unauthenticated ones, of the
     * address that has most of them. */
    int max_connections;
    /* For bodies being received and large answers being sent, in total; beyond it, requests get 503
     * with Retry-After. 0: 1 GiB */
    uint64_t max_memory_bytes;
    /* Connections that are idle, or do not complete a request, for this long are closed; 0: 60. The
     * headers of a connection's first request must arrive within 10 s. */
    double idle_s;
} fth_server_options;

fth_status fth_server_start(const fth_server_options *options, fth_server **server);
int fth_server_port(const fth_server *server);
/* Answers held exchanges with 503, closes connections, joins the threads; bounded by
 * `deadline_s`. */
void fth_server_stop(fth_server *server, double deadline_s);
/* Bytes reserved now: for bodies (being received, received, or with a handler) and for large
 * answers. */
uint64_t fth_server_body_bytes(const fth_server *server);
/* Calls `visit` for every pair of a route's metric and an answer's code that has been counted, in
 * the order of the table, then "other" for requests without a route. Code 0: codes that are not
 * counted separately, and clients that left before the answer. */
void fth_server_visit_counts(const fth_server *server,
                             void (*visit)(void *context, const char *metric, int code, uint64_t count), void *context);
/* Disconnects the clients that are sent a file and, after `grace_s`, have received less than
 * `least_bytes_per_s` on average: for when the files they hold are needed. Returns their number. */
int fth_server_end_slow_readers(fth_server *server, double grace_s, double least_bytes_per_s);

/* ---- in a handler ---- */

const char *fth_exchange_method(const fth_exchange *exchange);
const char *fth_exchange_path(const fth_exchange *exchange);                     /* without the query, decoded */
const char *fth_exchange_target(const fth_exchange *exchange);                   /* as sent, including the query */
const char *fth_exchange_query(const fth_exchange *exchange, const char *name);  /* or NULL */
const char *fth_exchange_header(const fth_exchange *exchange, const char *name); /* or NULL */
const char *fth_exchange_client(const fth_exchange *exchange);                   /* the peer's address */
const void *fth_exchange_body(const fth_exchange *exchange, size_t *size_bytes); /* valid until the answer is sent */
/* True if a page of another origin, in a browser, sent the request (host.h). */
bool fth_exchange_is_cross_origin(const fth_exchange *exchange);

/* Attaches data of the service to the exchange; `release` is called at its end. */
void fth_exchange_set_data(fth_exchange *exchange, void *data, void (*release)(void *data));
void *fth_exchange_get_data(const fth_exchange *exchange); /* or NULL */

/* The caller is authenticated: its connection is not closed to make room for others. */
void fth_exchange_set_authenticated(fth_exchange *exchange);

/* Sets a header of the answer; call it before answering. */
void fth_exchange_set_header(fth_exchange *exchange, const char *name, const char *value);
/* Each exchange is answered once. `bytes` are copied; `json` is stolen. */
void fth_exchange_answer(fth_exchange *exchange, int code, const char *content_type, const void *bytes,
                         size_t size_bytes);
void fth_exchange_answer_json(fth_exchange *exchange, int code, json_t *json);
/* For large answers that anyone may request and then not read: the copy counts in max_memory_bytes,
 * and slow readers are disconnected as those of files are. */
void fth_exchange_answer_large(fth_exchange *exchange, int code, const char *content_type, const void *bytes,
                               size_t size_bytes);
/* For large answers: part of an open file, by sendfile where the kernel can; `fd` is duplicated.
 * Clients slower than 64 KB/s are disconnected after a minute (idle_s); see
 * fth_server_end_slow_readers(). */
void fth_exchange_answer_file(fth_exchange *exchange, int code, const char *content_type, int fd, uint64_t offset,
                              uint64_t size_bytes);

/* Keeps the exchange after the handler returns, for any thread to answer. If there is no answer
 * after `seconds`, or when the server stops, the server answers with `code`: 503 as a JSON refusal,
 * others without a body. The holder must still answer; its answer is then dropped and the exchange
 * freed. Query and headers cannot be read any more once the exchange is held. */
void fth_exchange_hold(fth_exchange *exchange, double seconds, int code);
/* True if the client of a held exchange has closed its connection. For the holder, before it
 * answers. */
bool fth_exchange_is_abandoned(const fth_exchange *exchange);

#endif
