/* Child processes: they inherit only what is listed, are polled without blocking, and are reliably
 * ended.
 *
 * A child's standard input is /dev/null unless a descriptor is given, its signals have their
 * default actions and none is blocked, and descriptors other than the three standard ones and the
 * one that is passed are closed.  */
#ifndef FTH_BASE_CHILD_H
#define FTH_BASE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/status.h"

/* ---- a command line being made ---- */

typedef struct fth_words {
    char **items; /* NULL-terminated; NULL before the first */
    size_t count, capacity;
} fth_words;

fth_status fth_words_add(fth_words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fth_words_release(fth_words *words);

/* ---- children ---- */

enum { FTH_CHILD_DESCRIPTOR = 3 }; /* where a child finds the descriptor that it was passed */

typedef struct fth_child_options {
    const char *program;          /* a file */
    const char *const *arguments; /* NULL-terminated, the program's name first */
    const char *const *variables; /* "NAME=value", NULL-terminated: set over this process's environment; NULL: none */
    int input;                    /* descriptor for standard input; 0: /dev/null */
    int output;                   /* descriptor for standard output; 0: /dev/null */
    int message_output;           /* descriptor for standard error; or */
    const char *messages;         /* file that standard error is appended to; 0 and NULL: ours */
    int descriptor;               /* passed as FTH_CHILD_DESCRIPTOR; 0: none */
    bool blocks_stops; /* SIGINT, SIGTERM, SIGHUP and SIGUSR1 stay blocked: it ends only when its parent ends it */
    bool own_group;    /* a Ctrl-C at the terminal does not reach it */
} fth_child_options;

fth_status fth_child_start(const fth_child_options *options, pid_t *child);

/* How a child ended. */
typedef struct fth_child_end {
    int code;   /* its exit status; -1: none, a signal ended it or it could not be waited for */
    int signal; /* that ended it; 0: none did */
} fth_child_end;

/* True if it has ended and was collected; its process id is then invalid. Does not wait. */
bool fth_child_has_ended(pid_t child, fth_child_end *end);
/* "signal 9 (Killed)", "exit status 1" */
void fth_child_describe_end(const fth_child_end *end, char *text, size_t size);
/* Waits until it has ended; it is killed at the deadline. */
void fth_child_wait(pid_t child, fth_deadline deadline);

#endif
