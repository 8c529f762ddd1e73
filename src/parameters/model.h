/* The model that a server owns: its network on the CPU, the layout of its tensors, and facts about
 * the data. Constant while the server runs, except for the numbers that `vectors` point to, which
 * belong to the applying thread. */
#ifndef FTH_PARAMETERS_MODEL_H
#define FTH_PARAMETERS_MODEL_H

#include "data/shard/shard_manifest.h"
#include "parameters/gradient.h"
#include "parameters/parameters.h"
#include "text/tokenizer.h"
#include "train/engine/server_support.h"
#include "train/setup/usual.h"

typedef struct fth_served_model {
    const fth_train_options *train; /* `adapted` */
    fth_train_options adapted;      /* the options, completed by the data; texts are lent */
    fth_usual usual;                /* the choice before the model is fitted to the tokenizer */
    char *fitting_model;            /* name of the fitted model; or NULL */
    char *sizing_transform;         /* brings images to the size of an exported network; or NULL */
    fth_tokenizer *tokenizer;       /* for text without a tokenizer of its own; or NULL */
    struct {
        int channels, height, width;     /* of images */
        int longest;                     /* of text */
        char text[64];                   /* "1x28x28" */
        fth_normalization normalization; /* of the workers' images; 0 channels: unknown */
    } input;
    fth_task task;
    int classes;
    fth_dataset *dataset;             /* to validate with; or NULL */
    const fth_shard_manifest *shards; /* leased to workers; or NULL */
    fth_device *device;
    fth_engine *engine;
    fth_layout *layout;
    fth_vectors vectors;
    uint64_t max_body_bytes; /* of a gradient */
    int64_t epoch_samples;   /* 0: unknown, as the next one */
    int64_t updates_per_epoch;
    int64_t end_samples; /* training ends after them; 0: no limit */
} fth_served_model;

/* Opens data, device and network, and loads --weights. `shards` (or NULL) describe the images. Both
 * arguments outlive the model. */
fth_status fth_served_model_open(const fth_parameters_options *options, const fth_shard_manifest *shards,
                                 fth_served_model **model);
void fth_served_model_free(fth_served_model *model);

/* The base learning rate; and the rate of the update after `version`. */
double fth_served_model_base_rate(const fth_served_model *model);
double fth_served_model_rate(const fth_served_model *model, int64_t version);

/* The run's description for run.json; the caller's. */
json_t *fth_served_model_describe(const fth_served_model *model, const fth_parameters_options *options);
/* Writes what the run needs besides checkpoints into its folder: of text, the tokenizer and Hugging
 * Face's files; of an exported network, its text. */
fth_status fth_served_model_write_files(const fth_served_model *model, const char *folder);
/* Writes the model file <folder>/last.safetensors. From the applying thread, or when it has
 * ended. */
fth_status fth_served_model_save_last(const fth_served_model *model, int64_t version, const char *folder);

#endif
