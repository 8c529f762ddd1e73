/* What a function keeps of a model between invocations: the device, the engine with its plans, and
 * the replica. Recreated if the server has another model or the parameters differ. */
#ifndef FTH_FUNCTIONS_TRAIN_MODEL_H
#define FTH_FUNCTIONS_TRAIN_MODEL_H

#include "functions/train_parameters.h"
#include "parameters/replica.h"

typedef struct fth_train_model fth_train_model;

fth_status fth_train_model_create(fth_train_model **model);
void fth_train_model_free(fth_train_model *model);

typedef struct fth_train_resources {
    int threads;
    uint64_t memory_bytes; /* limit for the model and its buffers; 0: unknown */
} fth_train_resources;

/* The engine and replica for the client's server, connected to it. Lent until the next call.
 * FTH_NO_MEMORY if they need more than there is. */
fth_status fth_train_model_get(fth_train_model *model, const fth_train_parameters *parameters,
                               const fth_train_resources *resources, fth_worker_client *client, fth_engine **engine,
                               fth_replica **replica);
/* How much memory they need. */
uint64_t fth_train_model_needed_bytes(const fth_train_model *model);

/* FTH_INVALID, naming the difference, if the data set's images do not fit the server's model. */
fth_status fth_train_model_check_data(const fth_train_model *model, const fth_dataset *dataset, const char *name);

#endif
