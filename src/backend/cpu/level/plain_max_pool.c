/* 2×2 max pooling of plain images, row by row. See plain_max_pool.h. */
#include "backend/cpu/plain_max_pool.h"
#include "backend/vector/vector.h"

/* Loads two consecutive vectors, of which `count` numbers exist. */
INLINE void load_two(const float *from, int64_t count, vector *first, vector *second)
{
    *first = load_part(from, count);
    *second = count > LANES ? load_part(from + LANES, count - LANES) : (vector){0};
}

INLINE void store_two(float *to, int64_t count, vector first, vector second)
{
    store_part(to, first, count);
    if (count > LANES)
        store_part(to + LANES, second, count - LANES);
}

/* The first maximum wins, and a NaN always does. */
static void pool_row(const float *top, const float *bottom, float *y, uint8_t *where, int64_t count)
{
    for (int64_t w = 0; w < count; w += LANES) {
        vector t0, t1, b0, b1;
        load_two(top + 2 * w, 2 * (count - w), &t0, &t1);
        load_two(bottom + 2 * w, 2 * (count - w), &b0, &b1);
        vector best = even_lanes(t0, t1);
        vector_mask winner = {0};
        challenge(odd_lanes(t0, t1), 1, &best, &winner);
        challenge(even_lanes(b0, b1), 2, &best, &winner);
        challenge(odd_lanes(b0, b1), 3, &best, &winner);
        store_part(y + w, best, count - w);
        store_bytes_part(where + w, winner, count - w);
    }
}

static void unpool_row(const float *dy, const uint8_t *where, float *top, float *bottom, int64_t count)
{
    for (int64_t w = 0; w < count; w += LANES) {
        const vector_mask gradient = (vector_mask)load_part(dy + w, count - w);
        const vector_mask winner = load_bytes_part(where + w, count - w);
        vector parts[4];
        for (int i = 0; i < 4; i++)
            parts[i] = (vector)((winner == i) & gradient);
        store_two(top + 2 * w, 2 * (count - w), low_pairs(parts[0], parts[1]), high_pairs(parts[0], parts[1]));
        store_two(bottom + 2 * w, 2 * (count - w), low_pairs(parts[2], parts[3]), high_pairs(parts[2], parts[3]));
    }
}

const plain_max_pool_kernels AT_LEVEL(plain_max_pool) = {.pool_row = pool_row, .unpool_row = unpool_row};
