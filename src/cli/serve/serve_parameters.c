/* farthing serve parameters: the parameter server (src/parameters). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/serve/serve_cli.h"
#include "model/exported_model.h"
#include "parameters/parameters.h"
#include "train/setup/usual.h"

/* One member for each flag. */
typedef struct serve_options {
    fth_train_options train; /* first: its rows' offsets are in it. Only some of its options are read here. */
    fth_serving_flags serving;
    char *data_shape, *consistency, *durability, *checkpoints, *shards;
    int64_t classes, validate_every, epoch_samples, max_log_mb, max_memory_mb, max_snapshots;
    double lease_s, gather_s, clip_pushes, shard_url_expiry_s;
    bool open_reads, stay, json;
} serve_options;

static fth_status check_shape(const char *text)
{
    int channels = 0, height = 0, width = 0, length = 0;
    if (!*text || (sscanf(text, "%5dx%5dx%5d%n", &channels, &height, &width, &length) == 3 && !text[length] &&
                   channels > 0 && height > 0 && width > 0))
        return FTH_OK;
    return fth_fail(FTH_INVALID, "expected channels x height x width: 1x28x28");
}

/* Functions are killed often, and renew their lease three times in this. */
static const double FUNCTION_LEASE_S = 5;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, serve_options, member)
static const fth_option own_rows[] = {
    {ROW("data-shape", TEXT, data_shape), .argument = "CxHxW", .check = check_shape,
     .help = "shape of the workers' images, 1x28x28; not with --data, which determines it", .group = "Serving"},
    {ROW("classes", INTEGER, classes), .fallback = "0", .argument = "N", .maximum = 1e6,
     .help = "how many classes the workers' data has; 0: as the model was published"},
    {ROW("shards", TEXT, shards), .address = true, .argument = "PLACE",
     .help =
         "deal out these shards to workers, every sample once an epoch: a folder or bucket that `farthing data shard` "
         "has written; they say what the images are like, so that --data is needed for validation only"},
    {ROW("shard-url-expiry", DURATION, shard_url_expiry_s), .fallback = "1h", .argument = "TIME",
     .help = "how long the links to a bucket's shards that workers are given are good for"},
    FTH_SERVING_ROWS(offsetof(serve_options, serving), "29500"),
    FTH_SERVING_OPEN_ROW(offsetof(serve_options, serving)),
    {ROW("consistency", CHOICE, consistency), .fallback = "async", .argument = "HOW", .list = fth_consistency_choice,
     .check = fth_consistency_check, .help = "which gradients make a step"},
    {ROW("clip-pushes", NUMBER, clip_pushes), .fallback = "0", .argument = "NORM", .maximum = 1e30,
     .help =
         "scale down each gradient of a larger norm as it arrives, before gradients are averaged and before --clip; "
         "0: take them as they are"},
    {ROW("lease", DURATION, lease_s), .fallback = "30s", .argument = "TIME",
     .help = "a worker that is not heard of for this long is no longer waited for, and others get its shard; if this "
             "is not given, 5s where it runs in a function"},
    {ROW("gather", DURATION, gather_s), .fallback = "10m", .argument = "TIME",
     .help =
         "sync:N waits this long, from the first gradient, for N workers to come; then it begins with those there are"},
    {ROW("stay", SWITCH, stay), .help = "keep serving after --steps or --epochs are reached"},
    {ROW("open-reads", SWITCH, open_reads),
     .help = "parameters, version and accuracy for everybody, without a signature"},
    {ROW("checkpoints", TEXT, checkpoints), .address = true, .argument = "PLACE",
     .help = "folder of checkpoints and log, to continue from if it has any; a URL: checkpoints are also copied there"},
    {ROW("durability", CHOICE, durability), .fallback = "kill", .argument = "WHAT", .list = fth_durability_choice,
     .help = "what acknowledged gradients survive"},
    {ROW("max-log-mb", INTEGER, max_log_mb), .fallback = "0", .argument = "MB", .minimum = 0, .maximum = 1e9,
     .help = "a checkpoint is made when the log has grown to this; 0: 256, or 16 gradients where that is more"},
    {ROW("max-memory-mb", INTEGER, max_memory_mb), .fallback = "1024", .argument = "MB", .minimum = 1, .maximum = 1e9,
     .help = "of gradients received and waiting; beyond it workers are asked to come again"},
    {ROW("max-snapshots", INTEGER, max_snapshots), .fallback = "4", .argument = "N", .minimum = 2, .maximum = 1000,
     .help = "versions of the parameters held for slow readers"},
    {ROW("validate-every", INTEGER, validate_every), .fallback = "500", .argument = "N", .minimum = 1, .maximum = 1e12,
     .help = "versions between validations, where --data is given"},
    {ROW("epoch-samples", INTEGER, epoch_samples), .fallback = "0", .argument = "N", .maximum = 1e15,
     .help = "samples in an epoch, for schedules and the record; 0: of --data"},
    {ROW("json", SWITCH, json), .help = "say where it serves as one JSON object"},
};

/* Its own rows, then those of `farthing train` that mean the same here. */
static const fth_option_table *make_table(void)
{
    static fth_option rows[FTH_MAX_OPTIONS];
    static fth_option_table table;
    if (table.options) /* made before; the program reads its flags in one thread */
        return &table;
    size_t count = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(own_rows); i++)
        rows[count++] = own_rows[i];
    for (size_t i = 0; i < fth_train_option_table.count; i++) {
        if (!fth_options_is_for(&fth_train_option_table.options[i], FTH_FOR_SERVE))
            continue;
        rows[count] = fth_train_option_table.options[i];
        rows[count].group =
            count == FTH_COUNT_OF(own_rows) ? "The model and its optimizer, as in `farthing train`" : NULL;
        count++;
    }
    table = (fth_option_table){.options = rows, .count = count, .struct_size = sizeof(serve_options)};
    return &table;
}

/* The trainer's options: defaults, and those that this command shares with train. */
static fth_status complete(const serve_options *asked, fth_train_options *train)
{
    fth_status status = FTH_OK;
    const fth_option_table *table = &fth_train_option_table;
    const fth_option_table shared = fth_options_for(table, (fth_option_view){.command = FTH_FOR_SERVE});
    json_t *json = fth_options_to_json(&shared, &asked->train, false);

    FTH_REQUIRE(json, FTH_NO_MEMORY, "no memory for the options");
    FTH_TRY(fth_options_set_defaults(table, train));
    FTH_TRY(fth_options_from_json(table, train, json, "the flags"));
    FTH_TRY(fth_train_options_resolve(train));

out:
    json_decref(json);
    return status;
}

static fth_status set_model_facts(const fth_option_table *table, const serve_options *asked,
                                  fth_parameters_options *options)
{
    fth_status status = FTH_OK;
    const fth_model *model = NULL;
    fth_dataset_info shape = {0};
    fth_usual usual;
    options->has_data = fth_options_is_set(table, asked, "data");
    FTH_REQUIRE(!*asked->shards || (!*asked->data_shape && asked->classes == 0 && asked->epoch_samples == 0),
                FTH_INVALID,
                "--shards say what their images are like and how many there are; leave --data-shape, --classes and "
                "--epoch-samples out");
    FTH_REQUIRE(!*asked->shards || options->has_data || !fth_options_is_set(table, asked, "image-size"), FTH_INVALID,
                "--shards say how large their images are; leave --image-size out");
    FTH_REQUIRE(!options->has_data || (!*asked->data_shape && asked->classes == 0), FTH_INVALID,
                "--data says what its images are like; leave --data-shape and --classes out");
    if (fth_usual_needs_data(options->train) && (options->has_data || *asked->shards))
        return FTH_OK; /* which say it all */
    FTH_REQUIRE(!fth_usual_needs_data(options->train) || *asked->data_shape, FTH_INVALID,
                "nothing says which network to serve: give --model, or --data, --shards or --data-shape to choose it "
                "by");
    if (*asked->data_shape)
        sscanf(asked->data_shape, "%5dx%5dx%5d", &shape.channels, &shape.height, &shape.width);
    FTH_TRY(fth_usual_find(options->train, &shape, &usual));
    FTH_TRY(options->train->own.network || fth_exported_model_is_name(usual.model)
                ? fth_train_options_find_model(options->train, &model)
                : fth_model_find(usual.model, &model));
    FTH_REQUIRE(!model->build_text || options->has_data || *asked->shards, FTH_INVALID,
                "%s is a model for text: give --data, which says what tokenizer, classes and task it has", model->name);
    options->channels = *asked->data_shape ? shape.channels : model->channels;
    options->height = *asked->data_shape ? shape.height : model->height;
    options->width = *asked->data_shape ? shape.width : model->width;
    options->classes = asked->classes > 0 ? (int)asked->classes : model->classes;

out:
    return status;
}

static void tell_where(const serve_options *asked, const fth_parameters *server, const fth_parameters_options *options,
                       const char *fingerprint)
{
    const fth_parameters_facts served = fth_parameters_get_facts(server);
    char url[FTH_SERVING_URL];
    fth_serving_url(&asked->serving, options->certificate_pem != NULL, fth_parameters_port(server), url);
    if (asked->json) {
        json_t *json =
            json_pack("{s:s, s:s, s:i, s:s, s:s, s:I, s:s}", "event", "serving", "url", url, "port",
                      fth_parameters_port(server), "run", served.run_folder, "model", served.model, "version",
                      (json_int_t)fth_parameters_version(server), "consistency", asked->consistency);
        if (*fingerprint)
            json_object_set_new(json, "fingerprint", json_string(fingerprint));
        fth_cli_print_json_new(json);
        return;
    }
    fth_print_line(stdout, "serving %s, version %lld, %s, on %s", served.model,
                   (long long)fth_parameters_version(server), asked->consistency, url);
    fth_print_line(stdout, "run %s", served.run_folder);
    if (*fingerprint)
        printf("the key's fingerprint, to be pinned: %s\n", fingerprint);
    fth_cli_flush();
}

/* Without a name or a place, the same command would start another run. */
static char *describe_going_on(const serve_options *asked, const fth_train_options *train, const fth_parameters *server)
{
    const char *folder = fth_parameters_get_facts(server).run_folder, *slash = strrchr(folder, '/');
    if (*train->saving.name || *asked->checkpoints)
        return fth_format("the same command continues the run");
    return fth_format("the same command with --name %s continues the run", slash ? slash + 1 : folder);
}

/* Waits until a stop is requested, the training is done and the workers have left, or the server
 * fails. An epoch may end slightly short when all workers have left, as gradients refused for being
 * late are not replaced. With shards nothing is missing: the next worker continues with the
 * rest. */
static fth_status wait_for_end(fth_parameters *server, const serve_options *asked, const fth_train_options *train,
                               const fth_stop *stop, bool *finished)
{
    const double look_every_s = 0.1, goodbye_s = 10, nearly = 0.95;
    double reached_s = 0;
    fth_status status = FTH_OK;
    while (status == FTH_OK && !stop->asked && !*finished) {
        status = fth_parameters_wait(server, look_every_s);
        double progress = fth_parameters_progress(server), now = fth_clock_seconds();
        bool trained = progress >= 1, alone = fth_parameters_workers(server) == 0;
        if (!trained && !(alone && train->limits.steps == 0 && !*asked->shards && progress >= nearly))
            reached_s = 0;
        else if (reached_s == 0)
            reached_s = now;
        *finished = !asked->stay && reached_s > 0 && ((trained && alone) || now - reached_s > goodbye_s);
    }
    *finished = *finished || fth_parameters_progress(server) >= 1;
    return status;
}

static fth_status serve(const serve_options *asked, const fth_stop *stop, bool *finished)
{
    const fth_option_table *table = make_table();
    fth_status status = FTH_OK;
    fth_train_options train = {0};
    fth_parameters_options options = {.train = &train,
                                      .validate_every = asked->validate_every,
                                      .epoch_samples = asked->epoch_samples,
                                      .shards = *asked->shards ? asked->shards : NULL,
                                      .shard_url_expiry_s = asked->shard_url_expiry_s,
                                      .clip_pushes = asked->clip_pushes,
                                      .lease_s = asked->lease_s,
                                      .function_lease_s =
                                          fth_options_is_set(table, asked, "lease") ? 0 : FUNCTION_LEASE_S,
                                      .gather_s = asked->gather_s,
                                      .ends_by_epochs = fth_options_is_set(table, asked, "epochs"),
                                      .checkpoints = *asked->checkpoints ? asked->checkpoints : NULL,
                                      .max_log_bytes = (uint64_t)asked->max_log_mb << 20,
                                      .address = asked->serving.address,
                                      .host_names = asked->serving.host_names,
                                      .port = (int)asked->serving.port,
                                      .open_reads = asked->open_reads,
                                      .max_memory_bytes = (uint64_t)asked->max_memory_mb << 20,
                                      .max_snapshots = (int)asked->max_snapshots,
                                      .max_requests_per_s = asked->serving.max_rate};
    fth_parameters *server = NULL;
    fth_serving_secrets secrets = {0};
    char *tls = NULL, *going_on = NULL;

    FTH_TRY(complete(asked, &train));
    FTH_TRY(fth_consistency_parse(asked->consistency, &options.consistency));
    FTH_TRY(fth_parameters_find_network(&train, options.checkpoints));
    FTH_TRY(set_model_facts(table, asked, &options));
    FTH_TRY(fth_parameters_set_interval(train.saving.every, &options));
    FTH_TRY(fth_durability_find(asked->durability, &options.durability));
    tls = fth_path_join(train.saving.runs, "tls");
    FTH_TRY(fth_serving_read(&asked->serving, tls, &secrets));
    options.keys = secrets.keys;
    options.open = asked->serving.open;
    options.certificate_pem = secrets.certificate_pem;
    options.key_pem = secrets.key_pem;
    FTH_TRY(fth_parameters_start(&options, &server));
    tell_where(asked, server, &options, secrets.fingerprint);
    fth_status outcome = wait_for_end(server, asked, &train, stop, finished);
    going_on = describe_going_on(asked, &train, server);
    fth_status stopped = fth_parameters_stop(server, *finished); /* frees it */
    status = outcome != FTH_OK ? outcome : stopped;
    if (status == FTH_OK && !*finished)
        fth_log_info("stopped and saved; %s", going_on ? going_on : "");

out:
    fth_serving_release(&secrets);
    free(tls);
    free(going_on);
    fth_options_release(&fth_train_option_table, &train);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    bool finished = false;
    (void)command;
    if (serve(options, arguments->stop, &finished) != FTH_OK)
        return fth_cli_fail();
    return finished ? FTH_EXIT_OK : FTH_EXIT_INTERRUPTED;
}

const fth_command fth_serve_parameters = {
    .name = "serve parameters",
    .arguments = "[--flag value ...]",
    .summary = "own a model's parameters and optimizer; workers pull and push over HTTP",
    .details = "Workers: `farthing train --strategy parameter-server --server URL`, or any HTTP client; see\n"
               "docs/parameter-server.md. The same command with the same --name or --checkpoints continues where a\n"
               "server stopped or was killed.\n",
    .examples =
        (const fth_example[]){
            {"farthing serve parameters --model mnist-cnn --data digits --epochs 5",
             "on this machine, with validation"},
            {"farthing serve parameters --model mnist-cnn --shards s3://bucket/mnist --epochs 5",
             "deals out shards to functions"},
            {"farthing serve parameters --address 0.0.0.0 --tls --keys keys.txt --name shared", "for other machines"},
            {0}},
    .make_table = make_table,
    .flags_only = true,
    .stop_words = FTH_SAVING_WORDS,
    .run = run,
};
