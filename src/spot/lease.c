/* The lease: one machine at a time owns a run in a store. The states are drawn in spot.h; the rules
 * behind them:
 *
 * - lease.json is only ever written on the condition that it is still the text last seen. So of all who try to follow
 *   one owner, one succeeds, and a renewal fails once another owner has followed.
 * - An owner counts its period from before it sends a renewal; who waits counts from after it has read the text. The
 *   first count always ends before the second, however long requests take and whatever the wall clocks say.
 * - Every text differs from every other (a count of renewals, the owner's random name), so "unchanged" means "not
 *   renewed", also where versions are checksums of the content.
 * - An owner's random name begins with that of its group. The process that leads a group writes over the text of the
 * one that led before, on the same condition: that one has no more right to the run than its group has.
 * - A renewal whose answer is lost may have happened: the text is read again, and if it is ours it is renewed
 * again. */
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/process.h"
#include "spot/spot.h"

#define LEASE_KEY         "lease.json"
#define USUAL_PERIOD_S    10.0
#define SHORTEST_PERIOD_S 0.2
#define SLICE_S           0.02 /* between looks at a request to stop */
#define HANDOVER_S        0.5  /* that a former leader of a group has to give up the lease by itself */
#define REFUSED_FOR_S     60.0 /* how long failing writes are retried by a machine that has waited for another */

enum { MAX_LEASE_BYTES = 64 << 10, MOST_LOST_WRITES = 50 };

/* What lease.json says. */
typedef struct lease_text {
    bool present;
    char *bytes;
    fth_store_version version;
    char owner[40], host[128], instance[64];
    int64_t fence;
    double period_s, renewed_s;
    double process_s; /* how long its owner's process had run when it was renewed; 0: unknown */
} lease_text;

/* One object for its three parts, separated by their locks: what never changes, the renewal under
 * way, and what others ask about. */
struct fth_lease {
    fth_store *store;
    fth_stop *stop, *lost_stop; /* ends waiting; asked when it is lost */
    char owner[40], host[128], instance[64];
    double period_s, previous_seen_s, previous_process_s;
    int64_t fence;

    pthread_mutex_t renewing; /* held during a renewal: the thread's or a guard's */
    fth_store_version version;
    int64_t renewals;
    bool unsure; /* the last write may or may not have happened */

    pthread_mutex_t mutex; /* the rest; never held while the store is asked */
    pthread_cond_t changed;
    double held_until_s; /* fth_clock_boot_seconds(): a machine that slept must notice it */
    bool lost, closing, released, warned;
    char lost_to[256];
    pthread_t thread;
    bool running;
};

/* ---- the text ---- */

static void release_text(lease_text *text)
{
    free(text->bytes);
    *text = (lease_text){0};
}

static void copy_member(char *to, size_t size, const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    snprintf(to, size, "%s", value ? value : "");
}

static fth_status parse_text(fth_store *store, lease_text *text)
{
    json_t *json = json_loads(text->bytes, 0, NULL);
    const json_t *fence = json_object_get(json, "fence");
    bool valid =
        json_is_string(json_object_get(json, "owner")) && json_is_integer(fence) && json_integer_value(fence) > 0;
    if (valid) {
        copy_member(text->owner, sizeof text->owner, json, "owner");
        copy_member(text->host, sizeof text->host, json, "host");
        copy_member(text->instance, sizeof text->instance, json, "instance");
        text->fence = json_integer_value(fence);
        text->period_s = json_number_value(json_object_get(json, "period_s"));
        text->renewed_s = json_number_value(json_object_get(json, "renewed_s"));
        text->process_s = json_number_value(json_object_get(json, "process_s"));
    }
    json_decref(json);
    if (!valid)
        return fth_fail(FTH_CORRUPT, "%s/" LEASE_KEY " is not a lease; if no machine trains this run, delete it",
                        fth_store_url(store));
    return FTH_OK;
}

static fth_status read_text(fth_store *store, lease_text *text)
{
    size_t size = 0;
    release_text(text);
    fth_status status = fth_store_get(store, LEASE_KEY, MAX_LEASE_BYTES, &text->bytes, &size, &text->version);
    if (status != FTH_OK)
        return status;
    text->present = text->bytes != NULL;
    return text->present ? parse_text(store, text) : FTH_OK;
}

/* Writes the lease as ours (or free, with owner ""), on the condition that it is still of version
 * `match`; NULL: that there is none. *lost: it was not. */
static fth_status write_text(fth_lease *lease, const char *owner, const fth_store_version *match, double deadline_s,
                             bool *lost)
{
    double now = fth_clock_wall_seconds();
    json_t *json = json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:s, s:I}", "owner", owner, "host", lease->host,
                             "fence", (json_int_t)lease->fence, "expires_s", now + lease->period_s, "period_s",
                             lease->period_s, "renewed_s", now, "process_s", fth_clock_process_seconds(), "instance",
                             lease->instance, "renewals", (json_int_t)lease->renewals++);
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    *lost = false;
    if (!text)
        return fth_fail(FTH_NO_MEMORY, "no memory for a lease");
    fth_store_put_options options = {.condition = match ? FTH_STORE_IF_MATCH : FTH_STORE_IF_ABSENT,
                                     .content_type = "application/json",
                                     .deadline_s = deadline_s};
    if (match)
        options.match = *match;
    fth_store_version version = {0};
    fth_status status = fth_store_put(lease->store, LEASE_KEY, text, strlen(text), &options, lost, &version);
    free(text);
    if (status == FTH_OK && !*lost)
        lease->version = version;
    return status;
}

/* "host-7 (g4dn.xlarge)" */
static void name_owner(const lease_text *text, char *name, size_t size)
{
    snprintf(name, size, "%s%s%s%s", *text->host ? text->host : text->owner, *text->instance ? " (" : "",
             text->instance, *text->instance ? ")" : "");
}

/* ---- renewing ---- */

static void set_held(fth_lease *lease, double since_s)
{
    pthread_mutex_lock(&lease->mutex);
    lease->held_until_s = since_s + lease->period_s;
    lease->warned = false;
    pthread_mutex_unlock(&lease->mutex);
}

static fth_status fail_lost(const fth_lease *lease)
{
    return fth_fail(FTH_PEER_LOST, "%s", lease->lost_to);
}

static fth_status set_lost(fth_lease *lease, const lease_text *text)
{
    char name[256];
    name_owner(text, name, sizeof name);
    pthread_mutex_lock(&lease->mutex);
    if (!lease->lost)
        snprintf(lease->lost_to, sizeof lease->lost_to, "%.180s has taken this run over; this machine writes no more",
                 *name ? name : "another machine");
    lease->lost = true;
    lease->held_until_s = -INFINITY;
    pthread_mutex_unlock(&lease->mutex);
    if (lease->lost_stop)
        fth_stop_ask(lease->lost_stop, FTH_STOP_FENCED, 0, "lease", "%s", lease->lost_to);
    return fail_lost(lease);
}

/* One try to renew; with `renewing` held. FTH_PEER_LOST: for good. Others: the store did not answer
 * as it should. */
static fth_status renew_once(fth_lease *lease, double deadline_s)
{
    fth_status status = FTH_OK;
    lease_text text = {0};
    bool deleted = false;
    for (int tries = 0; tries < 3; tries++) {
        if (lease->unsure || tries > 0) {
            FTH_TRY(read_text(lease->store, &text));
            if (text.present && strcmp(text.owner, lease->owner) != 0) {
                status = set_lost(lease, &text);
                goto out;
            }
            lease->version = text.version; /* an earlier write of ours, whose answer was lost */
            lease->unsure = false;
            deleted = !text.present; /* by a person, or with the folder: nobody else owns the run, so it stays ours */
        }
        bool lost;
        double before_s = fth_clock_boot_seconds();
        status = write_text(lease, lease->owner, deleted ? NULL : &lease->version, deadline_s, &lost);
        lease->unsure = status != FTH_OK;
        if (status != FTH_OK)
            goto out;
        if (!lost) {
            set_held(lease, before_s);
            goto out;
        }
    }
    status = fth_fail(FTH_IO, "%s/" LEASE_KEY " changes under the one who holds it", fth_store_url(lease->store));
out:
    release_text(&text);
    return status;
}

static bool is_lost(fth_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    bool lost = lease->lost;
    pthread_mutex_unlock(&lease->mutex);
    return lost;
}

static bool is_released(fth_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    bool released = lease->released;
    pthread_mutex_unlock(&lease->mutex);
    return released;
}

/* For a thread that is still writing when another has given the run up: the next owner may be at
 * work already. */
static fth_status fail_released(void)
{
    return fth_fail(FTH_PEER_LOST, "this machine has given the run up");
}

static double held_for(fth_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    double left_s = lease->held_until_s - fth_clock_boot_seconds();
    pthread_mutex_unlock(&lease->mutex);
    return left_s;
}

static fth_status renew(fth_lease *lease)
{
    pthread_mutex_lock(&lease->renewing);
    fth_status status = is_lost(lease)       ? fail_lost(lease)
                        : is_released(lease) ? fail_released()
                                             : renew_once(lease, fmax(lease->period_s / 2, 1));
    pthread_mutex_unlock(&lease->renewing);
    return status;
}

/* Once, when the period has passed without a renewal. */
static bool should_warn(fth_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    bool warn = !lease->warned && lease->held_until_s <= fth_clock_boot_seconds();
    lease->warned = lease->warned || warn;
    pthread_mutex_unlock(&lease->mutex);
    return warn;
}

static void *keep_renewing(void *context)
{
    fth_lease *lease = context;
    double pause_s = lease->period_s / 3;
    for (;;) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(pause_s));
        pthread_mutex_lock(&lease->mutex);
        while (!lease->closing && pthread_cond_clockwait(&lease->changed, &lease->mutex, CLOCK_MONOTONIC, &until) == 0)
            ;
        bool done = lease->closing || lease->lost;
        pthread_mutex_unlock(&lease->mutex);
        if (done)
            return NULL;
        fth_status status = renew(lease);
        if (status == FTH_PEER_LOST && is_lost(lease))
            return NULL;
        pause_s = status == FTH_OK ? lease->period_s / 3 : lease->period_s / 10;
        if (status != FTH_OK && should_warn(lease))
            fth_log_warning("the lease of this run could not be renewed in time; nothing is written until it is: %s",
                            fth_error_message());
    }
}

fth_status fth_lease_guard(fth_lease *lease, double margin_s)
{
    if (is_lost(lease))
        return fail_lost(lease);
    if (is_released(lease))
        return fail_released();
    if (held_for(lease) >= margin_s)
        return FTH_OK;
    fth_status status = renew(lease); /* after the thread's own try, if one is under way */
    if (status != FTH_OK)
        return status == FTH_PEER_LOST ? status : fth_fail_within(status, "renewing the lease of this run");
    if (held_for(lease) >= fmin(margin_s, lease->period_s * 0.8))
        return FTH_OK;
    return fth_fail(FTH_TIMEOUT, "the lease of this run could be renewed, but too slowly to be relied on");
}

/* ---- taking it ---- */

static void draw_owner(char owner[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) { /* cannot happen on this system; still differ */
        double now[2] = {fth_clock_wall_seconds(), fth_clock_seconds() + (double)getpid()};
        memcpy(bytes, now, sizeof bytes);
    }
    fth_hex_encode(bytes, sizeof bytes, owner);
}

static fth_status create(fth_store *store, const fth_lease_options *options, fth_lease **created)
{
    fth_lease *lease;
    fth_status status = fth_allocate(1, sizeof *lease, &lease);
    *created = NULL;
    if (status != FTH_OK)
        return status;
    lease->store = store;
    lease->stop = options->stop;
    lease->lost_stop = options->lost ? options->lost : options->stop;
    lease->period_s = fmax(options->period_s > 0 ? options->period_s : USUAL_PERIOD_S, SHORTEST_PERIOD_S);
    pthread_mutex_init(&lease->renewing, NULL);
    pthread_mutex_init(&lease->mutex, NULL);
    pthread_cond_init(&lease->changed, NULL);
    draw_owner(lease->owner);
    if (options->group && strlen(options->group) == FTH_LEASE_GROUP_BYTES - 1)
        memcpy(lease->owner, options->group, FTH_LEASE_GROUP_BYTES - 1);
    if (options->name && *options->name)
        snprintf(lease->host, sizeof lease->host, "%s", options->name);
    else
        gethostname(lease->host, sizeof lease->host - 1);
    snprintf(lease->instance, sizeof lease->instance, "%s", options->instance ? options->instance : "");
    *created = lease;
    return FTH_OK;
}

/* Sleeps for `seconds` at most; FTH_INTERRUPTED if a stop is asked meanwhile. */
static fth_status sleep_unless_stopped(const fth_lease *lease, double seconds)
{
    fth_deadline until = fth_deadline_in(seconds);
    for (;;) {
        if (lease->stop && lease->stop->asked)
            return fth_fail(FTH_INTERRUPTED, "asked to stop while waiting for the lease of %s",
                            fth_store_url(lease->store));
        double left_s = fmin(fth_deadline_left_seconds(until), SLICE_S);
        if (left_s <= 0)
            return FTH_OK;
        fth_sleep(left_s);
    }
}

/* Whether the owner is a process of our group, which we lead now, and was given a moment to leave
 * in order. */
static bool is_former_leader(const lease_text *text, const fth_lease_options *options, double waited_s)
{
    return waited_s >= HANDOVER_S && options->leads && atomic_load(options->leads) && options->group &&
           *options->group && text->present && *text->owner &&
           strncmp(text->owner, options->group, strlen(options->group)) == 0;
}

static bool same_text(const lease_text *a, const lease_text *b)
{
    return a->present == b->present && (!a->present || strcmp(a->bytes, b->bytes) == 0);
}

/* Writes ourselves over `seen`. FTH_OK and *ours false: another owner was faster. */
static fth_status take(fth_lease *lease, const lease_text *seen, bool *ours)
{
    bool lost = false;
    lease_text now = {0};
    lease->fence = seen->fence + 1;
    bool died = seen->present && *seen->owner; /* rather than left in order */
    lease->previous_seen_s = died ? seen->renewed_s : 0;
    lease->previous_process_s = died ? seen->process_s : 0;
    double before_s = fth_clock_boot_seconds();
    fth_status status = write_text(lease, lease->owner, seen->present ? &seen->version : NULL, 0, &lost);
    *ours = status == FTH_OK && !lost;
    if (status == FTH_TIMEOUT || status == FTH_IO) {
        /* The write may have taken effect all the same; where it has not, the reason is what the
         * caller needs. */
        char why[1024];
        snprintf(why, sizeof why, "%s", fth_error_message());
        fth_status again = read_text(lease->store, &now);
        *ours = again == FTH_OK && now.present && strcmp(now.owner, lease->owner) == 0;
        if (*ours)
            lease->version = now.version;
        if (*ours || (again == FTH_OK && !same_text(&now, seen)))
            status = FTH_OK;
        else
            status = fth_fail(status, "%s", why);
        release_text(&now);
    }
    if (*ours)
        set_held(lease, before_s);
    return status;
}

/* What the loop below knows while it waits. */
typedef struct waiting {
    lease_text seen;       /* the text as it last changed */
    double seen_at_s;      /* when that was; fth_clock_boot_seconds() */
    bool looked;           /* the store has been read at least once */
    bool held_by_another;  /* there was an owner to wait for */
    bool warned;           /* of a store that fails */
    double refused_from_s; /* the first of the writes in a row that failed; NAN: the last one did not */
    int lost_writes;       /* in a row, while the text stayed as it was */
} waiting;

static fth_status pause_before_next_look(const fth_lease *lease)
{
    return sleep_unless_stopped(lease, fmin(lease->period_s / 10, 1));
}

/* Whether a failure of the store is to be waited out. Whoever waits for another machine, perhaps
 * for days, does not give up because the store is away for a while. A store that could never be
 * read, or cannot be written although nobody holds the lease, will not get better by waiting. */
static bool may_get_better(const waiting *w, fth_status status, fth_deadline deadline)
{
    if ((status != FTH_IO && status != FTH_NO_SPACE && status != FTH_TIMEOUT) || fth_deadline_passed(deadline))
        return false;
    if (isnan(w->refused_from_s))
        return w->looked;
    return w->held_by_another && fth_clock_boot_seconds() - w->refused_from_s < REFUSED_FOR_S;
}

static fth_status outlast(const fth_lease *lease, waiting *w, fth_status status, fth_deadline deadline)
{
    if (!may_get_better(w, status, deadline))
        return status;
    if (!w->warned)
        fth_log_warning("waiting for the lease of %s: %s", fth_store_url(lease->store), fth_error_message());
    w->warned = true;
    return pause_before_next_look(lease);
}

/* Takes the lease of which `w->seen` is the text. A write that fails or is lost to another is
 * followed by a pause. */
static fth_status try_to_take(fth_lease *lease, waiting *w, fth_deadline deadline, bool *ours)
{
    fth_status status = sleep_unless_stopped(lease, 0);
    if (status != FTH_OK)
        return status;
    status = take(lease, &w->seen, ours);
    if (status == FTH_OK) {
        w->refused_from_s = NAN;
        if (*ours)
            return FTH_OK;
        if (++w->lost_writes > MOST_LOST_WRITES)
            return fth_fail(FTH_UNSUPPORTED,
                            "%s/" LEASE_KEY
                            " stays as it is, yet conditional writes to it fail as if it had changed; use "
                            "another store, or --lease off where only one machine trains",
                            fth_store_url(lease->store));
        return sleep_unless_stopped(lease, SLICE_S);
    }
    if (isnan(w->refused_from_s))
        w->refused_from_s = fth_clock_boot_seconds();
    return outlast(lease, w, status, deadline);
}

static fth_status wait_and_take(fth_lease *lease, const fth_lease_options *options, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    waiting w = {.refused_from_s = NAN};
    lease_text now = {0};
    double began_s = fth_clock_boot_seconds(), told_s = -INFINITY;
    bool ours = false;
    char owner[256];
    while (!ours) {
        status = read_text(lease->store, &now);
        if (status != FTH_OK) {
            FTH_TRY(outlast(lease, &w, status, deadline));
            continue;
        }
        double now_s = fth_clock_boot_seconds();
        if (!w.looked || !same_text(&now, &w.seen)) {
            release_text(&w.seen);
            w.seen = now;
            now = (lease_text){0};
            w.seen_at_s = now_s;
            w.looked = true;
            w.lost_writes = 0;
        }
        /* The owner's own period counts, should it be longer than ours; a wild one does not hold us
         * for ever. */
        double patience_s = fmax(lease->period_s, fmin(w.seen.period_s, 3600));
        bool lapsed = w.seen.present && *w.seen.owner && now_s - w.seen_at_s >= patience_s;
        if (!w.seen.present || !*w.seen.owner || lapsed || is_former_leader(&w.seen, options, now_s - began_s)) {
            FTH_TRY(try_to_take(lease, &w, deadline, &ours));
            if (ours && lapsed) {
                name_owner(&w.seen, owner, sizeof owner);
                fth_log_info("taking the run over from %s, silent for %.3g s", owner, now_s - w.seen_at_s);
            }
            continue;
        }
        w.held_by_another = true;
        name_owner(&w.seen, owner, sizeof owner);
        FTH_REQUIRE(!fth_deadline_passed(deadline), FTH_TIMEOUT, "%s holds the lease of %s", owner,
                    fth_store_url(lease->store));
        if (options->waiting && now_s - told_s >= 1) {
            options->waiting(options->waiting_context, owner, now_s - began_s);
            told_s = now_s;
        }
        double pause_s = fmin(fmin(lease->period_s / 10, 1), fth_deadline_left_seconds(deadline));
        FTH_TRY(sleep_unless_stopped(lease, fmin(pause_s, fmax(w.seen_at_s + patience_s - now_s, 0.001))));
    }
out:
    release_text(&now);
    release_text(&w.seen);
    return status;
}

fth_status fth_lease_acquire(fth_store *store, const fth_lease_options *options, fth_deadline deadline,
                             fth_lease **lease)
{
    static const fth_lease_options usual;
    fth_status status = FTH_OK;
    fth_lease *taken = NULL;
    *lease = NULL;
    options = options ? options : &usual;
    FTH_TRY(fth_store_check_conditions(store));
    FTH_TRY(create(store, options, &taken));
    FTH_TRY(wait_and_take(taken, options, deadline));
    taken->running = fth_thread_start(&taken->thread, "lease", keep_renewing, taken) == 0;
    FTH_REQUIRE(taken->running, FTH_NO_MEMORY, "no thread to renew a lease");
    *lease = taken;
    taken = NULL;
out:
    fth_lease_free(taken);
    return status;
}

int64_t fth_lease_fence(const fth_lease *lease)
{
    return lease->fence;
}

void fth_lease_get_group(const fth_lease *lease, char group[FTH_LEASE_GROUP_BYTES])
{
    snprintf(group, FTH_LEASE_GROUP_BYTES, "%.*s", FTH_LEASE_GROUP_BYTES - 1, lease->owner);
}

double fth_lease_previous_seen_s(const fth_lease *lease)
{
    return lease->previous_seen_s;
}

double fth_lease_previous_process_s(const fth_lease *lease)
{
    return lease->previous_process_s;
}

/* ---- leaving it ---- */

static void stop_renewing(fth_lease *lease)
{
    if (!lease->running)
        return;
    pthread_mutex_lock(&lease->mutex);
    lease->closing = true;
    pthread_cond_broadcast(&lease->changed);
    pthread_mutex_unlock(&lease->mutex);
    pthread_join(lease->thread, NULL);
    lease->running = false;
}

fth_status fth_lease_release(fth_lease *lease)
{
    stop_renewing(lease);
    fth_status status = FTH_OK;
    lease_text text = {0};
    bool lost = false;
    if (is_lost(lease))
        return fail_lost(lease);
    pthread_mutex_lock(&lease->renewing); /* after a guard's renewal, if one is under way, and none follows */
    pthread_mutex_lock(&lease->mutex);
    lease->released = true;
    lease->held_until_s = -INFINITY;
    pthread_mutex_unlock(&lease->mutex);
    if (lease->unsure) {
        FTH_TRY(read_text(lease->store, &text));
        lost = !text.present || strcmp(text.owner, lease->owner) != 0;
        lease->version = text.version;
    }
    if (!lost)
        FTH_TRY(write_text(lease, "", &lease->version, fmax(lease->period_s, 1), &lost));
    if (lost)
        status = fth_fail(FTH_PEER_LOST, "another machine has taken the lease of %s", fth_store_url(lease->store));
out:
    release_text(&text);
    pthread_mutex_unlock(&lease->renewing);
    return status;
}

void fth_lease_free(fth_lease *lease)
{
    if (!lease)
        return;
    stop_renewing(lease);
    pthread_cond_destroy(&lease->changed);
    pthread_mutex_destroy(&lease->mutex);
    pthread_mutex_destroy(&lease->renewing);
    free(lease);
}
