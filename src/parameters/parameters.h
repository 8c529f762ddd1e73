/* The parameter server: owns a model's parameters and its optimizer; workers pull parameters and
 * push gradients over HTTP (docs/parameter-server.md, docs/parameter-server.openapi.yaml).
 *
 * The wire format is in those two pages; in short, JSON unless said, every JSON answer with "code",
 * refusals with "error" (for people) and "reason" (for programs) too. A version counts updates; 0
 * is the start.
 *
 * - GET /getVersion, /getAccuracy (of the last validation).
 *
 * - GET /getParameter: safetensors, all F32, in the order of the flat vector without padding: trained parameters,
 * others, buffers. ETag and X-Farthing-Version are the version; If-None-Match gives 304; ?since=N&wait=S waits for one
 * above N; Range and ?offset=A&count=B give parts; ?local=1 says where it is in this machine's memory (local.h).
 *
 * - POST /putGradient: safetensors whose __metadata__ has "worker", "sequence" (1, 2, 3, ...: the same again is the
 * same push, applied once), "version" (of the parameters it was computed with), "samples" (its weight), and perhaps
 * "loss", "correct" and "instance". For every trained parameter NAME either NAME (F32, F16 or BF16) or NAME.indices and
 *   NAME.values (its largest); buffers all or none. 200: applied; 201: stored, to be applied with those of others; 400
 *   malformed or not finite; 409 names, shape, dtype, stale, diverges, sequence, stranger, finished; 413; 503 with
 *   Retry-After.
 *
 * - POST /registerWorker, /unregisterWorker: {"worker", "instance"}; 409 duplicate, stranger. POST /saveCheckpoint
 * (admin).
 *
 * - POST /takeShard: {"worker", "wait", "shard"}, /returnShard: {"worker"}; GET /shards: shards.h, dealer.h. A gradient
 * of a shard's samples has "shard", "epoch", "from" and "to" in its __metadata__; 409 lease: they are not what comes
 * next.
 *
 * - GET /healthz, /metrics, /openapi.yaml: open to everybody.
 *
 * A worker's lease is renewed by its pushes and by every request with a header X-Farthing-Worker:
 * id (or ?worker=id); with keys, only if signed by the key that registered it. Signatures:
 * http/signature.h; everything else than the last three needs one where the server has keys: role
 * read for what is got, train for workers, admin for the rest.
 *
 * How it is built: server.c. One thread (applier.h) owns vectors, log and checkpoints and does
 * everything that changes them, in the order of arrival; HTTP threads (routes.h) read atomics and
 * immutable copies (copies.h); a few threads (intake.h) check bodies before they are queued. */
#ifndef FTH_PARAMETERS_PARAMETERS_H
#define FTH_PARAMETERS_PARAMETERS_H

#include "base/base.h"
#include "train/train.h"

typedef enum fth_consistency_kind {
    FTH_CONSISTENCY_SYNC,    /* the mean of `count` gradients (0: of one from each worker) makes a step */
    FTH_CONSISTENCY_BOUNDED, /* no gradient is applied that is more than `count` versions old; the fast wait */
    FTH_CONSISTENCY_ASYNC    /* each gradient makes a step */
} fth_consistency_kind;

typedef struct fth_consistency {
    fth_consistency_kind kind;
    int64_t count;
} fth_consistency;

/* "sync", "sync:4", "bounded:8", "async" */
fth_status fth_consistency_parse(const char *text, fth_consistency *consistency);
/* For the table of options: --consistency is one of these forms, with a number that fits. */
fth_choice fth_consistency_choice(size_t index);
fth_status fth_consistency_check(const char *text);
void fth_consistency_format(fth_consistency consistency, char *text, size_t size);

/* What survives what. */
typedef enum fth_durability {
    FTH_DURABILITY_CHECKPOINT, /* a kill loses what came after the last checkpoint */
    FTH_DURABILITY_KILL,       /* a log in the page cache: nothing acknowledged is lost with the process */
    FTH_DURABILITY_POWER       /* the log is synced before an answer: nor with the machine */
} fth_durability;

/* By name; FTH_INVALID with those there are. They are the choices of --durability. */
fth_status fth_durability_find(const char *name, fth_durability *durability);
fth_choice fth_durability_choice(size_t index);

/* A plain value: one member for each thing that can be chosen. */
typedef struct fth_parameters_options {
    const fth_train_options *train;       /* model, optimizer, schedule, weights, seed, data; outlives the server */
    int channels, height, width, classes; /* where there is no --data; 0: taken from the data */
    int64_t epoch_samples;                /* samples in an epoch; 0: the data's, or unknown */
    bool has_data;                        /* train->data is to be opened, to validate with */
    const char *shards;        /* address of shards to deal out, which say what images are like; NULL: none */
    double shard_url_expiry_s; /* of the addresses given out; 0: an hour */
    int64_t validate_every;    /* versions between validations */
    fth_consistency consistency;
    double clip_pushes; /* gradients of a larger norm are scaled down to it as they come; 0: as they are */
    double lease_s, function_lease_s; /* function_lease_s 0: as of other workers */
    double
        gather_s; /* sync:N begins with fewer workers when N have not come so long after the first gradient; 0: 600 */
    bool ends_by_epochs; /* train->epochs end the training, unless train->steps do */
    fth_durability durability;
    const char *checkpoints; /* folder of checkpoints and logs; NULL: <run>/checkpoints */
    uint64_t max_log_bytes;  /* a checkpoint is made when the log is larger; 0: 256 MiB, or 16 gradients */
    double checkpoint_every_s;
    int64_t checkpoint_every_versions; /* 0: not by number */

    const char *address; /* NULL: 127.0.0.1 */
    int port;
    const char *certificate_pem, *key_pem; /* TLS; or NULL */
    const char *host_names;                /* that it is asked under, beside those it knows (http/host.h); or NULL */
    const char *keys;                      /* text of a key file (http/signature.h); NULL: none, and loopback only */
    bool open;                             /* without keys: anyone on this machine may use it */
    bool open_reads;                       /* reads need no signature */
    uint64_t max_memory_bytes;             /* of gradients received and waiting; 0: 1 GiB */
    int max_snapshots;                     /* versions kept for slow readers; 0: 4 */
    double max_requests_per_s;             /* of one client address; 0: no limit */
} fth_parameters_options;

/* --checkpoint-every: "200" versions, "30s", or "auto": every minute, since the log has what comes in
 * between. */
fth_status fth_parameters_set_interval(const char *text, fth_parameters_options *options);

typedef struct fth_parameters fth_parameters;

/* Opens or goes on with the state, starts to serve. */
fth_status fth_parameters_start(const fth_parameters_options *options, fth_parameters **server);
/* Of the images that the model is trained with; 0 channels: unknown. */
const fth_normalization *fth_parameters_normalization(const fth_parameters *server);
/* The name of the model, which fits the data. */
const char *fth_parameters_model(const fth_parameters *server);
/* Which samples of its data are held out, as --validation-split has it. */
const char *fth_parameters_split(const fth_parameters *server);
/* Then its run folder has the tokenizer, which workers are to use. */
bool fth_parameters_takes_text(const fth_parameters *server);
int fth_parameters_port(const fth_parameters *server);
const char *fth_parameters_run_folder(const fth_parameters *server);
int64_t fth_parameters_version(const fth_parameters *server);
int fth_parameters_workers(fth_parameters *server); /* whose lease lasts */
/* The process that was `worker` has ended: nobody waits for it, and its name is free, without its
 * lease's running out. */
void fth_parameters_let_go(fth_parameters *server, const char *worker);
/* How much of the training is done, of 1: by --steps, or by --epochs where they end it; 0 where
 * nothing does. From 1 on no gradient is taken. */
double fth_parameters_progress(const fth_parameters *server);
int64_t fth_parameters_epoch_samples(const fth_parameters *server); /* 0: not known */
/* What a live line shows, by what workers said of their gradients. Its steps are those of --steps,
 * else 0. */
void fth_parameters_get_progress(fth_parameters *server, fth_progress *progress);
/* Waits at most `seconds` for the server to fail by itself (a disk that is full, weights that
 * diverged): its status. */
fth_status fth_parameters_wait(fth_parameters *server, double seconds);
/* Answers what is waiting, saves a checkpoint, ends the record ("end" if `finished`, else
 * "interrupted") and frees. */
fth_status fth_parameters_stop(fth_parameters *server, bool finished);

#endif
