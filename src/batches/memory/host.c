/* See host.h.
 *
 * One thread owns the socket, all connections and their slots (epoll; it never blocks). Requests
 * for the handler go to a few threads and come back through a queue, so that a slow one delays no
 * other client:
 *
 *     reading -> answering -> reading ...
 *        |           |
 *        +---------> gone: the client has hung up, and no thread has its request
 *
 * A lock file beside the socket ensures one host per path. The socket gets its name only when it is
 * listening. */
#include "batches/memory/host.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/process.h"
#include "batches/memory/host_packet.h"

enum { ANSWERING_THREADS = 4, EVENTS = 64, TICK_MS = 1000, BACKLOG = 512, LAST_PACKETS = 64 };
#define SILENT_S 60.0 /* for clients without a slot */

/* A connection, owned by the host's thread. While it is `answering`, an answering thread owns
 * `request`, `answer` and `new_job`. */
typedef struct host_client {
    int fd, slot; /* -1: none */
    uint64_t job;
    int64_t process;
    double heard_s;
    bool finished, answering, gone;
    json_t *request, *answer;
    uint64_t new_job;
    struct host_client *previous, *next; /* all clients */
    struct host_client *queued;          /* next in a queue, or among those to be freed */
} host_client;

typedef struct client_queue {
    host_client *first, **end;
} client_queue;

struct fth_host {
    char *path, *lock_path;
    int lock, listener, events, bell; /* epoll, and an eventfd that wakes it */
    bool listening;                   /* accepting pauses while there are no descriptors */
    fth_segment_cache *segment;
    fth_board *board;
    fth_host_handler handler;
    host_client *clients, *dropped; /* of the host's thread; dropped: freed after this round of events */
    _Atomic int count;
    pthread_t thread, answering[ANSWERING_THREADS];
    int threads; /* started so far: answering threads, then the host's own */
    struct {
        pthread_mutex_t mutex; /* guards the queues */
        pthread_cond_t arrived;
        client_queue asked, answered;
    } requests;
    _Atomic bool stop;
};

/* ---- queues ---- */

static void enqueue(client_queue *queue, host_client *client)
{
    client->queued = NULL;
    *queue->end = client;
    queue->end = &client->queued;
}

static host_client *dequeue(client_queue *queue)
{
    host_client *client = queue->first;
    if (client) {
        queue->first = client->queued;
        if (!queue->first)
            queue->end = &queue->first;
    }
    return client;
}

static void ring(fth_host *host)
{
    uint64_t one = 1;
    while (write(host->bell, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* ---- answering threads ---- */

static json_t *describe_failure(fth_status status)
{
    return json_pack("{s:s, s:s}", "error", fth_error_message(), "status", fth_status_name(status));
}

static void *answer_requests(void *context)
{
    fth_host *host = context;
    pthread_mutex_lock(&host->requests.mutex);
    while (!host->stop) {
        host_client *client = dequeue(&host->requests.asked);
        if (!client) {
            pthread_cond_wait(&host->requests.arrived, &host->requests.mutex);
            continue;
        }
        pthread_mutex_unlock(&host->requests.mutex);
        client->new_job = 0;
        fth_status status = host->handler.answer(host->handler.context, client->slot, client->request, &client->answer,
                                                 &client->new_job);
        if (status != FTH_OK) {
            json_decref(client->answer);
            client->answer = describe_failure(status);
            client->new_job = 0;
        }
        pthread_mutex_lock(&host->requests.mutex);
        enqueue(&host->requests.answered, client);
        ring(host);
    }
    pthread_mutex_unlock(&host->requests.mutex);
    return NULL;
}

/* ---- clients; the host's thread ---- */

static void watch(fth_host *host, host_client *client, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = client};
    if (client->fd >= 0)
        epoll_ctl(host->events, operation, client->fd, &event);
}

static const char *operation_of(const json_t *request)
{
    const char *operation = json_string_value(json_object_get(request, "op"));
    return operation ? operation : "";
}

/* Whether a client that hangs up has said that its job is done. */
static void read_last_words(host_client *client)
{
    json_t *request = NULL;
    for (int i = 0; i < LAST_PACKETS && fth_packet_receive(client->fd, &request, NULL) == FTH_OK && request; i++) {
        client->finished = client->finished || strcmp(operation_of(request), "finish") == 0;
        json_decref(request);
    }
}

static void free_client(host_client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    json_decref(client->request);
    json_decref(client->answer);
    free(client);
}

/* Ends a connection. One that is being answered is only marked until the answer is there. */
static void drop(fth_host *host, host_client *client)
{
    watch(host, client, EPOLL_CTL_DEL, 0);
    client->gone = true;
    if (client->answering)
        return;
    read_last_words(client);
    if (client->slot >= 0) {
        host->handler.left(host->handler.context, client->slot, client->job, client->finished);
        fth_board_clear(host->board, client->slot);
    }
    if (client->previous)
        client->previous->next = client->next;
    else
        host->clients = client->next;
    if (client->next)
        client->next->previous = client->previous;
    close(client->fd);
    client->fd = -1;
    client->queued = host->dropped;
    host->dropped = client;
    host->count--;
}

/* Sends an answer with the request's number; a request without a number gets none. Clients that do
 * not read are dropped. */
static void reply(fth_host *host, host_client *client, const json_t *request, json_t *answer, const int *fds)
{
    json_t *number = json_object_get(request, "n");
    if (!number)
        return;
    if (json_object_set(answer, "n", number) != 0 || fth_packet_send(client->fd, answer, fds) != FTH_OK)
        drop(host, client);
}

static void refuse(fth_host *host, host_client *client, const json_t *request, fth_status status)
{
    json_t *answer = describe_failure(status);
    reply(host, client, request, answer, NULL);
    json_decref(answer);
}

static bool gives_slot(const json_t *request)
{
    const char *operation = operation_of(request);
    return strcmp(operation, "register") == 0 || strcmp(operation, "join") == 0;
}

/* Takes ownership of `request`. */
static void handle_request(fth_host *host, host_client *client, json_t *request)
{
    const char *operation = operation_of(request);
    if (strcmp(operation, "wake") == 0) {
        if (client->slot >= 0)
            host->handler.wake(host->handler.context, client->slot);
    } else if (strcmp(operation, "finish") == 0) {
        json_t *done = json_object();
        client->finished = true;
        reply(host, client, request, done, NULL);
        json_decref(done);
    } else if (gives_slot(request) && client->slot >= 0) {
        refuse(host, client, request, fth_fail(FTH_INVALID, "this connection to the batch cache already has a job"));
    } else {
        client->request = request;
        client->answering = true;
        watch(host, client, EPOLL_CTL_MOD, EPOLLRDHUP);
        pthread_mutex_lock(&host->requests.mutex);
        enqueue(&host->requests.asked, client);
        pthread_cond_signal(&host->requests.arrived);
        pthread_mutex_unlock(&host->requests.mutex);
        return;
    }
    json_decref(request);
}

/* Gives a client of `job` a slot, and adds it to the answer. */
static fth_status give_slot(fth_host *host, host_client *client, uint64_t job, json_t *answer)
{
    int slot = fth_board_take(host->board, job, client->process);
    if (slot < 0) {
        host->handler.left(host->handler.context, -1, job, false);
        return fth_fail(FTH_NO_SPACE, "the batch cache on this machine already has %d clients", (int)FTH_BOARD_SLOTS);
    }
    client->slot = slot;
    client->job = job;
    if (json_object_set_new(answer, "slot", json_integer(slot)) != 0)
        return fth_fail(FTH_NO_MEMORY, "no memory for an answer");
    return FTH_OK;
}

static void finish_answer(fth_host *host, host_client *client)
{
    const int fds[FTH_PACKET_FDS] = {fth_segment_read_only_fd(host->segment), fth_board_fd(host->board)};
    json_t *request = client->request, *answer = client->answer;
    bool registers = gives_slot(request) && client->new_job != 0 && answer;

    client->request = client->answer = NULL;
    client->answering = false;
    fth_status status = registers ? give_slot(host, client, client->new_job, answer)
                        : answer  ? FTH_OK
                                  : fth_fail(FTH_NO_MEMORY, "no memory for an answer");
    if (client->gone) {
        drop(host, client);
    } else {
        watch(host, client, EPOLL_CTL_MOD, EPOLLIN | EPOLLRDHUP);
        if (status == FTH_OK)
            reply(host, client, request, answer, registers ? fds : NULL);
        else
            refuse(host, client, request, status);
    }
    json_decref(request);
    json_decref(answer);
}

static void finish_answers(fth_host *host)
{
    uint64_t rings;
    if (read(host->bell, &rings, sizeof rings) < 0 && errno != EAGAIN)
        return;
    for (;;) {
        pthread_mutex_lock(&host->requests.mutex);
        host_client *client = dequeue(&host->requests.answered);
        pthread_mutex_unlock(&host->requests.mutex);
        if (!client)
            return;
        finish_answer(host, client);
    }
}

/* One packet of one client, so that all get their turn. */
static void serve_client(fth_host *host, host_client *client, uint32_t events)
{
    json_t *request = NULL;
    if (client->answering) { /* it has hung up */
        drop(host, client);
        return;
    }
    fth_status status = fth_packet_receive(client->fd, &request, NULL);
    client->heard_s = fth_clock_seconds();
    if (status != FTH_OK || (!request && events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)))
        drop(host, client);
    else if (request)
        handle_request(host, client, request);
}

/* ---- the socket ---- */

static void set_listening(fth_host *host, bool listening)
{
    struct epoll_event event = {.events = listening ? EPOLLIN : 0, .data.ptr = &host->listener};
    if (host->listening != listening)
        epoll_ctl(host->events, EPOLL_CTL_MOD, host->listener, &event);
    host->listening = listening;
}

static void turn_away(int fd, const char *why)
{
    json_t *answer = describe_failure(fth_fail(FTH_INVALID, "%s", why));
    FTH_IGNORE(fth_packet_send(fd, answer, NULL), "the client is turned away in any case");
    json_decref(answer);
    close(fd);
}

static void accept_client(fth_host *host)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    host_client *client = NULL;
    int fd = accept4(host->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            set_listening(host, false); /* until the next tick */
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())
        turn_away(fd, "this batch cache belongs to another user");
    else if (host->count >= FTH_HOST_CLIENTS || fth_allocate(1, sizeof *client, &client) != FTH_OK)
        turn_away(fd, "the batch cache on this machine has too many clients");
    if (!client)
        return;
    *client =
        (host_client){.fd = fd, .slot = -1, .process = peer.pid, .heard_s = fth_clock_seconds(), .next = host->clients};
    if (host->clients)
        host->clients->previous = client;
    host->clients = client;
    host->count++;
    watch(host, client, EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP);
}

/* Connections that nobody will close: the process has ended, and a process it forked holds its
 * socket. */
static void drop_dead(fth_host *host)
{
    double now_s = fth_clock_seconds();
    for (host_client *client = host->clients, *next; client; client = next) {
        next = client->next;
        bool ended = client->process > 0 && kill((pid_t)client->process, 0) != 0 && errno == ESRCH;
        if (ended || (client->slot < 0 && !client->answering && now_s - client->heard_s > SILENT_S))
            drop(host, client);
    }
    fth_board_clear_dead(host->board);
}

static void free_dropped(fth_host *host)
{
    for (host_client *client; (client = host->dropped);) {
        host->dropped = client->queued;
        free_client(client);
    }
}

static void *run_host(void *context)
{
    fth_host *host = context;
    struct epoll_event events[EVENTS];
    double tick_s = fth_clock_seconds();
    while (!host->stop) {
        int count = epoll_wait(host->events, events, EVENTS, TICK_MS);
        for (int i = 0; i < count; i++) {
            void *whose = events[i].data.ptr;
            if (whose == &host->listener)
                accept_client(host);
            else if (whose == &host->bell)
                finish_answers(host);
            else if (((host_client *)whose)->fd >= 0 && !((host_client *)whose)->gone)
                serve_client(host, whose, events[i].events);
        }
        if (fth_clock_seconds() - tick_s >= TICK_MS / 1000.0) {
            tick_s = fth_clock_seconds();
            set_listening(host, true);
            drop_dead(host);
        }
        free_dropped(host);
    }
    return NULL;
}

/* ---- opening and closing ---- */

/* Locks the file that has the name now, not one that its last host has removed meanwhile. */
static fth_status lock_path(fth_host *host)
{
    struct stat locked, named;
    for (;;) {
        host->lock = open(host->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (host->lock < 0)
            return fth_fail(FTH_IO, "cannot create %s: %s", host->lock_path, strerror(errno));
        if (flock(host->lock, LOCK_EX | LOCK_NB) != 0)
            return fth_fail(FTH_INVALID, "another process serves the batch cache at %s", host->path);
        if (fstat(host->lock, &locked) == 0 && stat(host->lock_path, &named) == 0 && locked.st_ino == named.st_ino &&
            locked.st_dev == named.st_dev)
            return FTH_OK;
        close(host->lock);
        host->lock = -1;
    }
}

static fth_status listen_at_path(fth_host *host)
{
    fth_status status = FTH_OK;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s.new", host->path);

    FTH_REQUIRE(length > 0 && (size_t)length < sizeof address.sun_path, FTH_INVALID,
                "this path is too long for a socket: %s", host->path);
    unlink(address.sun_path);
    host->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    FTH_REQUIRE(host->listener >= 0 && bind(host->listener, (const struct sockaddr *)&address, sizeof address) == 0 &&
                    chmod(address.sun_path, 0600) == 0 && listen(host->listener, BACKLOG) == 0 &&
                    rename(address.sun_path, host->path) == 0,
                FTH_IO, "cannot listen at %s: %s", host->path, strerror(errno));
out:
    return status;
}

static fth_status start_threads(fth_host *host)
{
    int failed = 0;
    while (!failed && host->threads < ANSWERING_THREADS)
        if (!(failed = fth_thread_start(&host->answering[host->threads], "batch-answers", answer_requests, host)))
            host->threads++;
    if (!failed && !(failed = fth_thread_start(&host->thread, "batch-host", run_host, host)))
        host->threads++;
    return failed ? fth_fail(FTH_NO_MEMORY, "cannot start a thread: %s", strerror(failed)) : FTH_OK;
}

fth_status fth_host_open(const char *socket_path, fth_segment_cache *segment, fth_board *board,
                         const fth_host_handler *handler, fth_host **host)
{
    fth_status status = FTH_OK;
    fth_host *made = NULL;

    *host = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->lock = made->listener = made->events = made->bell = -1;
    made->segment = segment;
    made->board = board;
    made->handler = *handler;
    made->requests.asked.end = &made->requests.asked.first;
    made->requests.answered.end = &made->requests.answered.first;
    pthread_mutex_init(&made->requests.mutex, NULL);
    pthread_cond_init(&made->requests.arrived, NULL);
    FTH_REQUIRE((made->path = strdup(socket_path)) && asprintf(&made->lock_path, "%s.lock", socket_path) >= 0,
                FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(lock_path(made));
    FTH_TRY(listen_at_path(made));
    made->events = epoll_create1(EPOLL_CLOEXEC);
    made->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event accepting = {.events = EPOLLIN, .data.ptr = &made->listener};
    struct epoll_event ringing = {.events = EPOLLIN, .data.ptr = &made->bell};
    FTH_REQUIRE(made->events >= 0 && made->bell >= 0 &&
                    epoll_ctl(made->events, EPOLL_CTL_ADD, made->listener, &accepting) == 0 &&
                    epoll_ctl(made->events, EPOLL_CTL_ADD, made->bell, &ringing) == 0,
                FTH_IO, "cannot watch sockets: %s", strerror(errno));
    made->listening = true;
    FTH_TRY(start_threads(made));
    *host = made;
    made = NULL;
out:
    fth_host_close(made);
    return status;
}

static void stop_threads(fth_host *host)
{
    pthread_mutex_lock(&host->requests.mutex);
    host->stop = true;
    pthread_cond_broadcast(&host->requests.arrived);
    pthread_mutex_unlock(&host->requests.mutex);
    if (host->bell >= 0)
        ring(host);
    for (int i = 0; i < host->threads; i++)
        pthread_join(i < ANSWERING_THREADS ? host->answering[i] : host->thread, NULL);
}

void fth_host_close(fth_host *host)
{
    if (!host)
        return;
    stop_threads(host);
    if (host->listener >= 0) {
        unlink(host->path);
        close(host->listener);
    }
    for (host_client *client; (client = host->clients);) {
        host->clients = client->next;
        free_client(client);
    }
    free_dropped(host);
    if (host->events >= 0)
        close(host->events);
    if (host->bell >= 0)
        close(host->bell);
    if (host->lock >= 0) {
        if (host->listener >= 0)
            unlink(host->lock_path);
        close(host->lock);
    }
    pthread_cond_destroy(&host->requests.arrived);
    pthread_mutex_destroy(&host->requests.mutex);
    free(host->path);
    free(host->lock_path);
    free(host);
}

int fth_host_clients(const fth_host *host)
{
    return host->count;
}
