/* Copies of the parameters for readers: immutable, one for each version that is asked for, made by
 * the applying thread between updates; and the readers that wait for one.
 *
 * A copy is a file in memory that holds the whole answer, so that the kernel sends it without
 * copying (sendfile). Its pages may be in sockets' queues after everybody here has closed it;
 * therefore it is never written again, and memory is bounded by how many versions are alive at
 * once. When that many are in use and a newer one is asked for, those who read slowly are cut off,
 * the slowest at once and faster ones the longer it lasts; until there is room, readers of an
 * `async` server get the newest of those there are, and others, whom an old one would not help,
 * wait.
 *
 * A worker of a `sync` server waits for the version after the one it has pushed for. Where its
 * gradient is not here, since the server was started again from a checkpoint without it, that
 * worker gets the version it has once more: it then computes and pushes again, where otherwise both
 * would wait for each other.
 *
 * Workers on the same machine read a region of shared memory instead (local.h). */
#ifndef FTH_PARAMETERS_SNAPSHOTS_H
#define FTH_PARAMETERS_SNAPSHOTS_H

#include "http/range.h"
#include "parameters/intake.h"

typedef struct fth_parameter_snapshots fth_parameter_snapshots;

typedef struct fth_parameter_snapshots_options {
    const fth_served_model *model;
    const fth_served_position *position;
    fth_parameters_metrics *metrics;
    fth_workers *workers;
    fth_intake *intake;  /* woken when a copy is wanted */
    bool older_serve;    /* an older version helps a reader more than waiting does (async) */
    bool all_contribute; /* a step waits for a gradient of every worker (sync) */
    int max_snapshots;
} fth_parameter_snapshots_options;

/* Everything in the options outlives it. */
fth_status fth_parameter_snapshots_create(const fth_parameter_snapshots_options *options,
                                          fth_parameter_snapshots **snapshots);
void fth_parameter_snapshots_free(fth_parameter_snapshots *snapshots);

/* What a reader asked for. */
typedef struct fth_pull {
    fth_exchange *exchange;
    char worker[FTH_MAX_WORKER_NAME + 1]; /* or ""; it need not be registered */
    int64_t since;                        /* -1: any version */
    double until_s;
    bool has_range, numbers;
    bool local; /* only where it is */
    fth_range range;
    uint64_t offset, count; /* numbers */
    int64_t if_match;       /* -1: none */
    int64_t if_range;       /* the version that the range is for; -1: any, -2: none there is */
} fth_pull;

/* Answers at once, or holds the exchange and answers later. From any thread. */
void fth_parameter_snapshots_pull(fth_parameter_snapshots *snapshots, const fth_pull *pull);
/* The server that sends copies, whose slow readers are cut off when room is needed. From any
 * thread. */
void fth_parameter_snapshots_set_server(fth_parameter_snapshots *snapshots, fth_server *server);
/* How many copies there are, and how large they are together. From any thread. */
int fth_parameter_snapshots_count(fth_parameter_snapshots *snapshots, uint64_t *size_bytes);

/* A copy for a reader inside the server: a safetensors file. */
typedef struct fth_parameter_snapshot fth_parameter_snapshot;
/* The newest one, of version `least` or later, made if need be; NULL: none within `seconds`, or the
 * server stops. The caller releases it. From any thread but the applying one. */
fth_parameter_snapshot *fth_parameter_snapshots_get(fth_parameter_snapshots *snapshots, int64_t least, double seconds);
void fth_parameter_snapshot_release(fth_parameter_snapshot *snapshot); /* NULL is fine */
int64_t fth_parameter_snapshot_version(const fth_parameter_snapshot *snapshot);
int fth_parameter_snapshot_file(const fth_parameter_snapshot *snapshot,
                                size_t *size_bytes); /* the copy's; to be mapped for reading */
/* fth_parameter_snapshots_get() waits no longer. */
void fth_parameter_snapshots_stop(fth_parameter_snapshots *snapshots);

/* ---- for the applying thread, between updates ---- */

/* Makes the copies that are wanted and answers the pulls they satisfy. */
void fth_parameter_snapshots_serve(fth_parameter_snapshots *snapshots);
/* The last call: waiting and later pulls are refused. */
void fth_parameter_snapshots_close(fth_parameter_snapshots *snapshots);

#endif
