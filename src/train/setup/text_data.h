/* What text adds to the data of a run: the task that labels are for, where the tokenizer comes
 * from, and how options and data become what an engine is made for. */
#ifndef FTH_TRAIN_TEXT_DATA_H
#define FTH_TRAIN_TEXT_DATA_H

#include "text/tokenizer.h"
#include "train/engine/engine.h"

/* The values of --task, in the order of fth_task; ends with NULL. */
extern const char *const fth_task_names[];
/* FTH_TASK_COUNT if there is none of that name. */
fth_task fth_task_find(const char *name);
/* The task that labels of a kind are for, and the labels of a task. */
fth_task fth_task_of_labels(fth_label_kind kind);
fth_label_kind fth_task_get_labels(fth_task task);

/* False if labels are numbers: predictions then have errors, and are not right or wrong. */
bool fth_dataset_has_accuracy(const fth_dataset_info *info);

/* What is known of text before its data is opened; zeroed: nothing. What it points to outlives the
 * data set. */
typedef struct fth_text_known {
    const fth_tokenizer *tokenizer;
    const char *const *class_names; /* ends with NULL */
} fth_text_known;

/* What the options ask of a set of text. `known` may be NULL. */
fth_text_options fth_text_options_make(const fth_train_options *options, const fth_text_known *known);

/* The tokenizer of --vocab, or of the model in --weights; NULL: neither has one, so that one is
 * learned. The caller's. */
fth_status fth_options_find_tokenizer(const fth_train_options *options, fth_tokenizer **tokenizer);
/* The tokenizer that the metadata of the model file `path` holds as text. The caller's. */
fth_status fth_tokenizer_parse_metadata(const char *text, const char *path, fth_tokenizer **tokenizer);
/* The tokenizer in the metadata of a model file that farthing wrote, or beside the weights in a
 * folder; NULL: there is none. The caller's. */
fth_status fth_weights_find_tokenizer(const fth_weights *weights, const char *path, fth_tokenizer **tokenizer);

/* FTH_INVALID if the model of --weights has fewer embeddings than the tokenizer of the data has
 * tokens. */
fth_status fth_options_check_vocabulary(const fth_train_options *options, const fth_dataset_info *info);

/* The name of the model whose embeddings are as many as the tokenizer of the data has tokens, where
 * options' own has others and begins from nothing; free() it. NULL: the model is for images, or
 * fits. Checks as above. */
fth_status fth_options_fit_vocabulary(const fth_train_options *options, const fth_dataset_info *info, char **name);

/* Two tokenizers with the same digest make the same tokens. "" for want of memory. */
void fth_tokenizer_get_digest(const fth_tokenizer *tokenizer, char digest[65]);

/* The tokenizer of a run, in its folder and in the store where it lives. */
#define FTH_RUN_TOKENIZER "tokenizer.json"

/* FTH_INVALID if --max-length is more than the model has positions for. */
fth_status fth_options_check_length(const fth_train_options *options);

/* FTH_INVALID if `data`, run.json's, names another tokenizer than the set was opened with. `run` is
 * its name in the message. */
fth_status fth_text_check_tokenizer(const fth_dataset_info *info, const json_t *data, const char *run);

/* Sets what run.json's "data" says of text, and takes out what it says of images. */
void fth_text_describe(const fth_dataset_info *info, json_t *data);

/* Sets what data says of samples and labels. */
void fth_engine_options_take_data(fth_engine_options *options, const fth_dataset_info *info);

#endif
