/* See clock.h. */
#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double fth_clock_seconds(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

void fth_sleep(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    while (seconds > 0 && nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

double fth_clock_boot_seconds(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

double fth_clock_wall_seconds(void)
{
    return read_clock(CLOCK_REALTIME);
}

/* Field 22 of /proc/self/stat is the start time in clock ticks since boot; the fields before it
 * hold the program's name, which may itself contain spaces, in parentheses. */
double fth_clock_process_seconds(void)
{
    char line[1024];
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file)
        return 0;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = '\0';
    const char *at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return 0;
    double started = strtod(at, NULL) / (double)sysconf(_SC_CLK_TCK);
    return fth_clock_boot_seconds() - started;
}

void fth_clock_format_utc(double wall_seconds, char *text, size_t size)
{
    time_t whole = (time_t)wall_seconds;
    struct tm parts;
    gmtime_r(&whole, &parts);
    strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

fth_deadline fth_deadline_in(double seconds)
{
    return (fth_deadline){fth_clock_seconds() + seconds};
}

double fth_deadline_left_seconds(fth_deadline deadline)
{
    return fmax(0, deadline.at_seconds - fth_clock_seconds());
}

bool fth_deadline_passed(fth_deadline deadline)
{
    return fth_clock_seconds() >= deadline.at_seconds;
}

struct timespec fth_deadline_timespec(fth_deadline deadline)
{
    const double far_s = 1e12; /* INFINITY and other unreachable times: this one fits a time_t */
    double at_s = fmin(fmax(deadline.at_seconds, 0), far_s), whole = floor(at_s);
    return (struct timespec){.tv_sec = (time_t)whole, .tv_nsec = (long)((at_s - whole) * 1e9)};
}

fth_status fth_duration_parse(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}};
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || errno || !isfinite(number) || number <= 0)
        return fth_fail(FTH_INVALID, "'%s' is not a duration; expected for example 30s, 10m or 2h", text);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        double product = number * units[i].seconds;
        if (!isfinite(product) || product <= 0)
            return fth_fail(FTH_INVALID, "'%s' is too %s a duration", text, product > 0 ? "long" : "short");
        *seconds = product;
        return FTH_OK;
    }
    return fth_fail(FTH_INVALID, "'%s' has an unknown unit '%s'; use ms, s, m, h or d", text, end);
}

void fth_duration_format(double seconds, char *text, size_t size)
{
    if (!(seconds >= 0) || seconds > 1e9) {
        snprintf(text, size, "-");
        return;
    }
    long whole = (long)(seconds + 0.5);
    if (seconds < 10)
        snprintf(text, size, "%.1fs", seconds);
    else if (whole < 60)
        snprintf(text, size, "%lds", whole);
    else if (whole < 3600)
        snprintf(text, size, "%ldm%02lds", whole / 60, whole % 60);
    else if (whole < 86400)
        snprintf(text, size, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
    else
        snprintf(text, size, "%ldd%02ldh", whole / 86400, whole / 3600 % 24);
}
