/* The inside of the HTTP server, shared by server.c (connections, bodies, stopping), exchange.c
 * (one request and its answer), connections.c (how many, and how long until a request is there),
 * routes.c (which route, who may, how often) and slow_readers.c (who takes a file's bytes, and how
 * fast). */
#ifndef FTH_HTTP_SERVER_INTERNAL_H
#define FTH_HTTP_SERVER_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "http/server.h"

enum { FTH_MAX_ANSWER_HEADERS = 12, FTH_SPARE_BODIES = 4, FTH_LARGE_BODY = 1 << 20, FTH_COUNTED_CODES = 17 };
enum { FTH_COUNTED_ADDRESSES = 4096 };

/* A client's connection, owned by libmicrohttpd's. Its fields are guarded by the server's mutex. */
typedef struct fth_server_connection {
    int fd;
    unsigned address;       /* a hash */
    bool authenticated;     /* it has carried an authenticated request */
    bool ended;             /* it is shut down, and in no list */
    double headers_until_s; /* when the headers of a request must be complete; INFINITY: they are */
    fth_exchange *exchange; /* that is under way, or NULL */
    struct fth_server_connection *previous, *next;
} fth_server_connection;

struct fth_server {
    fth_server_options options;
    struct MHD_Daemon *daemon;
    int port;
    atomic_int references;                             /* the owner's, and one for each exchange */
    atomic_uint_fast64_t body_bytes;                   /* reserved for bodies */
    atomic_int active;                                 /* exchanges that MHD knows */
    atomic_uint_fast64_t (*counts)[FTH_COUNTED_CODES]; /* a row for each route, and one for all others */

    pthread_mutex_t mutex;  /* of everything below, and of `answered` and `hold` in exchanges */
    pthread_cond_t changed; /* an earlier deadline of a held exchange, or the end */
    fth_exchange *held;     /* a list of those that wait for an answer */
    fth_exchange *readers;  /* and of those that are sent a file */
    double wake_at_s;       /* when the timer looks next */
    struct {
        fth_server_connection *first,
            *last; /* from the longest without progress to the latest; without those being closed */
        int limit, authenticated, anonymous;
        int of_address[FTH_COUNTED_ADDRESSES]; /* anonymous ones */
        uint64_t seed;
        uint64_t closed; /* to make room, since the last warning */
        double warn_at_s;
    } connections;
    bool stopping, timer_running;
    pthread_t timer;
    struct {
        char *bytes;
        uint64_t capacity;
    } spare[FTH_SPARE_BODIES]; /* memory of large bodies, kept for the next */
};

typedef enum exchange_state {
    EXCHANGE_NEW,     /* the headers are there */
    EXCHANGE_BODY,    /* the body is being received */
    EXCHANGE_REFUSED, /* there is an answer already; what is left of the body is thrown away */
    EXCHANGE_HANDLED  /* the handler was called */
} exchange_state;

/* Owned by MHD's connection, from the request line to the end of the answer, and by the handler
 * that holds it. */
struct fth_exchange {
    fth_server *server;
    struct MHD_Connection *connection;
    fth_server_connection *on;
    atomic_int references;
    exchange_state state;
    const fth_route *route;         /* NULL: none has been found */
    const fth_route *counted_route; /* as `route`, or the one of this path that takes another method */
    char *target, *path, *method;
    char client[64];

    struct {
        char *bytes;
        uint64_t size_bytes, capacity; /* the capacity counts in the server's body_bytes */
        uint64_t limit;                /* the route's */
        uint64_t drained;              /* of a refused body */
        double deadline_s;
    } body;

    void *data;
    void (*release_data)(void *data);

    bool answered; /* by the handler or in its stead; further answers are dropped */
    struct {
        struct MHD_Response *response;
        int code;
        struct {
            char *name, *value;
        } headers[FTH_MAX_ANSWER_HEADERS];
        int header_count;
        uint64_t reserved; /* counts in the server's body_bytes */
    } answer;
    struct {
        bool held, suspended;
        double until_s;
        int code; /* what the timer answers with */
    } hold;
    struct {
        bool file; /* the answer is one, or as large as one */
        double since_s;
        uint64_t received_before; /* by the client, of what was sent on its connection before this answer */
    } reading;

    struct {
        fth_exchange **list; /* the server's that it is in; NULL: none */
        fth_exchange *previous, *next;
    } link;
};

/* exchange.c */
void fth_exchange_unref(fth_exchange *exchange);
void fth_exchange_release_body(fth_exchange *exchange);
/* With the server's mutex held. */
void fth_exchange_settle(fth_exchange *exchange, int code, struct MHD_Response *response);
void fth_exchange_list(fth_exchange *exchange, fth_exchange **list);
void fth_exchange_unlist(fth_exchange *exchange);
/* {"code": ..., "error": "...", "reason": "..."}; the reason follows from the code. */
void fth_exchange_refuse(fth_exchange *exchange, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* connections.c */
/* Sets the limits; returns the one for libmicrohttpd. */
unsigned fth_server_connections_init(fth_server *server, unsigned threads);
/* MHD_NotifyConnectionCallback of the server. */
void fth_server_connections_notify(void *server, struct MHD_Connection *handle, void **slot,
                                   enum MHD_ConnectionNotificationCode code);
/* A request line has arrived, then the headers. */
void fth_server_connection_begin(fth_server_connection *connection, fth_exchange *exchange);
void fth_server_connection_advance(fth_server_connection *connection);
/* The request is over. With the server's mutex held, as those below. */
void fth_server_connection_complete(fth_server_connection *connection);
/* Shuts it down: the thread that serves it notices, and ends it as if the client had gone. */
void fth_server_connection_cut_off(const fth_server_connection *connection);
/* Ends those whose headers take too long; returns when to look again. */
double fth_server_connections_look(fth_server *server, double now);

/* access.c */
/* Makes the server's token, if it needs one; before the server answers requests. */
fth_status fth_access_set_port(fth_access *access, int port);
/* Decides about a request before its body is read: sets the caller's role, or refuses. */
bool fth_access_admit(fth_access *access, fth_exchange *exchange, fth_role *role);
/* Refuses a caller whose role is too low. */
void fth_access_forbid(fth_exchange *exchange, fth_role role);

/* routes.c */
/* FTH_INVALID if a route needs what the server's options do not have. */
fth_status fth_routes_check(const fth_server_options *options);
/* Finds the route of a request, identifies its caller and compares its role; false: the request has
 * been refused. */
bool fth_routes_admit(fth_exchange *exchange);
uint64_t fth_routes_body_limit(const fth_exchange *exchange);
fth_status fth_routes_begin_counting(fth_server *server);
void fth_routes_count(fth_exchange *exchange);

/* server.c */
void fth_server_unref(fth_server *server);
/* Reserves room in the server's share of memory; false if there is none. */
bool fth_server_reserve(fth_server *server, uint64_t bytes);
void fth_exchange_refuse_full(fth_exchange *exchange);

/* slow_readers.c: with the server's mutex held */
void fth_readers_add(fth_exchange *exchange);
/* Ends those that are slower than anybody may be; true if some are left to look at again. */
bool fth_readers_look(fth_server *server);

#endif
