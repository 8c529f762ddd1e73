/* Batch norm's loops over one row of one image, compiled for each level of vector instructions
 * (level/batch_norm.c).
 *
 * A row is a sequence of vectors of up to as many numbers as the level has lanes, each lane with
 * its own statistics: those of adjacent channels, or of the same channel in all lanes. */
#ifndef FTH_BACKEND_CPU_BATCH_NORM_H
#define FTH_BACKEND_CPU_BATCH_NORM_H

#include <stdbool.h>
#include <stdint.h>

enum { BATCH_NORM_LANES = 16 }; /* the most that a level has */

typedef struct batch_norm_row {
    const void *x, *dy, *residual; /* f32 or bf16; a residual may be NULL */
    void *out;                     /* the result, or NULL */
    uint16_t *mask;                /* per vector of the row: bit l is set if ReLU passes lane l; NULL: no ReLU */
    int64_t at;                    /* offset of the first vector in all of the above except the mask */
    int64_t next;                  /* the same for the next row */
    int64_t vectors, stride;
    int64_t lanes, last; /* numbers in each vector, and in the last one */
    bool bf16;
    bool streamed;                /* y or dx is large: use non-temporal stores where possible */
    float mean[BATCH_NORM_LANES]; /* or the value that sums are taken around */
    float a[BATCH_NORM_LANES], b[BATCH_NORM_LANES], c[BATCH_NORM_LANES];
    double first[BATCH_NORM_LANES], second[BATCH_NORM_LANES]; /* running sums */
} batch_norm_row;

typedef struct batch_norm_kernels {
    void (*add_values)(batch_norm_row *row);    /* first += d, second += d * d; d = x - mean */
    void (*normalize)(batch_norm_row *row);     /* out = [relu](d * a + b [+ residual]); writes the mask */
    void (*add_gradients)(batch_norm_row *row); /* first += g, second += g * d; g = dy through the mask; [out = g] */
    void (*differentiate)(batch_norm_row *row); /* out = (g - b - d * c) * a */
} batch_norm_kernels;

#endif
