/* See run_owner.h. */
#include "train/run/run_owner.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "train/loop/run_parts.h"
#include "train/run/run_files.h"
#include "train/run/run_record.h"
#include "train/run/run_takeover.h"

#define RETRY_S 2.0 /* after a takeover that failed: a lock is held yet, a store is away */

/* Finds the run in its store and takes its lease, in a thread; all zero while there is none. */
typedef struct search {
    fth_train_options *options; /* the selection's */
    fth_run_store *run_store;
    fth_run_selection found;
    fth_stop stop; /* asked to end it */
    pthread_t thread;
    bool running; /* the thread is to be joined */

    pthread_mutex_t mutex; /* guards what follows; the rest is the thread's until `done` */
    pthread_cond_t changed;
    bool done;
    fth_status status;
    char message[768];
} search;

struct fth_run_owner {
    const fth_run_parts *with;
    fth_run_store *run_store; /* what --checkpoints names, or NULL */
    fth_saver *saver;         /* NULL, as the paths: the run is not kept here */
    char *last_path, *best_path;

    char *node;        /* of this process; NULL: it has no peers */
    bool wanted;       /* it is to be kept here, and is not yet */
    atomic_bool leads; /* and no other process can be to keep it; read by the search */
    bool restores;     /* at its newest checkpoint */
    char reason[256];
    double next_try_s; /* fth_clock_seconds() */
    bool warned;       /* of what stands in the way */
    search search;
    fth_stop lost; /* asked when the lease is lost, where there are peers */
};

fth_status fth_run_owner_create(const fth_run_parts *parts, fth_run_owner **owner)
{
    fth_status status = fth_allocate(1, sizeof **owner, owner);
    if (status != FTH_OK)
        return status;
    (*owner)->with = parts;
    (*owner)->lost = (fth_stop)FTH_STOP_INITIALIZER;
    pthread_mutex_init(&(*owner)->search.mutex, NULL);
    pthread_cond_init(&(*owner)->search.changed, NULL);
    return FTH_OK;
}

fth_saver *fth_run_owner_get_saver(const fth_run_owner *owner)
{
    return owner->saver;
}

fth_run_store *fth_run_owner_get_store(const fth_run_owner *owner)
{
    return owner->run_store;
}

const char *fth_run_owner_last_path(const fth_run_owner *owner)
{
    return owner->last_path;
}

const char *fth_run_owner_best_path(const fth_run_owner *owner)
{
    return owner->best_path;
}

/* ---- the beginning ---- */

static void set_takeover(const fth_run_owner *owner)
{
    fth_takeover takeover = fth_run_store_get_takeover(owner->run_store);
    fth_spending_set_takeover(owner->with->spending, takeover.waited_s, takeover.previous_seen_s,
                              takeover.previous_process_s);
}

fth_status fth_run_owner_set_node(fth_run_owner *owner, const char *node)
{
    owner->node = fth_format("%s", node);
    return owner->node ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the name of a node");
}

/* `id`: of the group whose lease it is, "" for a new one. */
static void set_group(fth_run_owner *owner, fth_run_store *run_store, const char *id)
{
    if (owner->node)
        fth_run_store_set_group(
            run_store,
            &(fth_run_group){.group = id, .name = owner->node, .leads = &owner->leads, .lost = &owner->lost});
}

fth_status fth_run_owner_find_run(fth_run_owner *owner, const fth_train_options *asked)
{
    fth_status status = FTH_OK;
    fth_run_selection *selection = owner->with->selection;
    char group[FTH_LEASE_GROUP_BYTES];

    if (!*asked->store.checkpoints)
        return fth_run_selection_find(asked, selection);
    FTH_TRY(fth_run_selection_prepare(asked, selection));
    FTH_TRY(fth_run_store_open(asked, &owner->run_store));
    set_group(owner, owner->run_store, "");
    fth_deadline_watchdog_set_run(owner->with->watchdog, &(fth_watched_run){.run_store = owner->run_store});
    FTH_TRY(fth_stored_run_find(owner->run_store, owner->with->stop, asked->standby, selection));
    fth_run_store_get_group(owner->run_store, group);
    snprintf(selection->lease_group, sizeof selection->lease_group, "%s", group);
    set_takeover(owner);

out:
    return status;
}

fth_status fth_run_owner_open(fth_run_owner *owner)
{
    fth_status status = FTH_OK;
    const fth_run_parts *with = owner->with;
    fth_record *record = NULL;

    FTH_TRY(fth_run_record_open(with->selection, with->setup, with->spending, &record));
    fth_reporter_set_record(with->reporter, record, owner->run_store);
    const char *folder = fth_record_folder(record);
    FTH_TRY(fth_run_files_write(with->setup, folder));
    owner->last_path = fth_path_join(folder, "last.safetensors");
    owner->best_path = fth_path_join(folder, "best.safetensors");
    FTH_REQUIRE(owner->last_path && owner->best_path, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_saver_create(&(fth_saver_options){.train = with->setup->options,
                                                  .engine = with->setup->engine,
                                                  .position = with->position,
                                                  .dataset = with->setup->dataset,
                                                  .reporter = with->reporter,
                                                  .stop = with->stop,
                                                  .run_store = owner->run_store,
                                                  .folder = folder,
                                                  .best_path = owner->best_path,
                                                  .resumed = with->selection->folder != NULL},
                             &owner->saver));
    fth_deadline_watchdog_set_run(
        with->watchdog,
        &(fth_watched_run){.run_store = owner->run_store, .saver = owner->saver, .best_path = owner->best_path});

out:
    return status;
}

/* Brings run.json up to date. */
static fth_status configure(const fth_run_owner *owner)
{
    const fth_run_parts *with = owner->with;
    return fth_run_record_configure(fth_reporter_get_record(with->reporter), with->selection, with->setup,
                                    with->spending);
}

fth_status fth_run_owner_restore(fth_run_owner *owner)
{
    fth_status status = FTH_OK;
    bool restored = false;

    FTH_TRY(fth_saver_restore(owner->saver, &restored));
    FTH_TRY(fth_setup_adapt_to_workers(owner->with->setup, owner->with->position));
    if (!restored) /* killed before its first checkpoint */
        FTH_TRY(fth_setup_load_weights(owner->with->setup, owner->with->position));
    FTH_TRY(configure(owner)); /* only now: a run that cannot be continued stays as it was */

out:
    return status;
}

fth_status fth_run_owner_begin_store(fth_run_owner *owner)
{
    fth_status status = FTH_OK;
    const fth_run_selection *selection = owner->with->selection;
    if (!owner->run_store)
        return FTH_OK;
    const char *folder = fth_record_folder(fth_reporter_get_record(owner->with->reporter));
    FTH_TRY(fth_run_store_begin(owner->run_store, folder, selection->stored_bytes));
    FTH_TRY(fth_run_files_put(owner->run_store, folder));
    FTH_TRY(fth_run_store_put_run(owner->run_store, !selection->stored));

out:
    return status;
}

void fth_run_owner_write_start(fth_run_owner *owner, const fth_start_facts *facts)
{
    const fth_setup *setup = owner->with->setup;
    fth_reporter_write_start(owner->with->reporter, facts);
    if (facts->resumed)
        fth_saver_check_best(owner->saver);
    if (*setup->weights_format && !facts->reason)
        fth_reporter_write_weights(owner->with->reporter, setup->weights_format, setup->weights.head_note);
}

/* ---- taking over: finding the run in its store ---- */

static void *search_store(void *context)
{
    search *self = context;
    fth_status status = fth_stored_run_find(self->run_store, &self->stop, false, &self->found);
    pthread_mutex_lock(&self->mutex);
    self->status = status;
    if (status != FTH_OK)
        snprintf(self->message, sizeof self->message, "%s", fth_error_message());
    self->done = true;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

static fth_status begin_search(fth_run_owner *owner)
{
    fth_status status = FTH_OK;
    search *self = &owner->search;
    const fth_run_selection *selection = owner->with->selection;

    self->stop = (fth_stop)FTH_STOP_INITIALIZER;
    self->done = false;
    FTH_TRY(fth_run_selection_prepare(&selection->options, &self->found));
    /* As asked, which is what the record has, and not as adapted to data since. */
    FTH_TRY(fth_options_from_json(&fth_train_option_table, &self->found.options, owner->with->setup->configuration,
                                  "the run"));
    fth_options_identity(&fth_train_option_table, &self->found.options, self->found.identity);
    FTH_TRY(fth_run_store_open(&selection->options, &self->run_store));
    set_group(owner, self->run_store, selection->lease_group);
    self->running = fth_thread_start(&self->thread, "take-over", search_store, self) == 0;
    FTH_REQUIRE(self->running, FTH_NO_MEMORY, "no thread could be started to take the run over");

out:
    return status;
}

/* True when it is done. */
static bool wait_for_search(search *self, fth_deadline deadline)
{
    pthread_mutex_lock(&self->mutex);
    while (!self->done && !fth_deadline_passed(deadline)) {
        struct timespec until = fth_deadline_timespec(deadline);
        pthread_cond_clockwait(&self->changed, &self->mutex, CLOCK_MONOTONIC, &until);
    }
    bool done = self->done;
    pthread_mutex_unlock(&self->mutex);
    return done;
}

/* Forgets what it has not handed over. */
static void end_search(search *self)
{
    if (self->running) {
        fth_stop_ask(&self->stop, FTH_STOP_REQUEST, 0, "run owner", "the run is not to be taken over any more");
        pthread_join(self->thread, NULL);
    }
    self->running = false;
    if (self->run_store)
        FTH_IGNORE(fth_run_store_release(self->run_store), "the lease expires");
    fth_run_store_free(self->run_store);
    self->run_store = NULL;
    fth_run_selection_release(&self->found);
}

/* The store is this process's, and the selection says where the record is. */
static void adopt(fth_run_owner *owner)
{
    search *self = &owner->search;
    fth_run_selection *selection = owner->with->selection;
    owner->run_store = self->run_store;
    self->run_store = NULL;
    free(selection->folder);
    selection->folder = self->found.folder;
    selection->stored = self->found.stored;
    selection->stored_bytes = self->found.stored_bytes;
    selection->created_s = self->found.created_s;
    self->found.folder = NULL;
    end_search(self);
}

/* Goes on with the search until the deadline; *found when it has ended. */
static fth_status search_on(fth_run_owner *owner, fth_deadline deadline, bool *found, bool *finished)
{
    fth_status status = FTH_OK;
    search *self = &owner->search;

    *found = false;
    if (!self->running)
        FTH_TRY(begin_search(owner));
    if (!wait_for_search(self, deadline))
        goto out;
    pthread_join(self->thread, NULL);
    self->running = false;
    if (self->status != FTH_OK)
        FTH_TRY(fth_fail(self->status, "%s", self->message));
    *finished = self->found.finished;
    *found = true;
    if (*finished)
        end_search(self);
    else
        adopt(owner);

out:
    if (status != FTH_OK)
        end_search(self);
    return status;
}

/* ---- taking over ---- */

void fth_run_owner_take_over(fth_run_owner *owner, const char *reason, bool leads, bool restores)
{
    atomic_store(&owner->leads, leads);
    if (owner->wanted || owner->saver)
        return;
    snprintf(owner->reason, sizeof owner->reason, "%s", reason);
    owner->lost = (fth_stop)FTH_STOP_INITIALIZER;
    owner->wanted = true;
    owner->restores = restores;
    owner->warned = false;
    owner->next_try_s = 0;
}

bool fth_run_owner_is_taking_over(const fth_run_owner *owner)
{
    return owner->wanted;
}

/* The run's folder, if it is on this machine. */
static fth_status find_folder(fth_run_owner *owner, bool *finished)
{
    fth_status status = FTH_OK;
    fth_run_selection *selection = owner->with->selection;
    fth_record_summary summary = {0};
    char *folder = fth_path_join(selection->options.saving.runs, selection->id);

    *finished = false;
    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    free(selection->folder);
    selection->folder = NULL;
    if (fth_record_exists(folder)) {
        FTH_TRY(fth_record_read(folder, &summary));
        *finished = summary.finished;
        selection->folder = folder;
        folder = NULL;
    }

out:
    fth_record_release(&summary);
    free(folder);
    return status;
}

/* Undoes what fth_run_owner_open() has done. */
static void close_record(fth_run_owner *owner)
{
    const fth_run_parts *with = owner->with;
    fth_deadline_watchdog_set_run(with->watchdog, &(fth_watched_run){0});
    fth_saver_free(owner->saver);
    owner->saver = NULL;
    fth_reporter_set_record(with->reporter, NULL, NULL);
    free(owner->last_path);
    free(owner->best_path);
    owner->last_path = owner->best_path = NULL;
}

/* *kept: the run is kept here. */
static fth_status try_to_keep(fth_run_owner *owner, fth_deadline deadline, bool *kept)
{
    fth_status status = FTH_OK;
    const fth_run_selection *selection = owner->with->selection;
    bool found = true, finished = false;

    *kept = false;
    if (*selection->options.store.checkpoints && !owner->run_store)
        FTH_TRY(search_on(owner, deadline, &found, &finished));
    if (found && !finished && selection->stored_bytes == 0) /* it is in no store, or too short a time for an event */
        FTH_TRY(find_folder(owner, &finished));
    if (finished) /* by the one that kept it, before it went: there is nothing left to keep */
        owner->wanted = false;
    if (!found || finished)
        goto out;
    FTH_TRY(fth_run_owner_open(owner));
    if (selection->folder)
        FTH_TRY(owner->restores ? fth_run_owner_restore(owner) : configure(owner));
    FTH_TRY(fth_run_owner_begin_store(owner));
    fth_saver_begin(owner->saver);
    FTH_TRY(fth_saver_start(owner->saver));
    *kept = true;

out:
    if (status != FTH_OK)
        close_record(owner);
    return status;
}

bool fth_run_owner_look(fth_run_owner *owner, const fth_start_facts *facts, fth_deadline deadline)
{
    bool kept = false;
    if (!owner->wanted || fth_clock_seconds() < owner->next_try_s)
        return false;
    if (try_to_keep(owner, deadline, &kept) != FTH_OK) {
        if (!owner->warned)
            fth_log_warning("the run is not saved for now, as its record could not be taken over; trying again: %s",
                            fth_error_message());
        owner->warned = true;
        owner->next_try_s = fth_clock_seconds() + RETRY_S;
        return false;
    }
    if (!kept)
        return false;
    owner->wanted = false;
    fth_spending_take_over(owner->with->spending);
    fth_start_facts start = *facts;
    start.resumed = true;
    start.reason = owner->reason;
    fth_run_owner_write_start(owner, &start);
    return true;
}

/* ---- leaving it to others ---- */

bool fth_run_owner_is_lost(const fth_run_owner *owner)
{
    return owner->lost.asked || (owner->run_store && fth_run_store_is_lost(owner->run_store));
}

fth_stop_reason fth_run_owner_why_lost(const fth_run_owner *owner)
{
    fth_stop_reason reason = fth_stop_get(&owner->lost);
    if (reason.kind == FTH_STOP_NONE) {
        reason = (fth_stop_reason){.kind = FTH_STOP_FENCED, .source = "lease"};
        snprintf(reason.message, sizeof reason.message, "another machine has taken this run over");
    }
    return reason;
}

void fth_run_owner_give_up(fth_run_owner *owner)
{
    owner->wanted = false;
    atomic_store(&owner->leads, false);
    end_search(&owner->search);
    close_record(owner);
    if (owner->run_store && !fth_run_owner_is_lost(owner)) {
        const fth_status status = fth_run_owner_leave(owner);
        if (status != FTH_OK && status != FTH_PEER_LOST) /* the successor was faster */
            fth_log_warning("%s", fth_error_message());
    }
    fth_run_store_free(owner->run_store);
    owner->run_store = NULL;
    pthread_mutex_destroy(&owner->lost.mutex);
    owner->lost = (fth_stop)FTH_STOP_INITIALIZER; /* of a lease that is this process's no longer */
}

/* ---- the end ---- */

fth_status fth_run_owner_leave(fth_run_owner *owner)
{
    return owner->run_store ? fth_run_store_leave(owner->run_store) : FTH_OK;
}

void fth_run_owner_discard_unbegun(fth_run_owner *owner)
{
    fth_run_store *store = owner->run_store;
    bool was_stored = store && fth_run_store_is_mirrored(store);
    if (!fth_reporter_discard_unbegun(owner->with->reporter))
        return;
    /* What an earlier process announced may have begun on its machine, and stays. */
    if (was_stored && !owner->with->selection->stored && !fth_run_store_is_lost(store) &&
        fth_run_store_discard(store, false) != FTH_OK)
        fth_log_warning("%s keeps the record of a run that never took a step, which the next one replaces: %s",
                        fth_run_store_url(store), fth_error_message());
}

void fth_run_owner_free(fth_run_owner *owner)
{
    if (!owner)
        return;
    end_search(&owner->search);
    fth_saver_free(owner->saver);
    fth_run_store_free(owner->run_store);
    free(owner->last_path);
    free(owner->best_path);
    free(owner->node);
    pthread_mutex_destroy(&owner->search.mutex);
    pthread_cond_destroy(&owner->search.changed);
    pthread_mutex_destroy(&owner->lost.mutex);
    free(owner);
}
