/* Accuracy, measured in a thread of its own with an engine of its own: a copy of the parameters is
 * evaluated on the data's validation part while gradients are applied. */
#ifndef FTH_PARAMETERS_VALIDATOR_H
#define FTH_PARAMETERS_VALIDATOR_H

#include "parameters/snapshots.h"

typedef struct fth_served_validator fth_served_validator;

typedef struct fth_served_validator_options {
    const fth_served_model *model; /* with a data set */
    const fth_served_position *position;
    fth_parameter_snapshots *snapshots;
    fth_served_record *record;
    int64_t every; /* versions */
} fth_served_validator_options;

typedef struct fth_validation {
    int64_t version;
    double accuracy, loss;
} fth_validation;

/* Starts the thread; everything in the options outlives the validator. */
fth_status fth_served_validator_start(const fth_served_validator_options *options, fth_served_validator **validator);
/* Asks the thread to end; returns at once. */
void fth_served_validator_stop(fth_served_validator *validator);
/* Joins the thread. */
void fth_served_validator_join(fth_served_validator *validator);
void fth_served_validator_free(fth_served_validator *validator); /* stops and joins; NULL is fine */

/* The last validation; false if there was none. From any thread. `validator` may be NULL: there is
 * no data. */
bool fth_served_validator_get(fth_served_validator *validator, fth_validation *validation);
/* Validates the version that stays, with the server's own engine. After every other thread has
 * ended. */
void fth_served_validator_run_last(fth_served_validator *validator);

#endif
