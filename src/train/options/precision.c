/* See precision.h. */
#include "train/options/precision.h"

#include <string.h>

static const char *const names[] = {[FTH_PRECISION_F32] = "f32",
                                    [FTH_PRECISION_BF16] = "bf16",
                                    [FTH_PRECISION_F16] = "f16",
                                    [FTH_PRECISION_TF32] = "tf32",
                                    [FTH_PRECISION_AUTO] = "auto"};

fth_choice fth_precision_choice(size_t index)
{
    return (fth_choice){.name = index < FTH_COUNT_OF(names) ? names[index] : NULL};
}

const char *fth_precision_name(fth_precision precision)
{
    return names[precision];
}

static fth_precision choose_fastest(fth_device *device, const fth_graph *graph)
{
    const fth_backend_accelerator *accelerator = device->backend->accelerator;
    return accelerator ? accelerator->choose_precision(device, graph) : FTH_PRECISION_F32;
}

fth_status fth_precision_choose(unsigned asked, const char *before, fth_device *device, const fth_graph *graph,
                                fth_precision *precision)
{
    const bool open = asked == FTH_PRECISION_AUTO;
    unsigned index = 0;
    if (open && before && *before) {
        while (index < FTH_PRECISION_AUTO && strcmp(names[index], before) != 0)
            index++;
        *precision = index < FTH_PRECISION_AUTO ? (fth_precision)index : choose_fastest(device, graph);
        if (device->backend->check_precision(device, *precision) == FTH_OK)
            return FTH_OK;
        fth_log_warning("--precision auto was %s until now, not supported by %s; choosing again", before,
                        device->description);
    }
    *precision = open ? choose_fastest(device, graph) : (fth_precision)asked;
    return device->backend->check_precision(device, *precision);
}

void fth_precision_advise(unsigned asked, fth_device *device, const fth_graph *graph, int64_t batch)
{
    const double clearly = 1.25; /* estimates are rough */
    if (asked != FTH_PRECISION_BF16 || !device->backend->relative_time)
        return;
    const double times = device->backend->relative_time(device, graph, batch, FTH_PRECISION_BF16);
    if (times > clearly)
        fth_log_warning(
            "bf16 is slower than f32 for this network on this CPU (about %.1f x); --precision f32 is faster", times);
}
