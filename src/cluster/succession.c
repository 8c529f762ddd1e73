/* See succession.h. Of one thread, that of the calls of a membership; while this process has a rendezvous, a second one tells
 * the first rendezvous so. It uses what does not change meanwhile, and a client of its own. */
#include "cluster/succession.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "cluster/rendezvous.h"
#include "cluster/rendezvous_find.h"

static const double TURN_S = 2, PROBE_S = 0.7, DRAIN_S = 3;
static const double ANNOUNCE_S = 0.2; /* with PROBE_S less than the second that the first rendezvous waits: agent.c */

/* A node that may have the rendezvous. */
typedef struct host_node {
    char *node, *address; /* "10.0.0.2:4711" */
    int members;
} host_node;

struct fth_succession {
    char *home, *token, *run, *node, *who;
    int port;
    fth_rendezvous_client *client;
    fth_rendezvous_options limits; /* numbers alone */
    double lost_after_s;
    host_node *nodes; /* in the order of their turns */
    int count;
    fth_rendezvous *rendezvous; /* that this process has, or NULL */
    bool cannot_host;           /* the port is somebody else's */
    struct {
        pthread_t thread;
        atomic_bool running, stopping;
        char *address; /* of `rendezvous` */
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
        json_t *answer = NULL,
               *request = json_pack("{s:s, s:s, s:I}", "run", succession->run, "address", succession->announcer.address,
                                    "generation", (json_int_t)generation);
        int code = 0;
        if (generation > 0) /* who does not answer is asked again */
            fth_rendezvous_client_post(client, "/moved", request, fth_deadline_in(PROBE_S), is_stopping, succession,
                                       &code, &answer);
        json_decref(request);
        json_decref(answer);
        nanosleep(&(struct timespec){.tv_nsec = (long)(ANNOUNCE_S * 1e9)}, NULL);
    }
    fth_rendezvous_client_free(client);
    return NULL;
}

/* Without it members are where they are; only those that come back or are new do not find them. */
static void start_announcing(fth_succession *succession, const char *address)
{
    succession->announcer.stopping = false;
    succession->announcer.address = strdup(address);
    succession->announcer.running =
        succession->announcer.address && strcmp(address, succession->home) != 0 &&
        fth_thread_start(&succession->announcer.thread, "announcer", announce, succession) == 0;
}

static void stop_rendezvous(fth_succession *succession)
{
    succession->announcer.stopping = true;
    if (succession->announcer.running)
        pthread_join(succession->announcer.thread, NULL);
    succession->announcer.running = false;
    free(succession->announcer.address);
    succession->announcer.address = NULL;
    fth_rendezvous_stop(succession->rendezvous);
    succession->rendezvous = NULL;
}

/* ---- who has its turn ---- */

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
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
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
                .address = fth_format(strchr(address, ':') ? "[%s]:%d" : "%s:%d", address, succession->port)};
            if (!succession->nodes[known].node || !succession->nodes[known].address)
                return;
            succession->count++;
        }
        succession->nodes[known].members++;
    }
}

void fth_succession_set_members(fth_succession *succession, const json_t *members)
{
    forget_nodes(succession);
    succession->nodes = calloc(json_array_size(members) + 1, sizeof *succession->nodes);
    if (!succession->nodes)
        return;
    add_nodes(succession, members, false);
    add_nodes(succession, members, true);
    succession->cannot_host = false;
}

/* ---- where it is ---- */

/* Serves a rendezvous here, if the port is free. */
static bool host(fth_succession *succession, int place)
{
    fth_rendezvous_options options = succession->limits;
    bool local = strncmp(succession->home, "127.", 4) == 0 || strncmp(succession->home, "localhost:", 10) == 0;

    options.address = local ? "127.0.0.1" : NULL;
    options.port = succession->port;
    options.token = succession->token;
    options.run = succession->run;
    options.first_least = succession->count <= 2 ? 1 : succession->count / 2 + 1;
    for (int i = place; i < succession->count; i++) /* those before have had their turns: they are lost */
        options.expected += succession->nodes[i].members;
    if (fth_rendezvous_start(&options, &succession->rendezvous) != FTH_OK) {
        succession->cannot_host = true;
        return false;
    }
    fth_log_warning(
        "%s has the rendezvous now, at %s: until the node that had it is back, new processes need this address",
        succession->who, succession->nodes[place].address);
    start_announcing(succession, succession->nodes[place].address);
    return true;
}

static bool answers(fth_succession *succession, const char *address, fth_give_up give_up, void *context)
{
    return fth_rendezvous_client_point(succession->client, address) == FTH_OK &&
           fth_rendezvous_client_probe(succession->client, PROBE_S, give_up, context);
}

bool fth_succession_home_is_back(fth_succession *succession, const char *former, fth_give_up give_up, void *context)
{
    if (!answers(succession, succession->home, give_up, context))
        return false;
    const char *moved = fth_rendezvous_client_moved(succession->client);
    if (moved && strcmp(moved, former) == 0)
        return false;
    if (succession->rendezvous)
        fth_log_info("%s gives up the rendezvous that it has for the one at %s", succession->who, succession->home);
    stop_rendezvous(succession);
    return true;
}

/* Whether a rendezvous that this process has is at the address of the first one. */
static bool is_at_home(const fth_succession *succession)
{
    for (int i = 0; succession->rendezvous && i < succession->count; i++)
        if (strcmp(succession->nodes[i].node, succession->node) == 0)
            return strcmp(succession->nodes[i].address, succession->home) == 0;
    return false;
}

char *fth_succession_find(fth_succession *succession, const char *former, double silent_s, fth_give_up give_up,
                          void *context)
{
    double late_s = silent_s - succession->lost_after_s;
    if (succession->lost_after_s <= 0 || succession->port == 0 || late_s < 0)
        return NULL;
    if (!is_at_home(succession) && fth_succession_home_is_back(succession, former, give_up, context))
        return strdup(succession->home);
    for (int i = 0; i < succession->count && i <= late_s / TURN_S; i++) {
        const host_node *node = &succession->nodes[i];
        bool mine = strcmp(node->node, succession->node) == 0;
        if (mine && !succession->rendezvous && !succession->cannot_host)
            host(succession, i);
        if ((mine && succession->rendezvous) || answers(succession, node->address, give_up, context)) {
            fth_log_info("%s goes to the rendezvous at %s", succession->who, node->address);
            return strdup(node->address);
        }
        if (give_up && give_up(context))
            return NULL;
    }
    return NULL;
}
