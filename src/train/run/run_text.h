/* The files of a run on text: its tokenizer, in the run's folder and in the store where the run
 * lives, so that any machine that continues the run has the same one; and what Hugging Face's
 * libraries expect beside weights. */
#ifndef FTH_TRAIN_RUN_TEXT_H
#define FTH_TRAIN_RUN_TEXT_H

#include "train/run/run_store.h"
#include "train/setup/setup.h"

/* Writes the files into the folder of a run; nothing for a run on images. */
fth_status fth_run_text_write(const fth_setup *setup, const char *folder);
/* Puts the tokenizer in `folder` into the store, before the run's record; nothing if there is
 * none. */
fth_status fth_run_text_put(fth_run_store *run, const char *folder);
/* Brings the tokenizer of the run in the store into `folder`; nothing if there is none. */
fth_status fth_run_text_fetch(fth_run_store *run, const char *folder);

#endif
