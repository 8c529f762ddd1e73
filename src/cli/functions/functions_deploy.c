/* farthing functions deploy: creates a function on a platform, or replaces it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/functions/functions_cli.h"
#include "package/package.h"
#include "platform/platform.h"
#include "store/store.h"

enum { MAX_ENV_FILE_BYTES = 256 << 10 };

typedef struct deploy_options {
    fth_option_bits set;
    fth_provider_flags platform;
    char *name, *image, *zip, *role, *contract, *code_store;
    char *environment, *env_file, *parameters;
    int64_t memory_mb;
    double timeout_s;
    bool keys_from_environment, invokes_itself, json;
} deploy_options;

static const char *const contracts[] = {"openwhisk", "lambda", NULL};

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, deploy_options, member)
static const fth_option rows[] = {
    {ROW("name", TEXT, name), .argument = "NAME", .help = "name of the function", .group = "The function"},
    {ROW("memory", INTEGER, memory_mb), .fallback = "256", .argument = "MB", .minimum = 16, .maximum = 1 << 20,
     .help = "memory of the function"},
    {ROW("timeout", DURATION, timeout_s), .fallback = "300s", .argument = "TIME",
     .help = "time limit of an invocation; training stops before it and continues in the next one"},
    {ROW("image", TEXT, image), .argument = "NAME",
     .help = "OpenWhisk: an image in a registry, USER/NAME:TAG; Lambda: the URI of one in ECR"},
    {ROW("zip", TEXT, zip), .argument = "FILE",
     .help = "Lambda and local: a package, or s3://BUCKET/KEY; else one is created (`functions package`)"},
    {ROW("code-store", TEXT, code_store), .argument = "s3://BUCKET/FOLDER",
     .help = "Lambda: upload the zip to this place first; required above 50 MB"},
    {ROW("role", TEXT, role), .argument = "ARN",
     .help = "Lambda: the function's role; an existing function keeps its own"},
    {ROW("contract", CHOICE, contract), .fallback = "openwhisk", .argument = "NAME", .choices = contracts,
     .help = "local: protocol of the function"},
    {ROW("self-invoke", SWITCH, invokes_itself),
     .help = "OpenWhisk: pass the namespace's key, so that it can invoke itself again (\"continue\": \"self\")"},
    {ROW("env", TEXT, environment), .repeats = true, .lines = true, .argument = "NAME[=VALUE]",
     .help = "environment variable; without a value, as it is set here. May be repeated",
     .group = "Environment and parameters"},
    {ROW("env-file", TEXT, env_file), .argument = "FILE", .help = "lines NAME=VALUE"},
    {ROW("keys-from-environment", SWITCH, keys_from_environment),
     .help = "the parameter server's key: FARTHING_ACCESS_KEY and FARTHING_SECRET_KEY, as they are set here"},
    {ROW("param", TEXT, parameters), .repeats = true, .lines = true, .argument = "NAME=VALUE",
     .help = "OpenWhisk and local: parameter of every invocation, as JSON or text. May be repeated"},
    FTH_PROVIDER_ROWS(offsetof(deploy_options, platform)),
    {ROW("json", SWITCH, json), .help = "report as one JSON object"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, deploy_options);

static const char *given(const char *text)
{
    return *text ? text : NULL;
}

static fth_status read_environment(const deploy_options *asked, json_t *environment)
{
    fth_status status = FTH_OK;
    char *text = NULL;
    size_t size_bytes = 0;

    if (*asked->env_file) {
        FTH_TRY(fth_file_read_all(asked->env_file, MAX_ENV_FILE_BYTES, &text, &size_bytes));
        status = fth_cli_read_pairs("line", text, FTH_PAIR_TEXT, environment);
        if (status != FTH_OK)
            FTH_TRY(fth_fail_within(status, "%s", asked->env_file));
    }
    FTH_TRY(fth_cli_read_pairs("--env", asked->environment, FTH_PAIR_TEXT, environment));
    if (asked->keys_from_environment)
        FTH_TRY(fth_cli_read_pairs("--keys-from-environment:", "FARTHING_ACCESS_KEY\nFARTHING_SECRET_KEY",
                                   FTH_PAIR_TEXT, environment));

out:
    if (text)
        fth_wipe(text, size_bytes);
    free(text);
    return status;
}

/* Uploads the zip to a bucket, named by its checksum; Lambda reads it from *address. */
static fth_status send_code(const char *place, const char *zip, char **address)
{
    fth_status status = FTH_OK;
    fth_store *store = NULL;
    char hash[65], key[80];
    uint64_t size_bytes;

    *address = NULL;
    FTH_REQUIRE(strncmp(place, "s3://", 5) == 0, FTH_INVALID, "--code-store s3://BUCKET/FOLDER, not \"%s\"", place);
    FTH_TRY(fth_file_sha256_of(zip, hash, &size_bytes));
    snprintf(key, sizeof key, "%s.zip", hash);
    FTH_TRY(fth_store_open(place, NULL, &store));
    FTH_TRY(fth_store_put_file(store, key, zip, NULL, NULL));
    *address = fth_path_join(place, key);
    FTH_REQUIRE(*address, FTH_NO_MEMORY, "no memory for an address");

out:
    fth_store_free(store);
    return status;
}

/* A package for a function that was given neither image nor zip. */
static fth_status make_zip(char **folder, char **zip)
{
    fth_status status = FTH_OK;
    fth_package_facts facts;
    FTH_TRY(fth_folder_create_temporary(folder));
    *zip = fth_path_join(*folder, "function.zip");
    FTH_TRY(fth_package_write_zip(*zip, &(fth_package_options){0}, &facts));

out:
    return status;
}

static void show(const deploy_options *asked, const char *code)
{
    if (asked->json) {
        json_t *json = json_pack("{s:s, s:s, s:o, s:I, s:f}", "event", "deployed", "provider", asked->platform.provider,
                                 "name", fth_cli_json_text(asked->name), "memory_mb", (json_int_t)asked->memory_mb,
                                 "timeout_s", asked->timeout_s);
        if (code)
            json_object_set_new(json, "code", fth_cli_json_text(code));
        fth_cli_print_json_new(json);
        return;
    }
    char limit[32];
    fth_duration_format(asked->timeout_s, limit, sizeof limit);
    fth_print_line(stdout, "deployed %s on %s: %lld MB, %s", asked->name, asked->platform.provider,
                   (long long)asked->memory_mb, limit);
}

/* `program`: the words of the command that is the function, NULL-terminated; NULL: none. */
static fth_status deploy(const deploy_options *asked, const char *const *program, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_provider *provider = NULL;
    json_t *environment = json_object(), *parameters = json_object();
    char *folder = NULL, *made = NULL, *sent = NULL;
    const char *zip = given(asked->zip);

    FTH_TRY(read_environment(asked, environment));
    FTH_TRY(fth_cli_read_pairs("--param", asked->parameters, FTH_PAIR_JSON, parameters));
    FTH_TRY(fth_cli_open_provider(&asked->platform, stop, &provider));
    FTH_REQUIRE(!program || provider->kind == &fth_provider_local, FTH_INVALID,
                "a program of this machine can only be a function of --provider local, not of %s",
                provider->kind->name);
    if (!zip && !*asked->image && provider->kind == &fth_provider_lambda) {
        FTH_TRY(make_zip(&folder, &made));
        zip = made;
    }
    if (*asked->code_store && zip) {
        FTH_TRY(send_code(asked->code_store, zip, &sent));
        zip = sent;
    }
    FTH_TRY(provider->kind->deploy(provider, &(fth_function_spec){.name = asked->name,
                                                                  .image = given(asked->image),
                                                                  .zip = zip,
                                                                  .role = given(asked->role),
                                                                  .contract = asked->contract,
                                                                  .command = program,
                                                                  .memory_mb = (int)asked->memory_mb,
                                                                  .timeout_s = asked->timeout_s,
                                                                  .environment = environment,
                                                                  .parameters = parameters,
                                                                  .invokes_itself = asked->invokes_itself}));
    show(asked, *asked->image ? asked->image : made ? NULL : zip);

out:
    fth_cli_close_provider(provider);
    if (made)
        unlink(made);
    if (folder)
        rmdir(folder);
    json_decref(environment);
    json_decref(parameters);
    free(folder);
    free(made);
    free(sent);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    deploy_options *asked = options;
    if (arguments->count > 0 && *asked->name)
        return fth_cli_usage(command, "one function at a time: NAME or --name NAME");
    if (arguments->count == 0 && !*asked->name)
        return fth_cli_usage(command, "give the function a name: --name NAME");
    if (arguments->count > 0) {
        free(asked->name);
        asked->name = strdup(arguments->positional[0]);
    }
    fth_status status = asked->name ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a name");
    if (status == FTH_OK)
        status = deploy(asked, arguments->count > 1 ? arguments->positional + 1 : NULL, arguments->stop);
    fth_exit_code code = fth_cli_exit_code(status);
    return status == FTH_INTERRUPTED ? FTH_EXIT_INTERRUPTED : code;
}

const fth_command fth_functions_deploy = {
    .name = "functions deploy",
    .arguments = "[NAME] [--flag value ...] [-- PROGRAM [ARGUMENT ...]]",
    .summary = "create or replace a function on a platform",
    .details = "Keys reach a function as variables of its environment: --keys-from-environment, --env NAME or "
               "--env-file.\nThey appear on no command line and in no message.\n",
    .examples =
        (const fth_example[]){
            {"farthing functions deploy --provider openwhisk --name mnist --image me/farthing:1 "
             "--memory 256 --timeout 300s",
             NULL},
            {"farthing functions deploy --provider lambda --name mnist --role "
             "arn:aws:iam::123456789012:role/mnist",
             "packages this program's own function"},
            {"farthing functions deploy hello --contract lambda -- /opt/venv/bin/python -m awslambdaric "
             "app.handler",
             "a program of this machine"},
            {0}},
    .table = &table,
    .stop_words = "stopping",
    .run = run,
};
