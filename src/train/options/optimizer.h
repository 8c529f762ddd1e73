/* Optimizers by name. What there is to know of each is in its file of backend/optimizers. */
#ifndef FTH_TRAIN_OPTIMIZER_H
#define FTH_TRAIN_OPTIMIZER_H

#include "backend/update.h"
#include "base/options.h"

fth_status fth_optimizer_find(const char *name, const fth_optimizer **optimizer);
/* The optimizer of models that name none. */
const char *fth_optimizer_default(void);
/* They are the choices of --optimizer. */
fth_choice fth_optimizer_choice(size_t index);

#endif
