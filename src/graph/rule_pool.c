/* See rule_pool.h. */
#include "graph/rule_pool.h"

#include "graph/graph_internal.h"

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
        int64_t room = x->dims[2 + i] + 2 * (int64_t)padding - kernel;
        FTH_REQUIRE(room >= 0, FTH_INVALID, "a %d×%d window does not fit a %lld×%lld input (padding %d×%d)",
                    attributes->kernel[0], attributes->kernel[1], (long long)x->dims[2], (long long)x->dims[3],
                    attributes->padding[0], attributes->padding[1]);
        size[i] = room / stride + 1;
    }
    *output = (fth_type){FTH_F32, FTH_SHAPE(x->dims[0], x->dims[1], size[0], size[1])};

out:
    return status;
}
