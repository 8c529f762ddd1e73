/* The connections of a server: how long each may take to send a request, and which are closed when
 * there are too many.
 *
 *     accepted -> headers of a request within HEADERS_S -> request, answer -> headers of the
 *         next within idle_s -> ...
 *
 * A client that sends headers a byte at a time never looks idle, so the time to the end of the
 * headers is limited as a whole. That alone does not keep a server reachable: within the limit,
 * thousands of connections can take every place. So a new connection is always accepted, and when
 * there are more than the server has places for, others are closed: of the address that has the
 * most connections, those that have waited the longest. A client that sends its request at once is
 * served before its turn comes. A connection that has carried an authenticated request is not
 * closed to make room; neither is one whose request is held, which waits for the server and not for
 * its client.
 *
 * Addresses are counted in a table of fixed size, under a hash that differs from process to
 * process: addresses that share an entry share their limit. */
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "http/server_internal.h"

enum { DEFAULT_LIMIT = 1024, LEAST_LIMIT = 16, OTHER_FILES = 64 };
static const double HEADERS_S = 10, WARN_EVERY_S = 60;

/* ---- the list, from the longest without progress to the latest; the server's mutex is held
 * ---- */

static void unlink_connection(fth_server *server, fth_server_connection *connection)
{
    *(connection->previous ? &connection->previous->next : &server->connections.first) = connection->next;
    *(connection->next ? &connection->next->previous : &server->connections.last) = connection->previous;
    connection->previous = connection->next = NULL;
}

static void append_connection(fth_server *server, fth_server_connection *connection)
{
    connection->previous = server->connections.last;
    *(connection->previous ? &connection->previous->next : &server->connections.first) = connection;
    server->connections.last = connection;
}

static void forget(fth_server *server, fth_server_connection *connection)
{
    unlink_connection(server, connection);
    if (connection->authenticated) {
        server->connections.authenticated--;
    } else {
        server->connections.anonymous--;
        server->connections.of_address[connection->address]--;
    }
    connection->ended = true;
}

void fth_server_connection_cut_off(const fth_server_connection *connection)
{
    struct linger at_once = {.l_onoff = 1}; /* what is queued for it goes too */
    setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    shutdown(connection->fd, SHUT_RDWR);
}

/* The thread that serves it notices, and closes it. */
static void end(fth_server *server, fth_server_connection *connection)
{
    fth_server_connection_cut_off(connection);
    forget(server, connection);
}

/* ---- making room ---- */

static bool may_end(const fth_server_connection *connection)
{
    return !connection->authenticated && !(connection->exchange && connection->exchange->hold.suspended);
}

/* Several at once, so that each new connection costs little. */
static int end_oldest(fth_server *server)
{
    const int *of_address = server->connections.of_address;
    int most = 0, wanted = 1 + server->connections.limit / 32, ended = 0;
    for (const fth_server_connection *each = server->connections.first; each; each = each->next)
        if (may_end(each) && of_address[each->address] > most)
            most = of_address[each->address];
    for (fth_server_connection *each = server->connections.first, *next; each && ended < wanted; each = next) {
        next = each->next;
        if (may_end(each) && of_address[each->address] > most / 2) {
            end(server, each);
            ended++;
        }
    }
    return ended;
}

static void make_room(fth_server *server, unsigned address, double now)
{
    const int limit = server->connections.limit, left = limit - server->connections.authenticated;
    const int anonymous = left > limit / 4 ? left : limit / 4, of_one = anonymous - anonymous / 4;
    if (server->connections.anonymous <= anonymous && server->connections.of_address[address] <= of_one)
        return;
    server->connections.closed += (uint64_t)end_oldest(server);
    if (server->connections.closed > 0 && now >= server->connections.warn_at_s) {
        fth_log_warning("port %d: too many connections; closed %llu of the slowest", server->port,
                        (unsigned long long)server->connections.closed);
        server->connections.warn_at_s = now + WARN_EVERY_S;
        server->connections.closed = 0;
    }
}

/* An IPv6 network of 64 bits is one client's. */
static unsigned hash_address(const fth_server *server, const struct sockaddr *address)
{
    uint64_t bits = 0;
    if (address && address->sa_family == AF_INET) {
        bits = ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr;
    } else if (address && address->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        memcpy(&bits, v6->s6_addr + (IN6_IS_ADDR_V4MAPPED(v6) ? 8 : 0), sizeof bits);
    }
    return (unsigned)(fth_random_mix(bits ^ server->connections.seed) % FTH_COUNTED_ADDRESSES);
}

/* ---- what happens to a connection ---- */

static void wait_for_headers(fth_server *server, fth_server_connection *connection, double until_s)
{
    connection->headers_until_s = until_s;
    if (until_s < server->wake_at_s)
        pthread_cond_signal(&server->changed);
}

static fth_server_connection *add(fth_server *server, struct MHD_Connection *handle)
{
    const union MHD_ConnectionInfo *fd = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD),
                                   *peer = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    fth_server_connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        return NULL; /* its requests are refused: on_target() */
    connection->fd = fd->connect_fd;
    connection->address = hash_address(server, peer ? peer->client_addr : NULL);
    double now = fth_clock_seconds();
    pthread_mutex_lock(&server->mutex);
    append_connection(server, connection);
    server->connections.anonymous++;
    server->connections.of_address[connection->address]++;
    wait_for_headers(server, connection, now + fmin(HEADERS_S, server->options.idle_s));
    make_room(server, connection->address, now);
    pthread_mutex_unlock(&server->mutex);
    return connection;
}

void fth_server_connections_notify(void *context, struct MHD_Connection *handle, void **slot,
                                   enum MHD_ConnectionNotificationCode code)
{
    fth_server *server = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *slot = add(server, handle);
    } else if (*slot) {
        fth_server_connection *connection = *slot;
        pthread_mutex_lock(&server->mutex);
        if (!connection->ended)
            forget(server, connection);
        pthread_mutex_unlock(&server->mutex);
        free(connection);
        *slot = NULL;
    }
}

void fth_server_connection_begin(fth_server_connection *connection, fth_exchange *exchange)
{
    fth_server *server = exchange->server;
    pthread_mutex_lock(&server->mutex);
    connection->exchange = exchange;
    wait_for_headers(server, connection,
                     fmin(connection->headers_until_s, fth_clock_seconds() + fmin(HEADERS_S, server->options.idle_s)));
    pthread_mutex_unlock(&server->mutex);
}

void fth_server_connection_advance(fth_server_connection *connection)
{
    fth_server *server = connection->exchange->server;
    pthread_mutex_lock(&server->mutex);
    connection->headers_until_s = INFINITY;
    if (!connection->ended) {
        unlink_connection(server, connection);
        append_connection(server, connection);
    }
    pthread_mutex_unlock(&server->mutex);
}

void fth_server_connection_complete(fth_server_connection *connection)
{
    fth_server *server = connection->exchange->server;
    connection->exchange = NULL;
    wait_for_headers(server, connection, fth_clock_seconds() + server->options.idle_s);
    if (connection->ended)
        return;
    unlink_connection(server, connection);
    append_connection(server, connection);
}

void fth_exchange_set_authenticated(fth_exchange *exchange)
{
    fth_server *server = exchange->server;
    fth_server_connection *connection = exchange->on;
    pthread_mutex_lock(&server->mutex);
    if (!connection->ended && !connection->authenticated &&
        server->connections.authenticated < server->connections.limit) {
        connection->authenticated = true;
        server->connections.authenticated++;
        server->connections.anonymous--;
        server->connections.of_address[connection->address]--;
    }
    pthread_mutex_unlock(&server->mutex);
}

/* ---- all of them ---- */

double fth_server_connections_look(fth_server *server, double now)
{
    double next = INFINITY;
    for (fth_server_connection *each = server->connections.first, *following; each; each = following) {
        following = each->next;
        if (each->headers_until_s <= now)
            end(server, each);
        else
            next = fmin(next, each->headers_until_s);
    }
    return next;
}

unsigned fth_server_connections_init(fth_server *server, unsigned threads)
{
    struct rlimit files;
    int limit = server->options.max_connections > 0 ? server->options.max_connections : DEFAULT_LIMIT;
    /* Connections that are being closed still have a descriptor, and so have the files that the
     * process works with. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 2 * (rlim_t)limit + OTHER_FILES)
        limit = files.rlim_cur > 2 * LEAST_LIMIT + OTHER_FILES ? (int)(files.rlim_cur - OTHER_FILES) / 2 : LEAST_LIMIT;
    server->connections.limit = limit;
    if (getrandom(&server->connections.seed, sizeof server->connections.seed, GRND_NONBLOCK) < 0)
        server->connections.seed = fth_random_mix((uint64_t)(uintptr_t)server);
    /* libmicrohttpd stops accepting at its own limit, of each thread: there is room for those that
     * are being closed. */
    return 2 * (unsigned)limit + threads;
}
