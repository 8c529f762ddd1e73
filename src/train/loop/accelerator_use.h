/* How much a run uses its accelerator, for its events. Belongs to the training thread. */
#ifndef FTH_TRAIN_ACCELERATOR_USE_H
#define FTH_TRAIN_ACCELERATOR_USE_H

#include <jansson.h>

#include "backend/backend.h"

/* All zero at first. */
typedef struct fth_accelerator_use {
    bool known; /* stays false if the device is the CPU */
    int64_t memory_bytes;
    double utilization;  /* since the sample before */
    double busy_s;       /* of this process, as sampled */
    double sampled_at_s; /* on the process's clock */
} fth_accelerator_use;

/* Samples the device, which takes a moment, at most every `interval_s`. Gives the seconds that this
 * process kept it busy since the last sample. A failure changes nothing: training notices a lost
 * device by itself. */
double fth_accelerator_use_sample(fth_accelerator_use *use, fth_device *device, double interval_s);
/* Adds the sample, and `accelerator_s` of the run, to an event; nothing for the CPU. */
void fth_accelerator_use_describe(const fth_accelerator_use *use, double accelerator_s, json_t *event);

#endif
