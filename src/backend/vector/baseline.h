/* Portable versions of what the other levels do with intrinsics. Included by vector.h, which
 * documents each function. */

INLINE void store_past_caches(float *to, vector v)
{
    store(to, v);
}

INLINE void finish_stores(void)
{
}

INLINE vector load_part(const float *from, int64_t count)
{
    vector v = {0};
    copy_part(&v, from, 4 * count, VECTOR_BYTES);
    return v;
}

INLINE void store_part(float *to, vector v, int64_t count)
{
    copy_part(to, &v, 4 * count, VECTOR_BYTES);
}

INLINE vector_mask load_integers_part(const int32_t *from, int64_t count)
{
    vector_mask v = {0};
    copy_part(&v, from, 4 * count, VECTOR_BYTES);
    return v;
}

INLINE void store_integers_part(int32_t *to, vector_mask v, int64_t count)
{
    copy_part(to, &v, 4 * count, VECTOR_BYTES);
}

typedef uint8_t vector_bytes __attribute__((vector_size(LANES)));
typedef uint16_t vector_halves __attribute__((vector_size(2 * LANES)));

INLINE vector_mask load_bytes_part(const uint8_t *from, int64_t count)
{
    vector_bytes bytes = {0};
    copy_part(&bytes, from, count, LANES);
    return __builtin_convertvector(bytes, vector_mask);
}

INLINE void store_bytes_part(uint8_t *to, vector_mask v, int64_t count)
{
    const vector_bytes bytes = __builtin_convertvector(v, vector_bytes);
    copy_part(to, &bytes, count, LANES);
}

INLINE vector load_bf16_part(const uint16_t *from, int64_t count)
{
    vector_halves halves = {0};
    copy_part(&halves, from, 2 * count, 2 * LANES);
    return (vector)(__builtin_convertvector(halves, vector_mask) << 16);
}

INLINE void store_bf16_part(uint16_t *to, vector v, int64_t count)
{
    const vector_halves halves = __builtin_convertvector(bits_of_bf16(v), vector_halves);
    copy_part(to, &halves, 2 * count, 2 * LANES);
}

INLINE void store_bf16_bits_part(uint16_t *to, vector v, int64_t count)
{
    const vector_halves halves = __builtin_convertvector((vector_mask)v >> 16, vector_halves);
    copy_part(to, &halves, 2 * count, 2 * LANES);
}

INLINE vector blend(vector_mask where, vector yes, vector no)
{
    return (vector)((where & (vector_mask)yes) | (~where & (vector_mask)no));
}

INLINE vector cut_negative(vector v)
{
    return (vector)(~(v < 0) & (vector_mask)v);
}

INLINE uint32_t bits_of_lanes(vector_mask where)
{
    return (uint32_t)((where[0] & 1) | (where[1] & 2) | (where[2] & 4) | (where[3] & 8));
}
