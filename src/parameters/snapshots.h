/* Parameter snapshots: immutable copies of the parameters for readers, one for each version that is
 * asked for, made by the applying thread between updates; and the readers that wait for one.
 *
 * A snapshot is a memory file that holds the whole answer, which the kernel sends without copying
 * (sendfile). Its pages may sit in socket queues after it is closed here, so it is never written
 * again, and memory is bounded by the number of snapshots alive at once. When that many are in use
 * and a newer version is asked for, slow readers are disconnected, the slowest at once and faster
 * ones the longer the shortage lasts. Until there is room, readers of an `async` server get the
 * newest snapshot there is; other readers, which an old version would not help, wait.
 *
 * A worker of a `sync` server waits for the version after the one it has pushed for. If the server
 * does not have its gradient, because it restarted from a checkpoint without it, the worker gets
 * the version it has again, computes and pushes again; otherwise both would wait forever.
 *
 * Workers on the same machine read a region of shared memory instead (local.h). */
#ifndef FTH_PARAMETERS_SNAPSHOTS_H
#define FTH_PARAMETERS_SNAPSHOTS_H

#include "http/range.h"
#include "parameters/intake.h"

typedef struct fth_parameter_snapshots fth_parameter_snapshots;

/* The parts outlive it. */
fth_status fth_parameter_snapshots_create(const fth_server_parts *parts, fth_parameter_snapshots **snapshots);
void fth_parameter_snapshots_free(fth_parameter_snapshots *snapshots);

/* What a reader asks for. */
typedef struct fth_pull {
    fth_exchange *exchange;
    char worker[FTH_MAX_WORKER_NAME + 1]; /* or ""; need not be registered */
    int64_t since;                        /* -1: any version */
    double until_s;
    bool has_range, numbers;
    bool local; /* only the place in shared memory */
    fth_range range;
    uint64_t offset, count; /* numbers */
    int64_t if_match;       /* -1: none */
    int64_t if_range;       /* the version of the range; -1: any, -2: none matches */
} fth_pull;

/* Answers at once, or holds the exchange and answers later. From any thread. */
void fth_parameter_snapshots_pull(fth_parameter_snapshots *snapshots, const fth_pull *pull);
/* Sets the server that sends snapshots, whose slow readers are disconnected. From any thread. */
void fth_parameter_snapshots_set_server(fth_parameter_snapshots *snapshots, fth_server *server);
/* The number of snapshots, and their size together. From any thread. */
int fth_parameter_snapshots_count(fth_parameter_snapshots *snapshots, uint64_t *size_bytes);

/* A snapshot for a reader inside the server: a safetensors file. */
typedef struct fth_parameter_snapshot fth_parameter_snapshot;
/* The newest snapshot, of version `least` or later, made if necessary; NULL after `seconds`, or
 * when the server stops. The caller releases it. Not from the applying thread. */
fth_parameter_snapshot *fth_parameter_snapshots_get(fth_parameter_snapshots *snapshots, int64_t least, double seconds);
void fth_parameter_snapshot_release(fth_parameter_snapshot *snapshot); /* NULL is fine */
int64_t fth_parameter_snapshot_version(const fth_parameter_snapshot *snapshot);
/* The snapshot's own descriptor, to be mapped for reading. */
int fth_parameter_snapshot_file(const fth_parameter_snapshot *snapshot, size_t *size_bytes);
/* Ends the waiting of fth_parameter_snapshots_get(). */
void fth_parameter_snapshots_stop(fth_parameter_snapshots *snapshots);

/* ---- for the applying thread, between updates ---- */

/* Makes the snapshots that are asked for and answers the pulls they satisfy. */
void fth_parameter_snapshots_serve(fth_parameter_snapshots *snapshots);
/* Refuses waiting and later pulls. */
void fth_parameter_snapshots_close(fth_parameter_snapshots *snapshots);

#endif
