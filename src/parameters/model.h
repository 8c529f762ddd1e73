/* The model that a server owns: its network on the CPU, the layout of its tensors, and what is
 * known of the data.
 *
 * Nothing here changes while the server runs, so that every thread may read it; only the numbers
 * that `vectors` point to do, and those are the applying thread's. */
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
    fth_train_options adapted;      /* the server's, with what is chosen by the data; lends texts */
    fth_usual usual;                /* as chosen; the model does not have the tokenizer's size yet */
    char *fitting_model;            /* its name, where it is another; else NULL */
    fth_tokenizer *tokenizer;       /* of text, where it is not the data set's own; else NULL */
    int channels, height, width;    /* of images */
    int longest;                    /* of text */
    fth_task task;
    int classes;
    char input[64];                   /* "1x28x28" */
    fth_normalization normalization;  /* of the workers' images; 0 channels: unknown */
    fth_dataset *dataset;             /* to validate with; or NULL */
    const fth_shard_manifest *shards; /* that workers are given; or NULL */
    fth_device *device;
    fth_engine *engine;
    fth_layout *layout;
    fth_vectors vectors;
    uint64_t max_body_bytes;   /* of a gradient */
    int64_t epoch_samples;     /* 0: unknown */
    int64_t updates_per_epoch; /* the same */
    int64_t end_samples;       /* that end the training; 0: they do not */
} fth_served_model;

/* Opens data, device and network, and loads --weights. `shards` (or NULL) say what the images are
 * like. Both outlive the model. */
fth_status fth_served_model_open(const fth_parameters_options *options, const fth_shard_manifest *shards,
                                 fth_served_model **model);
void fth_served_model_free(fth_served_model *model);

/* The base of the schedule; and the learning rate of the update that follows `version`. */
double fth_served_model_base_rate(const fth_served_model *model);
double fth_served_model_rate(const fth_served_model *model, int64_t version);

/* The run's description for run.json; the caller's. */
json_t *fth_served_model_describe(const fth_served_model *model, const fth_parameters_options *options);
/* Writes what a run on text has in its folder: the tokenizer, and what Hugging Face's libraries
 * want; nothing for images. */
fth_status fth_served_model_write_text(const fth_served_model *model, const char *folder);
/* Writes the model file <folder>/last.safetensors. From the applying thread, or when it has
 * ended. */
fth_status fth_served_model_save_last(const fth_served_model *model, int64_t version, const char *folder);

#endif
