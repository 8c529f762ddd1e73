/* Shared by the files of the Redis cache. From the bottom up:
 *
 *     redis_address.c     parses addresses
 *     redis_stream.c      a TCP or TLS connection with deadlines
 *     redis_connection.c  the protocol: greeting, commands, replies, values, error messages
 *     redis_server.c      a server: a few connections for all threads, and whether it is down
 *     redis_map.c         which server has a key: rendezvous hashing, or a Redis Cluster's slots
 *     redis_exchange.c    many commands at once: pipelined, over all servers, through redirections
 *                         and broken connections
 *     redis.c             the cache: a row of fth_cache_kind
 *
 * hiredis formats commands and parses replies. Sockets, TLS and deadlines are our own, and so is
 * reading values: they go from the socket directly to where they are used, without the two copies
 * that hiredis would make. */
#ifndef FTH_BATCHES_REDIS_INTERNAL_H
#define FTH_BATCHES_REDIS_INTERNAL_H

#include <hiredis/hiredis.h>

#include "batches/item.h"

/* ---- addresses ---- */

#define FTH_REDIS_USER_VARIABLE        "FARTHING_REDIS_USER"
#define FTH_REDIS_PASSWORD_VARIABLE    "FARTHING_REDIS_PASSWORD"
#define FTH_REDIS_CA_VARIABLE          "FARTHING_REDIS_CA"          /* a file; for rediss:// */
#define FTH_REDIS_CERTIFICATE_VARIABLE "FARTHING_REDIS_CERTIFICATE" /* of this client, for servers that require one */
#define FTH_REDIS_KEY_VARIABLE         "FARTHING_REDIS_KEY"

enum { FTH_REDIS_MAX_HOST = 256, FTH_REDIS_MAX_PREFIX = 64, FTH_REDIS_MAX_NAME = FTH_REDIS_MAX_HOST + 24 };

typedef struct fth_redis_endpoint {
    char host[FTH_REDIS_MAX_HOST];
    int port;
} fth_redis_endpoint;

typedef struct fth_redis_address {
    bool tls;
    char *user, *password; /* "": none */
    fth_redis_endpoint *endpoints;
    size_t count;
    int database;
    char prefix[FTH_REDIS_MAX_PREFIX + 1];
} fth_redis_address;

/* User and password may come from the environment instead. */
fth_status fth_redis_address_parse(const char *text, fth_redis_address *address);
void fth_redis_address_release(fth_redis_address *address);

/* ---- streams: one thread at a time ---- */

typedef struct fth_redis_stream fth_redis_stream;

/* What TLS needs, shared by all connections; any thread. */
typedef struct fth_redis_tls fth_redis_tls;
fth_status fth_redis_tls_create(const char *ca_file, fth_redis_tls **tls);
void fth_redis_tls_free(fth_redis_tls *tls);
fth_status fth_redis_stream_open(const fth_redis_endpoint *endpoint, fth_redis_tls *tls, fth_deadline deadline,
                                 fth_redis_stream **stream);
void fth_redis_stream_close(fth_redis_stream *stream);
/* `more`: more data follows at once, so a small packet is not sent yet. */
fth_status fth_redis_stream_write(fth_redis_stream *stream, const void *bytes, size_t size_bytes, bool more,
                                  fth_deadline deadline);
/* Waits for at least one byte. */
fth_status fth_redis_stream_read(fth_redis_stream *stream, void *bytes, size_t room, fth_deadline deadline,
                                 size_t *got);
/* Whether it can be reused: it is open and nothing unexpected has arrived. */
bool fth_redis_stream_is_quiet(fth_redis_stream *stream);

/* ---- connections: one thread at a time ---- */

/* How to connect; lent by the cache to all servers. */
typedef struct fth_redis_login {
    fth_redis_tls *tls; /* NULL: plain */
    const char *user, *password;
    int database;
} fth_redis_login;

typedef struct fth_redis_connection fth_redis_connection;

/* Connects, authenticates, and asks for the server's version and mode. */
fth_status fth_redis_connection_open(const fth_redis_endpoint *endpoint, const fth_redis_login *login,
                                     fth_deadline deadline, fth_redis_connection **connection);
void fth_redis_connection_close(fth_redis_connection *connection);
bool fth_redis_connection_is_quiet(fth_redis_connection *connection);
bool fth_redis_connection_is_cluster(const fth_redis_connection *connection);
bool fth_redis_connection_can_renew(const fth_redis_connection *connection); /* the server has GETEX */

/* Adds a command to the output buffer; NULL ends the words. */
fth_status fth_redis_add(fth_redis_connection *connection, const char *const *words);
/* Adds a command whose last word is `value`, and sends the buffer. */
fth_status fth_redis_send_value(fth_redis_connection *connection, const char *const *words, const void *value,
                                uint64_t size_bytes, fth_deadline deadline);
fth_status fth_redis_flush(fth_redis_connection *connection, fth_deadline deadline);

/* The next complete reply; freeReplyObject() it. An error is a reply, too. Not while values are
 * still to be received. */
fth_status fth_redis_receive(fth_redis_connection *connection, fth_deadline deadline, redisReply **reply);
/* One command and its reply; an error reply fails. */
fth_status fth_redis_ask(fth_redis_connection *connection, const char *const *words, fth_deadline deadline,
                         redisReply **reply);

/* The next reply, if it is not an array. */
typedef struct fth_redis_value {
    enum { FTH_REDIS_NOTHING, FTH_REDIS_BYTES, FTH_REDIS_WORD, FTH_REDIS_ERROR } kind; /* WORD: a status or a number */
    const char *bytes; /* lent until the next call; 64-byte aligned if BYTES, else a text */
    uint64_t size_bytes;
} fth_redis_value;
fth_status fth_redis_receive_value(fth_redis_connection *connection, fth_deadline deadline, fth_redis_value *value);

/* Fails with the meaning of a server's error reply, and what to do about it. */
fth_status fth_redis_fail(const char *server, const char *error);

/* ---- servers: any thread ---- */

typedef struct fth_redis_server fth_redis_server;

fth_status fth_redis_server_create(const fth_redis_endpoint *endpoint, const fth_redis_login *login,
                                   fth_redis_server **server);
void fth_redis_server_free(fth_redis_server *server);
const fth_redis_endpoint *fth_redis_server_endpoint(const fth_redis_server *server);
const char *fth_redis_server_name(const fth_redis_server *server); /* "redis 10.0.0.1:6379", for messages */
/* Borrows a connection. A server that has just failed is not retried for a moment: the call fails
 * at once. */
fth_status fth_redis_server_borrow(fth_redis_server *server, fth_deadline deadline, fth_redis_connection **connection);
/* `status`: how its use ended. */
void fth_redis_server_return(fth_redis_server *server, fth_redis_connection *connection, fth_status status);

/* ---- maps: any thread ---- */

typedef struct fth_redis_map fth_redis_map;

/* Connects to the servers, and determines whether they are a cluster. */
fth_status fth_redis_map_create(const fth_redis_address *address, const fth_redis_login *login, fth_deadline deadline,
                                fth_redis_map **map);
void fth_redis_map_free(fth_redis_map *map);
bool fth_redis_map_is_cluster(const fth_redis_map *map);
/* The server that has a key; NULL: no server of the cluster has it. Servers live as long as the
 * map. */
fth_redis_server *fth_redis_map_find(fth_redis_map *map, const char *key);
/* The server of an endpoint that another server has named. */
fth_status fth_redis_map_add(fth_redis_map *map, const fth_redis_endpoint *endpoint, fth_redis_server **server);
/* Asks a cluster for its slots again, unless that was done just now. */
fth_status fth_redis_map_refresh(fth_redis_map *map, fth_deadline deadline);
/* Servers that have keys, in a fixed order. */
size_t fth_redis_map_list(fth_redis_map *map, fth_redis_server **servers, size_t room);
/* "host:port" as a server writes it; an empty host stands for `from`'s. */
bool fth_redis_endpoint_parse(const char *text, const fth_redis_endpoint *from, fth_redis_endpoint *endpoint);

/* ---- exchanges ---- */

typedef struct fth_redis_work {
    size_t count;
    size_t window; /* limit of commands in flight to one server */
    void *context;
    const char *(*key)(void *context, size_t which, char *room); /* room for FTH_REDIS_MAX_KEY bytes */
    fth_status (*send)(void *context, size_t which, const char *key, fth_redis_connection *connection,
                       fth_deadline deadline);
    /* A reply that is not an error. Called at most once for each item. */
    void (*take)(void *context, size_t which, const fth_redis_value *value);
} fth_redis_work;
enum { FTH_REDIS_MAX_KEY = FTH_REDIS_MAX_PREFIX + FTH_ITEM_ID_TEXT + 16 };

/* Sends a command for each of `count` items to the server that has its key. Everything possible is
 * done before the first failure is returned. A command may be sent twice if a connection breaks. */
fth_status fth_redis_exchange(fth_redis_map *map, const fth_redis_work *work, fth_deadline deadline);

#endif
