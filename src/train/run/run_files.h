/* What a run keeps besides its record, checkpoints and models, in its folder and in the store where
 * it lives, so that any machine that continues it has the same: of text, the tokenizer; of an
 * exported network, its text. And what Hugging Face's libraries expect beside weights. */
#ifndef FTH_TRAIN_RUN_FILES_H
#define FTH_TRAIN_RUN_FILES_H

#include "train/run/run_store.h"
#include "train/setup/setup.h"

/* Writes the files into the folder of a run. */
fth_status fth_run_files_write(const fth_setup *setup, const char *folder);
/* Puts those in `folder` that a machine needs to continue the run into the store, before the run's
 * record; brings them into `folder`, where they are missing; removes them from the store. */
fth_status fth_run_files_put(fth_run_store *run, const char *folder);
fth_status fth_run_files_fetch(fth_run_store *run, const char *folder);
fth_status fth_run_files_remove(fth_run_store *run);

#endif
