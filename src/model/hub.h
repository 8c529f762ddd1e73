/* The config.json of models on the Hugging Face hub: what a network is for, beside its shape
 * (bert.h). */
#ifndef FTH_MODEL_HUB_H
#define FTH_MODEL_HUB_H

#include "model/model.h"

typedef struct fth_hub_config {
    fth_task task;
    int classes;         /* outputs; 0: the file does not say */
    char **class_names;  /* (classes), owned; NULL: the file has none */
    const char *weights; /* to write: the file beside it that transformers loads; NULL: model.safetensors */
} fth_hub_config;

/* Reads the text of a config.json, which anybody may have written; `origin` names it in errors.
 * Release *config. */
fth_status fth_hub_config_read(const char *text, const char *origin, fth_hub_config *config);
void fth_hub_config_release(fth_hub_config *config);

/* The config.json with which transformers loads the weights of `model`, as a
 * BertForSequenceClassification; free() the text. FTH_UNSUPPORTED for networks that are not there:
 * those for images. */
fth_status fth_hub_config_write(const fth_model *model, const fth_hub_config *config, char **text);

#endif
