/* Operators that only look at a tensor in another way, or do nothing in training. */
#include "exported/lowering.h"

static fth_status same(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x;
    FTH_TRY(lowering_tensor(l, "self", &x));
    lowering_set(l, 0, &x);
out:
    return status;
}

static fth_status same_through(lowering *l, fth_expression_function function)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    fth_view x;
    FTH_TRY(lowering_tensor(l, "self", &x));
    fth_expression_apply(&expression, function, fth_expression_input(0), fth_expression_number(&expression, 0),
                         FTH_NO_OPERAND);
    FTH_TRY(lowering_apply(l, &expression, &x));
    lowering_set(l, 0, &x);
out:
    return status;
}

/* A change of the element type: numbers are f32 here anyway, integers are computed as f32 too, and
 * become truth values by a comparison with 0. */
static fth_status convert(lowering *l)
{
    const fth_exported_value *output = lowering_output(l, 0);
    if (output->torch_dtype == FTH_TORCH_BOOL && !lowering_is_truth(l, "self"))
        return same_through(l, FTH_FUNCTION_NE);
    const bool to_integer = output->torch_dtype != FTH_TORCH_F16 && output->torch_dtype != FTH_TORCH_F32 &&
                            output->torch_dtype != FTH_TORCH_F64 && output->torch_dtype != FTH_TORCH_BF16;
    if (to_integer && !lowering_is_integer(l, "self"))
        return fth_fail(FTH_UNSUPPORTED, "numbers that are computed become integers");
    if (!to_integer && lowering_is_integer(l, "self") && !lowering_is_truth(l, "self"))
        return same_through(l, FTH_FUNCTION_ADD);
    return same(l);
}

/* The same number without a gradient: limits have none, and a number at its limit neither. */
static fth_status detach(lowering *l)
{
    fth_status status = FTH_OK;
    fth_expression expression = {0};
    const fth_operand same_number = fth_expression_input(0);
    fth_view x;
    FTH_TRY(lowering_tensor(l, "self", &x));
    fth_expression_apply(&expression, FTH_FUNCTION_HARDTANH, same_number, same_number, same_number);
    FTH_TRY(lowering_apply(l, &expression, &x));
    lowering_set(l, 0, &x);
out:
    return status;
}

/* view, flatten, squeeze, ...: what the result's dimensions say. */
static fth_status reshape(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    fth_view x;
    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, output->rank, output->dims));
    lowering_set(l, 0, &x);
out:
    return status;
}

static fth_status expand(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    fth_view x;
    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_TRY(fth_view_expand(&x, output->rank, output->dims));
    lowering_set(l, 0, &x);
out:
    return status;
}

/* `order` has as many dimensions as the result. */
static fth_status permute_by(lowering *l, const int *order)
{
    fth_status status = FTH_OK;
    fth_view x;
    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_REQUIRE(x.rank == lowering_output(l, 0)->rank, FTH_UNSUPPORTED,
                "its result has another number of dimensions than its input");
    fth_view_permute(&x, order);
    lowering_set(l, 0, &x);
out:
    return status;
}

static fth_status permute(lowering *l)
{
    fth_status status = FTH_OK;
    const int rank = lowering_output(l, 0)->rank;
    int64_t dims[FTH_MAX_RANK];
    int order[FTH_MAX_RANK] = {0};
    unsigned taken = 0;

    FTH_TRY(lowering_ints(l, "dims", 0, dims, (size_t)rank));
    for (int i = 0; i < rank; i++) {
        const int64_t dim = dims[i] + (dims[i] < 0 ? rank : 0);
        FTH_REQUIRE(dim >= 0 && dim < rank && (taken >> dim & 1) == 0, FTH_UNSUPPORTED, "its dims are no permutation");
        taken |= 1u << dim;
        order[i] = (int)dim;
    }
    FTH_TRY(permute_by(l, order));
out:
    return status;
}

static fth_status swap(lowering *l, const char *first, const char *second, int64_t a, int64_t b)
{
    fth_status status = FTH_OK;
    const int rank = lowering_output(l, 0)->rank;
    int order[FTH_MAX_RANK], dims[2];

    for (int i = 0; i < rank; i++)
        order[i] = i;
    if (rank > 1) {
        FTH_TRY(lowering_dim(l, first, a, rank, &dims[0]));
        FTH_TRY(lowering_dim(l, second, b, rank, &dims[1]));
        order[dims[0]] = dims[1];
        order[dims[1]] = dims[0];
    }
    FTH_TRY(permute_by(l, order));
out:
    return status;
}

static fth_status move(lowering *l)
{
    fth_status status = FTH_OK;
    const int rank = lowering_output(l, 0)->rank;
    int64_t from[FTH_MAX_RANK], to[FTH_MAX_RANK];
    int order[FTH_MAX_RANK];
    const size_t count = lowering_int_count(l, "source");
    unsigned moved = 0;

    FTH_REQUIRE((int)count <= rank && lowering_int_count(l, "destination") == count, FTH_UNSUPPORTED,
                "its destination does not fit its source");
    FTH_TRY(lowering_ints(l, "source", 0, from, count));
    FTH_TRY(lowering_ints(l, "destination", 0, to, count));
    for (int i = 0; i < rank; i++)
        order[i] = -1;
    for (size_t i = 0; i < count; i++) {
        from[i] += from[i] < 0 ? rank : 0;
        to[i] += to[i] < 0 ? rank : 0;
        FTH_REQUIRE(from[i] >= 0 && from[i] < rank && to[i] >= 0 && to[i] < rank && order[to[i]] < 0, FTH_UNSUPPORTED,
                    "its dimensions are no permutation");
        order[to[i]] = (int)from[i];
        moved |= 1u << from[i];
    }
    for (int i = 0, next = 0; i < rank; i++) { /* the others in their order */
        while (next < rank && (moved >> next & 1) != 0)
            next++;
        if (order[i] < 0)
            order[i] = next++;
    }
    FTH_TRY(permute_by(l, order));
out:
    return status;
}

static fth_status transpose(lowering *l)
{
    return swap(l, "dim0", "dim1", 0, 1);
}

static fth_status swap_axes(lowering *l)
{
    return swap(l, "axis0", "axis1", 0, 1);
}

static fth_status matrix_transpose(lowering *l)
{
    return swap(l, "", "", -2, -1);
}

/* (N, groups * C, ...) to (N, C * groups, ...) */
static fth_status channel_shuffle(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    const int64_t groups = lowering_int(l, "groups", 1);
    fth_exported_dim dims[FTH_MAX_RANK];
    int order[FTH_MAX_RANK];
    fth_view x;

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_REQUIRE(x.rank >= 2 && x.rank < FTH_MAX_RANK && groups > 0 && output->dims[1].factor % groups == 0,
                FTH_UNSUPPORTED, "its channels do not divide into its groups");
    for (int i = 0; i <= x.rank; i++) {
        dims[i] = i == 0   ? output->dims[0]
                  : i == 1 ? (fth_exported_dim){.factor = groups}
                  : i == 2 ? (fth_exported_dim){.factor = output->dims[1].factor / groups}
                           : output->dims[i - 1];
        order[i] = i == 1 ? 2 : i == 2 ? 1 : i;
    }
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, x.rank + 1, dims));
    fth_view_permute(&x, order);
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, output->rank, output->dims));
    lowering_set(l, 0, &x);
out:
    return status;
}

/* (N, C * r * r, H, W) to (N, C, H * r, W * r) */
static fth_status pixel_shuffle(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    const int64_t r = lowering_int(l, "upscale_factor", 1);
    fth_view x;

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_REQUIRE(x.rank == 4 && r > 0 && output->rank == 4, FTH_UNSUPPORTED, "its input is no batch of images");
    const fth_exported_dim factor = {.factor = r};
    const fth_exported_dim dims[] = {output->dims[0], output->dims[1],     factor,
                                     factor,          fth_view_dim(&x, 2), fth_view_dim(&x, 3)};
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, 6, dims));
    fth_view_permute(&x, (const int[]){0, 1, 4, 2, 5, 3});
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, output->rank, output->dims));
    lowering_set(l, 0, &x);
out:
    return status;
}

/* (N, C, H * r, W * r) to (N, C * r * r, H, W) */
static fth_status pixel_unshuffle(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    const fth_exported_dim factor = {.factor = lowering_int(l, "downscale_factor", 1)};
    fth_view x;

    FTH_TRY(lowering_tensor(l, "self", &x));
    FTH_REQUIRE(x.rank == 4 && factor.factor > 0 && output->rank == 4, FTH_UNSUPPORTED,
                "its input is no batch of images");
    const fth_exported_dim dims[] = {output->dims[0], fth_view_dim(&x, 1), output->dims[2],
                                     factor,          output->dims[3],     factor};
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, 6, dims));
    fth_view_permute(&x, (const int[]){0, 1, 3, 5, 2, 4});
    FTH_TRY(fth_view_reshape(lowering_graph(l), &x, output->rank, output->dims));
    lowering_set(l, 0, &x);
out:
    return status;
}

const lowering_row lowering_views[] = {
    {"view", reshape},
    {"reshape", reshape},
    {"_unsafe_view", reshape},
    {"flatten", reshape},
    {"unflatten", reshape},
    {"squeeze", reshape},
    {"unsqueeze", reshape},
    {"view_as", reshape},
    {"reshape_as", reshape},
    {"expand", expand},
    {"expand_as", expand},
    {"broadcast_to", expand},
    {"permute", permute},
    {"transpose", transpose},
    {"swapdims", transpose},
    {"swapaxes", swap_axes},
    {"t", matrix_transpose},
    {"numpy_T", matrix_transpose},
    {"mT", matrix_transpose},
    {"channel_shuffle", channel_shuffle},
    {"pixel_shuffle", pixel_shuffle},
    {"pixel_unshuffle", pixel_unshuffle},
    {"contiguous", same},
    {"alias", same},
    {"detach", detach},
    {"movedim", move},
    {"to", convert},
    {"type_as", convert},
    {"_to_copy", convert},
    {"float", convert},
    {NULL, NULL},
};

/* copy_: another tensor's numbers, in the size of this one. */
static fth_status copy(lowering *l)
{
    fth_status status = FTH_OK;
    const fth_exported_value *output = lowering_output(l, 0);
    fth_view x;
    FTH_TRY(lowering_tensor(l, "src", &x));
    FTH_REQUIRE(lowering_is_truth(l, "src") || lowering_is_integer(l, "self") == lowering_is_integer(l, "src"),
                FTH_UNSUPPORTED, "numbers that are computed become integers, or integers numbers");
    FTH_TRY(fth_view_expand(&x, output->rank, output->dims));
    lowering_set(l, 0, &x);
out:
    return status;
}

/* Copies in PyTorch: changing the copy in place leaves the original alone. */
const lowering_row lowering_copies[] = {
    {"clone", same}, {"lift_fresh_copy", same}, {"lift_fresh", same}, {"copy", copy}, {NULL, NULL},
};
