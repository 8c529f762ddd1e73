/* See client.h: a worker's name, its registration, and the thread that keeps its lease. */
#include "parameters/client.h"

#include <jansson.h>
#include <math.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "parameters/client_internal.h"

#define UNREGISTER_S 5.0

/* ---- registering ---- */

static fth_status read_registration(fth_worker_client *client, const fth_http_response *response)
{
    fth_status status = FTH_OK;
    json_t *json = response->body ? json_loads(response->body, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(json, "worker"));
    const char *model = json_string_value(json_object_get(json, "model"));
    const char *input = json_string_value(json_object_get(json, "input"));
    const char *network = json_string_value(json_object_get(json, "network"));
    const char *consistency = json_string_value(json_object_get(json, "consistency"));
    const json_t *sequence = json_object_get(json, "sequence");

    FTH_REQUIRE(name && fth_worker_name_valid(name) && model && input && consistency && json_is_integer(sequence) &&
                    json_integer_value(sequence) >= 0 && json_integer_value(sequence) < INT64_MAX / 2,
                FTH_CORRUPT, "%s does not answer as a parameter server would", client->connection.url);
    if (!client->renewer.running)
        snprintf(client->name, sizeof client->name, "%s", name);
    FTH_REQUIRE(strcmp(client->name, name) == 0, FTH_CORRUPT, "%s registered %s again under another name",
                client->connection.url, client->name);
    free(client->registration.model);
    free(client->registration.input);
    free(client->registration.network);
    client->registration.network = network ? fth_format("%s", network) : NULL;
    client->registration.model = fth_format("%s", model);
    client->registration.input = fth_format("%s", input);
    FTH_REQUIRE(client->registration.model && client->registration.input, FTH_NO_MEMORY,
                "no memory to register a worker");
    client->registration.classes = (int)json_integer_value(json_object_get(json, "classes"));
    client->registration.normalization = (fth_normalization){0};
    const json_t *normalization = json_object_get(json, "normalization");
    int channels = (int)json_array_size(json_object_get(normalization, "mean"));
    FTH_REQUIRE(!json_is_object(normalization) ||
                    fth_normalization_from_json(normalization, channels, &client->registration.normalization),
                FTH_CORRUPT, "%s sent an invalid normalization", client->connection.url);
    client->registration.waits = strncmp(consistency, "sync", 4) == 0;
    client->registration.lease_s = json_number_value(json_object_get(json, "lease_s"));
    client->sequence = json_integer_value(sequence);

out:
    json_decref(json);
    return status;
}

fth_status fth_client_register(fth_worker_client *client)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    json_t *json = json_pack("{s:s, s:s}", "worker", client->name, "instance", client->instance);
    if (client->function)
        json_object_set(json, "function", client->function);
    char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
    fth_backoff backoff = {.first_s = 0.25, .most_s = 1};
    fth_deadline deadline = fth_client_give_up(client);

    FTH_REQUIRE(body, FTH_NO_MEMORY, "no memory to register a worker");
    FTH_TRY(fth_client_ask(client, &(fth_question){"POST", "/registerWorker", body, strlen(body), NULL, 0, 0, 0, 0},
                           &response));
    while (response.code == 409 && fth_client_has_reason(&response, "duplicate") && !fth_deadline_passed(deadline)) {
        if (backoff.tries == 0)
            fth_log_info("worker %s is already registered; waiting in case its lease ends", client->name);
        fth_client_wait(client, fth_backoff_next_s(&backoff, 0), deadline);
        FTH_TRY(fth_client_fail_if_stopped(client));
        if (fth_deadline_passed(deadline))
            break;
        fth_http_response_release(&response);
        FTH_TRY(fth_client_ask(client, &(fth_question){"POST", "/registerWorker", body, strlen(body), NULL, 0, 0, 0, 0},
                               &response));
    }
    if (response.code != 200) {
        status = fth_client_fail_refused(client, FTH_INVALID, "to register this worker", &response);
        goto out;
    }
    FTH_TRY(read_registration(client, &response));

out:
    fth_http_response_release(&response);
    free(body);
    json_decref(json);
    return status;
}

/* Renews the lease while the worker computes. Failures show up in the worker's own requests. */
static void *renew_lease(void *context)
{
    fth_worker_client *client = context;
    fth_http_client *http = NULL;
    const double pause_s = client->renewer.pause_s;
    pthread_mutex_lock(&client->renewer.mutex);
    while (!client->renewer.closing) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(pause_s));
        if (pthread_cond_clockwait(&client->renewer.changed, &client->renewer.mutex, CLOCK_MONOTONIC, &until) == 0)
            continue;
        pthread_mutex_unlock(&client->renewer.mutex);
        fth_http_response response = {0};
        if (!http && fth_http_client_open(&client->connection.options, &http) != FTH_OK)
            http = NULL;
        else if (fth_client_ask_once(client, http, &(fth_question){.method = "GET", .target = "/getVersion"}, pause_s,
                                     &response) == FTH_OK)
            fth_http_response_release(&response);
        pthread_mutex_lock(&client->renewer.mutex);
    }
    pthread_mutex_unlock(&client->renewer.mutex);
    fth_http_client_free(http);
    return NULL;
}

/* ---- opening and closing ---- */

static fth_status draw_names(fth_worker_client *client, const char *asked)
{
    fth_status status = FTH_OK;
    unsigned char random[16];
    char host[40] = "";

    FTH_REQUIRE(RAND_bytes(random, sizeof random) == 1, FTH_IO, "no random numbers for a worker's name");
    fth_hex_encode(random, sizeof random, client->instance);
    if (asked && *asked) {
        FTH_REQUIRE(fth_worker_name_valid(asked), FTH_INVALID,
                    "--worker %s is not a name: 1 to 64 letters, digits, '.', '_' and '-'", asked);
        snprintf(client->name, sizeof client->name, "%s", asked);
        goto out;
    }
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", *c))
            *c = '-';
    snprintf(client->name, sizeof client->name, "%s-%.8s", *host ? host : "worker", client->instance);

out:
    return status;
}

static char *copy_unless_empty(const char *text)
{
    return text && *text ? fth_format("%s", text) : NULL;
}

/* Prepares everything but the registration. */
static fth_status create(const fth_worker_options *options, fth_worker_client **result)
{
    fth_status status = FTH_OK;
    fth_worker_client *client = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *client, &client));
    pthread_mutex_init(&client->renewer.mutex, NULL);
    pthread_cond_init(&client->renewer.changed, NULL);
    FTH_REQUIRE(strncmp(options->url, "http://", 7) == 0 || strncmp(options->url, "https://", 8) == 0, FTH_INVALID,
                "--server %s is not a URL: http://HOST:PORT or https://HOST:PORT", options->url);
    size_t length = strlen(options->url);
    while (length > 0 && options->url[length - 1] == '/')
        length--;
    client->connection.url = fth_format("%.*s", (int)length, options->url);
    client->connection.whole_url = fth_address_whole(client->connection.url);
    FTH_REQUIRE(client->connection.url && client->connection.whole_url, FTH_NO_MEMORY, "no memory for an address");
    client->connection.pinned_key = copy_unless_empty(options->pinned_key);
    client->connection.ca_file = copy_unless_empty(options->ca_file);
    client->patience_s = options->patience_s;
    fth_worker_set_deadline(client, options->deadline);
    client->stop = options->stop;
    client->function = options->function ? json_deep_copy(options->function) : NULL;
    client->is_local = fth_http_is_loopback(client->connection.url);
    client->connection.options =
        (fth_http_client_options){.ca_file = client->connection.ca_file, .pinned_key = client->connection.pinned_key};
    FTH_TRY(draw_names(client, options->worker));
    if (options->signer)
        client->connection.signer = *options->signer;
    FTH_TRY(fth_http_client_open(&client->connection.options, &client->connection.http));
    *result = client;
    client = NULL;

out:
    fth_worker_close(client);
    return status;
}

fth_status fth_worker_open(const fth_worker_options *options, fth_worker_client **result)
{
    fth_status status = FTH_OK;
    fth_worker_client *client = NULL;

    *result = NULL;
    FTH_TRY(create(options, &client));
    FTH_TRY(fth_client_register(client));
    client->renewer.pause_s = fmax(client->registration.lease_s / 3, 0.1);
    client->renewer.running = fth_thread_start(&client->renewer.thread, "keep-lease", renew_lease, client) == 0;
    FTH_REQUIRE(client->renewer.running, FTH_NO_MEMORY, "no thread to keep a worker's lease");
    *result = client;
    client = NULL;

out:
    fth_worker_close(client);
    return status;
}

static void unregister(fth_worker_client *client)
{
    fth_http_response response = {0};
    char *before =
        fth_format("%s", fth_error_message()); /* the reason for closing, which a failed request must not replace */
    json_t *json = json_pack("{s:s, s:O*}", "worker", client->name, "usage", client->usage);
    char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
    if (body && fth_client_ask_once(client, client->connection.http,
                                    &(fth_question){"POST", "/unregisterWorker", body, strlen(body), NULL, 0, 0, 0, 0},
                                    UNREGISTER_S, &response) == FTH_OK)
        fth_http_response_release(&response);
    else if (before)
        fth_set_error("%s", before);
    free(before);
    free(body);
    json_decref(json);
}

void fth_worker_close(fth_worker_client *client)
{
    if (!client)
        return;
    if (client->renewer.running) {
        pthread_mutex_lock(&client->renewer.mutex);
        client->renewer.closing = true;
        pthread_cond_broadcast(&client->renewer.changed);
        pthread_mutex_unlock(&client->renewer.mutex);
        pthread_join(client->renewer.thread, NULL);
        unregister(client);
    }
    fth_local_view_release(&client->view);
    fth_http_client_free(client->connection.http);
    pthread_cond_destroy(&client->renewer.changed);
    pthread_mutex_destroy(&client->renewer.mutex);
    fth_wipe(&client->connection.signer, sizeof client->connection.signer);
    free(client->connection.url);
    fth_wipe_text(client->connection.whole_url);
    free(client->connection.pinned_key);
    free(client->connection.ca_file);
    free(client->registration.model);
    free(client->registration.input);
    free(client->registration.network);
    json_decref(client->function);
    json_decref(client->usage);
    free(client);
}

void fth_worker_set_deadline(fth_worker_client *client, fth_deadline deadline)
{
    atomic_store(&client->deadline_s, deadline.at_seconds > 0 ? deadline.at_seconds : INFINITY);
}

void fth_worker_set_usage(fth_worker_client *client, json_t *usage)
{
    json_decref(client->usage);
    client->usage = usage;
}

uint64_t fth_worker_sent_bytes(const fth_worker_client *client)
{
    return atomic_load(&client->traffic.sent_bytes);
}

uint64_t fth_worker_received_bytes(const fth_worker_client *client)
{
    return atomic_load(&client->traffic.received_bytes);
}

const char *fth_worker_name(const fth_worker_client *client)
{
    return client->name;
}

const char *fth_worker_instance(const fth_worker_client *client)
{
    return client->instance;
}

const fth_worker_registration *fth_worker_get_registration(const fth_worker_client *client)
{
    return &client->registration;
}

/* ---- the network ---- */

fth_status fth_worker_fetch_network(fth_worker_client *client, char **text)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};

    *text = NULL;
    FTH_TRY(fth_client_ask(client, &(fth_question){.method = "GET", .target = "/getNetwork"}, &response));
    FTH_REQUIRE(response.code != 404, FTH_INVALID,
                "the parameter server %s does not train a network that PyTorch exported", client->connection.url);
    if (response.code != 200) {
        status = fth_client_fail_refused(client, FTH_INVALID, "to send its network", &response);
        goto out;
    }
    *text = fth_format("%s", response.body ? response.body : "");
    FTH_REQUIRE(*text, FTH_NO_MEMORY, "no memory for the text of a network");

out:
    fth_http_response_release(&response);
    return status;
}

fth_status fth_worker_ask_for_network(const fth_worker_options *options, char **text)
{
    fth_worker_client *client = NULL;
    *text = NULL;
    fth_status status = create(options, &client);
    if (status == FTH_OK)
        status = fth_worker_fetch_network(client, text);
    fth_worker_close(client);
    return status;
}
