/* Machine after machine until the job ends, and the account of it. See rehearse.h. */
#include "rehearse/rehearse.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "rehearse/machine.h"
#include "rehearse/simulation.h"

enum { MAX_MACHINES = 100000, MAX_ARGUMENTS = 512 };

#define LOOK_S             0.05
#define A_DAY_S            86400.0
#define WALL_CLOCK_SLACK_S 0.5 /* clouds do not kill to the millisecond */

typedef struct fth_rehearsing {
    const fth_rehearsal_options *options;
    fth_rehearsal *result;
    fth_simulation *simulation;
    char *checkpoints; /* a place of our own under the job's; NULL: none */
    fth_deadline deadline;
    double began_s;
    size_t account_capacity;
    int64_t best_saved_step; /* over all machines */
    size_t unresolved;       /* accounts from here on wait for a machine that starts training */
} fth_rehearsing;

static void tell(const fth_rehearsing *now, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void tell(const fth_rehearsing *now, const char *format, ...)
{
    char line[512];
    va_list arguments;
    if (!now->options->tell)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    now->options->tell(now->options->tell_context, line);
}

/* ---- one machine ---- */

typedef struct machine_setup {
    char *folder, *runs, *watch, *file;
    char *own_store; /* of the uninterrupted run, whatever the job or its YAML says */
    char *environment_text[5];
    const char *environment[6];
    const char *arguments[MAX_ARGUMENTS];
} machine_setup;

static void release_setup(machine_setup *setup)
{
    free(setup->folder);
    free(setup->runs);
    free(setup->watch);
    free(setup->file);
    free(setup->own_store);
    for (size_t i = 0; i < FTH_COUNT_OF(setup->environment_text); i++)
        free(setup->environment_text[i]);
}

static fth_status add_arguments(machine_setup *setup, const char *first, const char *second)
{
    size_t count = 0;
    while (setup->arguments[count])
        count++;
    if (count + 3 > MAX_ARGUMENTS)
        return fth_fail(FTH_INVALID, "the job has too many arguments");
    setup->arguments[count] = first;
    setup->arguments[count + 1] = second;
    return FTH_OK;
}

/* The metadata services that the machine finds: only that of its cloud. */
static void set_environment(const fth_rehearsing *now, fth_interruption_kind kind, double notice_s,
                            machine_setup *setup)
{
    static const struct {
        fth_interruption_kind kind;
        const char *variable;
    } clouds[] = {{FTH_INTERRUPTION_AWS, "FARTHING_AWS_METADATA"},
                  {FTH_INTERRUPTION_GCP, "FARTHING_GCP_METADATA"},
                  {FTH_INTERRUPTION_AZURE, "FARTHING_AZURE_METADATA"}};
    size_t count = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(clouds); i++, count++)
        setup->environment_text[count] =
            clouds[i].kind == kind
                ? fth_format("%s=http://127.0.0.1:%d", clouds[i].variable, fth_simulation_port(now->simulation))
                : fth_format("%s=off", clouds[i].variable);
    /* The keys of a role still come from the real machine. */
    const char *real = getenv("FARTHING_AWS_METADATA");
    if (!getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT") && !(real && strcmp(real, "off") == 0))
        setup->environment_text[count++] =
            fth_format("AWS_EC2_METADATA_SERVICE_ENDPOINT=%s", real && *real ? real : "http://169.254.169.254");
    if (kind == FTH_INTERRUPTION_SIGNAL)
        setup->environment_text[count++] = fth_format("FARTHING_GRACE_S=%.3f", notice_s);
    for (size_t i = 0; i < count; i++)
        setup->environment[i] = setup->environment_text[i];
}

static bool gives_flag(const char *const *arguments, const char *flag)
{
    size_t length = strlen(flag);
    for (; *arguments; arguments++)
        if (strncmp(*arguments, flag, length) == 0 && ((*arguments)[length] == '\0' || (*arguments)[length] == '='))
            return true;
    return false;
}

/* The job's own arguments, and after them, so that they win, what a rehearsal needs. `alone`: the
 * uninterrupted run. */
static fth_status set_up(const fth_rehearsing *now, int64_t number, const fth_interruption *planned, bool alone,
                         machine_setup *setup)
{
    fth_status status = FTH_OK;
    const fth_rehearsal_options *options = now->options;
    fth_interruption_kind kind = planned ? planned->kind : FTH_INTERRUPTION_KILL9;
    memset(setup, 0, sizeof *setup);
    setup->folder = alone ? fth_format("%s/uninterrupted", options->folder)
                          : fth_format("%s/machine-%04" PRId64, options->folder, number);
    setup->runs =
        alone || now->checkpoints ? fth_path_join(setup->folder, "runs") : fth_path_join(options->folder, "runs");
    setup->file = fth_path_join(setup->folder, "preempt.txt");
    setup->own_store = fth_path_join(setup->folder, "store");
    FTH_REQUIRE(setup->runs && setup->file && setup->own_store, FTH_NO_MEMORY, "no memory for a path");
    setup->watch = kind == FTH_INTERRUPTION_FILE ? fth_format("file:%s", setup->file)
                                                 : fth_format("%s", kind >= FTH_INTERRUPTION_AWS ? "auto" : "none");
    set_environment(now, kind, planned ? planned->notice_s : 0, setup);
    FTH_TRY(add_arguments(setup, options->program, NULL));
    for (const char *const *argument = options->arguments; *argument; argument++)
        FTH_TRY(add_arguments(setup, *argument, NULL));
    FTH_TRY(add_arguments(setup, "--runs", setup->runs));
    FTH_TRY(add_arguments(setup, "--watch", alone ? "none" : setup->watch));
    if (now->checkpoints)
        FTH_TRY(add_arguments(setup, "--checkpoints", alone ? setup->own_store : now->checkpoints));
    FTH_TRY(add_arguments(setup, "--json", NULL));
    if (!gives_flag(options->arguments, "--resume") && !alone)
        FTH_TRY(add_arguments(setup, "--resume", NULL));
out:
    return status;
}

/* ---- interrupting ---- */

/* Is it time? */
static bool is_due(const fth_trial *trial, const fth_interruption *planned)
{
    double since = planned->from_spawn ? trial->spawned_s : trial->began_s;
    if (planned->after_step > 0)
        return !isnan(trial->began_s) && trial->step >= planned->after_step;
    return !isnan(since) && fth_clock_seconds() - since >= planned->at_s;
}

static fth_status give_notice(fth_rehearsing *now, const machine_setup *setup, const fth_trial *trial,
                              const fth_interruption *planned)
{
    char seconds[32];
    switch (planned->kind) {
    case FTH_INTERRUPTION_KILL9: kill(trial->pid, SIGKILL); return FTH_OK;
    case FTH_INTERRUPTION_SIGNAL: kill(trial->pid, SIGTERM); return FTH_OK;
    case FTH_INTERRUPTION_FILE:
        snprintf(seconds, sizeof seconds, "%.3f\n", planned->notice_s);
        return fth_file_write_all(setup->file, seconds, strlen(seconds));
    default: fth_simulation_announce(now->simulation, planned->kind, planned->notice_s); return FTH_OK;
    }
}

static const char *moment_of(const fth_trial *trial)
{
    if (isnan(trial->began_s))
        return "start-up";
    return trial->evaluating ? "evaluation" : "training";
}

/* ---- the account ---- */

static fth_status add_account(fth_rehearsing *now, const fth_interruption_account *account)
{
    fth_rehearsal *result = now->result;
    fth_status status = fth_grow(&result->accounts, result->count, &now->account_capacity, sizeof *result->accounts);
    if (status == FTH_OK)
        result->accounts[result->count++] = *account;
    return status;
}

static double price_of(const fth_rehearsing *now, const fth_trial *trial)
{
    return now->options->price_usd_per_hour > 0 ? now->options->price_usd_per_hour : trial->price_usd_per_hour;
}

/* A machine started at a step, so the cost of the interruptions before it is now known. Machines
 * that never started training lost only their own time. */
static void resolve(fth_rehearsing *now, const fth_trial *trial, const fth_trial *before)
{
    fth_rehearsal *result = now->result;
    double start_s = (isnan(trial->first_step_s) ? trial->began_s : trial->first_step_s) - trial->spawned_s;
    for (size_t i = now->unresolved; i < result->count; i++) {
        fth_interruption_account *account = &result->accounts[i];
        bool had_begun = !isnan(before->began_s) && i == now->unresolved;
        account->resumed_step = trial->begun_step;
        if (had_begun) {
            account->steps_lost = account->step > trial->begun_step ? account->step - trial->begun_step : 0;
            account->seconds_lost = fmax(0, before->ended_s - fth_trial_time_of_step(before, trial->begun_step));
        } else {
            account->seconds_lost = account->machine_s;
        }
        /* Machines of different clouds have different prices. */
        account->dollars_lost = account->seconds_lost * account->price_usd_per_hour / 3600;
        if (i + 1 == result->count) {
            account->seconds_lost += start_s;
            account->dollars_lost += start_s * price_of(now, trial) / 3600;
        }
    }
    if (result->count > now->unresolved && trial->begun_step < now->best_saved_step)
        result->lost_before_checkpoint++;
    now->unresolved = result->count;
}

static fth_status fail_job(const fth_trial *trial, const char *which)
{
    const char *said = json_string_value(json_object_get(trial->error, "message"));
    char *words = fth_trial_last_words(trial);
    fth_status status;
    if (trial->exit.code < 0)
        status = fth_fail(FTH_IO, "%s was ended by signal %d (%s); its log: %s", which, trial->exit.signal,
                          strsignal(trial->exit.signal), trial->log_path);
    else
        status = fth_fail(FTH_IO, "%s failed with exit code %d: %s; its log: %s", which, trial->exit.code,
                          said ? said : words, trial->log_path);
    free(words);
    return status;
}

/* ---- running them ---- */

/* Fails once the rehearsal must end before its job does. The caller ends a running machine by
 * closing it. */
static fth_status check_going_on(const fth_rehearsing *now)
{
    const fth_rehearsal_options *options = now->options;
    if (options->stop && options->stop->asked)
        return fth_fail(FTH_INTERRUPTED, "the rehearsal was stopped; logs and events are in %s", options->folder);
    if (fth_deadline_passed(now->deadline))
        return fth_fail(FTH_TIMEOUT, "the job did not end in time; see %s, or allow more with --limit",
                        options->folder);
    return FTH_OK;
}

/* Runs one machine to its end; *account and *interrupted describe its interruption. */
static fth_status run_machine(fth_rehearsing *now, int64_t number, const fth_interruption *planned, fth_trial *trial,
                              fth_interruption_account *account, bool *interrupted)
{
    fth_status status = FTH_OK;
    machine_setup setup = {0};
    fth_deadline kill_at = {INFINITY};
    double noticed_s = NAN;
    *interrupted = false;
    *account = (fth_interruption_account){.resumed_step = -1, .seconds_lost = NAN, .dollars_lost = NAN};
    fth_simulation_new_machine(now->simulation, number);
    FTH_TRY(set_up(now, number, planned, false, &setup));
    FTH_TRY(fth_trial_start(now->options->program, setup.arguments, setup.environment, setup.folder, trial));
    while (!trial->ended) {
        FTH_TRY(fth_trial_look(trial, LOOK_S));
        FTH_TRY(check_going_on(now)); /* first: Ctrl-C on a terminal stops the job too */
        if (!*interrupted && planned && !trial->ended && is_due(trial, planned)) {
            account->moment = moment_of(trial);
            noticed_s = fth_clock_seconds();
            FTH_TRY(give_notice(now, &setup, trial, planned));
            kill_at = fth_deadline_in(planned->notice_s + WALL_CLOCK_SLACK_S);
            *interrupted = true;
        }
        if (*interrupted && !account->outlived && !trial->ended && planned->kind != FTH_INTERRUPTION_KILL9 &&
            fth_deadline_passed(kill_at)) {
            kill(trial->pid, SIGKILL); /* as the cloud does */
            account->outlived = true;
        }
    }
    account->machine_s = trial->ended_s - trial->spawned_s;
    account->step = trial->step;
    account->price_usd_per_hour = price_of(now, trial);
    account->notice_used_s = *interrupted && planned->kind != FTH_INTERRUPTION_KILL9 ? trial->ended_s - noticed_s : NAN;
    if (planned)
        account->planned = *planned;
out:
    release_setup(&setup);
    return status;
}

/* Reports how a machine ended, and whether the rehearsal continues. */
static fth_status conclude_machine(fth_rehearsing *now, int64_t number, const fth_trial *trial,
                                   fth_interruption_account *account, bool interrupted, bool *finished)
{
    fth_rehearsal *result = now->result;
    char which[64];
    snprintf(which, sizeof which, "the job on machine %" PRId64, number);
    result->seconds += account->machine_s;
    result->torn += fth_trial_count_in_log(trial, "skipping the checkpoint");
    if (trial->saved_step > now->best_saved_step)
        now->best_saved_step = trial->saved_step;
    account->saved_step = now->best_saved_step;
    *finished = trial->exit.code == FTH_EXIT_OK;
    if (*finished) {
        result->steps = (int64_t)json_integer_value(json_object_get(trial->end, "steps"));
        const char *model = json_string_value(json_object_get(trial->end, "model"));
        result->model = model ? fth_format("%s", model) : NULL;
        tell(now, "machine %" PRId64 ": the job ended at step %" PRId64, number, result->steps);
        return FTH_OK;
    }
    /* In its first milliseconds a process does not handle SIGTERM yet, and has nothing to save. */
    bool killed_by_us =
        interrupted && (trial->exit.signal == SIGKILL || (trial->exit.signal == SIGTERM && isnan(trial->began_s)));
    if (!interrupted || (trial->exit.code != FTH_EXIT_INTERRUPTED && !killed_by_us))
        return fail_job(trial, which);
    char used[64] = "";
    if (!isnan(account->notice_used_s))
        snprintf(used, sizeof used, account->outlived ? ", outlived its notice of %.3g s" : ", out in %.3g s",
                 account->outlived ? account->planned.notice_s : account->notice_used_s);
    tell(now, "machine %" PRId64 ": %s during %s at step %" PRId64 "%s", number,
         fth_interruption_names[account->planned.kind], account->moment, account->step, used);
    return add_account(now, account);
}

static fth_status wait_for(const fth_rehearsing *now, double seconds)
{
    fth_status status = FTH_OK;
    fth_deadline until = fth_deadline_in(seconds);
    while (status == FTH_OK && !fth_deadline_passed(until)) {
        double slice_s = fmin(LOOK_S, fth_deadline_left_seconds(until));
        nanosleep(&(struct timespec){.tv_nsec = (long)(slice_s * 1e9)}, NULL);
        status = check_going_on(now);
    }
    return status;
}

static fth_status run_machines(fth_rehearsing *now)
{
    fth_status status = FTH_OK;
    const fth_rehearsal_options *options = now->options;
    fth_trial trial = {.output = -1}, before = {.output = -1, .began_s = NAN};
    bool finished = false;
    for (int64_t number = 0; !finished; number++) {
        fth_interruption planned = {0};
        fth_interruption_account account;
        bool interrupted;
        bool more = (options->interruptions == 0 || (int64_t)now->result->count < options->interruptions) &&
                    fth_interruption_plan_get(options->plan, number, &planned);
        FTH_REQUIRE(number < MAX_MACHINES, FTH_TIMEOUT, "the job did not end on %d machines, as none lived long enough",
                    MAX_MACHINES);
        FTH_TRY(run_machine(now, number, more ? &planned : NULL, &trial, &account, &interrupted));
        now->result->machines++;
        if (!isnan(trial.began_s))
            resolve(now, &trial, &before);
        FTH_TRY(conclude_machine(now, number, &trial, &account, interrupted, &finished));
        if (!isnan(trial.began_s)) {
            fth_trial_close(&before);
            before = trial;
        } else {
            fth_trial_close(&trial);
        }
        trial = (fth_trial){.output = -1};
        if (!finished && planned.gap_s > 0)
            FTH_TRY(wait_for(now, planned.gap_s));
    }
out:
    fth_trial_close(&trial);
    fth_trial_close(&before);
    return status;
}

static fth_status run_uninterrupted(fth_rehearsing *now)
{
    fth_status status = FTH_OK;
    fth_trial trial = {.output = -1};
    machine_setup setup = {0};
    fth_rehearsal *result = now->result;
    tell(now, "first without interruptions, for comparison");
    fth_simulation_new_machine(now->simulation, -1);
    FTH_TRY(set_up(now, 0, NULL, true, &setup));
    FTH_TRY(fth_trial_start(now->options->program, setup.arguments, setup.environment, setup.folder, &trial));
    while (!trial.ended) {
        FTH_TRY(fth_trial_look(&trial, LOOK_S));
        FTH_TRY(check_going_on(now));
    }
    if (trial.exit.code != FTH_EXIT_OK) {
        status = fail_job(&trial, "the uninterrupted job");
        goto out;
    }
    const char *model = json_string_value(json_object_get(trial.end, "model"));
    FTH_REQUIRE(model, FTH_CORRUPT, "the uninterrupted job names no model file; its log: %s", trial.log_path);
    result->uninterrupted_model = fth_format("%s", model);
    result->uninterrupted_s = trial.ended_s - trial.spawned_s;
out:
    fth_trial_close(&trial);
    release_setup(&setup);
    return status;
}

static fth_status compare(fth_rehearsal *result)
{
    fth_status status = FTH_OK;
    char ours[65], theirs[65];
    FTH_REQUIRE(result->model, FTH_CORRUPT, "the job names no model file");
    FTH_TRY(fth_file_sha256_of(result->model, ours, NULL));
    FTH_TRY(fth_file_sha256_of(result->uninterrupted_model, theirs, NULL));
    result->equal = strcmp(ours, theirs) == 0;
out:
    return status;
}

/* ---- what is left in the store ---- */

typedef struct key_list {
    char **keys;
    size_t count, capacity;
} key_list;

static bool remember_key(void *context, const fth_store_object *object)
{
    key_list *list = context;
    if (fth_grow(&list->keys, list->count, &list->capacity, sizeof *list->keys) != FTH_OK)
        return false;
    list->keys[list->count++] = strdup(object->key);
    return true;
}

/* Removes empty folders and partial files of killed machines; anything else stays. */
static bool is_leftover(const char *folder, const char *name, bool is_folder)
{
    (void)folder;
    return is_folder || strncmp(name, FTH_FILE_TEMPORARY, strlen(FTH_FILE_TEMPORARY)) == 0;
}

static void clear_store(const char *url, const fth_store_options *options)
{
    fth_store *store = NULL;
    key_list list = {0};
    fth_status status = fth_store_open(url, options, &store);
    if (status == FTH_OK)
        status = fth_store_list(store, "", remember_key, &list);
    for (size_t i = 0; i < list.count; i++) {
        if (status == FTH_OK && list.keys[i])
            status = fth_store_delete(store, list.keys[i]);
        free(list.keys[i]);
    }
    if (status != FTH_OK)
        fth_log_warning("what the rehearsal stored under %.*s is still there: %s", (int)strcspn(url, "?"), url,
                        fth_error_message());
    const char *folder = status == FTH_OK ? fth_store_folder(store) : NULL;
    if (folder && fth_remove_tree_at(AT_FDCWD, folder, folder, is_leftover, NULL) != FTH_OK)
        fth_log_warning("%s", fth_error_message());
    free(list.keys);
    fth_store_free(store);
}

/* ---- all of it ---- */

fth_status fth_rehearse(const fth_rehearsal_options *options, fth_rehearsal *rehearsal)
{
    fth_status status = FTH_OK;
    fth_rehearsing now = {.options = options,
                          .result = rehearsal,
                          .deadline = fth_deadline_in(options->limit_s > 0 ? options->limit_s : A_DAY_S),
                          .began_s = fth_clock_seconds()};
    *rehearsal = (fth_rehearsal){.uninterrupted_s = NAN};
    FTH_TRY(fth_folder_create(options->folder));
    FTH_TRY(fth_simulation_start(&now.simulation));
    if (*options->checkpoints) {
        const char *name = strrchr(options->folder, '/');
        /* A signature, as az:// takes it, stays at the end. */
        char *address = fth_address_whole(options->checkpoints);
        FTH_REQUIRE(address, FTH_NO_MEMORY, "no memory for an address");
        bool azure = strncmp(address, "az://", 5) == 0;
        size_t length = azure ? strcspn(address, "?") : strlen(address);
        const char *query = address + length;
        while (length > 0 && address[length - 1] == '/')
            length--;
        now.checkpoints = fth_format("%.*s/%s%s", (int)length, address, name ? name + 1 : options->folder, query);
        free(address);
    }
    if (options->verify)
        FTH_TRY(run_uninterrupted(&now));
    FTH_TRY(run_machines(&now));
    if (options->verify)
        FTH_TRY(compare(rehearsal));
    if (now.checkpoints && !options->keep)
        clear_store(now.checkpoints, &options->store);
out:
    if (status == FTH_INTERRUPTED && now.checkpoints && !options->keep) {
        clear_store(now.checkpoints, &options->store);
        status = check_going_on(&now); /* the message again */
    }
    fth_simulation_free(now.simulation);
    free(now.checkpoints);
    return status;
}
