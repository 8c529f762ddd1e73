/* Agents on other machines, over ssh: `farthing launch --hosts a,b,c`.
 *
 * Each host runs an agent, the same command with --rendezvous and --node, behind an ssh client that
 * is a supervised child. The agent's standard input is its connection to this process: the token
 * comes first, then orders to stop; when it closes, since this process was killed or the network is
 * gone, the agent stops its workers. What agents write comes back with the host's name before each
 * line that does not have it already; results go to standard output as they are. */
#ifndef FTH_PARALLEL_REMOTE_HOSTS_H
#define FTH_PARALLEL_REMOTE_HOSTS_H

#include "base/exit_code.h"
#include "parallel/relay.h"

typedef struct fth_remote_options {
    const char *ssh;              /* the program: a file */
    const char *const *hosts;     /* NULL-terminated; the first has the rendezvous */
    const char *program;          /* of farthing, on each host */
    const char *folder;           /* that it works in, on each host */
    const char *const *arguments; /* of `launch`, without what is each host's own; NULL-terminated */
    const char *command;          /* how a person starts all of this: "farthing launch --hosts ... -- train" */
    const char *token;
    int max_restarts; /* of an agent whose connection was lost */
    fth_stop *stop;
    void *context;
    void (*show)(void *context, fth_relay_stream stream, const char *line);
} fth_remote_options;

/* Runs a training on all hosts. *code is the exit code in any case, also with a failure, which has
 * its message. */
fth_status fth_remote_run(const fth_remote_options *options, fth_exit_code *code);

/* Set for an agent that was started in this way: it reads its token from standard input, and says
 * when it has begun. */
#define FTH_REMOTE_VARIABLE "FARTHING_LAUNCH_CONTROL"
#define FTH_REMOTE_GREETING "farthing agent: connected"

#endif
