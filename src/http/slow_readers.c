/* The clients that are being sent a file, and how fast they read it. A file may be scarce (a
 * version of a model's parameters), so a reader must keep a minimum speed: one that any client
 * reaches, and a higher one while others wait for what it holds.
 *
 * The kernel says how much of a connection's bytes the other side has acknowledged. A reader that
 * is too slow has its socket shut down; the thread that serves it notices, and ends the exchange as
 * if the client had gone. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "http/server_internal.h"

static const double LEAST_BYTES_PER_S = 64 << 10;

static uint64_t received_by_client(const fth_exchange *exchange)
{
    struct tcp_info facts = {0};
    socklen_t size = sizeof facts;
    return getsockopt(exchange->on->fd, IPPROTO_TCP, TCP_INFO, &facts, &size) == 0 ? facts.tcpi_bytes_acked : 0;
}

void fth_readers_add(fth_exchange *exchange)
{
    fth_server *server = exchange->server;
    exchange->reading.since_s = fth_clock_seconds();
    exchange->reading.received_before = received_by_client(exchange);
    fth_exchange_list(exchange, &server->readers);
    if (!exchange->link.next) /* the first one: the timer was not looking */
        pthread_cond_signal(&server->changed);
}

static int end_slow(fth_server *server, double grace_s, double least_bytes_per_s)
{
    int count = 0;
    double now = fth_clock_seconds();
    for (fth_exchange *exchange = server->readers; exchange; exchange = exchange->link.next) {
        double counted_s = now - exchange->reading.since_s - grace_s;
        if (counted_s <= 0 ||
            (double)(received_by_client(exchange) - exchange->reading.received_before) >= counted_s * least_bytes_per_s)
            continue;
        fth_server_connection_cut_off(exchange->on); /* again and again, until its thread has noticed */
        count++;
    }
    return count;
}

bool fth_readers_look(fth_server *server)
{
    end_slow(server, server->options.idle_s, LEAST_BYTES_PER_S);
    return server->readers != NULL;
}

int fth_server_end_slow_readers(fth_server *server, double grace_s, double least_bytes_per_s)
{
    pthread_mutex_lock(&server->mutex);
    int count = end_slow(server, grace_s, least_bytes_per_s);
    pthread_mutex_unlock(&server->mutex);
    return count;
}
