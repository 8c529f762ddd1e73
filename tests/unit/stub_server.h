/* A server that misbehaves to order, for tests of clients: a thread per connection, and a function
 * that answers each request with raw bytes. What a well-behaved server does is tested against real
 * ones (tests/e2e). */
#ifndef TEST_STUB_SERVER_H
#define TEST_STUB_SERVER_H

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STUB_MAX_CONNECTIONS = 64, STUB_MAX_HEADERS = 16384 };

typedef struct stub_request {
    char method[16], target[2048];
    char headers[STUB_MAX_HEADERS]; /* all lines */
    char *body;
    size_t body_bytes;
    int number; /* of this request, over all connections, from 0 */
} stub_request;

typedef struct stub_server {
    int listener, port;
    /* Answers with bytes in fresh memory and their number; NULL: the connection is closed without
     * an answer. *close: it is closed after it. Called under a lock. */
    char *(*answer)(void *context, const stub_request *request, size_t *size_bytes, bool *close);
    void *context;
    pthread_mutex_t mutex;
    pthread_t acceptor, threads[STUB_MAX_CONNECTIONS];
    int sockets[STUB_MAX_CONNECTIONS];
    _Atomic int connections, requests;
} stub_server;

typedef struct stub_connection {
    stub_server *server;
    int socket;
} stub_connection;

/* The value of a header, or "". Valid until the next call. */
static inline const char *stub_header(const stub_request *request, const char *name)
{
    static _Thread_local char value[4096];
    for (const char *line = request->headers; *line;) {
        size_t length = strcspn(line, "\r\n"), name_length = strlen(name);
        if (strncasecmp(line, name, name_length) == 0 && line[name_length] == ':') {
            const char *begin = line + name_length + 1;
            begin += strspn(begin, " ");
            snprintf(value, sizeof value, "%.*s", (int)(line + length - begin), begin);
            return value;
        }
        line += length + strspn(line + length, "\r\n");
    }
    return "";
}

/* "HTTP/1.1 <code> X", the extra header lines ("A: b\r\n") and a body with its length. */
static inline char *stub_answer(int code, const char *lines, const char *body, size_t *size_bytes)
{
    char *text = NULL;
    int length = asprintf(&text, "HTTP/1.1 %d X\r\n%sContent-Length: %zu\r\n\r\n%s", code, lines, strlen(body), body);
    *size_bytes = length < 0 ? 0 : (size_t)length;
    return text;
}

static inline bool stub_read_request(int socket, stub_request *request)
{
    static const char end[] = "\r\n\r\n";
    char *text = malloc(STUB_MAX_HEADERS);
    size_t used = 0;
    char *found = NULL;
    while (!found && used < STUB_MAX_HEADERS - 1) {
        ssize_t got = recv(socket, text + used, STUB_MAX_HEADERS - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
        text[used] = '\0';
        found = strstr(text, end);
    }
    bool whole = found && sscanf(text, "%15s %2047s", request->method, request->target) == 2;
    if (whole) {
        size_t head = (size_t)(found - text) + strlen(end);
        snprintf(request->headers, sizeof request->headers, "%.*s", (int)head, strchr(text, '\n') + 1);
        request->body_bytes = strtoul(stub_header(request, "Content-Length"), NULL, 10);
        request->body = calloc(request->body_bytes + 1, 1);
        size_t have = used - head < request->body_bytes ? used - head : request->body_bytes;
        memcpy(request->body, text + head, have);
        while (have < request->body_bytes) {
            ssize_t got = recv(socket, request->body + have, request->body_bytes - have, 0);
            if (got <= 0)
                break;
            have += (size_t)got;
        }
        whole = have == request->body_bytes;
    }
    free(text);
    return whole;
}

static inline void *stub_serve(void *context)
{
    stub_connection *connection = context;
    stub_server *server = connection->server;
    stub_request *request = calloc(1, sizeof *request);
    bool close_after = false;
    while (!close_after && stub_read_request(connection->socket, request)) {
        size_t size_bytes = 0, sent = 0;
        pthread_mutex_lock(&server->mutex);
        request->number = atomic_fetch_add(&server->requests, 1);
        char *bytes = server->answer(server->context, request, &size_bytes, &close_after);
        pthread_mutex_unlock(&server->mutex);
        close_after = close_after || !bytes;
        while (bytes && sent < size_bytes) {
            ssize_t done = send(connection->socket, bytes + sent, size_bytes - sent, MSG_NOSIGNAL);
            if (done <= 0)
                break;
            sent += (size_t)done;
        }
        free(bytes);
        free(request->body);
        request->body = NULL;
    }
    shutdown(connection->socket, SHUT_RDWR);
    free(request->body);
    free(request);
    free(connection);
    return NULL;
}

static inline void *stub_accept(void *context)
{
    stub_server *server = context;
    for (;;) {
        int socket = accept(server->listener, NULL, NULL);
        int at = atomic_load(&server->connections);
        if (socket < 0 || at == STUB_MAX_CONNECTIONS)
            return NULL;
        stub_connection *connection = malloc(sizeof *connection);
        *connection = (stub_connection){server, socket};
        server->sockets[at] = socket;
        if (pthread_create(&server->threads[at], NULL, stub_serve, connection) != 0)
            return NULL;
        atomic_store(&server->connections, at + 1);
    }
}

static inline void stub_start(stub_server *server, char *(*answer)(void *, const stub_request *, size_t *, bool *),
                              void *context)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    *server = (stub_server){.answer = answer, .context = context};
    pthread_mutex_init(&server->mutex, NULL);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server->listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(server->listener, 64) != 0 ||
        getsockname(server->listener, (struct sockaddr *)&address, &length) != 0)
        abort();
    server->port = ntohs(address.sin_port);
    if (pthread_create(&server->acceptor, NULL, stub_accept, server) != 0)
        abort();
}

static inline void stub_stop(stub_server *server)
{
    shutdown(server->listener, SHUT_RDWR);
    close(server->listener);
    pthread_join(server->acceptor, NULL);
    for (int i = 0; i < atomic_load(&server->connections); i++) {
        shutdown(server->sockets[i], SHUT_RDWR);
        pthread_join(server->threads[i], NULL);
        close(server->sockets[i]);
    }
}

#endif
