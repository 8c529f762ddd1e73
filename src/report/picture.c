/* Loss curves as PNG or SVG, drawn by gnuplot.
 *
 * The script with the data goes to gnuplot's standard input through an anonymous file, so no pipe can fill up and
 * block; the picture and gnuplot's messages come back through two more. The picture is written where the user wants it
 * when gnuplot has succeeded. */
#include <errno.h>
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

static fth_status write_script(FILE *script, bool svg, const fth_record_summary *runs, size_t run_count, fth_axis axis)
{
    static const char *const colours[] = {"#1f6feb", "#d9480f", "#2b8a3e", "#9c36b5", "#c92a2a", "#0b7285", "#5f3dc4"};
    fth_status status = FTH_OK;
    fth_chart_line line = {0};
    axis = fth_report_choose_axis(runs, run_count, axis);
    extent seen = {INFINITY, 0, 0};

    fprintf(script, "set terminal %s\n",
            svg ? "svg size 900,540 background '#ffffff' font 'sans-serif,14'"
                : "pngcairo size 1350,810 background '#ffffff' font 'sans,14' linewidth 1.5");
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

/* Draws into the anonymous file `picture`. */
static fth_status run_gnuplot(int script, int picture)
{
    fth_status status = FTH_OK;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int messages = memfd_create("gnuplot messages", MFD_CLOEXEC);
    FTH_REQUIRE(messages >= 0 && lseek(script, 0, SEEK_SET) == 0, FTH_IO, "prepare gnuplot: %s", strerror(errno));
    posix_spawn_file_actions_adddup2(&actions, script, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, picture, STDOUT_FILENO);
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

static fth_status copy_picture(int picture, fth_file *file)
{
    fth_status status = FTH_OK;
    char bytes[1 << 14];
    ssize_t got = 0;
    for (off_t at = 0; (got = pread(picture, bytes, sizeof bytes, at)) > 0; at += got)
        FTH_TRY(fth_file_write(file, bytes, (size_t)got));
    FTH_REQUIRE(got == 0, FTH_IO, "read a picture: %s", strerror(errno));
    FTH_REQUIRE(fth_file_size_bytes(file) > 0, FTH_IO, "gnuplot drew nothing");
out:
    return status;
}

static bool ends_in(const char *path, const char *ending)
{
    const char *dot = strrchr(path, '.');
    return dot && strcasecmp(dot, ending) == 0;
}

/* What the user asks for: "FILE.png", "FILE.svg", or the format before a name that does not tell it, "svg:-". */
typedef struct picture_target {
    const char *name;
    bool svg;
} picture_target;

static bool read_target(const char *text, picture_target *target)
{
    bool png = strncmp(text, "png:", 4) == 0, svg = strncmp(text, "svg:", 4) == 0;
    struct stat facts;
    *target = (picture_target){.name = png || svg ? text + 4 : text, .svg = svg || (!png && ends_in(text, ".svg"))};
    if (png || svg || ends_in(text, ".png") || ends_in(text, ".svg") || fth_output_is_stdout(text))
        return *target->name != '\0';
    return stat(text, &facts) == 0 && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode);
}

fth_status fth_report_check_picture(const char *path)
{
    picture_target target;
    return read_target(path, &target)
               ? FTH_OK
               : fth_fail(FTH_INVALID, "%s: a chart's name must end in .png or .svg, or begin with png: or svg:", path);
}

const char *fth_report_picture_output(const char *path)
{
    picture_target target;
    read_target(path, &target);
    return target.name;
}

fth_status fth_report_picture(const char *path, const fth_record_summary *runs, size_t run_count, fth_axis axis)
{
    fth_status status = FTH_OK;
    FILE *script = NULL;
    fth_file *file = NULL;
    picture_target target;
    bool has_points = false;
    int picture = memfd_create("gnuplot picture", MFD_CLOEXEC),
        descriptor = memfd_create("gnuplot script", MFD_CLOEXEC);

    FTH_TRY(fth_report_check_picture(path));
    read_target(path, &target);
    for (size_t i = 0; i < run_count; i++)
        has_points = has_points || runs[i].training.count > 0;
    FTH_REQUIRE(has_points, FTH_INVALID, "no steps are recorded yet, so there is nothing to draw");

    script = descriptor >= 0 ? fdopen(descriptor, "w+") : NULL;
    FTH_REQUIRE(script && picture >= 0, FTH_IO, "prepare a gnuplot script: %s", strerror(errno));
    FTH_TRY(fth_file_create_output(target.name, &file));
    FTH_TRY(write_script(script, target.svg, runs, run_count, axis));
    FTH_TRY(run_gnuplot(descriptor, picture));
    FTH_TRY(copy_picture(picture, file));
    FTH_TRY(fth_file_publish(file));
out:
    fth_file_free(file);
    if (script)
        fclose(script);
    else if (descriptor >= 0)
        close(descriptor);
    if (picture >= 0)
        close(picture);
    return status;
}
