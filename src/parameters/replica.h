/* A worker's replica of the server's model: an engine that pulls its weights from the server and
 * pushes its gradients to it. Used by train --server (parallel/parameter_server.c) and by functions
 * (functions/train_job.c). */
#ifndef FTH_PARAMETERS_REPLICA_H
#define FTH_PARAMETERS_REPLICA_H

#include "parameters/client.h"
#include "train/engine/engine.h"

typedef struct fth_replica fth_replica;

/* `compression`: see client.h. The engine outlives the replica. */
fth_status fth_replica_create(fth_engine *engine, const char *compression, fth_replica **replica);
void fth_replica_free(fth_replica *replica);

/* Uses `client`, which outlives the replica or the next call, and loads its server's weights into
 * the engine. FTH_INVALID, naming the difference, if the server has other tensors. Drops what
 * compression kept back for another server. */
fth_status fth_replica_connect(fth_replica *replica, fth_worker_client *client);

/* Loads weights of a version above `since` (-1: any) into the engine. */
fth_status fth_replica_pull(fth_replica *replica, int64_t since);
int64_t fth_replica_version(const fth_replica *replica); /* of the engine's weights */

typedef struct fth_replica_facts {
    int64_t samples, correct;
    double loss;                /* the mean over them */
    float scale;                /* the gradients are multiplied by it; 0: by 1 */
    const fth_shard_span *span; /* the samples; NULL: not of a shard */
} fth_replica_facts;

/* Pushes the gradients of the engine's last group of batches. A push that was not accepted leaves
 * no trace: compression keeps back what it kept back before. FTH_PEER_LOST after many stale pushes
 * in a row. */
fth_status fth_replica_push(fth_replica *replica, const fth_replica_facts *facts, fth_push_outcome *outcome);

/* After a push: pulls weights for the next gradients. Waits for a server that combines several
 * workers' gradients into a step. */
fth_status fth_replica_pull_next(fth_replica *replica, fth_push_outcome outcome);

#endif
