/* A worker's side of the wire (parameters.h): registers, pulls, pushes, and reconnects to a server
 * that was away.
 *
 * A push without an answer is repeated under the same sequence number, which the server applies
 * once. The client thus recovers from a lost answer, a restarted server and an expired lease. Not
 * safe for several threads; a thread of its own renews the lease while the worker computes. */
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
    fth_deadline deadline;            /* of all waiting: FTH_TIMEOUT; at_seconds 0: none */
    const fth_stop *stop;             /* ends all waiting: FTH_INTERRUPTED; outlives the client. NULL: none */
    /* Copied; NULL or empty: a token of this user's server, or the environment
     * (http/local_token.h). */
    const struct fth_signer *signer;
    /* The function that the worker runs in, for the server's record: {"provider", "function", "id",
     * "memory_mb"}; copied. NULL: none. */
    const json_t *function;
} fth_worker_options;

/* Registers. */
fth_status fth_worker_open(const fth_worker_options *options, fth_worker_client **client);
/* Replaces the deadline for later calls. */
void fth_worker_set_deadline(fth_worker_client *client, fth_deadline deadline);
/* Unregisters, if the server still answers, and frees. */
void fth_worker_close(fth_worker_client *client);
/* What the function used, recorded when the worker unregisters (docs/parameter-server.md); takes
 * `usage`. */
void fth_worker_set_usage(fth_worker_client *client, json_t *usage);
/* Bodies sent and received so far, including those through memory (local.h). */
uint64_t fth_worker_sent_bytes(const fth_worker_client *client);
uint64_t fth_worker_received_bytes(const fth_worker_client *client);

const char *fth_worker_name(const fth_worker_client *client);
const char *fth_worker_instance(const fth_worker_client *client); /* names this process */

/* The server's answer to the registration. */
typedef struct fth_worker_registration {
    char *model, *input; /* input: "1x28x28" */
    char *network;       /* digest of an exported network's text (exported_model.h); NULL: it is none */
    int classes;
    fth_normalization normalization; /* 0 channels: not given */
    bool waits;                      /* sync: a step combines the gradients of several workers */
    double lease_s;
} fth_worker_registration;
const fth_worker_registration *fth_worker_get_registration(const fth_worker_client *client);

/* The text of the exported network that the server trains; the caller's. FTH_INVALID if it trains
 * another model. The second one does not register. */
fth_status fth_worker_fetch_network(fth_worker_client *client, char **text);
fth_status fth_worker_ask_for_network(const fth_worker_options *options, char **text);

/* Checks that the server has exactly the layout's tensors; a failure names the difference. Pulls
 * its weights as fth_worker_pull() does. */
fth_status fth_worker_check_layout(fth_worker_client *client, const fth_layout *layout, float *packed,
                                   int64_t *version);

/* Pulls weights of a version above `since` (-1: any) into `packed` (layout->packed_floats), waiting
 * for one; any version if the server has fallen back to an older one. */
fth_status fth_worker_pull(fth_worker_client *client, const fth_layout *layout, int64_t since, float *packed,
                           int64_t *version);

typedef enum fth_push_outcome {
    FTH_PUSH_APPLIED, /* or stored, to be applied with others */
    FTH_PUSH_STALE,   /* computed from weights that are too old, or lost: pull and compute again */
    FTH_PUSH_LEASE,   /* not the next samples of the shard, or another worker has it: drop the gradient, take a shard */
    FTH_PUSH_FINISHED /* the server has made all its steps */
} fth_push_outcome;

/* An encoded gradient: bytes, also at the start of the memfd `fd` (local.h) unless that is -1. */
typedef struct fth_push_body {
    const void *bytes;
    size_t size_bytes;
    int fd;
    uint64_t stamp; /* of this body in the memfd */
} fth_push_body;

/* Sends the body that `make` builds for a sequence number; called again if the number changes. */
typedef struct fth_push {
    void *context;
    fth_status (*make)(void *context, const char *worker, int64_t sequence, fth_push_body *body);
} fth_push;
fth_status fth_worker_push(fth_worker_client *client, const fth_push *push, fth_push_outcome *outcome);

/* ---- shards (shards.h) ---- */

/* A shard whose address the worker has. The server knows it as RUN/NAME and keeps its position,
 * from the first time a worker brings it. */
typedef struct fth_shard_offer {
    const char *run, *name;
    int64_t samples, epochs; /* epochs 0: until training ends */
} fth_shard_offer;

/* Samples leased to this worker: positions `from` to `to` of an epoch, in the order of
 * fth_shard_sampler(seed, shard, samples). */
typedef struct fth_shard_lease {
    char shard[FTH_MAX_SHARD_NAME + 1];
    int64_t epoch, from, to;
    int64_t samples; /* of the shard */
    int64_t first;   /* of the shard's samples in its file */
    uint64_t seed;
    char *url, *etag; /* its address and version; "": not known, or the worker brought it */
} fth_shard_lease;
void fth_shard_lease_release(fth_shard_lease *lease);

/* Takes a shard: the one brought or, with NULL, the next listed one. FTH_SHARD_WAIT: others held
 * all that are left until the deadline; FTH_SHARD_DONE: none is left, or training has ended. Only
 * FTH_SHARD_TAKEN fills *lease, which ends with its last sample or the worker's registration. */
fth_status fth_worker_take_shard(fth_worker_client *client, const fth_shard_offer *brought, fth_deadline deadline,
                                 fth_shard_lease *lease, fth_shard_answer *answer);

/* ---- encoding gradients ---- */

typedef struct fth_encoder fth_encoder;

typedef struct fth_encoder_facts {
    const char *worker, *instance; /* the latter may be NULL */
    int64_t sequence, version, samples, correct;
    double loss;
    const fth_shard_span *span; /* the samples; NULL: not of a shard */
} fth_encoder_facts;

/* For the option table: the forms of --compress, and whether a text is one. */
fth_choice fth_compression_choice(size_t index);
fth_status fth_compression_check(const char *text);

/* "none", "f16", "bf16", "topk:0.01". The layout outlives the encoder. */
fth_status fth_encoder_create(const fth_layout *layout, const char *compression, fth_encoder **encoder);
void fth_encoder_free(fth_encoder *encoder);
/* Drops what was left out of earlier gradients; later ones are of another model. */
void fth_encoder_forget(fth_encoder *encoder);
/* Encodes gradients and buffers (the engine's vectors). What compression leaves out is added to the
 * next gradients. */
fth_status fth_encoder_take(fth_encoder *encoder, const float *gradients, const float *buffers);
/* The push of `gradients`, encoded last, was refused: restores what earlier gradients had left
 * out. */
void fth_encoder_give_back(fth_encoder *encoder, const float *gradients);
/* The body of what was taken last; valid until the next call. */
fth_status fth_encoder_make(fth_encoder *encoder, const fth_encoder_facts *facts, fth_push_body *body);

#endif
