/* A worker's side of the wire (parameters.h): registers, pulls, pushes, and comes back after a
 * server that was away.
 *
 * What was pushed and not answered is pushed again under the same sequence number, which the server
 * applies once; so a lost answer, a server that was killed and started again, and a lease that ran
 * out are all the worker's to get over. Not safe for several threads; a thread of its own keeps the
 * lease while the worker computes. */
#ifndef FTH_PARAMETERS_CLIENT_H
#define FTH_PARAMETERS_CLIENT_H

#include "base/options.h"
#include "data/image/normalization.h"
#include "parameters/gradient.h"
#include "parameters/shards.h"

typedef struct fth_worker_client fth_worker_client;

typedef struct fth_worker_options {
    const char *url;                  /* "http://127.0.0.1:29500" */
    const char *worker;               /* NULL or "": made up from the host's name */
    const char *pinned_key, *ca_file; /* see fth_http_client_options; NULL or "": none */
    double patience_s;                /* how long a server that does not answer is tried again */
    fth_deadline deadline;            /* nothing is waited for beyond it: FTH_TIMEOUT; at_seconds 0: none */
    const fth_stop *stop;             /* ends whatever waits, with FTH_INTERRUPTED; outlives the client. NULL: none */
    const struct fth_signer *
        signer; /* copied; NULL or empty: a token of this user's server, or from the environment (http/local_token.h) */
    const json_t *function; /* that the worker runs in, for the server's record: {"provider", "function", "id",
                               "memory_mb"}; copied. NULL: in none */
} fth_worker_options;

/* Registers. */
fth_status fth_worker_open(const fth_worker_options *options, fth_worker_client **client);
/* Replaces the options' deadline, for what is done from now on. */
void fth_worker_set_deadline(fth_worker_client *client, fth_deadline deadline);
/* Unregisters, if the server still answers, and frees. */
void fth_worker_close(fth_worker_client *client);
/* What the function used, which the server records when the worker unregisters
 * (docs/parameter-server.md); takes `usage`. */
void fth_worker_set_usage(fth_worker_client *client, json_t *usage);
/* Bodies sent and received so far, those by memory too (local.h): what a server elsewhere would
 * have moved. */
uint64_t fth_worker_sent_bytes(const fth_worker_client *client);
uint64_t fth_worker_received_bytes(const fth_worker_client *client);

/* What the server said at registration. */
const char *fth_worker_name(const fth_worker_client *client);
const char *fth_worker_instance(const fth_worker_client *client); /* this process's own */
const char *fth_worker_model(const fth_worker_client *client);
const char *fth_worker_input(const fth_worker_client *client); /* "1x28x28" */
int fth_worker_classes(const fth_worker_client *client);
const fth_normalization *fth_worker_normalization(const fth_worker_client *client); /* 0 channels: not said */
bool fth_worker_waits(const fth_worker_client *client); /* sync: a step is the work of several */

/* Checks that the server has exactly the layout's tensors; fails naming what differs. Gives its
 * weights as fth_worker_pull() does. */
fth_status fth_worker_check_layout(fth_worker_client *client, const fth_layout *layout, float *packed,
                                   int64_t *version);

/* Weights of a version above `since` (-1: any), waiting for one, or of any where the server has
 * gone back; into `packed` (layout->packed_floats). */
fth_status fth_worker_pull(fth_worker_client *client, const fth_layout *layout, int64_t since, float *packed,
                           int64_t *version);

typedef enum fth_push_outcome {
    FTH_PUSH_APPLIED, /* or stored, to be applied with those of others */
    FTH_PUSH_STALE,   /* computed with weights that are too old by now, or that are lost: pull and compute again */
    FTH_PUSH_LEASE,   /* its samples are not what comes next of their shard, or another worker has it: drop the gradient
                         and take a shard again */
    FTH_PUSH_FINISHED /* the server has made all the steps it was asked for */
} fth_push_outcome;

/* A gradient ready to travel: bytes, which are the memfd `fd`'s from its beginning (local.h) unless
 * that is -1. */
typedef struct fth_push_body {
    const void *bytes;
    size_t size_bytes;
    int fd;
    uint64_t stamp; /* in the memfd while it holds this body */
} fth_push_body;

/* Sends what `make` makes of a sequence number; it is called again if the number has to change. */
typedef struct fth_push {
    void *context;
    fth_status (*make)(void *context, const char *worker, int64_t sequence, fth_push_body *body);
} fth_push;
fth_status fth_worker_push(fth_worker_client *client, const fth_push *push, fth_push_outcome *outcome);

/* ---- shards (shards.h) ---- */

/* A shard that the worker has an address of. The server knows it as RUN/NAME, and where its samples
 * stand, from the first time on that somebody brings it. */
typedef struct fth_shard_offer {
    const char *run, *name;
    int64_t samples, epochs; /* epochs 0: until the training ends */
} fth_shard_offer;

/* Samples that are this worker's to compute: positions `from` to `to` of an epoch, in the order of
 * fth_shard_sampler(seed, shard, samples). */
typedef struct fth_shard_lease {
    char shard[FTH_MAX_SHARD_NAME + 1];
    int64_t epoch, from, to;
    int64_t samples; /* of the shard */
    int64_t first;   /* of the shard's samples in its file */
    uint64_t seed;
    char *url, *etag; /* where it is, and its version; "": as the worker knows (it brought it), or not known */
} fth_shard_lease;
void fth_shard_lease_release(fth_shard_lease *lease);

/* Takes a shard: the one brought or, with NULL, the next that the server lists. FTH_SHARD_WAIT: all
 * that are left were with others until the deadline; FTH_SHARD_DONE: none is left, or the training
 * has ended. Only with FTH_SHARD_TAKEN is there something in *lease; it ends with its last sample,
 * fth_worker_return_shard(), or the worker's registration. */
fth_status fth_worker_take_shard(fth_worker_client *client, const fth_shard_offer *brought, fth_deadline deadline,
                                 fth_shard_lease *lease, fth_shard_answer *answer);
/* Gives back what is left of it, for others to take. */
fth_status fth_worker_return_shard(fth_worker_client *client);

/* ---- gradients as they travel ---- */

typedef struct fth_encoder fth_encoder;

typedef struct fth_encoder_facts {
    const char *worker, *instance; /* the latter may be NULL */
    int64_t sequence, version, samples, correct;
    double loss;
    const fth_shard_span *span; /* where the samples come from; NULL: from no shard */
} fth_encoder_facts;

/* How gradients travel, for the table of options: --compress is one of these forms, with a share
 * that fits. */
fth_choice fth_compression_choice(size_t index);
fth_status fth_compression_check(const char *text);

/* "none", "f16", "bf16", "topk:0.01". The layout outlives the encoder. */
fth_status fth_encoder_create(const fth_layout *layout, const char *compression, fth_encoder **encoder);
void fth_encoder_free(fth_encoder *encoder);
/* Drops what was left out of earlier gradients: those that follow are of another model. */
void fth_encoder_forget(fth_encoder *encoder);
/* Takes gradients and buffers (the engine's vectors). What compression leaves out is kept and
 * added to the gradients taken next. */
fth_status fth_encoder_take(fth_encoder *encoder, const float *gradients, const float *buffers);
/* What was taken last, of these gradients, was refused: what earlier ones had left is kept again,
 * as if it had not been. */
void fth_encoder_give_back(fth_encoder *encoder, const float *gradients);
/* The body for what was taken last; valid until the next call. */
fth_status fth_encoder_make(fth_encoder *encoder, const fth_encoder_facts *facts, fth_push_body *body);

#endif
