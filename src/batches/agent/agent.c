/* See agent.h: puts the parts together, answers clients, and ends when nobody needs it. */
#include "batches/agent/agent.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/process.h"
#include "batches/agent/agent_fill.h"
#include "batches/agent/agent_internal.h"
#include "http/http.h"
#include "http/signature.h"

#define DEFAULT_IDLE_S 30.0
#define LOOK_EVERY_S   0.1
#define ANSWER_S       5.0 /* for what clients ask of the coordinator */

#define MAX_MEMORY (UINT64_C(1) << 30)
#define MIN_MEMORY (UINT64_C(64) << 20)

typedef struct batches_agent {
    char name[128];
    fth_coordinator_link *link;
    fth_board *board;
    fth_segment_cache *segment;
    fth_agent_jobs *jobs;
    fth_agent_fill *fill;
    fth_host *host;
} batches_agent;

/* ---- what clients ask ---- */

static fth_status answer_register(batches_agent *agent, const json_t *request, json_t **answer, uint64_t *job)
{
    fth_status status = FTH_OK;
    const char *name = json_string_value(json_object_get(request, "name")), *cache;
    json_t *body =
        json_pack("{s:O?, s:O*, s:O*, s:s}", "job", json_object_get(request, "job"), "name",
                  json_object_get(request, "name"), "resume", json_object_get(request, "resume"), "agent", agent->name);
    json_t *got = NULL;

    FTH_REQUIRE(body, FTH_INVALID, "a job is registered without \"job\"");
    FTH_TRY(fth_coordinator_ask(agent->link, "POST", "/v1/jobs", body, fth_deadline_in(ANSWER_S), &got));
    cache = json_string_value(json_object_get(got, "cache"));
    FTH_TRY(fth_agent_fill_use_cache(agent->fill, cache ? cache : fth_cache_shm.name));
    FTH_TRY(fth_agent_jobs_add(agent->jobs, name, got, job));
    fth_agent_fill_wake(agent->fill);
    *answer = got;
    got = NULL;

out:
    json_decref(body);
    json_decref(got);
    return status;
}

static fth_status answer_join(batches_agent *agent, const json_t *request, json_t **answer, uint64_t *job)
{
    *job = (uint64_t)json_integer_value(json_object_get(request, "job"));
    return fth_agent_jobs_describe(agent->jobs, *job, answer);
}

static fth_status answer_describe(batches_agent *agent, const json_t *request, json_t **answer)
{
    fth_status status = FTH_OK;
    const char *name = json_string_value(json_object_get(request, "data"));
    char *escaped = name ? fth_http_escape(name, false) : NULL, *target = NULL;
    json_t *set = NULL;

    FTH_REQUIRE(name, FTH_INVALID, "\"describe\" needs the name of a data set, \"data\"");
    target = fth_format("/v1/data/%s", escaped ? escaped : "");
    FTH_REQUIRE(escaped && target, FTH_NO_MEMORY, "no memory for a request to the coordinator");
    FTH_TRY(fth_coordinator_ask(agent->link, "GET", target, NULL, fth_deadline_in(ANSWER_S), &set));
    *answer = json_pack("{s:o}", "set", set);

out:
    free(escaped);
    free(target);
    return status;
}

static fth_status answer_figures(batches_agent *agent, int slot, json_t **answer)
{
    fth_slot_state state;
    char target[64];
    if (slot < 0 || !fth_board_read(agent->board, slot, &state))
        return fth_fail(FTH_INVALID, "\"figures\" are those of a job: register or join first");
    snprintf(target, sizeof target, "/v1/jobs/%llu", (unsigned long long)state.job);
    return fth_coordinator_ask(agent->link, "GET", target, NULL, fth_deadline_in(ANSWER_S), answer);
}

static bool read_id(const json_t *request, fth_item_id *id)
{
    const char *text = json_string_value(json_object_get(request, "id"));
    return text && fth_item_id_parse(text, id);
}

/* What is damaged here is fetched again. If it came like that, the next fetch finds out. */
static fth_status answer_lost(batches_agent *agent, const json_t *request, json_t **answer)
{
    fth_item_id id;
    if (!read_id(request, &id))
        return fth_fail(FTH_INVALID, "\"lost\" needs an item's \"id\"");
    fth_segment_evict(agent->segment, id);
    fth_agent_fill_wake(agent->fill);
    *answer = json_object();
    return FTH_OK;
}

static fth_status answer_why(batches_agent *agent, const json_t *request, json_t **answer)
{
    fth_item_id id;
    if (!read_id(request, &id))
        return fth_fail(FTH_INVALID, "\"failed?\" needs an item's \"id\"");
    fth_status status = fth_agent_fill_why(agent->fill, id);
    *answer = status == FTH_OK
                  ? json_pack("{s:s}", "status", fth_status_name(FTH_OK))
                  : json_pack("{s:s, s:s}", "status", fth_status_name(status), "error", fth_error_message());
    return FTH_OK;
}

static fth_status answer(void *context, int slot, json_t *request, json_t **result, uint64_t *job)
{
    batches_agent *agent = context;
    const char *operation = json_string_value(json_object_get(request, "op"));
    if (!operation)
        operation = "";
    if (strcmp(operation, "register") == 0)
        return answer_register(agent, request, result, job);
    if (strcmp(operation, "join") == 0)
        return answer_join(agent, request, result, job);
    if (strcmp(operation, "describe") == 0)
        return answer_describe(agent, request, result);
    if (strcmp(operation, "figures") == 0)
        return answer_figures(agent, slot, result);
    if (strcmp(operation, "failed?") == 0)
        return answer_why(agent, request, result);
    if (strcmp(operation, "lost") == 0)
        return answer_lost(agent, request, result);
    return fth_fail(FTH_INVALID, "the batch cache does not know the request \"%s\"", operation);
}

static void wake(void *context, int slot)
{
    batches_agent *agent = context;
    (void)slot; /* the board says what it waits for */
    fth_agent_fill_wake(agent->fill);
}

static void left(void *context, int slot, uint64_t job, bool finished)
{
    batches_agent *agent = context;
    fth_agent_jobs_left(agent->jobs, slot, job, finished);
    fth_agent_fill_wake(agent->fill);
}

/* ---- its life ---- */

/* A quarter of what is free. */
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
    /* [::1] is ::1, as clients have it. */
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
    /* The host calls the others, and what clients asked ends with it; the filling thread has the
     * rest. */
    fth_host_close(agent->host);
    fth_agent_fill_stop(agent->fill);
    fth_agent_jobs_free(agent->jobs);
    fth_segment_free(agent->segment);
    fth_board_free(agent->board);
    fth_coordinator_link_free(agent->link);
}

/* The same for the next agent at this path of this machine, so that the coordinator knows at once
 * who has gone with the last one. Machines, and containers of one, may have the same name: what the
 * kernel calls them is part of it. */
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

    choose_name(path, agent->name, sizeof agent->name);
    FTH_TRY(fth_coordinator_link_open(&(fth_coordinator_link_options){.url = options->url,
                                                                      .pinned_key = options->pinned_key,
                                                                      .ca_file = options->ca_file},
                                      &agent->link));
    FTH_TRY(fth_board_create(&agent->board));
    FTH_TRY(fth_segment_create(options->memory_bytes ? options->memory_bytes : choose_memory(), agent->board,
                               &agent->segment));
    FTH_TRY(fth_agent_jobs_create(agent->board, &agent->jobs));
    FTH_TRY(fth_agent_fill_start(&(fth_agent_fill_options){.name = agent->name,
                                                           .link = agent->link,
                                                           .jobs = agent->jobs,
                                                           .board = agent->board,
                                                           .segment = agent->segment},
                                 &agent->fill));
    FTH_TRY(fth_host_open(path, agent->segment, agent->board,
                          &(fth_host_handler){.context = agent, .answer = answer, .wake = wake, .left = left},
                          &agent->host));

out:
    return status;
}

/* Until it has had no clients for a while. */
static void serve(const batches_agent *agent, double idle_s, const fth_stop *stop)
{
    double used_s = fth_clock_seconds();
    while (!(stop && atomic_load(&stop->asked)) && fth_clock_seconds() < used_s + idle_s) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_EVERY_S * 1e9)}, NULL);
        if (fth_host_clients(agent->host) > 0)
            used_s = fth_clock_seconds();
    }
}

/* Whether somebody serves the clients of this machine. */
static bool is_served(const char *path)
{
    fth_host_link *link = NULL;
    bool is_there = fth_host_connect(path, fth_deadline_in(1), &link) == FTH_OK;
    fth_host_disconnect(link);
    return is_there;
}

/* Whoever started this has its messages go to a file there: nobody reads them when it has ended
 * well. */
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
    } else if (status == FTH_INVALID && !agent.host && agent.fill && is_served(path)) {
        status = FTH_OK; /* another agent was faster */
    }

out:
    close_agent(&agent);
    free(path);
    return status;
}
