/* The loops that must be fast, as one table for each level of vector instructions.
 *
 * Every file of this folder is compiled once per level. Matrices are row-major; nothing needs to be
 * aligned. */
#ifndef FTH_BACKEND_PORTABLE_LEVEL_LEVEL_H
#define FTH_BACKEND_PORTABLE_LEVEL_LEVEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"

/* A stretch of a sum: `length` elements of `a` from `offset` on. */
typedef struct portable_segment {
    int64_t offset, length;
} portable_segment;

/* Rows of a matrix in memory: row r begins at (r / line) * line_step + (r % line) * row_step. */
typedef struct portable_rows {
    int64_t line, line_step, row_step;
} portable_rows;

/* c[r][j] = [relu]([c[r][j]] + [bias[j]] + sum over k of a[r][k] * b[k][j])
 *
 * Element k of a row of `a` is a_step behind the one before it, within a segment. Row k of `b` is
 * b_step behind the one before it; its columns lie in panels of `panel_columns` (portable_level),
 * b_panel apart. A panel that is not full can be read up to the next whole vector. */
typedef struct portable_product {
    int64_t rows, columns;
    const float *a;
    portable_rows a_rows;
    int64_t a_step;
    const portable_segment *segments;
    int64_t segment_count;
    const float *b;
    int64_t b_step, b_panel;
    float *c;
    portable_rows c_rows;
    const float *bias; /* or NULL */
    bool accumulate, relu;
} portable_product;

/* Pooling of one image, channels last: (height, width, channels) to (out_height, out_width,
 * channels). */
typedef struct portable_pool {
    int64_t height, width, channels, out_height, out_width;
    int kernel[2], stride[2], padding[2];
} portable_pool;

/* One head of one sequence (attention and dot_product_attention in ops.h). Rows of each operand are
 * a stride apart; elements are f32 or bf16. Gradients have the strides of what they belong to, and
 * may take its place. */
typedef struct portable_head {
    int64_t queries, keys, size, value_size; /* rows; features of queries and keys, of values */
    bool bf16;
    int64_t query_stride, key_stride, value_stride, y_stride;
    const void *query, *key, *value, *dy;
    void *y, *dquery, *dkey, *dvalue;
    float *statistics; /* `heads` apart */
    float scale;       /* of scores */
    bool causal;       /* query i sees keys 0 to i */
    const float *mask; /* added to the scores; NULL: none */
    int64_t mask_step; /* from query to query */
    float *dmask;      /* the mask's gradient is added to it; NULL: none */
    int head, heads;
    bool drops;
    fth_random_key random;
    uint64_t first_row; /* number of the first query in the whole batch */
    uint32_t threshold;
    float kept; /* what kept probabilities are multiplied with */
} portable_head;

typedef struct portable_level {
    const char *name;
    int64_t lanes, panel_columns; /* floats in a vector and in a panel of a product */

    void (*multiply)(const portable_product *product);
    /* c[i][j] = [relu]([bias[j]] + sum over k of a[i][k] * b[j][k]): c (rows, columns), both others
     * `length` wide. */
    void (*multiply_transposed)(const float *a, const float *b, const float *bias, int64_t rows, int64_t columns,
                                int64_t length, bool relu, float *c);
    /* b (rows, columns, rows `step` apart) as the panels that multiply() reads, b_step =
     * panel_columns; columns that are missing from the last one are 0. */
    void (*pack)(const float *b, int64_t rows, int64_t columns, int64_t step, float *panels);
    /* sums[j] += sum over r of x[r][j]; rows are `step` apart */
    void (*sum_columns)(const float *x, int64_t rows, int64_t columns, int64_t step, double *sums);

    void (*relu)(const float *x, float *y, int64_t count);
    void (*relu_gradient)(const float *y, const float *dy, float *dx, int64_t count);
    void (*add)(const float *a, const float *b, bool relu, float *y, int64_t count);
    /* Of elements that are numbered from `first` on in the whole batch. */
    void (*drop)(const float *x, float *y, int64_t count, uint64_t first, fth_random_key key, uint32_t threshold,
                 float scale);

    /* query, key, value -> y, statistics; and query, key, value, statistics, dy -> dquery, dkey,
     * dvalue. `scratch` is of attention_floats(), which reads the sizes of a head alone, and
     * aligned to 8 bytes. */
    void (*attend)(const portable_head *head, float *scratch);
    void (*attend_gradient)(const portable_head *head, float *scratch);
    int64_t (*attention_floats)(const portable_head *head, bool gradient);

    /* A step of one sequence of an LSTM: gates (4 H), given as sums, -> gates, c, h. c_before: NULL
     * for zeros. And its gradient: dh, dc -> ds, the gradients of the sums, and dc of the step
     * before. */
    void (*lstm_cell)(float *gates, const float *c_before, float *c, float *h, int64_t hidden);
    void (*lstm_slopes)(const float *gates, const float *c, const float *c_before, const float *dh, float *dc,
                        float *ds, int64_t hidden);
    /* Of a GRU: gates (3 H), the third without `cell`, the part of its sum that gate r multiplies.
     * The gradient gives ds, dr, the same of the sums with the weight, and in the place of dh what
     * reaches h_before past the weight. */
    void (*gru_cell)(float *gates, const float *cell, const float *h_before, float *h, int64_t hidden);
    void (*gru_slopes)(const float *gates, const float *cell, const float *h_before, float *dh, float *ds, float *dr,
                       int64_t hidden);

    void (*max_pool)(const portable_pool *pool, const float *x, float *y, int32_t *where);
    void (*max_pool_gradient)(const portable_pool *pool, const float *dy, const int32_t *where, float *dx);

    /* Winograd's transforms (winograd.h). */
    void (*winograd_input)(const float *x, int64_t line, int64_t channels, int64_t rows, int64_t columns, float *to,
                           int64_t plane);
    void (*winograd_output)(const float *from, int64_t plane, int64_t channels, int64_t height, int64_t width,
                            const float *bias, bool relu, float *y);
    void (*winograd_output_gradient)(const float *dy, int64_t channels, int64_t height, int64_t width, float *to,
                                     int64_t plane);

    /* Batch norm of x (rows, channels); `mean` and the like have a number per channel. */
    /* sums[c] += sum over r of (x[r][c] - mean[c])^2 */
    void (*sum_squares)(const float *x, int64_t rows, int64_t channels, const float *mean, double *sums);
    /* y = [relu]((x - mean) * factor + shift [+ residual]) */
    void (*normalize)(const float *x, int64_t rows, int64_t channels, const float *mean, const float *factor,
                      const float *shift, const float *residual, bool relu, float *y);
    /* g = dy, 0 where y, unless it is NULL, is not positive; sums[c] += sum of g; products[c] +=
     * sum of g * (x - mean) */
    void (*sum_gradients)(const float *x, const float *y, const float *dy, int64_t rows, int64_t channels,
                          const float *mean, double *sums, double *products);
    /* dx = factor * (g - offset - (x - mean) * slope); dresidual, unless it is NULL, is g */
    void (*normalize_gradient)(const float *x, const float *y, const float *dy, int64_t rows, int64_t channels,
                               const float *mean, const float *factor, const float *offset, const float *slope,
                               float *dx, float *dresidual);
} portable_level;

extern const portable_level portable_level_baseline, portable_level_avx2, portable_level_avx512;

#endif
