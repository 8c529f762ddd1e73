/* Layouts: plain or channels-last, and the steps that change one into the other. */
#include "backend/portable/portable.h"

static bool orders_differ(const fth_shape *shape)
{
    return shape->rank == 4 && shape->dims[1] > 1 && shape->dims[2] * shape->dims[3] > 1;
}

const portable_layout *portable_get_layout(const fth_plan *plan, fth_plan_value value)
{
    return fth_plan_layout(plan, value);
}

static fth_status describe(fth_plan *plan, fth_plan_value value, fth_type type, bool channels_last)
{
    const portable_layout layout = {type, channels_last && orders_differ(&type.shape)};
    const size_t size_bytes = (size_t)fth_shape_count(&type.shape) * fth_dtype_size_bytes(type.dtype);
    return fth_plan_set_layout(plan, value, &layout, sizeof layout, size_bytes);
}

fth_status portable_describe_plain(fth_plan *plan, fth_value value)
{
    return describe(plan, fth_plan_value_of(plan, value), fth_plan_type(plan, value), false);
}

/* ---- changing them ---- */

typedef struct reorder_call {
    portable_call call;
    int64_t images, rows, columns; /* each image is transposed, (rows, columns) to (columns, rows) */
} reorder_call;

enum { TILE = 16 };

/* Tile by tile, so that a line of the cache is used up before it goes. Floats and 32-bit integers
 * alike. */
static void transpose(const float *from, int64_t rows, int64_t columns, float *to)
{
    for (int64_t r = 0; r < rows; r += TILE)
        for (int64_t c = 0; c < columns; c += TILE) {
            const int64_t r_end = r + TILE < rows ? r + TILE : rows, c_end = c + TILE < columns ? c + TILE : columns;
            for (int64_t j = c; j < c_end; j++)
                for (int64_t i = r; i < r_end; i++)
                    to[j * rows + i] = from[i * columns + j];
        }
}

static fth_status run_reorder(const portable_call *call, const fth_run *run)
{
    const reorder_call *c = (const reorder_call *)call;
    const int64_t size = c->rows * c->columns;
    (void)run;
    for (int64_t n = 0; n < c->images; n++)
        transpose(call->data[0] + n * size, c->rows, c->columns, call->data[1] + n * size);
    return FTH_OK;
}

static fth_status add_reorder(fth_plan *plan, fth_plan_value from, fth_plan_value to)
{
    const portable_layout *layout = portable_get_layout(plan, from);
    const fth_shape *shape = &layout->type.shape;
    const int64_t channels = shape->dims[1], pixels = shape->dims[2] * shape->dims[3];
    const reorder_call c = {
        .call = {.run = run_reorder, .values = {from, to}, .value_count = 2, .write_count = 1},
        .images = shape->dims[0],
        .rows = layout->channels_last ? pixels : channels,
        .columns = layout->channels_last ? channels : pixels,
    };
    return portable_add_named_call(plan, layout->channels_last ? "to plain" : "to channels-last", &c.call, sizeof c);
}

fth_status portable_read(fth_plan *plan, fth_value value, bool channels_last, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    const fth_plan_value main_value = fth_plan_value_of(plan, value);
    const fth_type type = fth_plan_type(plan, value);
    const bool wanted = channels_last && orders_differ(&type.shape);
    fth_plan_value found = main_value;

    if (portable_get_layout(plan, main_value)->channels_last != wanted)
        found = fth_plan_next_copy(plan, main_value, FTH_NO_PLAN_VALUE); /* there is only one other order */
    if (!fth_plan_value_exists(found)) {
        FTH_TRY(fth_plan_add_value(plan, &found));
        FTH_TRY(describe(plan, found, type, wanted));
        FTH_TRY(add_reorder(plan, main_value, found));
        fth_plan_note_copy(plan, found, main_value);
    }
    *as = found;
out:
    return status;
}

fth_status portable_begin_write(fth_plan *plan, fth_value value, bool channels_last, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    const fth_type type = fth_plan_type(plan, value);

    *as = fth_plan_value_of(plan, value);
    const portable_layout *fixed = portable_get_layout(plan, *as);
    if (!fixed)
        return describe(plan, *as, type, channels_last);
    if (fixed->channels_last != (channels_last && orders_differ(&type.shape))) {
        FTH_TRY(fth_plan_add_value(plan, as));
        FTH_TRY(describe(plan, *as, type, channels_last));
    }
out:
    return status;
}

fth_status portable_end_write(fth_plan *plan, fth_value value, fth_plan_value as)
{
    const fth_plan_value main_value = fth_plan_value_of(plan, value);
    return fth_plan_value_equal(as, main_value) ? FTH_OK : add_reorder(plan, as, main_value);
}

fth_status portable_add_scratch(fth_plan *plan, size_t floats, fth_plan_value *scratch)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_plan_add_value(plan, scratch));
    FTH_TRY(
        describe(plan, *scratch, (fth_type){.dtype = FTH_F32, .shape = {.rank = 1, .dims = {(int64_t)floats}}}, false));
out:
    return status;
}
