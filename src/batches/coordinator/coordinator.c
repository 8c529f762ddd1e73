/* See coordinator.h. This file creates the parts and frees them; each has a file of its own:
 *
 *     coordinator_sets         the data sets, opened at the start
 *     coordinator_jobs         the jobs that train on them
 *     coordinator_dispatcher   the scheduler under its lock: orders for prefetchers
 *     coordinator_local        clients of this machine: socket and board
 *     coordinator_agents       agents of other machines
 *     worker_orders            prefetchers on other machines
 *     coordinator_watch        the thread that polls all of these
 *     coordinator_state        the state that survives a restart
 *     coordinator_routes, coordinator_report   HTTP and its reports */
#include "batches/coordinator/coordinator.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches/coordinator/coordinator_internal.h"

enum { MAX_ENTRY_BYTES = 1 << 30, ORDER_LIMIT_S = 60 };

struct fth_coordinator {
    fth_coordinator_parts parts;
    fth_served_sets *sets;
    fth_board *board;           /* shm */
    fth_segment_cache *segment; /* shm */
    fth_local_requests requests;
    fth_prefetchers *prefetchers;
    char *state, *url;
    int port;
};

/* ---- starting ---- */

/* True if a comma-separated list has `word`, perhaps followed by a colon. */
static bool lists(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, length) == 0 && (!at[length] || at[length] == ',' || at[length] == ':'))
            return true;
    return false;
}

static fth_status check_options(const fth_coordinator_options *options)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_cache_check(options->cache));
    FTH_TRY(fth_prefetch_check(options->prefetch));
    FTH_REQUIRE(options->memory_bytes >= 1 << 20, FTH_INVALID, "--cache-memory must be at least 1 MiB");
    FTH_REQUIRE(options->budget_usd_per_hour == 0 || options->budget_usd_per_hour > options->cache_usd_per_hour,
                FTH_INVALID, "the cache alone costs $%g an hour, which leaves nothing of --budget-per-hour %g",
                options->cache_usd_per_hour, options->budget_usd_per_hour);

out:
    return status;
}

/* The state folder; NULL: there is none. free() it. */
static fth_status choose_state_folder(const fth_coordinator_options *options, char **folder)
{
    fth_status status = FTH_OK;
    char *cache = NULL, name[32];

    *folder = NULL;
    if (options->state) {
        *folder = strdup(options->state);
        FTH_REQUIRE(*folder, FTH_NO_MEMORY, "no memory for a path");
    } else if (options->port > 0) {
        FTH_TRY(fth_cache_folder(&cache));
        snprintf(name, sizeof name, "batches-%d", options->port);
        *folder = fth_path_join(cache, name);
    }

out:
    free(cache);
    return status;
}

static fth_status open_cache(fth_coordinator *coordinator, const fth_coordinator_options *options)
{
    fth_status status = FTH_OK;
    bool found = false;
    if (strcmp(options->cache, "shm") == 0 && coordinator->state) {
        FTH_TRY(fth_segment_open(coordinator->state, options->memory_bytes, &coordinator->board, &coordinator->segment,
                                 &found));
        if (found)
            fth_log(FTH_LOG_INFO, "batches: found the memory of the last coordinator");
    } else if (strcmp(options->cache, "shm") == 0) {
        FTH_TRY(fth_board_create(&coordinator->board));
        FTH_TRY(fth_segment_create(options->memory_bytes, coordinator->board, &coordinator->segment));
    }
    FTH_TRY(fth_cache_open(options->cache,
                           &(fth_cache_options){.memory_bytes = options->memory_bytes, .segment = coordinator->segment},
                           &coordinator->parts.cache));

out:
    return status;
}

static void note_found(void *dispatcher, const fth_receipt *receipt)
{
    fth_dispatcher_found(dispatcher, receipt);
}

/* Creates the parts that hold state, and loads the state of the last coordinator. */
static fth_status open_state(fth_coordinator *coordinator, const fth_coordinator_options *options)
{
    fth_status status = FTH_OK;
    fth_coordinator_parts *parts = &coordinator->parts;

    FTH_TRY(choose_state_folder(options, &coordinator->state));
    if (coordinator->state) {
        FTH_TRY(fth_state_saver_open(coordinator->state, &parts->saver));
        FTH_TRY(fth_access_remember(parts->access, coordinator->state));
    }
    FTH_TRY(fth_served_sets_open(options->sets, options->set_count, options->data, &coordinator->sets));
    parts->sets = coordinator->sets;
    FTH_TRY(open_cache(coordinator, options));
    FTH_TRY(fth_dispatcher_create(
        &(fth_dispatcher_options){.sets = parts->sets,
                                  .cache = parts->cache,
                                  .board = coordinator->board,
                                  .memory_bytes = (uint64_t)(FTH_CACHE_FILL * (double)options->memory_bytes),
                                  .budget_usd_per_hour = options->budget_usd_per_hour,
                                  .cache_usd_per_hour = options->cache_usd_per_hour},
        &parts->dispatcher));
    FTH_TRY(fth_served_jobs_create(parts->sets, parts->dispatcher, options->seed, fth_cache_name(parts->cache),
                                   &parts->jobs));
    fth_dispatcher_set_accountant(parts->dispatcher, fth_served_jobs_account, parts->jobs);
    FTH_TRY(fth_agents_create(parts->jobs, parts->dispatcher, parts->cache, &parts->agents));
    FTH_TRY(fth_worker_orders_create(parts->dispatcher, parts->cache, ORDER_LIMIT_S, &parts->workers));
    if (parts->saver)
        fth_state_saver_load(parts->saver, parts->jobs, parts->agents, parts->dispatcher);
    FTH_TRY(fth_cache_visit(parts->cache, note_found, parts->dispatcher));
    FTH_TRY(fth_watcher_create(
        &(fth_watcher_options){
            .dispatcher = parts->dispatcher, .jobs = parts->jobs, .agents = parts->agents, .workers = parts->workers},
        &parts->watcher));

out:
    return status;
}

static fth_status serve_http(fth_coordinator *coordinator, const fth_coordinator_options *options)
{
    fth_coordinator_parts *parts = &coordinator->parts;
    fth_server *http = NULL;
    uint64_t largest = options->memory_bytes < MAX_ENTRY_BYTES ? options->memory_bytes : MAX_ENTRY_BYTES;
    fth_status status = fth_server_start(&(fth_server_options){.address = options->address,
                                                               .port = options->port,
                                                               .routes = fth_coordinator_routes,
                                                               .context = parts,
                                                               .access = parts->access,
                                                               .refuse = fth_coordinator_refuse,
                                                               .max_body_bytes = largest,
                                                               .certificate_pem = options->certificate_pem,
                                                               .key_pem = options->key_pem,
                                                               .threads = 2,
                                                               .max_connections = 4096},
                                         &http);
    atomic_store(&parts->http, http);
    if (status == FTH_OK)
        coordinator->port = fth_server_port(http);
    return status;
}

static fth_status register_job(void *context, const json_t *request, uint64_t *job, json_t **answer)
{
    fth_coordinator_parts *parts = context;
    fth_status status = fth_served_jobs_register(parts->jobs, request, "", NULL, job, answer);
    fth_state_saver_nudge(parts->saver);
    return status;
}

static fth_status join_job(void *context, uint64_t job, json_t **answer)
{
    const fth_coordinator_parts *parts = context;
    if (!fth_served_jobs_may_join(parts->jobs, job, NULL))
        return fth_fail(FTH_INVALID, "there is no job %" PRIu64 "; register first", job);
    *answer = json_object();
    return FTH_OK;
}

static fth_status describe_set(void *context, const char *name, json_t **answer)
{
    const fth_coordinator_parts *parts = context;
    const fth_open_set *set = NULL;
    fth_status status = fth_served_sets_require(parts->sets, name, &set);
    if (status == FTH_OK)
        *answer = json_pack("{s:o}", "set", json_deep_copy(set->description));
    return status;
}

static fth_status describe_job(void *context, uint64_t id, json_t **answer)
{
    const fth_coordinator_parts *parts = context;
    fth_served_job job;
    if (!fth_served_jobs_find(parts->jobs, id, &job))
        return fth_fail(FTH_INVALID, "there is no job %" PRIu64, id);
    *answer = fth_served_job_describe(&job);
    return FTH_OK;
}

static fth_status serve_this_machine(fth_coordinator *coordinator)
{
    fth_status status = FTH_OK;
    fth_coordinator_parts *parts = &coordinator->parts;
    fth_local_clients *local = NULL;
    char *path = NULL;

    coordinator->requests = (fth_local_requests){.context = parts,
                                                 .register_job = register_job,
                                                 .join_job = join_job,
                                                 .describe_set = describe_set,
                                                 .describe_job = describe_job};
    FTH_TRY(fth_host_own_socket_path(coordinator->port, &path));
    FTH_TRY(fth_local_clients_open(&(fth_local_clients_options){.path = path,
                                                                .requests = &coordinator->requests,
                                                                .jobs = parts->jobs,
                                                                .dispatcher = parts->dispatcher,
                                                                .segment = coordinator->segment,
                                                                .board = coordinator->board,
                                                                .watcher = parts->watcher},
                                   &local));
    atomic_store(&parts->local, local);

out:
    free(path);
    return status;
}

static fth_status start_prefetchers(fth_coordinator *coordinator, const fth_coordinator_options *options)
{
    fth_prefetch_options prefetching = options->prefetching;
    const fth_order_source dispatcher = fth_dispatcher_order_source(coordinator->parts.dispatcher);
    bool v6 = strchr(options->address, ':') != NULL;
    coordinator->url = fth_format("%s://%s%s%s:%d", options->certificate_pem ? "https" : "http", v6 ? "[" : "",
                                  options->address, v6 ? "]" : "", coordinator->port);
    if (!prefetching.address)
        prefetching.address = coordinator->url;
    return fth_prefetchers_start(options->prefetch, &dispatcher, &prefetching, &coordinator->prefetchers);
}

fth_status fth_coordinator_start(const fth_coordinator_options *options, fth_coordinator **result)
{
    fth_status status = FTH_OK;
    fth_coordinator *coordinator = NULL;

    *result = NULL;
    FTH_TRY(check_options(options));
    FTH_TRY(fth_allocate(1, sizeof *coordinator, &coordinator));
    fth_coordinator_parts *parts = &coordinator->parts;
    parts->prefetch = options->prefetch;
    parts->has_workers = lists(options->prefetch, "workers");
    parts->memory_bytes = options->memory_bytes;
    parts->began_s = fth_clock_seconds();
    FTH_TRY(fth_access_create(&(fth_access_options){.address = options->address,
                                                    .keys = options->keys,
                                                    .host_names = options->host_names,
                                                    .certificate_pem = options->certificate_pem,
                                                    .max_requests_per_s = options->max_requests_per_s,
                                                    .open = options->open,
                                                    .port = options->port},
                              &parts->access));
    FTH_TRY(open_state(coordinator, options));
    FTH_TRY(serve_http(coordinator, options));
    if (coordinator->segment)
        FTH_TRY(serve_this_machine(coordinator));
    FTH_TRY(fth_watcher_start(parts->watcher, atomic_load(&parts->local)));
    FTH_TRY(start_prefetchers(coordinator, options));
    if (parts->saver)
        FTH_TRY(fth_state_saver_start(parts->saver));
    *result = coordinator;
    coordinator = NULL;

out:
    fth_coordinator_stop(coordinator);
    return status;
}

int fth_coordinator_port(const fth_coordinator *coordinator)
{
    return coordinator->port;
}

/* ---- stopping ---- */

void fth_coordinator_stop(fth_coordinator *coordinator)
{
    const double goodbye_s = 3;
    if (!coordinator)
        return;
    fth_coordinator_parts *parts = &coordinator->parts;
    if (parts->dispatcher)
        fth_dispatcher_close(parts->dispatcher);
    fth_prefetchers_stop(coordinator->prefetchers);
    fth_agents_close(parts->agents);
    fth_worker_orders_close(parts->workers);
    if (atomic_load(&parts->http))
        fth_server_stop(atomic_load(&parts->http), goodbye_s);
    fth_watcher_stop(parts->watcher);
    fth_state_saver_close(parts->saver); /* before the clients seem to leave */
    fth_local_clients_close(atomic_load(&parts->local));
    fth_watcher_free(parts->watcher);
    fth_agents_free(parts->agents);
    fth_worker_orders_free(parts->workers);
    fth_served_jobs_free(parts->jobs);
    fth_dispatcher_free(parts->dispatcher);
    fth_cache_free(parts->cache);
    fth_segment_free(coordinator->segment);
    fth_board_free(coordinator->board);
    fth_served_sets_free(coordinator->sets);
    fth_access_free(parts->access);
    free(coordinator->state);
    free(coordinator->url);
    free(coordinator);
}
