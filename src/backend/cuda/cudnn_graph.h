/* The parts of a convolution engine: cudnn_graph.c describes a convolution to cuDNN,
 * cudnn_measure.c runs a plan on trial, cudnn_choice.c writes a choice as text, and cudnn.c finds
 * the fastest engine with these. */
#ifndef CUDA_CUDNN_GRAPH_H
#define CUDA_CUDNN_GRAPH_H

#include "backend/cuda/convolution.h"
#include "backend/cuda/layout.h"

enum { CUDA_DNN_MAX_PROPOSALS = 48, CUDA_DNN_CHOICE_SIZE = 1024 };

/* Descriptors that are made together and freed together. */
typedef struct cuda_dnn_heap {
    cudnnBackendDescriptor_t made[128 + 6 * CUDA_DNN_MAX_PROPOSALS];
    int count;
} cuda_dnn_heap;

/* Creates a descriptor that the heap owns. */
fth_status cuda_dnn_make(cuda_dnn_heap *heap, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made);
void cuda_dnn_heap_free(cuda_dnn_heap *heap);
fth_status cuda_dnn_set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t count, const void *values);
fth_status cuda_dnn_finalize(cudnnBackendDescriptor_t descriptor, const char *what);

/* The convolution, with the bias and ReLU that follow it, as an operation graph. */
fth_status cuda_dnn_build_graph(cuda_device *device, cuda_dnn_heap *heap, const cuda_conv *conv,
                                cudnnBackendDescriptor_t *graph);
/* Binds the graph's tensors to memory; replaces *pack. `bias` may be NULL. */
fth_status cuda_dnn_make_pack(cudnnBackendDescriptor_t *pack, void *x, void *w, void *y, void *bias, void *workspace);

/* Microseconds of a run, the mean of a few after one to warm up. Fails if the engine cannot be
 * used. */
fth_status cuda_dnn_measure(cuda_device *device, const cuda_conv *conv, cudnnBackendDescriptor_t plan,
                            int64_t workspace_bytes, double *microseconds);

/* What is known of a proposed configuration. */
typedef struct cuda_dnn_proposal {
    cudnnBackendDescriptor_t config;
    int64_t engine;
    bool usable;
} cuda_dnn_proposal;

/* A choice as text: "<microseconds> <engine> <knob>=<value> ...". */
void cuda_dnn_write_choice(cuda_dnn_heap *heap, const cuda_dnn_proposal *p, double microseconds,
                           char text[CUDA_DNN_CHOICE_SIZE]);
fth_status cuda_dnn_read_choice(cuda_dnn_heap *heap, cudnnBackendDescriptor_t graph, const char *text,
                                cuda_dnn_proposal *p, double *microseconds);

#endif
