/* Convolutions in bf16 with f32 sums, as matrix products (vector/tiles.h): forward, the gradient of
 * the input and that of the weights.
 *
 * A row of A is a position in the target map; the depth runs over the taps of the kernel and the
 * channels of each. Images are channels last, so a row consists of contiguous runs: they are
 * gathered for a block of positions that fits the cache, or read in place if the kernel has one
 * tap. The gradient of the input is such a product too. With a stride, only some of the taps reach
 * a given position: positions are processed in phases, one for each remainder, whose taps are the
 * same.
 *
 * For the gradient of the weights, the depth runs over positions, packed a block at a time: dy
 * transposed, for as many outputs as the cache holds, and x for each tap, a panel at a time. Sums
 * are kept in f32 from block to block; with one tap, in the gradient itself.
 *
 * Weights are read from the flat vector in f32 and packed by each product for itself: no copy of
 * them outlives a step. oneDNN can do all this too, but not on AMX in virtual machines that hide
 * the CPUID leaf with the sizes of the tiles (cpu.c). */
#include "backend/cpu/bf16/kernels.h"

const bf16_kernels bf16_kernels_amx = {.forward = bf16_forward,
                                       .forward_bytes = bf16_forward_bytes,
                                       .grad_input = bf16_grad_input,
                                       .grad_input_bytes = bf16_grad_input_bytes,
                                       .grad_weights = bf16_grad_weights,
                                       .grad_weights_bytes = bf16_grad_weights_bytes};
