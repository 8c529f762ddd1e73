/* The manual pages: farthing(1) and one for each command. The tables describe each command; this
 * file adds the other sections, and what commands share: environment variables, files and exit
 * codes. */
#include "cli/manual/manual.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- facts ---- */

/* A variable or a file, and which commands use it: names with spaces around them; NULL: all do. */
typedef struct fact {
    const char *name, *meaning, *commands;
} fact;

#define FUNCTIONS " functions-deploy functions-invoke functions-status functions-logs functions-remove "
#define TRAINING  " train standby evaluate serve-parameters "

static const fact environment[] = {
    {"FARTHING_CACHE",
     "folder of downloads, unpacked archives and indexes; else $XDG_CACHE_HOME/farthing or ~/.cache/farthing.",
     TRAINING "predict data doctor weights export "},
    {"FARTHING_PLUGINS", "folder with back ends that are loaded by name (farthing_<name>.so).",
     TRAINING "predict doctor bench "},
    {"FARTHING_PRICES", "catalogue of prices, where --prices does not name one.", " train standby prices "},
    {"FARTHING_DATA_URL",
     "whole address of the data, with its password or signature, which --data leaves out of the record.", TRAINING},
    {"FARTHING_SERVER_URL",
     "whole address of the parameter server, with its password, which --server leaves out of the record.", " train "},
    {"FARTHING_ACCESS_KEY, FARTHING_SECRET_KEY",
     "key of a worker of a parameter server, or of a job or worker of a batch cache; `farthing keys` makes one.",
     " train keys evaluate doctor serve-batches worker-prefetch functions-deploy "},
    {"FARTHING_KEYS", "keys that a server accepts if --keys names no file: lines of access key, secret and role.",
     " serve-parameters serve-batches worker-prefetch keys "},
    {"FARTHING_BATCHES_AGENT", "command that starts this machine's agent of a batch cache; else this program itself.",
     " train evaluate doctor "},
    {"FARTHING_REDIS_USER, FARTHING_REDIS_PASSWORD",
     "user and password for a batch cache in Redis, unless its address has them.",
     " train evaluate doctor serve-batches worker-prefetch "},
    {"FARTHING_REDIS_CA, FARTHING_REDIS_CERTIFICATE, FARTHING_REDIS_KEY",
     "files for rediss:// addresses: certificates to trust instead of the system's, and a client's own certificate and "
     "key.",
     " train evaluate doctor serve-batches worker-prefetch "},
    {"FARTHING_GRACE_S", "seconds between SIGTERM and the end of the machine; else 30.", " train standby "},
    {"FARTHING_RENDEZVOUS, FARTHING_PORT",
     "address of the rendezvous for processes that another launcher started, HOST:PORT; or the port alone, on the "
     "launcher's host.",
     " train "},
    {"FARTHING_TOKEN, FARTHING_TOKEN_FILE",
     "shared secret of processes that train together, or a file that contains it.", " train launch "},
    {"FARTHING_NODE, FARTHING_NODES, FARTHING_SERVICE",
     "name of this node; how many pods of an indexed job train together, N or MIN:MAX; the job's headless service.",
     " train "},
    {"FARTHING_GS_ENDPOINT, FARTHING_AZURE_ENDPOINT",
     "servers for gs:// and az:// addresses other than the clouds' own.",
     TRAINING "store doctor report compare predict export weights "},
    {"FARTHING_AWS_METADATA, FARTHING_GCP_METADATA, FARTHING_AZURE_METADATA",
     "addresses of the metadata services that announce the end of a machine.", " train standby doctor "},
    {"FARTHING_ASCII", "if set, charts and tables use ASCII characters alone.", " report compare train standby "},
    {"FARTHING_DATA_ON_DEVICE", "0 keeps data sets out of the device's memory.", " train standby "},
    {"FARTHING_CUDA_TIMEOUT", "seconds that a wait for a GPU may take.", TRAINING "predict "},
    {"FARTHING_CUDA_TUNE", "0 takes cuDNN's first choice of algorithms instead of measuring them.",
     TRAINING "predict bench "},
    {"FARTHING_MAX_ISA",
     "best instructions that computing on the CPU uses: amx, avx512 (without AMX), avx2 or baseline; else the "
     "processor's.",
     TRAINING "predict bench doctor launch worker-openwhisk worker-lambda "},
    {"FARTHING_CONVOLUTION",
     "one way to compute convolutions, taken wherever it can: bf16, narrow, winograd, strided, pointwise, "
     "pixelwise or direct; "
     "else the fastest known.",
     " bench "},
    {"FARTHING_PROFILE", "if set, the time of each step of a plan is printed.", " bench "},
    {"FARTHING_EMULATE", "time of a step with --device emulated, the back end for studies: step=0.81.",
     " train plan bench "},
    {"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL",
     "credentials and settings for s3:// addresses and Lambda, as other tools read them.",
     TRAINING "store doctor report compare predict export weights " FUNCTIONS},
    {"AWS_ENDPOINT_URL_LAMBDA", "address of Lambda's API, where it is not AWS's own.", FUNCTIONS},
    {"WHISK_APIHOST, WHISK_AUTH, WSK_CONFIG_FILE",
     "OpenWhisk's API host, its key, and the file that has them otherwise; else ~/.wskprops.", FUNCTIONS},
    {"AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN", "credentials for az:// addresses.",
     TRAINING "store doctor report compare predict export weights "},
    {"OMP_WAIT_POLICY", "how compute threads wait for each other; --threads sets their number.", TRAINING "bench "},
};

static const fact files[] = {
    {"runs/ID/",
     "a run: run.json (its configuration), events.jsonl (what happened), checkpoints, last.safetensors and "
     "best.safetensors.",
     " train standby evaluate report compare runs predict export serve-parameters "},
    {"~/.cache/farthing/", "downloads and unpacked archives.", TRAINING "data predict "},
    {"~/.config/farthing/prices.yaml",
     "your own prices; `farthing prices --yaml` prints the built-in ones to begin with.", " train standby prices "},
    {"~/.aws/credentials, ~/.aws/config", "credentials for s3:// addresses.",
     TRAINING "store doctor report compare predict export weights "},
};

static const struct {
    int code;
    const char *meaning;
} exit_codes[] = {
    {FTH_EXIT_OK, "done."},
    {FTH_EXIT_FAILURE, "failed; the last line on standard error says why."},
    {FTH_EXIT_USAGE, "wrong usage: a flag, a key of a YAML file or a value that is not valid."},
    {FTH_EXIT_INTERRUPTED, "stopped on request and saved; the same command with --resume continues."},
};

/* ---- sections ---- */

void fth_manual_name(const fth_command *command, char *name, size_t size)
{
    snprintf(name, size, "farthing%s%s", command ? "-" : "", command ? command->name : "");
    for (char *at = name; *at; at++)
        if (*at == ' ')
            *at = '-';
}

/* The date of the page: SOURCE_DATE_EPOCH, else today. */
static void format_date(char *text, size_t size)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t now = epoch && *epoch ? (time_t)strtoll(epoch, NULL, 10) : (time_t)fth_clock_wall_seconds();
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(text, size, "%Y-%m-%d", &parts);
}

static void print_title(FILE *out, const fth_command *command, const char *summary)
{
    char name[96], date[32];
    fth_manual_name(command, name, sizeof name);
    format_date(date, sizeof date);
    fputs(".TH ", out);
    for (const char *at = name; *at; at++)
        putc(toupper((unsigned char)*at), out);
    fprintf(out, " 1 %s \"farthing " FTH_VERSION "\" \"farthing\"\n.SH NAME\n", date);
    char *line = fth_format("%s - %s", name, summary);
    fth_roff_text(out, line ? line : name);
    free(line);
}

static void print_item(FILE *out, const char *name, const char *meaning)
{
    fputs(".TP\n\\fB", out);
    fth_roff_literal(out, name);
    fputs("\\fR\n", out);
    fth_roff_text(out, meaning ? meaning : "");
}

static void print_exit_codes(FILE *out)
{
    char code[16];
    fth_roff_heading(out, "SH", "EXIT STATUS");
    for (size_t i = 0; i < FTH_COUNT_OF(exit_codes); i++) {
        snprintf(code, sizeof code, "%d", exit_codes[i].code);
        print_item(out, code, exit_codes[i].meaning);
    }
}

/* Those of the command; of the program, if it is NULL, all. */
static void print_facts(FILE *out, const char *heading, const fact *facts, size_t count, const fth_command *command)
{
    char name[96], word[100];
    bool any = false;
    fth_manual_name(command, name, sizeof name);
    snprintf(word, sizeof word, " %s ", command ? name + strlen("farthing-") : "");
    for (size_t i = 0; i < count; i++) {
        if (command && !strstr(facts[i].commands, word))
            continue;
        if (!any)
            fth_roff_heading(out, "SH", heading);
        any = true;
        print_item(out, facts[i].name, facts[i].meaning);
    }
}

static void print_examples(FILE *out, const fth_example *examples)
{
    if (!examples)
        return;
    fth_roff_heading(out, "SH", "EXAMPLES");
    for (; examples->line; examples++) {
        fputs(".TP\n\\fB", out);
        fth_roff_literal(out, examples->line);
        fputs("\\fR\n", out);
        fth_roff_text(out, examples->meaning ? examples->meaning : "");
    }
}

static void print_reference(FILE *out, const fth_command *command, const char *end)
{
    char name[96];
    fth_manual_name(command, name, sizeof name);
    fputs(".BR ", out);
    fth_roff_literal(out, name);
    fprintf(out, " (1)%s\n", end);
}

/* ---- options ---- */

static void print_flag(FILE *out, const fth_option *option)
{
    const char *argument = option->argument ? option->argument : "VALUE";
    fputs(".TP\n\\fB", out);
    if (option->letter)
        fprintf(out, "\\-%c\\fR, \\fB", option->letter);
    fputs("\\-\\-", out);
    fth_roff_literal(out, option->name);
    fputs("\\fR", out);
    if (option->type == FTH_OPTION_SWITCH) {
        fputs(", \\fB\\-\\-no\\-", out);
        fth_roff_literal(out, option->name);
        fputs("\\fR", out);
    } else {
        fputs(option->type == FTH_OPTION_OPTIONAL ? " [\\fI" : " \\fI", out);
        fth_roff_literal(out, argument);
        fputs(option->type == FTH_OPTION_OPTIONAL ? "\\fR]" : "\\fR", out);
    }
    putc('\n', out);
}

static void print_choices(FILE *out, const fth_option *option)
{
    fth_choice choice;
    if (option->type != FTH_OPTION_CHOICE && option->type != FTH_OPTION_ENUM)
        return;
    fputs("One of", out);
    for (size_t i = 0; (choice = fth_options_choice(option, i)).name; i++) {
        fputs(i == 0 ? "\n\\fB" : ",\n\\fB", out);
        fth_roff_literal(out, choice.name);
        fputs("\\fR", out);
        if (choice.summary) {
            fputs("\n(", out);
            fth_roff_literal(out, choice.summary);
            putc(')', out);
        }
    }
    fputs(".\n", out);
}

static void print_option(FILE *out, const fth_option *option)
{
    char *help =
        fth_format("%s%s%s.", option->help, option->alias ? "; also --" : "", option->alias ? option->alias : "");
    print_flag(out, option);
    fth_roff_text(out, help ? help : "");
    free(help);
    print_choices(out, option);
    if (option->fallback && *option->fallback) {
        fputs("Default:\n\\fB", out);
        fth_roff_literal(out, option->fallback);
        fputs("\\fR.\n", out);
    }
}

static void print_options(FILE *out, const fth_command *command)
{
    const fth_option_table table = fth_command_table(command);
    const char *group = NULL;
    fth_roff_heading(out, "SH", "OPTIONS");
    for (size_t i = 0; i < table.count; i++) {
        const fth_option *option = &table.options[i];
        group = option->group ? option->group : group;
        if (!fth_options_is_shown(&table, option))
            continue;
        if (group && strcmp(group, "Options") != 0)
            fth_roff_heading(out, "SS", group);
        group = NULL;
        print_option(out, option);
    }
    if (table.count > 0)
        fth_roff_heading(out, "SS", "Help");
    print_item(out, "--help", "Show a summary of the command and its options.");
}

/* ---- pages ---- */

void fth_manual_print_command(FILE *out, const fth_command *command)
{
    print_title(out, command, command->summary);
    fth_roff_heading(out, "SH", "SYNOPSIS");
    fprintf(out, ".B farthing %s\n", command->name);
    if (*command->arguments)
        fth_roff_text(out, command->arguments);
    fth_roff_heading(out, "SH", "DESCRIPTION");
    if (command->details)
        fth_roff_details(out, command->details);
    else
        fth_roff_text(out, command->summary);
    for (size_t i = 0; command->actions && command->actions(i).name; i++)
        print_item(out, command->actions(i).name, command->actions(i).summary);
    for (const fth_command *const *part = command->parts; part && *part; part++) {
        fputs(".TP\n", out);
        print_reference(out, *part, "");
        fth_roff_text(out, (*part)->summary);
    }
    print_options(out, command);
    print_exit_codes(out);
    print_facts(out, "ENVIRONMENT", environment, FTH_COUNT_OF(environment), command);
    print_facts(out, "FILES", files, FTH_COUNT_OF(files), command);
    print_examples(out, command->examples);
    fth_roff_heading(out, "SH", "SEE ALSO");
    print_reference(out, NULL, "");
}

static void print_commands(FILE *out, bool for_developers)
{
    for (const fth_command *const *command = fth_commands; *command; command++) {
        if ((*command)->hidden || (*command)->for_developers != for_developers)
            continue;
        fputs(".TP\n", out);
        print_reference(out, *command, "");
        fth_roff_text(out, (*command)->summary);
    }
}

void fth_manual_print_program(FILE *out)
{
    print_title(out, NULL, "train neural networks on machines that may vanish");
    fth_roff_heading(out, "SH", "SYNOPSIS");
    fputs(".B farthing\n", out);
    fth_roff_text(out, "COMMAND [arguments]");
    fth_roff_heading(out, "SH", "DESCRIPTION");
    fth_roff_details(
        out,
        "Trains networks on folders of images, tables of text or built-in data, saves them so that a run survives a "
        "kill, a full disk or the end of its machine, and continues exactly where it stopped.\n\n"
        "Each command has a page of its own; `farthing COMMAND --help` shows the same in brief.\n");
    fth_roff_heading(out, "SH", "COMMANDS");
    print_commands(out, false);
    fth_roff_heading(out, "SS", "For developers");
    print_commands(out, true);
    fth_roff_heading(out, "SH", "OPTIONS");
    print_item(out, "--help", "List the commands.");
    print_item(out, "--version", "Print the version.");
    print_exit_codes(out);
    print_facts(out, "ENVIRONMENT", environment, FTH_COUNT_OF(environment), NULL);
    print_facts(out, "FILES", files, FTH_COUNT_OF(files), NULL);
    print_examples(out, fth_command_train.examples);
    fth_roff_heading(out, "SH", "SEE ALSO");
    print_reference(out, &fth_command_train, "");
}
