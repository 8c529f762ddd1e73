/* An HTTP/1.1 server: a table of routes, handlers on a pool of threads, answers now or later.
 *
 * A route says who may call it, how large a body it takes and what its requests are counted as; the
 * server enforces that before any handler runs: a caller whose role is too low gets 403, a body
 * over the limit 413 before it is read.
 *
 * A handler is called once the whole request, its body included, has arrived. The handler answers
 * at once, or holds the exchange and lets another thread answer later (long polls, work that takes
 * a while): handlers themselves must not block. Slow clients cost memory, not threads. */
#ifndef FTH_HTTP_SERVER_H
#define FTH_HTTP_SERVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "http/role.h"

typedef struct fth_server fth_server;
typedef struct fth_exchange fth_exchange; /* one request and its answer */

typedef struct fth_route {
    const char *method; /* "GET"; GET routes answer HEAD too */
    const char *path;   /* "/getVersion"; a '*' at the end takes any rest */
    void (*handle)(void *context, fth_exchange *exchange);
    fth_role role;           /* the least that a caller must have */
    uint64_t max_body_bytes; /* 0: no body is taken; FTH_SERVER_BODY: the server's max_body_bytes */
    const char *metric;      /* what requests are counted as; NULL: the path */
} fth_route;

#define FTH_SERVER_BODY UINT64_MAX

typedef struct fth_server_options {
    const char *address;     /* NULL: 127.0.0.1; "0.0.0.0", "::1" */
    int port;                /* 0: any free one, see fth_server_port() */
    const fth_route *routes; /* ends with a NULL method; outlives the server */
    void *context;           /* given to handlers */
    /* Called before the body is read, with method, path and headers: sets the caller's role, or
     * answers to refuse and returns false. A role below the route's is then refused by the server.
     * NULL: every caller has FTH_ROLE_NONE, and routes that need more are an error. */
    bool (*admit)(void *context, fth_exchange *exchange, const fth_route *route, fth_role *role);
    /* Optional: answers a caller whose role is too low; NULL: 403. */
    void (*forbid)(void *context, fth_exchange *exchange, const fth_route *route, fth_role role);
    uint64_t max_body_bytes;               /* of routes with FTH_SERVER_BODY */
    const char *certificate_pem, *key_pem; /* TLS; NULL: plain */
    int threads;                           /* 0: 4 */
    /* 0: 1024; fewer where the process may not open twice as many files. A connection beyond it is
     * accepted and others are closed (connections.c): anonymous ones, of the address that has the
     * most of them. */
    int max_connections;
    uint64_t
        max_memory_bytes; /* of bodies being received and large answers being sent, all together; beyond it: 503 with
                                  Retry-After. 0: 1 GiB */
    double idle_s; /* connections that are idle, or without a complete request, for this long are closed; 0: 60. The
                           * headers of a connection's first request must arrive within 10 s. */
} fth_server_options;

fth_status fth_server_start(const fth_server_options *options, fth_server **server);
int fth_server_port(const fth_server *server);
/* Answers what is held with 503, closes connections, joins the threads; bounded by `deadline_s`. */
void fth_server_stop(fth_server *server, double deadline_s);
/* Bytes reserved now: for bodies that are received, being received, or with a handler, and for
 * large answers. */
uint64_t fth_server_body_bytes(const fth_server *server);
/* Calls `visit` for every pair of a route's metric and an answer's code that has been counted;
 * routes in the order of the table, then "other" for what has no route. Code 0: any code not
 * counted by itself, and clients that left early. */
void fth_server_visit_counts(const fth_server *server,
                             void (*visit)(void *context, const char *metric, int code, uint64_t count), void *context);
/* Cuts off those who are sent a file and have, after `grace_s`, received less than
 * `least_bytes_per_s` on average; for when what they hold is needed. Gives how many. */
int fth_server_end_slow_readers(fth_server *server, double grace_s, double least_bytes_per_s);

/* ---- in a handler ---- */

const char *fth_exchange_method(const fth_exchange *exchange);
const char *fth_exchange_path(const fth_exchange *exchange);                     /* without the query, decoded */
const char *fth_exchange_target(const fth_exchange *exchange);                   /* as sent, query included */
const char *fth_exchange_query(const fth_exchange *exchange, const char *name);  /* or NULL */
const char *fth_exchange_header(const fth_exchange *exchange, const char *name); /* or NULL */
const char *fth_exchange_client(const fth_exchange *exchange);                   /* the peer's address */
const void *fth_exchange_body(const fth_exchange *exchange, size_t *size_bytes); /* valid until the answer is sent */

/* Something of the handlers' own that stays with the exchange, from `admit` to its end; then
 * `release` is called. */
void fth_exchange_set_data(fth_exchange *exchange, void *data, void (*release)(void *data));
void *fth_exchange_get_data(const fth_exchange *exchange); /* or NULL */

/* The caller has proved who it is: its connection is not closed to make room for others. */
void fth_exchange_set_authenticated(fth_exchange *exchange);

/* Headers of the answer, before it is given. */
void fth_exchange_set_header(fth_exchange *exchange, const char *name, const char *value);
/* Each exchange is answered once. `bytes` are copied; `json` is stolen. */
void fth_exchange_answer(fth_exchange *exchange, int code, const char *content_type, const void *bytes,
                         size_t size_bytes);
void fth_exchange_answer_json(fth_exchange *exchange, int code, json_t *json);
/* For large answers that anybody may ask for, and not read: the copy counts in max_memory_bytes,
 * and a slow reader is cut off as one of a file is. */
void fth_exchange_answer_large(fth_exchange *exchange, int code, const char *content_type, const void *bytes,
                               size_t size_bytes);
/* For large answers: part of an open file, by sendfile where the kernel can; `fd` is duplicated.
 * Who reads it slower than 64 KB/s is cut off after a minute (idle_s); see
 * fth_server_end_slow_readers(). */
void fth_exchange_answer_file(fth_exchange *exchange, int code, const char *content_type, int fd, uint64_t offset,
                              uint64_t size_bytes);

/* Keeps the exchange after the handler returns; somebody answers it later, from any thread. If
 * nobody has after `seconds`, or when the server stops, the server does, with `code`: 503 as a
 * refusal in JSON, others with no body. The holder answers even then: its answer is dropped and the
 * exchange freed. Read query and headers before holding. */
void fth_exchange_hold(fth_exchange *exchange, double seconds, int code);
/* Whether the client of a held exchange has closed its connection. For its holder, before it
 * answers. */
bool fth_exchange_is_abandoned(const fth_exchange *exchange);

#endif
