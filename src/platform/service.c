/* The REST APIs of a platform (platform.h): one server for OpenWhisk's and Lambda's paths. One
 * thread of the service gives the answers that wait for an activation; the platform only reports
 * which have ended. */
#include <math.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "http/host.h"
#include "platform/service_internal.h"

enum { MAX_BODY_BYTES = 72 << 20 }; /* Lambda's 50 MB of zip in base64 */

/* An exchange that waits for its activation. */
typedef struct waiting {
    struct waiting_hub *hub;
    fth_exchange *exchange; /* NULL: answered */
    char id[FTH_ACTIVATION_ID];
    double until_s;
    fth_service_answer answer;
    const void *details;
    bool ended, dropped; /* ended: the activation has; dropped: the service no longer needs it */
    struct waiting *next;
} waiting;

/* Shared with running activations, which may outlive the service; freed with the last of them. */
typedef struct waiting_hub {
    pthread_mutex_t mutex; /* guards everything below, and `waiting` */
    pthread_cond_t changed;
    waiting *list;
    int references;
    bool stopping;
} waiting_hub;

struct fth_platform_service {
    fth_platform *platform;
    fth_server *server;
    fth_hosts *hosts;
    fth_service_key key;
    waiting_hub *hub;
    pthread_t thread;
    bool running;
};

fth_platform *fth_service_platform(const fth_platform_service *service)
{
    return service->platform;
}

const char *fth_service_folder(const fth_platform_service *service)
{
    return fth_platform_folder(service->platform);
}

const fth_service_key *fth_service_get_key(const fth_platform_service *service)
{
    return &service->key;
}

/* ---- answers that wait ---- */

/* Called with the mutex held; releases it. */
static void release_hub(waiting_hub *hub)
{
    bool last = --hub->references == 0;
    pthread_mutex_unlock(&hub->mutex);
    if (last) {
        pthread_mutex_destroy(&hub->mutex);
        pthread_cond_destroy(&hub->changed);
        free(hub);
    }
}

static void note_end(void *context, const char *id)
{
    waiting *one = context;
    waiting_hub *hub = one->hub;
    (void)id;
    pthread_mutex_lock(&hub->mutex);
    one->ended = true;
    if (one->dropped)
        free(one);
    pthread_cond_broadcast(&hub->changed);
    release_hub(hub);
}

/* Removes one from the list; an activation that still runs frees it later. With the mutex held. */
static void drop(waiting *one)
{
    waiting **place = &one->hub->list;
    while (*place != one)
        place = &(*place)->next;
    *place = one->next;
    one->dropped = true;
    if (one->ended)
        free(one);
}

static waiting *find_due(waiting_hub *hub, double *next_s)
{
    const double now = fth_clock_seconds();
    *next_s = now + 1;
    for (waiting *each = hub->list; each; each = each->next) {
        if (each->ended || each->until_s <= now || hub->stopping)
            return each;
        if (each->until_s < *next_s)
            *next_s = each->until_s;
    }
    return NULL;
}

static void *answer_waiting(void *context)
{
    fth_platform_service *service = context;
    waiting_hub *hub = service->hub;
    double next_s;

    pthread_mutex_lock(&hub->mutex);
    for (;;) {
        waiting *due = find_due(hub, &next_s);
        if (due) {
            waiting copy = *due;
            drop(due);
            pthread_mutex_unlock(&hub->mutex);
            json_t *record = NULL;
            if (copy.ended && fth_activation_read(fth_service_folder(service), copy.id, &record) != FTH_OK)
                record = json_pack("{s:s, s:s, s:s}", "state", "failed", "kind", "internal", "error",
                                   "the activation's record cannot be read");
            copy.answer(service, copy.exchange, copy.id, record, copy.details);
            json_decref(record);
            pthread_mutex_lock(&hub->mutex);
        } else if (hub->stopping) {
            break;
        } else {
            struct timespec until = fth_deadline_timespec((fth_deadline){next_s});
            pthread_cond_clockwait(&hub->changed, &hub->mutex, CLOCK_MONOTONIC, &until);
        }
    }
    pthread_mutex_unlock(&hub->mutex);
    return NULL;
}

fth_status fth_service_invoke(fth_platform_service *service, fth_exchange *exchange, const char *name,
                              const json_t *value, double seconds, fth_service_answer answer, const void *details,
                              bool *throttled)
{
    fth_status status = FTH_OK;
    waiting_hub *hub = service->hub;
    waiting *one = NULL;

    *throttled = false;
    FTH_TRY(fth_allocate(1, sizeof *one, &one));
    *one = (waiting){.hub = hub,
                     .exchange = exchange,
                     .until_s = fth_clock_seconds() + seconds,
                     .answer = answer,
                     .details = details};
    pthread_mutex_lock(&hub->mutex); /* so that it is in the list before it can end */
    hub->references++;
    status = fth_platform_begin(service->platform,
                                &(fth_platform_call){.name = name, .value = value, .ended = note_end, .context = one},
                                one->id, throttled);
    if (status != FTH_OK || *throttled) {
        hub->references--;
        free(one);
    } else {
        fth_exchange_hold(exchange, seconds + 60, 503);
        one->next = hub->list;
        hub->list = one;
        pthread_cond_broadcast(&hub->changed);
    }
    pthread_mutex_unlock(&hub->mutex);

out:
    return status;
}

/* ---- the server ---- */

static bool is_lambda(const fth_route *route)
{
    return route->handle == fth_lambda_handle;
}

static bool admit(void *context, fth_exchange *exchange, const fth_route *route, fth_role *role)
{
    const fth_platform_service *service = context;
    *role = FTH_ROLE_NONE;
    if (!fth_hosts_know(service->hosts, fth_exchange_header(exchange, "Host")) ||
        fth_exchange_is_cross_origin(exchange)) {
        fth_exchange_answer_json(exchange, 403,
                                 json_pack("{s:s}", "error",
                                           "pages of other servers must not use this one; "
                                           "--host-name adds a name of this server"));
        return false;
    }
    if (is_lambda(route))
        return fth_lambda_admit(service, exchange);
    return route->handle == fth_openwhisk_web || fth_openwhisk_admit(service, exchange);
}

#define NAMESPACES "/api/v1/namespaces"
#define WEB        "/api/v1/web/*"
#define FUNCTIONS  "/2015-03-31/functions*"
static const fth_route routes[] = {
    {.method = "GET", .path = NAMESPACES, .handle = fth_openwhisk_namespaces},
    {.method = "GET", .path = NAMESPACES "/*", .handle = fth_openwhisk_handle},
    {.method = "PUT", .path = NAMESPACES "/*", .handle = fth_openwhisk_handle, .max_body_bytes = FTH_SERVER_BODY},
    {.method = "POST", .path = NAMESPACES "/*", .handle = fth_openwhisk_handle, .max_body_bytes = FTH_SERVER_BODY},
    {.method = "DELETE", .path = NAMESPACES "/*", .handle = fth_openwhisk_handle, .max_body_bytes = 1 << 16},
    {.method = "GET", .path = WEB, .handle = fth_openwhisk_web},
    {.method = "POST", .path = WEB, .handle = fth_openwhisk_web, .max_body_bytes = 1 << 20},
    {.method = "GET", .path = FUNCTIONS, .handle = fth_lambda_handle},
    {.method = "PUT", .path = FUNCTIONS, .handle = fth_lambda_handle, .max_body_bytes = FTH_SERVER_BODY},
    {.method = "POST", .path = FUNCTIONS, .handle = fth_lambda_handle, .max_body_bytes = FTH_SERVER_BODY},
    {.method = "DELETE", .path = FUNCTIONS, .handle = fth_lambda_handle, .max_body_bytes = 1 << 16},
    {0}};

/* ---- the key ---- */

/* Reads the folder's key, or generates it. If several processes do so at once, the first wins. */
static fth_status read_folder_key(const char *folder, char **key)
{
    fth_status status = FTH_OK;
    char *path = fth_path_join(folder, "key"), first[33], second[65], *made = NULL;
    size_t size;

    *key = NULL;
    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    if (!fth_file_exists(path)) {
        FTH_TRY(fth_make_id(16, first));
        FTH_TRY(fth_make_id(32, second));
        made = fth_format("%.8s-%.4s-%.4s-%.4s-%.12s:%s", first, first + 8, first + 12, first + 16, first + 20, second);
        FTH_REQUIRE(made, FTH_NO_MEMORY, "no memory for a key");
        status = fth_write_private(path, made, strlen(made));
        if (status != FTH_OK && !fth_file_exists(path))
            goto out;
    }
    FTH_TRY(fth_file_read_all(path, 4096, key, &size));
    (*key)[strcspn(*key, "\r\n")] = '\0';

out:
    fth_wipe(second, sizeof second);
    fth_wipe_text(made);
    free(path);
    return status;
}

static fth_status set_key(fth_platform_service *service, const char *given)
{
    fth_status status = FTH_OK;
    fth_service_key *key = &service->key;

    if (given)
        key->whole = strdup(given);
    else
        FTH_TRY(read_folder_key(fth_service_folder(service), &key->whole));
    FTH_REQUIRE(key->whole, FTH_NO_MEMORY, "no memory for a key");
    const char *colon = strchr(key->whole, ':');
    FTH_REQUIRE(
        colon && colon > key->whole && strlen(colon + 1) >= 8 && strcspn(key->whole, " /,") == strlen(key->whole),
        FTH_INVALID, "the key of the functions' service is not UUID:KEY, with 8 characters or more after the colon");
    key->first = strndup(key->whole, (size_t)(colon - key->whole));
    key->second = strdup(colon + 1);
    FTH_REQUIRE(key->first && key->second, FTH_NO_MEMORY, "no memory for a key");

out:
    return status;
}

/* ---- life ---- */

static fth_status start_waiting(fth_platform_service *service)
{
    fth_status status = fth_allocate(1, sizeof *service->hub, &service->hub);
    if (status != FTH_OK)
        return status;
    pthread_mutex_init(&service->hub->mutex, NULL);
    pthread_cond_init(&service->hub->changed, NULL);
    service->hub->references = 1;
    service->running = fth_thread_start(&service->thread, "answers", answer_waiting, service) == 0;
    return service->running ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no thread for answers");
}

fth_status fth_platform_serve(fth_platform *platform, const fth_platform_service_options *options,
                              fth_platform_service **result)
{
    fth_status status = FTH_OK;
    fth_platform_service *service = NULL;
    const char *address = options->address ? options->address : "127.0.0.1";
    char url[300];

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *service, &service));
    service->platform = platform;
    FTH_TRY(set_key(service, options->key));
    FTH_TRY(fth_hosts_create(address, options->host_names, options->certificate_pem, &service->hosts));
    FTH_TRY(start_waiting(service));
    FTH_TRY(fth_server_start(&(fth_server_options){.address = address,
                                                   .port = options->port,
                                                   .routes = routes,
                                                   .context = service,
                                                   .admit = admit,
                                                   .max_body_bytes = MAX_BODY_BYTES,
                                                   .certificate_pem = options->certificate_pem,
                                                   .key_pem = options->key_pem},
                             &service->server));
    /* Functions run on this machine, whatever address other clients use. */
    bool any = strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0, v6 = !any && strchr(address, ':');
    snprintf(url, sizeof url, "http%s://%s%s%s:%d", options->certificate_pem ? "s" : "", v6 ? "[" : "",
             any ? "127.0.0.1" : address, v6 ? "]" : "", fth_server_port(service->server));
    FTH_TRY(fth_platform_set_api(platform, url, service->key.whole));
    *result = service;
    service = NULL;

out:
    fth_platform_service_stop(service);
    return status;
}

int fth_platform_service_port(const fth_platform_service *service)
{
    return fth_server_port(service->server);
}

void fth_platform_service_stop(fth_platform_service *service)
{
    if (!service)
        return;
    if (service->hub) {
        pthread_mutex_lock(&service->hub->mutex);
        service->hub->stopping = true;
        pthread_cond_broadcast(&service->hub->changed);
        pthread_mutex_unlock(&service->hub->mutex);
    }
    if (service->server)
        fth_server_stop(service->server, 2);
    if (service->running)
        pthread_join(service->thread, NULL);
    if (service->hub) {
        pthread_mutex_lock(&service->hub->mutex);
        release_hub(service->hub);
    }
    fth_hosts_free(service->hosts);
    fth_wipe_text(service->key.whole);
    fth_wipe_text(service->key.second);
    free(service->key.first);
    free(service);
}
