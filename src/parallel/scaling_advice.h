/* Advice on scaling out: what a run would take on several nodes, and how many to choose. Arithmetic
 * over the scaling model, for `farthing plan`. */
#ifndef FTH_PARALLEL_SCALING_ADVICE_H
#define FTH_PARALLEL_SCALING_ADVICE_H

#include "parallel/scaling_model.h"

typedef enum fth_rate_rule { FTH_RATE_KEPT, FTH_RATE_SQRT, FTH_RATE_LINEAR } fth_rate_rule;

/* What is the same at every size. */
typedef struct fth_scaling_run {
    int64_t samples;          /* in an epoch */
    int64_t batch;            /* of all workers together; or */
    int64_t batch_per_worker; /* of each; 0: `batch` counts */
    int64_t accumulate;
    double learning_rate; /* of one worker */
    fth_rate_rule rate_rule;
    int workers_per_node;
    fth_link link, local;
    fth_scaling_rounds rounds;
    int bytes_per_float;
    bool sharded_update;
    size_t bucket_floats; /* 0: chosen */
    double usd_per_hour;  /* of a node; NAN: unknown */
} fth_scaling_run;

/* What is predicted for one. */
typedef struct fth_scaling_size {
    int nodes, workers;
    int64_t batch, worker_batch; /* of all; the largest part of one */
    double learning_rate;
    size_t bucket_floats;
    fth_step_prediction step;
    double samples_per_s;
    double efficiency; /* of `nodes` times one node's samples per second */
    double epoch_s;    /* training alone, without validation */
    double epoch_usd;  /* NAN: no price */
} fth_scaling_size;

/* The samples of a step of one worker, on so many nodes. */
int64_t fth_scaling_worker_batch(const fth_scaling_run *run, int nodes);
/* `profile` is of a worker with that batch. The efficiency is left 0. */
fth_scaling_size fth_scaling_predict_size(const fth_scaling_run *run, const fth_worker_profile *profile, int nodes);
/* Sets the efficiencies; `one` is the prediction for one node. */
void fth_scaling_compare(fth_scaling_size *sizes, size_t count, const fth_scaling_size *one);

/* Which to choose, as indexes of sizes in ascending order. Where the price is unknown, money is the
 * nodes' time. */
typedef struct fth_scaling_advice {
    size_t cheapest, fastest;
    size_t balanced; /* of the least time times money: a share more of one is worth the same share less of the other */
    bool pays;       /* some size takes at least a tenth less time than the smallest */
} fth_scaling_advice;
fth_scaling_advice fth_scaling_advise(const fth_scaling_size *sizes, size_t count);

#endif
