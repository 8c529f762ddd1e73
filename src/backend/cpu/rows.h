/* Rows of plain matrices in f32 or bf16, for kernels that compute in f32.
 *
 * A bf16 row is widened into a buffer, or narrowed from one, while it is in the nearest cache, so
 * such a kernel is written once, for floats. */
#ifndef FTH_BACKEND_CPU_ROWS_H
#define FTH_BACKEND_CPU_ROWS_H

#include "backend/cpu/cpu_internal.h"

static inline float cpu_from_bf16(uint16_t half)
{
    union {
        uint32_t bits;
        float number;
    } value = {.bits = (uint32_t)half << 16};
    return value.number;
}

/* Rounds to nearest, ties to even. */
static inline uint16_t cpu_to_bf16(float number)
{
    union {
        float number;
        uint32_t bits;
    } value = {.number = number};
    uint32_t rounded = (value.bits + 0x7fffu + ((value.bits >> 16) & 1)) >> 16;
    return (uint16_t)(number != number ? 0x7fc0u : rounded);
}

void cpu_widen(const uint16_t *from, float *to, int64_t count);
void cpu_narrow(const float *from, uint16_t *to, int64_t count);

/* A row-major matrix; data is NULL if an operand is absent. */
typedef struct cpu_rows {
    void *data;
    int64_t features;
    bool bf16;
} cpu_rows;

/* Elements from `at` on: in place, or widened into `buffer`. NULL for an absent operand. */
static inline const float *cpu_read_floats(const cpu_rows *rows, int64_t at, int64_t count, float *buffer)
{
    if (!rows->data)
        return NULL;
    if (!rows->bf16)
        return (const float *)rows->data + at;
    cpu_widen((const uint16_t *)rows->data + at, buffer, count);
    return buffer;
}

/* Where to write elements from `at` on as floats; cpu_end_floats() completes the write. */
static inline float *cpu_begin_floats(const cpu_rows *rows, int64_t at, float *buffer)
{
    return !rows->data ? NULL : rows->bf16 ? buffer : (float *)rows->data + at;
}

static inline void cpu_end_floats(const cpu_rows *rows, int64_t at, int64_t count, const float *written)
{
    if (rows->data && rows->bf16)
        cpu_narrow(written, (uint16_t *)rows->data + at, count);
}

static inline const float *cpu_read_row(const cpu_rows *rows, int64_t row, float *buffer)
{
    return cpu_read_floats(rows, row * rows->features, rows->features, buffer);
}

static inline float *cpu_begin_row(const cpu_rows *rows, int64_t row, float *buffer)
{
    return cpu_begin_floats(rows, row * rows->features, buffer);
}

static inline void cpu_end_row(const cpu_rows *rows, int64_t row, const float *written)
{
    cpu_end_floats(rows, row * rows->features, rows->features, written);
}

/* A node's input as rows in the plan's dtype. */
static inline fth_status cpu_read_rows(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    return cpu_read_plain(plan, value, cpu_compute_dtype(plan), as);
}

/* The same for an output, through cpu_begin_write(). */
static inline fth_status cpu_begin_rows(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    const fth_shape shape = fth_plan_type(plan, value).shape;
    const cpu_format plain = cpu_plain(&shape, cpu_compute_dtype(plan));
    return cpu_begin_write(plan, fth_plan_value_of(plan, value), &plain, as);
}

#endif
