/* A trained model, ready for images or text: what its file says about it, and an engine with its
 * weights.
 *
 * Model files that farthing writes carry in their metadata what a prediction needs beside the
 * weights: the model's name, the classes, the size of the input, its normalization and how images
 * are brought to it; or the tokenizer and how long a text may be. Of other files this has to be
 * said, or is what the model was published with; then a normalization is an assumption, and marked
 * as one. */
#ifndef FTH_TRAIN_CLASSIFIER_H
#define FTH_TRAIN_CLASSIFIER_H

#include "text/tokenizer.h"
#include "train/engine/engine.h"

/* Of a model for text. */
typedef struct fth_text_facts {
    int longest;     /* tokens of a sample; 0: it takes images */
    fth_task task;   /* what it was trained for */
    char *tokenizer; /* as a tokenizer.json; owned */
} fth_text_facts;

/* Text is owned; fields that are unknown are NULL or 0. */
typedef struct fth_model_facts {
    char *model;
    int channels, height, width; /* of images */
    fth_text_facts text;
    int classes;
    char **class_names;              /* (classes), or NULL */
    fth_normalization normalization; /* numbers for every channel; 0 channels: unknown */
    bool normalization_assumed;      /* nobody said so: not written into files */
    char *transform;                 /* for validation */
    char *network;                   /* of an exported model: its text (exported_model.h) */
} fth_model_facts;

void fth_model_facts_release(fth_model_facts *facts);

/* What a run determines: the model, and what is known of its data. */
fth_status fth_model_facts_of_run(const fth_train_options *options, const fth_dataset *dataset, fth_model_facts *facts);
/* What a data set determines: all but the model, and how long a text may be. */
fth_status fth_model_facts_of_data(const fth_dataset *dataset, fth_model_facts *facts);

/* One class a line. */
fth_status fth_model_facts_read_classes(const char *path, fth_model_facts *facts);

/* Says in a line on standard error what is assumed about images that `origin`, a weights file, says
 * nothing about, and what to do about it. */
void fth_model_facts_warn_assumed(const fth_model_facts *facts, const char *origin);
/* Says so in a line where `used` is not what a file says its model was trained with. */
void fth_model_facts_warn_override(const fth_model_facts *of_file, const fth_normalization *used, const char *origin);

/* As metadata of a model file; release it. `facts` outlives it. */
typedef struct fth_model_metadata {
    fth_metadata_entry entries[13];
    size_t count;
    char *owned[4];
} fth_model_metadata;
fth_status fth_model_facts_to_metadata(const fth_model_facts *facts, fth_model_metadata *metadata);
void fth_model_metadata_release(fth_model_metadata *metadata);

/* What is in the metadata of a file; nothing for a file that has none. */
fth_status fth_model_facts_of_file(const fth_weights *weights, const char *origin, fth_model_facts *facts);

/* Sets facts->model, where it is NULL, to the model whose tensors the file has, and says so in the
 * log; fails if there is none. Channels that are unknown become those of the tensors, also of a
 * model that was named. */
fth_status fth_model_facts_recognize(const fth_weights *weights, const char *origin, fth_model_facts *facts);
/* FTH_INVALID: the weights in `origin` are of no model that is known. */
fth_status fth_model_facts_fail_unknown(const char *origin);

/* FTH_INVALID if the file is of another model than the one asked for. Either may be NULL. */
fth_status fth_model_facts_agree(const char *origin, const char *in_file, const char *asked_for);
/* The built-in model that a file is of, or the exported one that it carries; FTH_INVALID if it is
 * of a network that some program built. */
fth_status fth_model_facts_find_model(const fth_model_facts *facts, const char *origin, const fth_model **model);

typedef struct fth_classifier_options {
    const char *weights;
    const fth_model_facts *given; /* wins over what the file says, but for a normalization that is assumed */
    const fth_model *network;     /* that the file is of; NULL: the one that it names, or whose tensors it has */
    const char *device;           /* NULL: "auto" */
    int threads;                  /* 0: one per core */
} fth_classifier_options;

typedef struct fth_classifier fth_classifier;

fth_status fth_classifier_open(const fth_classifier_options *options, fth_classifier **classifier);
void fth_classifier_free(fth_classifier *classifier);

/* That makes its tokens; NULL: it takes images. Lent. */
const fth_tokenizer *fth_classifier_tokenizer(const fth_classifier *classifier);
/* Everything but the names of the classes is known. */
const fth_model_facts *fth_classifier_facts(const fth_classifier *classifier);
fth_engine *fth_classifier_engine(const fth_classifier *classifier);
/* What the batch norms' counters said in the file. */
int64_t fth_classifier_batches(const fth_classifier *classifier);

#endif
