/* BERT's shape: everything in which encoders differ, and its three written forms.
 *
 *     a name        "bert-mini(vocabulary=8192)": a preset and what differs from it; "bert(...)" begins with bert-base
 *     a config      this struct
 *     config.json   as on the Hugging Face hub
 *
 * Each shape has exactly one name that farthing writes, the shortest: a model is the same as
 * another iff their names are. */
#ifndef FTH_MODEL_BERT_H
#define FTH_MODEL_BERT_H

#include <jansson.h>

#include "model/model.h"

typedef enum fth_bert_activation {
    FTH_BERT_GELU, /* exact */
    FTH_BERT_GELU_TANH,
    FTH_BERT_RELU,
    FTH_BERT_ACTIVATION_COUNT
} fth_bert_activation;

typedef struct fth_bert_config {
    int layers, hidden, heads, intermediate;
    int vocabulary, positions, types; /* rows of the three embeddings: tokens, places, segments */
    fth_bert_activation activation;
    double epsilon; /* of the layer norms */
    double dropout, attention_dropout;
    double classifier_dropout; /* negative: as `dropout` */
    double initializer;        /* standard deviation of first weights */
} fth_bert_config;

/* The name of a shape; free() it. */
char *fth_bert_config_name(const fth_bert_config *config);
/* False if the name is not one of BERT's at all; *status says whether it could be read, with a
 * message if not. */
bool fth_bert_config_parse(const char *name, fth_bert_config *config, fth_status *status);

/* The members of a config.json that make the shape, and back; others are left alone. `origin` names
 * the file in errors. What this network cannot do (relative positions, decoders) is FTH_UNSUPPORTED
 * and named. */
fth_status fth_bert_config_read(const json_t *json, const char *origin, fth_bert_config *config);
fth_status fth_bert_config_write(const fth_bert_config *config, json_t *json);

/* Fails if there is no such network: heads that do not divide the width, a size of 0. */
fth_status fth_bert_config_check(const fth_bert_config *config);

/* The model of this shape, made when it is first asked for; lives as long as the process. Any
 * thread. */
fth_status fth_bert_find(const fth_bert_config *config, const fth_model **model);

#endif
