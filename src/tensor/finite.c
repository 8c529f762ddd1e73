/* Finding numbers that are not finite. The scan is one pass of integer arithmetic without branches,
 * a block at a time; only a tensor that fails it is looked at number by number. */
#include <math.h>

#include "base/vectorized.h"
#include "tensor/tensor.h"

enum { BLOCK = 1 << 14 }; /* a multiple of all vector widths; small enough to stop early */

typedef uint16_t __attribute__((aligned(1), may_alias)) unaligned_u16;
typedef uint32_t __attribute__((aligned(1), may_alias)) unaligned_u32;
typedef double __attribute__((aligned(1), may_alias)) unaligned_double;

/* Adding 1 to an exponent of all ones carries into the sign's place; whole vectors of them are
 * or-ed together. */
FTH_VECTORIZED static bool scan_f32(const unaligned_u32 *bits, size_t count)
{
    uint32_t seen = 0;
    for (size_t i = 0; i < count; i++)
        seen |= (bits[i] & 0x7f800000u) + 0x00800000u;
    return !(seen & 0x80000000u);
}

FTH_VECTORIZED static bool scan_16(const unaligned_u16 *bits, size_t count, uint16_t exponent, uint16_t one)
{
    uint16_t seen = 0;
    for (size_t i = 0; i < count; i++)
        seen |= (uint16_t)((bits[i] & exponent) + one);
    return !(seen & 0x8000u);
}

static bool scan_f64(const unaligned_double *numbers, size_t count)
{
    int strange = 0;
    for (size_t i = 0; i < count; i++)
        strange |= !isfinite((float)numbers[i]);
    return !strange;
}

bool fth_numbers_are_finite(const void *numbers, fth_dtype dtype, size_t count)
{
    const size_t item = fth_dtype_size_bytes(dtype);
    for (size_t at = 0; at < count; at += BLOCK) {
        const void *here = (const char *)numbers + at * item;
        const size_t length = count - at < BLOCK ? count - at : BLOCK;
        bool finite = true;
        switch (dtype) {
        case FTH_F32: finite = scan_f32(here, length); break;
        case FTH_F16: finite = scan_16(here, length, 0x7c00, 0x0400); break;
        case FTH_BF16: finite = scan_16(here, length, 0x7f80, 0x0080); break;
        case FTH_F64: finite = scan_f64(here, length); break;
        default: return true;
        }
        if (!finite)
            return false;
    }
    return true;
}

/* Without their sign, the bits of floating-point numbers are in the order of the numbers, and what
 * is not finite comes last. */
FTH_VECTORIZED static uint32_t largest_32(const unaligned_u32 *bits, size_t count)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = bits[i] & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

FTH_VECTORIZED static uint16_t largest_16(const unaligned_u16 *bits, size_t count)
{
    uint16_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint16_t magnitude = bits[i] & 0x7fffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

float fth_numbers_largest(const void *numbers, fth_dtype dtype, size_t count)
{
    uint32_t wide = 0;
    uint16_t narrow = 0;
    float largest = 0;
    if (dtype == FTH_F32)
        wide = largest_32(numbers, count);
    else
        narrow = largest_16(numbers, count);
    fth_tensor_view one = {.dtype = dtype, .shape = FTH_SHAPE(1), .data = dtype == FTH_F32 ? (void *)&wide : &narrow};
    FTH_IGNORE(fth_tensor_view_to_f32(&one, &largest, 1), "floats convert to f32");
    return isfinite(largest) ? largest : INFINITY;
}

/* "(3, 0, 1, 1)" */
static void format_place(const fth_shape *shape, int64_t index, char *text, size_t size)
{
    fth_shape place = *shape;
    for (int i = shape->rank - 1; i >= 0; i--) {
        place.dims[i] = index % shape->dims[i];
        index /= shape->dims[i];
    }
    fth_shape_format(&place, text, size);
}

static float number_at(const fth_tensor_view *view, int64_t index)
{
    float number = 0;
    fth_tensor_view one = *view;
    one.shape = FTH_SHAPE(1);
    one.data = (const char *)view->data + (size_t)index * fth_dtype_size_bytes(view->dtype);
    return fth_tensor_view_to_f32(&one, &number, 1) == FTH_OK ? number : NAN;
}

fth_status fth_tensor_check_finite(const fth_tensor_view *view)
{
    const int64_t count = fth_shape_count(&view->shape);
    if (fth_numbers_are_finite(view->data, view->dtype, (size_t)count))
        return FTH_OK;
    int64_t bad = 0, first = -1;
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(number_at(view, i)))
            continue;
        first = first < 0 ? i : first;
        bad++;
    }
    if (bad == 0)
        return FTH_OK; /* another thread changed it meanwhile */
    char place[160];
    format_place(&view->shape, first, place, sizeof place);
    return fth_fail(FTH_DIVERGED, "%.128s is %s at %s; %lld of its %lld numbers %s not finite", view->name,
                    isnan(number_at(view, first)) ? "NaN" : "infinite", place, (long long)bad, (long long)count,
                    bad == 1 ? "is" : "are");
}

fth_status fth_tensors_check_finite(const fth_tensor_view *views, size_t count)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < count && status == FTH_OK; i++)
        status = fth_tensor_check_finite(&views[i]);
    return status;
}
