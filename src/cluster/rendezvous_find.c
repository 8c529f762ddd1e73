/* See rendezvous_find.h. */
#include "cluster/rendezvous_find.h"

#include <jansson.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/rendezvous_client.h"

static const double REQUEST_S = 5;

/* ---- whose address ---- */

static char *host_of(const char *address)
{
    size_t length = (size_t)(strrchr(address, ':') - address);
    return *address == '[' ? fth_format("%.*s", (int)length - 2, address + 1)
                           : fth_format("%.*s", (int)length, address);
}

/* An address that a socket can be bound to is this machine's. */
static bool can_bind(const struct addrinfo *address)
{
    int socket_number = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = socket_number >= 0 && bind(socket_number, address->ai_addr, address->ai_addrlen) == 0;
    if (socket_number >= 0)
        close(socket_number);
    return bound;
}

bool fth_rendezvous_is_here(const char *address)
{
    char *host = host_of(address);
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    bool here = false;
    if (host && getaddrinfo(host, NULL, &wanted, &found) != 0)
        found = NULL;
    for (const struct addrinfo *each = found; each && !here; each = each->ai_next)
        here = can_bind(each);
    if (found)
        freeaddrinfo(found);
    free(host);
    return here;
}

const char *fth_rendezvous_listening_address(const char *address)
{
    bool local = strncmp(address, "127.0.0.1:", 10) == 0 || strncmp(address, "localhost:", 10) == 0;
    return local ? "127.0.0.1" : NULL;
}

/* ---- whether it is there ---- */

static bool is_asked(void *stop)
{
    return stop && ((fth_stop *)stop)->asked;
}

/* The members, from a rendezvous that takes this token and is this run's; the answer is the
 * caller's. */
static fth_status get_members(fth_rendezvous_client *client, const fth_rendezvous_place *place, fth_deadline deadline,
                              fth_stop *stop, json_t **members)
{
    fth_status status = FTH_OK;
    fth_rendezvous_bytes answer = {0};
    int code = 0;

    FTH_TRY(fth_rendezvous_client_bytes(client, "/members", NULL, deadline, is_asked, stop, &code, &answer));
    *members = json_loadb(answer.bytes, answer.size, JSON_REJECT_DUPLICATES, NULL);
    const char *run = json_string_value(json_object_get(*members, "run"));
    FTH_REQUIRE(
        run && strcmp(run, place->run) == 0, FTH_INVALID,
        "the rendezvous at %s is of another launch, \"%s\", not \"%s\"; choose another port, or the same --name",
        place->address, run ? run : "", place->run);

out:
    free(answer.bytes);
    if (status != FTH_OK) {
        json_decref(*members);
        *members = NULL;
    }
    return status;
}

static fth_status open_client(const fth_rendezvous_place *place, fth_rendezvous_client **client)
{
    char *who = fth_format("the agent on %s", place->node);
    fth_status status = who ? fth_rendezvous_client_open(place->address, place->token, who, client)
                            : fth_fail(FTH_NO_MEMORY, "no memory for a name");
    free(who);
    return status;
}

fth_status fth_rendezvous_reach(const fth_rendezvous_place *place, fth_stop *stop, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_rendezvous_client *client = NULL;
    json_t *members = NULL;

    FTH_TRY(open_client(place, &client));
    FTH_TRY(fth_rendezvous_client_reach(client, deadline, is_asked, stop));
    FTH_TRY(get_members(client, place, fth_deadline_in(REQUEST_S), stop, &members));

out:
    json_decref(members);
    fth_rendezvous_client_free(client);
    return status;
}

/* What the rendezvous says of itself. The caller's. */
static fth_status look(const fth_rendezvous_place *place, json_t **answer)
{
    fth_status status = FTH_OK;
    fth_rendezvous_client *client = NULL;

    *answer = NULL;
    FTH_TRY(open_client(place, &client));
    FTH_TRY(get_members(client, place, fth_deadline_in(REQUEST_S), NULL, answer));

out:
    fth_rendezvous_client_free(client);
    return status;
}

fth_status fth_rendezvous_count_members(const fth_rendezvous_place *place, int *count)
{
    json_t *answer = NULL;
    const fth_status status = look(place, &answer);
    *count = (int)json_array_size(json_object_get(answer, "members"));
    json_decref(answer);
    return status;
}

fth_status fth_rendezvous_has_begun(const fth_rendezvous_place *place, bool *begun)
{
    json_t *answer = NULL;
    const fth_status status = look(place, &answer);
    *begun = json_integer_value(json_object_get(answer, "generation")) > 0;
    json_decref(answer);
    return status;
}
