/* Commands of `farthing functions`, each in functions_<name>.c with a row in cmd_functions.c. Their
 * common flags, which select and configure the platform, are here and in functions_provider.c. */
#ifndef FTH_CLI_FUNCTIONS_CLI_H
#define FTH_CLI_FUNCTIONS_CLI_H

#include "cli/cli.h"
#include "providers/fleet.h"

extern const fth_command fth_functions_deploy, fth_functions_invoke, fth_functions_status, fth_functions_logs,
    fth_functions_remove, fth_functions_package;

typedef struct fth_provider_flags {
    char *provider, *host, *region, *ca_file;
    bool insecure;
} fth_provider_flags;

/* The platforms, for the table of options. */
fth_choice fth_cli_provider_choice(size_t index);
fth_status fth_cli_open_provider(const fth_provider_flags *flags, const fth_stop *stop, fth_provider **provider);
void fth_cli_close_provider(fth_provider *provider); /* NULL is fine */

/* Adds lines NAME=VALUE to an object. `flag` ("--env") begins messages, which contain names but no
 * values. */
typedef enum fth_pair_values {
    FTH_PAIR_TEXT, /* NAME alone: what this process's environment has */
    FTH_PAIR_JSON  /* a value that is JSON is taken as that, all else as text */
} fth_pair_values;
fth_status fth_cli_read_pairs(const char *flag, const char *lines, fth_pair_values kind, json_t *object);

/* ---- functions_display.c: progress of invocations ----
 *
 * On a terminal: a table on standard error, redrawn. Elsewhere: a line on standard output for each
 * change. With --json: an event for each change and each invocation that has ended. One fleet at a
 * time.  */
void fth_fleet_display_start(bool json);
void fth_fleet_display_show(void *context, const fth_fleet_row *rows, int count);
void fth_fleet_display_ended(void *context, int number, const fth_invocation_outcome *outcome);
/* Removes the live table and prints the final one, or the event "end" with `status` as its
 * "state". */
fth_status fth_fleet_display_stop(const char *function, const json_t *results, fth_status status);

/* A value of a result: its text, "-" where there is none. */
const char *fth_cli_text_member(const json_t *object, const char *key);

/* Rows for an fth_provider_flags that lies at `at` in the command's options. */
/* clang-format off: a macro of rows is read by rows */
#define FTH_PROVIDER_ROWS(at)                                                                                          \
    {FTH_OPTION_ROW_AT("provider", CHOICE, (at) + offsetof(fth_provider_flags, provider)),                             \
     .fallback = "local",                                                                                              \
     .argument = "NAME",                                                                                               \
     .list = fth_cli_provider_choice,                                                                                  \
     .help = "the platform",                                                                                           \
     .group = "Platform"},                                                                                             \
        {FTH_OPTION_ROW_AT("host", TEXT, (at) + offsetof(fth_provider_flags, host)), .argument = "HOST|URL|FOLDER",    \
         .check = fth_address_check_plain,                                                                             \
         .help =                                                                                                       \
             "OpenWhisk's API host, else WHISK_APIHOST or ~/.wskprops; Lambda's address, else AWS_ENDPOINT_URL or "    \
             "AWS; local: the folder of its state"},                                                                   \
        {FTH_OPTION_ROW_AT("region", TEXT, (at) + offsetof(fth_provider_flags, region)), .argument = "REGION",         \
         .help = "of AWS; else AWS_REGION, the profile's"},                                                            \
        {FTH_OPTION_ROW_AT("ca-file", TEXT, (at) + offsetof(fth_provider_flags, ca_file)), .argument = "FILE",         \
         .help = "certificates to trust instead of the system's"},                                                     \
    {                                                                                                                  \
        FTH_OPTION_ROW_AT("insecure", SWITCH, (at) + offsetof(fth_provider_flags, insecure)),                          \
            .help = "accept any certificate of OpenWhisk, as wsk -i does; an attacker on the network can then read "   \
                    "its key"                                                                                          \
    }
/* clang-format on */

#endif
