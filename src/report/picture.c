/* Curves of loss and accuracy as PNG or SVG, drawn by gnuplot.
 *
 * The script with the data goes to gnuplot's standard input through an anonymous file, so no pipe
 * can fill up and block; the picture and gnuplot's messages come back through two more. The picture
 * is written to its place after gnuplot succeeded. */
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

/* Only the quote itself is special. */
void fth_picture_quote(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text; text++) {
        if (*text == '\'')
            fputc('\'', script);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, script);
    }
    fputc('\'', script);
}

/* Curves of 50,000 steps would make an SVG that no browser opens quickly: at most this many mean
 * values. */
enum { MOST_POINTS = 400 };

void fth_picture_series(FILE *script, const fth_chart_line *line, size_t number, const char *kind,
                        fth_picture_extent *seen)
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

/* What is drawn: all curves of some runs. */
typedef struct drawing {
    const fth_record_summary *runs;
    size_t run_count;
    fth_chart_axis axis;
} drawing;

const char *fth_picture_colour(size_t i)
{
    static const char *const colours[] = {"#1f6feb", "#d9480f", "#2b8a3e", "#9c36b5", "#c92a2a", "#0b7285", "#5f3dc4"};
    return colours[i % FTH_COUNT_OF(colours)];
}

/* The data of a panel, as blocks $loss_training0, $loss_validation0, ...; and what they span. */
static fth_status print_data(FILE *script, const drawing *all, fth_measure measure, fth_picture_extent *seen)
{
    fth_status status = FTH_OK;
    fth_chart_line line = {0};
    bool loss = measure == FTH_LOSS;
    *seen = (fth_picture_extent){INFINITY, 0, 0};
    for (size_t i = 0; i < all->run_count; i++) {
        FTH_TRY(fth_report_curve(&all->runs[i].training, measure, all->axis, "", &line));
        fth_picture_series(script, &line, i, loss ? "loss_training" : "accuracy_training", seen);
        fth_report_curve_release(&line);
        FTH_TRY(fth_report_curve(&all->runs[i].validation, measure, all->axis, "", &line));
        fth_picture_series(script, &line, i, loss ? "loss_validation" : "accuracy_validation", seen);
        fth_report_curve_release(&line);
    }

out:
    fth_report_curve_release(&line);
    return status;
}

void fth_picture_loss_axis(FILE *script, const fth_picture_extent *seen)
{
    if (seen->high > 20 * seen->low) /* as in the terminal: decades do not fit a linear axis */
        fprintf(script, "set logscale y\nset yrange [%.9g:%.9g]\n", 0.8 * seen->low, 1.25 * seen->high);
    else if (seen->high > seen->low) {
        const double margin = 0.05 * (seen->high - seen->low);
        fprintf(script, "set yrange [%.9g:%.9g]\n", fmax(0, seen->low - margin), seen->high + margin);
    } else
        fputs("set yrange [0:*]\n", script);
}

enum { LONGEST_BESIDE = 24 };

void fth_picture_key(FILE *script, size_t longest)
{
    fprintf(script, "set key outside %s noenhanced\n",
            longest <= LONGEST_BESIDE ? "right top vertical Left reverse" : "below center horizontal");
}

void fth_picture_key_validation(FILE *script, const char *separator)
{
    fprintf(script, "%s1/0 with linespoints pt 7 ps 0.7 dt 2 lc rgb '#606060' title 'validation'", separator);
}

/* Of the names in the legend. */
static size_t longest_name(const drawing *all)
{
    size_t longest = 0;
    for (size_t i = 0; i < all->run_count && all->run_count > 1; i++) {
        const size_t width = fth_text_width(all->runs[i].id);
        longest = width > longest ? width : longest;
    }
    return longest;
}

static void print_axes(FILE *script, const drawing *all, fth_measure measure, const fth_picture_extent *seen)
{
    fprintf(script, "set xlabel '%s'\nset ylabel '%s'\nset xrange [0:%.9g]\n", fth_report_axis_name(all->axis),
            measure == FTH_LOSS ? "loss" : "accuracy (%)", seen->right);
    fth_picture_key(script, longest_name(all));
    if (measure == FTH_ACCURACY)
        fprintf(script, "unset logscale y\nset yrange [%.9g:100]\n",
                seen->low < 100 ? fmax(0, 10 * floor(seen->low / 10)) : 0);
    else
        fth_picture_loss_axis(script, seen);
}

/* One run: training and validation in two colours. Several: a colour each, validation dashed; their
 * names stand in the first panel. */
static void print_plot(FILE *script, const drawing *all, fth_measure measure)
{
    const char *name = measure == FTH_LOSS ? "loss" : "accuracy", *separator = "plot ";
    bool one = all->run_count == 1;
    for (size_t i = 0; i < all->run_count; i++) {
        const char *colour = fth_picture_colour(i);
        if (fth_report_has(&all->runs[i].training, measure)) {
            fprintf(script, "%s$%s_training%zu using 1:2 with lines lw 1.6 lc rgb '%s' ", separator, name, i, colour);
            if (one || measure == FTH_LOSS) {
                fputs("title ", script);
                fth_picture_quote(script, one ? "training" : all->runs[i].id);
            } else {
                fputs("notitle", script);
            }
            separator = ", ";
        }
        if (fth_report_has(&all->runs[i].validation, measure)) {
            fprintf(script, "%s$%s_validation%zu using 1:2 with linespoints pt 7 ps 0.7 dt 2 lc rgb '%s' %s", separator,
                    name, i, one ? fth_picture_colour(1) : colour, one ? "title 'validation'" : "notitle");
            separator = ", ";
        }
    }
    if (!one && measure == FTH_LOSS)
        fth_picture_key_validation(script, separator);
    fputc('\n', script);
}

static bool has_accuracy(const drawing *all)
{
    bool found = false;
    for (size_t i = 0; i < all->run_count; i++)
        found = found || fth_report_has(&all->runs[i].training, FTH_ACCURACY) ||
                fth_report_has(&all->runs[i].validation, FTH_ACCURACY);
    return found;
}

/* The run's name; "a, b and 2 more" for several. free() it. */
static char *make_title(const fth_record_summary *runs, size_t run_count)
{
    if (run_count == 1)
        return fth_format("%s", runs[0].id);
    if (run_count == 2)
        return fth_format("%s and %s", runs[0].id, runs[1].id);
    return fth_format("%s, %s and %zu more", runs[0].id, runs[1].id, run_count - 2);
}

void fth_picture_begin(FILE *script, bool svg, int panels)
{
    fprintf(script,
            svg ? "set terminal svg size %d,%d background '#ffffff' font 'sans-serif,14'\n"
                : "set terminal pngcairo size %d,%d background '#ffffff' font 'sans,14' linewidth 1.5\n",
            svg ? (panels > 1 ? 1200 : 900) : (panels > 1 ? 1800 : 1350), svg ? 540 : 810);
}

void fth_picture_begin_panels(FILE *script, const char *title, int panels)
{
    fprintf(script, "set multiplot layout 1,%d title ", panels);
    fth_picture_quote(script, title);
    fputs(" font ',18' noenhanced\nset border 3\nset tics nomirror out\nset grid ytics lc rgb '#d0d0d0'\n"
          "set format x '%g'\nset format y '%g'\n",
          script);
}

static fth_status write_script(FILE *script, bool svg, const char *title, const void *context)
{
    fth_status status = FTH_OK;
    const drawing *all = context;
    fth_picture_extent loss, accuracy;
    bool two = has_accuracy(all);

    fth_picture_begin(script, svg, two ? 2 : 1);
    FTH_TRY(print_data(script, all, FTH_LOSS, &loss));
    FTH_TRY(print_data(script, all, FTH_ACCURACY, &accuracy));
    fth_picture_begin_panels(script, title, two ? 2 : 1);
    print_axes(script, all, FTH_LOSS, &loss);
    print_plot(script, all, FTH_LOSS);
    if (two) {
        print_axes(script, all, FTH_ACCURACY, &accuracy);
        print_plot(script, all, FTH_ACCURACY);
    }
    fputs("unset multiplot\nset output\n", script);

out:
    return status;
}

/* gnuplot's messages, on one line. */
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
    return fth_fail(FTH_UNSUPPORTED, "gnuplot failed: %s", *said ? said : "no message");
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

/* gnuplot calls every SVG document "Gnuplot"; here it has the name of the run. free() what it
 * gives. */
static char *put_title(const char *svg, const char *title)
{
    static const char before[] = "<title>Gnuplot</title>";
    const char *found = strstr(svg, before);
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory)
        return NULL;
    fwrite(svg, 1, found ? (size_t)(found - svg) : strlen(svg), memory);
    if (found) {
        fputs("<title>", memory);
        for (; *title; title++)
            if (*title == '&' || *title == '<')
                fputs(*title == '&' ? "&amp;" : "&lt;", memory);
            else
                fputc((unsigned char)*title < ' ' ? ' ' : *title, memory);
        fprintf(memory, "</title>%s", found + strlen(before));
    }
    if (fclose(memory) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Writes what gnuplot drew; `title` NULL: as it is. */
static fth_status copy_picture(int picture, const char *title, fth_file *file)
{
    fth_status status = FTH_OK;
    struct stat facts;
    char *bytes = NULL, *titled = NULL;
    FTH_REQUIRE(fstat(picture, &facts) == 0, FTH_IO, "read a picture: %s", strerror(errno));
    FTH_REQUIRE(facts.st_size > 0, FTH_IO, "gnuplot drew nothing");
    size_t size = (size_t)facts.st_size;
    FTH_TRY(fth_allocate(size + 1, 1, &bytes));
    FTH_REQUIRE(pread(picture, bytes, size, 0) == facts.st_size, FTH_IO, "read a picture: %s", strerror(errno));
    if (title) {
        titled = put_title(bytes, title);
        FTH_REQUIRE(titled, FTH_NO_MEMORY, "no memory for a picture");
        FTH_TRY(fth_file_write(file, titled, strlen(titled)));
    } else {
        FTH_TRY(fth_file_write(file, bytes, size));
    }
out:
    free(bytes);
    free(titled);
    return status;
}

static bool ends_in(const char *path, const char *ending)
{
    const char *dot = strrchr(path, '.');
    return dot && strcasecmp(dot, ending) == 0;
}

/* The requested output: "FILE.png", "FILE.svg", or a format and a name, "svg:-". */
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

fth_status fth_picture_draw(const char *path, const char *title, fth_picture_writer write, const void *context)
{
    fth_status status = FTH_OK;
    FILE *script = NULL;
    fth_file *file = NULL;
    picture_target target;
    int picture = memfd_create("gnuplot picture", MFD_CLOEXEC),
        descriptor = memfd_create("gnuplot script", MFD_CLOEXEC);

    FTH_TRY(fth_report_check_picture(path));
    read_target(path, &target);
    script = descriptor >= 0 ? fdopen(descriptor, "w+") : NULL;
    FTH_REQUIRE(script && picture >= 0, FTH_IO, "prepare a gnuplot script: %s", strerror(errno));
    FTH_TRY(fth_file_create_output(target.name, &file));
    FTH_REQUIRE(title, FTH_NO_MEMORY, "no memory for a picture");
    FTH_TRY(write(script, target.svg, title, context));
    FTH_REQUIRE(fflush(script) == 0 && !ferror(script), FTH_IO, "write a gnuplot script: %s", strerror(errno));
    FTH_TRY(run_gnuplot(descriptor, picture));
    FTH_TRY(copy_picture(picture, target.svg ? title : NULL, file));
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

fth_status fth_report_picture(const char *path, const fth_record_summary *runs, size_t run_count, fth_chart_axis axis)
{
    bool has_points = false;
    for (size_t i = 0; i < run_count; i++)
        has_points = has_points || runs[i].training.count > 0;
    if (!has_points)
        return fth_fail(FTH_INVALID, "no steps are recorded yet, so there is nothing to draw");
    char *title = make_title(runs, run_count);
    const drawing all = {runs, run_count, fth_report_choose_axis(runs, run_count, axis)};
    fth_status status = fth_picture_draw(path, title, write_script, &all);
    free(title);
    return status;
}
