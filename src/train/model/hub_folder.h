/* What Hugging Face's libraries want beside the weights of a model for text: config.json,
 * tokenizer.json, vocab.txt and tokenizer_config.json. */
#ifndef FTH_TRAIN_HUB_FOLDER_H
#define FTH_TRAIN_HUB_FOLDER_H

#include "train/model/classifier.h"

/* Writes them into `folder`, which exists. The facts are those of a model for text, with its
 * tokenizer. `weights` is the file in that folder that from_pretrained() is to load; NULL:
 * model.safetensors, as is usual. */
fth_status fth_hub_folder_write(const char *folder, const fth_model_facts *facts, const fth_tokenizer *tokenizer,
                                const char *weights);

#endif
