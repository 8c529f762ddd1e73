/* Opening, going on with what was, and stopping in order. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "parameters/parameters_internal.h"
#include "parameters/rates.h"

static const double STOP_S = 3, DEFAULT_GATHER_S = 600;

/* ---- options ---- */

fth_status fth_consistency_parse(const char *text, fth_consistency *consistency)
{
    char *end = NULL;
    const char *colon = strchr(text, ':');
    int64_t count = colon ? strtoll(colon + 1, &end, 10) : 0;
    bool counted = colon && end != colon + 1 && !*end && count >= 0 && count <= 1000000;
    size_t length = colon ? (size_t)(colon - text) : strlen(text);

    if (length == 4 && strncmp(text, "sync", 4) == 0 && (!colon || (counted && count >= 1)))
        *consistency = (fth_consistency){FTH_CONSISTENCY_SYNC, count};
    else if (length == 7 && strncmp(text, "bounded", 7) == 0 && counted)
        *consistency = (fth_consistency){FTH_CONSISTENCY_BOUNDED, count};
    else if (strcmp(text, "async") == 0)
        *consistency = (fth_consistency){FTH_CONSISTENCY_ASYNC, 0};
    else
        return fth_fail(FTH_INVALID,
                        "\"%s\" is not a consistency: sync (a gradient of each worker makes a step), sync:N (N of them "
                        "do), bounded:S (none older than S versions) or async",
                        text);
    return FTH_OK;
}

void fth_consistency_format(fth_consistency consistency, char *text, size_t size)
{
    if (consistency.kind == FTH_CONSISTENCY_ASYNC)
        snprintf(text, size, "async");
    else if (consistency.kind == FTH_CONSISTENCY_SYNC && consistency.count == 0)
        snprintf(text, size, "sync");
    else
        snprintf(text, size, "%s:%" PRId64, consistency.kind == FTH_CONSISTENCY_SYNC ? "sync" : "bounded",
                 consistency.count);
}

static bool is_loopback(const char *address)
{
    return !address || !*address || strcmp(address, "localhost") == 0 || strncmp(address, "127.", 4) == 0 ||
           strcmp(address, "::1") == 0;
}

static fth_status check_options(const fth_parameters *server)
{
    fth_status status = FTH_OK;
    const fth_parameters_options *options = &server->options;
    const fth_train_options *train = server->train;

    FTH_REQUIRE(
        options->keys || is_loopback(options->address), FTH_INVALID,
        "without keys only this machine can be served: address %s needs --keys FILE (`farthing keys` makes one)",
        options->address);
    FTH_REQUIRE(options->lease_s > 0, FTH_INVALID, "a lease must be longer than nothing");
    FTH_REQUIRE(train->accumulate <= 1, FTH_INVALID, "gradients are accumulated by workers, not by the server");
    FTH_REQUIRE(strcmp(train->precision, "f32") == 0, FTH_INVALID, "the server's parameters are f32");

out:
    return status;
}

/* ---- the model ---- */

static fth_status open_model(fth_parameters *server)
{
    fth_status status = FTH_OK;
    const fth_parameters_options *options = &server->options;
    const fth_train_options *train = server->train;
    fth_weights *weights = NULL;
    double rate = 0;

    server->channels = options->channels;
    server->height = options->height;
    server->width = options->width;
    server->classes = options->classes;
    server->epoch_samples = options->epoch_samples;
    if (options->has_data) {
        FTH_TRY(fth_service_open_data(train, &server->dataset));
        const fth_dataset_info *info = fth_dataset_get_info(server->dataset);
        server->channels = info->channels;
        server->height = info->height;
        server->width = info->width;
        server->classes = info->classes;
        if (server->epoch_samples == 0)
            server->epoch_samples = info->count[FTH_TRAIN];
        FTH_REQUIRE(info->count[FTH_VALIDATION] > 0, FTH_INVALID, "%s has no images to validate with", train->data);
        server->normalization = info->normalization;
    } else {
        FTH_TRY(fth_service_find_normalization(train, &server->normalization));
        if (server->normalization.channels > 0)
            FTH_TRY(fth_normalization_spread(&server->normalization, server->channels, &server->normalization));
    }
    snprintf(server->input, sizeof server->input, "%dx%dx%d", server->channels, server->height, server->width);
    FTH_TRY(fth_device_open("cpu", &(fth_device_options){.threads = (int)train->threads}, &server->device));
    fth_engine_options engine = {.train = train,
                                 .channels = server->channels,
                                 .height = server->height,
                                 .width = server->width,
                                 .classes = server->classes,
                                 .training_samples = server->epoch_samples > 0 ? server->epoch_samples : train->batch};
    FTH_TRY(fth_engine_create(&engine, server->device, &server->engine));
    FTH_TRY(fth_layout_create(fth_engine_graph(server->engine), &server->layout));
    server->vectors = fth_service_get_vectors(server->engine);
    FTH_TRY(fth_allocate((size_t)server->layout->trained + 1, sizeof *server->pieces, &server->pieces));
    FTH_TRY(fth_allocate_aligned((server->layout->buffer_floats + 1) * sizeof(float), &server->buffer_sum));
    /* Room for positions and values of every number, and for names and metadata. */
    server->max_body_bytes = server->layout->packed_floats * 8 + (uint64_t)server->layout->count * 1024 + (256 << 10);
    if (server->options.max_memory_bytes == 0)
        server->options.max_memory_bytes = UINT64_C(1) << 30;
    if (server->options.max_log_bytes == 0) {
        uint64_t gradients = 16 * server->layout->packed_floats * sizeof(float), least = 256 << 20;
        server->options.max_log_bytes = gradients > least ? gradients : least;
    }
    if (server->epoch_samples > 0) {
        int64_t gradients = options->consistency.kind == FTH_CONSISTENCY_SYNC && options->consistency.count > 0
                                ? options->consistency.count
                                : 1;
        server->updates_per_epoch = (server->epoch_samples + train->batch * gradients - 1) / (train->batch * gradients);
    }
    if (options->ends_by_epochs && train->epochs > 0) {
        FTH_REQUIRE(server->epoch_samples > 0 || train->steps > 0, FTH_INVALID,
                    "--epochs ends the training, but nothing says how many samples an epoch has: give --data, "
                    "--epoch-samples, or --steps instead");
        server->end_samples = train->epochs * server->epoch_samples;
    }
    FTH_TRY(fth_service_rate(train, 1, 0, server->updates_per_epoch, &rate)); /* the schedule can be followed */
    if (*train->weights) {
        FTH_TRY(fth_weights_open(train->weights, &weights));
        FTH_TRY(fth_engine_load_weights(server->engine, weights, true, train->weights, NULL));
    }

out:
    fth_weights_free(weights);
    return status;
}

/* ---- the record ---- */

static json_t *describe_run(const fth_parameters *server)
{
    char identity[17], consistency[32], lease[32];
    json_t *configuration = fth_options_to_json(&fth_train_option_table, server->train, false);
    fth_options_identity(&fth_train_option_table, server->train, identity);
    fth_consistency_format(server->options.consistency, consistency, sizeof consistency);
    json_object_set_new(configuration, "strategy", json_string("parameter-server"));
    json_object_set_new(configuration, "lr", json_real(fth_engine_learning_rate(server->engine)));
    json_object_set_new(configuration, "consistency", json_string(consistency));
    snprintf(lease, sizeof lease, "%gs", server->options.lease_s); /* text, as `train` reads it back */
    json_object_set_new(configuration, "lease", json_string(lease));
    if (!server->dataset)
        json_object_set_new(configuration, "data", json_string("the workers'"));
    return json_pack("{s:s, s:o, s:{s:s, s:i, s:i, s:i, s:i, s:I, s:I}, s:I}", "identity", identity, "configuration",
                     configuration, "data", "name",
                     server->dataset ? fth_dataset_get_info(server->dataset)->name : "the workers'", "classes",
                     server->classes, "channels", server->channels, "height", server->height, "width", server->width,
                     "training_samples", (json_int_t)server->epoch_samples, "validation_samples",
                     (json_int_t)(server->dataset ? fth_dataset_get_info(server->dataset)->count[FTH_VALIDATION] : 0),
                     "parameters", (json_int_t)fth_graph_trainable_count(fth_engine_graph(server->engine)));
}

/* The run that a state folder belongs to, if it is still there; else NULL. free() it. */
static char *find_run(const fth_parameters *server)
{
    char *path = NULL, *text = NULL, *run_json = NULL, *folder = NULL;
    size_t size = 0;
    if (server->options.checkpoints) {
        path = fth_path_join(server->options.checkpoints, "run.txt");
        if (fth_file_exists(path) && fth_file_read_all(path, 4096, &text, &size) == FTH_OK) {
            text[strcspn(text, "\n")] = '\0';
            folder = fth_format("%s", text);
        }
    } else if (*server->train->name) {
        folder = fth_path_join(server->train->runs, server->train->name);
    }
    if (folder) {
        run_json = fth_path_join(folder, "run.json");
        if (!fth_file_exists(run_json)) {
            free(folder);
            folder = NULL;
        }
    }
    free(path);
    free(text);
    free(run_json);
    return folder;
}

static fth_status open_record(fth_parameters *server)
{
    fth_status status = FTH_OK;
    json_t *description = describe_run(server), *machine = fth_service_describe_machine(server->device);
    char *folder = find_run(server), *hint = NULL, *path = NULL;

    FTH_REQUIRE(description, FTH_NO_MEMORY, "no memory for the run's description");
    server->resumed = folder != NULL;
    if (folder) {
        FTH_TRY(fth_record_resume(folder, &server->record));
        FTH_TRY(fth_record_configure(server->record, description, machine));
    } else {
        hint = fth_format("%s-server", server->train->model);
        FTH_TRY(
            fth_record_create(server->train->runs, server->train->name, hint, description, machine, &server->record));
    }
    server->state_folder = server->options.checkpoints
                               ? fth_format("%s", server->options.checkpoints)
                               : fth_path_join(fth_record_folder(server->record), "checkpoints");
    FTH_TRY(fth_folder_create(server->state_folder));
    if (server->options.checkpoints) {
        path = fth_path_join(server->state_folder, "run.txt");
        FTH_TRY(fth_file_write_all(path, fth_record_folder(server->record), strlen(fth_record_folder(server->record))));
    }

out:
    json_decref(description);
    json_decref(machine);
    free(folder);
    free(hint);
    free(path);
    return status;
}

static void tell_start(fth_parameters *server)
{
    json_t *event =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:f}", "id", fth_record_id(server->record), "folder",
                  fth_record_folder(server->record), "model", server->train->model, "data",
                  server->dataset ? server->train->data : "the workers'", "device", server->device->description,
                  "parameters", (json_int_t)fth_graph_trainable_count(fth_engine_graph(server->engine)), "process_s",
                  fth_clock_process_seconds());
    if (server->resumed)
        json_object_update_new(event, fth_parameters_position(server));
    fth_parameters_tell(server, server->resumed ? "resume" : "start", event);
}

/* Requests that were good once are not good again for having come before this process. */
static fth_status keep_nonces(const fth_parameters *server)
{
    char *path = fth_path_join(server->state_folder, "nonces");
    fth_status status = fth_keys_keep(server->keys, path);
    free(path);
    return status;
}

/* ---- threads ---- */

static fth_status start_threads(fth_parameters *server)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_parameters_start_saver(server));
    server->applier_running = fth_thread_start(&server->applier, "apply", fth_parameters_apply, server) == 0;
    FTH_REQUIRE(server->applier_running, FTH_NO_MEMORY, "no thread to apply gradients");
    for (size_t i = 0; i < FTH_COUNT_OF(server->checkers); i++) {
        FTH_REQUIRE(fth_thread_start(&server->checkers[i], "check-bodies", fth_parameters_check_bodies, server) == 0,
                    FTH_NO_MEMORY, "no thread to check gradients");
        server->checkers_running++;
    }
    if (server->dataset && server->options.validate_every > 0) {
        server->validator_running =
            fth_thread_start(&server->validator, "validate", fth_parameters_validate, server) == 0;
        FTH_REQUIRE(server->validator_running, FTH_NO_MEMORY, "no thread to validate");
    }

out:
    return status;
}

static void stop_threads(fth_parameters *server)
{
    pthread_mutex_lock(&server->mutex);
    server->stopping = true;
    pthread_cond_broadcast(&server->arrived);
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    fth_stop_ask(&server->validation_stop, FTH_STOP_REQUEST, INFINITY, "server", "the server stops");
    for (int i = 0; i < server->checkers_running; i++)
        pthread_join(server->checkers[i], NULL);
    pthread_mutex_lock(&server->mutex);
    server->all_checked = true;
    pthread_cond_broadcast(&server->work);
    pthread_mutex_unlock(&server->mutex);
    if (server->applier_running)
        pthread_join(server->applier, NULL);
    fth_server_stop(server->http, STOP_S);
    server->http = NULL;
    if (server->validator_running)
        pthread_join(server->validator, NULL);
    fth_parameters_stop_saver(server);
}

static void free_server(fth_parameters *server)
{
    fth_copy_unref(server->copy);
    fth_region_release(&server->region);
    fth_wal_free(server->wal);
    fth_store_free(server->store);
    fth_store_free(server->folder);
    fth_record_free(server->record);
    fth_layout_free(server->layout);
    fth_snapshot_free(server->snapshot);
    fth_update_guard_free(server->guard);
    fth_engine_free(server->engine);
    fth_device_close(server->device);
    fth_dataset_free(server->dataset);
    fth_keys_free(server->keys);
    fth_hosts_free(server->hosts);
    fth_rates_free(server->rates);
    fth_workers_free(server->workers);
    for (size_t i = 0; i < FTH_COUNT_OF(server->spare_bodies); i++)
        free(server->spare_bodies[i]);
    free(server->buffer_sum);
    free(server->pieces);
    free(server->state_folder);
    free(server);
}

fth_status fth_parameters_start(const fth_parameters_options *options, fth_parameters **result)
{
    fth_status status = FTH_OK;
    fth_parameters *server = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *server, &server));
    server->options = *options;
    server->train = options->train;
    server->validation_stop = (fth_stop)FTH_STOP_INITIALIZER;
    pthread_mutex_init(&server->mutex, NULL);
    pthread_mutex_init(&server->record_mutex, NULL);
    pthread_cond_init(&server->work, NULL);
    pthread_cond_init(&server->arrived, NULL);
    pthread_cond_init(&server->changed, NULL);
    pthread_cond_init(&server->saver_work, NULL);
    server->region = (fth_region){.fd = -1, .newest = -1, .version = -1};
    fth_queue_init(&server->queue);
    fth_queue_init(&server->unchecked);
    fth_queue_init(&server->deferred);
    if (server->options.gather_s <= 0)
        server->options.gather_s = DEFAULT_GATHER_S;
    if (server->options.max_snapshots <= 0)
        server->options.max_snapshots = 4;
    if (options->checkpoints && fth_store_is_url(options->checkpoints)) {
        FTH_TRY(fth_store_open(options->checkpoints, NULL, &server->store));
        server->options.checkpoints = NULL; /* here they are kept with the run */
    }
    FTH_TRY(check_options(server));
    if (options->keys)
        FTH_TRY(fth_keys_parse(options->keys, "the keys", &server->keys));
    FTH_TRY(fth_hosts_create(options->address, options->host_names, options->certificate_pem, &server->hosts));
    if (options->max_requests_per_s > 0)
        FTH_TRY(fth_rates_create(options->max_requests_per_s, &server->rates));
    FTH_TRY(fth_workers_create(&(fth_workers_options){.lease_s = options->lease_s, .keyed = options->keys != NULL},
                               &server->workers));
    FTH_TRY(open_model(server));
    FTH_TRY(open_record(server));
    if (server->keys)
        FTH_TRY(keep_nonces(server));
    FTH_TRY(fth_parameters_restore(server));
    fth_step_note_progress(server);
    server->started_s = fth_clock_seconds();
    server->live.samples = server->samples;
    server->live.at_s = server->started_s;
    server->line = (fth_server_line){.began_s = fth_parameters_elapsed(server)};
    tell_start(server);
    FTH_TRY(start_threads(server));
    FTH_TRY(fth_parameters_serve(server));
    *result = server;
    server = NULL;

out:
    if (server) {
        stop_threads(server);
        free_server(server);
    }
    return status;
}

const fth_normalization *fth_parameters_normalization(const fth_parameters *server)
{
    return &server->normalization;
}

int fth_parameters_port(const fth_parameters *server)
{
    return fth_server_port(server->http);
}

const char *fth_parameters_run_folder(const fth_parameters *server)
{
    return fth_record_folder(server->record);
}

int64_t fth_parameters_version(const fth_parameters *server)
{
    return atomic_load(&((fth_parameters *)(uintptr_t)server)->version);
}

double fth_parameters_progress(const fth_parameters *server)
{
    return atomic_load(&((fth_parameters *)(uintptr_t)server)->progress);
}

int64_t fth_parameters_epoch_samples(const fth_parameters *server)
{
    return server->epoch_samples;
}

/* How long the rest takes at this pace, by whatever ends the training; NAN if that is not known. */
static double seconds_left(const fth_parameters *server, int64_t samples, double pace)
{
    const fth_train_options *train = server->train;
    double version = (double)fth_parameters_version(server), left = NAN;
    if (train->steps > 0 && version > 0)
        left = ((double)train->steps - version) * (double)samples / version;
    else if (train->steps == 0 && train->epochs > 0 && server->epoch_samples > 0)
        left = (double)(train->epochs * server->epoch_samples - samples);
    return left < 0 ? 0 : left / pace;
}

void fth_parameters_get_progress(fth_parameters *server, fth_progress *progress)
{
    const fth_train_options *train = server->train;
    pthread_mutex_lock(&server->mutex);
    fth_tally recent = fth_window_recent(&server->live.window);
    double pace = fth_window_pace(&server->live.window);
    int64_t samples = server->live.samples;
    pthread_mutex_unlock(&server->mutex);
    *progress = (fth_progress){.epochs = train->epochs,
                               .step = fth_parameters_version(server),
                               .steps = train->steps,
                               .loss = fth_tally_loss(&recent),
                               .accuracy = fth_tally_accuracy(&recent),
                               .samples_per_s = fth_tally_samples_per_s(&recent),
                               .elapsed_s = fth_parameters_elapsed(server),
                               .left_s = seconds_left(server, samples, pace)};
    progress->epoch = server->epoch_samples > 0 ? samples / server->epoch_samples + 1 : 1;
    if (train->epochs > 0 && progress->epoch > train->epochs)
        progress->epoch = train->epochs;
}

int fth_parameters_workers(fth_parameters *server)
{
    return fth_workers_live(server->workers);
}

void fth_parameters_let_go(fth_parameters *server, const char *name)
{
    if (!fth_workers_end_lease(server->workers, name))
        return;
    pthread_mutex_lock(&server->mutex);
    server->recheck = true; /* wakes the thread that lets it go */
    pthread_cond_broadcast(&server->work);
    pthread_mutex_unlock(&server->mutex);
}

fth_status fth_parameters_wait(fth_parameters *server, double seconds)
{
    fth_status status = FTH_OK;
    struct timespec until = fth_deadline_timespec(fth_deadline_in(seconds));
    pthread_mutex_lock(&server->mutex);
    int error = 0;
    while (server->failure == FTH_OK && error == 0)
        error = pthread_cond_clockwait(&server->changed, &server->mutex, CLOCK_MONOTONIC, &until);
    if (server->failure != FTH_OK)
        status = fth_fail(server->failure, "%s", server->failure_message);
    pthread_mutex_unlock(&server->mutex);
    return status;
}

/* Workers on this machine count their epochs themselves and leave when they are done. */
static const char *reason_to_end(const fth_parameters *server)
{
    const fth_train_options *train = server->train;
    if (train->steps > 0)
        return "steps";
    bool reached = server->end_samples > 0 && fth_parameters_progress(server) >= 1;
    bool epochs_alone = train->epochs > 0 && train->for_s <= 0 && !*train->until;
    return reached || epochs_alone ? "epochs" : "workers";
}

static void tell_end(fth_parameters *server, bool finished, fth_status status)
{
    json_t *event = fth_parameters_position(server);
    const char *name = server->failure != FTH_OK ? "error" : finished ? "end" : "interrupted";
    if (server->failure != FTH_OK) {
        json_object_set_new(event, "status", json_string(fth_status_name(server->failure)));
        json_object_set_new(event, "message", json_string(server->failure_message));
    } else if (finished) {
        json_object_set_new(event, "steps", json_integer(fth_parameters_version(server)));
        json_object_set_new(event, "seconds", json_real(fth_parameters_elapsed(server)));
        if (fth_parameters_elapsed(server) > 0)
            json_object_set_new(event, "samples_per_s",
                                json_real((double)server->samples / fth_parameters_elapsed(server)));
        json_object_set_new(event, "reason", json_string(reason_to_end(server)));
        if (server->epoch_samples > 0)
            json_object_set_new(event, "epochs", json_real((double)server->samples / (double)server->epoch_samples));
    }
    if (server->failure == FTH_OK && finished && server->validation.known) {
        json_object_set_new(event, "accuracy", json_real(server->validation.accuracy));
        json_object_set_new(event, "loss", json_real(server->validation.loss));
    }
    if (server->failure == FTH_OK && finished && status == FTH_OK) {
        char *model = fth_path_join(fth_record_folder(server->record), "last.safetensors");
        json_object_set_new(event, "model", json_string(model));
        free(model);
    }
    if (status != FTH_OK)
        json_object_set_new(event, "warning", json_string(fth_error_message()));
    fth_parameters_tell(server, name, event);
    fth_record_sync(server->record);
}

fth_status fth_parameters_stop(fth_parameters *server, bool finished)
{
    if (!server)
        return FTH_OK;
    stop_threads(server);
    fth_parameters_tell_step(server, true);
    if (finished && server->failure == FTH_OK)
        fth_parameters_validate_last(server);
    fth_status status = fth_parameters_save_last(server);
    tell_end(server, finished, status);
    if (server->failure != FTH_OK && status == FTH_OK)
        status = fth_fail(server->failure, "%s", server->failure_message);
    free_server(server);
    return status;
}
