/* Validation while gradients are applied: a thread with an engine of its own evaluates parameter
 * snapshots on the validation part of the data. */
#ifndef FTH_PARAMETERS_VALIDATOR_H
#define FTH_PARAMETERS_VALIDATOR_H

#include "parameters/snapshots.h"

typedef struct fth_served_validator fth_served_validator;

typedef struct fth_validation {
    int64_t version;
    double accuracy, loss;
} fth_validation;

/* Starts the thread; the model has a data set, and the parts outlive the validator. */
fth_status fth_served_validator_start(const fth_server_parts *parts, fth_served_validator **validator);
/* Asks the thread to end; returns at once. */
void fth_served_validator_stop(fth_served_validator *validator);
void fth_served_validator_join(fth_served_validator *validator);
void fth_served_validator_free(fth_served_validator *validator); /* stops and joins; NULL is fine */

/* The last validation; false if there was none, or `validator` is NULL. From any thread. */
bool fth_served_validator_get(fth_served_validator *validator, fth_validation *validation);
/* Validates the last version with the server's own engine, after all other threads have ended. */
void fth_served_validator_run_last(fth_served_validator *validator);

#endif
