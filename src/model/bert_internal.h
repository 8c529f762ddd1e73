/* What the files of BERT share. */
#ifndef FTH_MODEL_BERT_INTERNAL_H
#define FTH_MODEL_BERT_INTERNAL_H

#include "model/bert.h"
#include "model/model_internal.h"

/* The shapes that have a name of their own, bert-base first; the last has none. */
typedef struct fth_bert_preset {
    const char *name;
    fth_bert_config config;
} fth_bert_preset;
extern const fth_bert_preset fth_bert_presets[];

/* fth_model.build_text of every BERT; its details are an fth_bert_config. */
fth_status fth_bert_build(const fth_model *model, fth_graph *graph, const fth_model_options *options,
                          const fth_text_inputs *inputs, fth_value *logits);

/* A parameter that every BERT has, and nothing else. */
#define FTH_BERT_LANDMARK "bert.embeddings.word_embeddings.weight"

/* ---- bert_weights.c: files ---- */

/* Gives the tensors of a file that holds a BERT the names that the network has, and leaves out what
 * is not part of it. Does nothing where there is none; fails where there are two. */
fth_status fth_bert_adopt_names(fth_weights *weights, const char *origin);

/* The BERT that a file holds, by its folder's config.json, else by its tensors; `fit` stays as it
 * is where there is none. */
fth_status fth_bert_recognize(const fth_weights *weights, fth_model_fit *fit);

/* True of the parameters that belong to a task: encoders are often published without them. */
bool fth_bert_may_lack(const char *parameter);

#endif
