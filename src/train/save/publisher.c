/* See publisher.h. run_store.c and its relatives know what else a run has in a store;
 * checkpoint/publish.c puts the checkpoint itself. */
#include "train/save/publisher.h"

#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fth_publisher {
    fth_checkpoint_place place;
    fth_run_store *run_store; /* NULL: the run's folder is the store */
    fth_store *own_store;     /* that folder's; NULL with a run store */
    char *folder;             /* of the run, on this machine */
    char *checkpoints_folder; /* in it: checkpoints, copies, downloads */
    char *url;
    char name_suffix[32];        /* of manifests: ".json", "-f000002.json" */
    _Atomic int64_t stored_step; /* -1: none */
    _Atomic int64_t copy_step;   /* 0: none */
    _Atomic bool hurry;
};

static const char prefix[] = "checkpoints/";

/* ---- opening ---- */

static bool is_same_folder(const char *left, const char *right)
{
    char *a = realpath(left, NULL), *b = realpath(right, NULL);
    bool same = a && b && strcmp(a, b) == 0;
    free(a);
    free(b);
    return same;
}

static fth_status open_place(fth_publisher *publisher, const fth_train_options *options)
{
    fth_status status = FTH_OK;
    fth_run_store *run_store = publisher->run_store;
    fth_checkpoint_place place = {
        .prefix = prefix, .keep = (int)options->saving.keep, .keep_for_s = options->saving.keep_for_s};

    if (run_store) {
        place.store = fth_run_store_get(run_store);
        const char *there = fth_store_folder(place.store);
        FTH_REQUIRE(!there || !is_same_folder(there, publisher->folder), FTH_INVALID,
                    "--checkpoints %s is where this run keeps its record on this machine; choose another folder",
                    there);
        place.fence = fth_run_store_owner(run_store);
        place.guard = fth_run_store_guard;
        place.guard_context = run_store;
        place.unconditional = strcmp(options->store.lease, "off") == 0;
        snprintf(publisher->name_suffix, sizeof publisher->name_suffix, "-f%06" PRId64 ".json", place.fence);
    } else {
        FTH_TRY(fth_store_open(publisher->folder, NULL, &publisher->own_store));
        place.store = publisher->own_store;
    }
    publisher->place = place;

out:
    return status;
}

fth_status fth_publisher_open(const fth_train_options *options, const char *folder, fth_run_store *run_store,
                              fth_publisher **result)
{
    fth_status status = FTH_OK;
    fth_publisher *publisher = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *publisher, &publisher));
    publisher->run_store = run_store;
    publisher->stored_step = -1;
    snprintf(publisher->name_suffix, sizeof publisher->name_suffix, ".json");
    publisher->folder = fth_format("%s", folder);
    publisher->checkpoints_folder = fth_path_join(folder, "checkpoints");
    FTH_TRY(open_place(publisher, options));
    const char *where = fth_store_folder(publisher->place.store);
    publisher->url = fth_path_join(where ? where : fth_store_url(publisher->place.store), "checkpoints");
    *result = publisher;
    publisher = NULL;

out:
    fth_publisher_free(publisher);
    return status;
}

void fth_publisher_free(fth_publisher *publisher)
{
    if (!publisher)
        return;
    fth_store_free(publisher->own_store);
    free(publisher->folder);
    free(publisher->checkpoints_folder);
    free(publisher->url);
    free(publisher);
}

fth_status fth_publisher_load_latest(fth_publisher *publisher, const fth_stop *stop, fth_checkpoint *checkpoint)
{
    return fth_checkpoint_get_latest(&publisher->place, publisher->checkpoints_folder, stop, checkpoint);
}

const char *fth_publisher_url(const fth_publisher *publisher)
{
    return publisher->url;
}

char *fth_publisher_describe(const fth_publisher *publisher, int64_t step)
{
    char name[80];
    snprintf(name, sizeof name, "step-%012" PRId64 "%s", step, publisher->name_suffix);
    return fth_path_join(publisher->url, name);
}

/* ---- publishing ---- */

/* An upload under way ends when the run is lost: a machine that slept must not continue to write
 * when it wakes. */
typedef struct guarded {
    fth_publisher *publisher;
    const fth_store_progress *progress;
} guarded;

static bool moved(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const guarded *upload = context;
    fth_run_store *run_store = upload->publisher->run_store;
    bool wanted = upload->progress->moved(upload->progress->context, done_bytes, total_bytes);
    return wanted && (!run_store || fth_run_store_guard(run_store) != FTH_PEER_LOST);
}

fth_status fth_publisher_put(fth_publisher *publisher, const fth_publication *publication,
                             const fth_store_progress *progress)
{
    fth_status status = FTH_OK;
    fth_run_store *run_store = publisher->run_store;
    guarded upload = {publisher, progress};

    if (run_store && !publisher->hurry) {
        FTH_TRY(fth_run_store_flush(run_store)); /* so that the record is never behind */
        if (publication->best)
            FTH_TRY(fth_run_store_put_best(run_store, publication->best, publication->best_bytes, 0));
    }
    FTH_TRY(fth_checkpoint_put(&publisher->place, publication->step, publication->bytes, publication->size_bytes,
                               publication->state, &(fth_store_progress){.context = &upload, .moved = moved}));
    publisher->stored_step = publication->step;
    if (run_store && !publisher->hurry)
        fth_run_store_tidy_best(run_store, false);

out:
    if (status == FTH_INTERRUPTED && run_store && fth_run_store_guard(run_store) == FTH_PEER_LOST)
        status = FTH_PEER_LOST;
    if (status == FTH_PEER_LOST && run_store)
        fth_run_store_set_lost(run_store);
    return status;
}

int64_t fth_publisher_stored_step(const fth_publisher *publisher)
{
    return publisher->stored_step;
}

void fth_publisher_set_hurry(fth_publisher *publisher, bool hurry)
{
    publisher->hurry = hurry;
}

void fth_publisher_warn_of_space(const fth_publisher *publisher, uint64_t checkpoint_bytes)
{
    fth_checkpoint_warn_of_space(&publisher->place, checkpoint_bytes);
}

bool fth_publisher_make_room(const fth_publisher *publisher, bool *tried_again)
{
    return publisher->own_store && fth_checkpoint_make_room(&publisher->place, tried_again);
}

/* ---- the best model ---- */

bool fth_publisher_wants_best(const fth_publisher *publisher, int64_t step)
{
    return publisher->run_store && step >= 0 && !fth_run_store_has_best(publisher->run_store, step);
}

bool fth_publisher_has_best(const fth_publisher *publisher, int64_t step)
{
    char *key = NULL;
    if (publisher->run_store && step >= 0 && fth_run_store_find_best(publisher->run_store, step, &key) != FTH_OK)
        fth_log_warning("%s", fth_error_message());
    bool found = key != NULL;
    free(key);
    return found;
}

/* ---- the copy on this machine ---- */

bool fth_publisher_is_remote(const fth_publisher *publisher)
{
    return publisher->run_store != NULL;
}

/* The run's folder here as a place for checkpoints; fth_store_free(place->store). */
static fth_status open_copy(const fth_publisher *publisher, fth_checkpoint_place *place)
{
    *place = (fth_checkpoint_place){.prefix = prefix, .fence = publisher->place.fence, .keep = 1};
    return fth_store_open(publisher->folder, NULL, &place->store);
}

fth_status fth_publisher_save_copy(fth_publisher *publisher, const fth_publication *publication)
{
    fth_status status = FTH_OK;
    fth_checkpoint_place place = {0};

    FTH_TRY(open_copy(publisher, &place));
    FTH_TRY(fth_checkpoint_put(&place, publication->step, publication->bytes, publication->size_bytes,
                               publication->state, NULL));
    publisher->copy_step = publication->step;

out:
    fth_store_free(place.store);
    return status;
}

void fth_publisher_drop_copy(fth_publisher *publisher)
{
    fth_checkpoint_place place = {0};
    if (open_copy(publisher, &place) != FTH_OK || fth_checkpoint_remove_all(&place) != FTH_OK)
        fth_log_warning("%s", fth_error_message()); /* the next start removes it */
    fth_store_free(place.store);
    publisher->copy_step = 0;
}

int64_t fth_publisher_copy_step(const fth_publisher *publisher)
{
    return publisher->copy_step;
}

char *fth_publisher_describe_copy(const fth_publisher *publisher)
{
    int64_t step = publisher->copy_step;
    if (step <= 0)
        return NULL;
    return fth_format("%s has not taken the last checkpoint: step %" PRId64
                      " is saved in %s; the next start on this machine continues from there, unless another machine "
                      "continues the run first",
                      fth_run_store_url(publisher->run_store), step, publisher->checkpoints_folder);
}

fth_status fth_publisher_move_copy(fth_publisher *publisher, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_checkpoint_place place = {0};
    int64_t step;
    bool done;

    if (!publisher->run_store)
        return FTH_OK;
    FTH_TRY(open_copy(publisher, &place));
    status = fth_checkpoint_move(&place, &publisher->place, fth_run_store_last_owner(publisher->run_store), stop, &step,
                                 &done);
    if (status == FTH_CORRUPT) { /* it is not the only one: the store has the run */
        fth_log_warning("the copy in %s is not used: %s", publisher->checkpoints_folder, fth_error_message());
        status = FTH_OK;
    }
    FTH_TRY(status);
    if (done)
        fth_log_info("step %" PRId64 " was saved on this machine only; %s has it now", step,
                     fth_run_store_url(publisher->run_store));
    else if (step >= 0)
        fth_log_info("removed the copy of step %" PRId64 " on this machine: the run has gone on without it", step);

out:
    fth_store_free(place.store);
    return status;
}
