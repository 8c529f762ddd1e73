/* What the files of the public interface share. Public headers stand alone; these files translate
 * between them and the internal ones, and hold no logic of training or prediction. */
#ifndef FTH_API_API_INTERNAL_H
#define FTH_API_API_INTERNAL_H

#include <farthing/farthing.h>

#include "data/data.h"
#include "model/model.h"
#include "train/train_options.h"

/* FTH_INVALID unless it is 1 to 64 letters, digits, '.', '_' and '-'. `what` begins the message:
 * "the network's name". */
fth_status fth_api_check_name(const char *what, const char *name);

/* FTH_INVALID if `pointer` is NULL; `what` names the argument: "training". */
fth_status fth_api_check_not_null(const void *pointer, const char *what);

/* FTH_UNSUPPORTED in a child process whose parent computed in the calling thread before the fork:
 * OpenMP would wait there for threads that the child does not have. */
fth_status fth_api_check_process(void);

/* The model that a network is; FTH_INVALID if it is not finished. Lives as long as the network. */
fth_status fth_api_network_model(const fth_network *network, const fth_model **model);

/* Makes options name the data, or carry its arrays. */
fth_status fth_api_apply_data(const fth_data *data, fth_train_options *options);

#endif
