/* See redis_internal.h: the connections of one server, for all threads.
 *
 *     up ── a call fails ──> down until `retry_at_s` ── one thread tries ──> up, or down longer
 *
 * While a server is down, calls fail at once with the original reason, so that threads do not wait
 * for the same deadline again and again. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "batches/cache/redis_internal.h"

enum { MAX_CONNECTIONS = 8 };
#define FIRST_PAUSE_S 0.05
#define MAX_PAUSE_S   2.0

struct fth_redis_server {
    fth_redis_endpoint endpoint;
    char name[FTH_REDIS_MAX_NAME];
    const fth_redis_login *login;
    pthread_mutex_t mutex;
    pthread_cond_t returned;
    /* guarded by mutex */
    fth_redis_connection *idle[MAX_CONNECTIONS];
    int idle_count, lent_count;
    int failures;      /* consecutive; 0: up */
    double retry_at_s; /* while it is down */
    fth_status why;
    char reason[512];
};

fth_status fth_redis_server_create(const fth_redis_endpoint *endpoint, const fth_redis_login *login,
                                   fth_redis_server **result)
{
    fth_redis_server *server = NULL;
    fth_status status = fth_allocate(1, sizeof *server, &server);
    if (status != FTH_OK)
        return status;
    server->endpoint = *endpoint;
    server->login = login;
    snprintf(server->name, sizeof server->name, "redis %s:%d", endpoint->host, endpoint->port);
    pthread_mutex_init(&server->mutex, NULL);
    pthread_cond_init(&server->returned, NULL);
    *result = server;
    return FTH_OK;
}

void fth_redis_server_free(fth_redis_server *server)
{
    if (!server)
        return;
    for (int i = 0; i < server->idle_count; i++)
        fth_redis_connection_close(server->idle[i]);
    pthread_mutex_destroy(&server->mutex);
    pthread_cond_destroy(&server->returned);
    free(server);
}

const fth_redis_endpoint *fth_redis_server_endpoint(const fth_redis_server *server)
{
    return &server->endpoint;
}

const char *fth_redis_server_name(const fth_redis_server *server)
{
    return server->name;
}

/* With the mutex held. */
static void note_failure(fth_redis_server *server, fth_status status)
{
    double pause_s = fmin(FIRST_PAUSE_S * exp2(server->failures), MAX_PAUSE_S);
    server->failures += server->failures < 16;
    server->retry_at_s = fth_clock_seconds() + pause_s;
    server->why = status;
    snprintf(server->reason, sizeof server->reason, "%s", fth_error_message());
}

/* Takes one of the connections, idle if there is one. With the mutex held. */
static fth_status take_place(fth_redis_server *server, fth_deadline deadline, fth_redis_connection **connection)
{
    for (;;) {
        double now_s = fth_clock_seconds();
        if (server->failures > 0 && now_s < server->retry_at_s)
            return fth_fail(server->why, "%s", server->reason);
        if (server->lent_count < MAX_CONNECTIONS)
            break;
        struct timespec until = fth_deadline_timespec(deadline);
        if (fth_deadline_passed(deadline))
            return fth_fail(FTH_TIMEOUT, "%s: its %d connections were busy for too long", server->name,
                            MAX_CONNECTIONS);
        pthread_cond_clockwait(&server->returned, &server->mutex, CLOCK_MONOTONIC, &until);
    }
    if (server->failures > 0)
        server->retry_at_s = fth_clock_seconds() + MAX_PAUSE_S; /* this thread tries; others fail meanwhile */
    server->lent_count++;
    *connection = server->idle_count > 0 ? server->idle[--server->idle_count] : NULL;
    return FTH_OK;
}

fth_status fth_redis_server_borrow(fth_redis_server *server, fth_deadline deadline, fth_redis_connection **connection)
{
    fth_status status;

    *connection = NULL;
    pthread_mutex_lock(&server->mutex);
    status = take_place(server, deadline, connection);
    /* Broken connections are useless, and usually all of them are broken. */
    while (status == FTH_OK && *connection && !fth_redis_connection_is_quiet(*connection)) {
        fth_redis_connection_close(*connection);
        *connection = server->idle_count > 0 ? server->idle[--server->idle_count] : NULL;
    }
    pthread_mutex_unlock(&server->mutex);
    if (status != FTH_OK || *connection)
        return status;

    status = fth_redis_connection_open(&server->endpoint, server->login, deadline, connection);
    if (status == FTH_OK)
        return FTH_OK;
    pthread_mutex_lock(&server->mutex);
    note_failure(server, status);
    server->lent_count--;
    pthread_cond_signal(&server->returned);
    pthread_mutex_unlock(&server->mutex);
    return status;
}

void fth_redis_server_return(fth_redis_server *server, fth_redis_connection *connection, fth_status status)
{
    bool is_good = status == FTH_OK && fth_redis_connection_is_quiet(connection);
    pthread_mutex_lock(&server->mutex);
    server->lent_count--;
    if (is_good) {
        server->idle[server->idle_count++] = connection;
        server->failures = 0;
    } else if (status == FTH_TIMEOUT) {
        note_failure(server, status); /* a single broken connection proves little: the next attempt shows */
    }
    pthread_cond_signal(&server->returned);
    pthread_mutex_unlock(&server->mutex);
    if (!is_good)
        fth_redis_connection_close(connection);
}
