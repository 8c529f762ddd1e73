/* See redis_internal.h: a non-blocking socket, with a poll for the rest of the deadline wherever it
 * would block.
 *
 * OpenSSL uses the same socket through a BIO of our own, whose writes raise no SIGPIPE. */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "batches/cache/redis_internal.h"

enum { KEEPALIVE_S = 20, MAX_WRITE = 1 << 30 };

struct fth_redis_tls {
    SSL_CTX *context;
    BIO_METHOD *methods; /* of sockets; constant */
};

struct fth_redis_stream {
    int fd;
    SSL *ssl; /* NULL: plain */
    char name[FTH_REDIS_MAX_NAME];
};

/* ---- waiting ---- */

static fth_status wait_for(fth_redis_stream *stream, short events, fth_deadline deadline)
{
    for (;;) {
        double left_s = fth_deadline_left_seconds(deadline);
        struct pollfd poll_fd = {.fd = stream->fd, .events = events};
        int ready = poll(&poll_fd, 1, left_s > 3600 ? 3600 * 1000 : (int)ceil(left_s * 1000));
        if (ready > 0)
            return FTH_OK;
        if (ready < 0 && errno != EINTR)
            return fth_fail(FTH_IO, "%s: cannot wait for data: %s", stream->name, strerror(errno));
        if (fth_deadline_passed(deadline))
            return fth_fail(FTH_TIMEOUT, "%s did not answer in time; is it overloaded, paused or unreachable?",
                            stream->name);
    }
}

static fth_status fail_connection(const fth_redis_stream *stream, int error)
{
    return fth_fail(FTH_PEER_LOST, "%s closed the connection%s%s", stream->name, error ? ": " : "",
                    error ? strerror(error) : "");
}

/* ---- TLS ---- */

static int tls_write(BIO *bio, const char *bytes, int length)
{
    fth_redis_stream *stream = BIO_get_data(bio);
    ssize_t sent = send(stream->fd, bytes, (size_t)length, MSG_NOSIGNAL);
    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)sent;
}

static int tls_read(BIO *bio, char *bytes, int length)
{
    fth_redis_stream *stream = BIO_get_data(bio);
    ssize_t got = recv(stream->fd, bytes, (size_t)length, 0);
    BIO_clear_retry_flags(bio);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    return (int)got;
}

static long tls_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static int tls_start(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static BIO_METHOD *make_socket_methods(void)
{
    BIO_METHOD *methods = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "farthing socket");
    if (methods) {
        BIO_meth_set_write(methods, tls_write);
        BIO_meth_set_read(methods, tls_read);
        BIO_meth_set_ctrl(methods, tls_control);
        BIO_meth_set_create(methods, tls_start);
    }
    return methods;
}

static const char *tls_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason ? reason : "unknown reason";
}

fth_status fth_redis_tls_create(const char *ca_file, fth_redis_tls **result)
{
    fth_status status = FTH_OK;
    const char *certificate = getenv(FTH_REDIS_CERTIFICATE_VARIABLE), *key = getenv(FTH_REDIS_KEY_VARIABLE);
    fth_redis_tls *tls = NULL;

    *result = NULL;
    if (!ca_file)
        ca_file = getenv(FTH_REDIS_CA_VARIABLE);
    FTH_TRY(fth_allocate(1, sizeof *tls, &tls));
    tls->context = SSL_CTX_new(TLS_client_method());
    tls->methods = make_socket_methods();
    FTH_REQUIRE(tls->context && tls->methods, FTH_NO_MEMORY, "no memory for TLS");
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
    SSL_CTX_set_mode(tls->context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_AUTO_RETRY);
    if (ca_file && *ca_file)
        FTH_REQUIRE(SSL_CTX_load_verify_locations(tls->context, ca_file, NULL) == 1, FTH_INVALID,
                    "cannot read certificates from %s: %s", ca_file, tls_reason());
    else
        FTH_REQUIRE(SSL_CTX_set_default_verify_paths(tls->context) == 1, FTH_IO,
                    "cannot read the system's certificates: %s", tls_reason());
    if (certificate && *certificate) {
        FTH_REQUIRE(SSL_CTX_use_certificate_chain_file(tls->context, certificate) == 1, FTH_INVALID,
                    "cannot use the certificate %s (" FTH_REDIS_CERTIFICATE_VARIABLE "): %s", certificate,
                    tls_reason());
        FTH_REQUIRE(key && *key && SSL_CTX_use_PrivateKey_file(tls->context, key, SSL_FILETYPE_PEM) == 1, FTH_INVALID,
                    "cannot use the key %s (" FTH_REDIS_KEY_VARIABLE "): %s", key ? key : "", tls_reason());
    }
    *result = tls;
    tls = NULL;

out:
    fth_redis_tls_free(tls);
    ERR_clear_error();
    return status;
}

void fth_redis_tls_free(fth_redis_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->methods);
    free(tls);
}

/* Waits as OpenSSL requires, or fails with the meaning of `result`. */
static fth_status continue_tls(fth_redis_stream *stream, int result, const char *doing, fth_deadline deadline)
{
    int error = errno;
    long verified;
    switch (SSL_get_error(stream->ssl, result)) {
    case SSL_ERROR_WANT_READ: return wait_for(stream, POLLIN, deadline);
    case SSL_ERROR_WANT_WRITE: return wait_for(stream, POLLOUT, deadline);
    case SSL_ERROR_ZERO_RETURN: return fail_connection(stream, 0);
    case SSL_ERROR_SYSCALL: return fail_connection(stream, error);
    default: break;
    }
    verified = SSL_get_verify_result(stream->ssl);
    if (verified != X509_V_OK)
        return fth_fail(FTH_INVALID,
                        "%s has an untrusted certificate (%s); set the file of its CA in " FTH_REDIS_CA_VARIABLE,
                        stream->name, X509_verify_cert_error_string(verified));
    const char *reason = tls_reason();
    if (strstr(reason, "certificate required") || strstr(reason, "handshake failure"))
        return fth_fail(FTH_INVALID,
                        "%s: %s; if it asks clients for a certificate, set " FTH_REDIS_CERTIFICATE_VARIABLE
                        " and " FTH_REDIS_KEY_VARIABLE,
                        stream->name, reason);
    if (strstr(reason, "unexpected eof"))
        return fail_connection(stream, 0);
    if (strstr(reason, "wrong version number") || strstr(reason, "record layer"))
        return fth_fail(FTH_INVALID, "%s does not speak TLS; write redis:// instead of rediss://", stream->name);
    return fth_fail(FTH_PEER_LOST, "%s: TLS failed while %s: %s", stream->name, doing, reason);
}

static fth_status start_tls(fth_redis_stream *stream, const char *host, fth_redis_tls *tls, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    struct in6_addr address;
    bool is_number = inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
    BIO *bio = NULL;
    int result;

    ERR_clear_error();
    stream->ssl = SSL_new(tls->context);
    bio = BIO_new(tls->methods);
    FTH_REQUIRE(stream->ssl && bio, FTH_NO_MEMORY, "no memory for TLS with %s", stream->name);
    BIO_set_data(bio, stream);
    SSL_set_bio(stream->ssl, bio, bio);
    bio = NULL;
    if (is_number)
        FTH_REQUIRE(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(stream->ssl), host) == 1, FTH_NO_MEMORY,
                    "no memory for TLS with %s", stream->name);
    else
        FTH_REQUIRE(SSL_set1_host(stream->ssl, host) == 1 && SSL_set_tlsext_host_name(stream->ssl, host) == 1,
                    FTH_NO_MEMORY, "no memory for TLS with %s", stream->name);
    while ((result = SSL_connect(stream->ssl)) != 1) {
        status = continue_tls(stream, result, "connecting", deadline);
        FTH_REQUIRE(status != FTH_TIMEOUT, FTH_TIMEOUT,
                    "%s did not answer a TLS handshake in time; write redis:// if it does not speak TLS", stream->name);
        if (status != FTH_OK)
            goto out;
        ERR_clear_error();
    }

out:
    BIO_free(bio);
    ERR_clear_error();
    return status;
}

/* ---- connecting ---- */

static fth_status connect_to(fth_redis_stream *stream, const struct addrinfo *address, fth_deadline deadline)
{
    int one = 1, idle_s = KEEPALIVE_S, error = 0;
    socklen_t length = sizeof error;
    stream->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (stream->fd < 0)
        return fth_fail(FTH_IO, "cannot make a socket for %s: %s", stream->name, strerror(errno));
    setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(stream->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(stream->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    if (connect(stream->fd, address->ai_addr, address->ai_addrlen) == 0)
        return FTH_OK;
    error = errno;
    if (error == EINPROGRESS) {
        fth_status status = wait_for(stream, POLLOUT, deadline);
        if (status != FTH_OK)
            return status == FTH_TIMEOUT ? fth_fail(FTH_TIMEOUT,
                                                    "cannot connect to %s: no answer in time; check the address, and "
                                                    "that no firewall is in between",
                                                    stream->name)
                                         : status;
        error = 0;
        getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error)
        return fth_fail(FTH_PEER_LOST, "cannot connect to %s: %s; check that the server runs and the address is right",
                        stream->name, strerror(error));
    return FTH_OK;
}

fth_status fth_redis_stream_open(const fth_redis_endpoint *endpoint, fth_redis_tls *tls, fth_deadline deadline,
                                 fth_redis_stream **result)
{
    fth_status status = FTH_OK;
    fth_redis_stream *stream = NULL;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *addresses = NULL;
    char port[16];
    int error;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *stream, &stream));
    stream->fd = -1;
    snprintf(stream->name, sizeof stream->name, "redis %s:%d", endpoint->host, endpoint->port);
    snprintf(port, sizeof port, "%d", endpoint->port);
    error = getaddrinfo(endpoint->host, port, &hints, &addresses);
    FTH_REQUIRE(error == 0, FTH_PEER_LOST, "cannot find %s: %s; check the host's name", stream->name,
                gai_strerror(error));
    for (const struct addrinfo *address = addresses; address; address = address->ai_next) {
        if (stream->fd >= 0)
            close(stream->fd);
        status = connect_to(stream, address, deadline);
        if (status != FTH_PEER_LOST)
            break;
    }
    if (status == FTH_OK && tls)
        status = start_tls(stream, endpoint->host, tls, deadline);
    if (status == FTH_OK) {
        *result = stream;
        stream = NULL;
    }

out:
    if (addresses)
        freeaddrinfo(addresses);
    fth_redis_stream_close(stream);
    return status;
}

void fth_redis_stream_close(fth_redis_stream *stream)
{
    if (!stream)
        return;
    SSL_free(stream->ssl);
    if (stream->fd >= 0)
        close(stream->fd);
    free(stream);
}

/* ---- bytes ---- */

fth_status fth_redis_stream_write(fth_redis_stream *stream, const void *bytes, size_t size_bytes, bool more,
                                  fth_deadline deadline)
{
    fth_status status = FTH_OK;
    const char *next = bytes, *end = next + size_bytes;

    while (next < end && status == FTH_OK) {
        size_t length = (size_t)(end - next) < MAX_WRITE ? (size_t)(end - next) : MAX_WRITE;
        if (stream->ssl) {
            ERR_clear_error();
            int sent = SSL_write(stream->ssl, next, (int)length);
            if (sent > 0)
                next += sent;
            else
                status = continue_tls(stream, sent, "sending", deadline);
        } else {
            ssize_t sent = send(stream->fd, next, length, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
            if (sent >= 0)
                next += sent;
            else if (errno == EAGAIN)
                status = wait_for(stream, POLLOUT, deadline);
            else if (errno != EINTR)
                status = fail_connection(stream, errno);
        }
        if (status == FTH_OK && next < end && fth_deadline_passed(deadline))
            status = fth_fail(FTH_TIMEOUT, "%s takes data too slowly: %zu of %zu bytes in time", stream->name,
                              (size_t)(next - (const char *)bytes), size_bytes);
    }
    return status;
}

fth_status fth_redis_stream_read(fth_redis_stream *stream, void *bytes, size_t room, fth_deadline deadline, size_t *got)
{
    fth_status status = FTH_OK;
    size_t length = room < MAX_WRITE ? room : MAX_WRITE;

    *got = 0;
    while (*got == 0 && status == FTH_OK) {
        if (stream->ssl) {
            ERR_clear_error();
            int received = SSL_read(stream->ssl, bytes, (int)length);
            if (received > 0)
                *got = (size_t)received;
            else
                status = continue_tls(stream, received, "receiving", deadline);
        } else {
            ssize_t received = recv(stream->fd, bytes, length, 0);
            if (received > 0)
                *got = (size_t)received;
            else if (received == 0)
                status = fail_connection(stream, 0);
            else if (errno == EAGAIN)
                status = wait_for(stream, POLLIN, deadline);
            else if (errno != EINTR)
                status = fail_connection(stream, errno);
        }
    }
    return status;
}

bool fth_redis_stream_is_quiet(fth_redis_stream *stream)
{
    struct pollfd poll_fd = {.fd = stream->fd, .events = POLLIN};
    /* A TLS server may send session tickets at any time; they belong to the next read. */
    return poll(&poll_fd, 1, 0) == 0 || (stream->ssl && !(poll_fd.revents & (POLLHUP | POLLERR)));
}
