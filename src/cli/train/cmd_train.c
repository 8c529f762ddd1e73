/* farthing train and farthing standby (cmd_standby.c). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "cli/cli.h"
#include "cli/model/weights.h"
#include "cluster/launcher.h"
#include "parallel/parallel.h"
#include "report/report.h"

/* ---- the command that continues ---- */

/* As $'...', in which bash and zsh understand the escapes of printable text. */
static void print_escaped_word(FILE *output, const char *word)
{
    char *doubled = calloc(2 * strlen(word) + 1, 1), *to = doubled;
    if (!doubled)
        return;
    for (; *word; word++) {
        if (*word == '\'' || *word == '\\')
            *to++ = '\\';
        *to++ = *word;
    }
    fth_print(output, "$'%s'", doubled);
    free(doubled);
}

void fth_cli_print_word(FILE *output, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, output);
        return;
    }
    if (!fth_is_printable(word)) {
        print_escaped_word(output, word);
        return;
    }
    fputc('\'', output);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", output);
        else
            fputc(*word, output);
    }
    fputc('\'', output);
}

static void print_command(FILE *output, const fth_invocation *invocation, bool add_resume)
{
    bool secret = false;
    const char *launch = getenv(FTH_LAUNCH_COMMAND);
    if (launch) {
        fth_print(output, "%s", launch);
    } else {
        fth_cli_print_word(output, invocation->program);
        fputs(" train", output);
    }
    for (int i = 0; i < invocation->argc; i++) {
        char *word = fth_address_public(invocation->argv[i]);
        fputc(' ', output);
        fth_cli_print_word(output, word ? word : "?");
        secret = secret || fth_address_has_secret(invocation->argv[i]);
        free(word);
    }
    fputs(add_resume ? " --resume\n" : "\n", output);
    if (secret)
        fputs("addresses are shown without passwords and signatures: add them again; " FTH_DATA_URL_VARIABLE
              " may hold the\nwhole address of the data instead\n",
              output);
}

/* ---- the last lines ---- */

static double number_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* An option from the run's own configuration, which --resume RUN uses instead of the flags. */
static const char *configured(const json_t *run, const char *option)
{
    const char *text = json_string_value(json_object_get(json_object_get(run, "configuration"), option));
    return text ? text : "-";
}

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "models in runs/a: last.safetensors, best.safetensors (...)". The models of a run that ended
 * elsewhere are in its store. */
static void print_models(const char *folder, const json_t *end)
{
    const char *last = json_string_value(json_object_get(end, "model"));
    const char *best = json_string_value(json_object_get(end, "best"));
    const bool has_last = last && fth_file_exists(last), has_best = best && fth_file_exists(best);
    if (!has_last && !has_best)
        return;
    fth_print(stdout, "models in %s: %s%s", folder, has_last ? name_in(last) : "", has_last && has_best ? ", " : "");
    if (has_best) {
        char accuracy[64], loss[64];
        fth_text_percent(number_of(end, "best_accuracy"), accuracy, sizeof accuracy);
        fth_text_loss(number_of(end, "best_loss"), loss, sizeof loss);
        fth_print(stdout, "%s (validation accuracy %s, loss %s)", name_in(best), accuracy, loss);
    }
    putchar('\n');
}

static void print_end(const fth_train_outcome *outcome)
{
    json_t *run = NULL;
    if (fth_record_read_run(outcome->run_folder, &run) != FTH_OK)
        fth_log_warning("%s", fth_error_message());
    const json_t *end = outcome->end;
    const char *verb = outcome->already_finished ? "already finished:" : "trained";
    char accuracy[64], loss[64], time[64], speed[64] = "-";
    fth_text_percent(number_of(end, "accuracy"), accuracy, sizeof accuracy);
    fth_text_loss(number_of(end, "loss"), loss, sizeof loss);
    fth_duration_format(number_of(end, "seconds"), time, sizeof time);
    if (isfinite(number_of(end, "samples_per_s")))
        fth_text_count(llround(number_of(end, "samples_per_s")), speed, sizeof speed);
    double epochs = number_of(end, "epochs");
    fth_print(stdout, "%s %s on %s: validation accuracy %s, loss %s, %.4g epoch%s, %s in %s (%s samples/s)", verb,
              configured(run, "model"), configured(run, "data"), accuracy, loss, epochs, epochs == 1 ? "" : "s",
              FTH_COUNTED(json_number_value(json_object_get(end, "steps")), "step"), time, speed);
    if (isfinite(number_of(end, "spent_usd"))) {
        char spent[64];
        fth_usd_format(number_of(end, "spent_usd"), spent, sizeof spent);
        printf("; cost %s", spent);
    }
    char *ending = fth_report_ending(run, end);
    if (ending)
        fth_print(stdout, "; ended: %s", ending);
    free(ending);
    if (isfinite(number_of(end, "test_loss"))) {
        fth_text_percent(number_of(end, "test_accuracy"), accuracy, sizeof accuracy);
        fth_text_loss(number_of(end, "test_loss"), loss, sizeof loss);
        printf("; test accuracy %s, loss %s, of the best model", accuracy, loss);
    }
    putchar('\n');
    print_models(outcome->run_folder, end);
    json_decref(run);
}

/* Names the run by its id if `report` finds it that way. */
static void print_report_command(const fth_invocation *invocation, const fth_train_options *options,
                                 const fth_train_outcome *outcome)
{
    char *usual = outcome->id ? fth_path_join(options->saving.runs, outcome->id) : NULL;
    const bool found = usual && strcmp(usual, outcome->run_folder) == 0;
    fputs("see it with: ", stdout);
    fth_cli_print_word(stdout, invocation->program);
    fputs(" report ", stdout);
    fth_cli_print_word(stdout, found ? outcome->id : outcome->run_folder);
    if (found && strcmp(options->saving.runs, "runs") != 0) {
        fputs(" --runs ", stdout);
        fth_cli_print_word(stdout, options->saving.runs);
    }
    putchar('\n');
    free(usual);
}

static fth_exit_code conclude(const fth_invocation *invocation, const fth_train_options *options,
                              const fth_train_outcome *outcome, bool told)
{
    if (outcome->follows || outcome->left) /* the peer that writes the record prints this */
        return outcome->interrupted ? FTH_EXIT_INTERRUPTED : FTH_EXIT_OK;
    if (outcome->interrupted) {
        FILE *output = options->json || ferror(stdout) ? stderr : stdout;
        bool stored = *options->store.checkpoints;
        bool anywhere = stored && !outcome->fenced && !outcome->local_copy &&
                        fth_options_is_set(&fth_train_option_table, options, "checkpoints");
        if (outcome->local_copy)
            fth_print_line(output, "%s", outcome->local_copy);
        fprintf(output, "%s%s:\n  ",
                outcome->fenced       ? "stopped: another machine continues this run. To wait for it"
                : outcome->run_folder ? "stopped and saved; this continues the run"
                                      : "stopped before anything was trained; this begins again",
                anywhere              ? ", on any machine"
                : outcome->local_copy ? ", on this machine"
                                      : "");
        print_command(output, invocation, outcome->run_folder && !*options->resume && !stored);
        return FTH_EXIT_INTERRUPTED;
    }
    if (options->json) {
        if (!told && outcome->end)
            fth_cli_print_json(outcome->end);
        return FTH_EXIT_OK;
    }
    print_end(outcome);
    print_report_command(invocation, options, outcome);
    return FTH_EXIT_OK;
}

/* Scripts that read events always get a last one, even if the run never started. */
static fth_exit_code give_up(const fth_train_options *options, fth_status status, bool told)
{
    if (options->json && !told) {
        fth_cli_print_json_new(json_pack("{s:s, s:s, s:s}", "event", "error", "status", fth_status_name(status),
                                         "message", fth_error_message()));
    }
    return fth_cli_fail();
}

static fth_stop stop_requested = FTH_STOP_INITIALIZER;

/* What the process runs, for abandon(). */
static struct {
    const fth_invocation *invocation;
    const fth_train_options *options;
} running;

/* The deadline passed while the training thread was busy; everything that could be saved is saved.
 * Frees nothing and runs no exit handlers, since these could wait for that thread. */
static void abandon(void *context, const char *message)
{
    (void)context;
    fth_log_info("%s; ending with exit code %d. This continues the run:", message, FTH_EXIT_INTERRUPTED);
    fputs("  ", stderr);
    print_command(stderr, running.invocation, !*running.options->resume && !*running.options->store.checkpoints);
    _exit(FTH_EXIT_INTERRUPTED);
}

static bool has_peers(const fth_train_options *options)
{
    const fth_strategy *strategy = NULL;
    return fth_strategy_find(fth_strategies, options->strategy, &strategy) == FTH_OK && strategy->meet;
}

static fth_exit_code train(const fth_invocation *invocation, fth_train_options *options)
{
    fth_status status = FTH_OK;
    char program[4096];
    fth_train_observer observer;
    fth_train_outcome outcome = {0};
    bool told = false;
    FTH_TRY(fth_parallel_follow_parent());
    if (has_peers(options))
        FTH_TRY(fth_cli_take_gpu());
    fth_signals_watch(&stop_requested);
    fth_display_start(options->json, &observer);
    observer.abandon = abandon;
    running.invocation = invocation;
    running.options = options;
    status =
        fth_parallel_train(options, fth_process_program(program, sizeof program), &observer, &stop_requested, &outcome);
    fth_signals_unwatch();
    told = fth_display_stop();
out:;
    bool interrupted = status == FTH_INTERRUPTED || outcome.interrupted;
    outcome.interrupted = interrupted;
    fth_exit_code code = status == FTH_OK || interrupted ? conclude(invocation, options, &outcome, told)
                                                         : give_up(options, status, told);
    fth_train_outcome_release(&outcome);
    return code;
}

/* A run resumed by name has a strategy: fth_train() checks the options against it. */
static fth_status check_strategy(const fth_train_options *options)
{
    const fth_strategy *strategy = NULL;
    bool names_run = *options->resume && (strcmp(options->resume, "auto") != 0 || *options->saving.name);
    if (names_run && !fth_options_is_set(&fth_train_option_table, options, "strategy"))
        return FTH_OK;
    return fth_strategy_choose(fth_strategies, options, &strategy);
}

/* --weights RUN: the model of a run, by its folder or its id in --runs. Anything else is left for
 * the training to open. */
static fth_status find_weights(fth_train_options *options)
{
    fth_status status = FTH_OK;
    fth_cli_weights weights = {0};
    char *run = fth_path_join(options->saving.runs, options->weights);

    FTH_REQUIRE(run, FTH_NO_MEMORY, "no memory for a path");
    const bool by_id = !strchr(options->weights, '/') && !fth_folder_exists(options->weights) &&
                       !fth_file_exists(options->weights) && fth_record_exists(run);
    if (!*options->weights || (!by_id && !fth_record_exists(options->weights)))
        goto out;
    FTH_TRY(fth_cli_find_weights(options->weights, options->saving.runs, NULL, &weights));
    free(options->weights);
    options->weights = fth_format("%s", weights.path);

out:
    free(run);
    fth_cli_weights_release(&weights);
    return status;
}

fth_exit_code fth_cli_train(const fth_command *command, void *options, const fth_arguments *arguments)
{
    fth_train_options *asked = options;
    const fth_option_bits by_flag = asked->set; /* before a file's are added */
    const char *file = arguments->positional[0];
    fth_exit_code code;
    const fth_model *model;

    if (arguments->count > 1)
        return fth_cli_usage(command, "one FILE.yaml at most, not %d: %s, %s", arguments->count, file,
                             arguments->positional[1]);
    if (file && !fth_cli_is_yaml(file) && !fth_file_exists(file)) {
        bool is_model = fth_model_find(file, &model) == FTH_OK;
        return fth_cli_usage(command, "\"%s\" is not a FILE.yaml%s%s%s", file,
                             is_model ? "; did you mean --model " : "", is_model ? file : "", is_model ? "?" : "");
    }
    if (file && !fth_cli_layer_options(arguments->invocation, NULL, file, asked, &code))
        return code;
    const fth_status found = fth_train_find_resumed(asked);
    if (found != FTH_OK)
        return give_up(asked, found, false);
    if (find_weights(asked) != FTH_OK || fth_train_options_resolve(asked) != FTH_OK ||
        fth_train_options_check(asked) != FTH_OK || check_strategy(asked) != FTH_OK)
        return fth_cli_usage(command, "%s", fth_error_message());
    asked->standby = command == &fth_command_standby;
    if (asked->standby && !*asked->store.checkpoints)
        return fth_cli_usage(command, "missing the run to stand by for: give --checkpoints URL");
    return asked->dry_run ? fth_cli_dry_run(asked, &by_flag) : train(arguments->invocation, asked);
}

const fth_command fth_command_train = {
    .name = "train",
    .arguments = "[FILE.yaml] [--flag value ...]",
    .summary = "train a network",
    .details =
        "A key in FILE.yaml and a flag are the same thing; a flag wins over the file, the file over the default.\n"
        "Ctrl-C finishes the step, saves, and prints the command that continues the run. With --checkpoints URL the\n"
        "run lives there: the same command on any machine continues it, one machine at a time.\n",
    .computes = true,
    .make_table = fth_cli_train_table,
    .options = {.command = FTH_FOR_TRAIN},
    .examples = (const fth_example[]){{"farthing train", "the first run, on built-in data"},
                                      {"farthing train --model resnet18 --data ./photos --epochs 10 --optimizer adamw",
                                       "photos in class folders"},
                                      {"farthing train --data news.csv --weights ./bert-base-uncased --optimizer adamw "
                                       "--lr 5e-5 --epochs 3",
                                       "fine-tune a BERT on texts"},
                                      {"farthing train run.yaml --resume", "continue where it stopped"},
                                      {"farthing train --data ./photos --checkpoints s3://bucket/run",
                                       "a run that survives its machine"},
                                      {0}},
    .run = fth_cli_train,
};
