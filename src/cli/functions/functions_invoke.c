/* farthing functions invoke: keeps N invocations of a function running until their work is done
 * (src/providers/fleet.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/functions/functions_cli.h"

enum { MAX_COUNT = 1000, MAX_URL_FILE_BYTES = 4 << 20, RUN_BYTES = 24 };

typedef struct invoke_options {
    fth_option_bits set;
    fth_provider_flags platform;
    char *server, *server_pin, *data_urls, *device, *compress, *parameters, *run, *worker;
    int64_t count, epochs, batch, update_interval, concurrency, max_failures;
    double limit_s, for_s;
    bool json;
} invoke_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, invoke_options, member)
static const fth_option rows[] = {
    {ROW("count", INTEGER, count), .letter = 'n', .fallback = "1", .argument = "N", .minimum = 1, .maximum = MAX_COUNT,
     .help = "number of functions to keep running; with --data-url, one for each shard", .group = "Invoking"},
    {ROW("concurrency", INTEGER, concurrency), .fallback = "0", .argument = "N", .maximum = MAX_COUNT,
     .help = "maximum number at once; 0: all"},
    {ROW("max-failures", INTEGER, max_failures), .fallback = "5", .argument = "N", .minimum = 1, .maximum = 1000,
     .help = "consecutive failures after which a function is given up"},
    {ROW("limit", DURATION, limit_s), .argument = "TIME",
     .help =
         "the function's time limit, after which a lost invocation is tried again; else as the platform reports it"},
    {ROW("for", DURATION, for_s), .argument = "TIME", .help = "give up after this time in total"},
    {ROW("server", TEXT, server), .check = fth_address_check_plain, .argument = "URL",
     .help = "address of the parameter server as seen by the functions", .group = "Training"},
    {ROW("server-pin", TEXT, server_pin), .argument = "sha256//...",
     .help = "fingerprint of the server's key, as it printed it; functions trust only that key"},
    {ROW("epochs", INTEGER, epochs), .argument = "N", .minimum = 1, .maximum = 1e9,
     .help = "epochs over a shard of --data-url; the server sets those of its own shards (default: 1)"},
    {ROW("batch", INTEGER, batch), .alias = "batch-size", .argument = "N", .minimum = 1, .maximum = 65536,
     .help = "samples per batch (default: 32)"},
    {ROW("update-interval", INTEGER, update_interval), .argument = "N", .minimum = 1, .maximum = 1e9,
     .help = "batches whose gradients are sent together (default: 1)"},
    {ROW("data-url", TEXT, data_urls), .repeats = true, .lines = true, .argument = "URL[#FIRST:END]|@FILE",
     .help = "shard for one function, or its samples FIRST to END-1; may be repeated, or @FILE with one on each line; "
             "else the server deals out shards"},
    {ROW("device", TEXT, device), .argument = "NAME", .help = "cpu"},
    {ROW("compress", TEXT, compress), .argument = "HOW",
     .help = "compression of gradients: none, f16, bf16, topk:SHARE"},
    {ROW("run", TEXT, run), .argument = "ID",
     .help = "run id for shards of --data-url: the same id continues where they stopped; else generated"},
    {ROW("worker", TEXT, worker), .argument = "NAME",
     .help = "functions become the workers NAME-1, NAME-2, ...; else NAME is generated"},
    {ROW("param", TEXT, parameters), .repeats = true, .lines = true, .argument = "NAME=VALUE",
     .help = "another parameter, as JSON or text. May be repeated"},
    FTH_PROVIDER_ROWS(offsetof(invoke_options, platform)),
    {ROW("json", SWITCH, json), .help = "print events, one JSON object per line"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, invoke_options);

/* ---- parameters ---- */

/* Adds the lines of a text that are not empty to an array of URLs. */
static fth_status add_urls(const char *text, json_t *urls)
{
    fth_status status = FTH_OK;
    char *copy = strdup(text), *rest = copy, *line, *file = NULL;
    FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for --data-url");
    while (status == FTH_OK && (line = strsep(&rest, "\n"))) {
        size_t length = strcspn(line, "\r"), size_bytes;
        line[length] = '\0';
        if (*line == '@') {
            FTH_TRY(fth_file_read_all(line + 1, MAX_URL_FILE_BYTES, &file, &size_bytes));
            FTH_REQUIRE(*file != '@' && !strstr(file, "\n@"), FTH_INVALID, "%s: expected one URL on each line",
                        line + 1);
            status = add_urls(file, urls);
            free(file);
            file = NULL;
        } else if (*line && json_array_append_new(urls, json_string(line)) != 0) {
            status = fth_fail(FTH_INVALID, "--data-url: not UTF-8");
        }
    }

out:
    free(file);
    free(copy);
    return status;
}

/* Sets "dataset_url" and, of "URL#0:10000", "range". */
static fth_status set_shard(json_t *parameters, const char *given)
{
    const char *mark = strchr(given, '#'), *digits = "0123456789", *range = mark ? mark + 1 : "";
    const size_t first = strspn(range, digits), end = range[first] == ':' ? strspn(range + first + 1, digits) : 0;
    if (mark && (first + end == 0 || range[first] != ':' || range[first + 1 + end]))
        return fth_fail(FTH_INVALID, "--data-url %s: expected a range of samples after #, such as #0:10000", given);
    json_object_set_new(parameters, "dataset_url", json_stringn(given, mark ? (size_t)(mark - given) : strlen(given)));
    if (mark)
        json_object_set_new(parameters, "range", json_string(range));
    return FTH_OK;
}

static void set_text(json_t *parameters, const char *key, const char *text)
{
    if (*text)
        json_object_set_new(parameters, key, fth_cli_json_text(text));
}

static void set_count(json_t *parameters, const char *key, int64_t count)
{
    if (count > 0)
        json_object_set_new(parameters, key, json_integer((json_int_t)count));
}

static void make_up_name(char name[RUN_BYTES])
{
    uint8_t bytes[6];
    uint64_t seed = (uint64_t)(fth_clock_wall_seconds() * 1e6);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(seed >> (8 * i));
    fth_hex_encode(bytes, sizeof bytes, name);
}

/* Parameters that all invocations share. */
static fth_status make_common(const invoke_options *asked, const char *run, json_t *parameters)
{
    set_text(parameters, "apihost", asked->server);
    set_text(parameters, "server_pin", asked->server_pin);
    set_text(parameters, "device", asked->device);
    set_text(parameters, "compress", asked->compress);
    set_count(parameters, "epoch_n", asked->epochs);
    set_count(parameters, "batch_sz_train", asked->batch);
    set_count(parameters, "update_intv", asked->update_interval);
    if (*asked->server)
        json_object_set_new(parameters, "run", fth_cli_json_text(run));
    return fth_cli_read_pairs("--param", asked->parameters, FTH_PAIR_JSON, parameters);
}

/* `count` objects; free each and the array. */
static fth_status make_parameters(const invoke_options *asked, const json_t *urls, int count, json_t ***result)
{
    fth_status status = FTH_OK;
    json_t *common = json_object(), **made = NULL;
    char id[RUN_BYTES];

    *result = NULL;
    make_up_name(id);
    FTH_TRY(make_common(asked, *asked->run ? asked->run : id, common));
    FTH_TRY(fth_allocate((size_t)count, sizeof(json_t *), &made));
    for (int i = 0; i < count; i++) {
        made[i] = json_deep_copy(common);
        if (json_array_size(urls) > 0)
            FTH_TRY(set_shard(made[i], json_string_value(json_array_get(urls, (size_t)i))));
        if (*asked->server && !json_object_get(common, "worker"))
            json_object_set_new(made[i], "worker", json_sprintf("%s-%d", *asked->worker ? asked->worker : id, i + 1));
    }
    *result = made;
    made = NULL;

out:
    for (int i = 0; made && i < count; i++)
        json_decref(made[i]);
    free(made);
    json_decref(common);
    return status;
}

/* ---- running ---- */

/* The time limit that the platform has for it. */
static fth_status ask_limit(fth_provider *provider, const char *name, double *limit_s)
{
    json_t *list = NULL;
    fth_status status = provider->kind->status(provider, name, &list);
    if (status == FTH_OK)
        *limit_s = json_number_value(json_object_get(json_array_get(list, 0), "timeout_s"));
    json_decref(list);
    return status;
}

static fth_status invoke(const invoke_options *asked, const char *name, const json_t *urls, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_provider *provider = NULL;
    json_t **parameters = NULL, *results = NULL;
    int count = json_array_size(urls) > 0 ? (int)json_array_size(urls) : (int)asked->count;
    double limit_s = asked->limit_s;

    FTH_TRY(make_parameters(asked, urls, count, &parameters));
    FTH_TRY(fth_cli_open_provider(&asked->platform, stop, &provider));
    if (!(limit_s > 0))
        FTH_TRY(ask_limit(provider, name, &limit_s));
    fth_fleet_display_start(asked->json);
    status = fth_fleet_run(&(fth_fleet_options){.provider = provider,
                                                .function = name,
                                                .count = count,
                                                .concurrency = (int)asked->concurrency,
                                                .parameters = (const json_t *const *)parameters,
                                                .limit_s = limit_s,
                                                .max_failures = (int)asked->max_failures,
                                                .deadline = fth_deadline_in(asked->for_s > 0 ? asked->for_s : INFINITY),
                                                .stop = stop,
                                                .show = fth_fleet_display_show,
                                                .ended = fth_fleet_display_ended},
                           &results);
    char *problem = status != FTH_OK ? strdup(fth_error_message()) : NULL;
    fth_status shown = fth_fleet_display_stop(name, results, status);
    if (status == FTH_OK)
        status = shown;
    else
        fth_set_error("%s", problem ? problem : "functions failed");
    free(problem);

out:
    fth_cli_close_provider(provider);
    for (int i = 0; parameters && i < count; i++)
        json_decref(parameters[i]);
    free(parameters);
    json_decref(results);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const invoke_options *asked = options;
    fth_exit_code code = FTH_EXIT_OK;
    if (arguments->count != 1)
        return fth_cli_usage(command, "missing the function's name: farthing functions invoke NAME -n 6");
    json_t *urls = json_array();
    fth_status status = add_urls(asked->data_urls, urls);
    size_t shards = json_array_size(urls);
    if (status != FTH_OK)
        code = fth_cli_fail();
    else if (shards > MAX_COUNT)
        code = fth_cli_usage(command, "at most %d --data-url", MAX_COUNT);
    else if (shards > 0 && fth_options_is_set(&table, asked, "count") && (int64_t)shards != asked->count)
        code = fth_cli_usage(command, "-n %lld and %zu --data-url: each function has one", (long long)asked->count,
                             shards);
    else
        code = fth_cli_exit_code(status = invoke(asked, arguments->positional[0], urls, arguments->stop));
    json_decref(urls);
    return status == FTH_INTERRUPTED ? FTH_EXIT_INTERRUPTED : code;
}

const fth_command fth_functions_invoke = {
    .name = "functions invoke",
    .arguments = "NAME [-n N] [--flag value ...]",
    .summary = "run functions until their work is done, with retries and continuations",
    .details = "A function that stops before its time limit is invoked again and continues where it stopped. One that "
               "failed\nor was throttled is retried; if the answer was lost, only after its time limit. Ctrl-C leaves "
               "remote functions\nrunning (exit code 75) and ends local ones; the same command continues at the "
               "parameter server's positions.\n",
    .examples = (const fth_example[]){{"farthing functions invoke mnist --provider openwhisk -n 6 --server "
                                       "http://10.0.0.5:29500",
                                       "the server deals out its shards"},
                                      {0}},
    .table = &table,
    .stop_words = "stopping; press Ctrl-C again to stop at once",
    .run = run,
};
