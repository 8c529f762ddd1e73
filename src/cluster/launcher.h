/* What started this process as one of several: `farthing launch`, or a launcher that people already
 * have (torchrun, srun, mpirun, Kubernetes), known by the environment variables it sets. One row
 * per launcher in launcher.c. */
#ifndef FTH_CLUSTER_LAUNCHER_H
#define FTH_CLUSTER_LAUNCHER_H

#include "base/base.h"

typedef struct fth_launched {
    const char
        *launcher;  /* "launch", "torchrun", "slurm", "open-mpi", "mpich", "kubernetes"; "none": started by hand */
    int rank, size; /* -1 and 0: the rendezvous decides */
    int local_rank, local_size; /* on this machine */
    int least, most;            /* nodes; of launchers that fix the number of processes: least is 1, most is `size` */
    char *rendezvous;           /* "host:port"; "127.0.0.1:0" of a process started by hand: any free port */
    bool hosts_rendezvous;      /* this process has it in a thread: rank 0, where no agent does */
    char *token;                /* that members show; "": none */
    char *node;                 /* which machine this is */
    char *run;                  /* what processes of one start have in common */
} fth_launched;

/* FTH_INVALID, naming the variables, if they are incomplete or contradict each other. */
fth_status fth_launcher_find(fth_launched *launched);
void fth_launched_release(fth_launched *launched);

/* A port, the same for the same text and probably another one for another. */
int fth_launcher_derive_port(const char *text);
/* A token that nobody can guess; wipe and free it. */
fth_status fth_launcher_make_token(char **token);
/* The token in file `path`; NULL: in the file that FARTHING_TOKEN_FILE names, or in FARTHING_TOKEN;
 * "" where there is none. Wipe and free it. */
fth_status fth_launcher_read_token(const char *path, char **token);
/* The first name in a list of hosts as Slurm writes it: "node2" of "node[2-4,7],login"; free() it.
 * NULL: it is none. */
char *fth_launcher_first_host(const char *list);
/* "N" or "MIN:MAX" */
fth_status fth_launcher_parse_nodes(const char *text, int *least, int *most);
/* FTH_INVALID unless `text` is HOST:PORT, or [ADDRESS]:PORT. */
fth_status fth_launcher_check_address(const char *text);

/* What `farthing launch` sets for its workers; the token comes in a file that only they can
 * read. */
#define FTH_LAUNCH_RENDEZVOUS "FARTHING_RENDEZVOUS" /* host:port */
#define FTH_LAUNCH_TOKEN_FILE "FARTHING_TOKEN_FILE"
#define FTH_LAUNCH_RUN        "FARTHING_LAUNCH_RUN"
#define FTH_LAUNCH_COMMAND    "FARTHING_LAUNCH_COMMAND" /* "farthing launch ... -- train", for people */
#define FTH_LAUNCH_NODE       "FARTHING_NODE"
#define FTH_LAUNCH_NODES      "FARTHING_NODES" /* MIN:MAX */
#define FTH_LAUNCH_LOCAL_RANK "FARTHING_LOCAL_RANK"
#define FTH_LAUNCH_LOCAL_SIZE "FARTHING_LOCAL_SIZE"

#endif
