/* A worker of a parameter server: pulls the weights, computes the gradients of a batch, pushes
 * them, and pulls again.
 *
 * The server owns the optimizer and the learning rate; of this process's options those about data,
 * batches, precision and limits count. Pull, compute and push follow one another: with several
 * workers the others compute meanwhile. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/tls.h"
#include "model/exported_model.h"
#include "parallel/parallel_internal.h"
#include "parameters/replica.h"
#include "train/engine/server_support.h"

typedef struct worker {
    fth_engine *engine;
    fth_worker_client *client;
    fth_replica *replica;
    const char *server;      /* its address */
    fth_replica_facts group; /* of the batches being computed; its loss is a sum */
    int64_t stale;
    bool last_was_stale;
    json_t *events;
} worker;

static void close_worker(void *state)
{
    worker *w = state;
    if (!w)
        return;
    fth_replica_free(w->replica);
    fth_worker_close(w->client);
    json_decref(w->events);
    free(w);
}

static fth_status check_model(const worker *w, const fth_train_options *options)
{
    fth_status status = FTH_OK;
    const fth_engine_options *engine = fth_engine_get_options(w->engine);
    /* a tokenizer that was learned here from other texts, or another number of its tokens */
    const char *hint = engine->longest > 0 ? ": give --vocab the tokenizer.json of the server's run" : "";
    const fth_worker_registration *served = fth_worker_get_registration(w->client);
    char input[64];

    fth_service_describe_input(engine, fth_dataset_get_info(engine->dataset)->text.tokenizer, input, sizeof input);
    FTH_REQUIRE(strcmp(served->model, fth_exported_model_short_name(options->model)) == 0, FTH_INVALID,
                "%s serves %s, not --model %s%s", options->server.url, served->model, options->model, hint);
    FTH_REQUIRE(strcmp(served->input, input) == 0 && served->classes == engine->classes, FTH_INVALID,
                "%s serves a model for %s%s in %s; %s has %s in %d%s", options->server.url,
                engine->longest > 0 ? "" : "images of ", served->input, FTH_COUNTED(served->classes, "class"),
                options->data.address, input, engine->classes, hint);
    const fth_normalization *theirs = &served->normalization;
    const fth_normalization *ours = &fth_dataset_get_info(engine->dataset)->normalization;
    if (theirs->channels > 0 && !fth_normalization_equal(theirs, ours)) {
        char expected[FTH_NORMALIZATION_TEXT], used[FTH_NORMALIZATION_TEXT];
        fth_normalization_format(theirs, expected);
        fth_normalization_format(ours, used);
        status =
            fth_fail(FTH_INVALID, "%s expects images normalized as %s, but this worker uses %s: give --normalize %s",
                     options->server.url, expected, used, expected);
    }

out:
    return status;
}

static void warn_about_server_options(const fth_train_options *options)
{
    const fth_option_table *table = &fth_train_option_table;
    for (size_t i = 0; i < table->count; i++)
        if (table->options[i].side == FTH_SIDE_SERVER && fth_options_is_set(table, options, table->options[i].name))
            fth_log_warning("--%s is up to the server; it has no effect on a worker", table->options[i].name);
}

static fth_status refuse_f16(void)
{
    return fth_fail(FTH_INVALID,
                    "f16 scales its loss, which a server's optimizer does not know of; use --precision bf16");
}

static fth_status connect_worker(fth_engine *engine, const fth_train_options *options, fth_stop *stop, void **state,
                                 fth_peer_place *place)
{
    fth_status status = FTH_OK;
    worker *w = NULL;

    (void)place; /* --share says it: each worker has batches of its own */
    *state = NULL;
    FTH_REQUIRE(*options->server.url, FTH_INVALID,
                "this run has a parameter server: give --server URL, or --strategy parameter-server to start a server "
                "and workers here");
    if (strcmp(fth_engine_precision(engine), "f16") == 0) /* of --precision auto */
        return refuse_f16();
    warn_about_server_options(options);
    FTH_TRY(fth_allocate(1, sizeof *w, &w));
    w->engine = engine;
    w->events = json_array();
    FTH_TRY(fth_replica_create(engine, options->server.compress, &w->replica));
    fth_worker_options client = {.url = options->server.url,
                                 .worker = options->server.worker,
                                 .pinned_key = options->server.pin,
                                 .ca_file = options->server.ca,
                                 .patience_s = options->server.timeout_s,
                                 .stop = stop};
    FTH_TRY(fth_worker_open(&client, &w->client));
    FTH_TRY(check_model(w, options));
    FTH_TRY(fth_replica_connect(w->replica, w->client));
    w->server = options->server.url;
    *state = w;
    w = NULL;

out:
    close_worker(w);
    return status;
}

static fth_status get_network(const fth_train_options *options, const fth_stop *stop, char **text)
{
    *text = NULL;
    if (!*options->server.url)
        return FTH_OK;
    return fth_worker_ask_for_network(&(fth_worker_options){.url = options->server.url,
                                                            .pinned_key = options->server.pin,
                                                            .ca_file = options->server.ca,
                                                            .patience_s = options->server.timeout_s,
                                                            .stop = stop},
                                      text);
}

static fth_status open_worker(fth_engine *engine, const fth_train_options *options, void **state)
{
    worker *w = *state;
    (void)engine;
    (void)options;
    return fth_replica_pull(w->replica, -1);
}

static void describe(const void *state, json_t *event)
{
    const worker *w = state;
    json_object_set_new(event, "worker", json_string(fth_worker_name(w->client)));
    json_object_set_new(event, "server", json_string(w->server));
    json_object_set_new(event, "version", json_integer(fth_replica_version(w->replica)));
}

static void note_stale(worker *w)
{
    w->stale++;
    if (!w->last_was_stale)
        json_array_append_new(w->events,
                              json_pack("{s:s, s:f, s:I, s:I}", "event", "stale", "time", 0.0, "version",
                                        (json_int_t)fth_replica_version(w->replica), "count", (json_int_t)w->stale));
}

/* The group's gradients go to the server, and new weights come back. */
static fth_status exchange(worker *w, fth_step_result *result)
{
    fth_status status = FTH_OK;
    fth_push_outcome outcome = FTH_PUSH_APPLIED;

    w->group.loss /= (double)w->group.samples;
    FTH_TRY(fth_replica_push(w->replica, &w->group, &outcome));
    w->group = (fth_replica_facts){0};
    if (outcome == FTH_PUSH_FINISHED) {
        result->finished = true;
        goto out;
    }
    if (outcome == FTH_PUSH_STALE)
        note_stale(w);
    w->last_was_stale = outcome == FTH_PUSH_STALE;
    status = fth_replica_pull_next(w->replica, outcome);
    if (status == FTH_INTERRUPTED)
        status = FTH_OK; /* the server has the gradient; a process that continues pulls first */

out:
    return status;
}

static fth_status step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    fth_status status = FTH_OK;
    worker *w = state;
    fth_group group = fth_engine_group(w->engine, batch);

    (void)learning_rate;
    FTH_TRY(fth_engine_compute(w->engine, batch, &group, result));
    w->group.loss += result->loss * (double)result->samples;
    w->group.correct += result->correct;
    w->group.samples += result->samples;
    if (group.last)
        FTH_TRY(exchange(w, result));

out:
    return status;
}

static json_t *take_event(void *state)
{
    worker *w = state;
    json_t *event = json_incref(json_array_get(w->events, 0));
    json_array_remove(w->events, 0);
    return event;
}

/* Without a server to work for, one is started here, with workers of its own. */
static bool starts_processes(const fth_train_options *options)
{
    return !*options->server.url;
}

static fth_status check(const fth_train_options *options)
{
    if (*options->server.url && options->peers.workers > 0)
        return fth_fail(FTH_INVALID, "--workers are those of a server of this machine's own; with --server URL this "
                                     "command is one worker");
    if (*options->server.url && fth_options_is_set(&fth_train_option_table, options, "consistency"))
        return fth_fail(FTH_INVALID, "--consistency is for the server to say: %s", options->server.url);
    if (*options->server.url && strncmp(options->server.url, "http://", 7) != 0 &&
        strncmp(options->server.url, "https://", 8) != 0)
        return fth_fail(FTH_INVALID, "--server %s is not a URL: http://HOST:PORT or https://HOST:PORT",
                        options->server.url);
    if (options->precision == FTH_PRECISION_F16)
        return refuse_f16();
    if (*options->data.test)
        return fth_fail(FTH_INVALID,
                        "--test %s: a parameter server keeps no best model to measure; use `farthing "
                        "evaluate` when it has ended",
                        options->data.test);
    if (*options->server.pin && !fth_tls_is_fingerprint(options->server.pin))
        return fth_fail(FTH_INVALID,
                        "--server-pin \"%s\" is not a fingerprint: sha256// and 44 characters, as the server "
                        "printed it",
                        options->server.pin);
    return starts_processes(options) ? fth_local_server_check(options) : FTH_OK;
}

static const char *const server_options[] = {"workers",   "server",         "worker",      "compress", "server-pin",
                                             "server-ca", "server-timeout", "consistency", NULL};

const fth_strategy fth_strategy_parameter_server = {
    .name = "parameter-server",
    .summary = "a worker that sends gradients to a server, which owns the model",
    .options = server_options,
    .optimizer = FTH_OPTIMIZER_OF_SERVER,
    .ended_by = "server",
    .check = check,
    .starts_processes = starts_processes,
    .supervise = fth_local_server_run,
    .get_network = get_network,
    .connect = connect_worker,
    .open = open_worker,
    .describe = describe,
    .step = step,
    .take_event = take_event,
    .close = close_worker,
};
