/* Convolutions in parts of the batch. cuDNN's fast engines count elements in 32 bits: with a larger
 * tensor only engines that are some 70 times slower are left (vgg19 with a batch of 1024: 16 s a
 * step). So a batch that makes x or y too large is computed in equal parts, by one engine.
 * Gradients of weights are the first part's and what the others add, in the type of the weights.
 *
 * FARTHING_CUDA_PART_ELEMENTS sets how many elements a part may have, for tests. */
#include <stdlib.h>

#include "backend/cuda/convolution.h"
#include "backend/cuda/layout.h"

struct cuda_conv_plan {
    cuda_engine *first, *others; /* of the parts; others: NULL where they are computed as the first */
    int parts;
    size_t x_bytes, y_bytes; /* of a part */
};

static int64_t count(const int64_t dims[4])
{
    return dims[0] * dims[1] * dims[2] * dims[3];
}

/* The fewest equal parts that are small enough, and begin where tensors may; 1 where there is no
 * such number. */
static int count_parts(const cuda_conv *conv)
{
    const char *asked = getenv("FARTHING_CUDA_PART_ELEMENTS");
    const int64_t most = asked ? strtoll(asked, NULL, 10) : INT32_MAX, alignment = 16;
    const int64_t x = count(conv->x), y = count(conv->y), size = (int64_t)cuda_type_size(conv->type);
    for (int parts = 1; parts <= CUDA_MAX_PARTS && parts <= conv->x[0]; parts++)
        if (conv->x[0] % parts == 0 && x / parts <= most && y / parts <= most && x / parts * size % alignment == 0 &&
            y / parts * size % alignment == 0)
            return parts;
    return 1;
}

static fth_status create(cuda_device *device, const cuda_conv *conv, int parts, cuda_conv_plan **result)
{
    fth_status status = FTH_OK;
    cuda_conv_plan *plan = NULL;
    cuda_conv part = *conv;
    part.x[0] /= parts;
    part.y[0] /= parts;
    FTH_TRY(fth_allocate(1, sizeof *plan, &plan));
    plan->parts = parts;
    plan->x_bytes = (size_t)count(part.x) * cuda_type_size(conv->type);
    plan->y_bytes = (size_t)count(part.y) * cuda_type_size(conv->type);
    FTH_TRY(cuda_engine_create(device, &part, &plan->first));
    if (!plan->first)
        goto out;
    if (parts > 1 && conv->kind == CUDA_CONV_FILTER) {
        part.accumulate = true;
        FTH_TRY(cuda_engine_create(device, &part, &plan->others));
        if (!plan->others)
            goto out;
    }
    *result = plan;
    plan = NULL;
out:
    cuda_conv_free(plan);
    return status;
}

fth_status cuda_conv_create(cuda_device *device, const cuda_conv *conv, cuda_conv_plan **result)
{
    const int parts = count_parts(conv);
    *result = NULL;
    fth_status status = create(device, conv, parts, result);
    if (status == FTH_OK && !*result && parts > 1) /* slow, or none at all */
        status = create(device, conv, 1, result);
    return status;
}

void cuda_conv_free(cuda_conv_plan *plan)
{
    if (!plan)
        return;
    cuda_engine_free(plan->first);
    cuda_engine_free(plan->others);
    free(plan);
}

size_t cuda_conv_workspace_bytes(const cuda_conv_plan *plan)
{
    size_t first = cuda_engine_workspace_bytes(plan->first);
    size_t others = plan->others ? cuda_engine_workspace_bytes(plan->others) : 0;
    return first > others ? first : others;
}

const char *cuda_conv_name(const cuda_conv_plan *plan)
{
    return cuda_engine_name(plan->first);
}

double cuda_conv_microseconds(const cuda_conv_plan *plan)
{
    return plan->parts * cuda_engine_microseconds(plan->first);
}

static cuda_engine *engine_of(const cuda_conv_plan *plan, int part)
{
    return part > 0 && plan->others ? plan->others : plan->first;
}

fth_status cuda_conv_bind(cuda_conv_plan *plan, void *x, void *w, void *y, void *bias, void *workspace)
{
    fth_status status = FTH_OK;
    for (int part = 0; part < plan->parts; part++)
        FTH_TRY(cuda_engine_bind(engine_of(plan, part), part, (char *)x + (size_t)part * plan->x_bytes, w,
                                 (char *)y + (size_t)part * plan->y_bytes, bias, workspace));
out:
    return status;
}

fth_status cuda_conv_run(cuda_device *device, const cuda_conv_plan *plan)
{
    fth_status status = FTH_OK;
    for (int part = 0; part < plan->parts; part++)
        FTH_TRY(cuda_engine_run(device, engine_of(plan, part), part));
out:
    return status;
}
