/* The program's exit status, for people, supervisors and rehearsals. */
#ifndef FTH_BASE_EXIT_CODE_H
#define FTH_BASE_EXIT_CODE_H

typedef enum fth_exit_code {
    FTH_EXIT_OK = 0,
    FTH_EXIT_FAILURE = 1,
    FTH_EXIT_USAGE = 2,       /* a flag, a key or a value that is not valid */
    FTH_EXIT_INTERRUPTED = 75 /* stopped on request, saved: the same command with --resume continues */
} fth_exit_code;

#endif
