/* See client_supply.h. The thread that registers again is started by the first trouble, and ends
 * with the supply. */
#include "batches/client/client_supply.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "http/http.h"

/* A host that has not given what is waited for after SILENCE_S is asked whether it is alive, and
 * has ANSWER_S for that. One that is alive and slow is waited for PATIENCE_S; then only briefly,
 * until something comes that was waited for, or IMPATIENT_FOR_S after the last time. What was there
 * before does not count: samples of an earlier epoch come while nothing new does. */
#define SILENCE_S       2.0
#define ANSWER_S        1.0
#define PATIENCE_S      4.0
#define IMPATIENCE_S    0.05
#define STEP_S          0.25
#define REGISTER_S      3.0
#define IMPATIENT_FOR_S 10.0
/* The first tries are shorter: who closes a supply waits for one that is under way. */
#define LEAST_REGISTER_S 1.0
/* A supply that is opened while the host is away, perhaps for an evaluation of a moment, does not
 * try at once. */
#define LATER_S 0.5
/* A host that gives everything is looked at this often: it may have gone, and what comes is what it
 * has left in memory. */
#define LOOK_EVERY_S 1.0
/* For telling a host that was started again that the job is done. */
#define FINISH_S 0.5

struct fth_supply {
    const fth_batches_address *address;
    fth_job_spec spec;
    char why[256];
    atomic_ullong counters[FTH_SLOT_COUNTERS]; /* in all */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    uint64_t job;
    fth_connection *connection;
    bool connected;
    uint64_t unreported[FTH_SLOT_COUNTERS]; /* counted while not connected: the next slot begins with it */
    double waiting_since; /* for something that has not come, with nothing in between; 0: nobody waits */
    double asked_at;      /* when the host last answered that it is alive */
    double looked_at;     /* when its connection was last looked at */
    double impatient_until;
    fth_status failure;        /* of the cache, since it last gave something that was waited for; FTH_OK: none */
    char cause[480];           /* of it */
    bool refused;              /* the cache has said that it cannot hold the job's batches */
    int64_t next, stride, end; /* next is -1 until it is known */
    pthread_t mender;
    double mend_at; /* not before this */
    bool has_mender, closing;
    struct { /* what the coordinator last said of the job */
        double usd;
        uint64_t decoded_for_it, decoded_by_others;
    } said;
};

/* ---- registering ---- */

static json_t *make_request(const fth_job_spec *spec, uint64_t job)
{
    char name[128] = "job", machine[64] = "";
    gethostname(machine, sizeof machine - 1);
    snprintf(name, sizeof name, "%s:%ld %s", machine, (long)getpid(),
             spec->split == FTH_TRAIN ? "training" : "validation");
    json_t *request = json_pack("{s:s, s:o, s:s}", "op", "register", "job", fth_job_spec_save(spec), "name", name);
    if (request && job)
        json_object_set_new(request, "resume", json_integer((json_int_t)job));
    return request;
}

/* Whether the job is still what it was: a coordinator that has forgotten all may serve other data
 * under the name. */
static fth_status check_spec(const fth_job_spec *was, const fth_job_spec *is)
{
    return strcmp(was->version, is->version) == 0 && was->form == is->form && was->rotation == is->rotation &&
                   was->order_seed == is->order_seed && was->augment_seed == is->augment_seed
               ? FTH_OK
               : fth_fail(FTH_INVALID, "the batch cache has another version of %s, or another order, than before",
                          was->data);
}

static fth_status register_job(const fth_batches_address *address, fth_job_spec *spec, uint64_t *job, bool again,
                               fth_deadline deadline, char why[256], fth_connection **connection)
{
    fth_status status = FTH_OK;
    char *path = NULL;
    json_t *answer = NULL, *text;
    fth_connection *opened = NULL;
    fth_job_spec complete = *spec;

    FTH_TRY(fth_connection_find_host(address, deadline, &path));
    FTH_TRY(fth_connection_open(path, make_request(spec, *job), deadline, &answer, &opened));
    if ((text = json_object_get(answer, "spec")))
        FTH_TRY(fth_job_spec_load(text, &complete));
    if (again)
        FTH_TRY(check_spec(spec, &complete));
    FTH_REQUIRE(complete.form != FTH_FORM_AUTO && complete.rotation >= 0 && *complete.version, FTH_CORRUPT,
                "the batch cache's answer lacks form, rotation or version");
    *spec = complete;
    *job = (uint64_t)json_integer_value(json_object_get(answer, "job"));
    if (json_is_string(json_object_get(answer, "why")))
        snprintf(why, 256, "%s", json_string_value(json_object_get(answer, "why")));
    *connection = opened;
    opened = NULL;

out:
    free(path);
    json_decref(answer);
    fth_connection_release(opened);
    return status;
}

uint64_t fth_supply_job(fth_supply *supply)
{
    pthread_mutex_lock(&supply->mutex);
    uint64_t job = supply->job;
    pthread_mutex_unlock(&supply->mutex);
    return job;
}

const char *fth_supply_why(const fth_supply *supply)
{
    return supply->why;
}

/* ---- trouble ---- */

/* With the mutex held: a connection takes the place of the one before. */
static void replace(fth_supply *supply, fth_connection *connection)
{
    fth_connection *before = supply->connection;
    supply->connection = connection;
    supply->connected = true;
    supply->waiting_since = 0;
    supply->refused = false; /* by the one before */
    fth_slot *slot = fth_connection_slot(connection);
    for (int i = 0; i < FTH_SLOT_COUNTERS; i++)
        fth_slot_count(slot, i, supply->unreported[i]);
    memset(supply->unreported, 0, sizeof supply->unreported);
    if (supply->next >= 0)
        fth_slot_set_position(slot, supply->next, supply->stride, supply->end);
    fth_connection_release(before);
}

/* Registers again, for as long as it takes. */
static void *mend(void *context)
{
    fth_supply *supply = context;
    fth_backoff backoff = {.first_s = 0.1, .most_s = 2};
    bool told = false;
    pthread_mutex_lock(&supply->mutex);
    while (!supply->closing) {
        if (supply->connected) {
            pthread_cond_wait(&supply->changed, &supply->mutex); /* ended by trouble or close() */
            backoff.tries = 0;
            told = false;
            continue;
        }
        if (fth_clock_seconds() < supply->mend_at) {
            struct timespec until = fth_deadline_timespec((fth_deadline){supply->mend_at});
            pthread_cond_clockwait(&supply->changed, &supply->mutex, CLOCK_MONOTONIC, &until);
            continue;
        }
        fth_job_spec spec = supply->spec;
        uint64_t job = supply->job;
        fth_connection *connection = NULL;
        char why[256];
        pthread_mutex_unlock(&supply->mutex);
        fth_deadline deadline = fth_deadline_in(fmin(LEAST_REGISTER_S * (1 + backoff.tries), REGISTER_S));
        fth_status status = register_job(supply->address, &spec, &job, true, deadline, why, &connection);
        if (status != FTH_OK && !told)
            fth_log_warning("the batch cache at %s:%d cannot be reached; reading the data directly until it can (%s)",
                            supply->address->host, supply->address->port, fth_error_message());
        else if (status == FTH_OK && told)
            fth_log_info("the batch cache at %s:%d is back", supply->address->host, supply->address->port);
        told |= status != FTH_OK;
        pthread_mutex_lock(&supply->mutex);
        if (status == FTH_OK) {
            supply->job = job;
            replace(supply, connection);
        } else {
            supply->mend_at = fth_clock_seconds() + fth_backoff_next_s(&backoff, 0);
        }
    }
    pthread_mutex_unlock(&supply->mutex);
    return NULL;
}

/* With the mutex held: registering again is tried from `mend_at` on. */
static void note_trouble(fth_supply *supply, double mend_at)
{
    supply->connected = false;
    supply->mend_at = mend_at;
    if (!supply->has_mender)
        supply->has_mender = fth_thread_start(&supply->mender, "batches-mend", mend, supply) == 0;
    pthread_cond_broadcast(&supply->changed);
}

/* ---- opening and closing ---- */

/* A job that this process joins may have ended, or the coordinator may have forgotten it: it is
 * registered again, under its number. If that is another job's by now, with a new one. */
static fth_status register_first(fth_supply *supply, fth_job_spec *spec, fth_deadline deadline)
{
    fth_status status =
        register_job(supply->address, spec, &supply->job, false, deadline, supply->why, &supply->connection);
    if (status == FTH_INVALID && supply->job != 0) {
        supply->job = 0;
        status = register_job(supply->address, spec, &supply->job, false, deadline, supply->why, &supply->connection);
    }
    return status;
}

fth_status fth_supply_open(const fth_batches_address *address, fth_job_spec *spec, uint64_t job,
                           fth_supply_beginning beginning, fth_deadline deadline, fth_supply **supply)
{
    fth_status status = FTH_OK;
    fth_supply *opened = NULL;

    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->mutex, NULL);
    pthread_cond_init(&opened->changed, NULL);
    opened->address = address;
    opened->job = job;
    opened->next = -1;
    opened->stride = 1;
    if (beginning != FTH_SUPPLY_LATER)
        status = register_first(opened, spec, deadline);
    if ((status == FTH_PEER_LOST || status == FTH_TIMEOUT) && beginning == FTH_SUPPLY_NOW_OR_LATER)
        status = FTH_OK; /* it is read directly until somebody answers */
    FTH_TRY(status);
    opened->spec = *spec;
    opened->connected = opened->connection != NULL;
    if (!opened->connected)
        note_trouble(opened, fth_clock_seconds() + LATER_S);
    *supply = opened;
    opened = NULL;

out:
    fth_supply_close(opened);
    return status;
}

bool fth_supply_is_connected(fth_supply *supply)
{
    pthread_mutex_lock(&supply->mutex);
    bool connected = supply->connected;
    pthread_mutex_unlock(&supply->mutex);
    return connected;
}

/* Says that the job is done, also to a host that was started again meanwhile. */
static void tell_finished(fth_supply *supply)
{
    char why[256];
    fth_connection *again = NULL, *connection = supply->connection;
    if (!connection || !supply->connected)
        return;
    if (fth_connection_is_lost(connection)) {
        if (register_job(supply->address, &supply->spec, &supply->job, true, fth_deadline_in(FINISH_S), why, &again) !=
            FTH_OK)
            return;
        replace(supply, again);
    }
    fth_connection_tell(supply->connection, json_pack("{s:s}", "op", "finish"));
}

void fth_supply_close(fth_supply *supply)
{
    if (!supply)
        return;
    pthread_mutex_lock(&supply->mutex);
    supply->closing = true;
    pthread_cond_broadcast(&supply->changed);
    pthread_mutex_unlock(&supply->mutex);
    if (supply->has_mender)
        pthread_join(supply->mender, NULL); /* within REGISTER_S */
    tell_finished(supply);
    fth_connection_release(supply->connection);
    pthread_cond_destroy(&supply->changed);
    pthread_mutex_destroy(&supply->mutex);
    free(supply);
}

void fth_supply_abandon(fth_supply *supply)
{
    if (supply->connection)
        fth_connection_abandon(supply->connection);
}

/* ---- items ---- */

/* Looks whether the host answers at all, now and then. */
static bool is_alive(fth_supply *supply, fth_connection *connection, double waiting_s)
{
    if (fth_connection_is_lost(connection))
        return false;
    pthread_mutex_lock(&supply->mutex);
    double now = fth_clock_seconds();
    bool due = waiting_s > SILENCE_S && now - supply->asked_at > SILENCE_S;
    if (due)
        supply->asked_at = now; /* one thread asks */
    pthread_mutex_unlock(&supply->mutex);
    if (!due)
        return true;
    fth_status status =
        fth_connection_ask(connection, json_pack("{s:s, s:s}", "op", "describe", "data", supply->spec.data),
                           fth_deadline_in(ANSWER_S), NULL);
    return status != FTH_TIMEOUT && status != FTH_PEER_LOST;
}

/* Something came from the cache at `now_s`. True: the host has not been looked at for a while. */
static bool note_progress(fth_supply *supply, bool waited, double now_s)
{
    pthread_mutex_lock(&supply->mutex);
    supply->waiting_since = 0;
    if (waited) {
        supply->impatient_until = 0;
        supply->failure = FTH_OK;
        *supply->cause = '\0';
    }
    bool due = supply->connected && now_s > supply->looked_at + LOOK_EVERY_S;
    if (due)
        supply->looked_at = now_s;
    pthread_mutex_unlock(&supply->mutex);
    return due;
}

/* A job that lives on what is there already registers again, too. */
static void look_at_host(fth_supply *supply)
{
    pthread_mutex_lock(&supply->mutex);
    fth_connection *connection = fth_connection_hold(supply->connection);
    pthread_mutex_unlock(&supply->mutex);
    if (connection && fth_connection_is_lost(connection)) {
        pthread_mutex_lock(&supply->mutex);
        if (supply->connection == connection && supply->connected)
            note_trouble(supply, 0);
        pthread_mutex_unlock(&supply->mutex);
    }
    fth_connection_release(connection);
}

/* The host says that it cannot get anything, since Redis or the coordinator is away: it is only
 * waited for briefly until it can. */
static void note_outage(fth_supply *supply)
{
    pthread_mutex_lock(&supply->mutex);
    supply->waiting_since = 0;
    supply->impatient_until = fth_clock_seconds() + IMPATIENT_FOR_S;
    pthread_mutex_unlock(&supply->mutex);
}

/* How long nothing has come that is waited for; and how much longer it is waited for. */
static double note_waiting(fth_supply *supply, double *left_s)
{
    pthread_mutex_lock(&supply->mutex);
    double now = fth_clock_seconds();
    if (supply->waiting_since == 0)
        supply->waiting_since = now;
    double waiting_s = now - supply->waiting_since;
    *left_s = (now < supply->impatient_until ? IMPATIENCE_S : PATIENCE_S) - waiting_s;
    if (*left_s <= 0) {
        supply->impatient_until = now + IMPATIENT_FOR_S;
        supply->waiting_since = 0;
    }
    pthread_mutex_unlock(&supply->mutex);
    return waiting_s;
}

static void report_lost(fth_connection *connection, fth_item_id id)
{
    char text[FTH_ITEM_ID_TEXT];
    fth_item_id_format(id, text);
    fth_connection_ask(connection, json_pack("{s:s, s:s}", "op", "lost", "id", text), fth_deadline_in(ANSWER_S), NULL);
}

/* Why an item could not be made, as the error message. */
static fth_supply_answer explain_failure(fth_supply *supply, fth_connection *connection, fth_item_id id)
{
    char text[FTH_ITEM_ID_TEXT];
    json_t *answer = NULL;
    fth_item_id_format(id, text);
    fth_status status = fth_connection_ask(connection, json_pack("{s:s, s:s}", "op", "failed?", "id", text),
                                           fth_deadline_in(ANSWER_S), &answer);
    if (status == FTH_OK)
        status = fth_fail(FTH_IO, "the batch cache could not make it, and does not say why");
    json_decref(answer);
    pthread_mutex_lock(&supply->mutex);
    supply->failure = status;
    snprintf(supply->cause, sizeof supply->cause, "%s", fth_error_message());
    pthread_mutex_unlock(&supply->mutex);
    return FTH_SUPPLY_FAILED;
}

/* The job's batches are too large for the cache: it is not waited for any more. */
static void note_refusal(fth_supply *supply, fth_connection *connection)
{
    pthread_mutex_lock(&supply->mutex);
    const bool first = !supply->refused && supply->connection == connection;
    supply->refused |= first;
    pthread_mutex_unlock(&supply->mutex);
    if (first)
        fth_log_warning("the batch cache at %s:%d: %s; reading the data directly", supply->address->host,
                        supply->address->port, fth_error_message());
}

/* Looks once, and waits a step. *go_on: nothing is known yet. */
static fth_supply_answer try_once(fth_supply *supply, fth_connection *connection, bool connected, fth_item_id id,
                                  fth_deadline deadline, fth_item_lease *lease, bool *go_on)
{
    bool found = false;
    double patience_s = 0;
    *go_on = false;
    fth_status status = connection ? fth_connection_pin(connection, id, lease, &found) : FTH_OK;
    if (status == FTH_CORRUPT) {
        fth_supply_count(supply, FTH_SLOT_CORRUPT, 1);
        fth_log_warning("the batch cache: %s; reading the data directly", fth_error_message());
        report_lost(connection, id);
        return FTH_SUPPLY_DIRECTLY;
    }
    if (found)
        return FTH_SUPPLY_GIVEN;
    if (!connected)
        return FTH_SUPPLY_DIRECTLY;
    double waiting_s = note_waiting(supply, &patience_s);
    if (!is_alive(supply, connection, waiting_s)) {
        pthread_mutex_lock(&supply->mutex);
        if (supply->connection == connection)
            note_trouble(supply, 0);
        pthread_mutex_unlock(&supply->mutex);
        return FTH_SUPPLY_DIRECTLY;
    }
    if (patience_s <= 0)
        return FTH_SUPPLY_DIRECTLY;
    double left_s = fth_deadline_left_seconds(deadline);
    if (left_s <= 0)
        return FTH_SUPPLY_NOT_YET;
    status = fth_connection_wait(connection, id, fth_deadline_in(fmin(fmin(left_s, patience_s), STEP_S)));
    if (status == FTH_PEER_LOST) {
        note_outage(supply);
        return FTH_SUPPLY_DIRECTLY;
    }
    if (status != FTH_OK && status != FTH_TIMEOUT) {
        fth_supply_answer failed = explain_failure(supply, connection, id);
        if (status == FTH_NO_SPACE)
            note_refusal(supply, connection);
        return failed;
    }
    *go_on = true;
    return FTH_SUPPLY_NOT_YET;
}

fth_supply_answer fth_supply_get(fth_supply *supply, fth_item_id id, fth_deadline deadline, fth_item_lease *lease)
{
    fth_supply_answer answer;
    const double began_s = fth_clock_seconds();
    bool go_on = true, waited = false;
    do {
        pthread_mutex_lock(&supply->mutex);
        fth_connection *connection = fth_connection_hold(supply->connection);
        bool connected = supply->connected && !supply->refused;
        pthread_mutex_unlock(&supply->mutex);
        answer = try_once(supply, connection, connected, id, deadline, lease, &go_on);
        fth_connection_release(connection);
        waited |= go_on;
    } while (go_on);
    if (waited)
        fth_supply_count(supply, FTH_SLOT_WAIT_NS, (uint64_t)((fth_clock_seconds() - began_s) * 1e9));
    if (answer == FTH_SUPPLY_GIVEN) {
        if (note_progress(supply, waited, began_s))
            look_at_host(supply);
        fth_supply_count(supply, waited ? FTH_SLOT_WAITS : FTH_SLOT_HITS, 1);
        fth_supply_count(supply, FTH_SLOT_BYTES, lease->pin.size_bytes);
    }
    return answer;
}

fth_status fth_supply_explain(fth_supply *supply, char *text, size_t size)
{
    pthread_mutex_lock(&supply->mutex);
    fth_status failure = supply->failure;
    snprintf(text, size, "%s", supply->cause);
    pthread_mutex_unlock(&supply->mutex);
    return failure;
}

bool fth_supply_look(fth_supply *supply, fth_item_id id, fth_item_lease *lease)
{
    bool found = false;
    pthread_mutex_lock(&supply->mutex);
    fth_connection *connection = fth_connection_hold(supply->connection);
    pthread_mutex_unlock(&supply->mutex);
    if (connection)
        found = fth_connection_pin(connection, id, lease, &found) == FTH_OK && found;
    fth_connection_release(connection);
    if (found) {
        fth_supply_count(supply, FTH_SLOT_WAITS, 1);
        fth_supply_count(supply, FTH_SLOT_BYTES, lease->pin.size_bytes);
    }
    return found;
}

void fth_supply_report_lost(fth_supply *supply, fth_item_id id)
{
    pthread_mutex_lock(&supply->mutex);
    fth_connection *connection = fth_connection_hold(supply->connection);
    pthread_mutex_unlock(&supply->mutex);
    fth_supply_count(supply, FTH_SLOT_CORRUPT, 1);
    if (connection)
        report_lost(connection, id);
    fth_connection_release(connection);
}

/* ---- positions and figures ---- */

void fth_supply_set_position(fth_supply *supply, int64_t next, int64_t stride, int64_t end)
{
    pthread_mutex_lock(&supply->mutex);
    supply->next = next;
    supply->stride = stride;
    supply->end = end;
    if (supply->connection)
        fth_slot_set_position(fth_connection_slot(supply->connection), next, stride, end);
    pthread_mutex_unlock(&supply->mutex);
}

void fth_supply_count(fth_supply *supply, fth_slot_counter counter, uint64_t amount)
{
    pthread_mutex_lock(&supply->mutex);
    atomic_fetch_add(&supply->counters[counter], amount);
    if (supply->connected)
        fth_slot_count(fth_connection_slot(supply->connection), counter, amount);
    else
        supply->unreported[counter] += amount;
    pthread_mutex_unlock(&supply->mutex);
}

/* A coordinator that is away has said before what is known. */
static void ask_for_figures(fth_supply *supply, fth_deadline deadline, fth_batches_figures *figures)
{
    json_t *answer = NULL;
    pthread_mutex_lock(&supply->mutex);
    fth_connection *connection = supply->connected ? fth_connection_hold(supply->connection) : NULL;
    pthread_mutex_unlock(&supply->mutex);
    if (connection &&
        fth_connection_ask(connection, json_pack("{s:s}", "op", "figures"), deadline, &answer) == FTH_OK) {
        pthread_mutex_lock(&supply->mutex);
        supply->said.usd = json_number_value(json_object_get(answer, "usd"));
        supply->said.decoded_for_it = (uint64_t)json_integer_value(json_object_get(answer, "decoded_for_it"));
        supply->said.decoded_by_others = (uint64_t)json_integer_value(json_object_get(answer, "decoded_by_others"));
        pthread_mutex_unlock(&supply->mutex);
    }
    pthread_mutex_lock(&supply->mutex);
    figures->usd += supply->said.usd;
    figures->decoded_for_it += supply->said.decoded_for_it;
    figures->decoded_by_others += supply->said.decoded_by_others;
    pthread_mutex_unlock(&supply->mutex);
    json_decref(answer);
    fth_connection_release(connection);
}

void fth_supply_add_figures(fth_supply *supply, fth_deadline deadline, fth_batches_figures *figures)
{
    const atomic_ullong *counters = supply->counters;
    figures->hits += atomic_load(&counters[FTH_SLOT_HITS]);
    figures->waits += atomic_load(&counters[FTH_SLOT_WAITS]);
    figures->misses += atomic_load(&counters[FTH_SLOT_MISSES]);
    figures->bytes += atomic_load(&counters[FTH_SLOT_BYTES]);
    figures->corrupt += atomic_load(&counters[FTH_SLOT_CORRUPT]);
    figures->wait_s += (double)atomic_load(&counters[FTH_SLOT_WAIT_NS]) * 1e-9;
    figures->fetch_s += (double)atomic_load(&counters[FTH_SLOT_FETCH_NS]) * 1e-9;
    figures->decode_s += (double)atomic_load(&counters[FTH_SLOT_DECODE_NS]) * 1e-9;
    ask_for_figures(supply, deadline, figures);
    figures->form = supply->spec.form;
    snprintf(figures->why, sizeof figures->why, "%s", supply->why);
}
