/* The flags that name a trained model, for the tables of the commands that take one: predict and
 * export. Their tables need the rows of s3_flags.h as well, since a model may be in a store. */
#ifndef FTH_CLI_MODEL_FLAGS_H
#define FTH_CLI_MODEL_FLAGS_H

#include "base/options.h"
#include "data/image/normalization.h"
#include "model/model.h"
#include "record/record.h"

typedef struct fth_model_flags {
    char *weights; /* what fth_cli_find_weights() takes, with `runs` */
    char *name, *stem, *runs, *normalize;
    int64_t size;
} fth_model_flags;

/* Rows for an fth_model_flags that lies at `at` in the command's options; the first of its
 * table. */
/* clang-format off: a macro of rows is read by rows */
#define FTH_MODEL_FLAG_ROWS(at)                                                                                        \
    {FTH_OPTION_ROW_AT("weights", TEXT, (at) + offsetof(fth_model_flags, weights)), .address = true,                   \
     .argument = "FILE|RUN",                                                                                           \
     .help = "the model: a file (safetensors, PyTorch's .pth), a run's best, also in a store, or a folder with one",   \
     .group = "Options"},                                                                                              \
        {FTH_OPTION_ROW_AT("runs", TEXT, (at) + offsetof(fth_model_flags, runs)), .fallback = "runs",                  \
         .argument = "FOLDER", .help = "folder with the runs", .check = fth_record_check_runs_folder},                 \
        {FTH_OPTION_ROW_AT("model", TEXT, (at) + offsetof(fth_model_flags, name)), .argument = "NAME",                 \
         .list = fth_model_choice, .help = "network, if neither the file nor its tensors determine it"},               \
        {FTH_OPTION_ROW_AT("stem", CHOICE, (at) + offsetof(fth_model_flags, stem)), .fallback = "standard",            \
         .argument = "KIND", .help = "with --model, stem of a ResNet: small is a 3×3 stem",                            \
         .choices = fth_model_stems},                                                                                  \
        {FTH_OPTION_ROW_AT("normalize", TEXT, (at) + offsetof(fth_model_flags, normalize)), .argument = "HOW",         \
         .list = fth_normalization_choice,                                                                             \
         .help = "mean and deviation of pixels, if not as the file says: imagenet, cifar, mnist, none or MEAN/STD",    \
         .check = fth_normalization_check},                                                                            \
    {                                                                                                                  \
        FTH_OPTION_ROW_AT("size", INTEGER, (at) + offsetof(fth_model_flags, size)),                                    \
            .fallback = "0", .argument = "N",                                                                          \
            .help = "side of the model's input; 0: as the file says, or as the model was published", .minimum = 0,     \
            .maximum = 4096                                                                                            \
    }
/* clang-format on */

#endif
