/* The progress bar of a copy: one line on the terminal, redrawn at most ten times a second, with
 * the rate and the time left. As in progress.c, the log's hook takes no context, so the bar is a
 * static variable. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/store/store_cli.h"
#include "report/report.h"

#define REDRAW_EVERY_S 0.1
#define RATE_OVER_S    3.0 /* time constant of the rate's average */

enum { SMALL = 64, BAR_CELLS = 24 };

static struct {
    bool live, utf8;
    uint64_t total_bytes;
    _Atomic int64_t done_bytes;
    atomic_bool visible;
    pthread_mutex_t mutex; /* guards what follows */
    double drawn_at_s, rate_bytes_per_s;
    int64_t drawn_bytes;
} bar = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void clear_line(void)
{
    static const char clear[] = "\r\033[K";
    if (atomic_exchange(&bar.visible, false) && write(STDERR_FILENO, clear, sizeof clear - 1) < 0)
        bar.live = false;
}

static void draw(double now_s)
{
    enum { CELLS, SHARE, AMOUNT, RATE, LEFT, FIELDS };
    fth_field fields[FIELDS] = {[CELLS] = {.importance = 0, .separator = " "},
                                [SHARE] = {.importance = 4, .separator = "  "},
                                [AMOUNT] = {.importance = 2},
                                [RATE] = {.importance = 1},
                                [LEFT] = {.importance = 3}};
    char line[400], text[440], done[32], total[32], rate[32];
    int64_t done_bytes = bar.done_bytes;
    double passed_s = now_s - bar.drawn_at_s;
    double rate_now = (double)(done_bytes - bar.drawn_bytes) / passed_s;
    double weight = bar.rate_bytes_per_s > 0 ? 1 - exp(-passed_s / RATE_OVER_S) : 1;
    bar.rate_bytes_per_s = fmax(0, bar.rate_bytes_per_s + weight * (rate_now - bar.rate_bytes_per_s));
    bar.drawn_at_s = now_s;
    bar.drawn_bytes = done_bytes;

    double share = bar.total_bytes > 0 ? fmin(1, fmax(0, (double)done_bytes / (double)bar.total_bytes)) : 1;
    int filled = (int)(share * BAR_CELLS + 0.5);
    for (int i = 0; i < BAR_CELLS; i++)
        strcat(fields[CELLS].text, bar.utf8 ? (i < filled ? "█" : "░") : (i < filled ? "#" : "."));
    fth_text_bytes(done_bytes, done, sizeof done);
    fth_text_bytes((int64_t)bar.total_bytes, total, sizeof total);
    fth_text_bytes((int64_t)bar.rate_bytes_per_s, rate, sizeof rate);
    if (bar.rate_bytes_per_s > 1) {
        char time[SMALL];
        fth_duration_format(fmax(0, ceil((1 - share) * (double)bar.total_bytes / bar.rate_bytes_per_s)), time,
                            sizeof time);
        snprintf(fields[LEFT].text, sizeof fields[LEFT].text, "%s left", time);
    }
    snprintf(fields[SHARE].text, sizeof fields[SHARE].text, "%3.0f %%", floor(100 * share));
    snprintf(fields[AMOUNT].text, sizeof fields[AMOUNT].text, "%s of %s", done, total);
    snprintf(fields[RATE].text, sizeof fields[RATE].text, "%s/s", rate);
    fth_fields_fit(fields, FIELDS, (size_t)fth_terminal_width(stderr) - 1, line, sizeof line);
    int length = snprintf(text, sizeof text, "\r%s\033[K", line);
    bar.visible = true;
    if (write(STDERR_FILENO, text, (size_t)length) < 0)
        bar.live = false;
}

void fth_bar_start(uint64_t total_bytes)
{
    bar.live = isatty(STDERR_FILENO);
    bar.utf8 = fth_terminal_is_utf8();
    bar.total_bytes = total_bytes;
    bar.done_bytes = bar.drawn_bytes = 0;
    bar.rate_bytes_per_s = 0;
    bar.drawn_at_s = fth_clock_seconds();
    fth_log_set_interrupter(clear_line);
}

void fth_bar_add(int64_t bytes)
{
    atomic_fetch_add(&bar.done_bytes, bytes);
    if (!bar.live || pthread_mutex_trylock(&bar.mutex) != 0)
        return;
    double now_s = fth_clock_seconds();
    if (now_s - bar.drawn_at_s >= REDRAW_EVERY_S)
        draw(now_s);
    pthread_mutex_unlock(&bar.mutex);
}

void fth_bar_stop(void)
{
    clear_line();
    fth_log_set_interrupter(NULL);
}
