/* The parameter server as a whole: makes its parts, connects them and stops them.
 *
 *     HTTP threads --> intake --> checking threads --> applier --> leases, updates, journal, saver
 *            |                                            |
 *            +--------------> snapshots <-----------------+
 *                               |
 *                           validator
 *
 * A part owns its state, and its mutex if several threads use it. The mutex of snapshots may be
 * held while those of intake and workers are taken; any of these three while those of the HTTP
 * server are. No other mutexes nest. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parameters/applier.h"
#include "parameters/intake.h"
#include "parameters/journal.h"
#include "parameters/routes.h"
#include "parameters/saver.h"
#include "parameters/shard_leases.h"
#include "parameters/snapshots.h"
#include "parameters/updates.h"
#include "parameters/validator.h"
#include "parameters/worker_totals.h"

static const double STOP_S = 3, DEFAULT_GATHER_S = 600, AUTOMATIC_INTERVAL_S = 60, DEFAULT_URL_EXPIRY_S = 3600;
enum { DEFAULT_SNAPSHOTS = 4 };

struct fth_parameters {
    fth_parameters_options options; /* with defaults filled in; constant while threads run */
    fth_server_parts parts;
    fth_applier *applier;
    fth_parameter_service *service;
};

/* ---- options ---- */

fth_status fth_parameters_set_interval(const char *text, fth_parameters_options *options)
{
    options->checkpoint_every_s = 0;
    options->checkpoint_every_versions = 0;
    if (strcmp(text, "auto") == 0)
        options->checkpoint_every_s = AUTOMATIC_INTERVAL_S;
    else if (text[strspn(text, "0123456789")])
        return fth_duration_parse(text, &options->checkpoint_every_s);
    else
        options->checkpoint_every_versions = strtoll(text, NULL, 10);
    return FTH_OK;
}

static fth_status check_options(const fth_parameters_options *options)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(options->lease_s > 0, FTH_INVALID, "--lease must be greater than 0");
    FTH_REQUIRE(options->train->optimizer.accumulate <= 1, FTH_INVALID,
                "gradients are accumulated by workers, not by the server");
    FTH_REQUIRE(options->train->precision == FTH_PRECISION_F32, FTH_INVALID, "the server's parameters are f32");

out:
    return status;
}

static void set_defaults(fth_parameters_options *options, const fth_layout *layout)
{
    if (options->gather_s <= 0)
        options->gather_s = DEFAULT_GATHER_S;
    if (options->max_snapshots <= 0)
        options->max_snapshots = DEFAULT_SNAPSHOTS;
    if (options->max_memory_bytes == 0)
        options->max_memory_bytes = UINT64_C(1) << 30;
    if (options->max_log_bytes == 0) {
        uint64_t gradients = 16 * layout->packed_floats * sizeof(float), least = 256 << 20;
        options->max_log_bytes = gradients > least ? gradients : least;
    }
}

/* ---- putting it together ---- */

/* Adds the listed shards; brought shards are added when workers bring them. */
static fth_status open_shards(fth_parameters *server)
{
    fth_status status = FTH_OK;
    const fth_parameters_options *options = &server->options;
    const fth_train_options *train = options->train;
    bool by_epochs = options->ends_by_epochs && train->limits.steps == 0;

    FTH_TRY(fth_shards_create((uint64_t)train->seed, &server->parts.shards));
    if (server->parts.listing)
        FTH_TRY(
            fth_shard_listing_add(server->parts.listing, by_epochs ? train->limits.epochs : 0, server->parts.shards));

out:
    return status;
}

static fth_status open_record(fth_parameters *server)
{
    const fth_parameters_options *options = &server->options;
    json_t *description = fth_served_model_describe(server->parts.model, options);
    json_t *machine = fth_service_describe_machine(server->parts.model->device);
    fth_status status = fth_served_record_open(server->parts.model->train, options->checkpoints, description, machine,
                                               &server->parts.record);
    json_decref(description);
    json_decref(machine);
    return status;
}

/* Creates the parts that hold state. */
static fth_status open_state(fth_parameters *server)
{
    fth_status status = FTH_OK;
    const fth_parameters_options *options = &server->options;
    const fth_served_model *model = server->parts.model;

    FTH_TRY(fth_served_position_create(&(fth_served_length){.steps = options->train->limits.steps,
                                                            .samples = model->end_samples,
                                                            .epoch_samples = model->epoch_samples,
                                                            .listed = model->shards != NULL},
                                       &server->parts.position));
    FTH_TRY(open_shards(server));
    FTH_TRY(fth_metrics_create(server->parts.position, &server->parts.metrics));
    FTH_TRY(open_record(server));
    FTH_TRY(fth_served_usage_create(server->parts.record, &server->parts.usage));
    FTH_TRY(fth_access_remember(server->parts.access, fth_served_record_state_folder(server->parts.record)));
    FTH_TRY(fth_workers_create(&(fth_workers_options){.lease_s = options->lease_s,
                                                      .function_lease_s = options->function_lease_s,
                                                      .keyed = fth_access_keyed(server->parts.access)},
                               &server->parts.workers));
    FTH_TRY(
        fth_health_create(server->parts.position, server->parts.record, server->parts.workers, &server->parts.health));
    FTH_TRY(fth_updates_create(&server->parts, &server->parts.updates));
    FTH_TRY(fth_journal_create(&server->parts, &server->parts.journal));
    FTH_TRY(fth_served_saver_create(&server->parts, &server->parts.saver));

out:
    return status;
}

static fth_status restore_state(fth_parameters *server)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_served_saver_restore(server->parts.saver));
    FTH_TRY(fth_shard_listing_check(server->parts.listing, server->parts.shards));
    int64_t restored = fth_served_position_version(server->parts.position);
    FTH_TRY(fth_updates_begin(server->parts.updates));
    FTH_TRY(fth_journal_open(server->parts.journal));
    int64_t replayed = fth_served_position_version(server->parts.position) - restored;
    if (server->options.durability == FTH_DURABILITY_CHECKPOINT) {
        /* An earlier process kept a log and this one does not: a checkpoint saves what was
         * replayed. */
        fth_journal_close(server->parts.journal);
        FTH_TRY(fth_served_saver_save_now(server->parts.saver));
    }
    if (replayed > 0)
        fth_log_info("the checkpoint is of version %lld; replayed %s from the log", (long long)restored,
                     FTH_COUNTED(replayed, "later update"));

out:
    return status;
}

static void report_start(fth_parameters *server)
{
    const fth_train_options *train = server->parts.model->train;
    bool resumed = fth_served_record_resumed(server->parts.record);
    json_t *event = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:f}", "id", fth_served_record_id(server->parts.record),
                              "folder", fth_served_record_folder(server->parts.record), "model", train->model, "data",
                              server->parts.model->dataset ? train->data.address
                              : server->parts.listing      ? fth_shard_listing_address(server->parts.listing)
                                                           : "the workers'",
                              "device", server->parts.model->device->description, "parameters",
                              (json_int_t)fth_graph_trainable_count(fth_engine_graph(server->parts.model->engine)),
                              "process_s", fth_clock_process_seconds());
    if (resumed)
        json_object_update_new(event, fth_served_position_describe(server->parts.position));
    fth_served_record_append(server->parts.record, resumed ? "resume" : "start", event);
}

static fth_status start_applying(fth_parameters *server)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_intake_create(&server->parts, &server->parts.intake));
    FTH_TRY(fth_parameter_snapshots_create(&server->parts, &server->parts.snapshots));
    FTH_TRY(fth_shard_leases_create(&server->parts, &server->parts.leases));
    FTH_TRY(fth_applier_start(&server->parts, &server->applier));

out:
    return status;
}

static fth_status start_serving(fth_parameters *server)
{
    fth_status status = FTH_OK;
    const fth_parameters_options *options = &server->options;

    if (server->parts.model->dataset && options->validate_every > 0)
        FTH_TRY(fth_served_validator_start(&server->parts, &server->parts.validator));
    FTH_TRY(fth_parameter_service_start(&server->parts, &server->service));

out:
    return status;
}

/* Lets every thread finish its work. Parts may be missing if the start failed. */
static void stop_threads(fth_parameters *server)
{
    if (server->parts.health)
        fth_health_set_stopping(server->parts.health);
    if (server->parts.validator)
        fth_served_validator_stop(server->parts.validator);
    if (server->parts.snapshots)
        fth_parameter_snapshots_stop(server->parts.snapshots);
    if (server->parts.intake)
        fth_intake_close(server->parts.intake);
    fth_applier_join(server->applier);
    fth_parameter_service_stop(server->service, STOP_S);
    server->service = NULL;
    if (server->parts.validator)
        fth_served_validator_join(server->parts.validator);
    if (server->parts.saver)
        fth_served_saver_finish(server->parts.saver);
}

/* After stop_threads(). Each part is freed before the parts that it uses. */
static void free_server(fth_parameters *server)
{
    fth_served_validator_free(server->parts.validator);
    fth_applier_free(server->applier);
    fth_shard_leases_free(server->parts.leases);
    fth_parameter_snapshots_free(server->parts.snapshots);
    fth_intake_free(server->parts.intake);
    fth_worker_totals_free(server->parts.totals);
    fth_served_saver_free(server->parts.saver);
    fth_journal_free(server->parts.journal);
    fth_updates_free(server->parts.updates);
    fth_health_free(server->parts.health);
    fth_workers_free(server->parts.workers);
    fth_shards_free(server->parts.shards);
    fth_served_usage_free(server->parts.usage);
    fth_served_record_free(server->parts.record);
    fth_metrics_free(server->parts.metrics);
    fth_served_position_free(server->parts.position);
    fth_served_model_free(server->parts.model);
    fth_shard_listing_free(server->parts.listing);
    fth_access_free(server->parts.access);
    fth_store_free(server->parts.store);
    free(server);
}

fth_status fth_parameters_start(const fth_parameters_options *options, fth_parameters **result)
{
    fth_status status = FTH_OK;
    fth_parameters *server = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *server, &server));
    server->options = *options;
    server->parts.options = &server->options;
    if (options->checkpoints && fth_store_is_url(options->checkpoints)) {
        FTH_TRY(fth_store_open(options->checkpoints, NULL, &server->parts.store));
        server->options.checkpoints = NULL; /* local checkpoints are kept with the run */
    }
    FTH_TRY(fth_access_create(&(fth_access_options){.address = options->address,
                                                    .keys = options->keys,
                                                    .host_names = options->host_names,
                                                    .certificate_pem = options->certificate_pem,
                                                    .max_requests_per_s = options->max_requests_per_s,
                                                    .open = options->open,
                                                    .port = options->port,
                                                    .open_reads = options->open_reads},
                              &server->parts.access));
    FTH_TRY(check_options(options));
    if (options->shards)
        FTH_TRY(fth_shard_listing_open(
            options->shards, options->shard_url_expiry_s > 0 ? options->shard_url_expiry_s : DEFAULT_URL_EXPIRY_S,
            &server->parts.listing));
    const fth_shard_manifest *shards = server->parts.listing ? fth_shard_listing_manifest(server->parts.listing) : NULL;
    FTH_TRY(fth_served_model_open(&server->options, shards, &server->parts.model));
    set_defaults(&server->options, server->parts.model->layout);
    FTH_TRY(open_state(server));
    FTH_TRY(restore_state(server));
    FTH_TRY(fth_served_model_write_files(server->parts.model, fth_served_record_folder(server->parts.record)));
    fth_served_position_start_clock(server->parts.position);
    FTH_TRY(fth_worker_totals_create(fth_clock_seconds(), &server->parts.totals));
    report_start(server);
    FTH_TRY(start_applying(server));
    FTH_TRY(start_serving(server));
    *result = server;
    server = NULL;

out:
    if (server) {
        stop_threads(server);
        free_server(server);
    }
    return status;
}

/* ---- while it runs ---- */

int fth_parameters_port(const fth_parameters *server)
{
    return fth_parameter_service_port(server->service);
}

fth_parameters_facts fth_parameters_get_facts(const fth_parameters *server)
{
    const fth_served_model *model = server->parts.model;
    return (fth_parameters_facts){.model = model->train->model,
                                  .run_folder = fth_served_record_folder(server->parts.record),
                                  .validation_split = fth_validation_split_names[model->train->data.validation_split],
                                  .normalization = &model->input.normalization,
                                  .takes_text = model->input.longest > 0,
                                  .epoch_samples = model->epoch_samples};
}

int64_t fth_parameters_version(const fth_parameters *server)
{
    return fth_served_position_version(server->parts.position);
}

double fth_parameters_progress(const fth_parameters *server)
{
    return fth_served_position_progress(server->parts.position);
}

/* Estimates the time left at this pace; NAN if nothing ends training, or the pace is unknown. */
static double seconds_left(const fth_parameters *server, int64_t samples, double pace)
{
    const fth_train_options *train = server->options.train;
    int64_t epoch_samples = server->parts.model->epoch_samples;
    double version = (double)fth_parameters_version(server), left = NAN;
    if (train->limits.steps > 0 && version > 0)
        left = ((double)train->limits.steps - version) * (double)samples / version;
    else if (train->limits.steps == 0 && train->limits.epochs > 0 && epoch_samples > 0)
        left = (double)(train->limits.epochs * epoch_samples - samples);
    return left < 0 ? 0 : left / pace;
}

void fth_parameters_get_progress(fth_parameters *server, fth_progress *progress)
{
    const fth_train_options *train = server->options.train;
    int64_t samples = fth_served_position_samples(server->parts.position),
            epoch_samples = server->parts.model->epoch_samples;
    fth_tally recent;
    double pace = NAN;
    fth_worker_totals_get_recent(server->parts.totals, &recent, &pace);
    *progress = (fth_progress){.epochs = train->limits.epochs,
                               .step = fth_parameters_version(server),
                               .steps = train->limits.steps,
                               .loss = fth_tally_loss(&recent),
                               .accuracy = fth_tally_accuracy(&recent),
                               .samples_per_s = fth_tally_samples_per_s(&recent),
                               .elapsed_s = fth_served_position_elapsed_s(server->parts.position),
                               .left_s = seconds_left(server, samples, pace)};
    progress->epoch = epoch_samples > 0 ? samples / epoch_samples + 1 : 1;
    if (train->limits.epochs > 0 && progress->epoch > train->limits.epochs)
        progress->epoch = train->limits.epochs;
}

int fth_parameters_workers(fth_parameters *server)
{
    return fth_workers_live(server->parts.workers);
}

void fth_parameters_let_go(fth_parameters *server, const char *name)
{
    if (fth_workers_end_lease(server->parts.workers, name))
        fth_intake_wake(server->parts.intake); /* the applying thread then removes the worker */
}

fth_status fth_parameters_wait(fth_parameters *server, double seconds)
{
    return fth_health_wait_for_failure(server->parts.health, seconds);
}

/* ---- the end ---- */

/* Why a finished training ended. Local workers count their own epochs and leave when they are done.
 * */
static const char *reason_to_end(const fth_parameters *server)
{
    const fth_train_options *train = server->options.train;
    if (train->limits.steps > 0)
        return "steps";
    bool reached = server->parts.model->end_samples > 0 && fth_parameters_progress(server) >= 1;
    bool epochs_alone = train->limits.epochs > 0 && train->limits.for_s <= 0 && !*train->limits.until;
    return reached || epochs_alone ? "epochs" : "workers";
}

/* Adds to the "end" event what it has beyond the position. */
static void describe_end(const fth_parameters *server, json_t *event)
{
    double elapsed_s = fth_served_position_elapsed_s(server->parts.position);
    double samples = (double)fth_served_position_samples(server->parts.position);
    int64_t epoch_samples = server->parts.model->epoch_samples;
    fth_validation last;

    json_object_set_new(event, "steps", json_integer(fth_parameters_version(server)));
    json_object_set_new(event, "seconds", json_real(elapsed_s));
    if (elapsed_s > 0)
        json_object_set_new(event, "samples_per_s", json_real(samples / elapsed_s));
    json_object_set_new(event, "reason", json_string(reason_to_end(server)));
    if (epoch_samples > 0)
        json_object_set_new(event, "epochs", json_real(samples / (double)epoch_samples));
    if (fth_served_validator_get(server->parts.validator, &last)) {
        json_object_set_new(event, "accuracy", json_real(last.accuracy));
        json_object_set_new(event, "loss", json_real(last.loss));
    }
}

/* `warning`: why the last state could not be saved; or NULL. */
static void report_end(fth_parameters *server, bool finished, const char *warning)
{
    json_t *event = fth_served_position_describe(server->parts.position);
    fth_status failure = fth_health_get_failure(server->parts.health); /* with its message */
    const char *name = failure != FTH_OK ? "error" : finished ? "end" : "interrupted";
    if (failure != FTH_OK) {
        json_object_set_new(event, "status", json_string(fth_status_name(failure)));
        json_object_set_new(event, "message", json_string(fth_error_message()));
    } else if (finished) {
        describe_end(server, event);
    }
    if (failure == FTH_OK && finished && !warning) {
        char *model = fth_path_join(fth_served_record_folder(server->parts.record), "last.safetensors");
        json_object_set_new(event, "model", json_string(model));
        free(model);
    }
    if (warning)
        json_object_set_new(event, "warning", json_string(warning));
    fth_served_record_append(server->parts.record, name, event);
    fth_served_record_sync(server->parts.record);
}

/* Saves the last checkpoint and the model file, unless the server has failed. */
static fth_status save_last(fth_parameters *server, bool failed)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_journal_sync(server->parts.journal));
    if (failed)
        goto out;
    FTH_TRY(fth_served_saver_save_now(server->parts.saver));
    FTH_TRY(fth_served_model_save_last(server->parts.model, fth_parameters_version(server),
                                       fth_served_record_folder(server->parts.record)));

out:
    return status;
}

fth_status fth_parameters_stop(fth_parameters *server, bool finished)
{
    char *warning = NULL;
    if (!server)
        return FTH_OK;
    stop_threads(server);
    fth_applier_report_last(server->applier);
    bool failed = fth_health_get_failure(server->parts.health) != FTH_OK;
    if (finished && !failed)
        fth_served_validator_run_last(server->parts.validator);
    fth_status status = save_last(server, failed);
    if (status != FTH_OK)
        warning = fth_format("%s", fth_error_message());
    report_end(server, finished, warning);
    if (status == FTH_OK)
        status = fth_health_get_failure(server->parts.health);
    else
        fth_set_error("%s", warning ? warning : "the last state could not be saved");
    free(warning);
    free_server(server);
    return status;
}
