/* See simulation.h. The answers follow the clouds' documentation, including the awkward parts: AWS
 * requires a token (else 401); Google requires a header (else 403) and holds requests until a value
 * changes; Azure requires a header (else 400) and also lists events of other machines. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "http/server.h"
#include "rehearse/simulation.h"

enum { MAX_HELD = 32, LONGEST_HOLD_S = 120 };

struct fth_simulation {
    pthread_mutex_t mutex;
    fth_server *server;
    int64_t machine;
    char token[64];
    int etag;
    bool announced[FTH_INTERRUPTION_KINDS];
    double ends_at_s; /* wall */
    fth_exchange *held[MAX_HELD];
    bool held_maintenance[MAX_HELD];
    int held_count;
};

static void answer_text(fth_exchange *exchange, int code, const char *text)
{
    fth_exchange_answer(exchange, code, "text/plain", text, strlen(text));
}

static void answer_formatted(fth_exchange *exchange, int code, char *text)
{
    fth_exchange_answer(exchange, code, "application/json", text, strlen(text));
    free(text);
}

/* ---- AWS ---- */

static void give_token(void *context, fth_exchange *exchange)
{
    fth_simulation *simulation = context;
    const char *seconds = fth_exchange_header(exchange, "X-aws-ec2-metadata-token-ttl-seconds");
    int asked = seconds ? atoi(seconds) : 0;
    if (asked < 1 || asked > 21600) {
        answer_text(exchange, 400, "");
        return;
    }
    pthread_mutex_lock(&simulation->mutex);
    answer_text(exchange, 200, simulation->token);
    pthread_mutex_unlock(&simulation->mutex);
}

/* With the mutex held; without the token, a request is answered here. */
static bool has_token(const fth_simulation *simulation, fth_exchange *exchange)
{
    const char *token = fth_exchange_header(exchange, "X-aws-ec2-metadata-token");
    if (token && strcmp(token, simulation->token) == 0)
        return true;
    answer_text(exchange, 401, "");
    return false;
}

static void answer_aws_identity(void *context, fth_exchange *exchange)
{
    fth_simulation *simulation = context;
    pthread_mutex_lock(&simulation->mutex);
    if (has_token(simulation, exchange))
        answer_formatted(
            exchange, 200,
            fth_format("{\"instanceType\":\"g4dn.xlarge\",\"region\":\"us-east-1\",\"instanceId\":\"i-%lld\"}",
                       (long long)simulation->machine));
    pthread_mutex_unlock(&simulation->mutex);
}

static void answer_aws_life_cycle(void *context, fth_exchange *exchange)
{
    fth_simulation *simulation = context;
    pthread_mutex_lock(&simulation->mutex);
    if (has_token(simulation, exchange))
        answer_text(exchange, 200, "spot");
    pthread_mutex_unlock(&simulation->mutex);
}

static void answer_aws_action(void *context, fth_exchange *exchange)
{
    fth_simulation *simulation = context;
    char when[32];
    pthread_mutex_lock(&simulation->mutex);
    fth_clock_format_utc(simulation->ends_at_s, when, sizeof when);
    if (has_token(simulation, exchange)) {
        if (simulation->announced[FTH_INTERRUPTION_AWS])
            answer_formatted(exchange, 200, fth_format("{\"action\":\"terminate\",\"time\":\"%s\"}", when));
        else
            answer_text(exchange, 404, "");
    }
    pthread_mutex_unlock(&simulation->mutex);
}

static void answer_aws_other(void *context, fth_exchange *exchange)
{
    fth_simulation *simulation = context;
    pthread_mutex_lock(&simulation->mutex);
    if (has_token(simulation, exchange))
        answer_text(exchange, 404, "");
    pthread_mutex_unlock(&simulation->mutex);
}

/* ---- Google ---- */

/* With the mutex held. */
static void answer_google_value(fth_simulation *simulation, fth_exchange *exchange, const char *text)
{
    char etag[32];
    snprintf(etag, sizeof etag, "%016x", simulation->etag);
    fth_exchange_set_header(exchange, "ETag", etag);
    fth_exchange_set_header(exchange, "Metadata-Flavor", "Google");
    answer_text(exchange, text ? 200 : 404, text ? text : "");
}

static const char *google_notice(const fth_simulation *simulation, bool maintenance)
{
    if (maintenance)
        return "NONE";
    return simulation->announced[FTH_INTERRUPTION_GCP] ? "TRUE" : "FALSE";
}

static void answer_google(void *context, fth_exchange *exchange)
{
    static const char *const facts[][2] = {{"machine-type", "projects/1/machineTypes/n1-standard-4"},
                                           {"zone", "projects/1/zones/europe-west4-a"},
                                           {"scheduling/preemptible", "TRUE"}};
    fth_simulation *simulation = context;
    const char *key = fth_exchange_path(exchange) + strlen("/computeMetadata/v1/instance/");
    const char *flavor = fth_exchange_header(exchange, "Metadata-Flavor");
    const char *wait = fth_exchange_query(exchange, "wait_for_change"),
               *last = fth_exchange_query(exchange, "last_etag");
    const char *seconds = fth_exchange_query(exchange, "timeout_sec");
    const char *text = NULL;
    char etag[32], number[32];
    pthread_mutex_lock(&simulation->mutex);
    bool maintenance = strcmp(key, "maintenance-event") == 0;
    bool notice = maintenance || strcmp(key, "preempted") == 0;
    snprintf(etag, sizeof etag, "%016x", simulation->etag);
    if (!flavor || strcmp(flavor, "Google") != 0) {
        answer_text(exchange, 403, "");
    } else if (notice && wait && strcmp(wait, "true") == 0 && (!last || strcmp(last, etag) == 0) &&
               simulation->held_count < MAX_HELD) {
        double hold_s = fmin(seconds ? fmax(atof(seconds), 1) : LONGEST_HOLD_S, LONGEST_HOLD_S);
        simulation->held_maintenance[simulation->held_count] = maintenance;
        simulation->held[simulation->held_count++] = exchange;
        fth_exchange_hold(exchange, hold_s, 503);
    } else {
        snprintf(number, sizeof number, "%lld", (long long)simulation->machine);
        text = notice ? google_notice(simulation, maintenance) : strcmp(key, "id") == 0 ? number : NULL;
        for (size_t i = 0; i < FTH_COUNT_OF(facts); i++)
            text = strcmp(key, facts[i][0]) == 0 ? facts[i][1] : text;
        answer_google_value(simulation, exchange, text);
    }
    pthread_mutex_unlock(&simulation->mutex);
}

/* Answers the requests that wait for a change, and frees those of clients that are gone. Call with
 * the mutex held. */
static void answer_held(fth_simulation *simulation)
{
    simulation->etag++;
    for (int i = 0; i < simulation->held_count; i++)
        answer_google_value(simulation, simulation->held[i],
                            google_notice(simulation, simulation->held_maintenance[i]));
    simulation->held_count = 0;
}

/* ---- Azure ---- */

static json_t *azure_event(const char *id, const char *resource, double at_s)
{
    char when[64];
    time_t at = (time_t)at_s;
    struct tm parts;
    gmtime_r(&at, &parts);
    strftime(when, sizeof when, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s, s:s, s:i}", "EventId", id, "EventType", "Preempt",
                     "ResourceType", "VirtualMachine", "Resources", resource, "EventStatus", "Scheduled", "NotBefore",
                     when, "EventSource", "Platform", "DurationInSeconds", -1);
}

static bool refuse_azure(fth_exchange *exchange)
{
    const char *wanted = fth_exchange_header(exchange, "Metadata");
    if (wanted && strcmp(wanted, "true") == 0)
        return false;
    answer_text(exchange, 400, "");
    return true;
}

static void answer_azure_compute(void *context, fth_exchange *exchange)
{
    fth_simulation *simulation = context;
    char name[32];
    if (refuse_azure(exchange))
        return;
    pthread_mutex_lock(&simulation->mutex);
    snprintf(name, sizeof name, "trainer_%lld", (long long)simulation->machine);
    fth_exchange_answer_json(exchange, 200,
                             json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", name, "vmSize", "Standard_NC6s_v3",
                                       "location", "westeurope", "vmId", name, "priority", "Spot"));
    pthread_mutex_unlock(&simulation->mutex);
}

static void answer_azure_events(void *context, fth_exchange *exchange)
{
    fth_simulation *simulation = context;
    char name[32], id[32];
    if (refuse_azure(exchange))
        return;
    pthread_mutex_lock(&simulation->mutex);
    snprintf(name, sizeof name, "trainer_%lld", (long long)simulation->machine);
    snprintf(id, sizeof id, "event-%lld", (long long)simulation->machine);
    json_t *events = json_array();
    json_array_append_new(events, azure_event("other", "somebody_else", fth_clock_wall_seconds() + 30));
    if (simulation->announced[FTH_INTERRUPTION_AZURE])
        json_array_append_new(events, azure_event(id, name, simulation->ends_at_s));
    fth_exchange_answer_json(exchange, 200,
                             json_pack("{s:i, s:o}", "DocumentIncarnation", simulation->etag, "Events", events));
    pthread_mutex_unlock(&simulation->mutex);
}

static void answer_azure_other(void *context, fth_exchange *exchange)
{
    (void)context;
    if (!refuse_azure(exchange))
        answer_text(exchange, 404, "");
}

static void take_acknowledgement(void *context, fth_exchange *exchange)
{
    (void)context;
    size_t size = 0;
    const char *body = fth_exchange_body(exchange, &size);
    if (refuse_azure(exchange))
        return;
    json_t *json = json_loadb(body ? body : "", size, 0, NULL);
    answer_text(exchange, json_is_array(json_object_get(json, "StartRequests")) ? 200 : 400, "");
    json_decref(json);
}

/* ---- all of them ---- */

/* The first matching route is used. None needs a role: clouds recognize their own machines by the
 * network. */
static const fth_route routes[] = {
    {"PUT", "/latest/api/token", give_token, FTH_ROLE_NONE, 1024, NULL},
    {"GET", "/latest/dynamic/instance-identity/document", answer_aws_identity, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/latest/meta-data/instance-life-cycle", answer_aws_life_cycle, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/latest/meta-data/spot/instance-action", answer_aws_action, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/latest/*", answer_aws_other, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/computeMetadata/v1/instance/*", answer_google, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/metadata/instance/compute", answer_azure_compute, FTH_ROLE_NONE, 0, NULL},
    {"GET", "/metadata/scheduledevents", answer_azure_events, FTH_ROLE_NONE, 0, NULL},
    {"POST", "/metadata/scheduledevents", take_acknowledgement, FTH_ROLE_NONE, 4096, NULL},
    {"GET", "/metadata/*", answer_azure_other, FTH_ROLE_NONE, 0, NULL},
    {0},
};

fth_status fth_simulation_start(fth_simulation **simulation)
{
    fth_status status = FTH_OK;
    fth_simulation *started = NULL;
    *simulation = NULL;
    FTH_TRY(fth_allocate(1, sizeof *started, &started));
    pthread_mutex_init(&started->mutex, NULL);
    fth_simulation_new_machine(started, 0);
    FTH_TRY(
        fth_server_start(&(fth_server_options){.routes = routes, .context = started, .threads = 2}, &started->server));
    *simulation = started;
    started = NULL;
out:
    fth_simulation_free(started);
    return status;
}

int fth_simulation_port(const fth_simulation *simulation)
{
    return fth_server_port(simulation->server);
}

void fth_simulation_new_machine(fth_simulation *simulation, int64_t number)
{
    pthread_mutex_lock(&simulation->mutex);
    simulation->machine = number;
    memset(simulation->announced, 0, sizeof simulation->announced);
    snprintf(simulation->token, sizeof simulation->token, "token-of-machine-%lld==", (long long)number);
    answer_held(simulation);
    pthread_mutex_unlock(&simulation->mutex);
}

void fth_simulation_announce(fth_simulation *simulation, fth_interruption_kind kind, double notice_s)
{
    pthread_mutex_lock(&simulation->mutex);
    simulation->announced[kind] = true;
    simulation->ends_at_s = fth_clock_wall_seconds() + notice_s;
    answer_held(simulation);
    pthread_mutex_unlock(&simulation->mutex);
}

void fth_simulation_free(fth_simulation *simulation)
{
    if (!simulation)
        return;
    pthread_mutex_lock(&simulation->mutex);
    answer_held(simulation);
    pthread_mutex_unlock(&simulation->mutex);
    if (simulation->server)
        fth_server_stop(simulation->server, 2);
    pthread_mutex_destroy(&simulation->mutex);
    free(simulation);
}
