/* Engines for convolutions through cuDNN's graph interface: describe a convolution, let the
 * heuristics propose engines, measure the first few, keep the fastest.
 *
 * Only engines that give the same bits every time are taken, none that compiles at run time
 * (seconds for each), and in strict f32 none that uses tensor cores. A choice is written down as
 * the engine's number and its knobs, from which the plan is built again without heuristics or
 * measurements. FARTHING_CUDA_TUNE=0 takes the first engine that works and measures nothing, and
 * leaves ReLU to a pass of its own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/convolution.h"
#include "backend/cuda/layout.h"

enum { MAX_PROPOSALS = 48, MAX_MEASURED = 10, MAX_KNOBS = 32, CHOICE_SIZE = 1024 };
static const size_t max_workspace_bytes = (size_t)1 << 30;

enum { UID_X = 1, UID_W, UID_Y, UID_BIAS, UID_CONVOLVED, UID_BIASED };

/* Descriptors that are made together and freed together. */
typedef struct descriptor_heap {
    cudnnBackendDescriptor_t made[128 + 6 * MAX_PROPOSALS];
    int count;
} descriptor_heap;

struct cuda_engine {
    cudnnBackendDescriptor_t plan, packs[CUDA_MAX_PARTS];
    descriptor_heap *descriptors; /* what the plan was built from */
    int64_t workspace_bytes;
    bool bias;
    double microseconds;
    char name[64];
};

static fth_status make(descriptor_heap *heap, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(heap->count < (int)FTH_COUNT_OF(heap->made), FTH_UNSUPPORTED, "too many cuDNN descriptors");
    CUDA_DNN_TRY(cudnnBackendCreateDescriptor(type, made));
    heap->made[heap->count++] = *made;
out:
    return status;
}

static void free_heap(descriptor_heap *heap)
{
    while (heap->count > 0)
        cudnnBackendDestroyDescriptor(heap->made[--heap->count]);
}

static fth_status set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    return cuda_dnn_status(cudnnBackendSetAttribute(descriptor, name, type, count, values), "cudnnBackendSetAttribute");
}

static fth_status finalize(cudnnBackendDescriptor_t descriptor, const char *what)
{
    return cuda_dnn_status(cudnnBackendFinalize(descriptor), what);
}

/* ---- the operation graph ---- */

static cudnnDataType_t dnn_type(cuda_type type)
{
    return type == CUDA_TYPE_BF16 ? CUDNN_DATA_BFLOAT16 : type == CUDA_TYPE_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

static fth_status add_tensor(descriptor_heap *heap, int64_t uid, const int64_t dims[4], cudnnDataType_t type,
                             bool is_virtual, cudnnBackendDescriptor_t *tensor)
{
    fth_status status = FTH_OK;
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]}, alignment = 16;
    FTH_TRY(make(heap, CUDNN_BACKEND_TENSOR_DESCRIPTOR, tensor));
    FTH_TRY(set(*tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    FTH_TRY(set(*tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims));
    FTH_TRY(set(*tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
    FTH_TRY(set(*tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid));
    FTH_TRY(set(*tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    if (is_virtual)
        FTH_TRY(set(*tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual));
    FTH_TRY(finalize(*tensor, "describing a tensor"));
out:
    return status;
}

static fth_status add_pointwise(descriptor_heap *heap, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
                                cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y, cudnnBackendDescriptor_t *op)
{
    fth_status status = FTH_OK;
    cudnnBackendDescriptor_t pointwise;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    FTH_TRY(make(heap, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &pointwise));
    FTH_TRY(set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    FTH_TRY(set(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
        /* Otherwise NaN becomes 0. It costs nothing (vgg19, bf16: 26.96 ms a step against
         * 27.07). */
        const cudnnNanPropagation_t keep = CUDNN_PROPAGATE_NAN;
        FTH_TRY(set(pointwise, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &keep));
    }
    FTH_TRY(finalize(pointwise, "describing a pointwise operation"));
    FTH_TRY(make(heap, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, op));
    FTH_TRY(set(*op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &pointwise));
    FTH_TRY(set(*op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x));
    if (b)
        FTH_TRY(set(*op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b));
    FTH_TRY(set(*op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y));
    FTH_TRY(finalize(*op, "describing a pointwise operation"));
out:
    return status;
}

/* The attributes of the three convolution operations. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
} operations[] = {
    [CUDA_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    [CUDA_CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    [CUDA_CONV_FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

static fth_status describe_convolution(descriptor_heap *heap, const cuda_conv *conv,
                                       cudnnBackendDescriptor_t *descriptor)
{
    fth_status status = FTH_OK;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t axes = 2;
    FTH_TRY(make(heap, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, descriptor));
    FTH_TRY(set(*descriptor, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    FTH_TRY(set(*descriptor, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    FTH_TRY(set(*descriptor, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes));
    FTH_TRY(set(*descriptor, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, conv->padding));
    FTH_TRY(set(*descriptor, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, conv->padding));
    FTH_TRY(set(*descriptor, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, conv->stride));
    FTH_TRY(set(*descriptor, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, conv->dilation));
    FTH_TRY(finalize(*descriptor, "describing a convolution"));
out:
    return status;
}

static fth_status build_graph(cuda_device *device, descriptor_heap *heap, const cuda_conv *conv,
                              cudnnBackendDescriptor_t *graph)
{
    fth_status status = FTH_OK;
    cudnnBackendDescriptor_t x, w, y, convolution, ops[3], at;
    const cudnnDataType_t type = dnn_type(conv->type);
    const float alpha = 1, beta = conv->accumulate ? 1 : 0;
    int64_t op_count = 1;
    const bool fused = conv->bias || conv->relu;
    FTH_TRY(add_tensor(heap, UID_X, conv->x, type, false, &x));
    FTH_TRY(add_tensor(heap, UID_W, conv->w, type, false, &w));
    FTH_TRY(add_tensor(heap, UID_Y, conv->y, type, false, &y));
    at = y;
    if (fused)
        FTH_TRY(add_tensor(heap, UID_CONVOLVED, conv->y, CUDNN_DATA_FLOAT, true, &at));
    FTH_TRY(describe_convolution(heap, conv, &convolution));
    FTH_TRY(make(heap, operations[conv->kind].type, &ops[0]));
    FTH_TRY(set(ops[0], operations[conv->kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha));
    FTH_TRY(set(ops[0], operations[conv->kind].beta, CUDNN_TYPE_FLOAT, 1, &beta));
    FTH_TRY(set(ops[0], operations[conv->kind].convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &convolution));
    FTH_TRY(set(ops[0], operations[conv->kind].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x));
    FTH_TRY(set(ops[0], operations[conv->kind].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w));
    FTH_TRY(set(ops[0], operations[conv->kind].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &at));
    FTH_TRY(finalize(ops[0], "describing a convolution's operation"));
    if (conv->bias) {
        cudnnBackendDescriptor_t bias, sum = y;
        const int64_t dims[4] = {1, conv->y[1], 1, 1};
        FTH_TRY(add_tensor(heap, UID_BIAS, dims, type, false, &bias));
        if (conv->relu)
            FTH_TRY(add_tensor(heap, UID_BIASED, conv->y, CUDNN_DATA_FLOAT, true, &sum));
        FTH_TRY(add_pointwise(heap, CUDNN_POINTWISE_ADD, at, bias, sum, &ops[op_count++]));
        at = sum;
    }
    if (conv->relu)
        FTH_TRY(add_pointwise(heap, CUDNN_POINTWISE_RELU_FWD, at, NULL, y, &ops[op_count++]));
    FTH_TRY(make(heap, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph));
    FTH_TRY(set(*graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &device->cudnn));
    FTH_TRY(set(*graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, op_count, ops));
    FTH_TRY(finalize(*graph, "describing an operation graph"));
out:
    return status;
}

/* ---- engines ---- */

/* What is known of a proposed configuration. */
typedef struct proposal {
    cudnnBackendDescriptor_t config;
    int64_t engine;
    bool usable;
} proposal;

static bool has_note(const cudnnBackendNumericalNote_t *notes, int64_t count, cudnnBackendNumericalNote_t note)
{
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == note)
            return true;
    return false;
}

static fth_status inspect(descriptor_heap *heap, const cuda_conv *conv, proposal *p)
{
    fth_status status = FTH_OK;
    cudnnBackendDescriptor_t engine;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviors[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t count = 0, note_count = 0, behavior_count = 0;
    FTH_TRY(make(heap, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    CUDA_DNN_TRY(cudnnBackendGetAttribute(p->config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                          &count, &engine));
    CUDA_DNN_TRY(
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &p->engine));
    CUDA_DNN_TRY(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &note_count, notes));
    CUDA_DNN_TRY(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                          CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &behavior_count, behaviors));
    p->usable = !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    for (int64_t i = 0; i < behavior_count; i++)
        p->usable = p->usable && behaviors[i] != CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    if (conv->type == CUDA_TYPE_F32 && !conv->tf32)
        p->usable = p->usable && !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
                    !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
                    !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_FFT) &&
                    !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
    p->usable = p->usable && !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
out:
    return status;
}

static fth_status propose(descriptor_heap *heap, const cuda_conv *conv, cudnnBackendDescriptor_t graph,
                          cudnnBackendHeurMode_t mode, proposal *proposals, int *count)
{
    fth_status status = FTH_OK;
    cudnnBackendDescriptor_t heuristics, configs[MAX_PROPOSALS];
    int64_t found = 0;
    *count = 0;
    FTH_TRY(make(heap, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics));
    FTH_TRY(set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
    FTH_TRY(set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    if (cudnnBackendFinalize(heuristics) != CUDNN_STATUS_SUCCESS)
        goto out; /* nothing to propose */
    for (int i = 0; i < MAX_PROPOSALS; i++)
        FTH_TRY(make(heap, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    CUDA_DNN_TRY(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                          MAX_PROPOSALS, &found, configs));
    for (int64_t i = 0; i < found && i < MAX_PROPOSALS; i++) {
        proposal p = {.config = configs[i]};
        if (inspect(heap, conv, &p) == FTH_OK && p.usable)
            proposals[(*count)++] = p;
    }
out:
    return status;
}

/* A plan from a configuration; fails without noise where the engine cannot. */
static fth_status build_plan(cuda_device *device, cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t *plan,
                             int64_t *workspace_bytes)
{
    fth_status status = FTH_OK;
    int64_t count = 0;
    CUDA_DNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan));
    FTH_TRY(set(*plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &device->cudnn));
    FTH_TRY(set(*plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config));
    FTH_TRY(finalize(*plan, "building an execution plan"));
    CUDA_DNN_TRY(cudnnBackendGetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                          workspace_bytes));
    FTH_REQUIRE(*workspace_bytes <= (int64_t)max_workspace_bytes, FTH_UNSUPPORTED, "the plan's workspace is too large");
out:
    if (status != FTH_OK && *plan) {
        cudnnBackendDestroyDescriptor(*plan);
        *plan = NULL;
    }
    return status;
}

static fth_status make_pack(cudnnBackendDescriptor_t *pack, void *x, void *w, void *y, void *bias, void *workspace)
{
    fth_status status = FTH_OK;
    const int64_t uids[4] = {UID_X, UID_W, UID_Y, UID_BIAS};
    void *pointers[4] = {x, w, y, bias};
    if (*pack)
        cudnnBackendDestroyDescriptor(*pack);
    *pack = NULL;
    CUDA_DNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack));
    FTH_TRY(set(*pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, bias ? 4 : 3, pointers));
    FTH_TRY(set(*pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, bias ? 4 : 3, uids));
    FTH_TRY(set(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    FTH_TRY(finalize(*pack, "binding a convolution"));
out:
    return status;
}

/* ---- measuring ---- */

static size_t tensor_bytes(const int64_t dims[4], cuda_type type)
{
    return fth_align_up((size_t)(dims[0] * dims[1] * dims[2] * dims[3]) * cuda_type_size(type), 256);
}

/* Queues the plan `runs` times as one captured graph, so that small kernels are not measured by
 * their launches. */
static fth_status capture_runs(cuda_device *device, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack,
                               int runs, cudaGraphExec_t *captured)
{
    fth_status status = FTH_OK;
    cudaGraph_t graph = NULL;
    cudnnStatus_t ran = CUDNN_STATUS_SUCCESS;
    CUDA_TRY(cudaStreamBeginCapture(device->launch.stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < runs && ran == CUDNN_STATUS_SUCCESS; i++)
        ran = cudnnBackendExecute(device->cudnn, plan, pack);
    CUDA_TRY(cudaStreamEndCapture(device->launch.stream, &graph));
    CUDA_DNN_TRY(ran);
    CUDA_TRY(cudaGraphInstantiate(captured, graph, 0));
out:
    if (graph)
        cudaGraphDestroy(graph);
    return status;
}

/* Where measure() keeps its operands, in bytes: x, w and the bias from the beginning, then y, the
 * workspace and a flag. */
typedef struct trial_memory {
    char *x, *w, *bias, *y, *workspace;
    int *flag;
    size_t inputs_bytes, y_bytes;
} trial_memory;

static fth_status lay_out_trial(cuda_device *device, const cuda_conv *conv, int64_t workspace_bytes, trial_memory *m)
{
    fth_status status = FTH_OK;
    const size_t x = tensor_bytes(conv->x, conv->type), w = tensor_bytes(conv->w, conv->type);
    const size_t bias = fth_align_up((size_t)conv->y[1] * 4, 256);
    const size_t workspace = fth_align_up((size_t)workspace_bytes, 256);
    void *base = NULL;
    *m = (trial_memory){.inputs_bytes = x + w + bias, .y_bytes = tensor_bytes(conv->y, conv->type)};
    FTH_TRY(cuda_tuning_memory(device, m->inputs_bytes + m->y_bytes + workspace + sizeof *m->flag, &base));
    m->x = base;
    m->w = m->x + x;
    m->bias = m->w + w;
    m->y = m->bias + bias;
    m->workspace = m->y + m->y_bytes;
    m->flag = (int *)(m->workspace + workspace);
out:
    return status;
}

/* Refuses an engine whose ReLU turns NaN into a number: some do, although the graph asks them not
 * to. Every operand is NaN here, so every output has to be. */
static fth_status check_nan(cuda_device *device, const cuda_conv *conv, cudnnBackendDescriptor_t plan,
                            cudnnBackendDescriptor_t pack, cudaEvent_t done, const trial_memory *m)
{
    enum { BYTES_OF_NAN = 0xff }; /* in all three types */
    fth_status status = FTH_OK;
    cudaStream_t stream = device->launch.stream;
    int found = 0;
    CUDA_TRY(cudaMemsetAsync(m->x, BYTES_OF_NAN, m->inputs_bytes, stream));
    CUDA_TRY(cudaMemsetAsync(m->y, 0, m->y_bytes, stream));
    CUDA_TRY(cudaMemsetAsync(m->flag, 0, sizeof *m->flag, stream));
    CUDA_DNN_TRY(cudnnBackendExecute(device->cudnn, plan, pack));
    CUDA_TRY(cuda_launch_find_number(stream, conv->type, m->y,
                                     (size_t)(conv->y[0] * conv->y[1] * conv->y[2] * conv->y[3]), m->flag));
    CUDA_TRY(cudaEventRecord(done, stream));
    FTH_TRY(cuda_wait(device, done, cuda_deadline(device)));
    CUDA_TRY(cudaMemcpy(&found, m->flag, sizeof found, cudaMemcpyDeviceToHost));
    CUDA_TRY(cuda_launch_fill_random(stream, CUDA_TYPE_BF16, m->x, (m->inputs_bytes + m->y_bytes) / 2));
    FTH_REQUIRE(!found, FTH_UNSUPPORTED, "its ReLU loses NaN");
out:
    return status;
}

/* Microseconds of a run, the mean of a few after one to warm up. Fails if the engine cannot be
 * used. */
static fth_status measure(cuda_device *device, const cuda_conv *conv, cudnnBackendDescriptor_t plan,
                          int64_t workspace_bytes, double *microseconds)
{
    enum { RUNS = 5 };
    fth_status status = FTH_OK;
    cudnnBackendDescriptor_t pack = NULL;
    cudaEvent_t begin = NULL, end = NULL;
    cudaGraphExec_t captured = NULL;
    trial_memory m;
    float milliseconds = 0;
    FTH_TRY(lay_out_trial(device, conv, workspace_bytes, &m));
    FTH_TRY(make_pack(&pack, m.x, m.w, m.y, conv->bias ? m.bias : NULL, m.workspace));
    CUDA_TRY(cudaEventCreate(&begin));
    CUDA_TRY(cudaEventCreate(&end));
    if (conv->relu)
        FTH_TRY(check_nan(device, conv, plan, pack, end, &m));
    CUDA_DNN_TRY(cudnnBackendExecute(device->cudnn, plan, pack));
    FTH_TRY(capture_runs(device, plan, pack, RUNS, &captured));
    CUDA_TRY(cudaEventRecord(begin, device->launch.stream));
    CUDA_TRY(cudaGraphLaunch(captured, device->launch.stream));
    CUDA_TRY(cudaEventRecord(end, device->launch.stream));
    FTH_TRY(cuda_wait(device, end, cuda_deadline(device)));
    CUDA_TRY(cudaEventElapsedTime(&milliseconds, begin, end));
    *microseconds = 1e3 * milliseconds / RUNS;
out:
    if (captured)
        cudaGraphExecDestroy(captured);
    if (pack)
        cudnnBackendDestroyDescriptor(pack);
    if (begin)
        cudaEventDestroy(begin);
    if (end)
        cudaEventDestroy(end);
    return status;
}

static bool tuning_is_on(void)
{
    const char *asked = getenv("FARTHING_CUDA_TUNE");
    return !asked || strcmp(asked, "0") != 0;
}

/* ---- choices as text: "<microseconds> <engine> <knob>=<value> ..." ---- */

static void write_choice(descriptor_heap *heap, const proposal *p, double microseconds, char text[CHOICE_SIZE])
{
    cudnnBackendDescriptor_t knobs[MAX_KNOBS];
    int64_t count = 0;
    size_t length = (size_t)snprintf(text, CHOICE_SIZE, "%.1f %" PRId64, microseconds, p->engine);
    for (int i = 0; i < MAX_KNOBS; i++)
        if (make(heap, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]) != FTH_OK)
            return;
    if (cudnnBackendGetAttribute(p->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_KNOBS,
                                 &count, knobs) != CUDNN_STATUS_SUCCESS)
        return;
    for (int64_t i = 0; i < count && length < CHOICE_SIZE - 64; i++) {
        cudnnBackendKnobType_t type;
        int64_t value = 0, got = 0;
        cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got, &type);
        cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got, &value);
        length += (size_t)snprintf(text + length, CHOICE_SIZE - length, " %d=%" PRId64, (int)type, value);
    }
}

static fth_status read_choice(descriptor_heap *heap, cudnnBackendDescriptor_t graph, const char *text, proposal *p,
                              double *microseconds)
{
    fth_status status = FTH_OK;
    cudnnBackendDescriptor_t engine, knobs[MAX_KNOBS];
    int64_t count = 0;
    char *end = NULL;
    *microseconds = strtod(text, &end);
    p->engine = strtoll(end, &end, 10);
    FTH_TRY(make(heap, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    FTH_TRY(set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
    FTH_TRY(set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &p->engine));
    FTH_TRY(finalize(engine, "an engine chosen earlier"));
    while (*end == ' ' && count < MAX_KNOBS) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)strtol(end, &end, 10);
        FTH_REQUIRE(*end == '=', FTH_CORRUPT, "a choice that cannot be read");
        int64_t value = strtoll(end + 1, &end, 10);
        FTH_TRY(make(heap, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[count]));
        FTH_TRY(set(knobs[count], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type));
        FTH_TRY(set(knobs[count], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value));
        FTH_TRY(finalize(knobs[count++], "a knob chosen earlier"));
    }
    FTH_TRY(make(heap, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &p->config));
    FTH_TRY(set(p->config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine));
    if (count > 0)
        FTH_TRY(set(p->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, knobs));
    FTH_TRY(finalize(p->config, "a configuration chosen earlier"));
out:
    return status;
}

static void write_key(const cuda_conv *c, char *key, size_t size)
{
    static const char *const kinds[] = {"forward", "data", "filter"}, *const types[] = {"f32", "f16", "bf16"};
    snprintf(key, size,
             "%s%s%s%s %s%s x%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " w%" PRId64 ",%" PRId64 ",%" PRId64
             ",%" PRId64 " p%" PRId64 ",%" PRId64 " s%" PRId64 ",%" PRId64 " d%" PRId64 ",%" PRId64,
             kinds[c->kind], c->accumulate ? "+added" : "", c->bias ? "+bias" : "", c->relu ? "+relu keeping NaN" : "",
             types[c->type], c->tf32 ? "-tf32" : "", c->x[0], c->x[1], c->x[2], c->x[3], c->w[0], c->w[1], c->w[2],
             c->w[3], c->padding[0], c->padding[1], c->stride[0], c->stride[1], c->dilation[0], c->dilation[1]);
}

static fth_status recall(cuda_device *device, descriptor_heap *heap, cudnnBackendDescriptor_t graph, const char *choice,
                         cuda_engine *engine)
{
    fth_status status = FTH_OK;
    proposal p = {0};
    FTH_TRY(read_choice(heap, graph, choice, &p, &engine->microseconds));
    FTH_TRY(build_plan(device, p.config, &engine->plan, &engine->workspace_bytes));
    snprintf(engine->name, sizeof engine->name, "engine %" PRId64, p.engine);
out:
    return status;
}

static fth_status tune(cuda_device *device, descriptor_heap *heap, const cuda_conv *conv,
                       cudnnBackendDescriptor_t graph, const char *key, cuda_engine *engine)
{
    fth_status status = FTH_OK;
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    proposal proposals[MAX_PROPOSALS], best = {0};
    const bool measuring = tuning_is_on() && !conv->unmeasured;
    int measured = 0;
    if (conv->relu && !measuring)
        goto out; /* only a run shows whether an engine keeps NaN */
    for (size_t m = 0; m < FTH_COUNT_OF(modes) && !engine->plan; m++) {
        int count = 0;
        FTH_TRY(propose(heap, conv, graph, modes[m], proposals, &count));
        for (int i = 0; i < count && measured < MAX_MEASURED; i++) {
            cudnnBackendDescriptor_t candidate = NULL;
            int64_t workspace_bytes = 0;
            double microseconds = 0;
            if (build_plan(device, proposals[i].config, &candidate, &workspace_bytes) != FTH_OK)
                continue;
            if (measuring && measure(device, conv, candidate, workspace_bytes, &microseconds) != FTH_OK) {
                cudnnBackendDestroyDescriptor(candidate);
                continue;
            }
            measured++;
            if (engine->plan && microseconds >= engine->microseconds) {
                cudnnBackendDestroyDescriptor(candidate);
                continue;
            }
            if (engine->plan)
                cudnnBackendDestroyDescriptor(engine->plan);
            engine->plan = candidate;
            engine->workspace_bytes = workspace_bytes;
            engine->microseconds = microseconds;
            best = proposals[i];
            if (!measuring)
                break;
        }
    }
    if (engine->plan) {
        char choice[CHOICE_SIZE];
        write_choice(heap, &best, engine->microseconds, choice);
        snprintf(engine->name, sizeof engine->name, "engine %" PRId64, best.engine);
        if (measuring)
            cuda_tuning_add(device->tuning, key, choice);
    } else if (measuring) {
        cuda_tuning_add(device->tuning, key, "none");
    }
    fth_log_debug("cudnn %s: %s, %.1f us of %d measured", key, engine->plan ? engine->name : "no engine",
                  engine->microseconds, measured);
out:
    return status;
}

fth_status cuda_engine_create(cuda_device *device, const cuda_conv *conv, cuda_engine **result)
{
    fth_status status = FTH_OK;
    cuda_engine *engine = NULL;
    cudnnBackendDescriptor_t graph;
    char key[256];
    *result = NULL;
    write_key(conv, key, sizeof key);
    const char *choice = cuda_tuning_find(device->tuning, key);
    if (choice && strcmp(choice, "none") == 0)
        return FTH_OK;
    FTH_TRY(fth_allocate(1, sizeof *engine, &engine));
    FTH_TRY(fth_allocate(1, sizeof *engine->descriptors, &engine->descriptors));
    engine->bias = conv->bias;
    if (build_graph(device, engine->descriptors, conv, &graph) != FTH_OK) {
        fth_log_debug("cudnn %s: %s", key, fth_error_message());
        goto out; /* cannot be expressed: no engine */
    }
    if (!choice || recall(device, engine->descriptors, graph, choice, engine) != FTH_OK)
        FTH_TRY(tune(device, engine->descriptors, conv, graph, key, engine));
    if (engine->plan) {
        *result = engine;
        engine = NULL;
    }
out:
    cuda_engine_free(engine);
    return status;
}

void cuda_engine_free(cuda_engine *engine)
{
    if (!engine)
        return;
    for (int i = 0; i < CUDA_MAX_PARTS; i++)
        if (engine->packs[i])
            cudnnBackendDestroyDescriptor(engine->packs[i]);
    if (engine->plan)
        cudnnBackendDestroyDescriptor(engine->plan);
    if (engine->descriptors)
        free_heap(engine->descriptors);
    free(engine->descriptors);
    free(engine);
}

size_t cuda_engine_workspace_bytes(const cuda_engine *engine)
{
    return (size_t)engine->workspace_bytes;
}

const char *cuda_engine_name(const cuda_engine *engine)
{
    return engine->name;
}

double cuda_engine_microseconds(const cuda_engine *engine)
{
    return engine->microseconds;
}

fth_status cuda_engine_bind(cuda_engine *engine, int part, void *x, void *w, void *y, void *bias, void *workspace)
{
    return make_pack(&engine->packs[part], x, w, y, engine->bias ? bias : NULL, workspace);
}

fth_status cuda_engine_run(cuda_device *device, const cuda_engine *engine, int part)
{
    return cuda_dnn_status(cudnnBackendExecute(device->cudnn, engine->plan, engine->packs[part]),
                           "cudnnBackendExecute");
}
