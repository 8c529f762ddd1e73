/* What a run works with: device, data set, engine and first weights, with options adapted to them.
 * All of it can be opened and checked without writing anything, which is what --dry-run does.
 *
 *     open -> load_weights (a new run) -> keep_data -> open_loader -> prepare -> release */
#ifndef FTH_TRAIN_SETUP_H
#define FTH_TRAIN_SETUP_H

#include "train/loop/spending.h"
#include "train/loop/strategy.h"
#include "train/run/run_selection.h"

/* Open, because its users need the parts; they are set by setup.c alone. */
typedef struct fth_setup {
    const fth_train_options *options; /* the selection's, adapted to weights and data (adapt.c) */
    fth_train_options *adapted;       /* the same: what data and workers change of them is changed here alone */
    json_t *configuration;            /* as asked, for the record */
    fth_goal goal;
    fth_share share;           /* of the training samples */
    fth_share part;            /* of every training batch */
    fth_share validation_part; /* of every batch of validation: peers whose strategy can sum share it out */
    int processors;            /* that are for this process; 0: all */
    bool of_peer;              /* a peer has the weights of a new run, and shares them */
    const fth_schedule *schedule;
    const fth_strategy *strategy;

    fth_device *device;
    fth_tokenizer *tokenizer; /* of text, where it is not the data set's own; else NULL */
    fth_dataset *dataset;
    double read_s;     /* that opening the data set took */
    fth_dataset *test; /* test_part.h; NULL: there is none */
    char *test_address;
    fth_engine *engine;
    bool data_on_device;     /* loaders give recipes */
    char weights_format[48]; /* of the file the first weights were read from; "": none was */
    fth_weights_report weights;
} fth_setup;

/* Opens everything for the run that was found, which outlives the setup, and finds the position of
 * a new run and the price of this machine. On failure what was opened is the caller's to release.
 * FTH_INTERRUPTED if `stop` is asked. */
fth_status fth_setup_open(fth_run_selection *selection, const fth_strategy *strategy, const fth_stop *stop,
                          fth_spending *spending, fth_setup *setup, fth_position *position);
void fth_setup_release(fth_setup *setup);

/* What follows from the number of workers that the run began with, if the position knows it: the
 * batch, and the position's numbers that count by it. */
fth_status fth_setup_adapt_to_workers(fth_setup *setup, fth_position *position);
/* Which part of every training batch this process has, from the next loader on:
 * fth_peer_place.part. */
void fth_setup_set_part(fth_setup *setup, fth_share part);
/* Reads --weights, if it was given, or the weights in the file of an exported network. */
fth_status fth_setup_load_weights(fth_setup *setup, fth_position *position);
/* Keeps the data on the device, where that can make batches of it, before the loaders are
 * opened. */
fth_status fth_setup_keep_data(fth_setup *setup);
/* Data of a batch cache: has chosen what is chosen once for a run, before its record is written. */
fth_status fth_setup_settle_data(const fth_setup *setup);
/* `first_batch` counts from the start of epoch 0; of validation it is 0. */
fth_status fth_setup_open_loader(const fth_setup *setup, fth_split split, int64_t first_batch, fth_loader **loader);
/* Makes every plan, also those that the first step does not need, so that a lack of memory shows
 * early. */
fth_status fth_setup_prepare(const fth_setup *setup);

/* ---- adapt.c ---- */

/* Before the data is opened: sets the normalization that the run had so far, or that the weights
 * were trained with. *assumed: the weights do not say. */
fth_status fth_adapt_normalization(fth_run_selection *selection, const fth_strategy *strategy, bool *assumed);
/* Before the data is opened: a run that is continued has of the batch cache what was chosen for it
 * at its beginning. */
fth_status fth_adapt_batch_cache(fth_run_selection *selection);
/* Before the data is opened: which samples are held out, as it was in the run that is continued. */
fth_status fth_adapt_split(fth_run_selection *selection);
/* With the data open: fails if a coordinator of batches holds out others; what is held out is set
 * in `configuration`. */
fth_status fth_adapt_check_split(fth_run_selection *selection, const fth_dataset_info *info, json_t *configuration);
/* Before the data is opened: the tokenizer of the run that is continued, of --vocab or of
 * --weights; NULL: there is none yet. The caller's. */
fth_status fth_adapt_tokenizer(const fth_run_selection *selection, fth_tokenizer **tokenizer);
/* With the data open: the model, optimizer and learning rate, where the options leave them to the
 * data; they are set in `configuration` too, as a run's record has them. */
fth_status fth_adapt_model(fth_run_selection *selection, const fth_strategy *strategy, const fth_dataset_info *info,
                           json_t *configuration);
/* With the data and the model known: see fth_options_fit_vocabulary(). */
fth_status fth_adapt_vocabulary(fth_run_selection *selection, const fth_dataset_info *info);
/* Before the device is opened: computes on the processors that are for this process, unless options
 * say how many. */
void fth_adapt_threads(fth_train_options *options, int processors);
/* With the data open: a batch has no more images than the `samples` there are. */
void fth_adapt_batch(fth_train_options *options, int64_t samples);

#endif
