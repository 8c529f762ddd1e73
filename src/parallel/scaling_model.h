/* The scaling model: how long a step of data-parallel training takes, from a profile of one worker
 * and the cost of a sum over all of them; and the bucket size that makes it shortest. Arithmetic
 * alone: no clock, no network.
 *
 * A worker's backward pass finishes gradients from the front of the gradient vector to its end (the
 * timeline). Buckets are ranges of that vector, exchanged one after the other, each as soon as its
 * last gradient is final and the exchange before it is over. The step ends with the update, once
 * the last bucket has arrived:
 *
 *     compute   forward ------- backward ---------------|
 *     exchange                    [b0][b1]   [b2]     [b3]
 *     update                                              [u]
 *
 * Used for --bucket auto, with costs measured among the workers, and by `farthing plan`, with costs
 * of a link. */
#ifndef FTH_PARALLEL_SCALING_MODEL_H
#define FTH_PARALLEL_SCALING_MODEL_H

#include "train/engine/worker_profile.h"

/* A sum over all workers takes fixed_s + bytes * seconds_per_byte, where `bytes` is what each of
 * them contributes. */
typedef struct fth_scaling_cost {
    double fixed_s, seconds_per_byte;
} fth_scaling_cost;

typedef struct fth_link {
    double latency_s;   /* from the sender's call to the receiver's return, of a message of a few bytes */
    double bytes_per_s; /* in each direction at once */
} fth_link;

/* How often a sum crosses the link, one message waiting for the one before. All of them move 2 (n -
 * 1) / n of the bytes in each direction. */
typedef enum fth_scaling_rounds {
    FTH_ROUNDS_DIRECT, /* each sums a part, sent to it by all, and sends the sum to all: 2 */
    FTH_ROUNDS_TREE,   /* recursive halving and doubling: 2 log2 n */
    FTH_ROUNDS_RING    /* 2 (n - 1) */
} fth_scaling_rounds;

/* The processes of a group. Those of one machine sum in its memory first; then one of each machine
 * exchanges. */
typedef struct fth_scaling_group {
    int nodes, workers_per_node;
    fth_link link;  /* between nodes */
    fth_link local; /* within one: bytes_per_s is that of its memory, which its workers share */
    fth_scaling_rounds rounds;
} fth_scaling_group;

/* A single worker's is zero. */
fth_scaling_cost fth_scaling_cost_of(const fth_scaling_group *group);

typedef struct fth_scaling_exchange {
    fth_scaling_cost cost;
    int workers;
    int bytes_per_float; /* on the wire: 4, or 2 for f16 and bf16 */
    bool sharded_update; /* each worker updates a part, and all parts are gathered then */
} fth_scaling_exchange;

/* What most of the time beyond compute and update goes to. */
typedef enum fth_scaling_limit {
    FTH_LIMITED_BY_NOTHING,   /* less than 1 % of the step */
    FTH_LIMITED_BY_BANDWIDTH, /* bytes on the link */
    FTH_LIMITED_BY_LATENCY,   /* messages that wait for each other */
    FTH_LIMITED_BY_STRAGGLERS,
    FTH_LIMITED_BY_DATA /* loaders are slower than the step */
} fth_scaling_limit;

const char *fth_scaling_limit_name(fth_scaling_limit limit); /* "bandwidth" */

typedef struct fth_step_prediction {
    double step_s;
    double exchange_s; /* time of the exchange, mostly while gradients are computed */
    double exposed_s;  /* the part of it that a step waits for */
    double waiting_s;  /* for the slowest worker */
    int buckets;
    fth_scaling_limit limit;
} fth_step_prediction;

/* A step with buckets of that many floats; 0: one bucket. */
fth_step_prediction fth_scaling_predict(const fth_worker_profile *profile, const fth_scaling_exchange *exchange,
                                        size_t bucket_floats);
/* The bucket size, in floats, of the shortest predicted step; the largest of those as good. */
size_t fth_scaling_choose_bucket(const fth_worker_profile *profile, const fth_scaling_exchange *exchange);

/* "25Gbit,50us", "390Mbit,1ms", "10Gbit" (with a latency of 50 µs); FTH_INVALID says what is
 * wrong. */
fth_status fth_link_parse(const char *text, fth_link *link);
/* The same text back. */
void fth_link_format(const fth_link *link, char *text, size_t size);

#endif
