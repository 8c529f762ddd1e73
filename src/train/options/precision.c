/* See precision.h. */
#include "train/options/precision.h"

#include <string.h>

static const struct {
    const char *name;
    fth_precision precision;
} precisions[] = {
    {"f32", FTH_PRECISION_F32}, {"bf16", FTH_PRECISION_BF16}, {"f16", FTH_PRECISION_F16}, {"tf32", FTH_PRECISION_TF32}};

fth_choice fth_precision_choice(size_t index)
{
    if (index < FTH_COUNT_OF(precisions))
        return (fth_choice){.name = precisions[index].name};
    return (fth_choice){.name = index == FTH_COUNT_OF(precisions) ? "auto" : NULL};
}

const char *fth_precision_name(fth_precision precision)
{
    for (size_t i = 0; i < FTH_COUNT_OF(precisions); i++)
        if (precisions[i].precision == precision)
            return precisions[i].name;
    return "";
}

/* By name; for "auto", the one in which the device is fastest with this network. */
static fth_precision find_precision(const char *name, fth_device *device, const fth_graph *graph)
{
    for (size_t i = 0; i < FTH_COUNT_OF(precisions); i++)
        if (strcmp(name, precisions[i].name) == 0)
            return precisions[i].precision;
    const fth_backend_accelerator *accelerator = device->backend->accelerator;
    return accelerator ? accelerator->choose_precision(device, graph) : FTH_PRECISION_F32;
}

fth_status fth_precision_choose(const char *asked, const char *before, fth_device *device, const fth_graph *graph,
                                fth_precision *precision)
{
    if (strcmp(asked, "auto") == 0 && before && *before) {
        *precision = find_precision(before, device, graph);
        if (device->backend->check_precision(device, *precision) == FTH_OK)
            return FTH_OK;
        fth_log_warning("--precision auto was %s until now, not supported by %s; choosing again", before,
                        device->description);
    }
    *precision = find_precision(asked, device, graph);
    return device->backend->check_precision(device, *precision);
}

void fth_precision_advise(const char *asked, fth_device *device, const fth_graph *graph, int64_t batch)
{
    const double clearly = 1.25; /* estimates are rough */
    if (strcmp(asked, "bf16") != 0 || !device->backend->relative_time)
        return;
    const double times = device->backend->relative_time(device, graph, batch, FTH_PRECISION_BF16);
    if (times > clearly)
        fth_log_warning(
            "bf16 is slower than f32 for this network on this CPU (about %.1f x); --precision f32 is faster", times);
}
