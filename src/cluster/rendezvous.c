/* See rendezvous.h. HTTP over the roster (roster.h), which makes all decisions: here are the
 * requests that wait, and the thread that lets time pass. */
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "cluster/port_holder.h"
#include "cluster/rendezvous_internal.h"

enum { MAX_CONNECTIONS = 4096 };
static const double TICK_S = 0.1;

/* ---- answers ---- */

void fth_rendezvous_refuse_stranger(fth_rendezvous *rendezvous, fth_exchange *exchange, int64_t member)
{
    const char *why = fth_roster_why_gone(rendezvous->roster, member);
    fth_rendezvous_refuse(exchange, FTH_RENDEZVOUS_GONE, "%s", why ? why : "the rendezvous does not know this member");
}

const char *fth_rendezvous_successor(const fth_rendezvous *rendezvous)
{
    return fth_clock_seconds() < rendezvous->moved.until_s ? rendezvous->moved.address : NULL;
}

bool fth_rendezvous_redirect(const fth_rendezvous *rendezvous, fth_exchange *exchange)
{
    const char *address = fth_rendezvous_successor(rendezvous);
    if (address)
        fth_rendezvous_answer(exchange, FTH_RENDEZVOUS_MOVED,
                              json_pack("{s:s, s:s}", "moved", address, "error",
                                        "the rendezvous is on another node now, with a newer group"));
    return address != NULL;
}

/* ---- long polls; each answers if it can, and must if `last` ---- */

static bool answer_beat(fth_rendezvous *rendezvous, const fth_wait *request, bool last)
{
    fth_roster_group group = fth_roster_get_group(rendezvous->roster);
    bool live = group.live && group.generation == request->generation;
    bool ending = live && fth_roster_is_ending(rendezvous->roster);
    if (!last && (request->generation == 0 || (live && ending == request->ending)))
        return false;
    fth_rendezvous_answer(
        request->poll.exchange, 200,
        json_pack("{s:b, s:b, s:s}", "live", live, "ending", ending, "reason",
                  group.generation == request->generation ? group.reason : "there is a newer group already"));
    return true;
}

static bool answer_join(fth_rendezvous *rendezvous, const fth_wait *request, bool last)
{
    fth_roster_group group = fth_roster_get_group(rendezvous->roster);
    int rank = fth_roster_rank(rendezvous->roster, request->member);
    if (group.live && rank >= 0 && group.generation > request->generation) {
        fth_rendezvous_answer(request->poll.exchange, 200,
                              json_pack("{s:I, s:i, s:i, s:O}", "generation", (json_int_t)group.generation, "rank",
                                        rank, "nodes", group.nodes, "members", group.list));
        return true;
    }
    if (!last)
        return false;
    bool few = false;
    char *missing = fth_roster_missing(rendezvous->roster, request->member, &few);
    fth_rendezvous_answer(request->poll.exchange, 202,
                          json_pack("{s:s, s:b, s:i, s:o}", "waiting", missing ? missing : "", "few", few, "before",
                                    fth_roster_count_before(rendezvous->roster, request->member), "ready",
                                    fth_roster_list_ready(rendezvous->roster)));
    free(missing);
    return true;
}

static bool answer_find(fth_rendezvous *rendezvous, const fth_wait *request, bool last)
{
    fth_exchange *exchange = request->poll.exchange;
    fth_run_part part = fth_roster_ask_run(rendezvous->roster, fth_clock_seconds(), request->member);
    if (part == FTH_RUN_WAIT && !last)
        return false;
    if (part == FTH_RUN_WAIT)
        fth_rendezvous_answer(exchange, 202, json_object());
    else if (part == FTH_RUN_FIND)
        fth_rendezvous_answer(exchange, 200, json_pack("{s:b}", "find", true));
    else
        fth_rendezvous_answer(exchange, 200,
                              json_pack("{s:b, s:O}", "find", false, "run", fth_roster_get_run(rendezvous->roster)));
    return true;
}

bool fth_rendezvous_check_group(fth_rendezvous *rendezvous, fth_exchange *exchange, int64_t member, int64_t generation)
{
    fth_roster_group group = fth_roster_get_group(rendezvous->roster);
    fth_group_keys_select(rendezvous->keys, group.generation);
    if (group.live && group.generation == generation && fth_roster_rank(rendezvous->roster, member) >= 0)
        return true;
    fth_rendezvous_refuse(exchange, FTH_RENDEZVOUS_ENDED, "the group has ended: %s", group.reason);
    return false;
}

static bool answer_key(fth_rendezvous *rendezvous, const fth_wait *request, bool last)
{
    size_t size = 0;
    if (!fth_rendezvous_check_group(rendezvous, request->poll.exchange, request->member, request->generation))
        return true;
    const void *bytes = fth_group_keys_get(rendezvous->keys, request->key, &size);
    if (!bytes && !last)
        return false;
    fth_exchange_answer(request->poll.exchange, bytes ? 200 : 202, "application/octet-stream", bytes, size);
    return true;
}

static bool answer_wait(void *context, fth_long_poll *poll, bool last)
{
    fth_rendezvous *rendezvous = context;
    const fth_wait *request = (const fth_wait *)poll;
    if (fth_rendezvous_redirect(rendezvous, poll->exchange))
        return true;
    if (!fth_roster_has(rendezvous->roster, request->member)) {
        fth_rendezvous_refuse_stranger(rendezvous, poll->exchange, request->member);
        return true;
    }
    switch (request->kind) {
    case FTH_WAIT_BEAT: return answer_beat(rendezvous, request, last);
    case FTH_WAIT_JOIN: return answer_join(rendezvous, request, last);
    case FTH_WAIT_FIND: return answer_find(rendezvous, request, last);
    case FTH_WAIT_KEY: return answer_key(rendezvous, request, last);
    }
    return false;
}

static void release_wait(fth_long_poll *poll)
{
    free(((fth_wait *)poll)->key);
    free(poll);
}

void fth_rendezvous_hold(fth_rendezvous *rendezvous, fth_exchange *exchange, const fth_wait *request, double seconds)
{
    fth_wait *copy = malloc(sizeof *copy);
    if (!copy) {
        free(request->key);
        fth_rendezvous_refuse(exchange, 503, "no memory");
        return;
    }
    *copy = *request;
    fth_long_polls_add(&rendezvous->waiting, &copy->poll, exchange, seconds);
}

/* A live member always has a beat waiting here: if its connection closes, the member may be
 * dead. */
static void note_abandoned(void *context, const fth_long_poll *poll)
{
    const fth_wait *request = (const fth_wait *)poll;
    if (request->kind == FTH_WAIT_BEAT)
        fth_roster_hang_up(((fth_rendezvous *)context)->roster, fth_clock_seconds(), request->member);
}

void fth_rendezvous_drop_former_beat(fth_rendezvous *rendezvous, int64_t member)
{
    for (fth_long_poll *poll = rendezvous->waiting.first; poll; poll = poll->next) {
        fth_wait *request = (fth_wait *)poll;
        if (request->kind == FTH_WAIT_BEAT && request->member == member) {
            poll->until_s = 0;
            fth_long_polls_check(&rendezvous->waiting);
            return;
        }
    }
}

static void *tick(void *context)
{
    fth_rendezvous *rendezvous = context;
    pthread_mutex_lock(&rendezvous->mutex);
    while (!rendezvous->stopping) {
        fth_long_polls_drop_abandoned(&rendezvous->waiting, note_abandoned);
        fth_roster_advance(rendezvous->roster, fth_clock_seconds());
        fth_long_polls_check(&rendezvous->waiting);
        struct timespec until = fth_deadline_timespec(fth_deadline_in(TICK_S));
        pthread_cond_clockwait(&rendezvous->changed, &rendezvous->mutex, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&rendezvous->mutex);
    return NULL;
}

/* ---- start and stop ---- */

static fth_status listen_at(fth_rendezvous *rendezvous, const char *address, int port)
{
    fth_status status = fth_server_start(&(fth_server_options){.address = address,
                                                               .port = port,
                                                               .routes = fth_rendezvous_routes,
                                                               .context = rendezvous,
                                                               .admit = fth_rendezvous_admit,
                                                               .threads = 2,
                                                               .max_connections = MAX_CONNECTIONS,
                                                               .idle_s = 20},
                                         &rendezvous->server);
    char *holder = status == FTH_IO && port > 0 ? fth_port_holder(port) : NULL;
    if (holder)
        status = fth_fail_within(status, "the rendezvous cannot have port %d, which %s holds", port, holder);
    else if (status != FTH_OK)
        status = fth_fail_within(status, "the rendezvous of run %s", rendezvous->run);
    free(holder);
    return status;
}

fth_status fth_rendezvous_start(const fth_rendezvous_options *options, fth_rendezvous **result)
{
    fth_status status = FTH_OK;
    fth_rendezvous *rendezvous = NULL;
    uint64_t random = 0;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *rendezvous, &rendezvous));
    pthread_mutex_init(&rendezvous->mutex, NULL);
    pthread_cond_init(&rendezvous->changed, NULL);
    rendezvous->waiting = (fth_long_polls){.context = rendezvous, .answer = answer_wait, .release = release_wait};
    rendezvous->limits = (fth_roster_options){
        .least = options->least,
        .most = options->most,
        .join_wait_s = options->join_wait_s > 0 ? options->join_wait_s : 3,
        .lost_after_s = options->lost_after_s > 0 ? options->lost_after_s : 4,
        .stuck_after_s = options->stuck_after_s > 0 ? options->stuck_after_s : 60,
        .first_least = options->first_least,
        .find_after_s = options->find_after_s,
    };
    rendezvous->needs_token = *options->token;
    fth_hex_sha256(options->token, strlen(options->token), rendezvous->token_hash);
    rendezvous->run = strdup(options->run);
    FTH_REQUIRE(rendezvous->run, FTH_NO_MEMORY, "no memory for a rendezvous");
    FTH_REQUIRE(RAND_bytes((unsigned char *)&random, sizeof random) == 1, FTH_IO, "no random numbers for a rendezvous");
    rendezvous->limits.first_member = (int64_t)(random >> 24) << 20; /* room for a million, below 2^60 */
    FTH_TRY(fth_roster_create(&rendezvous->limits, fth_clock_seconds(), &rendezvous->roster));
    FTH_TRY(fth_group_keys_create(&rendezvous->keys));
    FTH_TRY(listen_at(rendezvous, options->address ? options->address : "0.0.0.0", options->port));
    FTH_REQUIRE(fth_thread_start(&rendezvous->ticker, "rendezvous", tick, rendezvous) == 0, FTH_NO_MEMORY,
                "no thread for the rendezvous");
    rendezvous->ticking = true;
    *result = rendezvous;
    rendezvous = NULL;

out:
    fth_rendezvous_stop(rendezvous);
    return status;
}

int fth_rendezvous_port(const fth_rendezvous *rendezvous)
{
    return fth_server_port(rendezvous->server);
}

int64_t fth_rendezvous_generation(fth_rendezvous *rendezvous)
{
    pthread_mutex_lock(&rendezvous->mutex);
    fth_roster_group group = fth_roster_get_group(rendezvous->roster);
    pthread_mutex_unlock(&rendezvous->mutex);
    return group.live ? group.generation : 0;
}

int fth_rendezvous_count(fth_rendezvous *rendezvous)
{
    pthread_mutex_lock(&rendezvous->mutex);
    int count = fth_roster_count(rendezvous->roster);
    pthread_mutex_unlock(&rendezvous->mutex);
    return count;
}

void fth_rendezvous_stop(fth_rendezvous *rendezvous)
{
    if (!rendezvous)
        return;
    pthread_mutex_lock(&rendezvous->mutex);
    rendezvous->stopping = true;
    pthread_cond_signal(&rendezvous->changed);
    pthread_mutex_unlock(&rendezvous->mutex);
    if (rendezvous->ticking)
        pthread_join(rendezvous->ticker, NULL);
    fth_server_stop(rendezvous->server, 1);   /* answers waiting requests with 503 */
    fth_long_polls_end(&rendezvous->waiting); /* these answers are dropped */
    fth_roster_free(rendezvous->roster);
    fth_group_keys_free(rendezvous->keys);
    fth_agreement_release(&rendezvous->configuration);
    fth_agreement_release(&rendezvous->found);
    free(rendezvous->moved.address);
    free(rendezvous->run);
    pthread_mutex_destroy(&rendezvous->mutex);
    pthread_cond_destroy(&rendezvous->changed);
    free(rendezvous);
}
