/* See bf16_step.h. */
#include "backend/cpu/bf16_step.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(bf16_product) <= sizeof((cpu_call){0}.block), "it travels in its call");

static bf16_product unpack(const cpu_call *call)
{
    bf16_product c;
    memcpy(&c, call->block, sizeof c);
    return c;
}

/* Values: x, weight, bias or none, scratch, y. */
static fth_status run_forward(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const bf16_kernels *kernels = call->kernels;
    const bf16_product c = unpack(call);
    kernels->forward(&c, call->data[0], call->data[1], call->data[2], call->threads, call->data[3], call->data[4]);
    return FTH_OK;
}

/* Values: dy, weight, scratch, dx. */
static fth_status run_grad_input(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const bf16_kernels *kernels = call->kernels;
    const bf16_product c = unpack(call);
    kernels->grad_input(&c, call->data[0], call->data[1], call->threads, call->data[2], call->data[3]);
    return FTH_OK;
}

/* Values: x, dy, scratch, dweight, dbias or none. */
static fth_status run_grad_weights(const cpu_call *call, const fth_run *run)
{
    (void)run;
    const bf16_kernels *kernels = call->kernels;
    const bf16_product c = unpack(call);
    kernels->grad_weights(&c, call->data[0], call->data[1], call->threads, call->data[2], call->data[3], call->data[4]);
    return FTH_OK;
}

/* Completes the call and adds it: scratch is the first of the values it writes. */
static fth_status add_call(fth_plan *plan, const char *name, const bf16_product *c, cpu_call *call,
                           size_t (*scratch_bytes)(const bf16_product *c, int threads))
{
    fth_status status = FTH_OK;
    char full_name[64];
    memcpy(call->block, c, sizeof *c);
    call->kernels = cpu_device_of(plan)->products;
    FTH_TRY(cpu_add_scratch(plan, scratch_bytes(c, fth_plan_threads(plan)),
                            &call->values[call->value_count - call->write_count]));
    snprintf(full_name, sizeof full_name, "%s bf16:amx", name);
    FTH_TRY(cpu_add_call(plan, full_name, call));
out:
    return status;
}

fth_status cpu_add_bf16_forward(fth_plan *plan, const char *name, const bf16_product *c, fth_plan_value x,
                                fth_plan_value weight, fth_plan_value bias_or_none, fth_plan_value y)
{
    cpu_call call = {.run = run_forward,
                     .values = {x, weight, bias_or_none, FTH_NO_PLAN_VALUE, y},
                     .value_count = 5,
                     .write_count = 2};
    return add_call(plan, name, c, &call, cpu_device_of(plan)->products->forward_bytes);
}

fth_status cpu_add_bf16_grad_input(fth_plan *plan, const char *name, const bf16_product *c, fth_plan_value dy,
                                   fth_plan_value weight, fth_plan_value dx)
{
    cpu_call call = {
        .run = run_grad_input, .values = {dy, weight, FTH_NO_PLAN_VALUE, dx}, .value_count = 4, .write_count = 2};
    return add_call(plan, name, c, &call, cpu_device_of(plan)->products->grad_input_bytes);
}

fth_status cpu_add_bf16_grad_weights(fth_plan *plan, const char *name, const bf16_product *c, fth_plan_value x,
                                     fth_plan_value dy, fth_plan_value dweight, fth_plan_value dbias_or_none)
{
    cpu_call call = {.run = run_grad_weights,
                     .values = {x, dy, FTH_NO_PLAN_VALUE, dweight, dbias_or_none},
                     .value_count = 5,
                     .write_count = 3};
    return add_call(plan, name, c, &call, cpu_device_of(plan)->products->grad_weights_bytes);
}
