/* Convolutions in bf16 with sums in f32 as products of matrices (vector/tiles.h): forward, the gradient of the input and that
 * of the weights.
 *
 * A row of A is a position of the map that is written; the depth runs over the taps of the kernel and the channels of each. Images
 * have their channels last, so that a row consists of runs of memory: they are gathered for a block of positions that the cache
 * holds, or read where they lie if the kernel has one tap. The gradient of the input is such a product too. With a stride, only every
 * so many taps meet a given position: positions are taken in phases, one for each remainder, whose taps are the same.
 *
 * For the gradient of the weights the depth runs over positions, of which a block at a time is packed: dy turned around, as many
 * outputs as the cache holds, and x for each tap, a panel at a time. Sums are kept in f32 from block to block, with one tap in the
 * gradient itself.
 *
 * Weights are read from the flat vector in f32 and packed by each product for itself: no copy of them lives from one step to the
 * next. oneDNN can do all this too, but not on AMX in virtual machines that hide the CPUID leaf with the sizes of the tiles (cpu.c). */
#include "backend/cpu/bf16/kernels.h"

const bf16_kernels bf16_kernels_amx = {.forward = bf16_forward,
                                       .forward_bytes = bf16_forward_bytes,
                                       .grad_input = bf16_grad_input,
                                       .grad_input_bytes = bf16_grad_input_bytes,
                                       .grad_weights = bf16_grad_weights,
                                       .grad_weights_bytes = bf16_grad_weights_bytes};
