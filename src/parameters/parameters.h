/* The parameter server: owns a model's parameters and its optimizer. Workers pull parameters and
 * push gradients over HTTP.
 *
 * docs/parameter-server.md and docs/parameter-server.openapi.yaml define the wire format; in short:
 *
 *     GET  /getVersion, /getAccuracy, /getParameter, /getNetwork, /shards
 *     POST /putGradient, /registerWorker, /unregisterWorker, /takeShard, /returnShard
 *     POST /saveCheckpoint
 *     GET  /healthz, /metrics, /openapi.yaml    no signature needed
 *
 * A version counts updates; version 0 is the initial model. Parameters and gradients are
 * safetensors, everything else is JSON. A JSON answer has "code"; a refusal also has "error" (for
 * people) and "reason" (for programs, fth_refusal). A push carries a sequence number, so that a
 * repeated push is applied once. Pushes, and any request with the header X-Farthing-Worker, renew
 * the worker's lease.
 *
 * How it is built: server.c. One thread (applier.h) owns the vectors, the log and the checkpoints,
 * and makes all changes to them in the order of arrival. HTTP threads (routes.h) read atomics and
 * immutable snapshots (snapshots.h). A few threads (intake.h) check bodies before they are
 * queued. */
#ifndef FTH_PARAMETERS_PARAMETERS_H
#define FTH_PARAMETERS_PARAMETERS_H

#include "base/base.h"
#include "train/train.h"

typedef enum fth_consistency_kind {
    FTH_CONSISTENCY_SYNC,    /* a step is the mean of `count` gradients; 0: of one from each worker */
    FTH_CONSISTENCY_BOUNDED, /* gradients at most `count` versions old are applied; fast workers wait */
    FTH_CONSISTENCY_ASYNC    /* each gradient is a step */
} fth_consistency_kind;

typedef struct fth_consistency {
    fth_consistency_kind kind;
    int64_t count;
} fth_consistency;

/* "sync", "sync:4", "bounded:8", "async" */
fth_status fth_consistency_parse(const char *text, fth_consistency *consistency);
/* For the option table: the forms of --consistency, and whether a text is one. */
fth_choice fth_consistency_choice(size_t index);
fth_status fth_consistency_check(const char *text);
void fth_consistency_format(fth_consistency consistency, char *text, size_t size);

/* How much an acknowledged gradient survives. */
typedef enum fth_durability {
    FTH_DURABILITY_CHECKPOINT, /* no log: a kill loses the updates since the last checkpoint */
    FTH_DURABILITY_KILL,       /* a log in the page cache: survives a killed process */
    FTH_DURABILITY_POWER       /* a log synced before each answer: survives a power failure */
} fth_durability;

/* Finds --durability's choice by name; FTH_INVALID lists the choices. */
fth_status fth_durability_find(const char *name, fth_durability *durability);
fth_choice fth_durability_choice(size_t index);

typedef struct fth_parameters_options {
    const fth_train_options *train;       /* model, optimizer, schedule, weights, seed, data; outlives the server */
    int channels, height, width, classes; /* without --data; 0: from the data */
    int64_t epoch_samples;                /* 0: the data's, or unknown */
    bool has_data;                        /* open train->data to validate with */
    const char *shards;                   /* address of the shards to lease to workers; NULL: none */
    double shard_url_expiry_s;            /* of presigned addresses; 0: an hour */
    int64_t validate_every;               /* versions between validations */
    fth_consistency consistency;
    double clip_pushes;               /* gradients with a larger norm are scaled down to it; 0: never */
    double lease_s, function_lease_s; /* function_lease_s 0: as lease_s */
    double gather_s;                  /* how long sync:N waits for N workers after the first gradient; 0: 600 */
    bool ends_by_epochs;              /* training ends after train->epochs, unless train->steps is set */
    fth_durability durability;
    const char *checkpoints; /* folder or store of checkpoints; NULL: <run>/checkpoints */
    uint64_t max_log_bytes;  /* a larger log triggers a checkpoint; 0: 256 MiB or 16 gradients */
    double checkpoint_every_s;
    int64_t checkpoint_every_versions; /* 0: by time only */

    const char *address; /* NULL: 127.0.0.1 */
    int port;
    const char *certificate_pem, *key_pem; /* TLS; or NULL */
    const char *host_names;                /* further names of the server (http/host.h); or NULL */
    const char *keys;                      /* text of a key file (http/signature.h); NULL: loopback only */
    bool open;                             /* without keys: any user of this machine may use it */
    bool open_reads;                       /* reads need no signature */
    uint64_t max_memory_bytes;             /* of received gradients that wait; 0: 1 GiB */
    int max_snapshots;                     /* versions kept for slow readers; 0: 4 */
    double max_requests_per_s;             /* per client address; 0: no limit */
} fth_parameters_options;

/* --checkpoint-every: "200" versions, "30s", or "auto": every minute, since the log keeps the
 * updates in between. */
fth_status fth_parameters_set_interval(const char *text, fth_parameters_options *options);

/* Sets train->own.network where the options name a network that PyTorch exported: to that of the
 * run that a server with these options would continue, else to the one in the file. */
fth_status fth_parameters_find_network(fth_train_options *train, const char *checkpoints);

typedef struct fth_parameters fth_parameters;

/* Restores the state or creates it, then starts to serve. */
fth_status fth_parameters_start(const fth_parameters_options *options, fth_parameters **server);
int fth_parameters_port(const fth_parameters *server);

/* What is served; fixed once the server has started. */
typedef struct fth_parameters_facts {
    const char *model;                      /* name, fitted to the data */
    const char *run_folder;                 /* of a model for text, also has the tokenizer for workers */
    const char *validation_split;           /* which samples are held out: --validation-split */
    const fth_normalization *normalization; /* of the images; 0 channels: unknown */
    bool takes_text;
    int64_t epoch_samples; /* 0: unknown */
} fth_parameters_facts;
fth_parameters_facts fth_parameters_get_facts(const fth_parameters *server);

int64_t fth_parameters_version(const fth_parameters *server);
int fth_parameters_workers(fth_parameters *server); /* those with a lease */
/* The process of `worker` has ended: ends its lease now, which frees its name. */
void fth_parameters_let_go(fth_parameters *server, const char *worker);
/* The completed fraction of training, by --steps or by --epochs; 0 if neither ends it. From 1 on
 * gradients are refused. */
double fth_parameters_progress(const fth_parameters *server);
/* The numbers of a live line, from what workers report with their gradients. */
void fth_parameters_get_progress(fth_parameters *server, fth_progress *progress);
/* Waits at most `seconds` for the server to fail (disk full, weights diverged); returns the
 * failure. */
fth_status fth_parameters_wait(fth_parameters *server, double seconds);
/* Answers waiting requests, saves a checkpoint, ends the record ("end" if `finished`, else
 * "interrupted") and frees the server. */
fth_status fth_parameters_stop(fth_parameters *server, bool finished);

#endif
