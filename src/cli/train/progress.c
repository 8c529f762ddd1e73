/* The progress display of a training.
 *
 * On a terminal: one line on standard error, redrawn at most ten times a second and removed before
 * any other line. Elsewhere: plain lines on standard output, one per epoch and one about every ten
 * seconds. With --json: each event as one line on standard output. The log's hook takes no context,
 * so the display is a static variable.
 *
 * A rehearsal maps a file (FARTHING_PROGRESS_FILE) that shows the current step, also after a
 * kill. */
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/cli.h"
#include "rehearse/rehearse.h"
#include "report/report.h"

#define REDRAW_EVERY_S 0.1
#define LINE_EVERY_S   10.0

enum { SMALL = 64, BAR_CELLS = 16 };

static struct {
    bool json, live, plain; /* plain: lines every ten seconds */
    bool utf8;
    double next_draw_s, next_line_s;
    fth_progress last;
    bool concluded;
    fth_progress_board *board; /* NULL: not requested */
} display;

static atomic_bool line_visible; /* loader threads log too */

static void clear_line(void)
{
    static const char clear[] = "\r\033[K";
    if (atomic_exchange(&line_visible, false) && write(STDERR_FILENO, clear, sizeof clear - 1) < 0)
        return; /* the terminal is gone; nothing to clean */
}

/* ---- the parts of a line ---- */

static void write_bar(double share, char *text, size_t size)
{
    int filled = (int)(share * BAR_CELLS + 0.5);
    size_t at = 0;
    for (int i = 0; i < BAR_CELLS && at + 4 < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s", i < filled ? "█" : "░");
}

enum { EVALUATING, STEP, LEFT, LOSS, ACCURACY, EPOCH, SPEED, BAR, FIELDS }; /* from the most important on */

static fth_field *place(fth_field fields[FIELDS], size_t *count, int what)
{
    fth_field *field = &fields[(*count)++];
    *field = (fth_field){.importance = -what};
    return field;
}

/* The fields of a line in their order; gives how many. */
static size_t write_fields(const fth_progress *now, bool bar, fth_field fields[FIELDS])
{
    size_t count = 0;
    char number[40], of[40];
    fth_field *field;
    if (bar && now->steps > 0) {
        field = place(fields, &count, BAR);
        field->separator = " ";
        write_bar(fmin(1, (double)now->step / (double)now->steps), field->text, sizeof field->text);
    }
    field = place(fields, &count, EPOCH);
    if (now->epochs > 0)
        snprintf(field->text, sizeof field->text, "epoch %lld/%lld", (long long)now->epoch, (long long)now->epochs);
    else
        snprintf(field->text, sizeof field->text, "epoch %lld", (long long)now->epoch);
    field = place(fields, &count, STEP);
    fth_text_count(now->step, number, sizeof number);
    fth_text_count(now->steps, of, sizeof of);
    snprintf(field->text, sizeof field->text, "step %s%s%s", number, now->steps > 0 ? "/" : "",
             now->steps > 0 ? of : "");
    if (isfinite(now->loss)) {
        field = place(fields, &count, LOSS);
        fth_text_loss(now->loss, number, sizeof number);
        snprintf(field->text, sizeof field->text, "loss %s", number);
    }
    if (isfinite(now->loss) && isfinite(now->accuracy)) {
        field = place(fields, &count, ACCURACY);
        snprintf(field->text, sizeof field->text, "accuracy %.1f %%", 100 * now->accuracy);
    }
    if (isfinite(now->samples_per_s)) {
        field = place(fields, &count, SPEED);
        fth_text_count(llround(now->samples_per_s), number, sizeof number);
        snprintf(field->text, sizeof field->text, "%s samples/s", number);
        snprintf(field->brief, sizeof field->brief, "%s/s", number);
    }
    bool done = now->steps > 0 && now->step >= now->steps; /* of training: what is left is to evaluate */
    if (isfinite(now->left_s) && !done) {
        field = place(fields, &count, LEFT);
        fth_duration_format(now->left_s, number, sizeof number);
        snprintf(field->text, sizeof field->text, "%s left", number);
    }
    if (now->evaluating)
        snprintf(place(fields, &count, EVALUATING)->text, sizeof field->text, "evaluating");
    return count;
}

static void write_progress(const fth_progress *now, bool bar, size_t columns, char *text, size_t size)
{
    fth_field fields[FIELDS];
    size_t count = write_fields(now, bar, fields);
    fth_fields_fit(fields, count, columns, text, size);
}

static void draw_live(const fth_progress *now)
{
    char line[512], text[600];
    int columns = fth_terminal_width(stderr); /* asked for every time: a window may be resized */
    write_progress(now, display.utf8 && columns >= 100, (size_t)columns - 1, line, sizeof line);
    int length = snprintf(text, sizeof text, "\r%s\033[K", line);
    line_visible = true;
    if (write(STDERR_FILENO, text, (size_t)length) < 0)
        display.live = false;
}

static void show_progress(void *context, const fth_progress *now)
{
    (void)context;
    display.last = *now;
    if (display.board) {
        display.board->evaluating = now->evaluating;
        display.board->step = now->step;
    }
    double at = fth_clock_seconds();
    if (display.live && (at >= display.next_draw_s || now->evaluating)) {
        display.next_draw_s = at + REDRAW_EVERY_S;
        draw_live(now);
    }
    if (display.plain && at >= display.next_line_s) {
        char line[512];
        write_progress(now, false, sizeof line, line, sizeof line);
        display.next_line_s = at + LINE_EVERY_S;
        puts(line);
        fth_cli_flush();
    }
}

/* ---- events ---- */

static double number_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "-";
}

/* Nothing where one process trains by itself. */
static void print_strategy(const json_t *event)
{
    const char *kind = text_of(event, "worker_kind"); /* "thread", "process" */
    const json_t *workers = json_object_get(event, "workers");
    if (workers) {
        char noun[SMALL];
        snprintf(noun, sizeof noun, "worker %s", kind);
        fth_print_line(stdout, "strategy %s, %s", text_of(event, "strategy"),
                       FTH_COUNTED(json_integer_value(workers), noun));
    } else if (json_object_get(event, "server"))
        fth_print_line(stdout, "strategy %s, worker %s of %s, from version %lld on", text_of(event, "strategy"),
                       text_of(event, "worker"), text_of(event, "server"),
                       (long long)json_integer_value(json_object_get(event, "version")));
}

static void print_start(const json_t *event, bool resumed)
{
    json_int_t parameters = json_integer_value(json_object_get(event, "parameters"));
    fth_print_line(stdout, "training %s (%s) on %s", text_of(event, "model"), FTH_COUNTED(parameters, "parameter"),
                   text_of(event, "data"));
    fth_print_line(stdout, "device   %s", text_of(event, "device"));
    print_strategy(event);
    fth_print_line(stdout, "run      %s", text_of(event, "folder"));
    if (resumed) {
        char step[SMALL];
        fth_text_count((int64_t)json_integer_value(json_object_get(event, "step")), step, sizeof step);
        printf("continuing after step %s\n", step);
    }
}

static void print_epoch(const json_t *event)
{
    char epochs[SMALL] = "", loss[SMALL], accuracy[SMALL], speed[SMALL], seconds[SMALL], validation[3 * SMALL] = "";
    double validation_loss = number_of(event, "validation_loss");
    if (display.last.epochs > 0)
        snprintf(epochs, sizeof epochs, "/%lld", (long long)display.last.epochs);
    fth_text_loss(number_of(event, "train_loss"), loss, sizeof loss);
    fth_text_count(llround(number_of(event, "samples_per_s")), speed, sizeof speed);
    fth_duration_format(number_of(event, "seconds"), seconds, sizeof seconds);
    if (isfinite(validation_loss)) {
        char text[SMALL];
        fth_text_loss(validation_loss, text, sizeof text);
        fth_text_percent(number_of(event, "validation_accuracy"), accuracy, sizeof accuracy);
        snprintf(validation, sizeof validation, "; validation loss %s, accuracy %s", text, accuracy);
    }
    fth_text_percent(number_of(event, "train_accuracy"), accuracy, sizeof accuracy);
    printf("epoch %lld%s: training loss %s, accuracy %s%s; %s at %s samples/s\n",
           (long long)json_number_value(json_object_get(event, "epoch")), epochs, loss, accuracy, validation, seconds,
           speed);
}

static void print_validation(const json_t *event)
{
    char step[SMALL], loss[SMALL], accuracy[SMALL];
    fth_text_count((int64_t)json_integer_value(json_object_get(event, "step")), step, sizeof step);
    fth_text_loss(number_of(event, "validation_loss"), loss, sizeof loss);
    fth_text_percent(number_of(event, "validation_accuracy"), accuracy, sizeof accuracy);
    printf("step %s: validation loss %s, accuracy %s\n", step, loss, accuracy);
}

static void show_event(void *context, const json_t *event)
{
    (void)context;
    const char *name = text_of(event, "event");
    display.concluded =
        display.concluded || strcmp(name, "end") == 0 || strcmp(name, "error") == 0 || strcmp(name, "interrupted") == 0;
    if (display.json) {
        clear_line();
        fth_cli_print_json(event);
        return;
    }
    bool resumed = strcmp(name, "resume") == 0;
    if (resumed || strcmp(name, "start") == 0) {
        clear_line();
        print_start(event, resumed);
    } else if (strcmp(name, "epoch") == 0) {
        clear_line();
        print_epoch(event);
    } else if (strcmp(name, "validation") == 0) {
        clear_line();
        print_validation(event);
    }
    fth_cli_flush();
}

/* ---- start and stop ---- */

static fth_progress_board *map_board(const char *path)
{
    int descriptor = path && *path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (descriptor < 0)
        return NULL;
    void *memory = MAP_FAILED;
    if (lseek(descriptor, 0, SEEK_END) == sizeof(fth_progress_board)) /* a shorter file would be a bus error */
        memory = mmap(NULL, sizeof(fth_progress_board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    return memory == MAP_FAILED ? NULL : memory;
}

void fth_display_start(bool json, fth_train_observer *observer)
{
    const char *terminal = getenv("TERM");
    bool can_redraw = isatty(STDERR_FILENO) && !(terminal && strcmp(terminal, "dumb") == 0);
    memset(&display, 0, sizeof display);
    display.json = json;
    /* Events on the same terminal would be torn by a live line between them. */
    display.live = can_redraw && !(json && isatty(STDOUT_FILENO));
    display.plain = !json && (!can_redraw || !isatty(STDOUT_FILENO));
    display.utf8 = fth_terminal_is_utf8();
    display.next_line_s = fth_clock_seconds() + LINE_EVERY_S;
    display.board = map_board(getenv("FARTHING_PROGRESS_FILE"));
    fth_log_set_interrupter(clear_line);
    *observer = (fth_train_observer){.progress = show_progress, .event = show_event};
}

bool fth_display_stop(void)
{
    clear_line();
    fth_log_set_interrupter(NULL);
    return display.concluded;
}
