/* Concatenation along channels and its inverse, as copies between a tensor and its parts; and
 * padding with zeros. */
#include <string.h>

#include "backend/cpu/cpu_internal.h"

static fth_status prepare_concat(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    dnnl_engine_t engine = cpu_device_of(plan)->engine;
    dnnl_primitive_desc_t descriptor = NULL;
    cpu_format parts[CPU_MAX_ARGUMENTS];
    cpu_argument arguments[CPU_MAX_ARGUMENTS];
    const int count = node->input_count;
    FTH_REQUIRE(count + 2 <= CPU_MAX_ARGUMENTS, FTH_UNSUPPORTED,
                "concat has %d inputs; the CPU back end takes at most %d", count, CPU_MAX_ARGUMENTS - 2);
    const cpu_format first = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0]));
    for (int i = 0; i < count; i++) {
        fth_shape shape = fth_plan_type(plan, node->inputs[i]).shape;
        parts[i] = cpu_like(&first, &shape, first.data_type);
        fth_plan_value part;
        FTH_TRY(cpu_read_as(plan, fth_plan_value_of(plan, node->inputs[i]), &parts[i], &part));
        arguments[i] = (cpu_argument){DNNL_ARG_MULTIPLE_SRC + i, part, false, NULL};
    }
    fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    cpu_format whole = cpu_like(&first, &shape, first.data_type);
    fth_plan_value y;
    FTH_TRY(cpu_describe_concat(engine, parts, count, 1, &whole, &descriptor));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &whole, &y));
    arguments[count] = (cpu_argument){DNNL_ARG_DST, y, true, NULL};
    FTH_TRY(cpu_add_primitive(plan, "concat", &descriptor, arguments, count + 1));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

/* A reorder from a view of the input; blocked layouts only allow views of whole blocks. */
static fth_status prepare_slice(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_slice_attributes *a = node->attributes;
    dnnl_engine_t engine = cpu_device_of(plan)->engine;
    dnnl_primitive_desc_t descriptor = NULL;
    fth_shape shape = fth_plan_type(plan, node->outputs[0]).shape;
    cpu_format whole = *cpu_layout(plan, fth_plan_value_of(plan, node->inputs[0])), window;
    dnnl_dims_t offsets = {0, a->begin}, dims = {0};
    for (int i = 0; i < shape.rank; i++)
        dims[i] = shape.dims[i];
    fth_plan_value source = fth_plan_value_of(plan, node->inputs[0]), y;
    if (!cpu_format_window(&whole, dims, offsets, &window)) {
        FTH_TRY(cpu_read_plain(plan, node->inputs[0], whole.data_type, &source));
        whole = *cpu_layout(plan, source);
        FTH_REQUIRE(cpu_format_window(&whole, dims, offsets, &window), FTH_INVALID,
                    "oneDNN cannot describe this slice of channels");
    }
    cpu_format layout = cpu_like(&whole, &shape, whole.data_type);
    FTH_TRY(cpu_describe_reorder(engine, &window, &layout, &descriptor));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &layout, &y));
    const cpu_argument arguments[] = {{DNNL_ARG_FROM, source, false, &window}, {DNNL_ARG_TO, y, true, NULL}};
    FTH_TRY(cpu_add_primitive(plan, "slice", &descriptor, arguments, 2));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    cpu_free_descriptor(descriptor);
    return status;
}

/* Rows of planes, in PyTorch's order: (N, C, plane) into (N, before + C + after, plane). */
static fth_status run_pad(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const float *x = call->data[0];
    float *y = call->data[1];
    const int64_t batch = call->sizes[0], before = call->sizes[1], row = call->sizes[2], after = call->sizes[3];
#pragma omp parallel for if (batch * row > 1 << 16)
    for (int64_t n = 0; n < batch; n++) {
        float *to = y + n * (before + row + after);
        memset(to, 0, (size_t)before * sizeof *to);
        memcpy(to + before, x + n * row, (size_t)row * sizeof *to);
        memset(to + before + row, 0, (size_t)after * sizeof *to);
    }
    return FTH_OK;
}

/* Blocked layouts would need zeros in whole blocks. Networks pad few and small tensors, so plain
 * layouts will do. */
static fth_status prepare_pad(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_pad_attributes *a = node->attributes;
    fth_shape from = fth_plan_type(plan, node->inputs[0]).shape, to = fth_plan_type(plan, node->outputs[0]).shape;
    const cpu_format plain = cpu_plain(&to, dnnl_f32);
    const int64_t plane = fth_shape_count(&from) / (from.dims[0] * from.dims[1]);
    fth_plan_value x, y;
    FTH_TRY(cpu_read_plain(plan, node->inputs[0], dnnl_f32, &x));
    FTH_TRY(cpu_begin_write(plan, fth_plan_value_of(plan, node->outputs[0]), &plain, &y));
    const cpu_call call = {.run = run_pad,
                           .values = {x, y},
                           .value_count = 2,
                           .write_count = 1,
                           .sizes = {from.dims[0], a->before * plane, from.dims[1] * plane, a->after * plane}};
    FTH_TRY(cpu_add_call(plan, "pad", &call));
    FTH_TRY(cpu_end_write(plan, fth_plan_value_of(plan, node->outputs[0]), y));
out:
    return status;
}

const fth_kernel cpu_concat = {&fth_op_concat, prepare_concat};
const fth_kernel cpu_slice = {&fth_op_slice, prepare_slice};
const fth_kernel cpu_pad = {&fth_op_pad, prepare_pad};
