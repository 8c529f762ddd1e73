/* What the compiler's vector types cannot express, in AVX2. Included by vector.h, which documents
 * each function. */
#include <immintrin.h>

INLINE vector_mask first_lanes(int64_t count)
{
    return LANE_NUMBERS < (count < LANES ? (int32_t)count : LANES);
}

INLINE void store_past_caches(float *to, vector v)
{
    _mm256_stream_ps(to, (__m256)v);
}

INLINE void finish_stores(void)
{
    _mm_sfence();
}

INLINE vector load_part(const float *from, int64_t count)
{
    return (vector)_mm256_maskload_ps(from, (__m256i)first_lanes(count));
}

/* Avoids masked stores, which are ten times slower on AMD processors. */
INLINE void store_part(float *to, vector v, int64_t count)
{
    if (count >= LANES) {
        store(to, v);
        return;
    }
    __m128 left = _mm256_castps256_ps128((__m256)v);
    if (count & 4) {
        _mm_storeu_ps(to, left);
        left = _mm256_extractf128_ps((__m256)v, 1);
        to += 4;
    }
    if (count & 2) {
        memcpy(to, &left, 8);
        left = _mm_movehl_ps(left, left);
        to += 2;
    }
    if (count & 1)
        memcpy(to, &left, 4);
}

INLINE vector_mask load_integers_part(const int32_t *from, int64_t count)
{
    return (vector_mask)_mm256_maskload_epi32(from, (__m256i)first_lanes(count));
}

INLINE void store_integers_part(int32_t *to, vector_mask v, int64_t count)
{
    store_part((float *)to, (vector)v, count);
}

INLINE vector_mask load_bytes_part(const uint8_t *from, int64_t count)
{
    uint64_t bytes = 0;
    copy_part(&bytes, from, count, LANES);
    return (vector_mask)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
}

INLINE void store_bytes_part(uint8_t *to, vector_mask v, int64_t count)
{
    const __m128i low = _mm256_castsi256_si128((__m256i)v), high = _mm256_extracti128_si256((__m256i)v, 1);
    const __m128i words = _mm_packus_epi32(low, high);
    const uint64_t bytes = (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(words, words));
    copy_part(to, &bytes, count, LANES);
}

INLINE vector load_bf16_part(const uint16_t *from, int64_t count)
{
    __m128i halves = _mm_setzero_si128();
    copy_part(&halves, from, 2 * count, 2 * LANES);
    return (vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
}

INLINE void store_bf16_part(uint16_t *to, vector v, int64_t count)
{
    const __m256i bits = (__m256i)bits_of_bf16(v);
    const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    copy_part(to, &halves, 2 * count, 2 * LANES);
}

INLINE void store_bf16_bits_part(uint16_t *to, vector v, int64_t count)
{
    const __m256i bits = _mm256_srli_epi32((__m256i)v, 16);
    const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    copy_part(to, &halves, 2 * count, 2 * LANES);
}

INLINE vector blend(vector_mask where, vector yes, vector no)
{
    return (vector)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)where);
}

INLINE vector cut_negative(vector v)
{
    return (vector)_mm256_max_ps(_mm256_setzero_ps(), (__m256)v); /* this operand order keeps NaN */
}

INLINE uint32_t bits_of_lanes(vector_mask where)
{
    return (uint32_t)_mm256_movemask_ps((__m256)where);
}
