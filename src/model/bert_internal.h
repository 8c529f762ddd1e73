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

#endif
