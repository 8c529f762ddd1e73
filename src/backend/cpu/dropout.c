/* Dropout: the mask is computed from the element's number, never stored; one draw serves two elements. */
#include "backend/cpu/cpu_internal.h"

enum { CHUNK = 4096 };

/* `count` elements, CHUNK at most, of which the first has the number `number`. Two simple loops, which the compiler
 * vectorizes. */
CPU_VECTORIZED static void drop(const float *x, float *y, int64_t count, int64_t number, fth_random_key key,
                                uint32_t threshold, float scale)
{
    union {
        uint64_t pairs[CHUNK / 2 + 1];
        uint32_t elements[CHUNK + 2]; /* little-endian: the low half is the even element */
    } bits;
    const uint32_t *elements = bits.elements + number % 2;
    for (int64_t i = 0; i < count / 2 + 1; i++)
        bits.pairs[i] = fth_random_bits(key, (uint64_t)(number / 2 + i));
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] * (elements[i] >= threshold ? scale : 0);
}

static fth_status run_dropout(const cpu_call *call, const fth_run *run)
{
    const float *x = call->data[0];
    float *y = call->data[1];
    const int64_t count = call->sizes[0];
    const int64_t first = (int64_t)fth_run_first_row(run, call->sizes[2]) * call->sizes[1]; /* in the whole batch */
    const float probability = call->numbers[0];
    const fth_random_key key = fth_dropout_key(run->seed, run->step, (uint32_t)call->id);
    const uint32_t threshold = fth_dropout_threshold(probability);
    const float scale = 1 / (1 - probability);
#pragma omp parallel for if (count > 4 * CHUNK)
    for (int64_t begin = 0; begin < count; begin += CHUNK)
        drop(x + begin, y + begin, begin + CHUNK < count ? CHUNK : count - begin, first + begin, key, threshold, scale);
    return FTH_OK;
}

static fth_status prepare_dropout(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_dropout_attributes *a = node->attributes;
    fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    fth_plan_value x, y;
    if (fth_plan_get_options(plan).mode == FTH_PLAN_EVALUATE || a->probability == 0) {
        const cpu_format layout = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
        if (!cpu_layout(plan, fth_plan_value_of(plan, node->outputs[0]))) {
            FTH_TRY(cpu_set_layout(plan, fth_plan_value_of(plan, node->outputs[0]), &layout));
            fth_plan_alias(plan, fth_plan_value_of(plan, node->outputs[0]), fth_plan_value_of(plan, node->inputs[0]));
        } else {
            FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]),
                                  fth_plan_value_of(plan, node->inputs[0])));
        }
        goto out;
    }
    const cpu_format plain = cpu_plain(&shape, dnnl_f32);
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &x));
    if (fth_plan_value_equal(x, fth_plan_value_of(plan, node->inputs[0])))
        cpu_write_in_place(plan, node->inputs[0], node->outputs[0]);
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &plain, &y));
    const cpu_call call = {.run = run_dropout,
                           .values = {x, y},
                           .value_count = 2,
                           .write_count = 1,
                           .sizes = {fth_shape_count(&shape), fth_shape_count(&shape) / shape.dims[0],
                                     fth_plan_has_token_rows(plan, node->outputs[0])},
                           .numbers = {a->probability},
                           .id = a->id};
    FTH_TRY(cpu_add_call(plan, "dropout", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

const fth_kernel cpu_dropout = {&fth_op_dropout, prepare_dropout};
