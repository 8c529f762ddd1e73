/* Maximum pooling, channels last. */
#include "backend/portable/portable.h"

typedef struct pool_call {
    portable_call call;
    int64_t batch;
    portable_pool pool;
} pool_call;

static fth_status run_forward(const portable_call *call, const fth_run *run)
{
    const pool_call *c = (const pool_call *)call;
    const int64_t in = c->pool.height * c->pool.width * c->pool.channels;
    const int64_t out = c->pool.out_height * c->pool.out_width * c->pool.channels;
    (void)run;
    for (int64_t n = 0; n < c->batch; n++)
        call->level->max_pool(&c->pool, call->data[0] + n * in, call->data[1] + n * out,
                              (int32_t *)call->data[2] + n * out);
    return FTH_OK;
}

static fth_status run_gradient(const portable_call *call, const fth_run *run)
{
    const pool_call *c = (const pool_call *)call;
    const int64_t in = c->pool.height * c->pool.width * c->pool.channels;
    const int64_t out = c->pool.out_height * c->pool.out_width * c->pool.channels;
    (void)run;
    for (int64_t n = 0; n < c->batch; n++)
        call->level->max_pool_gradient(&c->pool, call->data[0] + n * out, (const int32_t *)call->data[1] + n * out,
                                       call->data[2] + n * in);
    return FTH_OK;
}

static fth_status prepare(fth_plan *plan, const fth_node *node, pool_call *c, const fth_shape *in, const fth_shape *out)
{
    fth_status status = FTH_OK;
    const fth_pool_attributes *a = node->attributes;
    int count = 0;

    c->batch = in->dims[0];
    c->pool = (portable_pool){in->dims[2],
                              in->dims[3],
                              in->dims[1],
                              out->dims[2],
                              out->dims[3],
                              {a->kernel[0], a->kernel[1]},
                              {a->stride[0], a->stride[1]},
                              {a->padding[0], a->padding[1]}};
    for (int i = 0; i < node->input_count; i++)
        FTH_TRY(portable_read(plan, node->inputs[i], true, &c->call.values[count++]));
    for (int i = 0; i < node->output_count; i++)
        FTH_TRY(portable_begin_write(plan, node->outputs[i], true, &c->call.values[count++]));
    c->call.value_count = count;
    c->call.write_count = node->output_count;
    FTH_TRY(portable_add_call(plan, node, &c->call, sizeof *c));
    for (int i = 0; i < node->output_count; i++)
        FTH_TRY(portable_end_write(plan, node->outputs[i], c->call.values[node->input_count + i]));
out:
    return status;
}

static fth_status prepare_forward(fth_plan *plan, const fth_node *node)
{
    const fth_shape x = fth_plan_type(plan, node->inputs[0]).shape, y = fth_plan_type(plan, node->outputs[0]).shape;
    pool_call c = {.call = {.run = run_forward}};
    return prepare(plan, node, &c, &x, &y);
}

static fth_status prepare_gradient(fth_plan *plan, const fth_node *node)
{
    const fth_shape dx = fth_plan_type(plan, node->outputs[0]).shape, dy = fth_plan_type(plan, node->inputs[0]).shape;
    pool_call c = {.call = {.run = run_gradient}};
    return prepare(plan, node, &c, &dx, &dy);
}

const fth_kernel portable_max_pool = {&fth_op_max_pool, prepare_forward};
const fth_kernel portable_max_pool_grad = {&fth_op_max_pool_grad, prepare_gradient};
