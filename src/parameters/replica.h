/* A worker's copy of the server's model: an engine that takes its weights from the server and gives
 * its gradients to it. Used by whatever computes for a parameter server: train --server
 * (parallel/parameter_server.c) and functions (functions/train_job.c). */
#ifndef FTH_PARAMETERS_REPLICA_H
#define FTH_PARAMETERS_REPLICA_H

#include "parameters/client.h"
#include "train/engine/engine.h"

typedef struct fth_replica fth_replica;

/* Gradients are compressed as `compression` says (client.h). The engine outlives the replica. */
fth_status fth_replica_create(fth_engine *engine, const char *compression, fth_replica **replica);
void fth_replica_free(fth_replica *replica);

/* The client, which is used from now on and outlives the replica or the next call, works for a
 * server with exactly these tensors, whose weights become the engine's; else FTH_INVALID says what
 * differs. What compression kept back for another client's server is forgotten. */
fth_status fth_replica_connect(fth_replica *replica, fth_worker_client *client);

/* Weights of a version above `since` (-1: any) become the engine's. */
fth_status fth_replica_pull(fth_replica *replica, int64_t since);
int64_t fth_replica_version(const fth_replica *replica); /* of the weights the engine has */

/* What a push is about. */
typedef struct fth_replica_facts {
    int64_t samples, correct;
    double loss;                /* the mean over them */
    float scale;                /* the gradients are multiplied by it first; 0: taken as they are */
    const fth_shard_span *span; /* where the samples come from; NULL: not from a shard of the server's */
} fth_replica_facts;

/* Sends the gradients of the group of batches that the engine computed last. What was not taken is
 * as if it had never been: what compression kept back of earlier gradients is kept back still.
 * FTH_PEER_LOST when many in a row were stale. */
fth_status fth_replica_push(fth_replica *replica, const fth_replica_facts *facts, fth_push_outcome *outcome);

/* After a push: weights for the next gradients. A server that makes a step of several workers'
 * gradients is waited for. */
fth_status fth_replica_pull_next(fth_replica *replica, fth_push_outcome outcome);

#endif
