/* Describes a convolution to cuDNN: descriptors, the operation graph of a convolution with its bias
 * and ReLU, and the memory that it runs on. */
#include "backend/cuda/cudnn_graph.h"

enum { UID_X = 1, UID_W, UID_Y, UID_BIAS, UID_CONVOLVED, UID_BIASED };

fth_status cuda_dnn_make(cuda_dnn_heap *heap, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(heap->count < (int)FTH_COUNT_OF(heap->made), FTH_UNSUPPORTED, "too many cuDNN descriptors");
    CUDA_DNN_TRY(cudnnBackendCreateDescriptor(type, made));
    heap->made[heap->count++] = *made;
out:
    return status;
}

void cuda_dnn_heap_free(cuda_dnn_heap *heap)
{
    while (heap->count > 0)
        cudnnBackendDestroyDescriptor(heap->made[--heap->count]);
}

fth_status cuda_dnn_set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    return cuda_dnn_status(cudnnBackendSetAttribute(descriptor, name, type, count, values), "cudnnBackendSetAttribute");
}

fth_status cuda_dnn_finalize(cudnnBackendDescriptor_t descriptor, const char *what)
{
    return cuda_dnn_status(cudnnBackendFinalize(descriptor), what);
}

static cudnnDataType_t dnn_type(cuda_type type)
{
    return type == CUDA_TYPE_BF16 ? CUDNN_DATA_BFLOAT16 : type == CUDA_TYPE_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

static fth_status add_tensor(cuda_dnn_heap *heap, int64_t uid, const int64_t dims[4], cudnnDataType_t type,
                             bool is_virtual, cudnnBackendDescriptor_t *tensor)
{
    fth_status status = FTH_OK;
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]}, alignment = 16;
    FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_TENSOR_DESCRIPTOR, tensor));
    FTH_TRY(cuda_dnn_set(*tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    FTH_TRY(cuda_dnn_set(*tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims));
    FTH_TRY(cuda_dnn_set(*tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
    FTH_TRY(cuda_dnn_set(*tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid));
    FTH_TRY(cuda_dnn_set(*tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    if (is_virtual)
        FTH_TRY(cuda_dnn_set(*tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual));
    FTH_TRY(cuda_dnn_finalize(*tensor, "describing a tensor"));
out:
    return status;
}

static fth_status add_pointwise(cuda_dnn_heap *heap, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
                                cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y, cudnnBackendDescriptor_t *op)
{
    fth_status status = FTH_OK;
    cudnnBackendDescriptor_t pointwise;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &pointwise));
    FTH_TRY(cuda_dnn_set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    FTH_TRY(cuda_dnn_set(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
        /* Otherwise NaN becomes 0. It costs nothing (vgg19, bf16: 26.96 ms a step against
         * 27.07). */
        const cudnnNanPropagation_t keep = CUDNN_PROPAGATE_NAN;
        FTH_TRY(cuda_dnn_set(pointwise, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &keep));
    }
    FTH_TRY(cuda_dnn_finalize(pointwise, "describing a pointwise operation"));
    FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, op));
    FTH_TRY(
        cuda_dnn_set(*op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &pointwise));
    FTH_TRY(cuda_dnn_set(*op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x));
    if (b)
        FTH_TRY(cuda_dnn_set(*op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b));
    FTH_TRY(cuda_dnn_set(*op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y));
    FTH_TRY(cuda_dnn_finalize(*op, "describing a pointwise operation"));
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

static fth_status describe_convolution(cuda_dnn_heap *heap, const cuda_conv *conv, cudnnBackendDescriptor_t *descriptor)
{
    fth_status status = FTH_OK;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t axes = 2;
    FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, descriptor));
    FTH_TRY(cuda_dnn_set(*descriptor, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    FTH_TRY(cuda_dnn_set(*descriptor, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    FTH_TRY(cuda_dnn_set(*descriptor, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes));
    FTH_TRY(cuda_dnn_set(*descriptor, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, conv->padding));
    FTH_TRY(cuda_dnn_set(*descriptor, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, conv->padding));
    FTH_TRY(cuda_dnn_set(*descriptor, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, conv->stride));
    FTH_TRY(cuda_dnn_set(*descriptor, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, conv->dilation));
    FTH_TRY(cuda_dnn_finalize(*descriptor, "describing a convolution"));
out:
    return status;
}

fth_status cuda_dnn_build_graph(cuda_device *device, cuda_dnn_heap *heap, const cuda_conv *conv,
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
    FTH_TRY(cuda_dnn_make(heap, operations[conv->kind].type, &ops[0]));
    FTH_TRY(cuda_dnn_set(ops[0], operations[conv->kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha));
    FTH_TRY(cuda_dnn_set(ops[0], operations[conv->kind].beta, CUDNN_TYPE_FLOAT, 1, &beta));
    FTH_TRY(cuda_dnn_set(ops[0], operations[conv->kind].convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &convolution));
    FTH_TRY(cuda_dnn_set(ops[0], operations[conv->kind].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x));
    FTH_TRY(cuda_dnn_set(ops[0], operations[conv->kind].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w));
    FTH_TRY(cuda_dnn_set(ops[0], operations[conv->kind].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &at));
    FTH_TRY(cuda_dnn_finalize(ops[0], "describing a convolution's operation"));
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
    FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph));
    FTH_TRY(cuda_dnn_set(*graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &device->cudnn));
    FTH_TRY(cuda_dnn_set(*graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, op_count, ops));
    FTH_TRY(cuda_dnn_finalize(*graph, "describing an operation graph"));
out:
    return status;
}

fth_status cuda_dnn_make_pack(cudnnBackendDescriptor_t *pack, void *x, void *w, void *y, void *bias, void *workspace)
{
    fth_status status = FTH_OK;
    const int64_t uids[4] = {UID_X, UID_W, UID_Y, UID_BIAS};
    void *pointers[4] = {x, w, y, bias};
    if (*pack)
        cudnnBackendDestroyDescriptor(*pack);
    *pack = NULL;
    CUDA_DNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack));
    FTH_TRY(cuda_dnn_set(*pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, bias ? 4 : 3, pointers));
    FTH_TRY(cuda_dnn_set(*pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, bias ? 4 : 3, uids));
    FTH_TRY(cuda_dnn_set(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    FTH_TRY(cuda_dnn_finalize(*pack, "binding a convolution"));
out:
    return status;
}
