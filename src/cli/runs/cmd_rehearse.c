/* farthing rehearse: how a job would fare on machines that vanish, tried on this one. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "rehearse/rehearse.h"
#include "report/report.h"

typedef struct rehearse_options {
    fth_option_bits set;
    char *notices, *cloud, *folder;
    double every_s, kill9_s, notice_s, gap_s, limit_s, price;
    int64_t interruptions, seed;
    bool verify, keep, json;
} rehearse_options;

/* The kinds with a notice, so not kill -9; or a mix of all. */
static fth_choice choose_cloud(size_t index)
{
    size_t kind = index + FTH_INTERRUPTION_KILL9 + 1;
    if (kind == FTH_INTERRUPTION_KINDS)
        return (fth_choice){"mixed", "a mix of these, and kills without notice (kill -9)"};
    return (fth_choice){.name = kind < FTH_INTERRUPTION_KINDS ? fth_interruption_names[kind] : NULL};
}

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, rehearse_options, member)
static const fth_option rows[] = {
    {ROW("every", DURATION, every_s), .argument = "TIME",
     .help = "give notice about this often, at moments drawn from --seed", .group = "What happens to the machines"},
    {ROW("kill9", DURATION, kill9_s), .argument = "TIME", .help = "kill without notice about this often"},
    {ROW("notices", TEXT, notices), .argument = "TRACE.yaml",
     .help = "instead: a list of {at: 12s | after_step: 40, kind: aws|gcp|azure|signal|file|kill9, notice: 120s, gap: "
             "5s}, one for each machine"},
    {ROW("cloud", CHOICE, cloud), .fallback = "aws", .argument = "KIND", .help = "who gives the notice",
     .list = choose_cloud},
    {ROW("notice", DURATION, notice_s), .argument = "TIME",
     .help = "between notice and end; else 120s for aws, 30s for the others. A job that takes longer is killed"},
    {ROW("gap", DURATION, gap_s), .argument = "TIME", .help = "until there is another machine"},
    {ROW("interruptions", INTEGER, interruptions), .fallback = "0", .argument = "N",
     .help = "then leave the job alone; 0: until it ends", .maximum = 1e6},
    {ROW("seed", INTEGER, seed), .fallback = "0", .argument = "N", .help = "of the moments and kinds", .maximum = 9e15},
    {ROW("verify", SWITCH, verify), .fallback = "yes",
     .help = "first run the job uninterrupted, and compare the final weights byte for byte; takes as long as the job",
     .group = "The rehearsal"},
    {ROW("price", NUMBER, price), .fallback = "0", .argument = "USD",
     .help = "of a machine, in dollars an hour; else what the job's record says", .maximum = 1e6},
    {ROW("folder", TEXT, folder), .argument = "FOLDER",
     .help = "where logs, events and runs of the machines go; else rehearsals/TIME"},
    {ROW("keep", SWITCH, keep),
     .help = "leave what was stored under the job's --checkpoints; else it is deleted in the end"},
    {ROW("limit", DURATION, limit_s), .fallback = "1d", .argument = "TIME", .help = "give up after this long"},
    {ROW("json", SWITCH, json), .help = "print the result as one JSON object"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, rehearse_options);

/* ---- showing it ---- */

static void tell(void *context, const char *line)
{
    (void)context;
    fth_log_info("%s", line);
}

static void write_seconds(double seconds, char *text, size_t size)
{
    if (isfinite(seconds))
        snprintf(text, size, "%.2f s", seconds);
    else
        snprintf(text, size, "-");
}

static void write_dollars(double dollars, char *text, size_t size)
{
    if (isfinite(dollars))
        snprintf(text, size, "$%.6f", dollars);
    else
        snprintf(text, size, "-");
}

static fth_status print_accounts(const fth_rehearsal *rehearsal)
{
    fth_status status = FTH_OK;
    fth_table *shown = NULL;
    FTH_TRY(FTH_TABLE(&shown, ">#", "kind", "during", ">step", ">notice", ">used", ">saved", ">resumed at",
                      ">steps lost", ">time lost", ">money lost"));
    for (size_t i = 0; i < rehearsal->count; i++) {
        const fth_interruption_account *account = &rehearsal->accounts[i];
        char number[32], step[32], notice[32] = "-", used[48] = "-", saved[32], resumed[32] = "-", steps[32],
                                   seconds[32], dollars[32];
        snprintf(number, sizeof number, "%zu", i + 1);
        snprintf(step, sizeof step, "%lld", (long long)account->step);
        if (account->planned.kind != FTH_INTERRUPTION_KILL9) {
            snprintf(notice, sizeof notice, "%.4g s", account->planned.notice_s);
            write_seconds(account->notice_used_s, used, sizeof used);
        }
        if (account->outlived)
            snprintf(used, sizeof used, "too long");
        snprintf(saved, sizeof saved, "%lld", (long long)account->saved_step);
        if (account->resumed_step >= 0)
            snprintf(resumed, sizeof resumed, "%lld", (long long)account->resumed_step);
        snprintf(steps, sizeof steps, "%lld", (long long)account->steps_lost);
        write_seconds(account->seconds_lost, seconds, sizeof seconds);
        write_dollars(account->dollars_lost, dollars, sizeof dollars);
        const char *const cells[] = {number,          fth_interruption_names[account->planned.kind],
                                     account->moment, step,
                                     notice,          used,
                                     saved,           resumed,
                                     steps,           seconds,
                                     dollars};
        FTH_TRY(fth_table_add_row(shown, cells));
    }
    fth_table_print(stdout, shown);
out:
    fth_table_free(shown);
    return status;
}

static void print_conclusion(const fth_rehearsal *rehearsal)
{
    int64_t notices = 0, used = 0, steps = 0;
    double seconds = 0, dollars = 0;
    bool priced = false;
    for (size_t i = 0; i < rehearsal->count; i++) {
        const fth_interruption_account *account = &rehearsal->accounts[i];
        bool notice = account->planned.kind != FTH_INTERRUPTION_KILL9;
        notices += notice;
        used += notice && !account->outlived;
        steps += account->steps_lost;
        seconds += isfinite(account->seconds_lost) ? account->seconds_lost : 0;
        dollars += isfinite(account->dollars_lost) ? account->dollars_lost : 0;
        priced = priced || isfinite(account->dollars_lost);
    }
    char lost[32], time[32];
    write_dollars(priced ? dollars : NAN, lost, sizeof lost);
    fth_duration_format(rehearsal->seconds, time, sizeof time);
    printf("%s, %lld of %s used; lost %lld of %s, %.1f s of %s, %s\n", FTH_COUNTED(rehearsal->count, "interruption"),
           (long long)used, FTH_COUNTED(notices, "notice"), (long long)steps, FTH_COUNTED(rehearsal->steps, "step"),
           seconds, time, lost);
    if (rehearsal->torn > 0)
        printf("checkpoints that were not whole and had to be skipped: %lld\n", (long long)rehearsal->torn);
    if (rehearsal->lost_before_checkpoint > 0)
        printf("machines that went on from before the last complete checkpoint: %lld\n",
               (long long)rehearsal->lost_before_checkpoint);
    if (rehearsal->uninterrupted_model)
        printf("the final weights %s those of the uninterrupted run: %s\n",
               rehearsal->equal ? "equal, byte for byte," : "DIFFER from", rehearsal->model);
}

/* ---- the job ---- */

/* The job's options by name, from flags and its YAML file; NULL: they are wrong, *code says how to
 * exit. */
static json_t *read_job(const fth_arguments *arguments, fth_exit_code *code)
{
    const fth_invocation job = fth_arguments_job(arguments);
    fth_train_options options = {0};
    json_t *all = NULL;
    if (fth_cli_read_job(&job, &options, code))
        all = fth_options_to_json(&fth_train_option_table, &options, false);
    fth_options_release(&fth_train_option_table, &options);
    return all;
}

static const char *text_of(const json_t *job, const char *option)
{
    const char *text = json_string_value(json_object_get(job, option));
    return text ? text : "";
}

static bool is_limited_by_time_only(const json_t *job)
{
    const json_t *time = json_object_get(job, "for");
    return (json_number_value(time) > 0 || (json_string_value(time) && *json_string_value(time))) &&
           json_integer_value(json_object_get(job, "epochs")) == 0 &&
           json_integer_value(json_object_get(job, "steps")) == 0;
}

static fth_status make_plan(const rehearse_options *options, fth_interruption_plan *plan)
{
    *plan = (fth_interruption_plan){.every_s = options->every_s,
                                    .kill9_s = options->kill9_s,
                                    .cloud = FTH_INTERRUPTION_KINDS,
                                    .notice_s = options->notice_s,
                                    .gap_s = options->gap_s,
                                    .seed = (uint64_t)options->seed};
    for (int i = 0; i < FTH_INTERRUPTION_KINDS; i++)
        if (strcmp(options->cloud, fth_interruption_names[i]) == 0)
            plan->cloud = i;
    return *options->notices ? fth_interruption_plan_read(options->notices, plan) : FTH_OK;
}

static char *name_folder(const rehearse_options *options)
{
    char text[64];
    if (*options->folder)
        return fth_format("%s", options->folder);
    time_t now = (time_t)fth_clock_wall_seconds();
    struct tm parts;
    localtime_r(&now, &parts);
    strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
    return fth_format("rehearsals/%s-%d", text, (int)getpid());
}

static fth_exit_code rehearse(const rehearse_options *options, const char *const *arguments, const json_t *job,
                              fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_interruption_plan plan = {0};
    fth_rehearsal rehearsal = {0};
    char program[4096] = "", *folder = name_folder(options);
    FTH_REQUIRE(readlink("/proc/self/exe", program, sizeof program - 1) > 0, FTH_IO, "find this program's file: %s",
                strerror(errno));
    FTH_REQUIRE(!fth_folder_exists(folder), FTH_INVALID, "%s exists; a rehearsal starts in a new folder", folder);
    FTH_TRY(make_plan(options, &plan));
    fth_rehearsal_options what = {.program = program,
                                  .arguments = arguments,
                                  .checkpoints = text_of(job, "checkpoints"),
                                  .store = {.s3_endpoint = text_of(job, "s3-endpoint"),
                                            .s3_region = text_of(job, "s3-region"),
                                            .s3_style = text_of(job, "s3-style")},
                                  .folder = folder,
                                  .plan = &plan,
                                  .interruptions = options->interruptions,
                                  .verify = options->verify,
                                  .keep = options->keep,
                                  .price_usd_per_hour = options->price,
                                  .limit_s = options->limit_s,
                                  .stop = stop,
                                  .tell = tell};
    FTH_TRY(fth_rehearse(&what, &rehearsal));
    if (options->json) {
        json_t *json = fth_rehearsal_to_json(&rehearsal);
        json_object_set_new(json, "folder", json_string(folder));
        fth_cli_print_json_new(json);
    } else {
        FTH_TRY(print_accounts(&rehearsal));
        print_conclusion(&rehearsal);
    }
out:;
    bool fine = status == FTH_OK && rehearsal.lost_before_checkpoint == 0 &&
                (rehearsal.equal || !rehearsal.uninterrupted_model);
    fth_exit_code code = status != FTH_OK ? fth_cli_fail() : fine ? FTH_EXIT_OK : FTH_EXIT_FAILURE;
    fth_rehearsal_release(&rehearsal);
    fth_interruption_plan_release(&plan);
    free(folder);
    return code;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const rehearse_options *asked = options;
    fth_exit_code code;
    if (arguments->count < 1 || strcmp(arguments->positional[0], "train") != 0)
        return fth_cli_usage(command,
                             "the job comes after --, as in: farthing rehearse --every 30s -- train --data digits");
    if ((asked->every_s > 0 || asked->kill9_s > 0) == (*asked->notices != '\0'))
        return fth_cli_usage(command, "say what happens to the machines: --every and --kill9, or --notices");
    json_t *job = read_job(arguments, &code);
    if (job && asked->verify && is_limited_by_time_only(job))
        code = fth_cli_usage(command, "a job that --for ends never ends at the same step twice, so its final weights "
                                      "cannot be compared: give it --epochs or --steps, or add --no-verify");
    else if (job)
        code = rehearse(asked, arguments->positional, job, arguments->stop);
    json_decref(job);
    return code;
}

const fth_command fth_command_rehearse = {
    .name = "rehearse",
    .arguments = "--every TIME | --kill9 TIME | --notices TRACE.yaml [--flag value ...] -- train ...",
    .summary = "run a job under interruptions, and report what each one cost",
    .details =
        "Runs the job on this machine, one process after another, each ended as a cloud would: a notice by a "
        "simulated\n"
        "metadata service, a signal or a file, and a kill where it is not out in time; or kill -9. A job with\n"
        "--checkpoints gets an empty runs folder on every machine and a place of its own under that address. Exits "
        "with\n"
        "1 if the final weights differ from the uninterrupted run's or more was lost than the steps since the last\n"
        "complete checkpoint.\n",
    .table = &table,
    .stop_words = "ending the rehearsal; press Ctrl-C again to stop at once",
    .wraps = &fth_command_train,
    .examples = (const fth_example[]){{"farthing rehearse --every 30s -- train --data digits --checkpoints copies/run",
                                       "machines that last about 30 s"},
                                      {0}},
    .run = run,
};
