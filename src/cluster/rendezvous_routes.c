/* The requests of the rendezvous. They are POST with a JSON object that names the member by its
 * incarnation; answers are JSON objects:
 *
 *     GET  /rendezvous  which service this is; needs no token
 *     POST /open        adds a process as a member
 *     POST /beat        a sign of life; answered after BEAT_S, or at once when the member's group
 *                       has ended, when others wait to join, or when the caller is no longer a
 *                       member (410)
 *     POST /join        answered with a group, or with 202 and what is missing
 *     POST /find        answered with the run, with "find" if this member is to find it, or with
 *                       202
 *     POST /share       the run that was found
 *     POST /leave
 *     POST /lost        from an agent: a process, or all of a node, has ended
 *     PUT  /key,        ?member=&generation=&key=, bytes; a GET waits for the key, and gets 202 if
 *     GET  /key         it does not come
 *     POST /moved       from a successor (succession.h): for MOVED_S, members are answered
 *                       FTH_RENDEZVOUS_MOVED
 *     GET  /members     the whole roster, for people and agents
 *
 * Beats, joins, finds and gets of keys are long polls: they are answered after a change, or when
 * their time is over. */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/rendezvous_internal.h"

enum { MAX_BODY = 64 << 10, MAX_OPEN_BODY = 17 << 20, MAX_RUN_BODY = 16 << 20 };
static const double BEAT_S = 1, JOIN_S = 2, FIND_S = 5, KEY_S = 10, MOVED_S = 3;

bool fth_rendezvous_admit(void *context, fth_exchange *exchange, const fth_route *route, fth_role *role)
{
    fth_rendezvous *rendezvous = context;
    const char *header = fth_exchange_header(exchange, "Authorization");
    char hash[65];

    if (fth_exchange_is_cross_origin(exchange)) {
        fth_rendezvous_refuse(exchange, 403,
                              "the request comes from a page in a browser; a rendezvous is for programs");
        return false;
    }
    if (route->role == FTH_ROLE_NONE)
        return true;
    const char *token = header && strncmp(header, "Bearer ", 7) == 0 ? header + 7 : "";
    fth_hex_sha256(token, strlen(token), hash);
    if (rendezvous->needs_token && CRYPTO_memcmp(hash, rendezvous->token_hash, 64) != 0) {
        fth_rendezvous_refuse(exchange, 401, "%s",
                              *token ? "the token is not the one of this rendezvous" : "the token is missing");
        return false;
    }
    *role = FTH_ROLE_TRAIN;
    if (rendezvous->needs_token)
        fth_exchange_set_authenticated(exchange);
    if (strcmp(route->path, "/moved") == 0 || strcmp(route->path, "/members") == 0)
        return true;
    pthread_mutex_lock(&rendezvous->mutex);
    bool redirected = fth_rendezvous_redirect(rendezvous, exchange);
    pthread_mutex_unlock(&rendezvous->mutex);
    return !redirected;
}

static void get_rendezvous(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    pthread_mutex_lock(&rendezvous->mutex);
    fth_rendezvous_answer(exchange, 200,
                          json_pack("{s:s, s:b, s:I, s:s*}", "version", FTH_VERSION, "token", rendezvous->needs_token,
                                    "newest", (json_int_t)fth_roster_newest(rendezvous->roster), "moved",
                                    fth_rendezvous_successor(rendezvous)));
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
    fth_rendezvous_answer(exchange, 200, json);
}

/* Locks the rendezvous and notes a sign of life. False: not a member; unlocked, and the request
 * refused. */
static bool enter(fth_rendezvous *rendezvous, fth_exchange *exchange, int64_t member)
{
    pthread_mutex_lock(&rendezvous->mutex);
    if (fth_roster_hear(rendezvous->roster, fth_clock_seconds(), member, 0, NULL))
        return true;
    fth_rendezvous_refuse_stranger(rendezvous, exchange, member);
    pthread_mutex_unlock(&rendezvous->mutex);
    return false;
}

/* Unlocks it after a change that others may wait for. */
static void leave_changed(fth_rendezvous *rendezvous)
{
    fth_long_polls_check(&rendezvous->waiting);
    pthread_mutex_unlock(&rendezvous->mutex);
}

/* True if the text is the agreed one; else refuses, with the differences after `what`. */
static bool check_agreement(const fth_agreement *agreement, fth_exchange *exchange, const char *text, const char *node,
                            const char *what)
{
    char *difference = agreement->text ? fth_agreement_difference(agreement, text, node) : NULL;
    if (!agreement->text)
        fth_rendezvous_refuse(exchange, 503, "no memory");
    else if (difference)
        fth_rendezvous_refuse(exchange, 409, "%s: %s", what, difference);
    bool same = agreement->text && !difference;
    free(difference);
    return same;
}

/* True if the process may become a member; else refuses it. */
static bool check_introduction(fth_rendezvous *rendezvous, fth_exchange *exchange, const fth_introduction *introduction,
                               const char *name)
{
    char what[512];
    if (strcmp(introduction->version, FTH_VERSION) != 0) {
        fth_rendezvous_refuse(exchange, 409,
                              "%s runs farthing %s and the rendezvous %s; install one version on all nodes", name,
                              introduction->version, FTH_VERSION);
        return false;
    }
    if (strcmp(introduction->run, rendezvous->run) != 0) {
        fth_rendezvous_refuse(exchange, 409,
                              "%s is of run %s and this rendezvous of run %s; give each run a rendezvous of its own",
                              name, introduction->run, rendezvous->run);
        return false;
    }
    if (fth_roster_count(rendezvous->roster) == 0 || !rendezvous->configuration.text)
        FTH_IGNORE(
            fth_agreement_set(&rendezvous->configuration, introduction->configuration, introduction->newcomer.node),
            "without memory, the next member's counts");
    snprintf(what, sizeof what, "%s was given other options than the others", name);
    return check_agreement(&rendezvous->configuration, exchange, introduction->configuration,
                           introduction->newcomer.node, what);
}

/* What a member needs to know if it hosts a successor. */
static json_t *describe_limits(const fth_roster_options *limits)
{
    return json_pack("{s:i, s:i, s:f, s:f, s:f}", "least", limits->least, "most", limits->most, "join_wait_s",
                     limits->join_wait_s, "lost_after_s", limits->lost_after_s, "stuck_after_s", limits->stuck_after_s);
}

static void post_open(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    fth_introduction introduction;
    int64_t member = 0;
    json_t *json = fth_introduction_read(exchange, &introduction);
    if (!json)
        return;
    char *name = fth_introduction_name(&introduction);
    pthread_mutex_lock(&rendezvous->mutex);
    if (check_introduction(rendezvous, exchange, &introduction, name ? name : "a process")) {
        if (fth_roster_add(rendezvous->roster, fth_clock_seconds(), &introduction.newcomer, &member) == FTH_OK)
            fth_rendezvous_answer(exchange, 200,
                                  json_pack("{s:I, s:f, s:o}", "member", (json_int_t)member, "wall_s",
                                            fth_clock_wall_seconds(), "limits", describe_limits(&rendezvous->limits)));
        else
            fth_rendezvous_refuse(exchange, 503, "%s", fth_error_message());
    }
    leave_changed(rendezvous);
    free(name);
    json_decref(json);
}

static void post_beat(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_int_t member, generation, step;
    const char *activity;
    int ending;
    json_t *json = fth_rendezvous_read(exchange, "{s:I, s:I, s:b, s:I, s:s}", "member", &member, "generation",
                                       &generation, "ending", &ending, "step", &step, "activity", &activity);
    if (!json)
        return;
    if (enter(rendezvous, exchange, member)) {
        fth_roster_hear(rendezvous->roster, fth_clock_seconds(), member, step, activity);
        fth_rendezvous_drop_former_beat(rendezvous, member);
        fth_rendezvous_hold(
            rendezvous, exchange,
            &(fth_wait){.kind = FTH_WAIT_BEAT, .member = member, .generation = generation, .ending = ending}, BEAT_S);
        pthread_mutex_unlock(&rendezvous->mutex);
    }
    json_decref(json);
}

/* True if the member found what the others have found; else refuses it. The first member's finding
 * counts, until that member is gone without having been in a group, or no other member is left. */
static bool check_found(fth_rendezvous *rendezvous, fth_exchange *exchange, int64_t member, const char *node,
                        const char *found)
{
    const fth_roster *roster = rendezvous->roster;
    bool obsolete = !fth_roster_has(roster, rendezvous->finder) &&
                    (fth_roster_get_group(roster).generation == 0 || fth_roster_count(roster) == 1);
    if (!rendezvous->found.text || obsolete) {
        FTH_IGNORE(fth_agreement_set(&rendezvous->found, found, node), "without memory, the next member's counts");
        rendezvous->finder = member;
    }
    return check_agreement(&rendezvous->found, exchange, found, node, "nodes have different data");
}

static void post_join(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_int_t member, after;
    const char *node = "a node", *found = NULL;
    int unreached = -1;
    json_t *json = fth_rendezvous_read(exchange, "{s:I, s:I, s?i, s?s, s?s}", "member", &member, "after", &after,
                                       "unreached", &unreached, "node", &node, "found", &found);
    if (!json)
        return;
    if (enter(rendezvous, exchange, member)) {
        if (!found || check_found(rendezvous, exchange, member, node, found)) {
            fth_roster_blame(rendezvous->roster, member, after, unreached);
            fth_roster_join(rendezvous->roster, fth_clock_seconds(), member, after);
            fth_rendezvous_hold(rendezvous, exchange,
                                &(fth_wait){.kind = FTH_WAIT_JOIN, .member = member, .generation = after}, JOIN_S);
        }
        leave_changed(rendezvous);
    }
    json_decref(json);
}

static void post_find(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_int_t member;
    json_t *json = fth_rendezvous_read(exchange, "{s:I}", "member", &member);
    if (!json)
        return;
    if (enter(rendezvous, exchange, member)) {
        fth_rendezvous_hold(rendezvous, exchange, &(fth_wait){.kind = FTH_WAIT_FIND, .member = member}, FIND_S);
        pthread_mutex_unlock(&rendezvous->mutex);
    }
    json_decref(json);
}

static void post_share(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_t *run;
    json_int_t member;
    json_t *json = fth_rendezvous_read(exchange, "{s:I, s:o}", "member", &member, "run", &run);
    if (!json)
        return;
    if (enter(rendezvous, exchange, member)) {
        if (fth_roster_set_run(rendezvous->roster, member, run))
            fth_rendezvous_answer(exchange, 200, json_object());
        else
            fth_rendezvous_refuse(exchange, 409, "another member finds the run");
        leave_changed(rendezvous);
    }
    json_decref(json);
}

static void post_leave(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_int_t member;
    const char *reason;
    json_t *json = fth_rendezvous_read(exchange, "{s:I, s:s}", "member", &member, "reason", &reason);
    if (!json)
        return;
    if (enter(rendezvous, exchange, member)) {
        fth_roster_leave(rendezvous->roster, fth_clock_seconds(), member, reason);
        fth_rendezvous_answer(exchange, 200, json_object());
        leave_changed(rendezvous);
    }
    json_decref(json);
}

static void post_lost(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    json_int_t process;
    const char *node, *reason;
    json_t *json =
        fth_rendezvous_read(exchange, "{s:s, s:I, s:s}", "node", &node, "process", &process, "reason", &reason);
    if (!json)
        return;
    pthread_mutex_lock(&rendezvous->mutex);
    int lost = fth_roster_lose(rendezvous->roster, fth_clock_seconds(), node, process, reason);
    fth_rendezvous_answer(exchange, 200, json_pack("{s:i}", "lost", lost));
    leave_changed(rendezvous);
    json_decref(json);
}

/* A successor, which started while this rendezvous was lost, has a group. Unless this rendezvous
 * has a newer one, members are redirected for as long as the successor repeats this, so that two
 * groups of one run become one again. */
static void post_moved(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    const char *run, *address;
    json_int_t generation;
    json_t *json =
        fth_rendezvous_read(exchange, "{s:s, s:s, s:I}", "run", &run, "address", &address, "generation", &generation);
    if (!json)
        return;
    pthread_mutex_lock(&rendezvous->mutex);
    fth_roster_group group = fth_roster_get_group(rendezvous->roster);
    char *copy = strlen(address) <= FTH_RENDEZVOUS_MAX_NAME && fth_is_printable(address) ? strdup(address) : NULL;
    if (strcmp(run, rendezvous->run) != 0 || generation < group.generation || !copy) {
        fth_rendezvous_refuse(exchange, 409, "this rendezvous is of another run, or has a newer group");
        free(copy);
    } else {
        free(rendezvous->moved.address);
        rendezvous->moved.address = copy;
        rendezvous->moved.until_s = fth_clock_seconds() + MOVED_S;
        fth_rendezvous_answer(exchange, 200, json_object());
    }
    leave_changed(rendezvous);
    json_decref(json);
}

static void get_key(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    int64_t member, generation;
    char *key = fth_rendezvous_read_key(exchange, &member, &generation);
    if (!key)
        return;
    if (!enter(rendezvous, exchange, member)) {
        free(key);
        return;
    }
    fth_rendezvous_hold(rendezvous, exchange,
                        &(fth_wait){.kind = FTH_WAIT_KEY, .member = member, .generation = generation, .key = key},
                        KEY_S);
    pthread_mutex_unlock(&rendezvous->mutex);
}

static void put_key(void *context, fth_exchange *exchange)
{
    fth_rendezvous *rendezvous = context;
    int64_t member, generation;
    size_t size = 0;
    const void *bytes = fth_exchange_body(exchange, &size);
    char *key = fth_rendezvous_read_key(exchange, &member, &generation);
    if (key && enter(rendezvous, exchange, member)) {
        if (fth_rendezvous_check_group(rendezvous, exchange, member, generation)) {
            if (fth_group_keys_put(rendezvous->keys, key, bytes, size) == FTH_OK)
                fth_rendezvous_answer(exchange, 200, json_object());
            else
                fth_rendezvous_refuse(exchange, 413, "%s", fth_error_message());
        }
        leave_changed(rendezvous);
    }
    free(key);
}

const fth_route fth_rendezvous_routes[] = {
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
