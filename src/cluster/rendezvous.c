/* See rendezvous.h. HTTP over the roster (roster.h), which decides everything; here are bodies,
 * tokens and waiting.
 *
 * Requests are POST with a JSON object, which names the member by its incarnation, and the answer
 * is one:
 *
 *     GET  /rendezvous  who answers here; needs no token
 *     POST /open        a process becomes a member
 *     POST /beat        a sign of life; answered after BEAT_S, or at once when the member's group has ended, others wait to
 *                       join, or the member is not one any more (410)
 *     POST /join        answered with a group, or 202 and what is waited for
 *     POST /find        answered with the run, with "find" in the one that is to find it, or 202
 *     POST /share       the run that was found
 *     POST /leave
 *     POST /lost        from an agent: a process, or all of a node, has ended
 *     PUT  /key, GET /key   ?member=&generation=&key=, bytes; a GET waits for the key, and gets 202 if it does not come
 *     POST /moved       from a successor (succession.h): for some seconds members are answered FTH_RENDEZVOUS_MOVED
 *     GET  /members     all of the roster, for people and agents
 *
 * Whoever has to wait is held: an item in a list, with the exchange. After every change, and every
 * TICK_S, settle() goes through the list and answers those that can be answered. Everything is
 * under one mutex; that of the HTTP server is taken inside it, never the other way. */
#include "cluster/rendezvous.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "cluster/configuration.h"
#include "cluster/group_keys.h"
#include "cluster/port_holder.h"
#include "cluster/protocol.h"
#include "cluster/roster.h"
#include "http/host.h"
#include "http/server.h"

enum { MAX_BODY = 64 << 10, MAX_OPEN_BODY = 17 << 20, MAX_RUN_BODY = 16 << 20, MAX_NAME = 256, MAX_CONNECTIONS = 4096 };
static const int64_t MAX_GENERATION = INT64_C(1) << 50;
static const double TICK_S = 0.1, BEAT_S = 1, JOIN_S = 2, FIND_S = 5, KEY_S = 10, MOVED_S = 3;

typedef enum held_kind { HELD_BEAT, HELD_JOIN, HELD_FIND, HELD_KEY } held_kind;

/* A request that waits for its answer. */
typedef struct held {
    struct held *next;
    fth_exchange *exchange;
    held_kind kind;
    int64_t member;
    int64_t generation; /* that the member believes to be in; for a join: that it wants a newer one than */
    bool ending;        /* what the member knows of that */
    char *key;
    double until_s;
} held;

struct fth_rendezvous {
    fth_server *server;
    char *run;
    char token_hash[65];
    bool needs_token;
    fth_roster_options limits;
    pthread_t ticker;
    bool ticking;

    pthread_mutex_t mutex; /* of everything below */
    pthread_cond_t changed;
    bool stopping;
    fth_roster *roster;
    fth_group_keys *keys;
    int64_t keys_generation; /* whose keys those are */
    held *held;
    char *configuration, *configured_by; /* that of the first member, and its node; NULL: there is none */
    char *found, *found_by;              /* what the first that joined had found, and its node; NULL: there is none */
    int64_t finder;                      /* that one */
    struct {
        char *address; /* of a successor; NULL: there is none */
        double until_s;
    } moved;
};

/* ---- answers ---- */

static void refuse(fth_exchange *exchange, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void refuse(fth_exchange *exchange, int code, const char *format, ...)
{
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    fth_printable_format(message, sizeof message, format, arguments);
    va_end(arguments);
    fth_exchange_answer_json(exchange, code, json_pack("{s:s, s:s}", "service", FTH_RENDEZVOUS_NAME, "error", message));
}

static void answer(fth_exchange *exchange, int code, json_t *json)
{
    if (json)
        json_object_set_new(json, "service", json_string(FTH_RENDEZVOUS_NAME));
    fth_exchange_answer_json(exchange, code, json);
}

static void refuse_stranger(fth_rendezvous *rendezvous, fth_exchange *exchange, int64_t member)
{
    const char *why = fth_roster_why_gone(rendezvous->roster, member);
    refuse(exchange, FTH_RENDEZVOUS_GONE, "%s", why ? why : "the rendezvous does not know this member");
}

/* Sends the caller to the successor; false: there is none, as far as is known here. */
static bool send_away(const fth_rendezvous *rendezvous, fth_exchange *exchange, double now_s)
{
    if (!rendezvous->moved.address || now_s >= rendezvous->moved.until_s)
        return false;
    answer(exchange, FTH_RENDEZVOUS_MOVED,
           json_pack("{s:s, s:s}", "moved", rendezvous->moved.address, "error",
                     "the rendezvous is on another node now, with a newer group"));
    return true;
}

/* ---- those who wait ---- */

static bool answer_beat(fth_rendezvous *rendezvous, const held *item, bool last)
{
    fth_roster_group group = fth_roster_get_group(rendezvous->roster);
    bool live = group.live && group.generation == item->generation;
    bool ending = live && fth_roster_is_ending(rendezvous->roster);
    if (!last && (item->generation == 0 || (live && ending == item->ending)))
        return false;
    answer(item->exchange, 200,
           json_pack("{s:b, s:b, s:s}", "live", live, "ending", ending, "reason",
                     group.generation == item->generation ? group.reason : "there is a newer group already"));
    return true;
}

static bool answer_join(fth_rendezvous *rendezvous, const held *item, bool last)
{
    fth_roster_group group = fth_roster_get_group(rendezvous->roster);
    int rank = fth_roster_rank(rendezvous->roster, item->member);
    if (group.live && rank >= 0 && group.generation > item->generation) {
        answer(item->exchange, 200,
               json_pack("{s:I, s:i, s:i, s:O}", "generation", (json_int_t)group.generation, "rank", rank, "nodes",
                         group.nodes, "members", group.list));
        return true;
    }
    if (!last)
        return false;
    bool few = false;
    char *missing = fth_roster_missing(rendezvous->roster, item->member, &few);
    answer(item->exchange, 202,
           json_pack("{s:s, s:b, s:i, s:o}", "waiting", missing ? missing : "", "few", few, "before",
                     fth_roster_count_before(rendezvous->roster, item->member), "ready",
                     fth_roster_list_ready(rendezvous->roster)));
    free(missing);
    return true;
}

static bool answer_find(fth_rendezvous *rendezvous, const held *item, bool last, double now_s)
{
    fth_run_part part = fth_roster_ask_run(rendezvous->roster, now_s, item->member);
    if (part == FTH_RUN_WAIT && !last)
        return false;
    if (part == FTH_RUN_WAIT)
        answer(item->exchange, 202, json_object());
    else if (part == FTH_RUN_FIND)
        answer(item->exchange, 200, json_pack("{s:b}", "find", true));
    else
        answer(item->exchange, 200,
               json_pack("{s:b, s:O}", "find", false, "run", fth_roster_get_run(rendezvous->roster)));
    return true;
}

/* Whether the member's group is the live one, whose keys are there. */
static bool has_keys(fth_rendezvous *rendezvous, int64_t member, int64_t generation)
{
    fth_roster_group group = fth_roster_get_group(rendezvous->roster);
    if (group.generation != rendezvous->keys_generation) {
        fth_group_keys_clear(rendezvous->keys);
        rendezvous->keys_generation = group.generation;
    }
    return group.live && group.generation == generation && fth_roster_rank(rendezvous->roster, member) >= 0;
}

static bool answer_key(fth_rendezvous *rendezvous, const held *item, bool last)
{
    size_t size = 0;
    if (!has_keys(rendezvous, item->member, item->generation)) {
        refuse(item->exchange, FTH_RENDEZVOUS_ENDED, "the group has ended: %s",
               fth_roster_get_group(rendezvous->roster).reason);
        return true;
    }
    const void *bytes = fth_group_keys_get(rendezvous->keys, item->key, &size);
    if (!bytes && !last)
        return false;
    fth_exchange_answer(item->exchange, bytes ? 200 : 202, "application/octet-stream", bytes, size);
    return true;
}

/* True if the item's exchange has been answered. */
static bool answer_item(fth_rendezvous *rendezvous, const held *item, double now_s)
{
    bool last = now_s >= item->until_s;
    if (send_away(rendezvous, item->exchange, now_s))
        return true;
    if (!fth_roster_has(rendezvous->roster, item->member)) {
        refuse_stranger(rendezvous, item->exchange, item->member);
        return true;
    }
    switch (item->kind) {
    case HELD_BEAT: return answer_beat(rendezvous, item, last);
    case HELD_JOIN: return answer_join(rendezvous, item, last);
    case HELD_FIND: return answer_find(rendezvous, item, last, now_s);
    case HELD_KEY: return answer_key(rendezvous, item, last);
    }
    return false;
}

static void free_held(held *item)
{
    free(item->key);
    free(item);
}

/* Answers whoever can be answered now. */
static void settle(fth_rendezvous *rendezvous, double now_s)
{
    for (held **place = &rendezvous->held; *place;) {
        held *item = *place;
        if (answer_item(rendezvous, item, now_s)) {
            *place = item->next;
            free_held(item);
        } else {
            place = &item->next;
        }
    }
}

/* Answers at once or later; takes the key. */
static void hold(fth_rendezvous *rendezvous, fth_exchange *exchange, const held *wanted, double seconds)
{
    held *item = malloc(sizeof *item);
    double now_s = fth_clock_seconds();
    if (!item) {
        free(wanted->key);
        refuse(exchange, 503, "no memory");
        return;
    }
    *item = *wanted;
    item->exchange = exchange;
    item->until_s = now_s + seconds;
    if (answer_item(rendezvous, item, now_s)) {
        free_held(item);
        return;
    }
    item->next = rendezvous->held;
    fth_exchange_hold(exchange, seconds + 60, 503); /* the ticker answers before that */
    rendezvous->held = item;
}

/* Members always have a beat here: one whose connection has closed may be dead. */
static void notice_closed(fth_rendezvous *rendezvous, double now_s)
{
    for (held **place = &rendezvous->held; *place;) {
        held *item = *place;
        if (!fth_exchange_is_abandoned(item->exchange)) {
            place = &item->next;
            continue;
        }
        if (item->kind == HELD_BEAT)
            fth_roster_hang_up(rendezvous->roster, now_s, item->member);
        *place = item->next;
        fth_exchange_answer(item->exchange, 503, NULL, NULL, 0); /* to nobody; frees it */
        free_held(item);
    }
}

static void *tick(void *context)
{
    fth_rendezvous *rendezvous = context;
    pthread_mutex_lock(&rendezvous->mutex);
    while (!rendezvous->stopping) {
        double now_s = fth_clock_seconds();
        notice_closed(rendezvous, now_s);
        fth_roster_advance(rendezvous->roster, now_s);
        settle(rendezvous, now_s);
        struct timespec until = fth_deadline_timespec(fth_deadline_in(TICK_S));
        pthread_cond_clockwait(&rendezvous->changed, &rendezvous->mutex, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&rendezvous->mutex);
    return NULL;
}

/* ---- requests ---- */

/* Refuses pages in a browser and whoever does not show the token, and sends members to a
 * successor. */
static bool admit(void *context, fth_exchange *exchange, const fth_route *route, fth_role *role)
{
    fth_rendezvous *rendezvous = context;
    const char *header = fth_exchange_header(exchange, "Authorization");
    char hash[65];

    *role = FTH_ROLE_NONE;
    if (fth_origin_is_foreign(fth_exchange_header(exchange, "Origin"), fth_exchange_header(exchange, "Sec-Fetch-Site"),
                              fth_exchange_header(exchange, "Host"))) {
        refuse(exchange, 403, "a page in a browser asks; a rendezvous is for programs");
        return false;
    }
    if (route->role == FTH_ROLE_NONE)
        return true;
    const char *token = header && strncmp(header, "Bearer ", 7) == 0 ? header + 7 : "";
    fth_hex_sha256(token, strlen(token), hash);
    if (rendezvous->needs_token && CRYPTO_memcmp(hash, rendezvous->token_hash, 64) != 0) {
        refuse(exchange, 401, "%s", *token ? "the token is not the one of this rendezvous" : "the token is missing");
        return false;
    }
    *role = FTH_ROLE_TRAIN;
    if (rendezvous->needs_token)
        fth_exchange_set_authenticated(exchange);
    if (strcmp(route->path, "/moved") == 0 || strcmp(route->path, "/members") == 0)
        return true;
    pthread_mutex_lock(&rendezvous->mutex);
    bool sent_away = send_away(rendezvous, exchange, fth_clock_seconds());
    pthread_mutex_unlock(&rendezvous->mutex);
    return !sent_away;
}

/* The body, an object whose parts are read as json_unpack() does; NULL: it was none, and the
 * exchange has been refused. */
static json_t *read_request(fth_exchange *exchange, const char *format, ...)
{
    size_t size = 0;
    const char *body = fth_exchange_body(exchange, &size);
    json_error_t error = {.text = "expected a JSON object"};
    json_t *json = size > 0 ? json_loadb(body, size, JSON_REJECT_DUPLICATES, &error) : NULL;
    va_list arguments;
    va_start(arguments, format);
    bool good = json && json_vunpack_ex(json, &error, 0, format, arguments) == 0;
    va_end(arguments);
    if (good)
        return json;
    refuse(exchange, 400, "%s: %s", fth_exchange_path(exchange), error.text);
    json_decref(json);
    return NULL;
}

static void get_rendezvous(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    pthread_mutex_lock(&rendezvous->mutex);
    bool moved = rendezvous->moved.address && fth_clock_seconds() < rendezvous->moved.until_s;
    answer(exchange, 200,
           json_pack("{s:s, s:b, s:I, s:s*}", "version", FTH_VERSION, "token", rendezvous->needs_token, "newest",
                     (json_int_t)fth_roster_newest(rendezvous->roster), "moved",
                     moved ? rendezvous->moved.address : NULL));
    pthread_mutex_unlock(&rendezvous->mutex);
}

static void get_members(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    pthread_mutex_lock(&rendezvous->mutex);
    json_t *json = fth_roster_describe(rendezvous->roster, fth_clock_seconds());
    pthread_mutex_unlock(&rendezvous->mutex);
    if (json)
        json_object_set_new(json, "run", json_string(rendezvous->run));
    answer(exchange, 200, json);
}

/* What a process says of itself in /open. */
typedef struct introduction {
    fth_newcomer who;
    const char *version, *run, *configuration;
} introduction;

static bool is_name(const char *text)
{
    return *text && strlen(text) <= MAX_NAME && fth_is_printable(text);
}

/* True if this process may be a member; else refuses it. */
static bool may_join(fth_rendezvous *rendezvous, fth_exchange *exchange, const introduction *opening, const char *name)
{
    if (strcmp(opening->version, FTH_VERSION) != 0) {
        refuse(exchange, 409, "%s runs farthing %s and the rendezvous %s; install one version on all nodes", name,
               opening->version, FTH_VERSION);
        return false;
    }
    if (strcmp(opening->run, rendezvous->run) != 0) {
        refuse(exchange, 409, "%s is of run %s and this rendezvous of run %s; give each run a rendezvous of its own",
               name, opening->run, rendezvous->run);
        return false;
    }
    if (fth_roster_count(rendezvous->roster) == 0 || !rendezvous->configuration) {
        free(rendezvous->configuration);
        free(rendezvous->configured_by);
        rendezvous->configuration = strdup(opening->configuration);
        rendezvous->configured_by = strdup(opening->who.node);
    }
    if (!rendezvous->configuration || !rendezvous->configured_by) {
        refuse(exchange, 503, "no memory");
        return false;
    }
    char *difference = fth_configuration_difference(rendezvous->configuration, rendezvous->configured_by,
                                                    opening->configuration, opening->who.node);
    if (difference)
        refuse(exchange, 409, "%s was asked for something else than the others: %s", name, difference);
    free(difference);
    return !difference;
}

static char *name_newcomer(const fth_newcomer *who)
{
    return who->rank >= 0 ? fth_format("rank %d on %s (process %" PRId64 ")", who->rank, who->node, who->process)
                          : fth_format("%s (process %" PRId64 ")", who->node, who->process);
}

/* What members need to know in case that one of them has to host a successor. */
static json_t *describe_limits(const fth_roster_options *limits)
{
    return json_pack("{s:i, s:i, s:f, s:f, s:f}", "least", limits->least, "most", limits->most, "join_wait_s",
                     limits->join_wait_s, "lost_after_s", limits->lost_after_s, "stuck_after_s", limits->stuck_after_s);
}

static void add_member(fth_rendezvous *rendezvous, fth_exchange *exchange, introduction *opening)
{
    int64_t member = 0;
    char *name = name_newcomer(&opening->who);
    if (!*opening->who.address)
        opening->who.address = fth_exchange_client(exchange);
    pthread_mutex_lock(&rendezvous->mutex);
    double now_s = fth_clock_seconds();
    if (name && may_join(rendezvous, exchange, opening, name)) {
        if (fth_roster_add(rendezvous->roster, now_s, &opening->who, &member) == FTH_OK)
            answer(exchange, 200,
                   json_pack("{s:I, s:f, s:o}", "member", (json_int_t)member, "wall_s", fth_clock_wall_seconds(),
                             "limits", describe_limits(&rendezvous->limits)));
        else
            refuse(exchange, 503, "%s", fth_error_message());
        settle(rendezvous, now_s);
    }
    pthread_mutex_unlock(&rendezvous->mutex);
    free(name);
}

static void post_open(void *context, fth_exchange *exchange)
{
    json_t *facts = NULL;
    introduction opening = {0};
    json_int_t process = 0, generation = 0;
    int hosts = 0;
    json_t *json = read_request(
        exchange, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s?i, s:i, s:o, s?I, s?i, s?i, s?o, s?b}", "version",
        &opening.version, "run", &opening.run, "configuration", &opening.configuration, "instance",
        &opening.who.instance, "node", &opening.who.node, "host", &opening.who.host, "address", &opening.who.address,
        "process", &process, "local_rank", &opening.who.local_rank, "local_size", &opening.who.local_size, "rank",
        &opening.who.rank, "facts", &facts, "generation", &generation, "former_rank", &opening.who.former_rank,
        "expected", &opening.who.expected, "known_run", &opening.who.run, "hosts", &hosts);
    if (!json)
        return;
    opening.who.facts = facts;
    opening.who.process = process;
    opening.who.generation = generation;
    opening.who.hosts = hosts;
    if (is_name(opening.who.node) && is_name(opening.who.host) && is_name(opening.who.instance) &&
        strlen(opening.who.address) <= MAX_NAME && strlen(opening.version) <= MAX_NAME &&
        strlen(opening.run) <= MAX_NAME && process > 0 && generation >= 0 && generation < MAX_GENERATION)
        add_member(context, exchange, &opening);
    else
        refuse(exchange, 400, "/open: a name is empty, longer than %d characters or not printable, or a number wrong",
               MAX_NAME);
    json_decref(json);
}

/* Locks the rendezvous and hears the member; false: it is unlocked, and the exchange has been
 * refused. */
static bool enter(fth_rendezvous *rendezvous, fth_exchange *exchange, int64_t member)
{
    pthread_mutex_lock(&rendezvous->mutex);
    if (fth_roster_hear(rendezvous->roster, fth_clock_seconds(), member, 0, NULL))
        return true;
    refuse_stranger(rendezvous, exchange, member);
    pthread_mutex_unlock(&rendezvous->mutex);
    return false;
}

/* Unlocks it after a change, which others may have waited for. */
static void leave_changed(fth_rendezvous *rendezvous)
{
    settle(rendezvous, fth_clock_seconds());
    pthread_mutex_unlock(&rendezvous->mutex);
}

/* A member has one beat here: a new one takes the place of one that it has given up. */
static void drop_former_beat(fth_rendezvous *rendezvous, int64_t member)
{
    for (held **place = &rendezvous->held; *place; place = &(*place)->next) {
        held *item = *place;
        if (item->kind != HELD_BEAT || item->member != member)
            continue;
        *place = item->next;
        refuse(item->exchange, 503, "there is a newer beat");
        free_held(item);
        return;
    }
}

static void post_beat(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_int_t member, generation, step;
    const char *activity;
    int ending;
    json_t *json = read_request(exchange, "{s:I, s:I, s:b, s:I, s:s}", "member", &member, "generation", &generation,
                                "ending", &ending, "step", &step, "activity", &activity);
    if (!json)
        return;
    if (enter(rendezvous, exchange, member)) {
        fth_roster_hear(rendezvous->roster, fth_clock_seconds(), member, step, activity);
        drop_former_beat(rendezvous, member);
        hold(rendezvous, exchange,
             &(held){.kind = HELD_BEAT, .member = member, .generation = generation, .ending = ending}, BEAT_S);
        pthread_mutex_unlock(&rendezvous->mutex);
    }
    json_decref(json);
}

/* True if the member found what the others have found; else refuses it. What counts is what the
 * first one found, until it is gone without having been in a group, or nobody else is left. */
static bool has_found_the_same(fth_rendezvous *rendezvous, fth_exchange *exchange, int64_t member, const char *node,
                               const char *found)
{
    const fth_roster *roster = rendezvous->roster;
    bool obsolete = !fth_roster_has(roster, rendezvous->finder) &&
                    (fth_roster_get_group(roster).generation == 0 || fth_roster_count(roster) == 1);
    if (!rendezvous->found || obsolete) {
        free(rendezvous->found);
        free(rendezvous->found_by);
        rendezvous->found = strdup(found);
        rendezvous->found_by = strdup(node);
        rendezvous->finder = member;
    }
    if (!rendezvous->found || !rendezvous->found_by) {
        refuse(exchange, 503, "no memory");
        return false;
    }
    char *difference = fth_configuration_difference(rendezvous->found, rendezvous->found_by, found, node);
    if (difference)
        refuse(exchange, 409, "nodes have different data: %s", difference);
    free(difference);
    return !difference;
}

static void post_join(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_int_t member, after;
    const char *node = "a node", *found = NULL;
    int unreached = -1;
    json_t *json = read_request(exchange, "{s:I, s:I, s?i, s?s, s?s}", "member", &member, "after", &after, "unreached",
                                &unreached, "node", &node, "found", &found);
    if (!json)
        return;
    if (enter(rendezvous, exchange, member)) {
        if (!found || has_found_the_same(rendezvous, exchange, member, node, found)) {
            fth_roster_blame(rendezvous->roster, member, after, unreached);
            fth_roster_join(rendezvous->roster, fth_clock_seconds(), member, after);
            hold(rendezvous, exchange, &(held){.kind = HELD_JOIN, .member = member, .generation = after}, JOIN_S);
        }
        leave_changed(rendezvous);
    }
    json_decref(json);
}

static void post_find(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_int_t member;
    json_t *json = read_request(exchange, "{s:I}", "member", &member);
    if (!json)
        return;
    if (enter(rendezvous, exchange, member)) {
        hold(rendezvous, exchange, &(held){.kind = HELD_FIND, .member = member}, FIND_S);
        pthread_mutex_unlock(&rendezvous->mutex);
    }
    json_decref(json);
}

static void post_share(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_t *run;
    json_int_t member;
    json_t *json = read_request(exchange, "{s:I, s:o}", "member", &member, "run", &run);
    if (!json)
        return;
    if (enter(rendezvous, exchange, member)) {
        if (fth_roster_set_run(rendezvous->roster, member, run))
            answer(exchange, 200, json_object());
        else
            refuse(exchange, 409, "another member finds the run");
        leave_changed(rendezvous);
    }
    json_decref(json);
}

static void post_leave(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_int_t member;
    const char *reason;
    json_t *json = read_request(exchange, "{s:I, s:s}", "member", &member, "reason", &reason);
    if (!json)
        return;
    if (enter(rendezvous, exchange, member)) {
        fth_roster_leave(rendezvous->roster, fth_clock_seconds(), member, reason);
        answer(exchange, 200, json_object());
        leave_changed(rendezvous);
    }
    json_decref(json);
}

static void post_lost(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_int_t process;
    const char *node, *reason;
    json_t *json = read_request(exchange, "{s:s, s:I, s:s}", "node", &node, "process", &process, "reason", &reason);
    if (!json)
        return;
    pthread_mutex_lock(&rendezvous->mutex);
    int lost = fth_roster_lose(rendezvous->roster, fth_clock_seconds(), node, process, reason);
    answer(exchange, 200, json_pack("{s:i}", "lost", lost));
    leave_changed(rendezvous);
    json_decref(json);
}

/* A successor, which came to be while this rendezvous was lost, has a group. Where there is none
 * here that is newer, its word counts for as long as it is repeated: two groups of one run become
 * one again. */
static void post_moved(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    const char *run, *address;
    json_int_t generation;
    json_t *json =
        read_request(exchange, "{s:s, s:s, s:I}", "run", &run, "address", &address, "generation", &generation);
    if (!json)
        return;
    pthread_mutex_lock(&rendezvous->mutex);
    fth_roster_group group = fth_roster_get_group(rendezvous->roster);
    char *copy = strlen(address) <= MAX_NAME && fth_is_printable(address) ? strdup(address) : NULL;
    if (strcmp(run, rendezvous->run) != 0 || generation < group.generation || !copy) {
        refuse(exchange, 409, "this rendezvous is of another run, or has a newer group");
        free(copy);
    } else {
        free(rendezvous->moved.address);
        rendezvous->moved.address = copy;
        rendezvous->moved.until_s = fth_clock_seconds() + MOVED_S;
        answer(exchange, 200, json_object());
    }
    leave_changed(rendezvous);
    json_decref(json);
}

/* The key that a request is about, in fresh memory; NULL: the exchange has been refused. */
static char *read_key(fth_exchange *exchange, int64_t *member, int64_t *generation)
{
    const char *who = fth_exchange_query(exchange, "member"), *group = fth_exchange_query(exchange, "generation"),
               *key = fth_exchange_query(exchange, "key");
    char *end_of_who = NULL, *end_of_group = NULL;
    *member = who ? strtoll(who, &end_of_who, 10) : 0;
    *generation = group ? strtoll(group, &end_of_group, 10) : 0;
    if (who && group && key && end_of_who > who && end_of_group > group && !*end_of_who && !*end_of_group && *key &&
        strlen(key) <= FTH_MAX_KEY)
        return strdup(key);
    refuse(exchange, 400, "/key expects member, generation, and a key of at most %d characters", FTH_MAX_KEY);
    return NULL;
}

static void get_key(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    int64_t member, generation;
    char *key = read_key(exchange, &member, &generation);
    if (!key)
        return;
    if (!enter(rendezvous, exchange, member)) {
        free(key);
        return;
    }
    hold(rendezvous, exchange, &(held){.kind = HELD_KEY, .member = member, .generation = generation, .key = key},
         KEY_S);
    pthread_mutex_unlock(&rendezvous->mutex);
}

static void put_key(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    int64_t member, generation;
    size_t size = 0;
    const void *bytes = fth_exchange_body(exchange, &size);
    char *key = read_key(exchange, &member, &generation);
    if (key && enter(rendezvous, exchange, member)) {
        if (!has_keys(rendezvous, member, generation))
            refuse(exchange, FTH_RENDEZVOUS_ENDED, "the group has ended: %s",
                   fth_roster_get_group(rendezvous->roster).reason);
        else if (fth_group_keys_put(rendezvous->keys, key, bytes, size) == FTH_OK)
            answer(exchange, 200, json_object());
        else
            refuse(exchange, 413, "%s", fth_error_message());
        leave_changed(rendezvous);
    }
    free(key);
}

static const fth_route routes[] = {
    {"GET", "/rendezvous", get_rendezvous, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/members", get_members, FTH_ROLE_TRAIN, 0, NULL},
    {"POST", "/open", post_open, FTH_ROLE_TRAIN, MAX_OPEN_BODY, NULL},
    {"POST", "/beat", post_beat, FTH_ROLE_TRAIN, MAX_BODY, NULL},
    {"POST", "/join", post_join, FTH_ROLE_TRAIN, MAX_BODY, NULL},
    {"POST", "/find", post_find, FTH_ROLE_TRAIN, MAX_BODY, NULL},
    {"POST", "/share", post_share, FTH_ROLE_TRAIN, MAX_RUN_BODY, NULL},
    {"POST", "/leave", post_leave, FTH_ROLE_TRAIN, MAX_BODY, NULL},
    {"POST", "/moved", post_moved, FTH_ROLE_TRAIN, MAX_BODY, NULL},
    {"POST", "/lost", post_lost, FTH_ROLE_TRAIN, MAX_BODY, NULL},
    {"GET", "/key", get_key, FTH_ROLE_TRAIN, 0, NULL},
    {"PUT", "/key", put_key, FTH_ROLE_TRAIN, FTH_MAX_KEY_BYTES, NULL},
    {0},
};

/* ---- beginning and end ---- */

static fth_status listen_at(fth_rendezvous *rendezvous, const char *address, int port)
{
    fth_status status = fth_server_start(&(fth_server_options){.address = address,
                                                               .port = port,
                                                               .routes = routes,
                                                               .context = rendezvous,
                                                               .admit = admit,
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

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *rendezvous, &rendezvous));
    pthread_mutex_init(&rendezvous->mutex, NULL);
    pthread_cond_init(&rendezvous->changed, NULL);
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
    uint64_t random = 0;
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
    fth_server_stop(rendezvous->server, 1); /* answers what is held; those answers below only free it */
    for (held *item = rendezvous->held, *next; item; item = next) {
        next = item->next;
        fth_exchange_answer(item->exchange, 503, NULL, NULL, 0);
        free_held(item);
    }
    fth_roster_free(rendezvous->roster);
    fth_group_keys_free(rendezvous->keys);
    free(rendezvous->configuration);
    free(rendezvous->configured_by);
    free(rendezvous->found);
    free(rendezvous->found_by);
    free(rendezvous->moved.address);
    free(rendezvous->run);
    pthread_mutex_destroy(&rendezvous->mutex);
    pthread_cond_destroy(&rendezvous->changed);
    free(rendezvous);
}
