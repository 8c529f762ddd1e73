/* The table of convolution algorithms, and the choice among them. See convolution.h. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/convolution.h"

static const cpu_convolution_algorithm *const algorithms[] = {
#define ROW(name) &cpu_##name##_convolution,
    CPU_CONVOLUTION_ALGORITHMS(ROW)
#undef ROW
};

cpu_convolution_shapes cpu_convolution_shapes_of(const fth_plan *plan, const fth_node *node)
{
    if (node->op == &fth_op_convolution_grad_input)
        return (cpu_convolution_shapes){.x = fth_plan_type(plan, node->outputs[0]).shape,
                                        .weight = fth_plan_type(plan, node->inputs[1]).shape,
                                        .y = fth_plan_type(plan, node->inputs[0]).shape};
    if (node->op == &fth_op_convolution_grad_weights)
        return (cpu_convolution_shapes){.x = fth_plan_type(plan, node->inputs[0]).shape,
                                        .weight = fth_plan_type(plan, node->outputs[0]).shape,
                                        .y = fth_plan_type(plan, node->inputs[1]).shape,
                                        .bias = fth_plan_is_used(plan, node->outputs[1])};
    return (cpu_convolution_shapes){.x = fth_plan_type(plan, node->inputs[0]).shape,
                                    .weight = fth_plan_type(plan, node->inputs[1]).shape,
                                    .y = fth_plan_type(plan, node->outputs[0]).shape,
                                    .bias = node->input_count > 2};
}

fth_plan_value cpu_convolution_bias(const fth_plan *plan, const fth_node *node)
{
    return node->input_count > 2 ? fth_plan_value_of(plan, node->inputs[2]) : FTH_NO_PLAN_VALUE;
}

fth_status cpu_convolution_place_gradients(fth_plan *plan, const fth_node *node, fth_plan_value *dweight,
                                           fth_plan_value *dbias)
{
    fth_status status = FTH_OK;
    *dweight = fth_plan_value_of(plan, node->outputs[0]);
    *dbias = FTH_NO_PLAN_VALUE;
    FTH_TRY(cpu_fix_plain(plan, node->outputs[0]));
    if (fth_plan_is_used(plan, node->outputs[1])) {
        FTH_TRY(cpu_fix_plain(plan, node->outputs[1]));
        *dbias = fth_plan_value_of(plan, node->outputs[1]);
    }
out:
    return status;
}

double cpu_convolution_gain(const fth_plan *plan)
{
    return cpu_compute_dtype(plan) == dnnl_bf16 ? cpu_device_of(plan)->bf16_gain : 1;
}

const cpu_convolution_algorithm *cpu_convolution_chosen(const fth_plan *plan, const fth_node *node, cpu_pass pass)
{
    const cpu_convolution_algorithm *forced = cpu_device_of(plan)->convolution;
    if (forced && forced->fits(plan, node, pass))
        return forced;
    size_t i = 0;
    while (i + 1 < FTH_COUNT_OF(algorithms) &&
           !(algorithms[i]->fits(plan, node, pass) && (!algorithms[i]->pays || algorithms[i]->pays(plan, node, pass))))
        i++;
    return algorithms[i];
}

fth_status cpu_convolution_forced(const cpu_convolution_algorithm **algorithm)
{
    char names[128] = "";
    const char *name = getenv("FARTHING_CONVOLUTION");
    *algorithm = NULL;
    if (!name || *name == '\0')
        return FTH_OK;
    for (size_t i = 0; i < FTH_COUNT_OF(algorithms); i++) {
        if (strcmp(name, algorithms[i]->name) == 0) {
            *algorithm = algorithms[i];
            return FTH_OK;
        }
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", algorithms[i]->name);
    }
    return fth_fail(FTH_INVALID, "unknown algorithm '%s' in FARTHING_CONVOLUTION; known are %s", name, names);
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    return cpu_convolution_chosen(plan, node, CPU_FORWARD)->forward(plan, node);
}

static fth_status prepare_grad_input(fth_plan *plan, const fth_node *node)
{
    return cpu_convolution_chosen(plan, node, CPU_GRAD_INPUT)->grad_input(plan, node);
}

static fth_status prepare_grad_weights(fth_plan *plan, const fth_node *node)
{
    return cpu_convolution_chosen(plan, node, CPU_GRAD_WEIGHTS)->grad_weights(plan, node);
}

const fth_kernel cpu_convolution = {&fth_op_convolution, prepare_forward};
const fth_kernel cpu_convolution_grad_input = {&fth_op_convolution_grad_input, prepare_grad_input};
const fth_kernel cpu_convolution_grad_weights = {&fth_op_convolution_grad_weights, prepare_grad_weights};
