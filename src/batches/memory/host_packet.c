/* See host_packet.h. */
#include "batches/memory/host_packet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "batches/memory/host.h"

/* Limits: below a socket's buffer; and of a large message. */
enum { INLINE_BYTES = 32768, LARGE_BYTES = 256 << 20, MAX_FDS = FTH_PACKET_FDS + 1 };

typedef struct descriptors {
    int fds[MAX_FDS];
    size_t count;
} descriptors;

/* ---- sending ---- */

static fth_status send_bytes(int socket, const char *bytes, size_t size_bytes, const descriptors *passed)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size_bytes};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int) * MAX_FDS)];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (passed->count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * passed->count);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * passed->count);
        memcpy(CMSG_DATA(header), passed->fds, sizeof(int) * passed->count);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return FTH_OK;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return fth_fail(FTH_TIMEOUT, "the other end of the batch cache's socket does not read");
    return fth_fail(FTH_PEER_LOST, "the other end of the batch cache's socket is gone: %s", strerror(errno));
}

/* Stores a text in an anonymous file. */
static fth_status store_large(const char *text, size_t length, int *fd)
{
    *fd = memfd_create("farthing-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    for (size_t done = 0; *fd >= 0 && done < length;) {
        ssize_t written = write(*fd, text + done, length - done);
        if (written <= 0 && errno != EINTR) {
            close(*fd);
            *fd = -1;
        }
        done += written > 0 ? (size_t)written : 0;
    }
    return *fd >= 0 ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an answer of %zu bytes", length);
}

fth_status fth_packet_send(int socket, const json_t *message, const int *fds)
{
    fth_status status = FTH_OK;
    descriptors passed = {0};
    int large = -1;
    char note[64], *text = json_dumps(message, JSON_COMPACT);

    FTH_REQUIRE(text, FTH_NO_MEMORY, "no memory for a message");
    size_t length = strlen(text);
    const char *bytes = text;
    if (length > INLINE_BYTES) {
        FTH_TRY(store_large(text, length, &large));
        passed.fds[passed.count++] = large;
        length = (size_t)snprintf(note, sizeof note, "{\"large\":%zu}", length);
        bytes = note;
    }
    for (int i = 0; fds && i < FTH_PACKET_FDS; i++)
        passed.fds[passed.count++] = fds[i];
    FTH_TRY(send_bytes(socket, bytes, length, &passed));
out:
    if (large >= 0)
        close(large);
    free(text);
    return status;
}

/* ---- receiving ---- */

static void take_descriptors(struct msghdr *message, descriptors *taken)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (taken->count < MAX_FDS)
                taken->fds[taken->count++] = fd;
            else
                close(fd);
        }
    }
}

/* *length 0: nothing there. */
static fth_status receive_bytes(int socket, char *bytes, size_t room, bool with_descriptors, size_t *length,
                                descriptors *taken)
{
    struct iovec part = {.iov_base = bytes, .iov_len = room};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int) * MAX_FDS)];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (with_descriptors) { /* without room for descriptors, the kernel passes none */
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
    }
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    *length = got > 0 ? (size_t)got : 0;
    if (got > 0 && with_descriptors)
        take_descriptors(&message, taken);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return FTH_OK;
    if (got <= 0)
        return fth_fail(FTH_PEER_LOST, "the other end of the batch cache's socket is gone");
    if (message.msg_flags & MSG_TRUNC)
        return fth_fail(FTH_CORRUPT, "a message to the batch cache has more than %zu bytes", room);
    return FTH_OK;
}

static fth_status parse(const char *bytes, size_t length, json_t **message)
{
    json_error_t error;
    *message = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(*message))
        return FTH_OK;
    json_decref(*message);
    *message = NULL;
    return fth_fail(FTH_CORRUPT, "a message to the batch cache is not a JSON object");
}

/* Replaces {"large":N} with the contents of the descriptor. */
static fth_status read_large(json_t **message, int fd)
{
    fth_status status = FTH_OK;
    json_int_t size = json_integer_value(json_object_get(*message, "large"));
    struct stat facts;
    char *bytes = NULL;

    json_decref(*message);
    *message = NULL;
    FTH_REQUIRE(size > 0 && size <= LARGE_BYTES && fstat(fd, &facts) == 0 && facts.st_size == size, FTH_CORRUPT,
                "an answer of the batch cache does not have the announced size");
    FTH_TRY(fth_allocate((size_t)size, 1, &bytes));
    FTH_REQUIRE(pread(fd, bytes, (size_t)size, 0) == size, FTH_CORRUPT, "an answer of the batch cache cannot be read");
    FTH_TRY(parse(bytes, (size_t)size, message));
out:
    free(bytes);
    return status;
}

fth_status fth_packet_receive(int socket, json_t **message, int *fds)
{
    fth_status status = FTH_OK;
    descriptors taken = {0};
    char *bytes = NULL;
    size_t length = 0, first = 0;

    *message = NULL;
    for (int i = 0; fds && i < FTH_PACKET_FDS; i++)
        fds[i] = -1;
    FTH_TRY(fth_allocate(FTH_HOST_REQUEST_BYTES, 1, &bytes));
    FTH_TRY(receive_bytes(socket, bytes, FTH_HOST_REQUEST_BYTES, fds != NULL, &length, &taken));
    if (length == 0)
        goto out;
    FTH_TRY(parse(bytes, length, message));
    if (taken.count > 0 && json_object_get(*message, "large")) {
        FTH_TRY(read_large(message, taken.fds[0]));
        first = 1;
    }
    for (size_t i = first; i < taken.count && i - first < FTH_PACKET_FDS; i++) {
        fds[i - first] = taken.fds[i];
        taken.fds[i] = -1;
    }
out:
    for (size_t i = 0; i < taken.count; i++)
        if (taken.fds[i] >= 0)
            close(taken.fds[i]);
    free(bytes);
    return status;
}
