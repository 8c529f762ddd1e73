/* A client's end of a host (host.h), and the paths of hosts. */
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/sha.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/private_folder.h"
#include "batches/memory/host.h"
#include "batches/memory/host_packet.h"

enum { NAME_BYTES = 8, MAX_POLL_MS = 1000, RETRY_MS = 20 };

struct fth_host_link {
    int socket;
    pthread_mutex_t mutex;
    pthread_cond_t answered;
    bool asking;      /* one request at a time; guarded by mutex */
    json_int_t asked; /* likewise */
};

/* ---- paths ---- */

/* Whether a host name or address is this machine's own. */
static bool is_this_machine(const char *host)
{
    char name[256] = "", text[NI_MAXHOST];
    struct ifaddrs *interfaces = NULL;
    bool own = !*host || strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
               strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 ||
               (gethostname(name, sizeof name - 1) == 0 && strcasecmp(host, name) == 0);
    if (own || getifaddrs(&interfaces) != 0)
        return own;
    for (const struct ifaddrs *at = interfaces; at && !own; at = at->ifa_next) {
        int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
        socklen_t size = family == AF_INET    ? sizeof(struct sockaddr_in)
                         : family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                              : 0;
        own = size > 0 && getnameinfo(at->ifa_addr, size, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 &&
              strcmp(text, host) == 0;
    }
    freeifaddrs(interfaces);
    return own;
}

fth_status fth_host_socket_path(const char *address, int port, const char *access_key, char **path)
{
    fth_status status = FTH_OK;
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char *folder = NULL, *text = NULL;

    *path = NULL;
    int length = runtime && runtime[0] == '/' ? asprintf(&folder, "%s/farthing", runtime)
                                              : asprintf(&folder, "/tmp/farthing-%lu", (unsigned long)geteuid());
    if (length < 0)
        folder = NULL;
    FTH_REQUIRE(folder && asprintf(&text, "%s\n%d\n%s", is_this_machine(address) ? "" : address, port,
                                   access_key ? access_key : "") >= 0,
                FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_folder_create_private(folder));
    SHA256((const unsigned char *)text, strlen(text), digest);
    char name[2 * NAME_BYTES + 1];
    for (int i = 0; i < NAME_BYTES; i++)
        snprintf(name + 2 * i, 3, "%02x", digest[i]);
    FTH_REQUIRE(asprintf(path, "%s/batches-%s", folder, name) >= 0, FTH_NO_MEMORY, "no memory for a path");
out:
    if (text)
        fth_wipe_text(text);
    free(folder);
    return status;
}

fth_status fth_host_own_socket_path(int port, char **path)
{
    return fth_host_socket_path("", port, NULL, path); /* no coordinator has that name */
}

/* ---- connecting ---- */

static fth_status connect_once(fth_host_link *link, const char *path, bool *busy)
{
    fth_status status = FTH_OK;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof peer;

    *busy = false;
    FTH_REQUIRE(strlen(path) < sizeof address.sun_path, FTH_INVALID, "this path is too long for a socket: %s", path);
    memcpy(address.sun_path, path, strlen(path));
    link->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    FTH_REQUIRE(link->socket >= 0, FTH_IO, "no socket: %s", strerror(errno));
    if (connect(link->socket, (const struct sockaddr *)&address, sizeof address) != 0) {
        *busy = errno == EAGAIN || errno == EINTR;
        status = fth_fail(FTH_PEER_LOST, "no batch cache at %s: %s", path, strerror(errno));
        goto out;
    }
    FTH_REQUIRE(getsockopt(link->socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid(),
                FTH_INVALID, "the batch cache at %s belongs to another user", path);
out:
    if (status != FTH_OK && link->socket >= 0) {
        close(link->socket);
        link->socket = -1;
    }
    return status;
}

fth_status fth_host_connect(const char *socket_path, fth_deadline deadline, fth_host_link **link)
{
    fth_status status = FTH_OK;
    fth_host_link *made = NULL;
    bool busy = false;

    *link = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->socket = -1;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->answered, NULL);
    while ((status = connect_once(made, socket_path, &busy)) != FTH_OK && busy && !fth_deadline_passed(deadline))
        poll(NULL, 0, RETRY_MS); /* its queue is full; nothing signals the end of that */
    FTH_TRY(status);
    *link = made;
    made = NULL;
out:
    fth_host_disconnect(made);
    return status;
}

void fth_host_disconnect(fth_host_link *link)
{
    if (!link)
        return;
    if (link->socket >= 0)
        close(link->socket);
    pthread_cond_destroy(&link->answered);
    pthread_mutex_destroy(&link->mutex);
    free(link);
}

/* ---- talking ---- */

static fth_status wait_for(int socket, short events, fth_deadline deadline)
{
    while (!fth_deadline_passed(deadline)) {
        struct pollfd poll_one = {.fd = socket, .events = events};
        double left_ms = fth_deadline_left_seconds(deadline) * 1000;
        if (poll(&poll_one, 1, left_ms < MAX_POLL_MS ? (int)left_ms + 1 : MAX_POLL_MS) > 0)
            return FTH_OK;
    }
    return fth_fail(FTH_TIMEOUT, "the batch cache on this machine did not answer in time");
}

/* Receives the answer with that number, or without one, and drops answers to abandoned requests. */
static fth_status receive_answer(fth_host_link *link, json_int_t number, fth_deadline deadline, json_t **answer,
                                 int fds[FTH_PACKET_FDS])
{
    for (;;) {
        fth_status status = fth_packet_receive(link->socket, answer, fds);
        if (status != FTH_OK)
            return status;
        const json_t *found = json_object_get(*answer, "n");
        if (*answer && (!found || json_integer_value(found) == number))
            return FTH_OK;
        for (int i = 0; i < FTH_PACKET_FDS; i++)
            if (fds[i] >= 0)
                close(fds[i]);
        if (*answer) {
            json_decref(*answer);
            *answer = NULL;
        } else if ((status = wait_for(link->socket, POLLIN, deadline)) != FTH_OK) {
            return status;
        }
    }
}

/* Waits for its turn, and gives the request's number. */
static fth_status begin_asking(fth_host_link *link, fth_deadline deadline, json_int_t *number)
{
    struct timespec end = fth_deadline_timespec(deadline);
    int failed = 0;
    pthread_mutex_lock(&link->mutex);
    while (link->asking && !failed)
        failed = pthread_cond_clockwait(&link->answered, &link->mutex, CLOCK_MONOTONIC, &end);
    if (!failed)
        link->asking = true;
    *number = ++link->asked;
    pthread_mutex_unlock(&link->mutex);
    return failed ? fth_fail(FTH_TIMEOUT, "the batch cache on this machine did not answer in time") : FTH_OK;
}

static void end_asking(fth_host_link *link)
{
    pthread_mutex_lock(&link->mutex);
    link->asking = false;
    pthread_cond_signal(&link->answered);
    pthread_mutex_unlock(&link->mutex);
}

fth_status fth_host_ask(fth_host_link *link, json_t *request, fth_deadline deadline, json_t **answer, int fds[2])
{
    fth_status status = FTH_OK;
    int taken[FTH_PACKET_FDS] = {-1, -1};
    json_t *numbered = NULL;
    json_int_t number = 0;

    *answer = NULL;
    if (fds)
        fds[0] = fds[1] = -1;
    if ((status = begin_asking(link, deadline, &number)) != FTH_OK)
        return status;
    numbered = json_copy(request);
    FTH_REQUIRE(json_object_set_new(numbered, "n", json_integer(number)) == 0, FTH_NO_MEMORY,
                "no memory for a request");
    while ((status = fth_packet_send(link->socket, numbered, NULL)) == FTH_TIMEOUT)
        FTH_TRY(wait_for(link->socket, POLLOUT, deadline));
    FTH_TRY(status);
    FTH_TRY(receive_answer(link, number, deadline, answer, taken));
    for (int i = 0; i < FTH_PACKET_FDS; i++) {
        if (fds)
            fds[i] = taken[i];
        else if (taken[i] >= 0)
            close(taken[i]);
    }
out:
    end_asking(link);
    json_decref(numbered);
    return status;
}

fth_status fth_host_tell(fth_host_link *link, json_t *request)
{
    return fth_packet_send(link->socket, request, NULL);
}

bool fth_host_is_gone(fth_host_link *link)
{
    struct pollfd poll_one = {.fd = link->socket, .events = POLLRDHUP};
    return poll(&poll_one, 1, 0) > 0 && (poll_one.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}
