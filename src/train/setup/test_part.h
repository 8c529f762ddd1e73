/* The test samples of a run (--test): never trained on nor validated with, and measured once, with
 * the best model, when the run ends. */
#ifndef FTH_TRAIN_TEST_PART_H
#define FTH_TRAIN_TEST_PART_H

#include "train/setup/setup.h"

/* Opens the test samples: those that --test names, or the test/ part of a folder that has train/
 * and validation parts too. They are prepared as `dataset` is for validation, and have its classes
 * and tokenizer. NULL: there are none. The caller frees both. */
fth_status fth_test_part_open(const fth_train_options *options, const fth_dataset *dataset, const fth_stop *stop,
                              fth_dataset **test, char **address);

/* Measures the model in the file `weights` on setup->test, on the device of the setup. */
fth_status fth_test_part_measure(const fth_setup *setup, const char *weights, const fth_stop *stop,
                                 fth_deadline deadline, fth_evaluation *evaluation);

#endif
