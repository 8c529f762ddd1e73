/* See keeper.h. */
#include "train/run/keeper.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "train/run/run_record.h"
#include "train/run/run_takeover.h"
#include "train/run/run_text.h"

#define RETRY_S 2.0 /* after a takeover that failed: a lock is held yet, a store is away */

/* Finds the run in its store and takes its lease, in a thread; all zero while there is none. */
typedef struct search {
    fth_train_options *options; /* the beginning's */
    fth_run_store *run_store;
    fth_beginning found;
    fth_stop stop; /* asked to end it */
    pthread_t thread;
    bool running; /* the thread is to be joined */

    pthread_mutex_t mutex; /* guards what follows; the rest is the thread's until `done` */
    pthread_cond_t changed;
    bool done;
    fth_status status;
    char message[768];
} search;

struct fth_keeper {
    fth_keeper_parts with;
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

fth_status fth_keeper_create(const fth_keeper_parts *parts, fth_keeper **keeper)
{
    fth_status status = fth_allocate(1, sizeof **keeper, keeper);
    if (status != FTH_OK)
        return status;
    (*keeper)->with = *parts;
    (*keeper)->lost = (fth_stop)FTH_STOP_INITIALIZER;
    pthread_mutex_init(&(*keeper)->search.mutex, NULL);
    pthread_cond_init(&(*keeper)->search.changed, NULL);
    return FTH_OK;
}

fth_saver *fth_keeper_get_saver(const fth_keeper *keeper)
{
    return keeper->saver;
}

fth_run_store *fth_keeper_get_store(const fth_keeper *keeper)
{
    return keeper->run_store;
}

const char *fth_keeper_last_path(const fth_keeper *keeper)
{
    return keeper->last_path;
}

const char *fth_keeper_best_path(const fth_keeper *keeper)
{
    return keeper->best_path;
}

/* ---- the beginning ---- */

static void set_takeover(const fth_keeper *keeper)
{
    fth_takeover takeover = fth_run_store_get_takeover(keeper->run_store);
    fth_spending_set_takeover(keeper->with.spending, takeover.waited_s, takeover.previous_seen_s,
                              takeover.previous_process_s);
}

fth_status fth_keeper_set_node(fth_keeper *keeper, const char *node)
{
    keeper->node = fth_format("%s", node);
    return keeper->node ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the name of a node");
}

/* `id`: of the group whose lease it is, "" for a new one. */
static void set_group(fth_keeper *keeper, fth_run_store *run_store, const char *id)
{
    if (keeper->node)
        fth_run_store_set_group(
            run_store,
            &(fth_run_group){.group = id, .name = keeper->node, .leads = &keeper->leads, .lost = &keeper->lost});
}

fth_status fth_keeper_find_run(fth_keeper *keeper, const fth_train_options *asked)
{
    fth_status status = FTH_OK;
    fth_beginning *beginning = keeper->with.beginning;
    char group[FTH_LEASE_GROUP_BYTES];

    if (!*asked->checkpoints)
        return fth_beginning_find(asked, beginning);
    FTH_TRY(fth_beginning_prepare(asked, beginning));
    FTH_TRY(fth_run_store_open(asked, &keeper->run_store));
    set_group(keeper, keeper->run_store, "");
    fth_guardian_set_run(keeper->with.guardian, &(fth_guarded_run){.run_store = keeper->run_store});
    FTH_TRY(fth_stored_run_find(keeper->run_store, keeper->with.stop, asked->standby, beginning));
    fth_run_store_get_group(keeper->run_store, group);
    snprintf(beginning->lease_group, sizeof beginning->lease_group, "%s", group);
    set_takeover(keeper);

out:
    return status;
}

fth_status fth_keeper_open(fth_keeper *keeper)
{
    fth_status status = FTH_OK;
    const fth_keeper_parts *with = &keeper->with;
    fth_record *record = NULL;

    FTH_TRY(fth_run_record_open(with->beginning, with->setup, with->spending, &record));
    fth_reporter_set_record(with->reporter, record, keeper->run_store);
    const char *folder = fth_record_folder(record);
    FTH_TRY(fth_run_text_write(with->setup, folder));
    keeper->last_path = fth_path_join(folder, "last.safetensors");
    keeper->best_path = fth_path_join(folder, "best.safetensors");
    FTH_REQUIRE(keeper->last_path && keeper->best_path, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_saver_create(&(fth_saver_options){.train = with->setup->options,
                                                  .engine = with->setup->engine,
                                                  .position = with->position,
                                                  .dataset = with->setup->dataset,
                                                  .reporter = with->reporter,
                                                  .stop = with->stop,
                                                  .run_store = keeper->run_store,
                                                  .folder = folder,
                                                  .best_path = keeper->best_path,
                                                  .resumed = with->beginning->folder != NULL},
                             &keeper->saver));
    fth_guardian_set_run(
        with->guardian,
        &(fth_guarded_run){.run_store = keeper->run_store, .saver = keeper->saver, .best_path = keeper->best_path});

out:
    return status;
}

/* Brings run.json up to date. */
static fth_status configure(const fth_keeper *keeper)
{
    const fth_keeper_parts *with = &keeper->with;
    return fth_run_record_configure(fth_reporter_get_record(with->reporter), with->beginning, with->setup,
                                    with->spending);
}

fth_status fth_keeper_restore(fth_keeper *keeper)
{
    fth_status status = FTH_OK;
    bool restored = false;

    FTH_TRY(fth_saver_restore(keeper->saver, &restored));
    FTH_TRY(fth_setup_adapt_to_workers(keeper->with.setup, keeper->with.position));
    if (!restored) /* killed before its first checkpoint */
        FTH_TRY(fth_setup_load_weights(keeper->with.setup, keeper->with.position));
    FTH_TRY(configure(keeper)); /* only now: a run that cannot be continued stays as it was */

out:
    return status;
}

fth_status fth_keeper_begin_store(fth_keeper *keeper)
{
    fth_status status = FTH_OK;
    const fth_beginning *beginning = keeper->with.beginning;
    if (!keeper->run_store)
        return FTH_OK;
    const char *folder = fth_record_folder(fth_reporter_get_record(keeper->with.reporter));
    FTH_TRY(fth_run_store_begin(keeper->run_store, folder, beginning->stored_bytes));
    FTH_TRY(fth_run_text_put(keeper->run_store, folder));
    FTH_TRY(fth_run_store_put_run(keeper->run_store, !beginning->stored));

out:
    return status;
}

void fth_keeper_write_start(fth_keeper *keeper, const fth_start_facts *facts)
{
    const fth_setup *setup = keeper->with.setup;
    fth_reporter_write_start(keeper->with.reporter, facts);
    if (facts->resumed)
        fth_saver_check_best(keeper->saver);
    if (*setup->weights_format && !facts->reason)
        fth_reporter_write_weights(keeper->with.reporter, setup->weights_format, setup->weights.head_note);
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

static fth_status begin_search(fth_keeper *keeper)
{
    fth_status status = FTH_OK;
    search *self = &keeper->search;
    const fth_beginning *beginning = keeper->with.beginning;

    self->stop = (fth_stop)FTH_STOP_INITIALIZER;
    self->done = false;
    FTH_TRY(fth_beginning_prepare(&beginning->options, &self->found));
    /* As asked, which is what the record has, and not as adapted to data since. */
    FTH_TRY(fth_options_from_json(&fth_train_option_table, &self->found.options, keeper->with.setup->configuration,
                                  "the run"));
    fth_options_identity(&fth_train_option_table, &self->found.options, self->found.identity);
    FTH_TRY(fth_run_store_open(&beginning->options, &self->run_store));
    set_group(keeper, self->run_store, beginning->lease_group);
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
        fth_stop_ask(&self->stop, FTH_STOP_REQUEST, 0, "keeper", "the run is not to be taken over any more");
        pthread_join(self->thread, NULL);
    }
    self->running = false;
    if (self->run_store)
        (void)fth_run_store_release(self->run_store);
    fth_run_store_free(self->run_store);
    self->run_store = NULL;
    fth_beginning_release(&self->found);
}

/* The store is this process's, and the beginning says where the record is by now. */
static void adopt(fth_keeper *keeper)
{
    search *self = &keeper->search;
    fth_beginning *beginning = keeper->with.beginning;
    keeper->run_store = self->run_store;
    self->run_store = NULL;
    free(beginning->folder);
    beginning->folder = self->found.folder;
    beginning->stored = self->found.stored;
    beginning->stored_bytes = self->found.stored_bytes;
    beginning->created_s = self->found.created_s;
    self->found.folder = NULL;
    end_search(self);
}

/* Goes on with the search until the deadline; *found when it has ended. */
static fth_status search_on(fth_keeper *keeper, fth_deadline deadline, bool *found, bool *finished)
{
    fth_status status = FTH_OK;
    search *self = &keeper->search;

    *found = false;
    if (!self->running)
        FTH_TRY(begin_search(keeper));
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
        adopt(keeper);

out:
    if (status != FTH_OK)
        end_search(self);
    return status;
}

/* ---- taking over ---- */

void fth_keeper_take_over(fth_keeper *keeper, const char *reason, bool leads, bool restores)
{
    atomic_store(&keeper->leads, leads);
    if (keeper->wanted || keeper->saver)
        return;
    snprintf(keeper->reason, sizeof keeper->reason, "%s", reason);
    keeper->lost = (fth_stop)FTH_STOP_INITIALIZER;
    keeper->wanted = true;
    keeper->restores = restores;
    keeper->warned = false;
    keeper->next_try_s = 0;
}

bool fth_keeper_is_taking_over(const fth_keeper *keeper)
{
    return keeper->wanted;
}

/* The run's folder, if it is on this machine. */
static fth_status find_folder(fth_keeper *keeper, bool *finished)
{
    fth_status status = FTH_OK;
    fth_beginning *beginning = keeper->with.beginning;
    fth_record_summary summary = {0};
    char *folder = fth_path_join(beginning->options.runs, beginning->id);

    *finished = false;
    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    free(beginning->folder);
    beginning->folder = NULL;
    if (fth_record_exists(folder)) {
        FTH_TRY(fth_record_read(folder, &summary));
        *finished = summary.finished;
        beginning->folder = folder;
        folder = NULL;
    }

out:
    fth_record_release(&summary);
    free(folder);
    return status;
}

/* Undoes what fth_keeper_open() has done. */
static void close_record(fth_keeper *keeper)
{
    const fth_keeper_parts *with = &keeper->with;
    fth_guardian_set_run(with->guardian, &(fth_guarded_run){0});
    fth_saver_free(keeper->saver);
    keeper->saver = NULL;
    fth_reporter_set_record(with->reporter, NULL, NULL);
    free(keeper->last_path);
    free(keeper->best_path);
    keeper->last_path = keeper->best_path = NULL;
}

/* *kept: the run is kept here. */
static fth_status try_to_keep(fth_keeper *keeper, fth_deadline deadline, bool *kept)
{
    fth_status status = FTH_OK;
    const fth_beginning *beginning = keeper->with.beginning;
    bool found = true, finished = false;

    *kept = false;
    if (*beginning->options.checkpoints && !keeper->run_store)
        FTH_TRY(search_on(keeper, deadline, &found, &finished));
    if (found && !finished && beginning->stored_bytes == 0) /* it is in no store, or too short a time for an event */
        FTH_TRY(find_folder(keeper, &finished));
    if (finished) /* by the one that kept it, before it went: there is nothing left to keep */
        keeper->wanted = false;
    if (!found || finished)
        goto out;
    FTH_TRY(fth_keeper_open(keeper));
    if (beginning->folder)
        FTH_TRY(keeper->restores ? fth_keeper_restore(keeper) : configure(keeper));
    FTH_TRY(fth_keeper_begin_store(keeper));
    fth_saver_begin(keeper->saver);
    FTH_TRY(fth_saver_start(keeper->saver));
    *kept = true;

out:
    if (status != FTH_OK)
        close_record(keeper);
    return status;
}

bool fth_keeper_look(fth_keeper *keeper, const fth_start_facts *facts, fth_deadline deadline)
{
    bool kept = false;
    if (!keeper->wanted || fth_clock_seconds() < keeper->next_try_s)
        return false;
    if (try_to_keep(keeper, deadline, &kept) != FTH_OK) {
        if (!keeper->warned)
            fth_log_warning("the run is not saved for now, as its record could not be taken over; trying again: %s",
                            fth_error_message());
        keeper->warned = true;
        keeper->next_try_s = fth_clock_seconds() + RETRY_S;
        return false;
    }
    if (!kept)
        return false;
    keeper->wanted = false;
    fth_spending_take_over(keeper->with.spending);
    fth_start_facts start = *facts;
    start.resumed = true;
    start.reason = keeper->reason;
    fth_keeper_write_start(keeper, &start);
    return true;
}

/* ---- leaving it to others ---- */

bool fth_keeper_is_lost(const fth_keeper *keeper)
{
    return keeper->lost.asked || (keeper->run_store && fth_run_store_is_lost(keeper->run_store));
}

fth_stop_reason fth_keeper_why_lost(const fth_keeper *keeper)
{
    fth_stop_reason reason = fth_stop_get(&keeper->lost);
    if (reason.kind == FTH_STOP_NONE) {
        reason = (fth_stop_reason){.kind = FTH_STOP_FENCED, .source = "lease"};
        snprintf(reason.message, sizeof reason.message, "another machine has taken this run over");
    }
    return reason;
}

void fth_keeper_give_up(fth_keeper *keeper)
{
    keeper->wanted = false;
    atomic_store(&keeper->leads, false);
    end_search(&keeper->search);
    close_record(keeper);
    if (keeper->run_store && !fth_keeper_is_lost(keeper)) {
        const fth_status status = fth_keeper_leave(keeper);
        if (status != FTH_OK && status != FTH_PEER_LOST) /* the successor was faster */
            fth_log_warning("%s", fth_error_message());
    }
    fth_run_store_free(keeper->run_store);
    keeper->run_store = NULL;
    pthread_mutex_destroy(&keeper->lost.mutex);
    keeper->lost = (fth_stop)FTH_STOP_INITIALIZER; /* of a lease that is this process's no longer */
}

/* ---- the end ---- */

fth_status fth_keeper_leave(fth_keeper *keeper)
{
    return keeper->run_store ? fth_run_store_leave(keeper->run_store) : FTH_OK;
}

void fth_keeper_discard_unbegun(fth_keeper *keeper)
{
    fth_run_store *store = keeper->run_store;
    bool was_stored = store && fth_run_store_is_mirrored(store);
    if (!fth_reporter_discard_unbegun(keeper->with.reporter))
        return;
    /* What an earlier process announced may have begun on its machine, and stays. */
    if (was_stored && !keeper->with.beginning->stored && !fth_run_store_is_lost(store) &&
        fth_run_store_discard(store, false) != FTH_OK)
        fth_log_warning("%s keeps the record of a run that never took a step, which the next one replaces: %s",
                        fth_run_store_url(store), fth_error_message());
}

void fth_keeper_free(fth_keeper *keeper)
{
    if (!keeper)
        return;
    end_search(&keeper->search);
    fth_saver_free(keeper->saver);
    fth_run_store_free(keeper->run_store);
    free(keeper->last_path);
    free(keeper->best_path);
    free(keeper->node);
    pthread_mutex_destroy(&keeper->search.mutex);
    pthread_cond_destroy(&keeper->search.changed);
    pthread_mutex_destroy(&keeper->lost.mutex);
    free(keeper);
}
