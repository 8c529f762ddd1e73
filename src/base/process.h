/* Threads with signals blocked, killing children, memory use, and this program's file. */
#ifndef FTH_BASE_PROCESS_H
#define FTH_BASE_PROCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"

/* pthread_create() with all signals blocked: one thread waits for them (src/cli/signals.c), or the
 * threads of a program that uses this library handle them. `name`, of at most 15 characters, is
 * what top and debuggers show; the thread must not detach itself. Returns 0 or an errno. */
int fth_thread_start(pthread_t *thread, const char *name, void *(*run)(void *context), void *context);
/* pthread_join() with a timeout: false if the thread has not ended by then, and can still be
 * joined. */
bool fth_thread_join_by(pthread_t thread, fth_deadline deadline);

/* Kills a child and collects it. A child that hangs in the kernel (on a dead network file system)
 * survives the signal: after a timeout it is abandoned. */
void fth_process_kill(pid_t process);

/* The most memory that this process has had resident; 0: not known. */
int64_t fth_process_peak_bytes(void);
/* What it has resident, and what it has allocated for data, touched or not (RLIMIT_DATA); 0: not
 * known. */
int64_t fth_process_resident_bytes(void);
int64_t fth_process_data_bytes(void);
/* The memory that this machine could still give to processes; 0: not known. */
int64_t fth_machine_available_bytes(void);

/* The file that this process runs, for starting it again under its own name. "/proc/self/exe",
 * which is still the running program, if the file was removed or replaced since. Returns `path`. */
const char *fth_process_program(char *path, size_t size);

#endif
