/* farthing serve batches: the coordinator of the shared batch cache (src/batches). */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/process.h"
#include "base/size.h"
#include "batches/coordinator/coordinator.h"
#include "cli/serve/serve_cli.h"
#include "cli/store/s3_flags.h"

enum { MAX_SETS = 64, LOOK_EVERY_MS = 50 };

typedef struct serve_options {
    fth_option_bits set;
    fth_serving_flags serving;
    fth_s3_flags s3;
    char *data_cache, *data_cache_folder, *data, *validation_split, *cache, *prefetch, *functions, *cache_memory,
        *state;
    int64_t seed, function_memory_mb;
    double budget_per_hour, cache_price, function_price, request_price, validation_fraction, max_bad_images;
    bool json;
} serve_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, serve_options, member)
static const fth_option rows[] = {
    {ROW("data", TEXT, data), .argument = "[NAME=]ADDRESS[,...]", .repeats = true,
     .help = "data sets to serve, as `farthing train --data` takes them, with commas between them or a flag for each; "
             "jobs use batches://"
             "HOST:PORT/NAME. Without a name, it is the last part of the address",
     .group = "Data"},
    {ROW("validation-fraction", NUMBER, validation_fraction), .fallback = "0.1", .argument = "SHARE", .minimum = 0.001,
     .maximum = 0.9, .help = "held out for validation where a data set has no validation part"},
    {ROW("validation-split", CHOICE, validation_split), .fallback = "stratified", .argument = "HOW",
     .choices = (const char *const[]){"stratified", "random", NULL},
     .help = "which samples: the same share of every class, or random ones, for runs that began with those"},
    {ROW("data-cache", TEXT, data_cache), .argument = "SIZE", .check = fth_size_check,
     .help = "data in a bucket: disk space in which files are kept once they were fetched: 500m, 100g; else none"},
    {ROW("data-cache-folder", TEXT, data_cache_folder), .argument = "FOLDER",
     .help = "where, also for unpacked files; else objects/ and unpacked/ in the cache folder"},
    {ROW("seed", INTEGER, seed), .fallback = "1", .argument = "N", .maximum = 9e18,
     .help = "of the order that jobs share (share=order, share=all), and of validation parts that are held out"},
    {ROW("cache", TEXT, cache), .fallback = "shm", .address = true, .argument = "WHERE", .check = fth_cache_check,
     .help = "shm: this machine's shared memory, which other machines read over HTTP; or redis://HOST:PORT[,...], "
             "which they read directly",
     .group = "Cache and prefetchers"},
    {ROW("cache-memory", TEXT, cache_memory), .argument = "SIZE", .check = fth_size_check,
     .help = "how much the cache may hold: 512m, 8g; else a quarter of the memory that is free"},
    {ROW("prefetch", TEXT, prefetch), .fallback = "threads", .argument = "WHO", .check = fth_prefetch_check,
     .help = "prefetchers, separated by commas: threads[:N] of this process, workers (`farthing worker prefetch`), "
             "functions, or the address of one function"},
    {ROW("functions", TEXT, functions), .argument = "URLS",
     .help = "addresses of the functions of --prefetch functions, with commas between them"},
    {ROW("function-price", NUMBER, function_price), .fallback = "0", .argument = "USD", .maximum = 1000,
     .help = "dollars of a gigabyte-second of a function (AWS Lambda: 0.0000166667)", .group = "Money"},
    {ROW("function-request-price", NUMBER, request_price), .fallback = "0", .argument = "USD", .maximum = 1000,
     .help = "dollars of one call of a function (AWS Lambda: 0.0000002)"},
    {ROW("function-memory", INTEGER, function_memory_mb), .fallback = "1024", .argument = "MB", .minimum = 1,
     .maximum = 1e6, .help = "memory of a function, for its price"},
    {ROW("cache-price", NUMBER, cache_price), .fallback = "0", .argument = "USD", .maximum = 1e6,
     .help = "dollars of the cache an hour, for the bill"},
    {ROW("budget-per-hour", NUMBER, budget_per_hour), .fallback = "0", .argument = "USD", .maximum = 1e6,
     .help = "dollars that functions and cache may cost in an hour; then functions wait for the next; 0: any"},
    {ROW("max-bad-images", NUMBER, max_bad_images), .fallback = "0.001", .argument = "SHARE", .maximum = 1,
     .help = "share of images that may be unreadable when a data set is opened"},
    {ROW("state", TEXT, state), .argument = "FOLDER",
     .help = "where it keeps what it must know after a restart; else batches-PORT in the cache folder",
     .group = "Serving"},
    FTH_SERVING_ROWS(offsetof(serve_options, serving), "29600"),
    FTH_SERVING_OPEN_ROW(offsetof(serve_options, serving)),
    {ROW("json", SWITCH, json), .help = "say where it serves as one JSON object"},
    FTH_S3_FLAG_ROWS(offsetof(serve_options, s3)),
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, serve_options);

/* ---- the data sets ---- */

/* The last part of an address, without its ending: "tiny" of "s3://bucket/tiny.tar.gz?x#y". */
static void name_set(const char *address, char name[FTH_DATA_NAME])
{
    size_t length = strcspn(address, "?#"), begin = 0, used = 0;
    while (length > 0 && address[length - 1] == '/')
        length--;
    for (size_t i = 0; i < length; i++)
        if (address[i] == '/')
            begin = i + 1;
    for (size_t i = begin; i < length && used < FTH_DATA_NAME - 1; i++) {
        if (address[i] == '.' && used > 0)
            break;
        name[used++] = isalnum((unsigned char)address[i]) || strchr("-_.", address[i]) ? address[i] : '-';
    }
    name[used] = '\0';
}

typedef struct set_list {
    fth_served_set sets[MAX_SETS];
    char names[MAX_SETS][FTH_DATA_NAME];
    char *text; /* that the addresses are in */
    size_t count;
} set_list;

static fth_status read_sets(const char *text, set_list *list)
{
    fth_status status = FTH_OK;
    char *rest = list->text = strdup(text);

    FTH_REQUIRE(rest, FTH_NO_MEMORY, "no memory for the flags");
    for (char *word = strsep(&rest, ","); word; word = strsep(&rest, ",")) {
        char *equals = strchr(word, '='), *name = list->names[list->count < MAX_SETS ? list->count : 0];
        FTH_REQUIRE(*word, FTH_INVALID, "--data %s: an address is empty", text);
        FTH_REQUIRE(list->count < MAX_SETS, FTH_INVALID, "--data: more than %d data sets", (int)MAX_SETS);
        if (equals && strcspn(word, "/:?#") > (size_t)(equals - word)) {
            *equals = '\0';
            FTH_REQUIRE(strlen(word) < FTH_DATA_NAME, FTH_INVALID, "--data: the name %.20s... is too long", word);
            memcpy(name, word, strlen(word) + 1);
            word = equals + 1;
        } else {
            name_set(word, name);
        }
        list->sets[list->count++] = (fth_served_set){.name = name, .address = word};
    }

out:
    return status;
}

/* ---- serving ---- */

/* A quarter of the memory that is free. */
static uint64_t usual_memory(void)
{
    const uint64_t least = UINT64_C(64) << 20;
    uint64_t quarter = (uint64_t)fth_machine_available_bytes() / 4;
    return quarter > least ? quarter : least;
}

/* Prints the addresses for jobs. A wildcard address is shown as HOST. */
static void tell_where(const serve_options *asked, const fth_coordinator *coordinator, const set_list *list,
                       const fth_serving_secrets *secrets)
{
    const char *address = asked->serving.address;
    bool v6 = strchr(address, ':') != NULL, tls = secrets->certificate_pem != NULL;
    int port = fth_coordinator_port(coordinator);
    char url[FTH_SERVING_URL];
    fth_serving_url(&asked->serving, tls, port, url);
    if (strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0) {
        address = "HOST";
        v6 = false;
    }
    if (asked->json) {
        json_t *data = json_object();
        for (size_t i = 0; i < list->count; i++) {
            char *place = fth_format("batches%s://%s%s%s:%d/%s", tls ? "+tls" : "", v6 ? "[" : "", address,
                                     v6 ? "]" : "", port, list->sets[i].name);
            json_object_set_new(data, list->sets[i].name, json_string(place ? place : ""));
            free(place);
        }
        json_t *json = json_pack("{s:s, s:s, s:i, s:o}", "event", "serving", "url", url, "port", port, "data", data);
        if (*secrets->fingerprint)
            json_object_set_new(json, "fingerprint", json_string(secrets->fingerprint));
        fth_cli_print_json_new(json);
        return;
    }
    fth_print_line(stdout, "serving batches on %s; jobs use", url);
    for (size_t i = 0; i < list->count; i++)
        fth_print_line(stdout, "    --data batches%s://%s%s%s:%d/%s", tls ? "+tls" : "", v6 ? "[" : "", address,
                       v6 ? "]" : "", port, list->sets[i].name);
    if (*secrets->fingerprint)
        printf("the key's fingerprint, to be pinned: %s\n", secrets->fingerprint);
    fth_cli_flush();
}

static fth_status serve(const serve_options *asked, fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_serving_secrets secrets = {0};
    set_list *list = NULL;
    char *folder = NULL, *tls = NULL, *cache = NULL;
    fth_coordinator *coordinator = NULL;
    const fth_store_options store = fth_s3_store_options(&asked->s3, 0);
    fth_dataset_options data = {.seed = (uint64_t)asked->seed,
                                .validation_fraction = asked->validation_fraction,
                                .random_split = strcmp(asked->validation_split, "random") == 0,
                                .max_bad_images = asked->max_bad_images,
                                .store = &store,
                                .disk_cache_folder = asked->data_cache_folder,
                                .stop = stop};
    fth_coordinator_options options = {.data = &data,
                                       .prefetch = asked->prefetch,
                                       .prefetching = {.functions = asked->functions,
                                                       .usd_per_gb_s = asked->function_price,
                                                       .usd_per_request = asked->request_price,
                                                       .function_memory_gb = (double)asked->function_memory_mb / 1024},
                                       .memory_bytes = usual_memory(),
                                       .budget_usd_per_hour = asked->budget_per_hour,
                                       .cache_usd_per_hour = asked->cache_price,
                                       .seed = (uint64_t)asked->seed,
                                       .state = *asked->state ? asked->state : NULL,
                                       .address = asked->serving.address,
                                       .port = (int)asked->serving.port,
                                       .host_names = asked->serving.host_names,
                                       .max_requests_per_s = asked->serving.max_rate};

    FTH_TRY(fth_allocate(1, sizeof *list, &list));
    FTH_REQUIRE(*asked->data, FTH_INVALID, "no data set to serve; add one with --data");
    FTH_TRY(read_sets(asked->data, list));
    options.sets = list->sets;
    options.set_count = list->count;
    if (*asked->cache_memory)
        FTH_TRY(fth_size_parse(asked->cache_memory, &options.memory_bytes));
    if (*asked->data_cache)
        FTH_TRY(fth_size_parse(asked->data_cache, &data.disk_cache_bytes));
    cache = fth_address_whole(asked->cache);
    FTH_REQUIRE(cache, FTH_NO_MEMORY, "no memory for the flags");
    options.cache = cache;
    if (asked->serving.tls) {
        FTH_TRY(fth_cache_folder(&folder));
        tls = fth_path_join(*asked->state ? asked->state : folder, "tls");
    }
    FTH_TRY(fth_serving_read(&asked->serving, tls, &secrets));
    options.keys = secrets.keys;
    options.open = asked->serving.open;
    options.certificate_pem = secrets.certificate_pem;
    options.key_pem = secrets.key_pem;
    FTH_TRY(fth_coordinator_start(&options, &coordinator));
    tell_where(asked, coordinator, list, &secrets);
    while (!stop->asked)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_MS * 1000000}, NULL);

out:
    fth_coordinator_stop(coordinator);
    fth_serving_release(&secrets);
    if (list)
        free(list->text);
    free(list);
    free(folder);
    free(tls);
    fth_wipe_text(cache);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    (void)command;
    return fth_cli_exit_code(serve(options, arguments->stop));
}

const fth_command fth_serve_batches = {
    .name = "serve batches",
    .arguments = "--data [NAME=]ADDRESS[,...] [--flag value ...]",
    .summary = "fetch and decode data once for all training jobs on it",
    .details =
        "Jobs: `farthing train --data batches://HOST:PORT/NAME`, or Python (python/README.md); see docs/batches.md.\n"
        "The same command continues where it stopped or was killed; jobs reconnect by themselves.\n",
    .examples =
        (const fth_example[]){
            {"farthing serve batches --data photos=./photos --prefetch threads:4", "for jobs on this machine"},
            {"farthing serve batches --data s3://bucket/tiny --cache redis://cache:6379 --address 0.0.0.0 --keys "
             "keys.txt",
             "for several machines"},
            {"farthing train --model resnet18 --data batches://127.0.0.1:29600/photos", "a job"},
            {0}},
    .table = &table,
    .flags_only = true,
    .stop_words = "stopping",
    .run = run,
};
