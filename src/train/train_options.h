/* The options of a training run: a plain struct of values, and the table that describes it
 * (options.c).
 *
 * The struct is wide and flat on purpose: each member but `standby` (a command) and `own` is one
 * row of the table, so that a flag, a YAML key, a key of run.json and a member are one word. It
 * holds what the user said, and nothing that changes during a run; an object that needs some of it
 * takes those values. */
#ifndef FTH_TRAIN_TRAIN_OPTIONS_H
#define FTH_TRAIN_TRAIN_OPTIONS_H

#include "base/options.h"

/* What a program that embeds the library brings along, where options name models and data. Outlives
 * the run. */
typedef struct fth_train_own {
    const struct fth_model *network;       /* instead of `model`, which then has its name; NULL: none */
    const struct fth_image_arrays *images; /* instead of `data`, likewise */
} fth_train_own;

typedef struct fth_train_options {
    fth_option_bits set; /* see base/options.h */
    fth_train_own own;   /* not in the table */

    char *model, *data, *weights;
    char *test; /* "": none, or a part of the data */
    /* Of text. */
    char *vocab;        /* file or folder of a tokenizer; "": the weights', or one is learned */
    int64_t vocab_size; /* tokens of one that is learned */
    int64_t max_length; /* tokens of a sample */
    char *text_column, *pair_column, *label_column; /* "": found by what is usual */
    char *task;                                     /* classes, regression, multi-label */
    bool by_length;                                 /* batches of like length */
    char *recompute;                                /* none, layers, auto */

    char *stem;   /* "standard" once the options are resolved: the model's name says it then */
    char *freeze; /* patterns of parameters that are not trained */
    bool freeze_statistics;
    int64_t batch;
    int64_t batch_per_worker; /* of data-parallel training, instead of `batch`; 0: not given */
    int64_t epochs, steps;    /* 0: not a limit */
    double for_s;             /* --for; 0: not a limit */
    char *until;              /* "accuracy=0.99", "loss=0.05" */

    char *optimizer;
    double lr;      /* 0: the optimizer's own default */
    char *scale_lr; /* by the number of workers: none, sqrt, linear */
    double momentum, weight_decay, beta1, beta2, epsilon;
    char *no_decay;     /* patterns of parameters without weight decay; "": as is usual for the model */
    double layer_decay; /* of the learning rate, from each layer to the one below */
    bool nesterov;
    char *schedule;
    fth_amount warmup;   /* steps, or a share of all */
    int64_t decay_every; /* epochs between decays of schedule "step" */
    double decay_factor;
    double clip;        /* largest gradient norm; 0: none */
    int64_t accumulate; /* batches per update */
    double label_smoothing;
    char *augment;                          /* none, flip, crop, flip-crop */
    char *transform, *validation_transform; /* "": the usual ones */
    char *normalize;                        /* "": the weights file's, or the data set's own */
    int64_t image_size;                     /* 0: the data set's own, or chosen */
    double max_bad_images;                  /* share of unreadable image files that is passed over */
    int64_t decoded_cache_mb;
    char *data_cache, *data_cache_folder; /* on the disk; "": none, the usual one */
    double validation_fraction;
    char *validation_split; /* auto, stratified, random */
    int64_t validate_every; /* epochs */
    char *best_by;          /* loss, accuracy */

    int64_t seed;
    int64_t threads, loader_threads;
    char *precision, *device, *strategy;
    int64_t workers, processes; /* of hogwild; 0: not given */
    char *batch_norm;           /* whose statistics: worker, synchronized */
    char *hogwild_momentum;     /* shared, worker */
    double worker_timeout_s;
    char *server;     /* URL of a parameter server; "": one of this machine's own, with `workers` */
    char *worker;     /* this worker's name there; "": made up */
    char *compress;   /* none, f16, bf16, topk:0.01 */
    char *share;      /* of the training samples: "2/4"; "": all */
    char *server_pin; /* "sha256//...": the server's key */
    char *server_ca;  /* file of certificates */
    double server_timeout_s;
    char *consistency; /* of a server of this machine's own */

    char *wire;      /* how gradients travel between workers: f32, f16, bf16 */
    char *bucket;    /* of gradients that travel together: "auto", "4M" */
    char *transport; /* between workers: "auto", or one of collective/transport.h */
    bool shard_update;

    char *runs, *name;
    char *checkpoint_every;    /* "200" steps, "30s" or "auto" */
    char *checkpoint_overhead; /* "1%": the most that "auto" lets saving take */
    int64_t keep;
    double keep_for_s; /* 0: however old */
    char *checkpoints; /* URL of a store in which the run lives; "": in its folder alone */
    char *s3_endpoint, *s3_region, *s3_style;
    char *lease;  /* "10s", "off" */
    char *watch;  /* notice sources; "": auto where the run lives in a store, else none */
    bool standby; /* waits until there is a run; not in the table */
    char *resume; /* "": no, "auto": newest unfinished of this configuration, else a run */
    bool json, dry_run;
    bool per_class; /* of evaluate, as `confusion`: "": no, "auto": shown, else into this file */
    char *confusion;

    char *price, *prices, *budget; /* "0.526"; a catalogue; "5usd". "": none */
} fth_train_options;

extern const fth_option_table fth_train_option_table;

/* The commands that share the table: bits of fth_option.commands. */
enum { FTH_FOR_TRAIN = 1 << 0, FTH_FOR_STANDBY = 1 << 1, FTH_FOR_EVALUATE = 1 << 2, FTH_FOR_SERVE = 1 << 3 };

/* Where an option of train counts when a parameter server has the model: fth_option.side. A worker
 * is `train --server URL`; without --server, train starts a server and its workers together. */
typedef enum fth_option_side {
    FTH_SIDE_EVERY,      /* in each process that it is given to; workers started together with a server get it too */
    FTH_SIDE_SERVER,     /* where the model is updated; given to a worker it has no effect */
    FTH_SIDE_ONE_WORKER, /* in a single worker; cannot be given to several that are started together */
    FTH_SIDE_OWN_RUN,    /* in a process that keeps a run of its own; no effect on workers started together */
    FTH_SIDE_NONE        /* nowhere: such a run has no parameter server */
} fth_option_side;

/* Brings what was given to its recorded form: --model resnet18 --stem small becomes the model
 * resnet18-small. Without --model it is the one that --weights are of, where that shows. */
fth_status fth_train_options_resolve(fth_train_options *options);

/* Reads the stored configuration of a run. One of a version that only held out samples at random
 * says so. */
fth_status fth_train_options_read_run(fth_train_options *options, const json_t *configuration, const char *origin);

/* --bucket: bytes, with K, M or G behind them; 0 for "auto". */
fth_status fth_bucket_parse(const char *text, size_t *bytes);

/* Checks what no single option can: combinations, and values that only make sense when given. */
fth_status fth_train_options_check(const fth_train_options *options);

struct fth_dataset_info;
/* Checks that no option is about another kind of data than there is: --task regression with
 * images. */
fth_status fth_train_options_check_kind(const fth_train_options *options, const struct fth_dataset_info *info);

/* The model that options->model names, or the program's own. */
fth_status fth_train_options_find_model(const fth_train_options *options, const struct fth_model **model);

/* Sets the model to that of options->weights: what the file says, else the one whose tensors it
 * has. One that was given is only compared; one that is `configured`, as a run's is, stays where
 * the file does not say. Reads the file's header, so that what is wrong with it shows before any
 * data is read. */
fth_status fth_train_options_adopt_model(fth_train_options *options, bool configured);

#endif
