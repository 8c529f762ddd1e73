/* What the files of src/train share. */
#ifndef FTH_TRAIN_TRAIN_INTERNAL_H
#define FTH_TRAIN_TRAIN_INTERNAL_H

#include "train/engine/engine.h"
#include "train/options/optimizer.h"
#include "train/options/schedule.h"
#include "train/setup/text_data.h"

/* ---- options that are more than a number ---- */

/* --until */
typedef struct fth_goal {
    enum { FTH_GOAL_NONE, FTH_GOAL_ACCURACY, FTH_GOAL_LOSS } kind;
    double value;
} fth_goal;
fth_status fth_goal_parse(const char *text, fth_goal *goal);

/* --checkpoint-every: either steps or seconds is not 0; if `automatic`, the saver finds `seconds`.
 * */
typedef struct fth_interval {
    int64_t steps;
    double seconds;
    bool automatic;
} fth_interval;
fth_status fth_interval_parse(const char *text, fth_interval *interval);

/* --share: "2/4", the second of four; "": the whole. */
fth_status fth_data_share_parse(const char *text, fth_share *share);

/* --checkpoint-overhead: "1%" or "0.01". */
fth_status fth_share_parse(const char *text, double *share);

/* Checks for rows of the table: FTH_OK, or what is wrong with the text. */
fth_status fth_option_check_until(const char *text);
fth_status fth_option_check_checkpoint_every(const char *text);
fth_status fth_option_check_confusion(const char *text);
fth_status fth_option_check_usd(const char *text);
fth_status fth_option_check_share(const char *text);
fth_status fth_option_check_data_share(const char *text);
fth_status fth_option_check_lease(const char *text);
fth_status fth_option_check_bucket(const char *text);
fth_status fth_option_check_watch(const char *text);

/* Data on a local disk never takes this long; a loader that does is stuck. */
#define FTH_LOADER_TIMEOUT_S 120.0

/* True if --normalize or a transform sets the normalization. */
bool fth_options_say_normalization(const fth_train_options *options);
/* The normalization that the model in --weights was trained with; "" if there is none, if it is
 * unknown, or if options set one. */
fth_status fth_options_find_normalization(const fth_train_options *options, char text[FTH_NORMALIZATION_TEXT]);

/* Opens device and data at the same time, or the data alone if `device` is NULL. `text` may be
 * NULL. After a failure, either may be set, and the caller frees it. FTH_INTERRUPTED if `stop` (may
 * be NULL) is asked during a download, unpacking or indexing. *data_s (may be NULL): how long
 * opening the data took. */
fth_status fth_open_device_and_data(const fth_train_options *options, const fth_text_known *text, const fth_stop *stop,
                                    fth_device **device, fth_dataset **dataset, double *data_s);

/* The data alone; samples without a part of their own are all for training. */
fth_status fth_open_whole_data(const fth_train_options *options, const fth_text_known *text, const fth_stop *stop,
                               fth_dataset **dataset);

/* run.json's "machine": host, processor, memory, system, device. */
json_t *fth_machine_describe(const fth_device *device);

#endif
