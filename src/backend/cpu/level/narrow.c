/* Convolutions with few channels (at most 16 on both sides, stride 1, f32) on plain layouts.
 *
 * oneDNN's kernels put channels into vector lanes: with 3 or 6 of 16 lanes filled, most of the work
 * is padding, and every neighbour pays for padded tensors. Here lanes are neighbouring columns of a
 * row, and an image stays (C, H, W). Measured on one Zen 4 core, 64 images, oneDNN's time over this
 * one's (bench/RESULTS.md): 3 to 6 channels 5×5 on 32×32: 2.3 forward, 2.2 grad_weights; 6 to 16
 * channels 5×5 on 14×14: 1.4 grad_input, 1.4 grad_weights.
 *
 * Two sums cover all three passes. A correlation computes out[m][r][w] = sum over k, i, j of
 * in[k][r+i][w+j] * weight[k][i][j][m]: over x for forward, and over dy with the kernel rotated for
 * grad_input. Rows outside the image are skipped; columns outside are zeros in a padded copy, made
 * only if there are any. Where the outputs fill vectors and the columns do not, lanes are outputs,
 * and the result is transposed at the end. An accumulation computes dw[o][c][i][j] = sum over r, w
 * of dy[o][r][w] * x[c][r+i][w+j] from a channels-last copy of the image.
 *
 * A tile of sums stays in registers: two vectors by as many outputs or positions as leave room for
 * the operands. */
#include "backend/cpu/level/narrow_level.h"

const narrow_kernels AT_LEVEL(narrow) = {.forward = AT_LEVEL(narrow_forward),
                                         .forward_floats = AT_LEVEL(narrow_forward_floats),
                                         .grad_input = AT_LEVEL(narrow_grad_input),
                                         .grad_input_floats = AT_LEVEL(narrow_grad_input_floats),
                                         .grad_weights = AT_LEVEL(narrow_grad_weights),
                                         .grad_weights_floats = AT_LEVEL(narrow_grad_weights_floats)};
