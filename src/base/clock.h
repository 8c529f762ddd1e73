/* Time: a monotonic clock for measuring, deadlines for waiting, the wall clock for records. */
#ifndef FTH_BASE_CLOCK_H
#define FTH_BASE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "base/status.h"

/* Seconds on the monotonic clock; only differences mean anything. */
double fth_clock_seconds(void);

/* The same, including the time that the machine was suspended. */
double fth_clock_boot_seconds(void);

/* Seconds since 1970 on the wall clock. */
double fth_clock_wall_seconds(void);

/* Seconds since this process was started, as the kernel recorded it. */
double fth_clock_process_seconds(void);

/* Waits; a signal does not cut it short. */
void fth_sleep(double seconds);

/* "2026-11-15T11:03:11Z" */
void fth_clock_format_utc(double wall_seconds, char *text, size_t size);

/* A moment on the monotonic clock after which a wait gives up; INFINITY: never. */
typedef struct fth_deadline {
    double at_seconds;
} fth_deadline;

fth_deadline fth_deadline_in(double seconds);
double fth_deadline_left_seconds(fth_deadline deadline); /* never negative */
bool fth_deadline_passed(fth_deadline deadline);
struct timespec fth_deadline_timespec(fth_deadline deadline); /* CLOCK_MONOTONIC, for pthread_cond_clockwait */

/* "250ms", "30s", "10m", "2h", "1d" or plain seconds; must be positive and finite. */
fth_status fth_duration_parse(const char *text, double *seconds);

/* 75 -> "1m15s"; at most two units. */
void fth_duration_format(double seconds, char *text, size_t size);

#endif
