/* Depthwise convolutions by kernels of our own (depthwise.c, depthwise.cu). */
#ifndef FTH_BACKEND_CUDA_DEPTHWISE_H
#define FTH_BACKEND_CUDA_DEPTHWISE_H

#include "backend/cuda/layout.h"

/* Whether they compute a convolution of these attributes and weight. */
bool cuda_depthwise_fits(const fth_convolution_attributes *attributes, const fth_shape *weight);

/* The steps of a convolution and of its gradients. */
fth_status cuda_depthwise_forward(fth_plan *plan, const fth_node *node);
fth_status cuda_depthwise_grad_input(fth_plan *plan, const fth_node *node);
fth_status cuda_depthwise_grad_weights(fth_plan *plan, const fth_node *node);

#endif
