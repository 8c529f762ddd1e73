/* Data sets behind batches:// addresses: see client.h.
 *
 *     client              the data set's provider (data/source/provider.h) and its description
 *       session           of each loader: which batch is next (client_session.h)
 *         cache source    the job's registration, and items by id; reconnects (cache_source.h)
 *           connection    socket, segment and slot (client_connection.h)
 *       fallback reader   reads the data itself when the cache does not deliver
 *                         (fallback_reader.h) */
#include "batches/client/client.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches/client/client_session.h"
#include "data/source/provider.h"
#include "http/http.h"

#define DESCRIBE_S 3.0
#define FIGURES_S  1.0
/* A host that did not answer is not waited for again for this long. */
#define SILENT_S 5.0
enum { MAX_KEPT = 32 };

typedef struct client {
    fth_batches_address address;
    fth_described_set set;
    char *shown; /* the address, for messages */
    fth_fallback_reader *fallback;

    pthread_mutex_t mutex; /* guards the members below */
    fth_session **sessions;
    size_t session_count, session_capacity;
    fth_batches_figures ended;             /* totals of closed sessions */
    fth_batches_registration registration; /* the latest of training */
    bool registered;
    fth_cache_format format; /* of the address, until it is chosen */
    int64_t rotation;        /* likewise */
    char why[256];           /* why the cache format was chosen */
    double silent_at;        /* when the host did not answer a registration; -INFINITY: it answered the last one */
    fth_item_lease kept[MAX_KEPT];
} client;

/* ---- opening ---- */

static void free_client(void *context)
{
    client *own = context;
    for (int i = 0; i < MAX_KEPT; i++)
        fth_item_lease_release(&own->kept[i]);
    fth_fallback_reader_free(own->fallback);
    fth_described_set_release(&own->set);
    fth_batches_address_release(&own->address);
    free(own->sessions);
    free(own->shown);
    pthread_mutex_destroy(&own->mutex);
    free(own);
}

/* Asks the host of an address to describe the data set. Retries until the deadline, since a
 * coordinator may be about to start. */
static fth_status describe(const fth_batches_address *address, fth_deadline deadline, json_t **answer)
{
    fth_status status;
    fth_backoff backoff = {.first_s = 0.05, .most_s = 0.5};
    do {
        char *path = NULL;
        status = fth_connection_find_host(address, deadline, &path);
        if (status == FTH_OK)
            status = fth_connection_ask_once(path, json_pack("{s:s, s:s}", "op", "describe", "data", address->name),
                                             deadline, answer);
        free(path);
    } while ((status == FTH_PEER_LOST || status == FTH_TIMEOUT) && fth_backoff_wait(&backoff, 0, deadline));
    return status;
}

static fth_status fail_unreachable(fth_status status, const fth_batches_address *address)
{
    if (status == FTH_PEER_LOST || status == FTH_TIMEOUT)
        return fth_fail(
            status, "cannot reach the batch cache at %s:%d (%s): start it with `farthing serve batches --data %s=...`",
            address->host, address->port, fth_error_message(), address->name);
    return fth_fail_within(status, "the batch cache at %s:%d", address->host, address->port);
}

/* Reads the text that fth_batches_save_job() made. */
static fth_status load_job(const char *saved, client *own)
{
    fth_status status = FTH_OK;
    json_error_t error;
    json_t *json = json_loads(saved, 0, &error), *job = json_object_get(json, "job");

    FTH_REQUIRE(json && json_is_integer(job), FTH_INVALID, "not a saved job of the batch cache: %s",
                json ? "it has no id" : error.text);
    FTH_TRY(fth_job_spec_load(json_object_get(json, "spec"), &own->registration.spec));
    FTH_TRY(fth_described_set_load(json_object_get(json, "set"), own->shown, &own->set));
    own->registration.job = (uint64_t)json_integer_value(job);
    own->registered = true;

out:
    json_decref(json);
    return status;
}

static fth_status ask_for_set(fth_deadline deadline, client *own)
{
    json_t *answer = NULL;
    fth_status status = describe(&own->address, deadline, &answer);
    status = status == FTH_OK ? fth_described_set_load(json_object_get(answer, "set"), own->shown, &own->set)
                              : fail_unreachable(status, &own->address);
    json_decref(answer);
    return status;
}

/* `saved`: a job from another process. NULL: the coordinator is asked. */
static fth_status open_client(const char *text, const char *saved, fth_deadline deadline, client **opened)
{
    fth_status status = FTH_OK;
    client *own = NULL;

    FTH_TRY(fth_allocate(1, sizeof *own, &own));
    pthread_mutex_init(&own->mutex, NULL);
    FTH_TRY(fth_batches_address_parse(text, &own->address));
    own->silent_at = -INFINITY;
    own->format = own->address.format;
    own->rotation = own->address.rotation;
    FTH_REQUIRE(own->shown = fth_format("batches://%s:%d/%s", own->address.host, own->address.port, own->address.name),
                FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(saved ? load_job(saved, own) : ask_for_set(deadline, own));
    FTH_TRY(fth_fallback_reader_create(&own->set, &own->fallback));
    *opened = own;
    own = NULL;

out:
    if (own)
        free_client(own);
    return status;
}

/* ---- provider functions ---- */

static fth_status open_session(void *context, const fth_dataset *dataset, fth_loader_options *options, bool *finished,
                               void **session)
{
    fth_status status = FTH_OK;
    client *own = context;
    fth_session *opened = NULL;
    fth_session_options how = {
        .address = &own->address, .fallback = own->fallback, .dataset = dataset, .version = own->set.set.version};

    fth_batches_registration known;
    pthread_mutex_lock(&own->mutex);
    how.format = own->format;
    how.rotation = own->rotation;
    known = own->registration;
    how.known = own->registered ? &known : NULL;
    how.away = fth_clock_seconds() - own->silent_at < SILENT_S;
    for (size_t i = 0; i < own->session_count; i++)
        how.away |= !fth_cache_source_is_connected(fth_session_source(own->sessions[i]));
    pthread_mutex_unlock(&own->mutex);
    FTH_TRY(fth_session_open(&how, options, &opened));
    pthread_mutex_lock(&own->mutex);
    if (!how.away)
        own->silent_at = fth_cache_source_is_connected(fth_session_source(opened)) ? -INFINITY : fth_clock_seconds();
    if (options->split == FTH_TRAIN) { /* sessions opened later, also by this process, use the same choice */
        if (how.format == FTH_FORMAT_AUTO)
            snprintf(own->why, sizeof own->why, "%s", fth_cache_source_why(fth_session_source(opened)));
        own->format = fth_session_spec(opened)->format;
        own->rotation = fth_session_spec(opened)->rotation;
    }
    status = fth_grow(&own->sessions, own->session_count, &own->session_capacity, sizeof *own->sessions);
    if (status == FTH_OK) {
        own->sessions[own->session_count++] = opened;
        if (options->split == FTH_TRAIN || !own->registered) {
            own->registration = (fth_batches_registration){.job = fth_cache_source_job(fth_session_source(opened)),
                                                           .spec = *fth_session_spec(opened)};
            own->registered = true;
        }
    }
    pthread_mutex_unlock(&own->mutex);
    if (status != FTH_OK) {
        fth_session_close(opened);
        goto out;
    }
    *finished = fth_session_spec(opened)->format == FTH_FORMAT_BATCHES;
    *session = opened;

out:
    return status;
}

static void add_session_figures(const fth_session *session, fth_batches_figures *figures)
{
    fth_cache_source_add_figures(fth_session_source(session), fth_deadline_in(FIGURES_S), figures);
    figures->direct += fth_session_images_read(session);
}

static void close_session(void *context, void *session)
{
    client *own = context;
    pthread_mutex_lock(&own->mutex);
    add_session_figures(session, &own->ended);
    for (size_t i = 0; i < own->session_count; i++)
        if (own->sessions[i] == session) {
            own->sessions[i] = own->sessions[--own->session_count];
            break;
        }
    pthread_mutex_unlock(&own->mutex);
    fth_session_close(session);
}

static fth_status next(void *session, fth_deadline deadline, const fth_batch **batch)
{
    return fth_session_next(session, deadline, batch);
}

static void moved(void *session, int64_t next_number)
{
    fth_session_moved(session, next_number);
}

static fth_status take(void *context, void *session, fth_split split, int64_t sample, fth_deadline deadline,
                       fth_raw_sample *raw)
{
    client *own = context;
    double decode_s = 0;
    return session ? fth_session_take(session, sample, deadline, raw)
                   : fth_sample_lend_directly(own->fallback, false, split, sample, deadline, raw, &decode_s);
}

static void explain(void *context, char *text, size_t size)
{
    client *own = context;
    pthread_mutex_lock(&own->mutex);
    if (own->session_count > 0)
        fth_session_explain(own->sessions[0], text, size);
    else
        fth_fallback_reader_explain(own->fallback, text, size);
    pthread_mutex_unlock(&own->mutex);
}

static size_t expect(void *session, const int64_t *samples, size_t count)
{
    return fth_session_expect(session, samples, count);
}

static void give_back(void *context, fth_raw_sample *raw)
{
    (void)context;
    fth_sample_give_back(raw);
}

fth_status fth_batches_open_job(const char *address, const char *saved, const fth_dataset_options *options,
                                fth_dataset **dataset)
{
    client *own = NULL;
    fth_status status = open_client(address, saved, fth_deadline_in(DESCRIBE_S), &own);
    if (status != FTH_OK)
        return status;
    return fth_dataset_create_provided(&own->set.set,
                                       &(fth_dataset_provider){.context = own,
                                                               .free = free_client,
                                                               .open_session = open_session,
                                                               .close_session = close_session,
                                                               .next = next,
                                                               .moved = moved,
                                                               .take = take,
                                                               .give_back = give_back,
                                                               .explain = explain,
                                                               .expect = expect},
                                       options, dataset);
}

static fth_status open_dataset(const char *address, const fth_dataset_options *options, fth_dataset **dataset)
{
    return fth_batches_open_job(address, NULL, options, dataset);
}

static const fth_dataset_scheme scheme = {fth_batches_is_address, open_dataset};
const fth_dataset_scheme *const fth_batches_schemes[] = {&scheme, NULL};

/* ---- figures and registration ---- */

static client *find_client(const fth_dataset *dataset)
{
    return fth_dataset_get_provider(dataset, free_client);
}

bool fth_batches_get_choice(const fth_dataset *dataset, fth_batches_choice *choice)
{
    client *own = find_client(dataset);
    if (!own)
        return false;
    pthread_mutex_lock(&own->mutex);
    *choice = (fth_batches_choice){.format = own->format, .rotation = own->rotation, .sharing = own->address.sharing};
    pthread_mutex_unlock(&own->mutex);
    return choice->format != FTH_FORMAT_AUTO && choice->rotation >= 0;
}

fth_status fth_batches_settle(const fth_dataset *dataset, const fth_loader_options *options)
{
    client *own = find_client(dataset);
    fth_batches_choice choice;
    fth_loader_options training = *options;
    void *session = NULL;
    bool finished;
    if (!own || fth_batches_get_choice(dataset, &choice))
        return FTH_OK;
    fth_status status = open_session(own, dataset, &training, &finished, &session);
    if (status == FTH_OK)
        close_session(own, session);
    return status;
}

bool fth_batches_get_figures(const fth_dataset *dataset, fth_batches_figures *figures)
{
    client *own = find_client(dataset);
    if (!own)
        return false;
    pthread_mutex_lock(&own->mutex);
    *figures = own->ended;
    for (size_t i = 0; i < own->session_count; i++)
        add_session_figures(own->sessions[i], figures);
    figures->format = own->registration.spec.format;
    snprintf(figures->why, sizeof figures->why, "%s",
             own->why[0]                              ? own->why
             : own->address.format != FTH_FORMAT_AUTO ? "the address asks for it"
                                                      : "");
    pthread_mutex_unlock(&own->mutex);
    return true;
}

bool fth_batches_get_registration(const fth_dataset *dataset, fth_batches_registration *registration)
{
    client *own = find_client(dataset);
    if (!own)
        return false;
    pthread_mutex_lock(&own->mutex);
    *registration = own->registration;
    bool registered = own->registered;
    pthread_mutex_unlock(&own->mutex);
    return registered;
}

char *fth_batches_save_job(const fth_dataset *dataset)
{
    client *own = find_client(dataset);
    fth_batches_registration registration;
    if (!own || !fth_batches_get_registration(dataset, &registration))
        return NULL;
    json_t *json = json_pack("{s:I, s:o, s:O}", "job", (json_int_t)registration.job, "spec",
                             fth_job_spec_save(&registration.spec), "set", own->set.json);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

/* ---- several batches at once ---- */

bool fth_batches_keep(const fth_dataset *dataset, const fth_batch *batch, uint64_t *lease)
{
    client *own = find_client(dataset);
    bool kept = false;
    if (!own)
        return false;
    pthread_mutex_lock(&own->mutex);
    for (uint64_t place = 0; place < MAX_KEPT && !kept; place++) {
        if (own->kept[place].connection)
            continue;
        for (size_t i = 0; i < own->session_count && !kept; i++)
            kept = fth_session_take_lease(own->sessions[i], batch, &own->kept[place]);
        *lease = place;
        break;
    }
    pthread_mutex_unlock(&own->mutex);
    return kept;
}

void fth_batches_let_go(const fth_dataset *dataset, uint64_t lease)
{
    client *own = find_client(dataset);
    if (!own || lease >= MAX_KEPT)
        return;
    pthread_mutex_lock(&own->mutex);
    fth_item_lease_release(&own->kept[lease]);
    pthread_mutex_unlock(&own->mutex);
}

void fth_batches_abandon(const fth_dataset *dataset)
{
    client *own = find_client(dataset); /* without locks, whose holders do not exist in this process */
    for (size_t i = 0; own && i < own->session_count; i++)
        fth_cache_source_abandon(fth_session_source(own->sessions[i]));
}

/* ---- before a run ---- */

fth_status fth_batches_check(const char *address, fth_deadline deadline)
{
    client *own = NULL;
    fth_status status = open_client(address, NULL, deadline, &own);
    if (own)
        free_client(own);
    return status;
}

fth_status fth_batches_check_direct(const char *address, fth_deadline deadline)
{
    client *own = NULL;
    fth_status status = open_client(address, NULL, deadline, &own);
    if (status != FTH_OK)
        return status;
    status = fth_fallback_reader_open(own->fallback, deadline);
    if (status != FTH_OK)
        status = fth_fail_within(status, "%s answers, but this machine cannot read the data itself", own->shown);
    free_client(own);
    return status;
}
