/* farthing serve functions: OpenWhisk's and Lambda's REST APIs over processes of this machine
 * (src/platform). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/serve/serve_cli.h"
#include "platform/platform.h"

enum { LOOK_EVERY_MS = 50 };

typedef struct serve_options {
    fth_option_bits set;
    char *folder, *address, *host_names, *api_key, *certificate, *key, *program;
    int64_t port, max_processes, max_activations;
    double idle_s;
    bool json;
} serve_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, serve_options, member)
static const fth_option rows[] = {
    {ROW("folder", TEXT, folder), .argument = "FOLDER",
     .help = "where functions and activations are kept; else farthing/functions in the user's data folder, as "
             "`farthing functions --provider local` uses it",
     .group = "Functions"},
    {ROW("program", TEXT, program), .argument = "FILE",
     .help =
         "the function that runs for images; else the farthing-function installed with this program, or this program"},
    {ROW("max-processes", INTEGER, max_processes), .fallback = "64", .argument = "N", .minimum = 1, .maximum = 10000,
     .help = "that run or are kept warm at once"},
    {ROW("max-activations", INTEGER, max_activations), .fallback = "100", .argument = "N", .minimum = 1, .maximum = 1e6,
     .help = "that run or wait at once; more are refused with 429"},
    {ROW("idle", DURATION, idle_s), .fallback = "60s", .argument = "TIME", .help = "that a process is kept warm"},
    {ROW("port", INTEGER, port), .fallback = "3233", .argument = "N", .maximum = 65535, .help = "0: any free one",
     .group = "Serving"},
    {ROW("address", TEXT, address), .fallback = "127.0.0.1", .argument = "IP",
     .help = "0.0.0.0 serves other machines, which needs --certificate"},
    {ROW("host-name", TEXT, host_names), .argument = "NAMES",
     .help = "names, with commas between them, that the server is reached by; addresses, localhost, this machine's "
             "name and those in its certificate are known"},
    {ROW("api-key", TEXT, api_key), .argument = "FILE",
     .help = "file with the UUID:KEY that callers need: OpenWhisk's key, and its halves are Lambda's access key and "
             "secret key; else the file key in the folder, which is made at first"},
    {ROW("certificate", TEXT, certificate), .argument = "FILE", .help = "a certificate (chain), PEM, for https"},
    {ROW("key", TEXT, key), .argument = "FILE", .help = "and its private key"},
    {ROW("json", SWITCH, json), .help = "say where it serves as one JSON object"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, serve_options);

static void tell_where(const serve_options *asked, const fth_platform *platform, int port)
{
    const fth_serving_flags flags = {.address = asked->address};
    char url[FTH_SERVING_URL],
        *key_file = *asked->api_key ? strdup(asked->api_key) : fth_path_join(fth_platform_folder(platform), "key");
    fth_serving_url(&flags, *asked->certificate, port, url);
    if (asked->json) {
        fth_cli_print_json_new(json_pack("{s:s, s:s, s:i, s:s, s:s}", "event", "serving", "url", url, "port", port,
                                         "folder", fth_platform_folder(platform), "key_file",
                                         key_file ? key_file : ""));
    } else {
        fth_print_line(stdout, "serving functions on %s; the key is in %s", url, key_file ? key_file : "its folder");
        fth_print_line(stdout, "    OpenWhisk: curl -u \"$(cat %s)\" %s/api/v1/namespaces/_/actions",
                       key_file ? key_file : "key", url);
        fth_print_line(stdout, "    Lambda: aws --endpoint-url %s lambda list-functions", url);
        fth_cli_flush();
    }
    free(key_file);
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

static fth_status serve(const serve_options *asked, fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_platform *platform = NULL;
    fth_platform_service *service = NULL;
    char *key = NULL, *certificate_pem = NULL, *key_pem = NULL;
    size_t size;

    FTH_REQUIRE(!*asked->certificate == !*asked->key, FTH_INVALID, "--certificate and --key belong together");
    FTH_REQUIRE(is_loopback(asked->address) || *asked->certificate, FTH_INVALID,
                "--address %s would send keys in plain text to other machines; give --certificate and --key",
                asked->address);
    if (*asked->certificate)
        FTH_TRY(fth_tls_load(asked->certificate, asked->key, &certificate_pem, &key_pem));
    if (*asked->api_key) {
        FTH_TRY(fth_file_read_all(asked->api_key, 4096, &key, &size));
        key[strcspn(key, "\r\n")] = '\0';
    }
    FTH_TRY(fth_platform_open(&(fth_platform_options){.folder = *asked->folder ? asked->folder : NULL,
                                                      .max_processes = (int)asked->max_processes,
                                                      .max_activations = (int)asked->max_activations,
                                                      .idle_s = asked->idle_s,
                                                      .program = *asked->program ? asked->program : NULL},
                              &platform));
    FTH_TRY(fth_platform_serve(platform,
                               &(fth_platform_service_options){.address = asked->address,
                                                               .port = (int)asked->port,
                                                               .key = key,
                                                               .host_names = asked->host_names,
                                                               .certificate_pem = certificate_pem,
                                                               .key_pem = key_pem},
                               &service));
    tell_where(asked, platform, fth_platform_service_port(service));
    while (!stop->asked)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_MS * 1000000L}, NULL);

out:
    fth_platform_service_stop(service);
    fth_platform_close(platform);
    fth_wipe_text(key);
    fth_wipe_text(key_pem);
    free(certificate_pem);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    (void)command;
    return fth_cli_exit_code(serve(options, arguments->stop));
}

const fth_command fth_serve_functions = {
    .name = "serve functions",
    .arguments = "[--flag value ...]",
    .summary = "run functions on this machine behind OpenWhisk's and Lambda's REST APIs",
    .details = "Functions are processes of this machine under limits of memory and time; `wsk`, `curl` and AWS's tools "
               "deploy\n"
               "and invoke them. See docs/functions.md.\n",
    .examples =
        (const fth_example[]){
            {"farthing serve functions", "on port 3233"},
            {"curl -u \"$(cat KEYFILE)\" -X PUT http://127.0.0.1:3233/api/v1/namespaces/_/actions/train -d "
             "'{\"exec\": {\"kind\": \"blackbox\", \"image\": \"farthing-function\"}}'",
             "create a function"},
            {0}},
    .table = &table,
    .flags_only = true,
    .stop_words = "stopping",
    .run = run,
};
