/* Steps that reorder the weights of 1×1 convolutions. See block_weights.h. */
#include "backend/cpu/block_weights.h"

typedef void (*reorder)(int64_t outputs, int64_t channels, const void *from, void *to);

static bool has_tag(const cpu_format *format, dnnl_data_type_t dtype, dnnl_format_tag_t tag)
{
    cpu_format probe;
    return format->data_type == dtype && cpu_format_make(4, format->dims, dtype, tag, &probe) &&
           cpu_format_equal(&probe, format);
}

static reorder find_reorder(const fth_plan *plan, const cpu_format *from, const cpu_format *to)
{
    const block_weights_kernels *kernels = cpu_level_of(plan)->block_weights;
    if (cpu_level_of(plan)->lanes != 16 || from->ndims != 4 || from->dims[2] * from->dims[3] != 1 ||
        from->dims[0] % 16 != 0 || from->dims[1] % 16 != 0)
        return NULL;
    if (has_tag(from, dnnl_f32, dnnl_oihw)) {
        if (has_tag(to, dnnl_bf16, dnnl_OIhw8i16o2i))
            return kernels->to_forward;
        return has_tag(to, dnnl_bf16, dnnl_IOhw8o16i2o) ? kernels->to_backward : NULL;
    }
    return has_tag(from, dnnl_f32, dnnl_OIhw16i16o) && has_tag(to, dnnl_f32, dnnl_oihw) ? kernels->from_gradient : NULL;
}

bool cpu_can_block_weights(const fth_plan *plan, const cpu_format *from, const cpu_format *to)
{
    return find_reorder(plan, from, to);
}

/* Sizes: outputs, channels. Values: from, to. */
static fth_status run_reorder(const cpu_call *call, const fth_run *run)
{
    (void)run;
    reorder function;
    CPU_GET_BLOCK(call, &function);
    function(call->sizes[0], call->sizes[1], call->data[0], call->data[1]);
    return FTH_OK;
}

fth_status cpu_add_block_weights(fth_plan *plan, fth_plan_value from, fth_plan_value to)
{
    const cpu_format *layout = cpu_layout(plan, from);
    const reorder function = find_reorder(plan, layout, cpu_layout(plan, to));
    cpu_call call = {.run = run_reorder,
                     .values = {from, to},
                     .value_count = 2,
                     .write_count = 1,
                     .kernels = cpu_level_of(plan)->block_weights,
                     .sizes = {layout->dims[0], layout->dims[1]}};
    CPU_SET_BLOCK(&call, &function);
    return cpu_add_call(plan, "reorder", &call);
}
