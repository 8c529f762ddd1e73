/* The lease: one machine at a time owns a run in a store. spot.h has the states; the rules behind
 * them:
 *
 * - lease.json is written only on the condition that it is still the text last read. So if several
 *   processes follow one owner, one succeeds, and a renewal fails once another owner has followed.
 * - An owner counts its period from before it sends a renewal; a waiting process counts from after
 *   it has read the text. The first count always ends before the second, however long requests take
 *   and whatever the wall clocks say.
 * - Every text differs from every other (by a count of renewals and the owner's random name), so
 *   "unchanged" means "not renewed", even if versions are checksums of the content.
 * - An owner's random name begins with that of its group. The leader of a group replaces the text
 *   of the former leader, on the same condition.
 * - A renewal whose answer is lost may have happened: the text is read again, and renewed again if
 *   it is ours. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/process.h"
#include "spot/lease_text.h"
#include "spot/spot.h"

#define USUAL_PERIOD_S    10.0
#define SHORTEST_PERIOD_S 0.2
#define SLICE_S           0.02 /* between looks at a request to stop */
#define HANDOVER_S        0.5  /* that a former leader of a group has to give up the lease by itself */
#define REFUSED_FOR_S     60.0 /* how long failing writes are retried by a machine that has waited for another */

enum { MOST_LOST_WRITES = 50 };

/* The phases of a lease that this process took; it may be freed in any of them. */
typedef enum lease_state {
    LEASE_HELD,     /* renewed by the thread, or by a guard */
    LEASE_LOST,     /* another owner has it; the stop was requested */
    LEASE_RELEASED, /* given up in order */
} lease_state;

/* Three parts by their locks: what never changes, the renewal under way, and what others ask
 * about. */
struct fth_lease {
    fth_store *store;
    fth_stop *stop, *lost_stop; /* ends waiting; requested when the lease is lost */
    fth_lease_text own;         /* as this process writes it */
    double previous_seen_s, previous_process_s;

    pthread_mutex_t renewing; /* held during a renewal: the thread's or a guard's */
    fth_store_version version;
    int64_t renewals;
    bool unsure; /* whether the last write happened is unknown */

    pthread_mutex_t mutex; /* guards the rest; never held during a request to the store */
    pthread_cond_t changed;
    lease_state state;
    double held_until_s; /* fth_clock_boot_seconds(): a machine that slept must notice it */
    bool warned;         /* that the period passed without a renewal */
    char lost_to[256];
    bool closing;
    pthread_t thread;
    bool running;
};

/* Writes the lease as ours, or free with owner "". *lost: another owner has followed. */
static fth_status write_text(fth_lease *lease, bool free_it, const fth_store_version *match, double deadline_s,
                             bool *lost)
{
    fth_store_version version = {0};
    fth_lease_text text = lease->own;
    if (free_it)
        *text.owner = '\0';
    fth_status status = fth_lease_text_write(lease->store, &text, lease->renewals++, match, deadline_s, lost, &version);
    if (status == FTH_OK && !*lost)
        lease->version = version;
    return status;
}

/* ---- renewing ---- */

static void set_held(fth_lease *lease, double since_s)
{
    pthread_mutex_lock(&lease->mutex);
    lease->held_until_s = since_s + lease->own.period_s;
    lease->warned = false;
    pthread_mutex_unlock(&lease->mutex);
}

static fth_status fail_lost(const fth_lease *lease)
{
    return fth_fail(FTH_PEER_LOST, "%s", lease->lost_to);
}

static fth_status set_lost(fth_lease *lease, const fth_lease_text *text)
{
    char name[256];
    fth_lease_text_name_owner(text, name, sizeof name);
    pthread_mutex_lock(&lease->mutex);
    if (lease->state != LEASE_LOST)
        snprintf(lease->lost_to, sizeof lease->lost_to, "%.180s has taken this run over; this machine writes no more",
                 *name ? name : "another machine");
    lease->state = LEASE_LOST;
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
    fth_lease_text text = {0};
    bool deleted = false;
    for (int tries = 0; tries < 3; tries++) {
        if (lease->unsure || tries > 0) {
            FTH_TRY(fth_lease_text_read(lease->store, &text));
            if (text.present && strcmp(text.owner, lease->own.owner) != 0) {
                status = set_lost(lease, &text);
                goto out;
            }
            lease->version = text.version; /* an earlier write of ours, whose answer was lost */
            lease->unsure = false;
            deleted = !text.present; /* by a person, or with the folder: nobody else owns the run, so it stays ours */
        }
        bool lost;
        double before_s = fth_clock_boot_seconds();
        status = write_text(lease, false, deleted ? NULL : &lease->version, deadline_s, &lost);
        lease->unsure = status != FTH_OK;
        if (status != FTH_OK)
            goto out;
        if (!lost) {
            set_held(lease, before_s);
            goto out;
        }
    }
    status = fth_fail(FTH_IO, "%s/" FTH_LEASE_KEY " changes under the one who holds it", fth_store_url(lease->store));
out:
    fth_lease_text_release(&text);
    return status;
}

static lease_state get_state(fth_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    lease_state state = lease->state;
    pthread_mutex_unlock(&lease->mutex);
    return state;
}

/* Fails unless the lease is held. A thread may still be writing when another has given the run up:
 * the next owner may already be at work. */
static fth_status check_held(fth_lease *lease)
{
    switch (get_state(lease)) {
    case LEASE_HELD: return FTH_OK;
    case LEASE_LOST: return fail_lost(lease);
    case LEASE_RELEASED: break;
    }
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
    fth_status status = check_held(lease);
    if (status == FTH_OK)
        status = renew_once(lease, fmax(lease->own.period_s / 2, 1));
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
    double pause_s = lease->own.period_s / 3;
    for (;;) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(pause_s));
        pthread_mutex_lock(&lease->mutex);
        while (!lease->closing && pthread_cond_clockwait(&lease->changed, &lease->mutex, CLOCK_MONOTONIC, &until) == 0)
            ;
        bool done = lease->closing || lease->state == LEASE_LOST;
        pthread_mutex_unlock(&lease->mutex);
        if (done)
            return NULL;
        fth_status status = renew(lease);
        if (get_state(lease) == LEASE_LOST)
            return NULL;
        pause_s = status == FTH_OK ? lease->own.period_s / 3 : lease->own.period_s / 10;
        if (status != FTH_OK && should_warn(lease))
            fth_log_warning("the lease of this run could not be renewed in time; nothing is written until it is: %s",
                            fth_error_message());
    }
}

fth_status fth_lease_guard(fth_lease *lease, double margin_s)
{
    fth_status status = check_held(lease);
    if (status != FTH_OK || held_for(lease) >= margin_s)
        return status;
    status = renew(lease); /* after the thread's own try, if one is under way */
    if (status != FTH_OK)
        return status == FTH_PEER_LOST ? status : fth_fail_within(status, "renewing the lease of this run");
    if (held_for(lease) >= fmin(margin_s, lease->own.period_s * 0.8))
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
    lease->own.period_s = fmax(options->period_s > 0 ? options->period_s : USUAL_PERIOD_S, SHORTEST_PERIOD_S);
    pthread_mutex_init(&lease->renewing, NULL);
    pthread_mutex_init(&lease->mutex, NULL);
    pthread_cond_init(&lease->changed, NULL);
    draw_owner(lease->own.owner);
    if (options->group && strlen(options->group) == FTH_LEASE_GROUP_BYTES - 1)
        memcpy(lease->own.owner, options->group, FTH_LEASE_GROUP_BYTES - 1);
    if (options->name && *options->name)
        snprintf(lease->own.host, sizeof lease->own.host, "%s", options->name);
    else
        gethostname(lease->own.host, sizeof lease->own.host - 1);
    snprintf(lease->own.instance, sizeof lease->own.instance, "%s", options->instance ? options->instance : "");
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
static bool is_former_leader(const fth_lease_text *text, const fth_lease_options *options, double waited_s)
{
    return waited_s >= HANDOVER_S && options->leads && atomic_load(options->leads) && options->group &&
           *options->group && text->present && *text->owner &&
           strncmp(text->owner, options->group, strlen(options->group)) == 0;
}

/* Writes ourselves over `seen`. FTH_OK and *ours false: another owner was faster. */
static fth_status take(fth_lease *lease, const fth_lease_text *seen, bool *ours)
{
    bool lost = false;
    fth_lease_text now = {0};
    lease->own.fence = seen->fence + 1;
    bool died = seen->present && *seen->owner; /* rather than left in order */
    lease->previous_seen_s = died ? seen->renewed_s : 0;
    lease->previous_process_s = died ? seen->process_s : 0;
    double before_s = fth_clock_boot_seconds();
    fth_status status = write_text(lease, false, seen->present ? &seen->version : NULL, 0, &lost);
    *ours = status == FTH_OK && !lost;
    if (status == FTH_TIMEOUT || status == FTH_IO) {
        /* The write may have taken effect all the same. If not, the caller gets the first
         * reason. */
        char why[1024];
        snprintf(why, sizeof why, "%s", fth_error_message());
        fth_status again = fth_lease_text_read(lease->store, &now);
        *ours = again == FTH_OK && now.present && strcmp(now.owner, lease->own.owner) == 0;
        if (*ours)
            lease->version = now.version;
        if (*ours || (again == FTH_OK && !fth_lease_text_same(&now, seen)))
            status = FTH_OK;
        else
            status = fth_fail(status, "%s", why);
        fth_lease_text_release(&now);
    }
    if (*ours)
        set_held(lease, before_s);
    return status;
}

/* What the loop below knows while it waits. */
typedef struct waiting {
    fth_lease_text seen;   /* the text as it last changed */
    double seen_at_s;      /* when that was; fth_clock_boot_seconds() */
    bool looked;           /* the store has been read at least once */
    bool held_by_another;  /* there was an owner to wait for */
    bool warned;           /* of a store that fails */
    double refused_from_s; /* the first of the writes in a row that failed; NAN: the last one did not */
    int lost_writes;       /* in a row, while the text stayed as it was */
} waiting;

static fth_status pause_before_next_look(const fth_lease *lease)
{
    return sleep_unless_stopped(lease, fmin(lease->own.period_s / 10, 1));
}

/* Whether a failure of the store is to be waited out. A process that waits for another machine,
 * perhaps for days, does not give up because the store is away for a while. Waiting does not help
 * with a store that could never be read, or that cannot be written although the lease is free. */
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
                            "%s/" FTH_LEASE_KEY
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
    fth_lease_text now = {0};
    double began_s = fth_clock_boot_seconds(), told_s = -INFINITY;
    bool ours = false;
    char owner[256];
    while (!ours) {
        status = fth_lease_text_read(lease->store, &now);
        if (status != FTH_OK) {
            FTH_TRY(outlast(lease, &w, status, deadline));
            continue;
        }
        double now_s = fth_clock_boot_seconds();
        if (!w.looked || !fth_lease_text_same(&now, &w.seen)) {
            fth_lease_text_release(&w.seen);
            w.seen = now;
            now = (fth_lease_text){0};
            w.seen_at_s = now_s;
            w.looked = true;
            w.lost_writes = 0;
        }
        /* The owner's own period counts, should it be longer than ours; a wild one does not hold us
         * for ever. */
        double patience_s = fmax(lease->own.period_s, fmin(w.seen.period_s, 3600));
        bool lapsed = w.seen.present && *w.seen.owner && now_s - w.seen_at_s >= patience_s;
        if (!w.seen.present || !*w.seen.owner || lapsed || is_former_leader(&w.seen, options, now_s - began_s)) {
            FTH_TRY(try_to_take(lease, &w, deadline, &ours));
            if (ours && lapsed) {
                fth_lease_text_name_owner(&w.seen, owner, sizeof owner);
                fth_log_info("taking the run over from %s, silent for %.3g s", owner, now_s - w.seen_at_s);
            }
            continue;
        }
        w.held_by_another = true;
        fth_lease_text_name_owner(&w.seen, owner, sizeof owner);
        FTH_REQUIRE(!fth_deadline_passed(deadline), FTH_TIMEOUT, "%s holds the lease of %s", owner,
                    fth_store_url(lease->store));
        if (options->waiting && now_s - told_s >= 1) {
            options->waiting(options->waiting_context, owner, now_s - began_s);
            told_s = now_s;
        }
        double pause_s = fmin(fmin(lease->own.period_s / 10, 1), fth_deadline_left_seconds(deadline));
        FTH_TRY(sleep_unless_stopped(lease, fmin(pause_s, fmax(w.seen_at_s + patience_s - now_s, 0.001))));
    }
out:
    fth_lease_text_release(&now);
    fth_lease_text_release(&w.seen);
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
    return lease->own.fence;
}

void fth_lease_get_group(const fth_lease *lease, char group[FTH_LEASE_GROUP_BYTES])
{
    snprintf(group, FTH_LEASE_GROUP_BYTES, "%.*s", FTH_LEASE_GROUP_BYTES - 1, lease->own.owner);
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
    fth_lease_text text = {0};
    bool lost = false;
    if (get_state(lease) == LEASE_LOST)
        return fail_lost(lease);
    pthread_mutex_lock(&lease->renewing); /* after a guard's renewal, if one is under way, and none follows */
    pthread_mutex_lock(&lease->mutex);
    lease->state = LEASE_RELEASED;
    lease->held_until_s = -INFINITY;
    pthread_mutex_unlock(&lease->mutex);
    if (lease->unsure) {
        FTH_TRY(fth_lease_text_read(lease->store, &text));
        lost = !text.present || strcmp(text.owner, lease->own.owner) != 0;
        lease->version = text.version;
    }
    if (!lost)
        FTH_TRY(write_text(lease, true, &lease->version, fmax(lease->own.period_s, 1), &lost));
    if (lost)
        status = fth_fail(FTH_PEER_LOST, "another machine has taken the lease of %s", fth_store_url(lease->store));
out:
    fth_lease_text_release(&text);
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
