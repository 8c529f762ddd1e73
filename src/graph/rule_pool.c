/* See rule_pool.h. */
#include "graph/rule_pool.h"

#include "graph/graph_internal.h"

/* How many windows there are; below 1 if none fits. */
static int64_t count_windows(int64_t input, int kernel, int stride, int padding, bool ceil)
{
    const int64_t room = input + 2 * (int64_t)padding - kernel;
    if (!ceil)
        return room < 0 ? 0 : room / stride + 1;
    const int64_t rounded_up = room + stride - 1;
    const int64_t count = rounded_up < 0 ? 0 : rounded_up / stride + 1;
    return (count - 1) * stride >= input + padding ? count - 1 : count;
}

fth_status fth_rule_infer_pool(const fth_pool_attributes *attributes, const fth_type *input, fth_type *output)
{
    fth_status status = FTH_OK;
    int64_t size[2];

    FTH_TRY(fth_rule_check_float(input, "the input", 4));
    const fth_shape *x = &input->shape;
    for (int i = 0; i < 2; i++) {
        int kernel = attributes->kernel[i], stride = attributes->stride[i], padding = attributes->padding[i];
        FTH_REQUIRE(kernel >= 1 && stride >= 1, FTH_INVALID, "kernel %d, stride %d: both must be at least 1", kernel,
                    stride);
        /* Otherwise some windows would see nothing but padding. */
        FTH_REQUIRE(padding >= 0 && padding <= kernel / 2, FTH_INVALID,
                    "padding %d; it must be at least 0 and at most half the kernel, %d", padding, kernel / 2);
        size[i] = count_windows(x->dims[2 + i], kernel, stride, padding, attributes->ceil);
        FTH_REQUIRE(size[i] >= 1, FTH_INVALID, "a %d×%d window does not fit a %lld×%lld input (padding %d×%d)",
                    attributes->kernel[0], attributes->kernel[1], (long long)x->dims[2], (long long)x->dims[3],
                    attributes->padding[0], attributes->padding[1]);
    }
    *output = (fth_type){FTH_F32, FTH_SHAPE(x->dims[0], x->dims[1], size[0], size[1])};

out:
    return status;
}

void fth_rule_complete_pool(const fth_graph *graph, fth_value x, fth_pool_attributes *attributes)
{
    const fth_value_info *input = fth_graph_value(graph, x);
    bool reaches_beyond = false;
    if (!input)
        return;
    attributes->input_shape = input->type.shape;
    for (int i = 0; i < 2 && attributes->ceil && input->type.shape.rank == 4 && attributes->stride[i] >= 1; i++) {
        const int64_t size = input->type.shape.dims[2 + i];
        const int kernel = attributes->kernel[i], stride = attributes->stride[i], padding = attributes->padding[i];
        reaches_beyond = reaches_beyond || count_windows(size, kernel, stride, padding, true) !=
                                               count_windows(size, kernel, stride, padding, false);
    }
    attributes->ceil = attributes->ceil && reaches_beyond;
}
