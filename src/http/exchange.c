/* One request and its answer: what a handler reads, and the ways to answer.
 *
 *     received -> handler answers                                         sent
 *     received -> handler holds -> connection suspended -> answered later -> connection resumed
 *         -> sent
 *                                                       -> nobody answers: the timer does
 *
 * A held exchange has two owners, the connection and the holder, and lives until both are done: an
 * answer that comes after the timer's, or after the server has stopped, is dropped and touches
 * nothing that is gone. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/host.h"
#include "http/server_internal.h"

const char *fth_exchange_method(const fth_exchange *exchange)
{
    return exchange->method ? exchange->method : "";
}

const char *fth_exchange_path(const fth_exchange *exchange)
{
    return exchange->path ? exchange->path : "";
}

const char *fth_exchange_target(const fth_exchange *exchange)
{
    return exchange->target;
}

const char *fth_exchange_client(const fth_exchange *exchange)
{
    return exchange->client;
}

const char *fth_exchange_query(const fth_exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *fth_exchange_header(const fth_exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

const void *fth_exchange_body(const fth_exchange *exchange, size_t *size_bytes)
{
    *size_bytes = (size_t)exchange->body.size_bytes;
    return exchange->body.bytes;
}

bool fth_exchange_is_cross_origin(const fth_exchange *exchange)
{
    return fth_origin_is_foreign(fth_exchange_header(exchange, "Origin"),
                                 fth_exchange_header(exchange, "Sec-Fetch-Site"),
                                 fth_exchange_header(exchange, "Host"));
}

void fth_exchange_set_data(fth_exchange *exchange, void *data, void (*release)(void *data))
{
    if (exchange->data && exchange->release_data)
        exchange->release_data(exchange->data);
    exchange->data = data;
    exchange->release_data = release;
}

void *fth_exchange_get_data(const fth_exchange *exchange)
{
    return exchange->data;
}

/* Fresh memory costs more than filling it: that of a few large bodies stays for the next ones. */
void fth_exchange_release_body(fth_exchange *exchange)
{
    fth_server *server = exchange->server;
    uint64_t capacity = exchange->body.capacity;
    char *bytes = exchange->body.bytes;
    atomic_fetch_sub(&server->body_bytes, capacity);
    exchange->body.bytes = NULL;
    exchange->body.size_bytes = exchange->body.capacity = 0;
    if (capacity >= FTH_LARGE_BODY) {
        pthread_mutex_lock(&server->mutex);
        for (int i = 0; i < FTH_SPARE_BODIES && bytes; i++) {
            if (!server->spare[i].bytes) {
                server->spare[i].bytes = bytes;
                server->spare[i].capacity = capacity;
                bytes = NULL;
            }
        }
        pthread_mutex_unlock(&server->mutex);
    }
    free(bytes);
}

void fth_exchange_unref(fth_exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->references, 1) > 1)
        return;
    fth_server *server = exchange->server;
    fth_exchange_release_body(exchange);
    atomic_fetch_sub(&server->body_bytes, exchange->answer.reserved);
    fth_exchange_set_data(exchange, NULL, NULL);
    for (int i = 0; i < exchange->answer.header_count; i++) {
        free(exchange->answer.headers[i].name);
        free(exchange->answer.headers[i].value);
    }
    if (exchange->answer.response)
        MHD_destroy_response(exchange->answer.response);
    free(exchange->target);
    free(exchange->path);
    free(exchange->method);
    free(exchange);
    fth_server_unref(server);
}

void fth_exchange_set_header(fth_exchange *exchange, const char *name, const char *value)
{
    int i = 0;
    while (i < exchange->answer.header_count && strcasecmp(exchange->answer.headers[i].name, name) != 0)
        i++;
    if (i == FTH_MAX_ANSWER_HEADERS) {
        fth_log_warning("an answer to %s has too many headers: %s is left out", exchange->target, name);
        return;
    }
    if (i == exchange->answer.header_count) {
        exchange->answer.headers[i].name = fth_format("%s", name);
        exchange->answer.headers[exchange->answer.header_count++].value = NULL;
    }
    free(exchange->answer.headers[i].value);
    exchange->answer.headers[i].value = fth_format("%s", value);
}

/* ---- answering ---- */

void fth_exchange_unlist(fth_exchange *exchange)
{
    if (!exchange->link.list)
        return;
    if (exchange->link.previous)
        exchange->link.previous->link.next = exchange->link.next;
    else
        *exchange->link.list = exchange->link.next;
    if (exchange->link.next)
        exchange->link.next->link.previous = exchange->link.previous;
    exchange->link.previous = exchange->link.next = NULL;
    exchange->link.list = NULL;
}

void fth_exchange_list(fth_exchange *exchange, fth_exchange **list)
{
    fth_exchange_unlist(exchange);
    exchange->link.list = list;
    exchange->link.next = *list;
    if (*list)
        (*list)->link.previous = exchange;
    *list = exchange;
}

void fth_exchange_settle(fth_exchange *exchange, int code, struct MHD_Response *response)
{
    exchange->answered = true;
    exchange->answer.code = code;
    exchange->answer.response = response;
    fth_exchange_unlist(exchange);
    if (exchange->hold.suspended) {
        exchange->hold.suspended = false;
        MHD_resume_connection(exchange->connection);
    }
}

/* The one way to an answer; takes the response. NULL: there was no memory for it, and the client
 * gets a 500. */
static void give(fth_exchange *exchange, int code, const char *content_type, struct MHD_Response *response)
{
    fth_server *server = exchange->server;
    bool release = false;

    if (!response) {
        response = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
        code = 500;
    }
    pthread_mutex_lock(&server->mutex);
    bool late = exchange->answered;
    if (!late) {
        if (response && content_type)
            MHD_add_response_header(response, "Content-Type", content_type);
        for (int i = 0; response && i < exchange->answer.header_count; i++)
            MHD_add_response_header(response, exchange->answer.headers[i].name, exchange->answer.headers[i].value);
        fth_exchange_settle(exchange, code, response);
    }
    release = exchange->hold.held; /* the holder's share ends with its answer */
    exchange->hold.held = false;
    pthread_mutex_unlock(&server->mutex);
    if (late && response)
        MHD_destroy_response(response);
    if (release)
        fth_exchange_unref(exchange);
}

void fth_exchange_answer(fth_exchange *exchange, int code, const char *content_type, const void *bytes,
                         size_t size_bytes)
{
    give(exchange, code, content_type,
         MHD_create_response_from_buffer(size_bytes, size_bytes ? (void *)(uintptr_t)bytes : "",
                                         size_bytes ? MHD_RESPMEM_MUST_COPY : MHD_RESPMEM_PERSISTENT));
}

void fth_exchange_answer_large(fth_exchange *exchange, int code, const char *content_type, const void *bytes,
                               size_t size_bytes)
{
    if (!fth_server_reserve(exchange->server, size_bytes)) {
        fth_exchange_refuse_full(exchange);
        return;
    }
    exchange->answer.reserved = size_bytes;
    exchange->reading.file = true;
    fth_exchange_answer(exchange, code, content_type, bytes, size_bytes);
}

void fth_exchange_answer_json(fth_exchange *exchange, int code, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    struct MHD_Response *response =
        text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE) : NULL;
    give(exchange, code, "application/json", response);
}

static const char *reason_of(int code)
{
    switch (code) {
    case 403: return "forbidden";
    case 404: return "not_found";
    case 405: return "method";
    case 413: return "too_large";
    case 503: return "busy";
    default: return "failed";
    }
}

void fth_exchange_refuse(fth_exchange *exchange, int code, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    fth_printable_format(message, sizeof message, format, arguments); /* it may quote what is not UTF-8 */
    va_end(arguments);
    fth_exchange_answer_json(exchange, code,
                             json_pack("{s:i, s:s, s:s}", "code", code, "error", message, "reason", reason_of(code)));
}

void fth_exchange_answer_file(fth_exchange *exchange, int code, const char *content_type, int fd, uint64_t offset,
                              uint64_t size_bytes)
{
    int own = dup(fd);
    struct MHD_Response *response = own >= 0 ? MHD_create_response_from_fd_at_offset64(size_bytes, own, offset) : NULL;
    if (!response && own >= 0)
        close(own);
    exchange->reading.file = response != NULL;
    give(exchange, code, content_type, response);
}

void fth_exchange_hold(fth_exchange *exchange, double seconds, int code)
{
    fth_server *server = exchange->server;
    pthread_mutex_lock(&server->mutex);
    if (!exchange->hold.held) {
        exchange->hold.held = true;
        atomic_fetch_add(&exchange->references, 1);
    }
    if (!exchange->answered) {
        exchange->hold.until_s = fth_clock_seconds() + seconds;
        exchange->hold.code = code;
        fth_exchange_list(exchange, &server->held);
        if (exchange->hold.until_s < server->wake_at_s)
            pthread_cond_signal(&server->changed);
    }
    pthread_mutex_unlock(&server->mutex);
}

bool fth_exchange_is_abandoned(const fth_exchange *exchange)
{
    fth_server *server = exchange->server;
    bool abandoned = false;
    char byte;

    pthread_mutex_lock(&server->mutex);
    if (exchange->hold.suspended) { /* else the connection may be gone already, or about to be read from */
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        ssize_t got = info ? recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) : 1;
        abandoned = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    }
    pthread_mutex_unlock(&server->mutex);
    return abandoned;
}
