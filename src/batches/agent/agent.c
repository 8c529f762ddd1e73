/* See agent.h. */
#include "batches/agent/agent.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/process.h"
#include "batches/agent/agent_internal.h"
#include "batches/agent/upstream.h"
#include "batches/coordinator/coordinator_watch.h"
#include "http/http.h"
#include "http/signature.h"

#define DEFAULT_IDLE_S 30.0
#define LOOK_EVERY_S   0.1
#define ANSWER_S       5.0 /* for requests that are passed on */

#define MAX_MEMORY (UINT64_C(1) << 30)
#define MIN_MEMORY (UINT64_C(64) << 20)

typedef struct batches_agent {
    char name[128];
    fth_coordinator_link *link;
    fth_board *board;
    fth_segment_cache *segment;
    fth_cache *cache;
    fth_dispatcher *dispatcher;
    fth_served_jobs *served;
    fth_agent_jobs *jobs;
    fth_watcher *watcher;
    fth_upstream *upstream;
    fth_local_requests requests;
    fth_local_clients *clients;
} batches_agent;

/* ---- requests that are passed on ---- */

static fth_status register_job(void *context, const json_t *request, uint64_t *job, json_t **answer)
{
    fth_status status = FTH_OK;
    batches_agent *agent = context;
    const char *name = json_string_value(json_object_get(request, "name")), *cache;
    json_t *got = NULL, *body = json_pack("{s:O?, s:O*, s:O*, s:s}", "job", json_object_get(request, "job"), "name",
                                          json_object_get(request, "name"), "resume",
                                          json_object_get(request, "resume"), "agent", agent->name);

    FTH_REQUIRE(body, FTH_INVALID, "the registration has no \"job\"");
    FTH_TRY(fth_coordinator_ask(agent->link, "POST", "/v1/jobs", body, fth_deadline_in(ANSWER_S), &got));
    cache = json_string_value(json_object_get(got, "cache"));
    FTH_TRY(fth_upstream_use_cache(agent->upstream, cache ? cache : fth_cache_shm.name));
    FTH_TRY(fth_agent_jobs_add(agent->jobs, name, got, job));
    *answer = got;
    got = NULL;

out:
    json_decref(body);
    json_decref(got);
    return status;
}

static fth_status join_job(void *context, uint64_t job, json_t **answer)
{
    batches_agent *agent = context;
    return fth_agent_jobs_describe(agent->jobs, job, answer);
}

static fth_status describe_set(void *context, const char *name, json_t **answer)
{
    fth_status status = FTH_OK;
    batches_agent *agent = context;
    char *escaped = fth_http_escape(name, false), *target = escaped ? fth_format("/v1/data/%s", escaped) : NULL;
    json_t *set = NULL;

    FTH_REQUIRE(target, FTH_NO_MEMORY, "no memory for a request to the coordinator");
    FTH_TRY(fth_coordinator_ask(agent->link, "GET", target, NULL, fth_deadline_in(ANSWER_S), &set));
    *answer = json_pack("{s:o}", "set", set);

out:
    free(escaped);
    free(target);
    return status;
}

static fth_status describe_job(void *context, uint64_t job, json_t **answer)
{
    batches_agent *agent = context;
    char target[64];
    if (job == 0)
        return fth_fail(FTH_INVALID, "\"figures\" needs a job; register or join first");
    snprintf(target, sizeof target, "/v1/jobs/%llu", (unsigned long long)job);
    return fth_coordinator_ask(agent->link, "GET", target, NULL, fth_deadline_in(ANSWER_S), answer);
}

/* ---- starting and stopping ---- */

/* A quarter of the free memory, within limits. */
static uint64_t choose_memory(void)
{
    uint64_t chosen = (uint64_t)fth_machine_available_bytes() / 4;
    return chosen > MAX_MEMORY ? MAX_MEMORY : chosen < MIN_MEMORY ? MIN_MEMORY : chosen;
}

fth_status fth_batches_agent_path(const fth_batches_agent_options *options, char **path)
{
    fth_status status = FTH_OK;
    char *url = fth_address_public(options->url), *name = NULL, *end = NULL;
    const char *host, *colon;
    fth_signer signer = {0};
    bool is_signed = false;
    long port;

    *path = NULL;
    FTH_REQUIRE(url, FTH_NO_MEMORY, "no memory for an address");
    host = strstr(url, "://");
    host = host ? host + 3 : url;
    colon = strrchr(host, ':');
    port = colon ? strtol(colon + 1, &end, 10) : 0;
    FTH_REQUIRE(host > url && colon && colon > host && port > 0 && port < 65536 && (*end == '\0' || *end == '/'),
                FTH_INVALID, "\"%s\" is not a coordinator's address; expected http://HOST:PORT", url);
    /* [::1] becomes ::1, as clients write it. */
    name = host[0] == '[' && colon[-1] == ']' ? strndup(host + 1, (size_t)(colon - host) - 2)
                                              : strndup(host, (size_t)(colon - host));
    FTH_REQUIRE(name, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_signer_from_environment(&signer, &is_signed));
    FTH_TRY(fth_host_socket_path(name, (int)port, is_signed ? signer.access : NULL, path));

out:
    fth_wipe(&signer, sizeof signer);
    free(url);
    free(name);
    return status;
}

char *fth_batches_agent_log(const char *path)
{
    return fth_format("%s.log", path);
}

static void close_agent(batches_agent *agent)
{
    if (agent->dispatcher)
        fth_dispatcher_close(agent->dispatcher);
    fth_watcher_stop(agent->watcher);
    fth_local_clients_close(agent->clients);
    fth_upstream_stop(agent->upstream);
    fth_watcher_free(agent->watcher);
    fth_agent_jobs_free(agent->jobs);
    fth_served_jobs_free(agent->served);
    fth_dispatcher_free(agent->dispatcher);
    fth_cache_free(agent->cache);
    fth_segment_free(agent->segment);
    fth_board_free(agent->board);
    fth_coordinator_link_free(agent->link);
}

/* The same name for the next agent at this path, so that the coordinator sees at once that the last
 * one is gone. Machines, and containers of one machine, may share a host name, so the kernel's boot
 * id and mount namespace are part of it. */
static void choose_name(const char *path, char *name, size_t size)
{
    char machine[64] = "", *boot = NULL, space[64] = "";
    size_t boot_bytes = 0;
    gethostname(machine, sizeof machine - 1);
    if (fth_file_read_all("/proc/sys/kernel/random/boot_id", 4096, &boot, &boot_bytes) != FTH_OK)
        boot_bytes = 0;
    (void)!readlink("/proc/self/ns/mnt", space, sizeof space - 1);
    uint64_t hash = fth_hash(path, strlen(path), fth_hash(space, strlen(space), fth_hash(boot, boot_bytes, 0)));
    snprintf(name, size, "%s-%08x", machine, (unsigned)(hash & UINT32_MAX));
    free(boot);
}

static fth_status open_agent(const fth_batches_agent_options *options, const char *path, batches_agent *agent)
{
    fth_status status = FTH_OK;
    const uint64_t memory_bytes = options->memory_bytes ? options->memory_bytes : choose_memory();

    choose_name(path, agent->name, sizeof agent->name);
    FTH_TRY(fth_coordinator_link_open(&(fth_coordinator_link_options){.url = options->url,
                                                                      .pinned_key = options->pinned_key,
                                                                      .ca_file = options->ca_file},
                                      &agent->link));
    FTH_TRY(fth_board_create(&agent->board));
    FTH_TRY(fth_segment_create(memory_bytes, agent->board, &agent->segment));
    FTH_TRY(fth_cache_open(fth_cache_shm.name, &(fth_cache_options){.segment = agent->segment}, &agent->cache));
    FTH_TRY(fth_dispatcher_create(
        &(fth_dispatcher_options){.cache = agent->cache,
                                  .board = agent->board,
                                  .memory_bytes = (uint64_t)(FTH_CACHE_FILL * (double)memory_bytes),
                                  .max_tries = 1}, /* the coordinator has already retried */
        &agent->dispatcher));
    FTH_TRY(fth_served_jobs_create(NULL, agent->dispatcher, 0, fth_cache_shm.name, &agent->served));
    FTH_TRY(fth_agent_jobs_create(agent->served, agent->board, &agent->jobs));
    FTH_TRY(fth_watcher_create(&(fth_watcher_options){.dispatcher = agent->dispatcher, .jobs = agent->served},
                               &agent->watcher));
    FTH_TRY(fth_upstream_start(&(fth_upstream_options){.agent = agent->name,
                                                       .link = agent->link,
                                                       .jobs = agent->jobs,
                                                       .dispatcher = agent->dispatcher,
                                                       .cache = agent->cache,
                                                       .board = agent->board},
                               &agent->upstream));
    agent->requests = (fth_local_requests){.context = agent,
                                           .register_job = register_job,
                                           .join_job = join_job,
                                           .describe_set = describe_set,
                                           .describe_job = describe_job};
    FTH_TRY(fth_local_clients_open(&(fth_local_clients_options){.path = path,
                                                                .requests = &agent->requests,
                                                                .jobs = agent->served,
                                                                .dispatcher = agent->dispatcher,
                                                                .segment = agent->segment,
                                                                .board = agent->board,
                                                                .watcher = agent->watcher},
                                   &agent->clients));
    FTH_TRY(fth_watcher_start(agent->watcher, agent->clients));

out:
    return status;
}

/* Runs until there have been no clients for a while. */
static void serve(const batches_agent *agent, double idle_s, const fth_stop *stop)
{
    double used_s = fth_clock_seconds();
    while (!(stop && atomic_load(&stop->asked)) && fth_clock_seconds() < used_s + idle_s) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_EVERY_S * 1e9)}, NULL);
        if (fth_local_clients_count(agent->clients) > 0)
            used_s = fth_clock_seconds();
    }
}

/* Whether another process serves the clients of this machine. */
static bool is_served(const char *path)
{
    fth_host_link *link = NULL;
    bool is_there = fth_host_connect(path, fth_deadline_in(1), &link) == FTH_OK;
    fth_host_disconnect(link);
    return is_there;
}

/* The process that starts an agent sends its messages to a file. After a clean exit nobody reads
 * it. */
static void remove_log(const char *path)
{
    char *log = fth_batches_agent_log(path);
    if (log)
        unlink(log);
    free(log);
}

fth_status fth_batches_agent_run(const fth_batches_agent_options *options)
{
    fth_status status = FTH_OK;
    batches_agent agent = {0};
    char *path = NULL;

    FTH_TRY(fth_batches_agent_path(options, &path));
    status = open_agent(options, path, &agent);
    if (status == FTH_OK) {
        serve(&agent, options->idle_s > 0 ? options->idle_s : DEFAULT_IDLE_S, options->stop);
        remove_log(path);
    } else if (status == FTH_INVALID && !agent.clients && agent.upstream && is_served(path)) {
        status = FTH_OK; /* another agent was faster */
    }

out:
    close_agent(&agent);
    free(path);
    return status;
}
