/* Shows the progress of invocations; see functions_cli.h. As in progress.c, the log's hook takes no
 * context, so the display is a static variable. Callbacks come from one thread; the hook may be
 * called by any. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/functions/functions_cli.h"
#include "report/report.h"

#define REDRAW_EVERY_S 0.1

enum { CELL = 48, SHOWN_PROBLEMS = 5, USUAL_HEIGHT = 24 };

static struct {
    bool json, plain;
    atomic_bool live; /* cleared when writing to the terminal fails */
    double began_s, next_draw_s;
    fth_fleet_row *rows; /* as they were shown last */
    int count;
    pthread_mutex_t mutex; /* guards what follows */
    int lines;             /* on the terminal */
} display = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- the terminal ---- */

static void write_terminal(const char *text, size_t length)
{
    if (write(STDERR_FILENO, text, length) < 0)
        display.live = false; /* the terminal is gone */
}

static void clear_table(void)
{
    char text[32];
    pthread_mutex_lock(&display.mutex);
    if (display.lines > 0)
        write_terminal(text, (size_t)snprintf(text, sizeof text, "\r\033[%dA\033[J", display.lines));
    display.lines = 0;
    pthread_mutex_unlock(&display.mutex);
}

static int terminal_height(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 3 ? size.ws_row : USUAL_HEIGHT;
}

/* ---- tables ---- */

/* The last failure was not retried. */
static int retries_of(const fth_fleet_row *row)
{
    return row->failures + row->throttled - (strcmp(row->state, "failed") == 0);
}

static void write_rate(int64_t samples, double seconds, char text[CELL])
{
    snprintf(text, CELL, "-");
    if (samples > 0 && seconds > 0)
        fth_text_count(llround((double)samples / seconds), text, CELL);
}

/* Of ended and running invocations. */
static double seconds_of(const fth_fleet_row *row)
{
    return row->seconds + (isnan(row->since_s) ? 0 : fth_clock_seconds() - row->since_s);
}

static fth_status add_row(fth_table *table, const fth_fleet_row *row)
{
    char number[CELL], invocations[CELL], retries[CELL], samples[CELL], rate[CELL], time[CELL], peak[CELL], loss[CELL],
        accuracy[CELL];
    snprintf(number, sizeof number, "%d", row->number);
    snprintf(invocations, sizeof invocations, "%d", row->invocations);
    snprintf(retries, sizeof retries, "%d", retries_of(row));
    fth_text_count(row->samples, samples, sizeof samples);
    write_rate(row->samples, row->seconds, rate);
    fth_duration_format(seconds_of(row), time, sizeof time);
    snprintf(peak, sizeof peak, "-");
    if (isfinite(row->peak_bytes))
        fth_text_bytes((int64_t)row->peak_bytes, peak, sizeof peak);
    fth_text_loss(row->loss, loss, sizeof loss);
    fth_text_percent(row->accuracy, accuracy, sizeof accuracy);
    return fth_table_add_row(
        table, (const char *[]){number, row->state, invocations, retries, samples, rate, time, peak, loss, accuracy});
}

/* The total: samples per second of wall time, and the sum of the times that the platform counts. */
static fth_status add_total(fth_table *table, const fth_fleet_row *rows, int count)
{
    char invocations[CELL], retries[CELL], samples[CELL], rate[CELL], time[CELL];
    int invoked = 0, retried = 0;
    int64_t all = 0;
    double used_s = 0;
    for (int i = 0; i < count; i++) {
        invoked += rows[i].invocations;
        retried += retries_of(&rows[i]);
        all += rows[i].samples;
        used_s += seconds_of(&rows[i]);
    }
    snprintf(invocations, sizeof invocations, "%d", invoked);
    snprintf(retries, sizeof retries, "%d", retried);
    fth_text_count(all, samples, sizeof samples);
    write_rate(all, fth_clock_seconds() - display.began_s, rate);
    fth_duration_format(used_s, time, sizeof time);
    return fth_table_add_row(table,
                             (const char *[]){"all", "", invocations, retries, samples, rate, time, NULL, NULL, NULL});
}

/* 80 columns wide at most, as long as no function has more than 99,999 samples. */
static fth_status print_table(FILE *output, const fth_fleet_row *rows, int count, int shown)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    FTH_TRY(FTH_TABLE(&table, ">no.", "state", ">invoked", ">retried", ">samples", ">per s", ">time", ">peak", ">loss",
                      ">accuracy"));
    for (int i = 0; i < shown; i++)
        FTH_TRY(add_row(table, &rows[i]));
    if (count > 1)
        FTH_TRY(add_total(table, rows, count));
    fth_table_print(output, table);

out:
    fth_table_free(table);
    return status;
}

/* Below the table: reasons for retries. */
static void print_problems(FILE *output, const fth_fleet_row *rows, int count)
{
    for (int i = 0, shown = 0; i < count && shown < SHOWN_PROBLEMS; i++)
        if (*rows[i].problem) {
            fprintf(output, "function %d: %s\n", rows[i].number, rows[i].problem);
            shown++;
        }
}

/* Redraws the table in place, as far as it fits the terminal. */
static void draw(const fth_fleet_row *rows, int count)
{
    char *text = NULL, *rest, *line;
    size_t size = 0, columns = (size_t)fth_terminal_width(stderr) - 1;
    int room = terminal_height() - 5 - SHOWN_PROBLEMS, shown = count <= room ? count : room > 0 ? room : 1;
    FILE *memory = open_memstream(&text, &size);
    if (!memory)
        return;
    fth_status status = print_table(memory, rows, count, shown);
    if (status == FTH_OK && shown < count)
        fprintf(memory, "and %d more\n", count - shown);
    print_problems(memory, rows, count);
    if (fclose(memory) != 0 || status != FTH_OK) {
        free(text);
        return;
    }
    clear_table();
    pthread_mutex_lock(&display.mutex);
    for (rest = text; (line = strsep(&rest, "\n")) && rest;) {
        write_terminal(line, fth_text_fit(line, columns));
        write_terminal("\n", 1);
        display.lines++;
    }
    pthread_mutex_unlock(&display.mutex);
    free(text);
}

/* ---- changes ---- */

static json_t *describe(const fth_fleet_row *row)
{
    json_t *json = json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:I}", "number", row->number, "state", row->state, "id",
                             row->id, "invocations", row->invocations, "failures", row->failures, "throttled",
                             row->throttled, "samples", (json_int_t)row->samples);
    fth_json_set_number(json, "seconds", row->seconds);
    fth_json_set_number(json, "loss", row->loss);
    fth_json_set_number(json, "accuracy", row->accuracy);
    fth_json_set_number(json, "peak_bytes", row->peak_bytes);
    if (*row->problem)
        json_object_set_new(json, "problem", json_string(row->problem));
    return json;
}

static void print_change(const fth_fleet_row *row)
{
    if (display.json) {
        json_t *json = describe(row);
        json_object_set_new(json, "event", json_string("function"));
        fth_cli_print_json_new(json);
    } else if (strcmp(row->state, "done") == 0) {
        fth_print_line(stdout, "function %d: done, %s in %s", row->number, FTH_COUNTED(row->samples, "sample"),
                       FTH_COUNTED(row->invocations, "invocation"));
    } else if (*row->problem) {
        fth_print_line(stdout, "function %d: %s: %s%s%s%s", row->number, row->state, row->problem,
                       *row->id ? " (invocation " : "", row->id, *row->id ? ")" : "");
    } else {
        fth_print_line(stdout, "function %d: %s%s", row->number, row->state, row->samples > 0 ? ", continued" : "");
    }
}

/* Events report every change; lines only the start and the end of an invocation. */
static bool is_worth_telling(const fth_fleet_row *before, const fth_fleet_row *now)
{
    bool another = strcmp(before->id, now->id) != 0;
    bool begins = !isnan(now->since_s) && !(now->since_s <= before->since_s);
    return strcmp(before->state, now->state) != 0 || before->failures != now->failures ||
           before->throttled != now->throttled || begins || (another && display.json);
}

void fth_fleet_display_show(void *context, const fth_fleet_row *rows, int count)
{
    (void)context;
    bool first = !display.rows;
    if (first && fth_allocate((size_t)count, sizeof *display.rows, &display.rows) != FTH_OK)
        return;
    display.count = count;
    for (int i = 0; i < count && (display.json || display.plain); i++)
        if (first ? strcmp(rows[i].state, "waiting") != 0 : is_worth_telling(&display.rows[i], &rows[i]))
            print_change(&rows[i]);
    memcpy(display.rows, rows, (size_t)count * sizeof *rows);
    fth_cli_flush();
    double now_s = fth_clock_seconds();
    if (display.live && now_s >= display.next_draw_s) {
        display.next_draw_s = now_s + REDRAW_EVERY_S;
        draw(rows, count);
    }
}

void fth_fleet_display_ended(void *context, int number, const fth_invocation_outcome *outcome)
{
    static const char *const states[] = {[FTH_INVOCATION_RUNNING] = "running",
                                         [FTH_INVOCATION_DONE] = "done",
                                         [FTH_INVOCATION_FAILED] = "failed",
                                         [FTH_INVOCATION_THROTTLED] = "throttled",
                                         [FTH_INVOCATION_UNKNOWN] = "lost"};
    (void)context;
    if (!display.json)
        return;
    json_t *json = json_pack("{s:s, s:i, s:s, s:s}", "event", "invocation", "number", number, "id", outcome->id,
                             "state", states[outcome->state]);
    fth_json_set_number(json, "duration_s", outcome->duration_s);
    fth_json_set_number(json, "start_s", outcome->start_s);
    fth_json_set_number(json, "peak_bytes", outcome->peak_bytes);
    if (outcome->error)
        json_object_set_new(json, "error", fth_cli_json_text(outcome->error));
    if (outcome->result)
        json_object_set(json, "result", outcome->result);
    fth_cli_print_json_new(json);
}

/* ---- start and stop ---- */

void fth_fleet_display_start(bool json)
{
    const char *terminal = getenv("TERM");
    bool can_redraw = isatty(STDERR_FILENO) && !(terminal && strcmp(terminal, "dumb") == 0);
    display.json = json;
    display.live = can_redraw && !(json && isatty(STDOUT_FILENO));
    display.plain = !json && (!can_redraw || !isatty(STDOUT_FILENO));
    display.began_s = fth_clock_seconds();
    display.next_draw_s = 0;
    fth_log_set_interrupter(clear_table);
}

static json_t *describe_end(const char *function, const json_t *results, fth_status status)
{
    int64_t samples = 0;
    double wall_s = fth_clock_seconds() - display.began_s;
    json_t *functions = json_array();
    for (int i = 0; i < display.count; i++) {
        json_array_append_new(functions, describe(&display.rows[i]));
        samples += display.rows[i].samples;
    }
    json_t *json = json_pack(
        "{s:s, s:o, s:s, s:o, s:O, s:I, s:f}", "event", "end", "function", fth_cli_json_text(function), "state",
        status == FTH_OK            ? "done"
        : status == FTH_INTERRUPTED ? "interrupted"
                                    : "failed",
        "functions", functions, "results", results, "samples", (json_int_t)samples, "seconds", wall_s);
    fth_json_set_number(json, "samples_per_s", wall_s > 0 ? (double)samples / wall_s : NAN);
    return json;
}

fth_status fth_fleet_display_stop(const char *function, const json_t *results, fth_status ended)
{
    fth_status status = FTH_OK;
    clear_table();
    fth_log_set_interrupter(NULL);
    if (display.json) {
        json_t *json = describe_end(function, results, ended);
        fth_cli_print_json_new(json);
    } else if (display.rows) {
        status = print_table(stdout, display.rows, display.count, display.count);
        if (!display.plain) /* else there were lines of them */
            print_problems(stdout, display.rows, display.count);
        fth_cli_flush();
    }
    free(display.rows);
    display.rows = NULL;
    display.count = 0;
    return status;
}
