/* Products of bf16 numbers with f32 sums: matrix tiles, and packing numbers into them.
 *
 * A tile is what AMX, the matrix unit of newer Xeons, multiplies: C (16, 16) of f32 += A (16, 32) ·
 * B (32, 16) of bf16. B is stored in pairs of rows, the two numbers of a pair side by side, so a
 * 64-byte row holds 16 pairs. C is computed in blocks of 2 x 2 tiles, each over the whole depth; B
 * is packed into panels of 32 columns, tile after tile. Files that include this are compiled for
 * AMX and run only where tiles.c finds it. */
#ifndef FTH_BACKEND_VECTOR_TILES_H
#define FTH_BACKEND_VECTOR_TILES_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    TILE = 16,          /* rows of a tile, and columns of C */
    DEPTH = 32,         /* depth of a tile */
    COLUMNS = 2 * TILE, /* of a panel */
    TILE_NUMBERS = TILE * DEPTH,
    PANEL_STEP = 2 * TILE_NUMBERS /* bf16 numbers of a panel for one tile of depth */
};

#define TILE_INLINE static inline __attribute__((always_inline))

/* ---- blocks ---- */

/* A block of A: two rows of tiles. Tile t of the depth is at t * step; rows are `stride` bytes
 * apart. */
typedef struct a_block {
    const uint16_t *first, *second; /* second: NULL if there is only one row of tiles */
    int64_t step, stride;
} a_block;

/* A thread calls configure_tiles() before it multiplies and release_tiles() at the end.
 * multiply_block() writes A · B to `c`, whose rows are `stride` bytes apart, or adds it to `c`. */

typedef struct tile_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_configuration;

TILE_INLINE void configure_tiles(void)
{
    tile_configuration configuration = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        configuration.row_bytes[i] = 64;
        configuration.rows[i] = TILE;
    }
    _tile_loadconfig(&configuration);
}

TILE_INLINE void release_tiles(void)
{
    _tile_release();
}

TILE_INLINE void begin_sums(const a_block *a, bool added, const float *c, int64_t stride)
{
    const float *below = (const float *)((const char *)c + TILE * stride);
    if (!added) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + TILE, stride);
    if (a->second) {
        _tile_loadd(2, below, stride);
        _tile_loadd(3, below + TILE, stride);
    }
}

/* Tiles 0 and 1: C of the first rows; 2 and 3: of the second; 4 and 5: A; 6 and 7: B. */
TILE_INLINE void add_products(const a_block *a, const uint16_t *panel, int64_t tiles)
{
    if (!a->second) {
        for (int64_t t = 0; t < tiles; t++) {
            _tile_loadd(4, a->first + t * a->step, a->stride);
            _tile_loadd(6, panel + t * PANEL_STEP, 64);
            _tile_loadd(7, panel + t * PANEL_STEP + TILE_NUMBERS, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
        }
        return;
    }
    for (int64_t t = 0; t < tiles; t++) {
        _tile_loadd(6, panel + t * PANEL_STEP, 64);
        _tile_loadd(4, a->first + t * a->step, a->stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, panel + t * PANEL_STEP + TILE_NUMBERS, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a->second + t * a->step, a->stride);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

TILE_INLINE void multiply_block(const a_block *a, const uint16_t *panel, int64_t tiles, bool added, float *c,
                                int64_t stride)
{
    begin_sums(a, added, c, stride);
    add_products(a, panel, tiles);
    _tile_stored(0, c, stride);
    _tile_stored(1, c + TILE, stride);
    if (a->second) {
        float *below = (float *)((char *)c + TILE * stride);
        _tile_stored(2, below, stride);
        _tile_stored(3, below + TILE, stride);
    }
}

/* ---- packing ---- */

/* Transposes 16 x 16 numbers of 32 bits: at each distance, swaps those whose row and column differ
 * in that bit. */
TILE_INLINE void transpose(__m512i rows[TILE])
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 4
    for (int distance = 1; distance < TILE; distance *= 2) {
        const __m512i bit = _mm512_set1_epi32(distance), second = _mm512_set1_epi32(TILE);
        const __mmask16 set = _mm512_test_epi32_mask(lane, bit);
        const __m512i low = _mm512_mask_add_epi32(lane, set, _mm512_xor_epi32(lane, bit), second);
        const __m512i high = _mm512_mask_add_epi32(_mm512_or_epi32(lane, bit), set, lane, second);
#pragma GCC unroll 16
        for (int i = 0; i < TILE; i++) {
            if (i & distance)
                continue;
            const __m512i a = rows[i], b = rows[i | distance];
            rows[i] = _mm512_permutex2var_epi32(a, low, b);
            rows[i | distance] = _mm512_permutex2var_epi32(a, high, b);
        }
    }
}

TILE_INLINE void store_tile(const __m512i rows[TILE], uint16_t *tile)
{
    for (int r = 0; r < TILE; r++)
        _mm512_storeu_si512(tile + r * DEPTH, rows[r]);
}

/* Interleaves the numbers of two rows. */
TILE_INLINE __m512i pair_numbers(__m256i even, __m256i odd)
{
    return _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

TILE_INLINE __m256i narrow_numbers(const float *from)
{
    return (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from));
}

/* Packs a tile of B from its 16 columns of 32 numbers, `stride` apart. */
TILE_INLINE void pack_columns(const float *columns, int64_t stride, uint16_t *tile)
{
    __m512i rows[TILE];
    for (int n = 0; n < TILE; n++) {
        const float *from = columns + n * stride;
        rows[n] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + TILE), _mm512_loadu_ps(from));
    }
    transpose(rows);
    store_tile(rows, tile);
}

/* Packs a tile of B from its 32 rows of 16 numbers, `stride` apart. */
TILE_INLINE void pack_rows(const float *from, int64_t stride, uint16_t *tile)
{
    __m512i rows[TILE];
    for (int p = 0; p < TILE; p++)
        rows[p] = pair_numbers(narrow_numbers(from + 2 * p * stride), narrow_numbers(from + (2 * p + 1) * stride));
    store_tile(rows, tile);
}

/* Packs two adjacent tiles of B from their 32 rows of 32 bf16 numbers; `rows` holds the rows'
 * addresses. */
TILE_INLINE void pack_addressed(const uint16_t *const rows[DEPTH], int64_t at, uint16_t *tiles)
{
    const __m512i turns = _mm512_set1_epi32(0x00200000); /* alternates between `even` and `odd` */
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i low = _mm512_add_epi32(_mm512_or_si512(lane, _mm512_slli_epi32(lane, 16)), turns);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(0x00100010));
    for (int p = 0; p < TILE; p++) {
        const __m512i even = _mm512_loadu_si512(rows[2 * p] + at), odd = _mm512_loadu_si512(rows[2 * p + 1] + at);
        _mm512_storeu_si512(tiles + p * DEPTH, _mm512_permutex2var_epi16(even, low, odd));
        _mm512_storeu_si512(tiles + TILE_NUMBERS + p * DEPTH, _mm512_permutex2var_epi16(even, high, odd));
    }
}

/* Packs a tile of A from its 32 columns of 16 bf16 numbers. Only the first `count` columns, and the
 * first `width` numbers of each, exist. Adds the sum of each row of the tile to `sums`. */
TILE_INLINE void pack_transposed(const uint16_t *from, int64_t count, int64_t width, int64_t stride, uint16_t *tile,
                                 float sums[TILE])
{
    __m512i rows[TILE];
    __m512 sum = _mm512_loadu_ps(sums);
    const __mmask16 existing = (__mmask16)(width >= TILE ? 0xffffu : (1u << width) - 1);
    for (int p = 0; p < TILE; p++) {
        const uint16_t *even = from + 2 * p * stride, *odd = even + stride;
        rows[p] = pair_numbers(2 * p < count ? _mm256_maskz_loadu_epi16(existing, even) : _mm256_setzero_si256(),
                               2 * p + 1 < count ? _mm256_maskz_loadu_epi16(existing, odd) : _mm256_setzero_si256());
        const __m512 low = (__m512)_mm512_slli_epi32(rows[p], 16);
        const __m512 high = (__m512)_mm512_and_si512(rows[p], _mm512_set1_epi32((int)0xffff0000));
        sum = _mm512_add_ps(sum, _mm512_add_ps(low, high));
    }
    _mm512_storeu_ps(sums, sum);
    transpose(rows);
    store_tile(rows, tile);
}

/* ---- rows of bf16 numbers ---- */

TILE_INLINE __mmask32 first_numbers(int64_t count)
{
    return count >= DEPTH ? 0xffffffffu : (1u << count) - 1;
}

TILE_INLINE void copy_numbers(uint16_t *to, const uint16_t *from, int64_t count)
{
    for (; count > 0; count -= DEPTH, to += DEPTH, from += DEPTH) {
        const __mmask32 mask = first_numbers(count);
        _mm512_mask_storeu_epi16(to, mask, _mm512_maskz_loadu_epi16(mask, from));
    }
}

TILE_INLINE void zero_numbers(uint16_t *to, int64_t count)
{
    for (; count > 0; count -= DEPTH, to += DEPTH)
        _mm512_mask_storeu_epi16(to, first_numbers(count), _mm512_setzero_si512());
}

/* The bias of a panel; 0 without one. */
typedef struct bias_row {
    __m512 low, high;
} bias_row;

TILE_INLINE bias_row read_bias(const float *bias_or_null, int64_t count)
{
    const __mmask32 mask = first_numbers(bias_or_null ? count : 0);
    return (bias_row){_mm512_maskz_loadu_ps((__mmask16)mask, bias_or_null),
                      _mm512_maskz_loadu_ps((__mmask16)(mask >> TILE), bias_or_null + (bias_or_null ? TILE : 0))};
}

/* y = c + bias in bf16, through ReLU if asked (NaN stays NaN): the first `count` of 32 columns. */
TILE_INLINE void finish_row(const float *c, const bias_row *bias, bool relu, int64_t count, uint16_t *y)
{
    __m512 low = _mm512_add_ps(_mm512_loadu_ps(c), bias->low);
    __m512 high = _mm512_add_ps(_mm512_loadu_ps(c + TILE), bias->high);
    if (relu) {
        low = _mm512_max_ps(_mm512_setzero_ps(), low);
        high = _mm512_max_ps(_mm512_setzero_ps(), high);
    }
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    if (count >= COLUMNS)
        _mm512_storeu_si512(y, both);
    else
        _mm512_mask_storeu_epi16(y, first_numbers(count), both);
}

#endif
