/* See client.h. */
#include "parameters/client.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http/http.h"
#include "http/signature.h"
#include "parameters/local.h"

#define POLL_S       3.0 /* a long poll's time; then it is asked again, unless there is a stop */
#define REQUEST_S    300.0
#define GOODBYE_S    5.0
#define RETRY_MOST_S 2.0

enum { MAX_JSON_BYTES = 64 << 10, MAX_HEADER_BYTES = 64 << 20 };

struct fth_worker_client {
    fth_http_client *http;
    fth_http_client_options http_options;
    fth_signer signer;
    bool has_key;
    char *url, *pinned_key, *ca_file;
    char name[FTH_MAX_WORKER_NAME + 1], instance[33];
    double patience_s;
    const fth_stop *stop; /* or NULL */

    char *model, *input;
    int classes;
    bool waits;
    double lease_s;
    int64_t sequence; /* of the last push */
    bool is_local;    /* the server may be on this machine: parameters come by memory (local.h) */
    fth_local_view view;

    pthread_t keeper; /* keeps the lease */
    bool keeping, closing;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

/* ---- requests ---- */

typedef struct question {
    const char *method, *target;
    const void *body;
    size_t body_bytes;
    void *into; /* of a 200; NULL: the answer's own memory */
    uint64_t into_bytes;
    double wait_s; /* that the server may take before it answers */
    int memory;    /* a memfd that holds the body, for a server on this machine; 0: none */
    uint64_t stamp;
} question;

/* One try. */
static fth_status ask_once(fth_worker_client *client, fth_http_client *http, const question *q, double seconds,
                           fth_http_response *response)
{
    fth_status status = FTH_OK;
    char authorization[FTH_MAX_AUTHORIZATION + 32] = "Authorization: ", worker[FTH_MAX_WORKER_NAME + 32];
    char memory[96];
    const char *headers[5] = {worker, "Content-Type: application/octet-stream"};
    int header_count = 2;
    char *url = fth_format("%s%s", client->url, q->target);

    snprintf(worker, sizeof worker, "X-Farthing-Worker: %s", client->name);
    if (client->has_key) { /* anew for each try: a signature is good once */
        FTH_TRY(fth_signer_sign(&client->signer, q->method, q->target, q->body, q->body_bytes,
                                authorization + strlen(authorization)));
        headers[header_count++] = authorization;
    }
    if (q->memory > 0) {
        snprintf(memory, sizeof memory, FTH_LOCAL_HEADER ": %ld %d %zu %" PRIu64, (long)getpid(), q->memory,
                 q->body_bytes, q->stamp);
        headers[header_count++] = memory;
    }
    fth_http_request request = {.method = q->method,
                                .url = url,
                                .headers = headers,
                                .body = q->memory > 0 ? "" : q->body,
                                .body_bytes = q->memory > 0 ? 0 : q->body_bytes,
                                .into = q->into,
                                .into_bytes = q->into_bytes,
                                .max_body_bytes = MAX_HEADER_BYTES,
                                .stall_s = q->wait_s + 30,
                                .deadline = fth_deadline_in(seconds + q->wait_s)};
    FTH_TRY(fth_http_perform(http, &request, response));

out:
    free(url);
    return status;
}

static double retry_after(const fth_http_response *response)
{
    char *text = fth_http_header(response, "Retry-After");
    double seconds = text ? strtod(text, NULL) : 0;
    free(text);
    return fmin(fmax(seconds, 0), 60);
}

static fth_status add_advice(fth_status status, const char *advice)
{
    char why[512];
    snprintf(why, sizeof why, "%s", fth_error_message());
    return fth_fail(status, "%s; %s", why, advice);
}

static fth_status fail_if_stopped(const fth_worker_client *client)
{
    return client->stop && client->stop->asked
               ? fth_fail(FTH_INTERRUPTED, "asked to stop while waiting for the parameter server %s", client->url)
               : FTH_OK;
}

/* Asks until there is an answer that is one: a server that is away, busy or starting is tried again for a while. */
static fth_status ask(fth_worker_client *client, const question *q, fth_http_response *response)
{
    fth_backoff backoff = {.most_s = RETRY_MOST_S};
    fth_deadline deadline = fth_deadline_in(client->patience_s);
    bool told = false;
    for (;;) {
        *response = (fth_http_response){0};
        fth_status status = ask_once(client, client->http, q, REQUEST_S, response);
        bool busy = status == FTH_OK && (response->code == 503 || response->code == 429 || response->code == 500);
        if (status == FTH_IO && !client->pinned_key && !client->ca_file && strncmp(client->url, "https://", 8) == 0)
            return add_advice(status, "the fingerprint that the server printed goes into --server-pin");
        if (status != FTH_OK && status != FTH_PEER_LOST && status != FTH_TIMEOUT)
            return status;
        if (status == FTH_OK && !busy)
            return FTH_OK;
        double pause_s = busy ? retry_after(response) : 0;
        char why[512];
        if (busy)
            snprintf(why, sizeof why, "it answers %d: %.400s", response->code, response->body ? response->body : "");
        else
            snprintf(why, sizeof why, "%s", fth_error_message());
        fth_http_response_release(response);
        status = fail_if_stopped(client);
        if (status != FTH_OK)
            return status;
        if (!told && backoff.tries >= 3)
            fth_log_warning("the parameter server %s does not take requests now; trying again for %.0f s: %s",
                            client->url, client->patience_s, why);
        told = told || backoff.tries >= 3;
        if (!fth_backoff_wait(&backoff, pause_s, deadline))
            return fth_fail(FTH_PEER_LOST,
                            "the parameter server %s did not take a request for %.0f s (--server-timeout): %s",
                            client->url, client->patience_s, why);
    }
}

/* {"error", "reason"} of a refusal, into a failure. */
static fth_status fail_refused(const fth_worker_client *client, const char *what, const fth_http_response *response)
{
    json_t *json = response->body ? json_loads(response->body, 0, NULL) : NULL;
    const char *error = json_string_value(json_object_get(json, "error"));
    bool signature = response->code == 401 || response->code == 403;
    fth_status status =
        fth_fail(FTH_INVALID, "the parameter server %s refuses %s (%d): %.300s%s", client->url, what, response->code,
                 error ? error : "no reason given",
                 signature ? "; a worker's key goes into FARTHING_ACCESS_KEY and FARTHING_SECRET_KEY" : "");
    json_decref(json);
    return status;
}

static bool has_reason(const fth_http_response *response, const char *reason)
{
    json_t *json = response->body ? json_loads(response->body, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(json, "reason"));
    bool same = text && strcmp(text, reason) == 0;
    json_decref(json);
    return same;
}

/* ---- registering ---- */

static fth_status read_registration(fth_worker_client *client, const fth_http_response *response)
{
    fth_status status = FTH_OK;
    json_t *json = response->body ? json_loads(response->body, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(json, "worker"));
    const char *model = json_string_value(json_object_get(json, "model"));
    const char *input = json_string_value(json_object_get(json, "input"));
    const char *consistency = json_string_value(json_object_get(json, "consistency"));

    FTH_REQUIRE(name && fth_worker_name_valid(name) && model && input && consistency &&
                    json_is_integer(json_object_get(json, "sequence")),
                FTH_CORRUPT, "%s does not answer as a parameter server does", client->url);
    snprintf(client->name, sizeof client->name, "%s", name);
    free(client->model);
    free(client->input);
    client->model = fth_format("%s", model);
    client->input = fth_format("%s", input);
    client->classes = (int)json_integer_value(json_object_get(json, "classes"));
    client->waits = strncmp(consistency, "sync", 4) == 0;
    client->lease_s = json_number_value(json_object_get(json, "lease_s"));
    client->sequence = json_integer_value(json_object_get(json, "sequence"));

out:
    json_decref(json);
    return status;
}

static fth_status register_worker(fth_worker_client *client)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    json_t *json = json_pack("{s:s, s:s}", "worker", client->name, "instance", client->instance);
    char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
    fth_backoff backoff = {.first_s = 0.25, .most_s = 1};
    fth_deadline deadline = fth_deadline_in(client->patience_s);

    FTH_REQUIRE(body, FTH_NO_MEMORY, "no memory to register a worker");
    FTH_TRY(ask(client, &(question){"POST", "/registerWorker", body, strlen(body), NULL, 0, 0, 0, 0}, &response));
    while (response.code == 409 && has_reason(&response, "duplicate") && fth_backoff_wait(&backoff, 0, deadline)) {
        if (backoff.tries == 1)
            fth_log_info("worker %s is registered; waiting until its lease ends, should it be gone", client->name);
        fth_http_response_release(&response);
        FTH_TRY(ask(client, &(question){"POST", "/registerWorker", body, strlen(body), NULL, 0, 0, 0, 0}, &response));
    }
    if (response.code != 200) {
        status = fail_refused(client, "to register this worker", &response);
        goto out;
    }
    FTH_TRY(read_registration(client, &response));

out:
    fth_http_response_release(&response);
    free(body);
    json_decref(json);
    return status;
}

/* The thread that keeps the lease while the worker computes; failures are the worker's own to notice. */
static void *keep_lease(void *context)
{
    fth_worker_client *client = context;
    fth_http_client *http = NULL;
    double pause_s = fmax(client->lease_s / 3, 0.1);
    if (fth_http_client_open(&client->http_options, &http) != FTH_OK)
        return NULL;
    pthread_mutex_lock(&client->mutex);
    while (!client->closing) {
        struct timespec until = fth_deadline_timespec(fth_deadline_in(pause_s));
        if (pthread_cond_clockwait(&client->changed, &client->mutex, CLOCK_MONOTONIC, &until) == 0)
            continue;
        pthread_mutex_unlock(&client->mutex);
        fth_http_response response = {0};
        if (ask_once(client, http, &(question){.method = "GET", .target = "/getVersion"}, pause_s, &response) == FTH_OK)
            fth_http_response_release(&response);
        pthread_mutex_lock(&client->mutex);
    }
    pthread_mutex_unlock(&client->mutex);
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
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(client->instance + 2 * i, 3, "%02x", random[i]);
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

fth_status fth_worker_open(const fth_worker_options *options, fth_worker_client **result)
{
    fth_status status = FTH_OK;
    fth_worker_client *client = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *client, &client));
    pthread_mutex_init(&client->mutex, NULL);
    pthread_cond_init(&client->changed, NULL);
    FTH_REQUIRE(strncmp(options->url, "http://", 7) == 0 || strncmp(options->url, "https://", 8) == 0, FTH_INVALID,
                "--server %s is not a URL: http://HOST:PORT or https://HOST:PORT", options->url);
    size_t length = strlen(options->url);
    while (length > 0 && options->url[length - 1] == '/')
        length--;
    client->url = fth_format("%.*s", (int)length, options->url);
    client->pinned_key = copy_unless_empty(options->pinned_key);
    client->ca_file = copy_unless_empty(options->ca_file);
    client->patience_s = options->patience_s;
    const char *host = strstr(client->url, "://") + 3;
    client->is_local =
        strncmp(host, "127.", 4) == 0 || strncmp(host, "localhost", 9) == 0 || strncmp(host, "[::1]", 5) == 0;
    client->http_options = (fth_http_client_options){.ca_file = client->ca_file, .pinned_key = client->pinned_key};
    FTH_TRY(draw_names(client, options->worker));
    FTH_TRY(fth_signer_from_environment(&client->signer, &client->has_key));
    FTH_TRY(fth_http_client_open(&client->http_options, &client->http));
    FTH_TRY(register_worker(client));
    client->keeping = pthread_create(&client->keeper, NULL, keep_lease, client) == 0;
    FTH_REQUIRE(client->keeping, FTH_NO_MEMORY, "no thread to keep a worker's lease");
    *result = client;
    client = NULL;

out:
    fth_worker_close(client);
    return status;
}

void fth_worker_heed(fth_worker_client *client, const fth_stop *stop)
{
    client->stop = stop;
}

static void unregister(fth_worker_client *client)
{
    char body[FTH_MAX_WORKER_NAME + 32];
    fth_http_response response = {0};
    snprintf(body, sizeof body, "{\"worker\":\"%s\"}", client->name);
    if (ask_once(client, client->http, &(question){"POST", "/unregisterWorker", body, strlen(body), NULL, 0, 0, 0, 0},
                 GOODBYE_S, &response) == FTH_OK)
        fth_http_response_release(&response);
}

void fth_worker_close(fth_worker_client *client)
{
    if (!client)
        return;
    if (client->keeping) {
        pthread_mutex_lock(&client->mutex);
        client->closing = true;
        pthread_cond_broadcast(&client->changed);
        pthread_mutex_unlock(&client->mutex);
        pthread_join(client->keeper, NULL);
        unregister(client);
    }
    fth_local_view_release(&client->view);
    fth_http_client_free(client->http);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->mutex);
    memset(&client->signer, 0, sizeof client->signer);
    free(client->url);
    free(client->pinned_key);
    free(client->ca_file);
    free(client->model);
    free(client->input);
    free(client);
}

const char *fth_worker_name(const fth_worker_client *client)
{
    return client->name;
}

const char *fth_worker_instance(const fth_worker_client *client)
{
    return client->instance;
}

const char *fth_worker_model(const fth_worker_client *client)
{
    return client->model;
}

const char *fth_worker_input(const fth_worker_client *client)
{
    return client->input;
}

int fth_worker_classes(const fth_worker_client *client)
{
    return client->classes;
}

bool fth_worker_waits(const fth_worker_client *client)
{
    return client->waits;
}

/* ---- pulling ---- */

fth_status fth_worker_check_layout(fth_worker_client *client, const fth_layout *layout)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_safetensors *tensors = NULL;
    void *bytes = NULL;
    uint64_t room = layout->packed_floats * sizeof(float) + (uint64_t)layout->count * 1024 + (1 << 20);

    FTH_TRY(fth_allocate(room, 1, &bytes));
    FTH_TRY(ask(client, &(question){.method = "GET", .target = "/getParameter", .into = bytes, .into_bytes = room},
                &response));
    if (response.code != 200) {
        status = fail_refused(client, "its parameters", &response);
        goto out;
    }
    FTH_TRY(fth_safetensors_parse(bytes, response.body_bytes, client->url, &tensors));
    for (int i = 0; i < layout->count; i++) {
        const fth_layout_tensor *mine = &layout->tensors[i];
        const fth_tensor_view *theirs = fth_safetensors_find(tensors, mine->name);
        FTH_REQUIRE(theirs, FTH_INVALID, "%s has no %s: it serves another model, or freezes other layers", client->url,
                    mine->name);
        FTH_REQUIRE(theirs->dtype == FTH_F32 && fth_shape_equal(&theirs->shape, &mine->shape), FTH_INVALID,
                    "%s has %s in another shape: it serves another model, image size or number of classes", client->url,
                    mine->name);
        const fth_tensor_view *first = fth_safetensors_find(tensors, layout->tensors[0].name);
        FTH_REQUIRE((const float *)theirs->data - (const float *)first->data == (int64_t)mine->packed_offset,
                    FTH_INVALID, "%s has its tensors in another order: it freezes other layers than this worker",
                    client->url);
    }
    FTH_REQUIRE((int)fth_safetensors_count(tensors) == layout->count, FTH_INVALID,
                "%s has tensors that this worker's model has not: it serves another model", client->url);

out:
    fth_safetensors_free(tensors);
    free(bytes);
    fth_http_response_release(&response);
    return status;
}

/* True if a 304 says that the server has a lower version than `since`: it was started again from a checkpoint, without
 * a log, and what is waited for may need this worker. */
static bool went_back(const fth_http_response *response, int64_t since)
{
    char *tag = fth_http_header(response, "ETag");
    bool back = response->code == 304 && tag && *tag == '"' && strtoll(tag + 1, NULL, 10) < since;
    free(tag);
    return back;
}

/* By memory, where the server is on this machine. *done is false if it must come by the wire. */
static fth_status pull_local(fth_worker_client *client, uint64_t bytes, int64_t *since, float *packed, int64_t *version,
                             bool *done)
{
    enum { TRIES = 8 }; /* each loses only to a server that updated three times meanwhile */
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char target[96] = "/getParameter?local=1";
    size_t length = strlen(target);

    for (int i = 0; client->is_local && !*done && i < TRIES; i++) {
        do {
            if (response.code == 304)
                FTH_TRY(fail_if_stopped(client));
            if (went_back(&response, *since))
                *since = -1;
            target[length] = '\0';
            if (*since >= 0)
                snprintf(target + length, sizeof target - length, "&since=%" PRId64 "&wait=%d", *since, (int)POLL_S);
            fth_http_response_release(&response);
            FTH_TRY(ask(client, &(question){.method = "GET", .target = target, .wait_s = *since >= 0 ? POLL_S : 0},
                        &response));
        } while (response.code == 304);
        if (response.code != 200 || !response.body)
            break;
        fth_local_result result = fth_local_copy(&client->view, response.body, bytes, packed, version);
        *done = result == FTH_LOCAL_COPIED;
        client->is_local = result != FTH_LOCAL_ELSEWHERE;
    }
    if (!*done) /* a server that was started again may be at the same path with other memory */
        fth_local_view_release(&client->view);

out:
    fth_http_response_release(&response);
    return status;
}

fth_status fth_worker_pull(fth_worker_client *client, const fth_layout *layout, int64_t since, float *packed,
                           int64_t *version)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    char target[128], *text = NULL;
    uint64_t bytes = layout->packed_floats * sizeof(float);
    bool done = false;

    FTH_TRY(pull_local(client, bytes, &since, packed, version, &done));
    if (done)
        goto out;
    do {
        if (response.code == 304)
            FTH_TRY(fail_if_stopped(client));
        int length = snprintf(target, sizeof target, "/getParameter?offset=0&count=%" PRIu64, layout->packed_floats);
        if (went_back(&response, since))
            since = -1;
        if (since >= 0)
            snprintf(target + length, sizeof target - (size_t)length, "&since=%" PRId64 "&wait=%d", since, (int)POLL_S);
        fth_http_response_release(&response);
        FTH_TRY(ask(client,
                    &(question){.method = "GET",
                                .target = target,
                                .into = packed,
                                .into_bytes = bytes,
                                .wait_s = since >= 0 ? POLL_S : 0},
                    &response));
    } while (response.code == 304);
    if (response.code != 200) {
        status = fail_refused(client, "its parameters", &response);
        goto out;
    }
    text = fth_http_header(&response, "X-Farthing-Version");
    FTH_REQUIRE(text && response.body_bytes == bytes, FTH_CORRUPT,
                "%s gave %" PRIu64 " bytes of parameters, not %" PRIu64, client->url, response.body_bytes, bytes);
    *version = strtoll(text, NULL, 10);

out:
    free(text);
    fth_http_response_release(&response);
    return status;
}

/* ---- pushing ---- */

/* Registered again, after the lease ran out or the server lost us. *done: what was being pushed had arrived. */
static fth_status come_back(fth_worker_client *client, int64_t pending, bool *done)
{
    fth_status status = register_worker(client);
    *done = status == FTH_OK && client->sequence >= pending;
    return status;
}

fth_status fth_worker_push(fth_worker_client *client, const fth_push *push, fth_push_outcome *outcome)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_push_body body = {0};
    int64_t sequence = client->sequence + 1;

    *outcome = FTH_PUSH_APPLIED;
    FTH_TRY(push->make(push->context, client->name, sequence, &body));
    for (int strange = 0;;) {
        question q = {.method = "POST", .target = "/putGradient", .body = body.bytes, .body_bytes = body.size_bytes};
        if (client->is_local && body.fd > 0) {
            q.memory = body.fd;
            q.stamp = body.stamp;
        }
        FTH_TRY(ask(client, &q, &response));
        if (q.memory > 0 && response.code == 400) { /* it may not see our memory: another container, another user */
            fth_http_response_release(&response);
            client->is_local = false;
            continue;
        }
        if (response.code != 409 || !has_reason(&response, "stranger") || ++strange > 3)
            break;
        bool done = false;
        fth_http_response_release(&response);
        FTH_TRY(come_back(client, sequence, &done));
        if (done)
            goto out;
        if (client->sequence + 1 != sequence) { /* the server remembers less than this worker pushed */
            sequence = client->sequence + 1;
            FTH_TRY(push->make(push->context, client->name, sequence, &body));
        }
    }
    client->sequence = sequence;
    if (response.code == 200 || response.code == 201)
        goto out;
    /* "version": the server has gone back to a checkpoint, so that what it has is older than what this was made of. */
    if (response.code == 409 && (has_reason(&response, "stale") || has_reason(&response, "version")))
        *outcome = FTH_PUSH_STALE;
    else if (response.code == 409 && has_reason(&response, "finished"))
        *outcome = FTH_PUSH_FINISHED;
    else if (has_reason(&response, "not_finite"))
        status = fth_fail(FTH_DIVERGED, "a gradient is no longer a finite number");
    else
        status = fail_refused(client, "a gradient", &response);
    if (*outcome == FTH_PUSH_STALE)
        client->sequence = sequence - 1; /* it was not taken */

out:
    fth_http_response_release(&response);
    return status;
}
