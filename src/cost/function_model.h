/* Estimates time and cost of a training job in functions around a parameter server, and on one VM.
 * Pure arithmetic: no clock, no network.
 *
 * A function has memory_mb / mb_per_vcpu vCPUs. It computes the gradients of some batches, sends
 * their mean, and gets parameters back; N functions do so side by side, and share the server's
 * network:
 *
 *     round   = max( batches_per_push * batch_s / vcpus + 2 latency + bytes / rate ,  N * bytes /
 *             server's rate )
 *     time    = ceil( pushes / N ) rounds, and a start for each invocation of limit_s
 *     dollars = N * time * GB * rate + invocations + bytes sent
 *
 * A VM starts once and then computes with all of its vCPUs:
 *
 *     time    = start + batches * batch_s / vcpus
 *     dollars = time * rate, a minute at least
 *
 * The model assumes that vCPUs are equally fast everywhere, that a job needs the same number of
 * samples either way, and ignores the time to fetch data. A second of a function's vCPU costs two
 * to three times as much as a VM's, so long jobs belong on VMs. A VM is paid for while it starts,
 * so short jobs belong in functions. Functions are also paid for while they wait for the network,
 * so large models with frequent exchanges do not. */
#ifndef FTH_COST_FUNCTION_MODEL_H
#define FTH_COST_FUNCTION_MODEL_H

#include "cost/cost.h"

typedef struct fth_job_shape {
    double samples; /* in all: those of an epoch times epochs */
    double batch;
    double batch_s;                /* that one vCPU needs for the gradients of a batch */
    double batches_per_push;       /* at least 1 */
    double push_bytes, pull_bytes; /* gradients, parameters */
} fth_job_shape;

typedef struct fth_function_fleet {
    const fth_function_price *price; /* its mb_per_vcpu is known */
    int functions;
    double memory_mb;
    double start_s;                /* of an invocation, until it computes */
    double limit_s;                /* of an invocation; functions continue in another */
    double latency_s, bytes_per_s; /* of a function's network, one way */
    double server_bytes_per_s;
} fth_function_fleet;

typedef struct fth_job_estimate {
    double seconds, usd; /* INFINITY: impossible, as a round does not fit into an invocation */
    double invocations;  /* of functions */
    double gb_s, sent_bytes;
    double sending_usd;    /* part of usd */
    double exchange_share; /* of a round, in which a function waits for the network or the server; 0..1 */
} fth_job_estimate;

fth_job_estimate fth_estimate_functions(const fth_job_shape *job, const fth_function_fleet *fleet);
fth_job_estimate fth_estimate_vm(const fth_job_shape *job, const fth_price *vm, double start_s);

/* The cheapest on-demand machine for the job, among those of the catalogue with known vCPUs, in
 * `cloud` if it has one. If `instance` is not "", only that type is considered. NULL if there is
 * none. */
const fth_price *fth_estimate_choose_vm(const fth_catalogue *catalogue, const char *cloud, const char *instance,
                                        const fth_job_shape *job, double start_s);
/* The spot price of the same machine, or NULL. */
const fth_price *fth_estimate_find_spot(const fth_catalogue *catalogue, const fth_price *on_demand);

/* The number of samples up to which functions are cheaper; 0: never, INFINITY: always. */
double fth_estimate_break_even(const fth_job_shape *job, const fth_function_fleet *fleet, const fth_price *vm,
                               double vm_start_s);

#endif
