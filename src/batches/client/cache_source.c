/* See cache_source.h. The thread that reconnects is started when a connection is first lost, and
 * ends with the source. */
#include "batches/client/cache_source.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "batches/client/host_patience.h"
#include "http/http.h"

/* An answer to a question of this client's. */
#define ANSWER_S 1.0
/* One wait for an item, after which the host is checked. */
#define STEP_S     0.25
#define REGISTER_S 3.0
/* The first tries are shorter, because closing a source waits for the current one. */
#define LEAST_REGISTER_S 1.0
/* A source opened while the host is away, perhaps for a short evaluation, does not try at once. */
#define LATER_S 0.5
/* For telling a restarted host that the job is done. */
#define FINISH_S 0.5

struct fth_cache_source {
    const fth_batches_address *address;
    fth_job_spec spec;
    char why[256];
    atomic_ullong counters[FTH_SLOT_COUNTERS]; /* totals */

    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    uint64_t job;
    fth_connection *connection;
    bool connected;
    uint64_t unreported[FTH_SLOT_COUNTERS]; /* counted while disconnected: added to the next slot */
    fth_host_patience patience;
    fth_status failure; /* of the cache, since it last delivered an item that was waited for; FTH_OK: none */
    char cause[480];    /* of the failure */
    bool refused;       /* the cache has said that it cannot hold the job's batches */
    struct {
        int64_t next, stride, end; /* next is -1 until it is known */
    } position;
    pthread_t reconnector;
    double reconnect_at; /* not before this time */
    bool has_reconnector, closing;
    struct { /* the coordinator's latest figures */
        double usd;
        uint64_t decoded_for_it, decoded_by_others;
    } reported;
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

/* Whether the job is unchanged: a coordinator that has lost its state may serve other data under
 * the name. */
static fth_status check_spec(const fth_job_spec *was, const fth_job_spec *is)
{
    return strcmp(was->version, is->version) == 0 && was->format == is->format && was->rotation == is->rotation &&
                   was->order_seed == is->order_seed && was->augment_seed == is->augment_seed
               ? FTH_OK
               : fth_fail(FTH_INVALID, "the batch cache now has another version or order of %s", was->data);
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
    FTH_REQUIRE(complete.format != FTH_FORMAT_AUTO && complete.rotation >= 0 && *complete.version, FTH_CORRUPT,
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

uint64_t fth_cache_source_job(fth_cache_source *source)
{
    pthread_mutex_lock(&source->mutex);
    uint64_t job = source->job;
    pthread_mutex_unlock(&source->mutex);
    return job;
}

const char *fth_cache_source_why(const fth_cache_source *source)
{
    return source->why;
}

/* ---- reconnecting ---- */

/* With the mutex held: replaces the connection. */
static void replace(fth_cache_source *source, fth_connection *connection)
{
    fth_connection *before = source->connection;
    source->connection = connection;
    source->connected = true;
    fth_host_patience_stop_waiting(&source->patience);
    source->refused = false; /* this was about the previous connection */
    fth_slot *slot = fth_connection_slot(connection);
    for (int i = 0; i < FTH_SLOT_COUNTERS; i++)
        fth_slot_count(slot, i, source->unreported[i]);
    memset(source->unreported, 0, sizeof source->unreported);
    if (source->position.next >= 0)
        fth_slot_set_position(slot, source->position.next, source->position.stride, source->position.end);
    fth_connection_release(before);
}

/* Registers again, for as long as it takes. */
static void *reconnect(void *context)
{
    fth_cache_source *source = context;
    fth_backoff backoff = {.first_s = 0.1, .most_s = 2};
    bool told = false;
    pthread_mutex_lock(&source->mutex);
    while (!source->closing) {
        if (source->connected) {
            pthread_cond_wait(&source->changed, &source->mutex); /* ended by a lost connection or close() */
            backoff.tries = 0;
            told = false;
            continue;
        }
        if (fth_clock_seconds() < source->reconnect_at) {
            struct timespec until = fth_deadline_timespec((fth_deadline){source->reconnect_at});
            pthread_cond_clockwait(&source->changed, &source->mutex, CLOCK_MONOTONIC, &until);
            continue;
        }
        fth_job_spec spec = source->spec;
        uint64_t job = source->job;
        fth_connection *connection = NULL;
        char why[256];
        pthread_mutex_unlock(&source->mutex);
        fth_deadline deadline = fth_deadline_in(fmin(LEAST_REGISTER_S * (1 + backoff.tries), REGISTER_S));
        fth_status status = register_job(source->address, &spec, &job, true, deadline, why, &connection);
        if (status != FTH_OK && !told)
            fth_log_warning("the batch cache at %s:%d cannot be reached; reading the data directly until it can (%s)",
                            source->address->host, source->address->port, fth_error_message());
        else if (status == FTH_OK && told)
            fth_log_info("the batch cache at %s:%d is back", source->address->host, source->address->port);
        told |= status != FTH_OK;
        pthread_mutex_lock(&source->mutex);
        if (status == FTH_OK) {
            source->job = job;
            replace(source, connection);
        } else {
            source->reconnect_at = fth_clock_seconds() + fth_backoff_next_s(&backoff, 0);
        }
    }
    pthread_mutex_unlock(&source->mutex);
    return NULL;
}

/* With the mutex held: reconnects, but not before `reconnect_at`. */
static void note_disconnected(fth_cache_source *source, double reconnect_at)
{
    source->connected = false;
    source->reconnect_at = reconnect_at;
    if (!source->has_reconnector)
        source->has_reconnector = fth_thread_start(&source->reconnector, "batches-mend", reconnect, source) == 0;
    pthread_cond_broadcast(&source->changed);
}

/* ---- opening and closing ---- */

/* A job that this process joins may have ended, or the coordinator may have forgotten it: it is
 * registered again, under its number. If another job has that number now, it gets a new one. */
static fth_status register_first(fth_cache_source *source, fth_job_spec *spec, fth_deadline deadline)
{
    fth_status status =
        register_job(source->address, spec, &source->job, false, deadline, source->why, &source->connection);
    if (status == FTH_INVALID && source->job != 0) {
        source->job = 0;
        status = register_job(source->address, spec, &source->job, false, deadline, source->why, &source->connection);
    }
    return status;
}

fth_status fth_cache_source_open(const fth_batches_address *address, fth_job_spec *spec, uint64_t job,
                                 fth_registration_time time, fth_deadline deadline, fth_cache_source **source)
{
    fth_status status = FTH_OK;
    fth_cache_source *opened = NULL;

    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->mutex, NULL);
    pthread_cond_init(&opened->changed, NULL);
    opened->address = address;
    opened->job = job;
    opened->position.next = -1;
    opened->position.stride = 1;
    if (time != FTH_REGISTER_LATER)
        status = register_first(opened, spec, deadline);
    if ((status == FTH_PEER_LOST || status == FTH_TIMEOUT) && time == FTH_REGISTER_NOW_OR_LATER)
        status = FTH_OK; /* data is read directly until the host answers */
    FTH_TRY(status);
    opened->spec = *spec;
    opened->connected = opened->connection != NULL;
    if (!opened->connected)
        note_disconnected(opened, fth_clock_seconds() + LATER_S);
    *source = opened;
    opened = NULL;

out:
    fth_cache_source_close(opened);
    return status;
}

bool fth_cache_source_is_connected(fth_cache_source *source)
{
    pthread_mutex_lock(&source->mutex);
    bool connected = source->connected;
    pthread_mutex_unlock(&source->mutex);
    return connected;
}

/* Tells the host that the job is done, also if the host was restarted meanwhile. */
static void tell_finished(fth_cache_source *source)
{
    char why[256];
    fth_connection *again = NULL, *connection = source->connection;
    if (!connection || !source->connected)
        return;
    if (fth_connection_is_lost(connection)) {
        if (register_job(source->address, &source->spec, &source->job, true, fth_deadline_in(FINISH_S), why, &again) !=
            FTH_OK)
            return;
        replace(source, again);
    }
    fth_connection_tell(source->connection, json_pack("{s:s}", "op", "finish"));
}

void fth_cache_source_close(fth_cache_source *source)
{
    if (!source)
        return;
    pthread_mutex_lock(&source->mutex);
    source->closing = true;
    pthread_cond_broadcast(&source->changed);
    pthread_mutex_unlock(&source->mutex);
    if (source->has_reconnector)
        pthread_join(source->reconnector, NULL); /* within REGISTER_S */
    tell_finished(source);
    fth_connection_release(source->connection);
    pthread_cond_destroy(&source->changed);
    pthread_mutex_destroy(&source->mutex);
    free(source);
}

void fth_cache_source_abandon(fth_cache_source *source)
{
    if (source->connection)
        fth_connection_abandon(source->connection);
}

/* ---- items ---- */

/* Checks now and then whether the host answers. */
static bool is_alive(fth_cache_source *source, fth_connection *connection, double waiting_s)
{
    if (fth_connection_is_lost(connection))
        return false;
    pthread_mutex_lock(&source->mutex);
    bool due = fth_host_patience_must_ask(&source->patience, waiting_s, fth_clock_seconds());
    pthread_mutex_unlock(&source->mutex);
    if (!due)
        return true;
    fth_status status =
        fth_connection_ask(connection, json_pack("{s:s, s:s}", "op", "describe", "data", source->spec.data),
                           fth_deadline_in(ANSWER_S), NULL);
    return status != FTH_TIMEOUT && status != FTH_PEER_LOST;
}

/* An item arrived from the cache at `now_s`. True: the host has not been checked for a while. */
static bool note_progress(fth_cache_source *source, bool waited, double now_s)
{
    pthread_mutex_lock(&source->mutex);
    bool due = fth_host_patience_note_item(&source->patience, waited, now_s) && source->connected;
    if (waited) {
        source->failure = FTH_OK;
        *source->cause = '\0';
    }
    pthread_mutex_unlock(&source->mutex);
    return due;
}

/* Notices a lost host even if all items of the job are already there. */
static void look_at_host(fth_cache_source *source)
{
    pthread_mutex_lock(&source->mutex);
    fth_connection *connection = fth_connection_hold(source->connection);
    pthread_mutex_unlock(&source->mutex);
    if (connection && fth_connection_is_lost(connection)) {
        pthread_mutex_lock(&source->mutex);
        if (source->connection == connection && source->connected)
            note_disconnected(source, 0);
        pthread_mutex_unlock(&source->mutex);
    }
    fth_connection_release(connection);
}

/* The host reports that Redis or the coordinator is away: until it is back, waits are short. */
static void note_outage(fth_cache_source *source)
{
    pthread_mutex_lock(&source->mutex);
    fth_host_patience_end(&source->patience, fth_clock_seconds());
    pthread_mutex_unlock(&source->mutex);
}

/* Gives how long nothing has arrived, and in *left_s how much longer to wait. */
static double note_waiting(fth_cache_source *source, double *left_s)
{
    pthread_mutex_lock(&source->mutex);
    double waiting_s = fth_host_patience_wait(&source->patience, fth_clock_seconds(), left_s);
    pthread_mutex_unlock(&source->mutex);
    return waiting_s;
}

static void report_lost(fth_connection *connection, fth_item_id id)
{
    char text[FTH_ITEM_ID_TEXT];
    fth_item_id_format(id, text);
    FTH_IGNORE(fth_connection_ask(connection, json_pack("{s:s, s:s}", "op", "lost", "id", text),
                                  fth_deadline_in(ANSWER_S), NULL),
               "the next reader of the item reports it again");
}

/* Leaves the reason why an item could not be made as the error message. */
static fth_cache_answer explain_failure(fth_cache_source *source, fth_connection *connection, fth_item_id id)
{
    char text[FTH_ITEM_ID_TEXT];
    json_t *answer = NULL;
    fth_item_id_format(id, text);
    fth_status status = fth_connection_ask(connection, json_pack("{s:s, s:s}", "op", "failed?", "id", text),
                                           fth_deadline_in(ANSWER_S), &answer);
    if (status == FTH_OK)
        status = fth_fail(FTH_IO, "the batch cache could not make it, and does not say why");
    json_decref(answer);
    pthread_mutex_lock(&source->mutex);
    source->failure = status;
    snprintf(source->cause, sizeof source->cause, "%s", fth_error_message());
    pthread_mutex_unlock(&source->mutex);
    return FTH_CACHE_FAILED;
}

/* The job's batches are too large for the cache, which is no longer used. */
static void note_refusal(fth_cache_source *source, fth_connection *connection)
{
    pthread_mutex_lock(&source->mutex);
    const bool first = !source->refused && source->connection == connection;
    source->refused |= first;
    pthread_mutex_unlock(&source->mutex);
    if (first)
        fth_log_warning("the batch cache at %s:%d: %s; reading the data directly", source->address->host,
                        source->address->port, fth_error_message());
}

/* Looks once, and waits one step. *go_on: nothing is known yet. */
static fth_cache_answer try_once(fth_cache_source *source, fth_connection *connection, bool connected, fth_item_id id,
                                 fth_deadline deadline, fth_item_lease *lease, bool *go_on)
{
    bool found = false;
    double patience_s = 0;
    *go_on = false;
    fth_status status = connection ? fth_connection_pin(connection, id, lease, &found) : FTH_OK;
    if (status == FTH_CORRUPT) {
        fth_cache_source_count(source, FTH_SLOT_CORRUPT, 1);
        fth_log_warning("the batch cache: %s; reading the data directly", fth_error_message());
        report_lost(connection, id);
        return FTH_CACHE_MISSED;
    }
    if (found)
        return FTH_CACHE_LEASED;
    if (!connected)
        return FTH_CACHE_MISSED;
    double waiting_s = note_waiting(source, &patience_s);
    if (!is_alive(source, connection, waiting_s)) {
        pthread_mutex_lock(&source->mutex);
        if (source->connection == connection)
            note_disconnected(source, 0);
        pthread_mutex_unlock(&source->mutex);
        return FTH_CACHE_MISSED;
    }
    if (patience_s <= 0)
        return FTH_CACHE_MISSED;
    double left_s = fth_deadline_left_seconds(deadline);
    if (left_s <= 0)
        return FTH_CACHE_PENDING;
    status = fth_connection_wait(connection, id, fth_deadline_in(fmin(fmin(left_s, patience_s), STEP_S)));
    if (status == FTH_PEER_LOST) {
        note_outage(source);
        return FTH_CACHE_MISSED;
    }
    if (status != FTH_OK && status != FTH_TIMEOUT) {
        fth_cache_answer failed = explain_failure(source, connection, id);
        if (status == FTH_NO_SPACE)
            note_refusal(source, connection);
        return failed;
    }
    *go_on = true;
    return FTH_CACHE_PENDING;
}

fth_cache_answer fth_cache_source_get(fth_cache_source *source, fth_item_id id, fth_deadline deadline,
                                      fth_item_lease *lease)
{
    fth_cache_answer answer;
    const double began_s = fth_clock_seconds();
    bool go_on = true, waited = false;
    do {
        pthread_mutex_lock(&source->mutex);
        fth_connection *connection = fth_connection_hold(source->connection);
        bool connected = source->connected && !source->refused;
        pthread_mutex_unlock(&source->mutex);
        answer = try_once(source, connection, connected, id, deadline, lease, &go_on);
        fth_connection_release(connection);
        waited |= go_on;
    } while (go_on);
    if (waited)
        fth_cache_source_count(source, FTH_SLOT_WAIT_NS, (uint64_t)((fth_clock_seconds() - began_s) * 1e9));
    if (answer == FTH_CACHE_LEASED) {
        if (note_progress(source, waited, began_s))
            look_at_host(source);
        fth_cache_source_count(source, waited ? FTH_SLOT_WAITS : FTH_SLOT_HITS, 1);
        fth_cache_source_count(source, FTH_SLOT_BYTES, lease->pin.size_bytes);
    }
    return answer;
}

fth_status fth_cache_source_explain(fth_cache_source *source, char *text, size_t size)
{
    pthread_mutex_lock(&source->mutex);
    fth_status failure = source->failure;
    snprintf(text, size, "%s", source->cause);
    pthread_mutex_unlock(&source->mutex);
    return failure;
}

bool fth_cache_source_look(fth_cache_source *source, fth_item_id id, fth_item_lease *lease)
{
    bool found = false;
    pthread_mutex_lock(&source->mutex);
    fth_connection *connection = fth_connection_hold(source->connection);
    pthread_mutex_unlock(&source->mutex);
    if (connection)
        found = fth_connection_pin(connection, id, lease, &found) == FTH_OK && found;
    fth_connection_release(connection);
    if (found) {
        fth_cache_source_count(source, FTH_SLOT_WAITS, 1);
        fth_cache_source_count(source, FTH_SLOT_BYTES, lease->pin.size_bytes);
    }
    return found;
}

void fth_cache_source_report_lost(fth_cache_source *source, fth_item_id id)
{
    pthread_mutex_lock(&source->mutex);
    fth_connection *connection = fth_connection_hold(source->connection);
    pthread_mutex_unlock(&source->mutex);
    fth_cache_source_count(source, FTH_SLOT_CORRUPT, 1);
    if (connection)
        report_lost(connection, id);
    fth_connection_release(connection);
}

/* ---- positions and figures ---- */

void fth_cache_source_set_position(fth_cache_source *source, int64_t next, int64_t stride, int64_t end)
{
    pthread_mutex_lock(&source->mutex);
    source->position.next = next;
    source->position.stride = stride;
    source->position.end = end;
    if (source->connection)
        fth_slot_set_position(fth_connection_slot(source->connection), next, stride, end);
    pthread_mutex_unlock(&source->mutex);
}

void fth_cache_source_count(fth_cache_source *source, fth_slot_counter counter, uint64_t amount)
{
    pthread_mutex_lock(&source->mutex);
    atomic_fetch_add(&source->counters[counter], amount);
    if (source->connected)
        fth_slot_count(fth_connection_slot(source->connection), counter, amount);
    else
        source->unreported[counter] += amount;
    pthread_mutex_unlock(&source->mutex);
}

/* If the coordinator is away, its last figures are used. */
static void ask_for_figures(fth_cache_source *source, fth_deadline deadline, fth_batches_figures *figures)
{
    json_t *answer = NULL;
    pthread_mutex_lock(&source->mutex);
    fth_connection *connection = source->connected ? fth_connection_hold(source->connection) : NULL;
    pthread_mutex_unlock(&source->mutex);
    if (connection &&
        fth_connection_ask(connection, json_pack("{s:s}", "op", "figures"), deadline, &answer) == FTH_OK) {
        pthread_mutex_lock(&source->mutex);
        source->reported.usd = json_number_value(json_object_get(answer, "usd"));
        source->reported.decoded_for_it = (uint64_t)json_integer_value(json_object_get(answer, "decoded_for_it"));
        source->reported.decoded_by_others = (uint64_t)json_integer_value(json_object_get(answer, "decoded_by_others"));
        pthread_mutex_unlock(&source->mutex);
    }
    pthread_mutex_lock(&source->mutex);
    figures->usd += source->reported.usd;
    figures->decoded_for_it += source->reported.decoded_for_it;
    figures->decoded_by_others += source->reported.decoded_by_others;
    pthread_mutex_unlock(&source->mutex);
    json_decref(answer);
    fth_connection_release(connection);
}

void fth_cache_source_add_figures(fth_cache_source *source, fth_deadline deadline, fth_batches_figures *figures)
{
    const atomic_ullong *counters = source->counters;
    figures->hits += atomic_load(&counters[FTH_SLOT_HITS]);
    figures->waits += atomic_load(&counters[FTH_SLOT_WAITS]);
    figures->misses += atomic_load(&counters[FTH_SLOT_MISSES]);
    figures->bytes += atomic_load(&counters[FTH_SLOT_BYTES]);
    figures->corrupt += atomic_load(&counters[FTH_SLOT_CORRUPT]);
    figures->wait_s += (double)atomic_load(&counters[FTH_SLOT_WAIT_NS]) * 1e-9;
    figures->fetch_s += (double)atomic_load(&counters[FTH_SLOT_FETCH_NS]) * 1e-9;
    figures->decode_s += (double)atomic_load(&counters[FTH_SLOT_DECODE_NS]) * 1e-9;
    ask_for_figures(source, deadline, figures);
    figures->format = source->spec.format;
    snprintf(figures->why, sizeof figures->why, "%s", source->why);
}
