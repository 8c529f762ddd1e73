/* Activations and sums, element by element, in whatever layout the input has. They work in place where they can. */
#include "backend/cpu/cpu_internal.h"
#include "backend/cpu/winograd_convolution.h"

/* Adds y = f(x). `x` is read in its own layout, which y takes over. */
static fth_status prepare_activation(fth_plan *plan, const fth_node *node, dnnl_alg_kind_t algorithm, const char *name)
{
    fth_status status = FTH_OK;
    dnnl_primitive_desc_t descriptor = NULL;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_eltwise_desc_t description;
    const dnnl_memory_desc_t layout = *cpu_layout(plan, node->inputs[0]);
    fth_plan_value y;
    FTH_TRY(cpu_make_attributes(&attributes));
    CPU_TRY(dnnl_eltwise_forward_desc_init(&description, dnnl_forward_training, algorithm, &layout, 0, 0));
    CPU_TRY(dnnl_primitive_desc_create(&descriptor, &description, attributes, cpu_device_of(plan)->engine, NULL));
    cpu_write_in_place(plan, node->inputs[0], node->outputs[0]);
    FTH_TRY(cpu_begin_write(plan, node->outputs[0], &layout, &y));
    const cpu_argument arguments[] = {{DNNL_ARG_SRC, node->inputs[0], false, NULL}, {DNNL_ARG_DST, y, true, NULL}};
    FTH_TRY(cpu_add_primitive(plan, name, &descriptor, arguments, 2));
    FTH_TRY(cpu_end_write(plan, node->outputs[0], y));
out:
    cpu_free_descriptor(descriptor);
    cpu_free_attributes(attributes);
    return status;
}

/* Adds dx = dy * f'(.), from the value by which f' is known: y for ReLU, x for GELU. All have one layout. */
static fth_status add_activation_gradient(fth_plan *plan, dnnl_alg_kind_t algorithm, int data_argument,
                                          fth_plan_value data, fth_plan_value dy, fth_plan_value dx, const char *name)
{
    fth_status status = FTH_OK;
    dnnl_engine_t engine = cpu_device_of(plan)->engine;
    dnnl_primitive_desc_t descriptor = NULL, forward = NULL;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_eltwise_desc_t description;
    const dnnl_memory_desc_t *layout = cpu_layout(plan, data);
    FTH_TRY(cpu_make_attributes(&attributes));
    CPU_TRY(dnnl_eltwise_forward_desc_init(&description, dnnl_forward_training, algorithm, layout, 0, 0));
    CPU_TRY(dnnl_primitive_desc_create(&forward, &description, attributes, engine, NULL));
    CPU_TRY(dnnl_eltwise_backward_desc_init(&description, algorithm, layout, layout, 0, 0));
    CPU_TRY(dnnl_primitive_desc_create(&descriptor, &description, attributes, engine, forward));
    const cpu_argument arguments[] = {
        {data_argument, data, false, NULL}, {DNNL_ARG_DIFF_DST, dy, false, NULL}, {DNNL_ARG_DIFF_SRC, dx, true, NULL}};
    FTH_TRY(cpu_add_primitive(plan, name, &descriptor, arguments, 3));
out:
    cpu_free_descriptor(forward);
    cpu_free_descriptor(descriptor);
    cpu_free_attributes(attributes);
    return status;
}

static fth_status prepare_activation_grad(fth_plan *plan, const fth_node *node, dnnl_alg_kind_t algorithm,
                                          int data_argument, const char *name)
{
    fth_status status = FTH_OK;
    const dnnl_memory_desc_t layout = *cpu_layout(plan, node->inputs[0]);
    fth_plan_value dy, dx;
    FTH_TRY(cpu_read_as(plan, node->inputs[1], &layout, &dy));
    if (dy == node->inputs[1])
        cpu_write_in_place(plan, node->inputs[1], node->outputs[0]);
    FTH_TRY(cpu_begin_write(plan, node->outputs[0], &layout, &dx));
    FTH_TRY(add_activation_gradient(plan, algorithm, data_argument, node->inputs[0], dy, dx, name));
    FTH_TRY(cpu_end_write(plan, node->outputs[0], dx));
out:
    return status;
}

fth_status cpu_add_relu_gradient(fth_plan *plan, fth_plan_value y, fth_plan_value dy, fth_plan_value dx)
{
    return add_activation_gradient(plan, dnnl_eltwise_relu_use_dst_for_bwd, DNNL_ARG_DST, y, dy, dx, "relu_grad");
}

static fth_status prepare_relu(fth_plan *plan, const fth_node *node)
{
    return prepare_activation(plan, node, dnnl_eltwise_relu, "relu");
}

static fth_status prepare_relu_grad(fth_plan *plan, const fth_node *node)
{
    if (cpu_winograd_makes_relu_gradient(plan, node))
        return FTH_OK; /* the convolution before it writes its output */
    return prepare_activation_grad(plan, node, dnnl_eltwise_relu_use_dst_for_bwd, DNNL_ARG_DST, "relu_grad");
}

static fth_status prepare_gelu(fth_plan *plan, const fth_node *node)
{
    return prepare_activation(plan, node, dnnl_eltwise_gelu_erf, "gelu");
}

static fth_status prepare_gelu_grad(fth_plan *plan, const fth_node *node)
{
    return prepare_activation_grad(plan, node, dnnl_eltwise_gelu_erf, DNNL_ARG_SRC, "gelu_grad");
}

/* ---- sums: own loops over the whole buffers, channel padding included (oneDNN's binary primitive with a ReLU leaves
 * wrong numbers in place on padded channels) ---- */

enum { CHUNK = 16384 };

CPU_VECTORIZED static void add_f32(const float *a, const float *b, float *sum, size_t count, bool relu)
{
    if (relu) {
        for (size_t i = 0; i < count; i++) {
            float s = a[i] + b[i];
            sum[i] = s > 0 || s != s ? s : 0; /* a NaN stays */
        }
    } else {
        for (size_t i = 0; i < count; i++)
            sum[i] = a[i] + b[i];
    }
}

static inline float from_bf16(uint16_t half)
{
    union {
        uint32_t bits;
        float number;
    } value = {.bits = (uint32_t)half << 16};
    return value.number;
}

/* To the nearest, ties to even. */
static inline uint16_t to_bf16(float number)
{
    union {
        float number;
        uint32_t bits;
    } value = {.number = number};
    uint32_t rounded = (value.bits + 0x7fffu + ((value.bits >> 16) & 1)) >> 16;
    return (uint16_t)(number != number ? 0x7fc0u : rounded);
}

CPU_VECTORIZED static void add_bf16(const uint16_t *a, const uint16_t *b, uint16_t *sum, size_t count, bool relu)
{
    for (size_t i = 0; i < count; i++) {
        float s = from_bf16(a[i]) + from_bf16(b[i]);
        sum[i] = to_bf16(relu && s < 0 ? 0 : s);
    }
}

static fth_status run_sum(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const size_t count = (size_t)call->sizes[0];
    const bool bf16 = call->sizes[1], relu = call->sizes[2];
    const size_t item = bf16 ? sizeof(uint16_t) : sizeof(float);
#pragma omp parallel for schedule(static) if (count > 2 * CHUNK)
    for (size_t at = 0; at < count; at += CHUNK) {
        const size_t length = count - at < CHUNK ? count - at : CHUNK;
        const void *a = (const char *)call->data[0] + at * item, *b = (const char *)call->data[1] + at * item;
        void *sum = (char *)call->data[2] + at * item;
        if (bf16)
            add_bf16(a, b, sum, length, relu);
        else
            add_f32(a, b, sum, length, relu);
    }
    return FTH_OK;
}

fth_status cpu_add_sum(fth_plan *plan, fth_value a, fth_value b, bool relu, fth_value sum)
{
    fth_status status = FTH_OK;
    const dnnl_memory_desc_t layout = *cpu_layout(plan, a);
    fth_plan_value second, y;
    FTH_TRY(cpu_read_as(plan, b, &layout, &second));
    if (a != sum)
        cpu_write_in_place(plan, a, sum);
    FTH_TRY(cpu_begin_write(plan, sum, &layout, &y));
    const cpu_call call = {.run = run_sum,
                           .values = {a, second, y},
                           .value_count = 3,
                           .write_count = 1,
                           .sizes = {(int64_t)cpu_physical_count(&layout), layout.data_type == dnnl_bf16, relu}};
    FTH_TRY(cpu_add_call(plan, relu ? "add, relu" : "add", &call));
    FTH_TRY(cpu_end_write(plan, sum, y));
out:
    return status;
}

static fth_status prepare_add(fth_plan *plan, const fth_node *node)
{
    const fth_add_attributes *a = node->attributes;
    return cpu_add_sum(plan, node->inputs[0], node->inputs[1], a->relu, node->outputs[0]);
}

const fth_kernel cpu_relu = {&fth_op_relu, prepare_relu};
const fth_kernel cpu_relu_grad = {&fth_op_relu_grad, prepare_relu_grad};
const fth_kernel cpu_gelu = {&fth_op_gelu, prepare_gelu};
const fth_kernel cpu_gelu_grad = {&fth_op_gelu_grad, prepare_gelu_grad};
const fth_kernel cpu_add = {&fth_op_add, prepare_add};
