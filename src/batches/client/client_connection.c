/* See client_connection.h. */
#include "batches/client/client_connection.h"

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "batches/agent/agent.h"
#include "http/http.h"

#define LOOK_EVERY_S 0.005 /* while another thread waits */

struct fth_connection {
    atomic_int users;
    atomic_bool lost;
    fth_board *board; /* set once, as are the next two */
    fth_slot *slot;
    fth_segment_view *view;
    pthread_mutex_t asking;  /* of the link: one request at a time */
    fth_host_link *link;     /* guarded by `asking` */
    pthread_mutex_t waiting; /* of the slot: one wait at a time */
};

/* ---- where the host is ---- */

/* Only an address of this machine can be bound. */
static bool is_this_machine(const char *host)
{
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    bool own = false;
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return false;
    for (const struct addrinfo *place = found; place && !own; place = place->ai_next) {
        int probe = socket(place->ai_family, place->ai_socktype | SOCK_CLOEXEC, 0);
        own = probe >= 0 && bind(probe, place->ai_addr, place->ai_addrlen) == 0;
        if (probe >= 0)
            close(probe);
    }
    freeaddrinfo(found);
    return own;
}

static bool is_served(const char *path, fth_deadline deadline)
{
    fth_host_link *link = NULL;
    bool served = fth_host_connect(path, deadline, &link) == FTH_OK;
    fth_host_disconnect(link);
    return served;
}

/* Whether a coordinator answers at all, before an agent is started for it. */
static fth_status check_coordinator(const fth_batches_address *address, const char *url, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_http_client *client = NULL;
    fth_http_response response = {0};
    char *health = fth_format("%s/healthz", url);
    const fth_http_client_options options = {.pinned_key = address->pinned_key, .ca_file = address->ca_file};

    FTH_REQUIRE(health, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_http_client_open(&options, &client));
    FTH_TRY(
        fth_http_perform(client, &(fth_http_request){.method = "GET", .url = health, .deadline = deadline}, &response));

out:
    fth_http_response_release(&response);
    fth_http_client_free(client);
    free(health);
    return status;
}

fth_status fth_connection_find_host(const fth_batches_address *address, fth_deadline deadline, char **path)
{
    fth_status status = FTH_OK;
    char *url = NULL;

    if (is_this_machine(address->host)) {
        FTH_TRY(fth_host_own_socket_path(address->port, path));
        if (is_served(*path, deadline))
            goto out;
        free(*path);
        *path = NULL;
    }
    FTH_REQUIRE(url = fth_batches_address_url(address), FTH_NO_MEMORY, "no memory for an address");
    const fth_batches_agent_options agent = {
        .url = url, .pinned_key = address->pinned_key, .ca_file = address->ca_file};
    FTH_TRY(check_coordinator(address, url, deadline));
    FTH_TRY(fth_batches_agent_ensure(&agent, NULL, deadline, path));

out:
    free(url);
    return status;
}

/* ---- requests ---- */

/* An answer may be an error. */
static fth_status check_answer(const json_t *answer)
{
    const char *error = json_string_value(json_object_get(answer, "error"));
    const char *name = json_string_value(json_object_get(answer, "status"));
    fth_status status = name ? fth_status_find(name) : FTH_IO;
    return error ? fth_fail(status == FTH_OK ? FTH_IO : status, "%s", error) : FTH_OK;
}

/* `fds` gets the descriptors of the answer; may be NULL. */
static fth_status ask(fth_host_link *link, json_t *request, fth_deadline deadline, json_t **answer, int fds[2])
{
    json_t *got = NULL;
    fth_status status =
        request ? fth_host_ask(link, request, deadline, &got, fds) : fth_fail(FTH_NO_MEMORY, "no memory for a request");
    if (status == FTH_OK)
        status = check_answer(got);
    if (status == FTH_OK && answer)
        *answer = got;
    else
        json_decref(got);
    return status;
}

fth_status fth_connection_ask_once(const char *path, json_t *request, fth_deadline deadline, json_t **answer)
{
    fth_host_link *link = NULL;
    fth_status status = fth_host_connect(path, deadline, &link);
    if (status == FTH_OK)
        status = ask(link, request, deadline, answer, NULL);
    fth_host_disconnect(link);
    json_decref(request);
    return status;
}

/* ---- opening and closing ---- */

static void free_connection(fth_connection *connection)
{
    if (!connection)
        return;
    fth_segment_unmap(connection->view);
    fth_board_free(connection->board);
    fth_host_disconnect(connection->link);
    pthread_mutex_destroy(&connection->asking);
    pthread_mutex_destroy(&connection->waiting);
    free(connection);
}

static fth_status map_memory(fth_connection *connection, const json_t *answer, const int fds[2])
{
    fth_status status = FTH_OK;
    const json_t *slot = json_object_get(answer, "slot");

    FTH_REQUIRE(json_is_integer(slot) && fds[0] >= 0 && fds[1] >= 0, FTH_CORRUPT,
                "the batch cache's answer has no slot or no memory");
    FTH_TRY(fth_segment_map(fds[0], &connection->view));
    FTH_TRY(fth_board_map(fds[1], &connection->board));
    connection->slot = fth_board_slot(connection->board, (int)json_integer_value(slot));
    FTH_REQUIRE(connection->slot, FTH_CORRUPT, "the batch cache's answer has a slot that does not exist");

out:
    return status;
}

fth_status fth_connection_open(const char *path, json_t *request, fth_deadline deadline, json_t **answer,
                               fth_connection **connection)
{
    fth_status status = FTH_OK;
    fth_connection *opened = NULL;
    json_t *got = NULL;
    int fds[2] = {-1, -1};

    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->asking, NULL);
    pthread_mutex_init(&opened->waiting, NULL);
    opened->users = 1;
    FTH_TRY(fth_host_connect(path, deadline, &opened->link));
    FTH_TRY(ask(opened->link, request, deadline, &got, fds));
    FTH_TRY(map_memory(opened, got, fds));
    *connection = opened;
    *answer = got;
    opened = NULL;
    got = NULL;

out:
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]); /* the mappings have their own */
    json_decref(request);
    json_decref(got);
    free_connection(opened);
    return status;
}

fth_connection *fth_connection_hold(fth_connection *connection)
{
    if (connection)
        atomic_fetch_add(&connection->users, 1);
    return connection;
}

void fth_connection_release(fth_connection *connection)
{
    if (connection && atomic_fetch_sub(&connection->users, 1) == 1)
        free_connection(connection);
}

void fth_connection_abandon(fth_connection *connection)
{
    fth_host_disconnect(connection->link);
    connection->link = NULL;
}

/* ---- talking to the host ---- */

bool fth_connection_is_lost(fth_connection *connection)
{
    if (atomic_load(&connection->lost))
        return true;
    if (pthread_mutex_trylock(&connection->asking) != 0) /* the thread that is asking will notice */
        return false;
    bool gone = fth_host_is_gone(connection->link);
    pthread_mutex_unlock(&connection->asking);
    if (gone)
        atomic_store(&connection->lost, true);
    return gone;
}

fth_status fth_connection_ask(fth_connection *connection, json_t *request, fth_deadline deadline, json_t **answer)
{
    fth_status status;
    pthread_mutex_lock(&connection->asking);
    if (atomic_load(&connection->lost))
        status = fth_fail(FTH_PEER_LOST, "the batch cache on this machine is gone");
    else
        status = ask(connection->link, request, deadline, answer, NULL);
    if (status == FTH_TIMEOUT || status == FTH_PEER_LOST) /* a late answer would confuse the next request */
        atomic_store(&connection->lost, true);
    pthread_mutex_unlock(&connection->asking);
    json_decref(request);
    return status;
}

void fth_connection_tell(fth_connection *connection, json_t *request)
{
    pthread_mutex_lock(&connection->asking);
    if (request && !atomic_load(&connection->lost) && fth_host_tell(connection->link, request) != FTH_OK)
        atomic_store(&connection->lost, true);
    pthread_mutex_unlock(&connection->asking);
    json_decref(request);
}

/* ---- items ---- */

fth_status fth_connection_pin(fth_connection *connection, fth_item_id id, fth_item_lease *lease, bool *found)
{
    fth_status status = fth_segment_pin(connection->view, connection->slot, id, &lease->pin, found);
    lease->connection = status == FTH_OK && *found ? fth_connection_hold(connection) : NULL;
    return status;
}

void fth_item_lease_release(fth_item_lease *lease)
{
    if (!lease->connection)
        return;
    fth_segment_unpin(lease->connection->slot, &lease->pin);
    fth_connection_release(lease->connection);
    *lease = (fth_item_lease){0};
}

/* Takes the turn to wait. Another thread may hold it for an item that comes later, so this thread
 * looks for its own item meanwhile. False: it is there or damaged, or *status is FTH_TIMEOUT. */
static bool take_turn(fth_connection *connection, fth_item_id id, fth_deadline deadline, fth_status *status)
{
    struct timespec next_look = fth_deadline_timespec(fth_deadline_in(LOOK_EVERY_S));
    while (pthread_mutex_clocklock(&connection->waiting, CLOCK_MONOTONIC, &next_look) != 0) {
        fth_item_lease lease = {0};
        bool found = false;
        *status = fth_connection_pin(connection, id, &lease, &found);
        fth_item_lease_release(&lease);
        if (*status != FTH_OK || found) {
            *status = FTH_OK;
            return false;
        }
        if (fth_deadline_passed(deadline)) {
            *status = fth_fail(FTH_TIMEOUT, "a cached item did not arrive in time");
            return false;
        }
        next_look = fth_deadline_timespec(fth_deadline_in(LOOK_EVERY_S));
    }
    return true;
}

fth_status fth_connection_wait(fth_connection *connection, fth_item_id id, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_item_lease lease = {0};
    bool found = false;
    if (!take_turn(connection, id, deadline, &status))
        return status;
    fth_slot_want(connection->slot, id);
    /* The item may have arrived between the caller's look and fth_slot_want(); nothing would wake
     * this client. */
    status = fth_connection_pin(connection, id, &lease, &found);
    if (status == FTH_OK && !found) {
        fth_connection_tell(connection, json_pack("{s:s}", "op", "wake"));
        status = fth_slot_wait(connection->slot, deadline);
    } else {
        fth_slot_stop_wanting(connection->slot);
        status = FTH_OK; /* damaged or there: the caller looks again */
    }
    fth_item_lease_release(&lease);
    pthread_mutex_unlock(&connection->waiting);
    return status;
}

fth_slot *fth_connection_slot(fth_connection *connection)
{
    return connection->slot;
}
