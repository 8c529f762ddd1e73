/* The server: routes over libmicrohttpd, a few threads that wait with epoll and never for a client.
 *
 * libmicrohttpd calls on_request() once when the headers are there, then for each piece of the
 * body, then once more; a handler runs in that last call. Room for a body is reserved before it is
 * read, so that all bodies together stay within max_memory_bytes; a body must arrive at a least
 * speed, or its reservation would last as long as the client likes. A refused body that is small is
 * read and thrown away, so that the connection can go on; a large one ends it. */
#include "http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/process.h"
#include "http/server_internal.h"

enum {
    CONNECTION_MEMORY = 128 << 10, /* headers, and half of it is how much of a body is read at a time */
    CONNECTION_INCREMENT = 16 << 10,
    DRAINED_BODY = 1 << 20,   /* a refused body up to this size is read and thrown away */
    FIRST_CAPACITY = 64 << 10 /* of a body whose size is not said */
};
static const double LEAST_BODY_BYTES_PER_S = 64 << 10, LOOK_AT_READERS_S = 1;

/* ---- requests ---- */

static void *on_target(void *context, const char *target, struct MHD_Connection *connection)
{
    fth_server *server = context;
    fth_exchange *exchange = calloc(1, sizeof *exchange);
    if (!exchange)
        return NULL;
    exchange->server = server;
    exchange->connection = connection;
    exchange->on = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    exchange->references = 1;
    exchange->target = strdup(target);
    if (!exchange->on || !exchange->target) {
        free(exchange);
        return NULL;
    }
    atomic_fetch_add(&server->references, 1);
    atomic_fetch_add(&server->active, 1);
    fth_server_connection_begin(exchange->on, exchange);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info && info->client_addr) {
        const struct sockaddr *address = info->client_addr;
        socklen_t length = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        getnameinfo(address, length, exchange->client, sizeof exchange->client, NULL, 0, NI_NUMERICHOST);
    }
    return exchange;
}

static void on_completed(void *context, struct MHD_Connection *connection, void **slot,
                         enum MHD_RequestTerminationCode reason)
{
    fth_server *server = context;
    fth_exchange *exchange = *slot;
    (void)connection;
    (void)reason;
    *slot = NULL;
    if (!exchange)
        return;
    if (exchange->path)
        fth_routes_count(exchange);
    pthread_mutex_lock(&server->mutex);
    exchange->answered = true; /* whatever the holder says now, there is nobody left to tell */
    exchange->hold.suspended = false;
    fth_exchange_unlist(exchange);
    fth_server_connection_complete(exchange->on);
    pthread_mutex_unlock(&server->mutex);
    atomic_fetch_sub(&server->active, 1);
    fth_exchange_unref(exchange);
}

bool fth_server_reserve(fth_server *server, uint64_t bytes)
{
    uint64_t before = atomic_fetch_add(&server->body_bytes, bytes);
    if (before + bytes <= server->options.max_memory_bytes)
        return true;
    atomic_fetch_sub(&server->body_bytes, bytes);
    return false;
}

void fth_exchange_refuse_full(fth_exchange *exchange)
{
    fth_exchange_set_header(exchange, "Retry-After", "1");
    fth_exchange_refuse(exchange, 503, "the server holds as many requests as it has memory for; try again");
}

/* Memory that a body had before, if there is some of about this size. */
static char *take_spare(fth_server *server, uint64_t capacity)
{
    char *bytes = NULL;
    if (capacity < FTH_LARGE_BODY)
        return NULL;
    pthread_mutex_lock(&server->mutex);
    for (int i = 0; i < FTH_SPARE_BODIES && !bytes; i++) {
        if (server->spare[i].bytes && server->spare[i].capacity >= capacity &&
            server->spare[i].capacity / 2 <= capacity) {
            bytes = server->spare[i].bytes;
            server->spare[i].bytes = NULL;
        }
    }
    pthread_mutex_unlock(&server->mutex);
    return bytes;
}

static void grow_body(fth_exchange *exchange, uint64_t capacity)
{
    if (!fth_server_reserve(exchange->server, capacity - exchange->body.capacity)) {
        fth_exchange_refuse_full(exchange);
        return;
    }
    char *body = exchange->body.bytes ? NULL : take_spare(exchange->server, capacity);
    if (!body)
        body = realloc(exchange->body.bytes, (size_t)capacity);
    if (!body) {
        atomic_fetch_sub(&exchange->server->body_bytes, capacity - exchange->body.capacity);
        fth_exchange_refuse_full(exchange);
        return;
    }
    exchange->body.bytes = body;
    exchange->body.capacity = capacity;
}

/* What the headers say of the body's size: 0 for none, UINT64_MAX for one that comes in chunks. */
static uint64_t announced_body(const fth_exchange *exchange)
{
    const char *text = fth_exchange_header(exchange, "Content-Length");
    if (fth_exchange_header(exchange, "Transfer-Encoding"))
        return UINT64_MAX;
    return text ? strtoull(text, NULL, 10) : 0; /* libmicrohttpd has checked the digits */
}

static enum MHD_Result count_lengths(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    int *count = context;
    size_t length = strcspn(name, " \t");
    bool blank = name[length] != '\0'; /* "Transfer-Encoding : chunked" */
    (void)kind, (void)value;
    if ((length == 14 && strncasecmp(name, "Content-Length", length) == 0) ||
        (length == 17 && strncasecmp(name, "Transfer-Encoding", length) == 0))
        *count += blank ? 2 : 1;
    return MHD_YES;
}

/* Headers that two readers may take for two lengths. A proxy before this server may see the end of
 * the request elsewhere, and so let through what it has not looked at. */
static bool is_ambiguous(const fth_exchange *exchange)
{
    int lengths = 0;
    MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, count_lengths, &lengths);
    return lengths > 1;
}

/* Makes room for the body, or refuses it. */
static void accept_body(fth_exchange *exchange, uint64_t announced)
{
    exchange->body.limit = fth_routes_body_limit(exchange);
    if (announced == 0)
        return;
    if (exchange->body.limit == 0)
        fth_exchange_refuse(exchange, 413, "%s takes no body", exchange->path);
    else if (announced != UINT64_MAX && announced > exchange->body.limit)
        fth_exchange_refuse(exchange, 413, "the body has %" PRIu64 " bytes; %s takes at most %" PRIu64, announced,
                            exchange->path, exchange->body.limit);
    else if (announced != UINT64_MAX)
        grow_body(exchange, announced);
}

static enum MHD_Result send_answer(fth_exchange *exchange)
{
    if (!exchange->answer.response)
        return MHD_NO; /* no memory at all: the connection ends */
    if (exchange->reading.file) {
        pthread_mutex_lock(&exchange->server->mutex);
        fth_readers_add(exchange);
        pthread_mutex_unlock(&exchange->server->mutex);
    }
    return MHD_queue_response(exchange->connection, (unsigned)exchange->answer.code, exchange->answer.response);
}

static enum MHD_Result begin(fth_exchange *exchange, const char *path, const char *method)
{
    fth_server *server = exchange->server;

    exchange->path = strdup(path);
    exchange->method = strdup(method);
    if (!exchange->path || !exchange->method)
        return MHD_NO;
    exchange->state = EXCHANGE_BODY;
    fth_server_connection_advance(exchange->on);
    uint64_t announced = announced_body(exchange);
    bool ambiguous = is_ambiguous(exchange);
    if (ambiguous) {
        fth_exchange_set_header(exchange, "Connection", "close");
        fth_exchange_refuse(exchange, 400, "a request has one Content-Length or one Transfer-Encoding");
    } else if (strstr(exchange->target, "%00")) { /* decoded, it would end the name it is in */
        fth_exchange_refuse(exchange, 400, "a request's target has no NUL (%%00)");
    } else if (fth_routes_admit(exchange)) {
        accept_body(exchange, announced);
    }
    uint64_t expected = announced == UINT64_MAX ? exchange->body.limit : announced;
    exchange->body.deadline_s =
        fth_clock_seconds() + server->options.idle_s + (double)expected / LEAST_BODY_BYTES_PER_S;
    if (!exchange->answered)
        return MHD_YES;
    exchange->state = EXCHANGE_REFUSED;
    fth_exchange_release_body(exchange);
    /* A client that asks first gets its answer instead of a "continue". */
    bool asks = fth_exchange_header(exchange, "Expect") != NULL;
    if (announced > 0 && announced <= DRAINED_BODY && !asks && !ambiguous)
        return MHD_YES;
    return announced > 0 || ambiguous ? send_answer(exchange) : MHD_YES;
}

static enum MHD_Result receive(fth_exchange *exchange, const char *bytes, size_t size_bytes)
{
    if (fth_clock_seconds() > exchange->body.deadline_s)
        return MHD_NO;
    if (exchange->state == EXCHANGE_REFUSED) {
        exchange->body.drained += size_bytes;
        return exchange->body.drained <= 2 * DRAINED_BODY ? MHD_YES : MHD_NO;
    }
    uint64_t needed = exchange->body.size_bytes + size_bytes;
    if (needed > exchange->body.limit) {
        fth_exchange_refuse(exchange, 413, "the body is too large; %s takes at most %" PRIu64 " bytes", exchange->path,
                            exchange->body.limit);
    } else if (needed > exchange->body.capacity) {
        uint64_t capacity = exchange->body.capacity ? exchange->body.capacity * 2 : FIRST_CAPACITY;
        if (capacity < needed)
            capacity = needed;
        grow_body(exchange, capacity);
    }
    if (exchange->answered) {
        exchange->state = EXCHANGE_REFUSED;
        fth_exchange_release_body(exchange);
        return MHD_YES;
    }
    memcpy(exchange->body.bytes + exchange->body.size_bytes, bytes, size_bytes);
    exchange->body.size_bytes = needed;
    return MHD_YES;
}

/* Calls the handler; then the answer is sent, or the connection waits for it. */
static enum MHD_Result finish(fth_exchange *exchange)
{
    fth_server *server = exchange->server;
    if (exchange->state == EXCHANGE_BODY) {
        exchange->state = EXCHANGE_HANDLED;
        exchange->route->handle(server->options.context, exchange);
    }
    pthread_mutex_lock(&server->mutex);
    bool wait = !exchange->answered && exchange->hold.held && !server->stopping;
    if (wait) {
        exchange->hold.suspended = true;
        MHD_suspend_connection(exchange->connection);
    }
    bool answered = exchange->answered, stopping = server->stopping, held = exchange->hold.held;
    if (!wait && !answered && held) { /* nobody will answer any more; the holder's own answer is dropped */
        static const char message[] = "{\"code\":503,\"error\":\"the server is stopping\",\"reason\":\"busy\"}";
        fth_exchange_settle(
            exchange, 503,
            MHD_create_response_from_buffer(sizeof message - 1, (void *)(uintptr_t)message, MHD_RESPMEM_PERSISTENT));
        answered = true;
    }
    pthread_mutex_unlock(&server->mutex);
    if (wait)
        return MHD_YES;
    if (!answered)
        fth_exchange_refuse(exchange, stopping ? 503 : 500,
                            stopping ? "the server is stopping" : "no answer was given");
    return send_answer(exchange);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *bytes, size_t *size_bytes,
                                  void **slot)
{
    fth_exchange *exchange = *slot;
    (void)context;
    (void)connection;
    (void)version;
    if (!exchange)
        return MHD_NO;
    if (exchange->state == EXCHANGE_NEW)
        return begin(exchange, path, method);
    if (*size_bytes > 0) {
        enum MHD_Result result = receive(exchange, bytes, *size_bytes);
        *size_bytes = 0;
        return result;
    }
    return finish(exchange);
}

static void on_log(void *context, const char *format, va_list arguments)
{
    char line[512];
    (void)context;
    vsnprintf(line, sizeof line, format, arguments);
    line[strcspn(line, "\n")] = '\0';
    fth_log_debug("http: %s", line);
}

/* ---- held exchanges that nobody answers, readers that hardly read ---- */

static void *run_timer(void *context)
{
    fth_server *server = context;
    pthread_mutex_lock(&server->mutex);
    while (!server->stopping) {
        double now = fth_clock_seconds(), next = now + (fth_readers_look(server) ? LOOK_AT_READERS_S : 3600);
        next = fmin(next, fth_server_connections_look(server, now));
        for (fth_exchange *exchange = server->held, *following; exchange; exchange = following) {
            following = exchange->link.next;
            if (exchange->hold.until_s > now) {
                next = fmin(next, exchange->hold.until_s);
                continue;
            }
            static const char busy[] = "{\"code\":503,\"error\":\"no answer in time; try again\",\"reason\":\"busy\"}";
            bool refused = exchange->hold.code == 503;
            struct MHD_Response *response = MHD_create_response_from_buffer(
                refused ? sizeof busy - 1 : 0, (void *)(uintptr_t)(refused ? busy : ""), MHD_RESPMEM_PERSISTENT);
            for (int i = 0; response && i < exchange->answer.header_count; i++)
                MHD_add_response_header(response, exchange->answer.headers[i].name, exchange->answer.headers[i].value);
            if (response && refused) {
                MHD_add_response_header(response, "Retry-After", "1");
                MHD_add_response_header(response, "Content-Type", "application/json");
            }
            fth_exchange_settle(exchange, exchange->hold.code, response);
        }
        server->wake_at_s = next;
        struct timespec until = fth_deadline_timespec((fth_deadline){next});
        pthread_cond_clockwait(&server->changed, &server->mutex, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

/* ---- start and stop ---- */

static fth_status open_socket(const char *address, int port, int *result, int *bound_port)
{
    fth_status status = FTH_OK;
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char service[16];
    int fd = -1, one = 1;
    struct sockaddr_storage name;
    socklen_t length = sizeof name;

    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(address, service, &hints, &found);
    FTH_REQUIRE(error == 0, FTH_INVALID, "address %s: %s", address, gai_strerror(error));
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    FTH_REQUIRE(fd >= 0, FTH_IO, "socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    FTH_REQUIRE(bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0, FTH_IO,
                "cannot serve on %s port %d: %s%s", address, port, strerror(errno),
                errno == EADDRINUSE ? "; stop what serves there, or choose another --port" : "");
    getsockname(fd, (struct sockaddr *)&name, &length);
    *bound_port = ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                                   : ((struct sockaddr_in *)&name)->sin_port);
    *result = fd;
    fd = -1;

out:
    if (fd >= 0)
        close(fd);
    if (found)
        freeaddrinfo(found);
    return status;
}

int fth_server_port(const fth_server *server)
{
    return server->port;
}

uint64_t fth_server_body_bytes(const fth_server *server)
{
    return atomic_load(&server->body_bytes);
}

void fth_server_unref(fth_server *server)
{
    if (atomic_fetch_sub(&server->references, 1) > 1)
        return;
    for (int i = 0; i < FTH_SPARE_BODIES; i++)
        free(server->spare[i].bytes);
    pthread_mutex_destroy(&server->mutex);
    pthread_cond_destroy(&server->changed);
    free(server->counts);
    free(server);
}

fth_status fth_server_start(const fth_server_options *options, fth_server **result)
{
    fth_status status = FTH_OK;
    fth_server *server = NULL;
    int fd = -1;

    *result = NULL;
    FTH_TRY(fth_routes_check(options));
    FTH_TRY(fth_allocate(1, sizeof *server, &server));
    server->options = *options;
    server->references = 1;
    pthread_mutex_init(&server->mutex, NULL);
    pthread_cond_init(&server->changed, NULL);
    FTH_TRY(fth_routes_begin_counting(server));
    if (server->options.max_memory_bytes == 0)
        server->options.max_memory_bytes = UINT64_C(1) << 30;
    if (server->options.idle_s <= 0)
        server->options.idle_s = 60;
    unsigned threads = options->threads > 0 ? (unsigned)options->threads : 4;
    unsigned connections = fth_server_connections_init(server, threads);
    bool tls = options->certificate_pem && options->key_pem;
    FTH_REQUIRE(!tls || MHD_is_feature_supported(MHD_FEATURE_TLS) == MHD_YES, FTH_UNSUPPORTED,
                "libmicrohttpd was built without TLS here");
    FTH_TRY(open_socket(options->address ? options->address : "127.0.0.1", options->port, &fd, &server->port));
    if (options->access)
        FTH_TRY(fth_access_set_port(options->access, server->port));

    struct MHD_OptionItem items[] = {
        {MHD_OPTION_LISTEN_SOCKET, fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, (intptr_t)connections, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)ceil(server->options.idle_s), NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_INCREMENT, CONNECTION_INCREMENT, NULL},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, server},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)fth_server_connections_notify, server},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)on_target, server},
        {threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, (intptr_t)threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem tls_items[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)options->certificate_pem},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)options->key_pem},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL},
    };
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | MHD_USE_TURBO;
    server->wake_at_s = INFINITY; /* before there are threads that hold exchanges */
    server->daemon = MHD_start_daemon(
        flags | (tls ? MHD_USE_TLS : 0), 0, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_ARRAY, items, MHD_OPTION_ARRAY, tls ? tls_items : &items[FTH_COUNT_OF(items) - 1], MHD_OPTION_END);
    FTH_REQUIRE(server->daemon, FTH_IO, "the server could not be started%s",
                tls ? ": its certificate and key do not fit, or are not PEM" : "");
    fd = -1; /* the daemon's */
    FTH_REQUIRE(fth_thread_start(&server->timer, "http-timer", run_timer, server) == 0, FTH_NO_MEMORY,
                "no thread for the server's timer");
    server->timer_running = true;
    *result = server;
    server = NULL;

out:
    if (fd >= 0)
        close(fd);
    if (server)
        fth_server_stop(server, 0);
    return status;
}

void fth_server_stop(fth_server *server, double deadline_s)
{
    if (!server)
        return;
    fth_deadline deadline = fth_deadline_in(deadline_s);
    static const char message[] = "{\"code\":503,\"error\":\"the server is stopping\"}";

    pthread_mutex_lock(&server->mutex);
    server->stopping = true;
    pthread_cond_signal(&server->changed);
    while (server->held)
        fth_exchange_settle(
            server->held, 503,
            MHD_create_response_from_buffer(sizeof message - 1, (void *)(uintptr_t)message, MHD_RESPMEM_PERSISTENT));
    pthread_mutex_unlock(&server->mutex);
    if (server->timer_running)
        pthread_join(server->timer, NULL);
    if (server->daemon) {
        int listening = MHD_quiesce_daemon(server->daemon);
        while (atomic_load(&server->active) > 0 && !fth_deadline_passed(deadline))
            fth_sleep(0.002);
        MHD_stop_daemon(server->daemon);
        if (listening >= 0)
            close(listening);
    }
    fth_server_unref(server);
}
