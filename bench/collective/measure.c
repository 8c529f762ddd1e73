/* All-reduce between two processes of this machine: through shared memory, through gloo over the
 * loopback, and as plain sockets move the same bytes. The sides take turns in every round; prints
 * the median of each, and their ratios.
 *
 *     bench_collective [megabytes [rounds]] */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/collective.h"

enum { RANKS = 2, MAX_KEYS = 64, MAX_ROUNDS = 1000 };

/* ---- keys, in memory that both processes have ---- */

typedef struct entry {
    _Atomic int state; /* 0: free, 1: being written, 2: there */
    char key[100], bytes[2000];
    size_t size;
} entry;

typedef struct key_part {
    entry *entries;
    const char *prefix;
} key_part;

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench_collective: %s: %s\n", what,
                *fth_error_message() ? fth_error_message() : strerror(errno));
        exit(1);
    }
}

static fth_status put_key(void *context, const char *key, const void *bytes, size_t size)
{
    const key_part *part = context;
    for (int i = 0; i < MAX_KEYS; i++) {
        entry *at = &part->entries[i];
        int none = 0;
        if (size > sizeof at->bytes || !atomic_compare_exchange_strong(&at->state, &none, 1))
            continue;
        snprintf(at->key, sizeof at->key, "%s/%s", part->prefix, key);
        memcpy(at->bytes, bytes, size);
        at->size = size;
        atomic_store(&at->state, 2);
        return FTH_OK;
    }
    return fth_fail(FTH_NO_MEMORY, "no room for key %s", key);
}

static fth_status get_key(void *context, const char *key, fth_deadline deadline, void **bytes, size_t *size)
{
    const key_part *part = context;
    char whole[100];
    snprintf(whole, sizeof whole, "%s/%s", part->prefix, key);
    while (!fth_deadline_passed(deadline)) {
        for (int i = 0; i < MAX_KEYS; i++) {
            entry *at = &part->entries[i];
            if (atomic_load(&at->state) != 2 || strcmp(at->key, whole) != 0)
                continue;
            *bytes = malloc(at->size + 1);
            memcpy(*bytes, at->bytes, at->size);
            *size = at->size;
            return FTH_OK;
        }
        usleep(200);
    }
    return fth_fail(FTH_TIMEOUT, "no key %s", key);
}

/* ---- plain sockets ---- */

static int listen_on_loopback(struct sockaddr_in *address)
{
    socklen_t size = sizeof *address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    must(listener >= 0 && bind(listener, (struct sockaddr *)address, size) == 0 && listen(listener, 1) == 0 &&
             getsockname(listener, (struct sockaddr *)address, &size) == 0,
         "cannot listen");
    return listener;
}

static int connect_ranks(int rank, int listener, const struct sockaddr_in *address)
{
    int one = 1, peer = rank == 0 ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(peer >= 0 && (rank == 0 || connect(peer, (const struct sockaddr *)address, sizeof *address) == 0),
         "cannot connect");
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(peer, F_SETFL, O_NONBLOCK);
    return peer;
}

static size_t at_most(size_t size, size_t limit)
{
    return size < limit ? size : limit;
}

/* Sends and receives as many bytes, both at once. Of what was tried this is the fastest: one
 * thread, and calls of 256 KB, which stay in the cache; threads for each direction took a fifth
 * longer. */
static void exchange(int peer, const char *out, char *in, size_t size)
{
    const size_t most = 256 << 10;
    size_t sent = 0, received = 0;
    while (sent < size || received < size) {
        struct pollfd wait = {.fd = peer,
                              .events = (short)((sent < size ? POLLOUT : 0) | (received < size ? POLLIN : 0))};
        must(poll(&wait, 1, 30000) == 1, "nothing moves");
        ssize_t count = wait.revents & POLLIN ? recv(peer, in + received, at_most(size - received, most), 0) : 0;
        must(count >= 0 || errno == EAGAIN, "cannot receive");
        received += count > 0 ? (size_t)count : 0;
        count = wait.revents & POLLOUT ? send(peer, out + sent, at_most(size - sent, most), MSG_NOSIGNAL) : 0;
        must(count >= 0 || errno == EAGAIN, "cannot send");
        sent += count > 0 ? (size_t)count : 0;
    }
}

/* ---- sides ---- */

typedef enum side_kind { SHM_IN_MEMORY, SHM_INBOX, GLOO, SOCKETS, SIDES } side_kind;
static const char *const side_names[] = {"shm, values in shared memory", "shm, values elsewhere", "gloo on loopback",
                                         "plain sockets, same bytes"};

typedef struct bench_rank {
    int rank, socket;
    size_t count;
    fth_collective *shm, *gloo;
    float *shared, *values, *received;
} bench_rank;

static fth_collective *open_transport(int rank, const char *transport, entry *entries, const fth_shared_memory *memory)
{
    key_part *part = malloc(sizeof *part); /* stays until the process ends */
    *part = (key_part){entries, transport};
    const fth_member members[RANKS] = {{0, "rank 0"}, {0, "rank 1"}};
    fth_collective *collective = NULL;
    fth_collective_options options = {.rank = rank,
                                      .size = RANKS,
                                      .members = members,
                                      .keys = {part, put_key, get_key},
                                      .transport = transport,
                                      .memory = memory};
    fth_status status = fth_collective_open(&options, &collective);
    if (status == FTH_UNSUPPORTED)
        return NULL;
    must(status == FTH_OK, transport);
    return collective;
}

static bool run_side(bench_rank *bench, side_kind side)
{
    size_t size = bench->count * sizeof(float), half = size / 2;
    char *bytes = (char *)bench->values, *received = (char *)bench->received;
    switch (side) {
    case SHM_IN_MEMORY:
        return fth_collective_all_reduce(bench->shm, bench->shared, bench->count, FTH_WIRE_F32) == FTH_OK;
    case SHM_INBOX: return fth_collective_all_reduce(bench->shm, bench->values, bench->count, FTH_WIRE_F32) == FTH_OK;
    case GLOO:
        return bench->gloo &&
               fth_collective_all_reduce(bench->gloo, bench->values, bench->count, FTH_WIRE_F32) == FTH_OK;
    case SOCKETS: /* half of the values to be summed, and the other half's sums back */
        exchange(bench->socket, bytes, received, half);
        exchange(bench->socket, bytes + half, received + half, size - half);
        return true;
    default: return false;
    }
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void print_results(double times[SIDES][MAX_ROUNDS], int rounds, size_t count)
{
    double medians[SIDES];
    printf("| all-reduce of %.1f MB, 2 ranks | median, ms | quartiles | GB/s |\n| --- | --- | --- | --- |\n",
           (double)count * 4e-6);
    for (int side = 0; side < SIDES; side++) {
        qsort(times[side], (size_t)rounds, sizeof(double), compare);
        medians[side] = times[side][rounds / 2];
        if (medians[side] > 0)
            printf("| %s | %.2f | %.2f–%.2f | %.2f |\n", side_names[side], 1e3 * medians[side],
                   1e3 * times[side][rounds / 4], 1e3 * times[side][rounds * 3 / 4],
                   (double)count * 4e-9 / medians[side]);
        else
            printf("| %s | not available | | |\n", side_names[side]);
    }
    if (medians[GLOO] > 0)
        printf("\nshm against gloo: %.2fx in shared memory, %.2fx elsewhere; gloo against plain sockets: %.2fx\n",
               medians[GLOO] / medians[SHM_IN_MEMORY], medians[GLOO] / medians[SHM_INBOX],
               medians[SOCKETS] / medians[GLOO]);
    printf("shm against plain sockets: %.2fx\n", medians[SOCKETS] / medians[SHM_IN_MEMORY]);
}

static void run_rank(int rank, entry *entries, size_t count, int rounds, int listener,
                     const struct sockaddr_in *address)
{
    static double times[SIDES][MAX_ROUNDS];
    bench_rank bench = {.rank = rank, .count = count, .socket = connect_ranks(rank, listener, address)};
    fth_shared_memory *memory = NULL;
    must(fth_shared_memory_create(count * sizeof(float), &memory) == FTH_OK, "no memory");
    bench.shared = fth_shared_memory_get(memory);
    must(fth_allocate_aligned(count * sizeof(float), &bench.values) == FTH_OK &&
             fth_allocate_aligned(count * sizeof(float), &bench.received) == FTH_OK,
         "no memory");
    bench.shm = open_transport(rank, "shm", entries, memory);
    must(bench.shm, "no shm");
    bench.gloo = open_transport(rank, "gloo", entries, NULL);
    for (int round = -2; round < rounds; round++) /* two to warm up */
        for (int side = 0; side < SIDES; side++) {
            double barrier = 0;
            float *values = side == SHM_IN_MEMORY ? bench.shared : bench.values;
            for (size_t i = 0; i < count; i++) /* as a backward pass would just have written them */
                values[i] = (float)(i % 1000) + (float)rank;
            must(fth_collective_sum(bench.shm, &barrier, 1) == FTH_OK, "barrier");
            double start = fth_clock_seconds();
            bool ran = run_side(&bench, side);
            must(fth_collective_sum(bench.shm, &barrier, 1) == FTH_OK, "barrier"); /* until both are done */
            if (round >= 0)
                times[side][round] = ran ? fth_clock_seconds() - start : 0;
            for (size_t i = 0; ran && side != SOCKETS && i < count; i++)
                must(values[i] == 2 * (float)(i % 1000) + 1, "wrong sum");
        }
    if (rank == 0)
        print_results(times, rounds, count);
    fth_collective_close(bench.gloo);
    fth_collective_close(bench.shm);
    fth_shared_memory_free(memory);
    free(bench.values);
    free(bench.received);
    close(bench.socket);
}

int main(int argc, char **argv)
{
    double megabytes = argc > 1 ? atof(argv[1]) : 46.8;
    int rounds = argc > 2 ? atoi(argv[2]) : 31, end = 0, failures = 0;
    must(megabytes > 0 && rounds > 0 && rounds <= MAX_ROUNDS, "bench_collective [megabytes [rounds]]");
    size_t entries_size = MAX_KEYS * sizeof(entry);
    entry *entries = mmap(NULL, entries_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(entries != MAP_FAILED, "no memory");
    struct sockaddr_in address;
    int listener = listen_on_loopback(&address);
    for (int rank = 0; rank < RANKS; rank++) {
        pid_t process = fork();
        must(process >= 0, "fork");
        if (process == 0) {
            run_rank(rank, entries, (size_t)(megabytes * 1e6 / sizeof(float)), rounds, listener, &address);
            exit(0);
        }
    }
    while (wait(&end) > 0)
        failures += end != 0;
    return failures > 0;
}
