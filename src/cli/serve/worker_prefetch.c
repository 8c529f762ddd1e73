/* farthing worker prefetch: prepares batches for a coordinator on another machine
 * (src/batches/prefetch/worker.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "batches/prefetch/worker.h"
#include "cli/serve/serve_cli.h"
#include "cli/serve/worker_cli.h"

enum { LOOK_EVERY_MS = 50 };

typedef struct worker_options {
    fth_option_bits set;
    fth_serving_flags serving;
    char *server, *server_pin, *server_ca, *name;
    double server_timeout_s;
    int64_t threads;
    bool unsigned_orders, json;
} worker_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, worker_options, member)
static const fth_option rows[] = {
    {ROW("server", TEXT, server), .address = true, .argument = "URL",
     .help = "the coordinator (`farthing serve batches`) to work for; with --port, whose orders alone are taken",
     .group = "Working"},
    {ROW("server-pin", TEXT, server_pin), .argument = "sha256//...",
     .help = "the fingerprint of its key, which it printed; trusts that key and no other"},
    {ROW("server-ca", TEXT, server_ca), .argument = "FILE", .help = "certificates to trust instead of the system's"},
    {ROW("server-timeout", DURATION, server_timeout_s), .fallback = "2m", .argument = "TIME",
     .help = "how long a coordinator that does not answer is tried again"},
    {ROW("threads", INTEGER, threads), .fallback = "0", .argument = "N", .maximum = 256,
     .help = "that fetch and decode; 0: one per core"},
    {ROW("name", TEXT, name), .argument = "NAME", .help = "by which the coordinator knows it; else host and process"},
    {ROW("unsigned", SWITCH, unsigned_orders), .group = "As a function",
     .help = "accept unsigned orders from every address: for platforms that authenticate callers themselves"},
    FTH_SERVING_ROWS(offsetof(worker_options, serving), "0"),
    {ROW("json", SWITCH, json), .help = "say where it serves as one JSON object"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, worker_options);

static const char *given(const char *text)
{
    return *text ? text : NULL;
}

static fth_status work(const worker_options *asked, const fth_stop *stop)
{
    return fth_prefetch_worker_run(&(fth_prefetch_worker_options){.url = asked->server,
                                                                  .pinned_key = given(asked->server_pin),
                                                                  .ca_file = given(asked->server_ca),
                                                                  .name = given(asked->name),
                                                                  .threads = (int)asked->threads,
                                                                  .patience_s = asked->server_timeout_s,
                                                                  .stop = stop});
}

static void tell_where(const worker_options *asked, bool tls, int port, const char *fingerprint)
{
    char url[FTH_SERVING_URL];
    fth_serving_url(&asked->serving, tls, port, url);
    if (asked->json) {
        json_t *json = json_pack("{s:s, s:s, s:i}", "event", "serving", "url", url, "port", port);
        if (*fingerprint)
            json_object_set_new(json, "fingerprint", json_string(fingerprint));
        fth_cli_print_json_new(json);
        return;
    }
    fth_print_line(stdout, "taking orders on %s", url);
    if (*fingerprint)
        printf("the key's fingerprint, to be pinned: %s\n", fingerprint);
    fth_cli_flush();
}

static fth_status serve(const worker_options *asked, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_prefetch_function *function = NULL;
    fth_serving_secrets secrets = {0};
    char *folder = NULL, *tls = NULL;

    if (asked->serving.tls) {
        FTH_TRY(fth_cache_folder(&folder));
        tls = fth_path_join(folder, "tls");
    }
    FTH_TRY(fth_serving_read(&asked->serving, tls, &secrets));
    FTH_TRY(fth_prefetch_function_start(&(fth_prefetch_function_options){.address = asked->serving.address,
                                                                         .host_names = asked->serving.host_names,
                                                                         .port = (int)asked->serving.port,
                                                                         .certificate_pem = secrets.certificate_pem,
                                                                         .key_pem = secrets.key_pem,
                                                                         .keys = secrets.keys,
                                                                         .open = asked->unsigned_orders,
                                                                         .max_requests_per_s = asked->serving.max_rate,
                                                                         .url = given(asked->server),
                                                                         .pinned_key = given(asked->server_pin),
                                                                         .ca_file = given(asked->server_ca),
                                                                         .threads = (int)asked->threads},
                                        &function));
    tell_where(asked, secrets.certificate_pem != NULL, fth_prefetch_function_port(function), secrets.fingerprint);
    while (!stop->asked)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_MS * 1000000L}, NULL);

out:
    fth_prefetch_function_stop(function);
    fth_serving_release(&secrets);
    free(folder);
    free(tls);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const worker_options *asked = options;
    bool serves = fth_options_is_set(&table, asked, "port");
    if (!serves && !*asked->server)
        return fth_cli_usage(command,
                             "give --server URL to work for a coordinator, or --port N to receive orders over HTTP");
    return fth_cli_exit_code((serves ? serve : work)(asked, arguments->stop));
}

const fth_command fth_worker_prefetch = {
    .name = "worker prefetch",
    .arguments = "--server URL | --port N [--flag value ...]",
    .summary = "fetch and decode for `farthing serve batches` on another machine",
    .details =
        "With --server it asks the coordinator for work, and survives its restarts. With --port it is a function\n"
        "over HTTP, which the coordinator calls (--prefetch functions, or its address): POST / takes an order and\n"
        "answers what came of it. Data sets are opened by the addresses that the coordinator names, with this\n"
        "machine's own credentials. Keys: FARTHING_ACCESS_KEY and FARTHING_SECRET_KEY, of the role train.\n",
    .examples = (const fth_example[]){{"farthing worker prefetch --server http://coordinator:29600",
                                       "as many threads as there are cores"},
                                      {"farthing worker prefetch --port 8080 --address 0.0.0.0 --unsigned",
                                       "in a container of OpenWhisk or AWS Lambda"},
                                      {0}},
    .table = &table,
    .flags_only = true,
    .stop_words = "stopping",
    .run = run,
};
