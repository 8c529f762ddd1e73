/* The exported network (.pt2) of a run. The options name its file; the run keeps the network's
 * text, so that it continues with the same network even where the file is missing or was changed,
 * on any machine. Functions do nothing where options name no exported network. */
#ifndef FTH_TRAIN_RUN_NETWORK_H
#define FTH_TRAIN_RUN_NETWORK_H

#include "train/train_options.h"

/* In the folder and in the store of a run. */
#define FTH_RUN_NETWORK "network.json"

/* Sets options->own.network: to the one kept in `folder`, that of a run which is continued, else to
 * that in the file. `folder` may be NULL. Says so if the file has another network than the run. */
fth_status fth_run_network_find(fth_train_options *options, const char *folder);
/* Sets it to the network of a text that a peer or a server, `origin`, has sent. */
fth_status fth_run_network_take(fth_train_options *options, const char *text, const char *origin);
/* Its text; NULL if the options have no exported network. Lent as long as the process lives. */
const char *fth_run_network_text(const fth_train_options *options);

/* Writes the text into the folder of a run. */
fth_status fth_run_network_write(const fth_train_options *options, const char *folder);

/* Whether a new run starts with the weights in the network's file, and the file. Fails if the file
 * has another network than the run. *path is lent by the options; NULL: no. */
fth_status fth_run_network_find_weights(const fth_train_options *options, const char **path);

/* Images get the size that the network takes, unless options say another: the value of --image-size
 * (0: it stays), or that of --validation-transform (NULL: it stays; the caller's). The second one
 * sets them. */
fth_status fth_run_network_choose_size(const fth_train_options *options, int64_t *size, char **transform);
fth_status fth_run_network_fit_images(fth_train_options *options);

#endif
