/* The program `farthing`: one file per command, cmd_<name>.c, each a row of FTH_COMMANDS. */
#ifndef FTH_CLI_CLI_H
#define FTH_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/base.h"
#include "base/exit_code.h"
#include "base/options.h"
#include "train/train.h"

/* How the program was called. */
typedef struct fth_invocation {
    const char *program; /* as typed */
    int argc;            /* arguments after the command's name */
    char *const *argv;
} fth_invocation;

typedef struct fth_example {
    const char *line, *meaning; /* NULL: past the last */
} fth_example;

struct fth_arguments;

typedef struct fth_command {
    const char *name;                       /* of one below another, both words: "serve parameters" */
    const char *arguments;                  /* "[FILE.yaml] [--flag value ...]" */
    const char *summary;                    /* one line */
    const char *details;                    /* more for --help, whole lines; may be NULL */
    const fth_example *examples;            /* may be NULL */
    fth_choices actions;                    /* words of which it takes one first: ls, cat, cp; NULL: none */
    const struct fth_command *const *parts; /* commands below this one, which has no options then; NULL: none */
    fth_choices list_parts;                 /* the same, for messages */
    const char *part_subject;               /* what they are: "the service" */
    const struct fth_command *wraps;        /* takes this command, with its options, after --; NULL: none */
    bool for_developers;
    bool hidden;                                 /* not listed: the program calls it itself */
    bool computes;                               /* runs plans: main() chooses how threads wait first */
    const fth_option_table *table;               /* its flags; or */
    const fth_option_table *(*make_table)(void); /* a function that puts it together */
    fth_option_view options; /* what it takes of a table that commands share; all 0: what the table says */
    const char *(*long_flag)(char letter); /* of short switches, which may be joined: -rl; NULL: there are none */
    bool flags_only;                       /* any other argument is an error */
    const char *stop_words; /* signals request a stop on fth_arguments.stop, and this is printed; NULL: the command
                               watches signals itself, or not at all */
    /* `options` is the struct of its table. Not for commands with parts. */
    fth_exit_code (*run)(const struct fth_command *command, void *options, const struct fth_arguments *arguments);
} fth_command;

/* All commands, NULL-terminated (commands.c). Help, completion and manual pages are generated from
 * this list. */
extern const fth_command *const fth_commands[];
/* NULL if there is none of that name. */
const fth_command *fth_command_find(const char *name);
/* Reads the flags and runs the command, or the one below it that the first word names. */
fth_exit_code fth_command_run(const fth_command *command, const fth_invocation *invocation);
/* The options it takes: its table in its own view. */
fth_option_table fth_command_table(const fth_command *command);
/* "parameters" of "serve parameters". */
const char *fth_command_last_word(const fth_command *command);

/* Every command, in the order of --help; a new one is its file, cmd_NAME.c, and its row here. */
#define FTH_COMMANDS(ROW)                                                                                              \
    ROW(train)                                                                                                         \
    ROW(launch)                                                                                                        \
    ROW(standby)                                                                                                       \
    ROW(plan)                                                                                                          \
    ROW(rehearse)                                                                                                      \
    ROW(evaluate)                                                                                                      \
    ROW(predict)                                                                                                       \
    ROW(export)                                                                                                        \
    ROW(report)                                                                                                        \
    ROW(compare)                                                                                                       \
    ROW(runs)                                                                                                          \
    ROW(models)                                                                                                        \
    ROW(weights)                                                                                                       \
    ROW(data)                                                                                                          \
    ROW(prices)                                                                                                        \
    ROW(doctor)                                                                                                        \
    ROW(store)                                                                                                         \
    ROW(serve)                                                                                                         \
    ROW(worker)                                                                                                        \
    ROW(functions)                                                                                                     \
    ROW(keys)                                                                                                          \
    ROW(token)                                                                                                         \
    ROW(completion)                                                                                                    \
    ROW(bench)                                                                                                         \
    ROW(options)                                                                                                       \
    ROW(man)                                                                                                           \
    ROW(hogwild_worker)                                                                                                \
    ROW(batches_agent)

#define FTH_DECLARE(name) extern const fth_command fth_command_##name;
FTH_COMMANDS(FTH_DECLARE)
#undef FTH_DECLARE

/* ---- arguments ---- */

/* A command line, read. */
typedef struct fth_arguments {
    const char **positional; /* arguments other than flags, followed by two NULLs; point into argv */
    int count;
    char **spelled;                   /* argv with short switches expanded, or NULL */
    const fth_invocation *invocation; /* all of it */
    fth_stop *stop;                   /* of a command with stop_words; else NULL */
} fth_arguments;
void fth_arguments_release(fth_arguments *arguments);
/* The training that a command wraps: what comes after its own flags, without the word `train`. */
fth_invocation fth_arguments_job(const fth_arguments *arguments);

/* "name  what it does", with the second column at `left`, in lines as wide as those of --help. */
void fth_cli_print_item(const char *name, const char *summary, size_t left);
/* What --help prints; `table` holds the options of the command in its view. */
void fth_cli_print_help(const fth_command *command, const fth_option_table *table);

/* Sets `values`, described by the command's table, to defaults and reads the flags. If false,
 * --help was printed or an error reported, and *code is the exit code. Release `values` and
 * `arguments` in either case. */
bool fth_cli_read_flags(const fth_command *command, const fth_invocation *invocation, void *values,
                        fth_arguments *arguments, fth_exit_code *code);

/* The same for commands that take training options from a file as well: defaults, then the
 * configuration of a run (where `base` is not NULL), then the YAML file (where `path` is not NULL),
 * then flags. */
bool fth_cli_layer_options(const fth_invocation *invocation, const json_t *base, const char *path,
                           fth_train_options *options, fth_exit_code *code);

/* Reads the options of a training that another command starts; `job` holds the words after `train`.
 * If false, an error was reported, and *code is the exit code. Release `options` in either case. */
bool fth_cli_read_job(const fth_invocation *job, fth_train_options *options, fth_exit_code *code);

/* True for names that end in .yaml or .yml. */
bool fth_cli_is_yaml(const char *name);

/* ---- messages and results ---- */

/* Reports the calling thread's error and gives the exit code of a failure. */
fth_exit_code fth_cli_fail(void);
/* Reports an error in the arguments, and where to find help. */
fth_exit_code fth_cli_usage(const fth_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The exit code of a command that ended with `status`; reports an error. */
fth_exit_code fth_cli_exit_code(fth_status status);
/* Reports a word that is none of `list`: names them all, and the nearest. */
fth_exit_code fth_cli_usage_choice(const fth_command *command, const char *subject, const char *text, fth_choices list);
/* Flushes standard output. If its reader is gone, requests that the run stop and save. */
void fth_cli_flush(void);
/* Prints a JSON value as one line on standard output and flushes it. A value that could not be
 * built (NULL) is reported as an error, and main() fails. */
void fth_cli_print_json(const json_t *json);
void fth_cli_print_json_new(json_t *json); /* and gives up the reference */
bool fth_cli_output_is_lost(void);
/* A name from outside as a JSON string; bytes that are not UTF-8 are written as \x escapes. */
json_t *fth_cli_json_text(const char *text);

/* ---- training ---- */

/* The table of train, standby and evaluate (train_choices.c): fth_train_option_table, row for
 * row. */
const fth_option_table *fth_cli_train_table(void);

/* Runs train and standby. */
fth_exit_code fth_cli_train(const fth_command *command, void *options, const fth_arguments *arguments);

/* Prints a word of a command line, quoted for a shell if necessary. */
void fth_cli_print_word(FILE *output, const char *word);

/* For a process that trains with peers (own_gpu.c): makes one of the machine's GPUs the only
 * visible one. Call before opening a device. */
fth_status fth_cli_take_gpu(void);
/* The number of GPUs that this process may use, without asking the driver. */
int fth_cli_count_gpus(void);

/* --dry-run (dry_run.c): checks everything and prints the configuration. `by_flag`: the options
 * set by flags, not by a file. */
fth_exit_code fth_cli_dry_run(const fth_train_options *options, const fth_option_bits *by_flag);

/* ---- runs ---- */

/* Reads a record by id, path or the address of a run in a store; "" is the newest. */
fth_status fth_cli_read_run(const char *runs_folder, const char *id_or_path, const fth_store_options *store,
                            fth_record_summary *summary);

/* ---- signals.c: Ctrl-C ---- */

/* Requests a stop on SIGINT, SIGHUP, SIGTERM and SIGUSR1, the latter two as a preemption with the
 * scheduler's deadline; signals.c explains when a second signal ends the process. Call before
 * creating threads. */
void fth_signals_watch(fth_stop *stop);
void fth_signals_unwatch(void);
/* Before the watch: what is printed on a terminal at the first signal, if not FTH_SAVING_WORDS. */
#define FTH_SAVING_WORDS "finishing the step and saving; press Ctrl-C again to stop at once"
void fth_signals_set_words(const char *words);
/* Requests the same stop from the program itself; does nothing if no run is watched. */
void fth_signals_stop(void);

/* ---- progress.c: what a run shows while it trains ---- */

/* Starts the display; with `json`, only events go to standard output. One run at a time. */
void fth_display_start(bool json, fth_train_observer *observer);
/* Removes the live line. True if an event "end", "error" or "interrupted" was shown. */
bool fth_display_stop(void);

/* Starts the program again with settings for OpenMP, unless they are set (wait_policy.c). */
void fth_choose_wait_policy(char **argv);

#endif
