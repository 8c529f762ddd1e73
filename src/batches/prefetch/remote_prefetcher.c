/* See remote_prefetcher.h. A data set that cannot be opened is not retried for a while; its orders
 * fail with the reason. */
#include "batches/prefetch/remote_prefetcher.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/processors.h"
#include "batches/coordinator_link.h"
#include "batches/described_set.h"
#include "http/http.h"

enum { MAX_SETS = 64 };
#define ASK_S       10.0
#define TRY_AGAIN_S 5.0

typedef struct open_set {
    char name[FTH_DATA_NAME];
    fth_prefetch_set *set; /* NULL: it could not be opened */
    double failed_s;       /* when that failed */
    fth_status status;     /* and why */
    char reason[512];
} open_set;

struct fth_remote_prefetcher {
    fth_remote_prefetcher_options with; /* its texts are only used while opening */
    fth_coordinator_link *link;
    fth_cache *cache;
    fth_prefetchers *threads;

    pthread_mutex_t mutex; /* guards the members below; held while a data set is opened */
    open_set *sets[MAX_SETS];
    int set_count;
};

/* ---- data sets ---- */

static fth_status open_set_here(fth_remote_prefetcher *remote, const char *name, fth_prefetch_set **set)
{
    fth_status status = FTH_OK;
    fth_described_set described = {0};
    json_t *json = NULL;
    char *escaped = fth_http_escape(name, false), *target = escaped ? fth_format("/v1/data/%s", escaped) : NULL;

    FTH_REQUIRE(target, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_coordinator_ask(remote->link, "GET", target, NULL, fth_deadline_in(ASK_S), &json));
    FTH_TRY(fth_described_set_load(json, name, &described));
    FTH_REQUIRE(described.source.address, FTH_IO, "the coordinator gives no address for %s, so only it can open that",
                name);
    const fth_dataset_options options = {.seed = described.source.seed,
                                         .validation_fraction = described.source.validation_fraction,
                                         .random_split = described.source.random_split,
                                         .threads = 1};
    FTH_TRY(fth_prefetch_set_open(described.source.address, &options, set));

out:
    fth_described_set_release(&described);
    json_decref(json);
    free(escaped);
    free(target);
    return status;
}

/* With the mutex held. */
static open_set *find_set(fth_remote_prefetcher *remote, const char *name)
{
    for (int i = 0; i < remote->set_count; i++)
        if (strcmp(remote->sets[i]->name, name) == 0)
            return remote->sets[i];
    return NULL;
}

static fth_status lend_set(void *context, const char *data, fth_prefetch_set **lent)
{
    fth_status status = FTH_OK;
    fth_remote_prefetcher *remote = context;

    pthread_mutex_lock(&remote->mutex);
    open_set *set = find_set(remote, data);
    if (!set) {
        FTH_REQUIRE(remote->set_count < MAX_SETS, FTH_IO, "more than %d data sets", MAX_SETS);
        FTH_TRY(fth_allocate(1, sizeof *set, &set));
        snprintf(set->name, sizeof set->name, "%s", data);
        remote->sets[remote->set_count++] = set;
    }
    if (!set->set && (set->failed_s == 0 || fth_clock_seconds() - set->failed_s > TRY_AGAIN_S)) {
        set->status = open_set_here(remote, data, &set->set);
        if (set->status != FTH_OK) {
            set->failed_s = fth_clock_seconds();
            snprintf(set->reason, sizeof set->reason, "%s", fth_error_message());
            fth_log_warning("cannot open %s here: %s", data, set->reason);
        }
    }
    if (!set->set) {
        /* Another machine may be able to. */
        status = set->status == FTH_INVALID || set->status == FTH_UNSUPPORTED ? FTH_IO : set->status;
        status = fth_fail(status, "%s", set->reason);
    }
    *lent = set->set;

out:
    pthread_mutex_unlock(&remote->mutex);
    return status;
}

const char *fth_remote_prefetcher_version(fth_remote_prefetcher *remote, const char *data)
{
    pthread_mutex_lock(&remote->mutex);
    const open_set *set = find_set(remote, data);
    const char *version = set && set->set ? fth_prefetch_set_version(set->set) : NULL;
    pthread_mutex_unlock(&remote->mutex);
    return version;
}

/* ---- callbacks of its threads ---- */

static bool take(void *context, const char *prefetcher, fth_deadline deadline, fth_order *order)
{
    fth_remote_prefetcher *remote = context;
    (void)prefetcher;
    return remote->with.take(remote->with.context, remote, deadline, order);
}

static void done(void *context, const char *prefetcher, const fth_order *order, fth_status status, const char *reason,
                 const fth_prefetch_result *result, double cost_usd)
{
    fth_remote_prefetcher *remote = context;
    (void)prefetcher;
    (void)cost_usd;
    remote->with.done(remote->with.context, order, status, reason, result);
}

json_t *fth_order_save_outcome(const fth_order *order, fth_status status, const char *reason,
                               const fth_prefetch_result *result)
{
    char id[FTH_ITEM_ID_TEXT];
    fth_item_id_format(order->id, id);
    if (status == FTH_OK)
        return json_pack("{s:s, s:o}", "id", id, "preparation", fth_prefetch_result_save(result));
    char *text = fth_text_to_utf8(reason);
    json_t *json = json_pack("{s:s, s:s, s:s}", "id", id, "status", fth_status_name(status), "error", text ? text : "");
    free(text);
    return json;
}

/* ---- opening and closing ---- */

fth_status fth_remote_prefetcher_open(const fth_remote_prefetcher_options *options, fth_remote_prefetcher **remote)
{
    fth_status status = FTH_OK;
    fth_remote_prefetcher *opened = NULL;
    char threads[32];
    char *cache = NULL;

    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->mutex, NULL);
    opened->with = *options;
    FTH_TRY(fth_coordinator_link_open(&(fth_coordinator_link_options){.url = options->url,
                                                                      .pinned_key = options->pinned_key,
                                                                      .ca_file = options->ca_file},
                                      &opened->link));
    cache =
        strcmp(options->cache, "shm") == 0 ? fth_format("items+%s", options->url) : fth_format("%s", options->cache);
    FTH_REQUIRE(cache, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_cache_open(cache,
                           &(fth_cache_options){.memory_bytes = UINT64_MAX,
                                                .ca_file = options->ca_file,
                                                .pinned_key = options->pinned_key},
                           &opened->cache));
    snprintf(threads, sizeof threads, "threads:%d", options->threads > 0 ? options->threads : fth_processors_usable());
    FTH_TRY(fth_prefetchers_start(
        threads,
        &(fth_order_source){.context = opened, .take = take, .done = done, .set = lend_set, .cache = opened->cache},
        &(fth_prefetch_options){.answer_s = options->limit_s}, &opened->threads));
    *remote = opened;
    opened = NULL;

out:
    fth_wipe_text(cache);
    fth_remote_prefetcher_close(opened);
    return status;
}

void fth_remote_prefetcher_close(fth_remote_prefetcher *remote)
{
    if (!remote)
        return;
    fth_prefetchers_stop(remote->threads);
    fth_cache_free(remote->cache);
    fth_coordinator_link_free(remote->link);
    for (int i = 0; i < remote->set_count; i++) {
        fth_prefetch_set_free(remote->sets[i]->set);
        free(remote->sets[i]);
    }
    pthread_mutex_destroy(&remote->mutex);
    free(remote);
}
