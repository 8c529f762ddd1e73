/* The options of a training run: plain values, and the table that describes them
 * (options/options.c). They hold what the user said, and nothing that changes during a run.
 *
 * Each member but `standby` (a command) and `own` is a row of the table. It has the flag's name,
 * without what the group's name says already: --server-pin is server.pin. Functions take the group
 * that they need. */
#ifndef FTH_TRAIN_TRAIN_OPTIONS_H
#define FTH_TRAIN_TRAIN_OPTIONS_H

#include "backend/backend.h"
#include "base/options.h"
#include "model/model.h"

/* Networks and images of a program that embeds the library, instead of those that options name.
 * They outlive the run. */
typedef struct fth_train_own {
    const struct fth_model *network;       /* instead of `model`, which then has its name; NULL: none */
    const struct fth_image_arrays *images; /* instead of `data`, likewise */
} fth_train_own;

/* Values of choices, in the order of their names (options/options.c). */
typedef enum fth_validation_split { FTH_SPLIT_AUTO, FTH_SPLIT_STRATIFIED, FTH_SPLIT_RANDOM } fth_validation_split;
typedef enum fth_best_measure { FTH_BEST_BY_LOSS, FTH_BEST_BY_ACCURACY } fth_best_measure;
typedef enum fth_rate_scaling { FTH_SCALE_NONE, FTH_SCALE_SQRT, FTH_SCALE_LINEAR } fth_rate_scaling;
typedef enum fth_recompute { FTH_RECOMPUTE_NONE, FTH_RECOMPUTE_LAYERS, FTH_RECOMPUTE_AUTO } fth_recompute;
typedef enum fth_owner_kind { FTH_OWNED_BY_ALL, FTH_OWNED_BY_WORKER } fth_owner_kind;
typedef enum fth_batch_norm { FTH_BATCH_NORM_WORKER, FTH_BATCH_NORM_SYNCHRONIZED } fth_batch_norm;
enum { FTH_PRECISION_AUTO = FTH_PRECISION_TF32 + 1 }; /* beyond fth_precision */

typedef struct fth_train_text {
    char *vocab;        /* file or folder of a tokenizer; "": that of the weights, or a learned one */
    int64_t vocab_size; /* of a learned tokenizer */
    int64_t max_length; /* tokens of a sample */
    char *text_column, *pair_column, *label_column; /* "": found by what is usual */
    fth_task task;
    bool by_length; /* batches of like length */
} fth_train_text;

typedef struct fth_train_images {
    char *augment;                          /* none, flip, crop, flip-crop */
    char *transform, *validation_transform; /* "": the usual ones */
    char *normalize;                        /* "": the weights file's, or the data set's own */
    int64_t size;                           /* --image-size; 0: the data set's own, or chosen */
    double max_bad;                         /* --max-bad-images: tolerated share of unreadable files */
    int64_t decoded_cache_mb;
} fth_train_images;

typedef struct fth_train_data {
    char *address;              /* --data */
    char *test;                 /* "": none, or a part of the data */
    char *cache, *cache_folder; /* --data-cache, on the disk; "": none, the usual one */
    double validation_fraction;
    fth_validation_split validation_split;
    int64_t loader_threads;
    char *share; /* of the training samples: "2/4"; "": all */
} fth_train_data;

typedef struct fth_train_optimizer {
    char *name;                /* --optimizer */
    double lr;                 /* 0: the optimizer's own default */
    fth_rate_scaling scale_lr; /* by the number of workers */
    double momentum, weight_decay, beta1, beta2, epsilon;
    char *no_decay;     /* patterns of parameters without weight decay; "": the model's default */
    double layer_decay; /* of the learning rate, from each layer to the one below */
    bool nesterov;
    double clip;        /* largest gradient norm; 0: none */
    int64_t accumulate; /* batches per update */
    double label_smoothing;
} fth_train_optimizer;

typedef struct fth_train_schedule {
    char *name;          /* --schedule */
    fth_amount warmup;   /* steps, or a share of all */
    int64_t decay_every; /* epochs between decays of schedule "step" */
    double decay_factor;
} fth_train_schedule;

/* How long to train. */
typedef struct fth_train_limits {
    int64_t epochs, steps; /* 0: not a limit */
    double for_s;          /* --for; 0: not a limit */
    char *until;           /* "accuracy=0.99", "loss=0.05" */
    char *budget;          /* "5usd"; "": none */
} fth_train_limits;

/* Workers that train one model together. */
typedef struct fth_train_peers {
    int64_t workers, processes; /* of hogwild; 0: not given */
    int64_t batch_per_worker;   /* of data-parallel training, instead of `batch`; 0: not given */
    fth_batch_norm batch_norm;  /* whose statistics */
    fth_owner_kind hogwild_momentum;
    double worker_timeout_s;
    unsigned wire;   /* how gradients travel: an fth_wire (collective/collective.h) */
    char *bucket;    /* of gradients that travel together: "auto", "4M" */
    char *transport; /* "auto", or one of collective/transport.h */
    bool shard_update;
} fth_train_peers;

/* A parameter server, and this worker of it. */
typedef struct fth_train_server {
    char *url;      /* --server; "": one of this machine's own, with `workers` */
    char *worker;   /* this worker's name there; "": made up */
    char *compress; /* none, f16, bf16, topk:0.01 */
    char *pin;      /* "sha256//...": the server's key */
    char *ca;       /* file of certificates */
    double timeout_s;
    char *consistency; /* of a server of this machine's own */
} fth_train_server;

typedef struct fth_train_saving {
    char *runs, *name;
    char *every;    /* --checkpoint-every: "200" steps, "30s" or "auto" */
    char *overhead; /* --checkpoint-overhead: "1%", the most that "auto" lets saving take */
    int64_t keep;
    double keep_for_s; /* 0: however old */
    fth_best_measure best_by;
} fth_train_saving;

/* Where a run is kept so that it survives its machine. */
typedef struct fth_train_store {
    char *checkpoints; /* URL; "": in the run's folder alone */
    char *s3_endpoint, *s3_region, *s3_style;
    char *lease; /* "10s", "off" */
    char *watch; /* notice sources; "": auto where the run lives in a store, else none */
} fth_train_store;

typedef struct fth_train_options {
    fth_option_bits set; /* see base/options.h */
    fth_train_own own;   /* not in the table */

    char *model, *weights;
    bool reinitialize; /* an exported network does not start from the weights in its file */
    char *stem;        /* "standard" once the options are resolved: the model's name says it then */
    char *freeze;      /* patterns of parameters that are not trained */
    bool freeze_statistics;
    fth_recompute recompute;
    int64_t batch;
    fth_period validate_every;
    int64_t seed, threads;
    unsigned precision; /* an fth_precision, or FTH_PRECISION_AUTO */
    char *device, *strategy;

    fth_train_data data;
    fth_train_text text;
    fth_train_images images;
    fth_train_optimizer optimizer;
    fth_train_schedule schedule;
    fth_train_limits limits;
    fth_train_peers peers;
    fth_train_server server;
    fth_train_saving saving;
    fth_train_store store;

    char *price, *prices; /* "0.526"; a catalogue. "": none */
    bool standby;         /* waits until there is a run; not in the table */
    char *resume;         /* "": no, "auto": newest unfinished of this configuration, else a run */
    bool json, dry_run;
    bool per_class; /* of evaluate, as `confusion`: "": no, "auto": shown, else into this file */
    char *confusion;
} fth_train_options;

extern const char *const fth_validation_split_names[], *const fth_best_measure_names[];

extern const fth_option_table fth_train_option_table;

/* The commands that share the table: bits of fth_option.commands. */
enum { FTH_FOR_TRAIN = 1 << 0, FTH_FOR_STANDBY = 1 << 1, FTH_FOR_EVALUATE = 1 << 2, FTH_FOR_SERVE = 1 << 3 };

/* Where an option of train applies if a parameter server has the model: fth_option.side. A worker
 * is `train --server URL`; without --server, train starts a server and its workers. */
typedef enum fth_option_side {
    FTH_SIDE_EVERY,      /* in each process that gets it; workers started together with a server get it too */
    FTH_SIDE_SERVER,     /* in the server, which updates the model; no effect in a worker */
    FTH_SIDE_ONE_WORKER, /* in a single worker; cannot be given to several that are started together */
    FTH_SIDE_OWN_RUN,    /* in a process with a run of its own; no effect on workers started together */
    FTH_SIDE_NONE        /* nowhere: such a run has no parameter server */
} fth_option_side;

/* Turns the given options into their recorded form: --model resnet18 --stem small becomes the model
 * resnet18-small. Without --model, it is the model that --weights belong to, if the file shows it.
 * */
fth_status fth_train_options_resolve(fth_train_options *options);

/* Reads the stored configuration of a run. Older versions did not store --validation-split, and
 * always held out samples at random. */
fth_status fth_train_options_read_run(fth_train_options *options, const json_t *configuration, const char *origin);

/* --bucket: bytes, with K, M or G behind them; 0 for "auto". */
fth_status fth_bucket_parse(const char *text, size_t *bytes);

/* Checks combinations of options, and values that are invalid only if given. */
fth_status fth_train_options_check(const fth_train_options *options);

struct fth_dataset_info;
/* Rejects options for another kind of data, such as --task regression with images. */
fth_status fth_train_options_check_kind(const fth_train_options *options, const struct fth_dataset_info *info);

/* The model that options->model names, or the embedding program's own. */
fth_status fth_train_options_find_model(const fth_train_options *options, const struct fth_model **model);

/* Sets the model to that of options->weights: the one the file names, else the one whose tensors it
 * has. A model that was given is only compared. If `configured` (a resumed run's), the model stays
 * as it is unless the file names another. Reads the file's header, so that a wrong file fails
 * before any data is read. */
fth_status fth_train_options_adopt_model(fth_train_options *options, bool configured);

#endif
