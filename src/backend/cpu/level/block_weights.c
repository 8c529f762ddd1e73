/* See block_weights.h. Blocks of LANES × LANES weights go through registers; LANES rows of the
 * plain matrix are read, or written, together. */
#include "backend/cpu/block_weights.h"
#include "backend/vector/vector.h"

enum { BLOCK = LANES * LANES };

static void load_block(const float *from, int64_t stride, vector rows[LANES])
{
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        rows[i] = load(from + i * stride);
}

/* Stores rows 2 i and 2 i + 1 as pairs of bf16. */
static void store_pairs(const vector rows[LANES], uint16_t *to)
{
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2)
        store((float *)(void *)(to + i * LANES), (vector)(bits_of_bf16(rows[i]) | bits_of_bf16(rows[i + 1]) << 16));
}

static void to_forward(int64_t outputs, int64_t channels, const void *from, void *to)
{
    const int64_t across = channels / LANES;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < outputs / LANES; i++) {
        for (int64_t k = 0; k < across; k++) {
            vector rows[LANES];
            load_block((const float *)from + i * LANES * channels + k * LANES, channels, rows);
            transpose(rows);
            store_pairs(rows, (uint16_t *)to + (i * across + k) * BLOCK);
        }
    }
}

static void to_backward(int64_t outputs, int64_t channels, const void *from, void *to)
{
    const int64_t across = channels / LANES, down = outputs / LANES;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < down; i++) {
        for (int64_t k = 0; k < across; k++) {
            vector rows[LANES];
            load_block((const float *)from + i * LANES * channels + k * LANES, channels, rows);
            store_pairs(rows, (uint16_t *)to + (k * down + i) * BLOCK);
        }
    }
}

static void from_gradient(int64_t outputs, int64_t channels, const void *from, void *to)
{
    const int64_t across = channels / LANES;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < outputs / LANES; i++) {
        for (int64_t k = 0; k < across; k++) {
            vector rows[LANES];
            load_block((const float *)from + (i * across + k) * BLOCK, LANES, rows);
            transpose(rows);
            for (int64_t r = 0; r < LANES; r++)
                store((float *)to + (i * LANES + r) * channels + k * LANES, rows[r]);
        }
    }
}

const block_weights_kernels AT_LEVEL(block_weights) = {
    .to_forward = to_forward, .to_backward = to_backward, .from_gradient = from_gradient};
