/* One simulated machine: a child process that runs the job, its events, and how it ended. */
#ifndef FTH_REHEARSE_MACHINE_H
#define FTH_REHEARSE_MACHINE_H

#include <sys/types.h>

#include "base/child.h"
#include "rehearse/rehearse.h"

typedef struct fth_step_moment {
    double at_s;
    int64_t step;
} fth_step_moment;

/* The state of one process, used by one thread. Times are of fth_clock_seconds(); NAN: has not
 * happened. */
typedef struct fth_trial {
    pid_t pid;
    int output; /* the child's events, read without blocking; -1: closed */
    struct {    /* the unfinished last one */
        char *text;
        size_t count, capacity;
    } line;
    FILE *copy; /* events.jsonl of this machine */
    const fth_progress_board *board;
    char *log_path;

    double spawned_s, began_s, first_step_s, ended_s;
    int64_t begun_step; /* where it began: 0, or what it resumed from */
    int64_t step;       /* done so far */
    int64_t saved_step; /* newest checkpoint reported complete by this machine; -1: none */
    bool evaluating;
    double price_usd_per_hour; /* NAN: unknown */
    json_t *end, *error;       /* those events */
    struct {                   /* when which step was seen done */
        fth_step_moment *at;
        size_t count, capacity;
    } moments;
    bool ended;
    fth_child_end exit; /* once it has ended */
} fth_trial;

/* Starts `arguments` (a copy of the program's, NULL at the end) with `environment` added to ours
 * ("NAME=value", NULL at the end). Its output goes to `folder`/events.jsonl and `folder`/log. */
fth_status fth_trial_start(const char *program, const char *const *arguments, const char *const *environment,
                           const char *folder, fth_trial *trial);
/* Reads the child's output for at most `seconds`; returns early when something happened. */
fth_status fth_trial_look(fth_trial *trial, double seconds);
/* When it completed `step`, as observed. */
double fth_trial_time_of_step(const fth_trial *trial, int64_t step);
/* Lines of its log that contain `text`. */
int64_t fth_trial_count_in_log(const fth_trial *trial, const char *text);
/* The last line of its log, for messages; "" if there is none. free() it. */
char *fth_trial_last_words(const fth_trial *trial);
/* Kills it if it runs. */
void fth_trial_close(fth_trial *trial);

#endif
