/* See fleet.h. The fleet's mutex guards the members' rows; all other state of a member belongs to
 * the thread that runs it. The calling thread reports: it copies changes under the mutex and calls
 * back without it. */
#include "providers/fleet.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http/http.h"

enum { DEFAULT_FAILURES = 5 };

static const double DEFAULT_LIMIT_S = 900, DEFAULT_RETRY_S = 0.5, LONGEST_RETRY_S = 30;
static const double SLACK_S = 60;        /* added to the time limit: queueing, a cold start, the network */
static const double POLL_FOR_S = 30;     /* of one poll() */
static const double LOOK_EVERY_S = 0.05; /* interval for noticing a stop */
static const double SHOW_EVERY_S = 1;

typedef struct fleet_member {
    fth_fleet_row row;
    json_t *result; /* the last; or NULL. Belongs to the running thread until it ends */
} fleet_member;

typedef struct fleet_event {
    int number;
    fth_invocation_outcome outcome;
} fleet_event;

typedef struct fleet_state {
    const fth_fleet_options *options;
    double limit_s;
    int max_failures;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool has_changed;
    fleet_member *members;
    int next, threads; /* next: the first member not taken; threads: live ones */
    fleet_event *events;
    size_t event_count, event_room;
} fleet_state;

/* State of the thread that runs a member. */
typedef struct member_run {
    fleet_state *fleet;
    fleet_member *member;
    const json_t *parameters;
    json_t *continuation; /* of the last result that had one; or NULL */
    double version;       /* of the model, from the last result; NAN: none */
    int failed_in_a_row, failed;
    fth_backoff backoff;
} member_run;

/* ---- waiting ---- */

static bool is_stopped(const fleet_state *fleet)
{
    return fleet->options->stop && fleet->options->stop->asked;
}

static fth_deadline earlier(fth_deadline a, fth_deadline b)
{
    return a.at_seconds < b.at_seconds ? a : b;
}

static void wait_until(const fleet_state *fleet, fth_deadline until)
{
    until = earlier(until, fleet->options->deadline);
    while (!fth_deadline_passed(until) && !is_stopped(fleet)) {
        double slice_s = fmin(LOOK_EVERY_S, fth_deadline_left_seconds(until));
        nanosleep(&(struct timespec){.tv_nsec = (long)(slice_s * 1e9)}, NULL);
    }
}

static bool is_over(const fleet_state *fleet)
{
    return is_stopped(fleet) || fth_deadline_passed(fleet->options->deadline);
}

/* ---- rows ---- */

static void begin_change(fleet_state *fleet)
{
    pthread_mutex_lock(&fleet->mutex);
}

static void end_change(fleet_state *fleet)
{
    fleet->has_changed = true;
    pthread_cond_signal(&fleet->changed);
    pthread_mutex_unlock(&fleet->mutex);
}

/* Sets the state and increments `count`, a counter of the row, in one change. */
static void set_state_counted(const member_run *run, const char *state, const char *problem, int *count)
{
    fth_fleet_row *row = &run->member->row;
    begin_change(run->fleet);
    row->state = state;
    if (strcmp(state, "lost") != 0)
        row->since_s = NAN;
    if (count)
        ++*count;
    fth_printable_copy(row->problem, sizeof row->problem, problem ? problem : "");
    end_change(run->fleet);
}

static void set_state(const member_run *run, const char *state, const char *problem)
{
    set_state_counted(run, state, problem, NULL);
}

static void set_running(const member_run *run)
{
    fth_fleet_row *row = &run->member->row;
    begin_change(run->fleet);
    row->state = "running";
    row->since_s = fth_clock_seconds();
    *row->id = *row->problem = '\0';
    end_change(run->fleet);
}

static void set_id(const member_run *run, const char *id)
{
    begin_change(run->fleet);
    snprintf(run->member->row.id, sizeof run->member->row.id, "%s", id);
    run->member->row.invocations++;
    end_change(run->fleet);
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double larger(double a, double b)
{
    return isnan(a) || b > a ? b : a;
}

/* Counts an ended invocation, and queues its outcome for `ended`. */
static void add_outcome(const member_run *run, fth_invocation_outcome *outcome, double seen_s)
{
    fleet_state *fleet = run->fleet;
    fth_fleet_row *row = &run->member->row;
    double samples = number_of(outcome->result, "samples");
    begin_change(fleet);
    row->seconds += isfinite(outcome->duration_s) ? outcome->duration_s : seen_s;
    row->since_s = NAN;
    row->peak_bytes =
        larger(larger(row->peak_bytes, outcome->peak_bytes), number_of(outcome->result, "peak_memory_bytes"));
    if (outcome->result) {
        row->samples += samples >= 0 && samples < 1e15 ? (int64_t)samples : 0;
        row->loss = number_of(outcome->result, "loss");
        row->accuracy = number_of(outcome->result, "accuracy");
        json_decref(run->member->result);
        /* A copy, because the outcome goes to the calling thread and reference counts are not
         * atomic. */
        run->member->result = json_deep_copy(outcome->result);
    }
    if (fleet->options->ended &&
        fth_grow(&fleet->events, fleet->event_count, &fleet->event_room, sizeof *fleet->events) == FTH_OK) {
        fleet->events[fleet->event_count++] = (fleet_event){row->number, *outcome};
        *outcome = (fth_invocation_outcome){0};
    }
    end_change(fleet);
}

/* ---- one invocation ---- */

/* The member's parameters with its continuation, and a worker name that is not in use. */
static json_t *make_parameters(const member_run *run)
{
    json_t *made = json_copy((json_t *)run->parameters);
    const char *worker = json_string_value(json_object_get(run->parameters, "worker"));
    if (made && run->continuation)
        json_object_set(made, "continuation", run->continuation);
    if (made && worker && run->failed > 0)
        json_object_set_new(made, "worker", json_sprintf("%s.%d", worker, run->failed));
    return made;
}

/* Polls until the invocation has ended or `until`, when the outcome becomes UNKNOWN; at once if the
 * platform cannot be polled (Lambda). */
static fth_status follow(const member_run *run, fth_deadline until, fth_invocation_outcome *outcome)
{
    const fth_fleet_options *options = run->fleet->options;
    fth_backoff backoff = {.first_s = 0.2, .most_s = 5};
    while (outcome->state == FTH_INVOCATION_RUNNING || (outcome->state == FTH_INVOCATION_UNKNOWN && *outcome->id)) {
        char id[sizeof outcome->id];
        memcpy(id, outcome->id, sizeof id);
        if (is_over(run->fleet))
            return fth_fail(FTH_INTERRUPTED, "stopped while %s runs", id);
        if (fth_deadline_passed(until)) {
            outcome->state = FTH_INVOCATION_UNKNOWN;
            break;
        }
        if (outcome->state == FTH_INVOCATION_UNKNOWN) {
            set_state(run, "lost", outcome->error);
            wait_until(run->fleet, earlier(until, fth_deadline_in(fth_backoff_next_s(&backoff, 0))));
        }
        fth_invocation_outcome now;
        fth_status status = options->provider->kind->poll(options->provider, options->function, id,
                                                          earlier(until, fth_deadline_in(POLL_FOR_S)), &now);
        if (status == FTH_UNSUPPORTED && outcome->state == FTH_INVOCATION_UNKNOWN) {
            fth_invocation_outcome_release(&now);
            break;
        }
        fth_invocation_outcome_release(outcome);
        *outcome = now;
        if (status != FTH_OK)
            return status;
        snprintf(outcome->id, sizeof outcome->id, "%s", id);
    }
    return FTH_OK;
}

/* Runs one invocation to a final outcome. If it is UNKNOWN, the function's time limit has passed.
 * */
static fth_status run_once(const member_run *run, fth_invocation_outcome *outcome)
{
    fth_status status = FTH_OK;
    fleet_state *fleet = run->fleet;
    const fth_fleet_options *options = fleet->options;
    fth_deadline until = earlier(fth_deadline_in(fleet->limit_s + SLACK_S), options->deadline);
    fth_deadline ended = fth_deadline_in(fleet->limit_s);
    json_t *parameters = make_parameters(run);

    fth_invocation_outcome_init(outcome);
    FTH_REQUIRE(parameters, FTH_NO_MEMORY, "no memory for an invocation");
    set_running(run);
    FTH_TRY(options->provider->kind->invoke(options->provider, options->function, parameters, until, outcome));
    if (outcome->state != FTH_INVOCATION_THROTTLED)
        set_id(run, outcome->id);
    FTH_TRY(follow(run, until, outcome));
    if (outcome->state == FTH_INVOCATION_UNKNOWN) {
        if (!outcome->error)
            outcome->error = fth_format("no end was reported within %.0f s", fleet->limit_s + SLACK_S);
        set_state(run, "lost", outcome->error);
        wait_until(fleet, ended); /* it may be running; a second one would repeat its work */
    }

out:
    json_decref(parameters);
    return status;
}

/* ---- a member's run ---- */

static void pause_before_retry(member_run *run, double at_least_s)
{
    wait_until(run->fleet, fth_deadline_in(fth_backoff_next_s(&run->backoff, at_least_s)));
}

/* True to retry. */
static bool count_failure(member_run *run, const char *problem)
{
    fleet_state *fleet = run->fleet;
    run->failed++;
    run->failed_in_a_row++;
    bool again = run->failed_in_a_row < fleet->max_failures;
    set_state_counted(run, again ? "retrying" : "failed", problem, &run->member->row.failures);
    if (again)
        pause_before_retry(run, 0);
    return again;
}

/* Whether it has trained, or others have while they held all shards. The first result without
 * samples cannot be compared and counts as progress. */
static bool has_progress(const member_run *run, const json_t *result)
{
    double samples = number_of(result, "samples"), version = number_of(result, "version");
    return !(samples <= 0) || (isfinite(version) && version != run->version);
}

/* True to invoke again. */
static bool take_result(member_run *run, const json_t *result)
{
    const json_t *continuation = json_object_get(result, "continuation");
    bool progress = has_progress(run, result);
    run->version = number_of(result, "version");
    if (!json_is_object(continuation)) {
        set_state(run, "done", NULL);
        return false;
    }
    json_decref(run->continuation);
    run->continuation = json_deep_copy(continuation);
    if (!progress) /* otherwise it could repeat forever */
        return count_failure(run, "it reached its deadline before it had trained on anything: give it more time "
                                  "(--timeout of deploy) or smaller batches");
    run->failed_in_a_row = 0;
    run->backoff.tries = 0;
    return true;
}

/* Decides what follows an invocation; true to invoke again. */
static bool decide_next(member_run *run, fth_status status, fth_invocation_outcome *outcome, double seen_s)
{
    char problem[sizeof run->member->row.problem];
    snprintf(problem, sizeof problem, "%s",
             status != FTH_OK ? fth_error_message()
             : outcome->error ? outcome->error
                              : "");
    if (status == FTH_INTERRUPTED)
        return false;
    if (status == FTH_INVALID || status == FTH_UNSUPPORTED) { /* a retry would be refused too */
        set_state_counted(run, "failed", problem, &run->member->row.failures);
        return false;
    }
    if (status == FTH_OK && outcome->state == FTH_INVOCATION_THROTTLED) {
        set_state_counted(run, "retrying", problem, &run->member->row.throttled);
        pause_before_retry(run, outcome->retry_after_s);
        return true;
    }
    bool done = status == FTH_OK && outcome->state == FTH_INVOCATION_DONE, has_result = outcome->result != NULL;
    if (status == FTH_OK)
        add_outcome(run, outcome, seen_s);
    return done ? take_result(run, has_result ? run->member->result : NULL) : count_failure(run, problem);
}

static void run_member(fleet_state *fleet, int index)
{
    const fth_fleet_options *options = fleet->options;
    double first_s = options->retry_first_s > 0 ? options->retry_first_s : DEFAULT_RETRY_S;
    member_run run = {.fleet = fleet,
                      .member = &fleet->members[index],
                      .parameters = options->parameters[index],
                      .version = NAN,
                      .backoff = {.first_s = first_s, .most_s = fmax(first_s, LONGEST_RETRY_S)}};
    bool again = true;
    while (again && !is_over(fleet)) {
        fth_invocation_outcome outcome = {0};
        double began_s = fth_clock_seconds();
        fth_status status = run_once(&run, &outcome);
        again = decide_next(&run, status, &outcome, fth_clock_seconds() - began_s);
        fth_invocation_outcome_release(&outcome);
    }
    json_decref(run.continuation);
}

static void *work(void *context)
{
    fleet_state *fleet = context;
    for (;;) {
        pthread_mutex_lock(&fleet->mutex);
        int index = !is_over(fleet) && fleet->next < fleet->options->count ? fleet->next++ : -1;
        pthread_mutex_unlock(&fleet->mutex);
        if (index < 0)
            break;
        run_member(fleet, index);
    }
    begin_change(fleet);
    fleet->threads--;
    end_change(fleet);
    return NULL;
}

/* ---- the calling thread ---- */

/* Calls back with the changes; true while threads are alive. */
static bool show(fleet_state *fleet, fth_fleet_row *rows)
{
    const fth_fleet_options *options = fleet->options;
    fleet_event *events;
    size_t count;

    pthread_mutex_lock(&fleet->mutex);
    bool alive = fleet->threads > 0;
    struct timespec until = fth_deadline_timespec(fth_deadline_in(SHOW_EVERY_S));
    while (alive && !fleet->has_changed &&
           pthread_cond_clockwait(&fleet->changed, &fleet->mutex, CLOCK_MONOTONIC, &until) == 0)
        continue;
    fleet->has_changed = false;
    alive = fleet->threads > 0;
    for (int i = 0; i < options->count; i++)
        rows[i] = fleet->members[i].row;
    events = fleet->events;
    count = fleet->event_count;
    fleet->events = NULL;
    fleet->event_count = fleet->event_room = 0;
    pthread_mutex_unlock(&fleet->mutex);

    for (size_t i = 0; i < count; i++) {
        options->ended(options->context, events[i].number, &events[i].outcome);
        fth_invocation_outcome_release(&events[i].outcome);
    }
    free(events);
    if (options->show)
        options->show(options->context, rows, options->count);
    return alive;
}

/* The final status. */
static fth_status conclude(const fleet_state *fleet)
{
    int done = 0, failed = 0;
    const char *running =
        fleet->options->provider->kind->ends_with_caller ? "what ran has been ended" : "what runs is left running";
    const fth_fleet_row *first = NULL;
    for (int i = 0; i < fleet->options->count; i++) {
        const fth_fleet_row *row = &fleet->members[i].row;
        done += strcmp(row->state, "done") == 0;
        failed += strcmp(row->state, "failed") == 0;
        if (!first && strcmp(row->state, "failed") == 0)
            first = row;
    }
    if (done == fleet->options->count)
        return FTH_OK;
    if (is_stopped(fleet))
        return fth_fail(FTH_INTERRUPTED, "stopped; %d of %s finished, and %s", done,
                        FTH_COUNTED(fleet->options->count, "function"), running);
    if (first)
        return fth_fail(FTH_IO, "%d of %s failed; function %d: %s", failed,
                        FTH_COUNTED(fleet->options->count, "function"), first->number, first->problem);
    return fth_fail(FTH_TIMEOUT, "%d of %s finished in time; %s", done, FTH_COUNTED(fleet->options->count, "function"),
                    running);
}

/* Returns how many were started. */
static int start_threads(fleet_state *fleet, pthread_t *threads, int count)
{
    int started = 0;
    pthread_mutex_lock(&fleet->mutex); /* so that none ends before it is counted */
    while (started < count && pthread_create(&threads[started], NULL, work, fleet) == 0)
        started++;
    fleet->threads = started;
    pthread_mutex_unlock(&fleet->mutex);
    return started;
}

fth_status fth_fleet_run(const fth_fleet_options *options, json_t **results)
{
    fth_status status = FTH_OK;
    fleet_state fleet = {.options = options,
                         .limit_s = options->limit_s > 0 ? options->limit_s : DEFAULT_LIMIT_S,
                         .max_failures = options->max_failures > 0 ? options->max_failures : DEFAULT_FAILURES,
                         .mutex = PTHREAD_MUTEX_INITIALIZER,
                         .changed = PTHREAD_COND_INITIALIZER};
    int concurrency =
        options->concurrency > 0 && options->concurrency < options->count ? options->concurrency : options->count;
    pthread_t *threads = NULL;
    fth_fleet_row *rows = NULL;

    *results = json_array();
    FTH_REQUIRE(options->count > 0, FTH_INVALID, "no functions to invoke");
    FTH_TRY(fth_allocate((size_t)options->count, sizeof *fleet.members, &fleet.members));
    FTH_TRY(fth_allocate((size_t)options->count, sizeof *rows, &rows));
    FTH_TRY(fth_allocate((size_t)concurrency, sizeof *threads, &threads));
    for (int i = 0; i < options->count; i++)
        fleet.members[i].row = (fth_fleet_row){
            .number = i + 1, .state = "waiting", .since_s = NAN, .loss = NAN, .accuracy = NAN, .peak_bytes = NAN};
    int started = start_threads(&fleet, threads, concurrency);
    FTH_REQUIRE(started > 0, FTH_NO_MEMORY, "cannot start a thread");
    while (show(&fleet, rows))
        continue;
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    show(&fleet, rows); /* the last changes */
    for (int i = 0; i < options->count; i++)
        json_array_append_new(*results, fleet.members[i].result ? json_incref(fleet.members[i].result) : json_null());
    status = conclude(&fleet);

out:
    for (int i = 0; fleet.members && i < options->count; i++)
        json_decref(fleet.members[i].result);
    free(fleet.members);
    free(rows);
    free(threads);
    pthread_mutex_destroy(&fleet.mutex);
    pthread_cond_destroy(&fleet.changed);
    return status;
}
