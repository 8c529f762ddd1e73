/* What the files of `farthing predict` share. */
#ifndef FTH_CLI_PREDICT_CLI_H
#define FTH_CLI_PREDICT_CLI_H

#include "cli/cli.h"
#include "cli/model/model_flags.h"
#include "cli/store/s3_flags.h"
#include "train/model/classifier.h"

typedef struct predict_text_options {
    char *text, *pair, *vocab, *text_column, *pair_column;
} predict_text_options;

typedef struct predict_options {
    fth_option_bits set;
    fth_model_flags model;
    fth_s3_flags s3;
    predict_text_options text;
    char *data, *classes, *device;
    int64_t top, threads;
    bool json, logits;
} predict_options;

/* What was predicted: an image, or a text. */
typedef struct fth_predicted {
    const char *image;       /* its name; NULL: a text */
    const char *text, *pair; /* pair: or NULL */
} fth_predicted;

/* predict_result.c: prints what a model says, as its task has it. */
fth_status fth_cli_print_prediction(const predict_options *options, const fth_model_facts *facts,
                                    const fth_predicted *predicted, const float *logits);

/* predict_text.c: --text, and the texts of files. */
fth_status fth_cli_predict_text(const predict_options *options, const fth_arguments *arguments,
                                const fth_classifier *classifier);

#endif
