/* See recompute.h. */
#include "train/engine/recompute.h"

#include <stdlib.h>
#include <string.h>

#include "backend/plan.h"
#include "base/process.h"

/* FARTHING_MEMORY_MB is for tests. */
static double find_room(fth_device *device)
{
    const char *given = getenv("FARTHING_MEMORY_MB");
    const fth_backend_accelerator *accelerator = device->backend->accelerator;
    size_t free_now = 0, total = 0;
    if (given)
        return strtod(given, NULL) * 1e6;
    if (accelerator)
        return accelerator->free_memory(device, &free_now, &total) == FTH_OK ? (double)free_now : 0;
    return (double)fth_machine_available_bytes();
}

/* Parameters, gradients and what an optimizer keeps: Adam's two vectors, which most runs of text
 * have. */
static double count_vectors(const fth_graph *graph)
{
    enum { VECTORS = 4 };
    return VECTORS * sizeof(float) * (double)fth_graph_parameter_floats(graph);
}

fth_status fth_recompute_choose(const fth_engine_options *options, const fth_graph *graph, fth_device *device,
                                fth_precision precision, bool *recompute)
{
    fth_status status = FTH_OK;
    const fth_train_options *train = options->train;
    fth_plan *plan = NULL;
    double room = find_room(device);

    *recompute = train->recompute == FTH_RECOMPUTE_LAYERS;
    if (train->recompute != FTH_RECOMPUTE_AUTO || room <= 0)
        return FTH_OK;
    const fth_plan_options largest = {.batch = train->batch,
                                      .tokens = fth_text_capacity(train->batch * options->longest),
                                      .mode = FTH_PLAN_TRAIN,
                                      .precision = precision,
                                      .unmeasured = true};
    FTH_TRY(fth_plan_create(graph, device, largest, &plan));
    double needed = (double)fth_plan_arena_bytes(plan) + count_vectors(graph);
    *recompute = needed > 0.9 * room;
    if (*recompute)
        fth_log_info(
            "%s with a batch of %lld would take %.2f GB of the %.2f GB that are free: layers are computed again "
            "for their gradients (--recompute none keeps everything)",
            train->model, (long long)train->batch, needed / 1e9, room / 1e9);

out:
    fth_plan_free(plan);
    return status;
}
