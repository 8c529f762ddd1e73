/* Workers that are processes: this program again, with a hidden command. It gets the region as descriptor 3 and nothing
 * else of ours; signals for the trainer are not its business, so that a Ctrl-C, which goes to all, leaves it working
 * until the trainer has saved. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "parallel/hogwild.h"

enum { REGION_DESCRIPTOR = 3 };

fth_status hogwild_process_start(int descriptor, int worker, pid_t *process)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t blocked;
    char number[16], target[16];
    char *const arguments[] = {"farthing", FTH_HOGWILD_COMMAND, target, number, NULL};

    snprintf(target, sizeof target, "%d", REGION_DESCRIPTOR);
    snprintf(number, sizeof number, "%d", worker);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, descriptor, REGION_DESCRIPTOR);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO,
                                     STDOUT_FILENO); /* the output's readers wait for us alone */
    posix_spawn_file_actions_addclosefrom_np(&actions, REGION_DESCRIPTOR + 1);
    posix_spawnattr_init(&attributes);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    sigaddset(&blocked, SIGUSR1);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    char program[4096];
    int failure =
        posix_spawn(process, fth_process_program(program, sizeof program), &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failure == 0 ? FTH_OK : fth_fail(FTH_IO, "start worker process %d: %s", worker, strerror(failure));
}

bool hogwild_process_is_gone(pid_t process, char *reason, size_t size)
{
    int how = 0;
    pid_t got = waitpid(process, &how, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR))
        return false;
    if (got < 0)
        snprintf(reason, size, "%s", strerror(errno));
    else if (WIFSIGNALED(how))
        snprintf(reason, size, "signal %d (%s)", WTERMSIG(how), strsignal(WTERMSIG(how)));
    else
        snprintf(reason, size, "it ended with code %d", WEXITSTATUS(how));
    return true;
}

void hogwild_process_end(pid_t process, fth_deadline deadline)
{
    char reason[96];
    while (!hogwild_process_is_gone(process, reason, sizeof reason)) {
        if (fth_deadline_passed(deadline)) {
            fth_process_kill(process);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}
