/* See wire.h. Loops without branches, which the compiler turns into vector instructions: through
 * them numbers go at the speed of memory. */
#include "collective/wire.h"

#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "base/vectorized.h"

size_t fth_wire_size(fth_wire wire)
{
    return wire == FTH_WIRE_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* ---- one loop for each format ---- */

FTH_VECTORIZED static void pack_f16(const float *restrict from, size_t count, uint16_t *restrict to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = fth_f16_from_float(from[i]);
}

FTH_VECTORIZED static void pack_bf16(const float *restrict from, size_t count, uint16_t *restrict to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = fth_bf16_from_float(from[i]);
}

FTH_VECTORIZED static void unpack_f16(const uint16_t *restrict from, size_t count, float *restrict to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = fth_f16_to_float(from[i]);
}

FTH_VECTORIZED static void unpack_bf16(const uint16_t *restrict from, size_t count, float *restrict to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = fth_bf16_to_float(from[i]);
}

FTH_VECTORIZED static void add_f32(const float *restrict from, size_t count, float *restrict sums)
{
    for (size_t i = 0; i < count; i++)
        sums[i] += from[i];
}

FTH_VECTORIZED static void add_f16(const uint16_t *restrict from, size_t count, float *restrict sums)
{
    for (size_t i = 0; i < count; i++)
        sums[i] += fth_f16_to_float(from[i]);
}

FTH_VECTORIZED static void add_bf16(const uint16_t *restrict from, size_t count, float *restrict sums)
{
    for (size_t i = 0; i < count; i++)
        sums[i] += fth_bf16_to_float(from[i]);
}

/* `to` may be `a` or `b`, number for number, which is no dependence between iterations. */
FTH_VECTORIZED static void add_pair(const float *a, const float *b, size_t count, float *to)
{
    FTH_INDEPENDENT
    for (size_t i = 0; i < count; i++)
        to[i] = a[i] + b[i];
}

/* Both get their sum. */
FTH_VECTORIZED static void add_to_both(float *restrict a, float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

void fth_wire_pack(fth_wire wire, const float *from, size_t count, void *to)
{
    switch (wire) {
    case FTH_WIRE_F32: memcpy(to, from, count * sizeof *from); break;
    case FTH_WIRE_F16: pack_f16(from, count, to); break;
    case FTH_WIRE_BF16: pack_bf16(from, count, to); break;
    }
}

void fth_wire_unpack(fth_wire wire, const void *from, size_t count, float *to)
{
    switch (wire) {
    case FTH_WIRE_F32: memcpy(to, from, count * sizeof *to); break;
    case FTH_WIRE_F16: unpack_f16(from, count, to); break;
    case FTH_WIRE_BF16: unpack_bf16(from, count, to); break;
    }
}

void fth_wire_add(fth_wire wire, const void *from, size_t count, float *sums)
{
    switch (wire) {
    case FTH_WIRE_F32: add_f32(from, count, sums); break;
    case FTH_WIRE_F16: add_f16(from, count, sums); break;
    case FTH_WIRE_BF16: add_bf16(from, count, sums); break;
    }
}

/* ---- sums of several sources ---- */

enum { BLOCK = 2048 }; /* numbers that are summed at a time: they stay in the first-level cache */

static size_t block_length(size_t at, size_t count)
{
    return count - at < BLOCK ? count - at : BLOCK;
}

/* Of `count` numbers, at most BLOCK, from `at` in each source. */
static void sum_block(fth_wire wire, const float *const *sources, int source_count, size_t at, size_t count,
                      float sums[BLOCK])
{
    uint16_t packed[BLOCK];
    for (int s = 0; s < source_count; s++) {
        const void *terms = sources[s] + at;
        if (wire != FTH_WIRE_F32) {
            fth_wire_pack(wire, sources[s] + at, count, packed);
            terms = packed;
        }
        if (s == 0)
            fth_wire_unpack(wire, terms, count, sums);
        else
            fth_wire_add(wire, terms, count, sums);
    }
    if (wire != FTH_WIRE_F32) {
        fth_wire_pack(wire, sums, count, packed);
        fth_wire_unpack(wire, packed, count, sums);
    }
}

void fth_wire_sum(fth_wire wire, const float *const *sources, int source_count, size_t count, float *to)
{
    float sums[BLOCK];
    if (wire == FTH_WIRE_F32 && source_count == 2) {
        add_pair(sources[0], sources[1], count, to);
        return;
    }
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t block = block_length(at, count);
        sum_block(wire, sources, source_count, at, block, sums);
        memcpy(to + at, sums, block * sizeof *sums);
    }
}

void fth_wire_sum_to_all(fth_wire wire, float *const *vectors, int vector_count, size_t count)
{
    float sums[BLOCK];
    if (wire == FTH_WIRE_F32 && vector_count == 2) {
        add_to_both(vectors[0], vectors[1], count);
        return;
    }
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t block = block_length(at, count);
        sum_block(wire, (const float *const *)vectors, vector_count, at, block, sums);
        for (int v = 0; v < vector_count; v++)
            memcpy(vectors[v] + at, sums, block * sizeof *sums);
    }
}
