/* The reference back end's table, its device (host memory, one thread) and the step that every kernel shares. */
#include "backend/reference/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- device ---- */

static fth_status reference_open(const fth_device_options *options, fth_device **device)
{
    fth_status status = FTH_OK;
    fth_device *opened = NULL;

    (void)options; /* one thread, whatever was asked */
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    opened->backend = &fth_backend_plugin;
    opened->threads = 1;
    snprintf(opened->description, sizeof opened->description, "reference, plain C, 1 thread");
    *device = opened;
out:
    return status;
}

static void reference_close(fth_device *device)
{
    free(device);
}

static void reference_enter(fth_device *device, int threads)
{
    (void)device;
    (void)threads;
}

static fth_status reference_allocate(fth_device *device, size_t size_bytes, void **memory)
{
    (void)device;
    return fth_allocate_aligned(size_bytes, memory);
}

static void reference_release(fth_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static fth_status copy(fth_device *device, void *to, const void *from, size_t size_bytes)
{
    (void)device;
    if (size_bytes > 0)
        memmove(to, from, size_bytes);
    return FTH_OK;
}

static fth_status fill_zero(fth_device *device, void *memory, size_t size_bytes)
{
    (void)device;
    if (size_bytes > 0)
        memset(memory, 0, size_bytes);
    return FTH_OK;
}

/* Everything is done by the time a call returns. */
static fth_status synchronize(fth_device *device, fth_deadline deadline)
{
    (void)device;
    (void)deadline;
    return FTH_OK;
}

/* ---- snapshots: not needed where memory is the host's; here so that their use is tested on any machine ---- */

struct fth_device_snapshot {
    size_t size_bytes;
    unsigned char bytes[];
};

static fth_status snapshot_open(fth_device *device, size_t size_bytes, fth_device_snapshot **snapshot)
{
    (void)device;
    fth_status status = fth_allocate(1, sizeof **snapshot + size_bytes, snapshot);
    if (status == FTH_OK)
        (*snapshot)->size_bytes = size_bytes;
    return status;
}

static fth_status snapshot_take(fth_device_snapshot *snapshot, const fth_extent *extents, size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy(snapshot->bytes + extents[i].at, extents[i].from, extents[i].size_bytes);
    return FTH_OK;
}

static fth_status snapshot_fetch(fth_device_snapshot *snapshot, void *to_host)
{
    memcpy(to_host, snapshot->bytes, snapshot->size_bytes);
    return FTH_OK;
}

static void snapshot_close(fth_device_snapshot *snapshot)
{
    free(snapshot);
}

static const fth_backend_snapshots snapshots = {
    .open = snapshot_open,
    .take = snapshot_take,
    .fetch = snapshot_fetch,
    .close = snapshot_close,
};

static fth_status check_precision(fth_device *device, fth_precision precision)
{
    (void)device;
    if (precision != FTH_PRECISION_F32)
        return fth_fail(FTH_UNSUPPORTED, "the reference back end computes in f32 only; use --precision f32");
    return FTH_OK;
}

/* ---- layouts ---- */

/* Being plain, a layout is no more than the type. */
typedef fth_type reference_layout;

static fth_status describe(fth_plan *plan, fth_plan_value value, fth_type type)
{
    size_t size_bytes = (size_t)fth_shape_count(&type.shape) * fth_dtype_size_bytes(type.dtype);
    return fth_plan_set_layout(plan, value, &(reference_layout){type.dtype, type.shape}, sizeof(reference_layout),
                               size_bytes);
}

static fth_status describe_plain(fth_plan *plan, fth_value value)
{
    return describe(plan, fth_plan_value_of(plan, value), fth_plan_type(plan, value));
}

/* ---- the step ---- */

static const reference_kernel *find_kernel(const fth_op *op)
{
    const fth_kernel *const *kernel = fth_backend_plugin.kernels;
    while ((*kernel)->op != op) /* the plan came here through this very table */
        kernel++;
    return (const reference_kernel *)*kernel;
}

static reference_tensor tensor_of(const fth_plan *plan, fth_value value)
{
    fth_type type = fth_plan_type(plan, value);
    return (reference_tensor){.value = fth_plan_value_of(plan, value),
                              .dtype = type.dtype,
                              .shape = type.shape,
                              .count = fth_shape_count(&type.shape)};
}

static fth_status bind_step(void *state, const fth_plan *plan)
{
    reference_call *call = state;
    for (int i = 0; i < call->input_count; i++)
        call->inputs[i].data = fth_plan_data(plan, call->inputs[i].value);
    for (int i = 0; i < call->output_count; i++)
        call->outputs[i].data = fth_plan_data(plan, call->outputs[i].value);
    return FTH_OK;
}

static fth_status run_step(void *state, const fth_run *run)
{
    const reference_call *call = state;
    return call->run(call, run);
}

fth_status reference_prepare(fth_plan *plan, const fth_node *node)
{
    fth_status status = FTH_OK;
    reference_call *call = NULL;
    fth_step step = {.bind = bind_step, .run = run_step, .release = free};
    const reference_kernel *kernel = find_kernel(node->op);

    FTH_REQUIRE(node->input_count <= FTH_MAX_STEP_VALUES && node->output_count <= FTH_MAX_STEP_VALUES / 2,
                FTH_UNSUPPORTED, "%s with %d inputs: the reference back end takes at most %d", node->op->name,
                node->input_count, FTH_MAX_STEP_VALUES);
    FTH_TRY(fth_allocate(1, sizeof *call, &call));
    call->run = kernel->run;
    call->attributes = node->attributes;
    call->training = fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN;
    call->synchronized = fth_plan_get_options(plan).synchronized;
    call->input_count = node->input_count;
    call->output_count = node->output_count;
    for (int i = 0; i < node->input_count; i++) {
        call->inputs[i] = tensor_of(plan, node->inputs[i]);
        step.reads[step.read_count++] = call->inputs[i].value;
        if (call->training && (kernel->updated_inputs >> i & 1) != 0)
            step.writes[step.write_count++] = call->inputs[i].value;
    }
    for (int i = 0; i < node->output_count; i++) {
        call->outputs[i] = tensor_of(plan, node->outputs[i]);
        if (fth_plan_layout(plan, call->outputs[i].value) == NULL)
            FTH_TRY(describe(plan, call->outputs[i].value, fth_plan_type(plan, node->outputs[i])));
        step.writes[step.write_count++] = call->outputs[i].value;
    }
    snprintf(step.name, sizeof step.name, "%s, reference", node->op->name);
    step.state = call;
    call = NULL; /* the plan's from here on */
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    free(call);
    return status;
}

/* ---- the table ---- */

static const fth_kernel *const kernels[] = {
#define ROW(name) &reference_##name.kernel,
    REFERENCE_KERNELS(ROW)
#undef ROW
        NULL,
};

const fth_backend fth_backend_plugin = {
    .abi = FTH_BACKEND_ABI,
    .name = "reference",
    .host_memory = true,
    .open = reference_open,
    .close = reference_close,
    .enter = reference_enter,
    .allocate = reference_allocate,
    .release = reference_release,
    .copy_in = copy,
    .copy_out = copy,
    .fill_zero = fill_zero,
    .synchronize = synchronize,
    .add = reference_add_vectors,
    .norm = reference_norm,
    .updates = reference_updates,
    .kernels = kernels,
    .check_precision = check_precision,
    .describe_plain = describe_plain,
    .snapshots = &snapshots,
};
