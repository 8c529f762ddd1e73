/* A run without samples, for a peer whose part of the batch is empty. It needs no plan, and no back
 * end has to compute with empty tensors: what such a run does follows from the graph alone. */
#include <stdlib.h>

#include "backend/batch_norm_sums.h"
#include "backend/kernel.h"

enum { RUNNING_MEAN = 3, RUNNING_VARIANCE = 4, EXCHANGE_TIMEOUT_S = 300 };

/* Moves a running mean or variance towards `found`, by channel. */
static fth_status move_running(const fth_graph *graph, fth_device *device, float *buffers, fth_value running,
                               const double *found, int64_t channels, float momentum, float *scratch)
{
    fth_status status = FTH_OK;
    float *at = buffers + fth_graph_value(graph, running)->offset;
    const size_t size_bytes = (size_t)channels * sizeof *at;

    FTH_TRY(device->backend->copy_out(device, scratch, at, size_bytes));
    for (int64_t c = 0; c < channels; c++)
        fth_batch_norm_move(&scratch[c], found[c], momentum);
    FTH_TRY(device->backend->copy_in(device, at, scratch, size_bytes));

out:
    return status;
}

/* Sums over peers, to which this one contributes zeros; on the device if they sum there. */
static fth_status sum_nothing(fth_device *device, const fth_run *run, double *sums, size_t count)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = device->backend;
    const size_t size_bytes = count * sizeof *sums;
    void *memory = NULL;

    if (!run->peers || !run->peers->group)
        return fth_plan_sum_over_peers(run, sums, count);
    FTH_TRY(backend->allocate(device, size_bytes, &memory));
    FTH_TRY(backend->collectives->sum(run->peers->group, memory, count));
    FTH_TRY(backend->collectives->join(run->peers->group, NULL));
    FTH_TRY(backend->collectives->wait(run->peers->group, fth_deadline_in(EXCHANGE_TIMEOUT_S)));
    FTH_TRY(backend->copy_out(device, sums, memory, size_bytes));

out:
    if (memory)
        backend->release(device, memory);
    return status;
}

static fth_status run_batch_norm(const fth_graph *graph, fth_device *device, const fth_node *node, float *buffers,
                                 const fth_run *run)
{
    fth_status status = FTH_OK;
    const fth_batch_norm_attributes *attributes = node->attributes;
    const int64_t channels = fth_graph_value(graph, node->inputs[0])->type.shape.dims[1];
    double *sums = NULL, *found = NULL;
    float *scratch = NULL;

    FTH_TRY(fth_allocate(fth_batch_norm_sum_count(channels), sizeof *sums, &sums));
    FTH_TRY(sum_nothing(device, run, sums, fth_batch_norm_sum_count(channels)));
    if (node->op != &fth_op_batch_norm || sums[0] == 0) /* no peer has a sample */
        goto out;
    FTH_TRY(fth_allocate((size_t)channels, sizeof *found, &found));
    FTH_TRY(fth_allocate((size_t)channels, sizeof *scratch, &scratch));
    for (int64_t c = 0; c < channels; c++)
        found[c] = fth_batch_norm_statistics(sums, c, channels).mean;
    FTH_TRY(move_running(graph, device, buffers, node->inputs[RUNNING_MEAN], found, channels, attributes->momentum,
                         scratch));
    for (int64_t c = 0; c < channels; c++)
        found[c] = fth_batch_norm_statistics(sums, c, channels).unbiased;
    FTH_TRY(move_running(graph, device, buffers, node->inputs[RUNNING_VARIANCE], found, channels, attributes->momentum,
                         scratch));

out:
    free(sums);
    free(found);
    free(scratch);
    return status;
}

fth_status fth_plan_run_empty(const fth_graph *graph, fth_device *device, fth_vectors vectors, bool synchronized,
                              const fth_run *run)
{
    fth_status status = FTH_OK;
    const size_t trained = fth_graph_trained_floats(graph);

    device->backend->enter(device, device->threads);
    for (int n = 0; synchronized && n < fth_graph_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        const bool forward = node->op == &fth_op_batch_norm;
        if ((forward || node->op == &fth_op_batch_norm_grad) &&
            !((const fth_batch_norm_attributes *)node->attributes)->fixed)
            FTH_TRY(run_batch_norm(graph, device, node, vectors.buffers, run));
    }
    FTH_TRY(device->backend->fill_zero(device, vectors.gradients, trained * sizeof(float)));
    if (run->gradients_ready)
        run->gradients_ready(run->gradients_context, trained);

out:
    return status;
}
