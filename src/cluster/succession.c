/* See succession.h. Of one thread, that of the calls of a membership; while this process has the
 * rendezvous, a second one tells the first rendezvous so. It uses what does not change meanwhile,
 * and a client of its own. */
#include "cluster/succession.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "cluster/rendezvous.h"
#include "cluster/rendezvous_find.h"

static const double PROBE_S = 0.7, DRAIN_S = 3;
/* Members find the rendezvous lost up to 1.5 s after each other, and look at its address once more
 * before their turn. */
static const double TURN_S = 3;
static const double ANNOUNCE_S = 0.2; /* with PROBE_S less than the second that the first rendezvous waits: agent.c */

/* A node that may become a candidate. */
typedef struct host_node {
    char *node, *address; /* "10.0.0.2:4711" */
    int members;
    bool hosted; /* it had the rendezvous of the last group */
} host_node;

struct fth_succession {
    char *home, *token, *run, *node, *who;
    int port;
    fth_rendezvous_client *client;
    fth_rendezvous_options limits; /* numbers alone */
    double lost_after_s;
    host_node *nodes; /* of the last group, in the order of their turns */
    int count;
    int turn;                   /* of the node that this process goes to; before it are those that are lost */
    double searches_since_s;    /* since when no rendezvous has answered, as far as this process has noticed */
    int looked_at;              /* the last of them that was looked at by one that waits */
    fth_rendezvous *rendezvous; /* of this process, a candidate or more; NULL: it has none */
    char *address;              /* its */
    bool cannot_host;           /* the port is taken */
    struct {
        pthread_t thread;
        atomic_bool running, stopping; /* while the candidate has the rendezvous */
    } announcer;
};

fth_status fth_succession_create(const char *home, const char *token, const char *run, const char *node,
                                 const char *who, fth_succession **result)
{
    fth_status status = FTH_OK;
    fth_succession *succession = NULL;
    const char *colon = strrchr(home, ':');

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *succession, &succession));
    succession->home = strdup(home);
    succession->token = strdup(token);
    succession->run = strdup(run);
    succession->node = strdup(node);
    succession->who = strdup(who);
    succession->port = colon ? atoi(colon + 1) : 0;
    FTH_REQUIRE(succession->home && succession->token && succession->run && succession->node && succession->who,
                FTH_NO_MEMORY, "no memory for a membership");
    FTH_TRY(fth_rendezvous_client_open(home, token, who, &succession->client));
    *result = succession;
    succession = NULL;

out:
    fth_succession_free(succession);
    return status;
}

/* ---- telling the first rendezvous ---- */

static bool is_stopping(void *context)
{
    const fth_succession *succession = context;
    return succession->announcer.stopping;
}

static void *announce(void *context)
{
    fth_succession *succession = context;
    fth_rendezvous_client *client = NULL;
    if (fth_rendezvous_client_open(succession->home, succession->token, succession->who, &client) != FTH_OK)
        return NULL;
    while (!succession->announcer.stopping) {
        int64_t generation = fth_rendezvous_generation(succession->rendezvous);
        json_t *answer = NULL, *request = json_pack("{s:s, s:s, s:I}", "run", succession->run, "address",
                                                    succession->address, "generation", (json_int_t)generation);
        int code = 0;
        if (generation > 0)
            FTH_IGNORE(fth_rendezvous_client_post(client, "/moved", request, fth_deadline_in(PROBE_S), is_stopping,
                                                  succession, &code, &answer),
                       "it is announced again and again");
        json_decref(request);
        json_decref(answer);
        fth_sleep(ANNOUNCE_S);
    }
    fth_rendezvous_client_free(client);
    return NULL;
}

/* The candidate of this process has a group. Where no thread can be had, members are where they
 * are; only those that come back or are new do not find them. */
static void start_announcing(fth_succession *succession)
{
    if (succession->announcer.running || strcmp(succession->address, succession->home) == 0)
        return;
    fth_log_warning(
        "%s has the rendezvous now, at %s: until the node that had it is back, new processes need this address",
        succession->who, succession->address);
    succession->announcer.stopping = false;
    succession->announcer.running =
        fth_thread_start(&succession->announcer.thread, "announcer", announce, succession) == 0;
}

static void stop_rendezvous(fth_succession *succession)
{
    succession->announcer.stopping = true;
    if (succession->announcer.running)
        pthread_join(succession->announcer.thread, NULL);
    succession->announcer.running = false;
    fth_rendezvous_stop(succession->rendezvous);
    succession->rendezvous = NULL;
    free(succession->address);
    succession->address = NULL;
}

/* ---- whose turn it is ---- */

static void forget_nodes(fth_succession *succession)
{
    for (int i = 0; i < succession->count; i++) {
        free(succession->nodes[i].node);
        free(succession->nodes[i].address);
    }
    free(succession->nodes);
    succession->nodes = NULL;
    succession->count = 0;
}

void fth_succession_free(fth_succession *succession)
{
    if (!succession)
        return;
    fth_deadline deadline = fth_deadline_in(DRAIN_S);
    while (succession->rendezvous && fth_rendezvous_count(succession->rendezvous) > 0 && !fth_deadline_passed(deadline))
        fth_sleep(0.02);
    stop_rendezvous(succession);
    fth_rendezvous_client_free(succession->client);
    forget_nodes(succession);
    free(succession->home);
    fth_wipe_text(succession->token);
    free(succession->run);
    free(succession->node);
    free(succession->who);
    free(succession);
}

void fth_succession_set_limits(fth_succession *succession, const json_t *limits)
{
    fth_rendezvous_options *options = &succession->limits;
    if (json_unpack((json_t *)limits, "{s:i, s:i, s:F, s:F, s:F}", "least", &options->least, "most", &options->most,
                    "join_wait_s", &options->join_wait_s, "lost_after_s", &options->lost_after_s, "stuck_after_s",
                    &options->stuck_after_s) == 0)
        succession->lost_after_s = options->lost_after_s;
}

/* Adds the nodes whose members are, or are not, where the rendezvous was. */
static void add_nodes(fth_succession *succession, const json_t *members, bool hosting)
{
    size_t index;
    json_t *each;
    json_array_foreach((json_t *)members, index, each)
    {
        const char *node = "", *address = "";
        int hosts = 0, known = 0;
        if (json_unpack(each, "{s:s, s:s, s:b}", "node", &node, "address", &address, "hosts", &hosts) != 0 ||
            (hosts != 0) != hosting)
            continue;
        while (known < succession->count && strcmp(succession->nodes[known].node, node) != 0)
            known++;
        if (known == succession->count) {
            succession->nodes[known] = (host_node){
                .node = strdup(node),
                .address = fth_format(strchr(address, ':') ? "[%s]:%d" : "%s:%d", address, succession->port),
                .hosted = hosting};
            if (!succession->nodes[known].node || !succession->nodes[known].address)
                return;
            succession->count++;
        }
        succession->nodes[known].members++;
    }
}

void fth_succession_set_members(fth_succession *succession, const char *address, const json_t *members)
{
    if (succession->rendezvous && strcmp(succession->address, address) == 0)
        start_announcing(succession);
    else
        stop_rendezvous(succession);
    forget_nodes(succession);
    succession->nodes = calloc(json_array_size(members) + 1, sizeof *succession->nodes);
    if (!succession->nodes)
        return;
    add_nodes(succession, members, false);
    add_nodes(succession, members, true);
    succession->turn = 0;
    succession->cannot_host = false;
}

/* ---- where it is ---- */

int fth_succession_count_expected(const fth_succession *succession)
{
    int count = 0;
    for (int i = succession->turn; i < succession->count; i++)
        count += succession->nodes[i].hosted ? 0 : succession->nodes[i].members;
    return count;
}

/* Becomes a candidate, if the port is free. */
static void host(fth_succession *succession, int turn)
{
    fth_rendezvous_options options = succession->limits;
    bool local = strncmp(succession->home, "127.", 4) == 0 || strncmp(succession->home, "localhost:", 10) == 0;

    options.address = local ? "127.0.0.1" : NULL;
    options.port = succession->port;
    options.token = succession->token;
    options.run = succession->run;
    options.first_least = succession->count <= 2 ? 1 : succession->count / 2 + 1;
    succession->address = strdup(succession->nodes[turn].address);
    succession->cannot_host = !succession->address || fth_rendezvous_start(&options, &succession->rendezvous) != FTH_OK;
    if (succession->cannot_host)
        stop_rendezvous(succession);
}

static bool answers(fth_succession *succession, const char *address, fth_give_up give_up, void *context)
{
    return fth_rendezvous_client_point(succession->client, address) == FTH_OK &&
           fth_rendezvous_client_probe(succession->client, PROBE_S, give_up, context) == FTH_OK;
}

/* Whether the first rendezvous answers, and does not send members to `present`. */
static bool home_is_back(fth_succession *succession, const char *present, fth_give_up give_up, void *context)
{
    if (!answers(succession, succession->home, give_up, context))
        return false;
    const char *moved = fth_rendezvous_client_moved(succession->client);
    return !moved || strcmp(moved, present) != 0;
}

/* The address to go to; what this process serves elsewhere ends. */
static char *go_to(fth_succession *succession, const char *address)
{
    char *copy = strdup(address);
    if (succession->rendezvous && strcmp(succession->address, address) != 0) {
        if (succession->announcer.running)
            fth_log_info("%s gives up the rendezvous that it has for the one at %s", succession->who, address);
        stop_rendezvous(succession);
    }
    return copy;
}

static bool is_own(const fth_succession *succession, const host_node *node)
{
    return strcmp(node->node, succession->node) == 0;
}

char *fth_succession_find(fth_succession *succession, const char *former, double silent_s, fth_give_up give_up,
                          void *context)
{
    const double now_s = fth_clock_seconds();
    const bool at_home = succession->rendezvous && strcmp(succession->address, succession->home) == 0;
    if (succession->lost_after_s <= 0 || succession->port == 0 || silent_s < succession->lost_after_s)
        return NULL;
    if (succession->searches_since_s < now_s - silent_s)
        succession->searches_since_s = now_s;
    const double searched_s = now_s - succession->searches_since_s;
    succession->turn = 0;
    if (!at_home && home_is_back(succession, former, give_up, context))
        return go_to(succession, succession->home);
    for (int i = 0; i < succession->count && i <= searched_s / TURN_S; i++) {
        const host_node *node = &succession->nodes[i];
        succession->turn = i;
        if (is_own(succession, node) && !succession->rendezvous && !succession->cannot_host)
            host(succession, i);
        if (is_own(succession, node) && succession->rendezvous)
            return go_to(succession, succession->address);
        if (answers(succession, node->address, give_up, context)) {
            fth_log_info("%s looks for the other nodes at %s, as the rendezvous does not answer", succession->who,
                         node->address);
            return go_to(succession, node->address);
        }
        if (give_up && give_up(context))
            return NULL;
    }
    return NULL;
}

/* The turn of the node with that address; the number of nodes: it is none of them. */
static int find_turn(const fth_succession *succession, const char *address)
{
    int turn = 0;
    while (turn < succession->count && strcmp(succession->nodes[turn].address, address) != 0)
        turn++;
    return turn;
}

/* Whether one that waits at `present` is to go to that node: a candidate that knows of a newer
 * group has its members, and of the same group all know the same turns. */
static bool is_better(fth_succession *succession, const char *present, int turn, fth_give_up give_up, void *context)
{
    const char *address = succession->nodes[turn].address;
    const bool earlier = turn < find_turn(succession, present);
    if (!answers(succession, present, give_up, context))
        return false;
    const int64_t generation = fth_rendezvous_client_generation(succession->client);
    if (!answers(succession, address, give_up, context))
        return false;
    const int64_t other = fth_rendezvous_client_generation(succession->client);
    return other > generation || (other == generation && earlier);
}

char *fth_succession_find_others(fth_succession *succession, const char *present, fth_give_up give_up, void *context)
{
    if (strcmp(present, succession->home) == 0)
        return NULL;
    if (home_is_back(succession, present, give_up, context))
        return go_to(succession, succession->home);
    for (int i = 0; i < succession->count; i++) { /* one at a time: those that are lost take time */
        succession->looked_at = (succession->looked_at + 1) % succession->count;
        const host_node *node = &succession->nodes[succession->looked_at];
        if (is_own(succession, node) || strcmp(node->address, present) == 0 ||
            strcmp(node->address, succession->home) == 0)
            continue;
        return is_better(succession, present, succession->looked_at, give_up, context)
                   ? go_to(succession, node->address)
                   : NULL;
    }
    return NULL;
}
