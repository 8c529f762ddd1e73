/* Runs a convolution's plan on trial: how long it takes, and whether its ReLU keeps NaN. */
#include "backend/cuda/cudnn_graph.h"

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

/* Where cudnn_cudnn_measure() keeps its operands, in bytes: x, w and the bias from the beginning, then y, the
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

fth_status cuda_dnn_measure(cuda_device *device, const cuda_conv *conv, cudnnBackendDescriptor_t plan,
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
    FTH_TRY(cuda_dnn_make_pack(&pack, m.x, m.w, m.y, conv->bias ? m.bias : NULL, m.workspace));
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
