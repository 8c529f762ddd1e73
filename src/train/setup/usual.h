/* What a run uses where its options leave the choice: --model auto, --optimizer auto, --lr 0. */
#ifndef FTH_TRAIN_USUAL_H
#define FTH_TRAIN_USUAL_H

#include "data/data.h"
#include "train/train_options.h"

/* The value of --model, --optimizer and --validation-split that leaves the choice. */
#define FTH_AUTO "auto"

/* Names live as long as the options and the process. */
typedef struct fth_usual {
    const char *model, *optimizer;
    double lr;
} fth_usual;

/* True if no model was given, and the data decides. */
bool fth_usual_needs_data(const fth_train_options *options);

/* True if the value of the option `name` leaves the choice: a run that has begun has made it. */
bool fth_usual_is_open(const fth_train_options *options, const char *name);

/* The options' own values where they have some, else what is usual for the data and the model.
 * `info` may be NULL unless fth_usual_needs_data(). Fails if there is no such model or
 * optimizer. */
fth_status fth_usual_find(const fth_train_options *options, const fth_dataset_info *info, fth_usual *usual);
/* Sets the options to that. */
fth_status fth_usual_apply(fth_train_options *options, const fth_dataset_info *info);

#endif
