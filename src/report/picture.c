/* Loss curves as PNG or SVG, drawn by gnuplot.
 *
 * The script with the data goes to gnuplot's standard input through an anonymous file, so no pipe can fill up and
 * block; its messages come back through another. The picture is drawn under a temporary name and renamed when gnuplot
 * has succeeded: readers of `path` see the old picture or the whole new one. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "report/report_internal.h"

enum { DRAWING_SECONDS = 30 };

extern char **environ;

/* Single-quoted for gnuplot, where only the quote itself is special. */
static void print_quoted(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text; text++) {
        if (*text == '\'')
            fputc('\'', script);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, script);
    }
    fputc('\'', script);
}

/* Curves of 50,000 steps would make an SVG that no browser opens quickly: at most this many mean values. */
enum { MOST_POINTS = 400 };

/* What the curves span: losses above 0, and how far right. */
typedef struct extent {
    double low, high, right;
} extent;

static void print_series(FILE *script, const fth_chart_line *line, size_t number, const char *kind, extent *seen)
{
    fprintf(script, "$%s%zu << END_OF_DATA\n", kind, number);
    size_t group = line->count / MOST_POINTS + 1;
    for (size_t i = 0; i < line->count; i += group) {
        double x = 0, y = 0;
        int count = 0;
        for (size_t j = i; j < i + group && j < line->count; j++) {
            if (!isfinite(line->y[j]))
                continue;
            x += line->x[j];
            y += line->y[j];
            count++;
        }
        if (count == 0) {
            fputc('\n', script); /* a gap */
            continue;
        }
        x /= count;
        y /= count;
        fprintf(script, "%.9g %.9g\n", x, y);
        seen->low = y > 0 ? fmin(seen->low, y) : seen->low;
        seen->high = fmax(seen->high, y);
        seen->right = fmax(seen->right, x);
    }
    fputs("END_OF_DATA\n", script);
}

static fth_status write_script(FILE *script, const char *picture, bool svg, const fth_record_summary *runs,
                               size_t run_count, fth_axis axis)
{
    static const char *const colours[] = {"#1f6feb", "#d9480f", "#2b8a3e", "#9c36b5", "#c92a2a", "#0b7285", "#5f3dc4"};
    fth_status status = FTH_OK;
    fth_chart_line line = {0};
    axis = fth_report_choose_axis(runs, run_count, axis);
    extent seen = {INFINITY, 0, 0};

    fprintf(script, "set terminal %s\nset output ",
            svg ? "svg size 900,540 background '#ffffff' font 'sans-serif,14'"
                : "pngcairo size 1350,810 background '#ffffff' font 'sans,14' linewidth 1.5");
    print_quoted(script, picture);
    fputc('\n', script);
    for (size_t i = 0; i < run_count; i++) {
        FTH_TRY(fth_report_curve(&runs[i].training, axis, "", &line));
        print_series(script, &line, i, "training", &seen);
        fth_report_curve_release(&line);
        FTH_TRY(fth_report_curve(&runs[i].validation, axis, "", &line));
        print_series(script, &line, i, "validation", &seen);
        fth_report_curve_release(&line);
    }
    fprintf(script,
            "set title 'Loss%s' font ',18'\nset xlabel '%s'\nset ylabel 'loss'\n"
            "set key top right noenhanced\nset border 3\nset tics nomirror out\n"
            "set grid ytics lc rgb '#d0d0d0'\nset format x '%%g'\nset format y '%%g'\nset xrange [0:%.9g]\n",
            run_count > 1 ? " (dashed: validation)" : "", fth_report_axis_name(axis), seen.right);
    if (seen.high > 20 * seen.low) /* as in the terminal: decades do not fit a linear axis */
        fprintf(script, "set logscale y\nset yrange [%.9g:%.9g]\n", 0.8 * seen.low, 1.25 * seen.high);
    else
        fputs("set yrange [0:*]\n", script);
    for (size_t i = 0; i < run_count; i++) {
        const char *colour = colours[i % FTH_COUNT_OF(colours)];
        fprintf(script, "%s$training%zu using 1:2 with lines lw 1.6 lc rgb '%s' title ", i > 0 ? ", " : "plot ", i,
                colour);
        print_quoted(script, run_count == 1 ? "training" : runs[i].id);
        if (runs[i].validation.count > 0)
            fprintf(script, ", $validation%zu using 1:2 with linespoints pt 7 ps 0.7 dt 2 lc rgb '%s' %s", i,
                    run_count == 1 ? colours[1] : colour, run_count == 1 ? "title 'validation'" : "notitle");
    }
    fputs("\nset output\n", script);
    FTH_REQUIRE(fflush(script) == 0 && !ferror(script), FTH_IO, "write a gnuplot script: %s", strerror(errno));
out:
    fth_report_curve_release(&line);
    return status;
}

/* What gnuplot said, on one line. */
static void read_message(int messages, char *text, size_t size)
{
    ssize_t length = pread(messages, text, size - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    char *to = text;
    for (const char *from = text; *from; from++) {
        bool space = strchr(" \t\n^", *from) != NULL;
        if (!space)
            *to++ = *from;
        else if (to > text && to[-1] != ' ')
            *to++ = ' ';
    }
    *to = '\0';
}

static fth_status wait_for(pid_t process, int messages)
{
    fth_deadline deadline = fth_deadline_in(DRAWING_SECONDS);
    int result = 0;
    pid_t got;
    while ((got = waitpid(process, &result, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (fth_deadline_passed(deadline)) {
            fth_process_kill(process);
            return fth_fail(FTH_TIMEOUT, "gnuplot did not finish within %d s", DRAWING_SECONDS);
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (got < 0)
        return fth_fail(FTH_IO, "wait for gnuplot: %s", strerror(errno));
    if (WIFEXITED(result) && WEXITSTATUS(result) == 0)
        return FTH_OK;
    char said[400];
    read_message(messages, said, sizeof said);
    return fth_fail(FTH_IO, "gnuplot failed: %s", *said ? said : "it said nothing");
}

static fth_status run_gnuplot(int script)
{
    fth_status status = FTH_OK;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int messages = memfd_create("gnuplot messages", MFD_CLOEXEC);
    FTH_REQUIRE(messages >= 0 && lseek(script, 0, SEEK_SET) == 0, FTH_IO, "prepare gnuplot: %s", strerror(errno));
    posix_spawn_file_actions_adddup2(&actions, script, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, messages, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, messages, STDERR_FILENO);
    pid_t process;
    char *const arguments[] = {"gnuplot", "-", NULL};
    int error = posix_spawnp(&process, "gnuplot", &actions, NULL, arguments, environ);
    FTH_REQUIRE(error != ENOENT, FTH_UNSUPPORTED,
                "gnuplot draws the pictures and is not installed; install it (Debian: apt-get install gnuplot-nox)");
    FTH_REQUIRE(error == 0, FTH_IO, "start gnuplot: %s", strerror(error));
    status = wait_for(process, messages);
out:
    if (messages >= 0)
        close(messages);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

static fth_status publish_picture(const char *temporary, const char *path)
{
    struct stat facts;
    if (stat(temporary, &facts) != 0 || facts.st_size == 0)
        return fth_fail(FTH_IO, "gnuplot wrote no picture for %s; is the folder there and the disk not full?", path);
    if (rename(temporary, path) != 0)
        return fth_fail(FTH_IO, "rename %s to %s: %s", temporary, path, strerror(errno));
    return FTH_OK;
}

/* A folder that cannot be written gets a clear message here; gnuplot's own is about its script. */
static fth_status check_target(const char *temporary)
{
    int target = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (target < 0)
        return fth_fail(FTH_IO, "create %s: %s", temporary, strerror(errno));
    close(target);
    return FTH_OK;
}

static bool ends_in(const char *path, const char *ending)
{
    const char *dot = strrchr(path, '.');
    return dot && strcasecmp(dot, ending) == 0;
}

fth_status fth_report_check_picture(const char *path)
{
    return ends_in(path, ".png") || ends_in(path, ".svg")
               ? FTH_OK
               : fth_fail(FTH_INVALID, "%s: a chart's name must end in .png or .svg", path);
}

fth_status fth_report_picture(const char *path, const fth_record_summary *runs, size_t run_count, fth_axis axis)
{
    fth_status status = FTH_OK;
    FILE *script = NULL;
    char *temporary = NULL;
    bool has_points = false;

    FTH_TRY(fth_report_check_picture(path));
    for (size_t i = 0; i < run_count; i++)
        has_points = has_points || runs[i].training.count > 0;
    FTH_REQUIRE(has_points, FTH_INVALID, "no steps are recorded yet, so there is nothing to draw");

    /* gnuplot gives names that begin with '|' to a shell: a leading folder keeps it a name. */
    temporary = fth_format("%s%s.tmp-%ld", path[0] == '/' ? "" : "./", path, (long)getpid());
    int descriptor = memfd_create("gnuplot script", MFD_CLOEXEC);
    script = descriptor >= 0 ? fdopen(descriptor, "w+") : NULL;
    FTH_REQUIRE(script, FTH_IO, "prepare a gnuplot script: %s", strerror(errno));
    FTH_TRY(check_target(temporary));
    FTH_TRY(write_script(script, temporary, ends_in(path, ".svg"), runs, run_count, axis));
    FTH_TRY(run_gnuplot(descriptor));
    FTH_TRY(publish_picture(temporary, path));
out:
    if (script)
        fclose(script);
    if (temporary)
        unlink(temporary);
    free(temporary);
    return status;
}
