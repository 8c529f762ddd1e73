/* See accelerator_use.h. */
#include "train/loop/accelerator_use.h"

#include <math.h>

#include "base/json.h"

double fth_accelerator_use_sample(fth_accelerator_use *use, fth_device *device, double interval_s)
{
    fth_device_sample sample;
    const double now = fth_clock_seconds(), seconds = now - use->sampled_at_s;
    if (!device->backend->accelerator || (use->known && seconds < interval_s) ||
        device->backend->accelerator->sample(device, &sample) != FTH_OK)
        return 0;
    const double busy_s = isfinite(sample.busy_s) ? sample.busy_s - use->busy_s : 0;
    const bool timed = use->known && seconds > 0 && isfinite(sample.busy_s);
    if (isfinite(sample.utilization))
        use->utilization = sample.utilization;
    else
        use->utilization = timed ? fmin(1, busy_s / seconds) : NAN;
    use->busy_s += busy_s;
    use->memory_bytes = sample.used_bytes;
    use->sampled_at_s = now;
    use->known = true;
    return busy_s;
}

void fth_accelerator_use_describe(const fth_accelerator_use *use, double accelerator_s, json_t *event)
{
    if (!use->known)
        return;
    fth_json_set_number(event, "accelerator_s", accelerator_s);
    fth_json_set_number(event, "accelerator_utilization", use->utilization);
    json_object_set_new(event, "accelerator_memory_bytes", json_integer(use->memory_bytes));
}
