/* What the compiler's vector types cannot express, in AVX-512. Included by vector.h, which
 * documents each function. */
#include <immintrin.h>

INLINE __mmask16 bits_of_first(int64_t count)
{
    return count >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << count) - 1);
}

INLINE void store_past_caches(float *to, vector v)
{
    _mm512_stream_ps(to, (__m512)v);
}

INLINE void finish_stores(void)
{
    _mm_sfence();
}

INLINE vector load_part(const float *from, int64_t count)
{
    return (vector)_mm512_maskz_loadu_ps(bits_of_first(count), from);
}

INLINE void store_part(float *to, vector v, int64_t count)
{
    _mm512_mask_storeu_ps(to, bits_of_first(count), (__m512)v);
}

INLINE vector_mask load_integers_part(const int32_t *from, int64_t count)
{
    return (vector_mask)_mm512_maskz_loadu_epi32(bits_of_first(count), from);
}

INLINE void store_integers_part(int32_t *to, vector_mask v, int64_t count)
{
    _mm512_mask_storeu_epi32(to, bits_of_first(count), (__m512i)v);
}

INLINE vector_mask load_bytes_part(const uint8_t *from, int64_t count)
{
    return (vector_mask)_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(bits_of_first(count), from));
}

INLINE void store_bytes_part(uint8_t *to, vector_mask v, int64_t count)
{
    _mm512_mask_cvtepi32_storeu_epi8(to, bits_of_first(count), (__m512i)v);
}

INLINE vector load_bf16_part(const uint16_t *from, int64_t count)
{
    const __m256i halves = _mm256_maskz_loadu_epi16(bits_of_first(count), from);
    return (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}

#if defined(__AVX512BF16__)
INLINE void store_bf16_part(uint16_t *to, vector v, int64_t count)
{
    _mm256_mask_storeu_epi16(to, bits_of_first(count), (__m256i)_mm512_cvtneps_pbh((__m512)v));
}

INLINE void store_bf16_past_caches(uint16_t *to, vector first, vector second)
{
    _mm512_stream_si512((__m512i *)(void *)to, (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
}
#else
INLINE void store_bf16_part(uint16_t *to, vector v, int64_t count)
{
    _mm512_mask_cvtepi32_storeu_epi16(to, bits_of_first(count), (__m512i)bits_of_bf16(v));
}

INLINE void store_bf16_past_caches(uint16_t *to, vector first, vector second)
{
    const __m256i low = _mm512_cvtepi32_epi16((__m512i)bits_of_bf16(first));
    const __m256i high = _mm512_cvtepi32_epi16((__m512i)bits_of_bf16(second));
    _mm512_stream_si512((__m512i *)(void *)to, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}
#endif

INLINE void store_bf16_bits_part(uint16_t *to, vector v, int64_t count)
{
    _mm512_mask_cvtepi32_storeu_epi16(to, bits_of_first(count), _mm512_srli_epi32((__m512i)v, 16));
}

INLINE vector load_strided_part(const float *from, int64_t stride, int64_t count)
{
    const __m512i places = (__m512i)(LANE_NUMBERS * (int32_t)stride);
    return (vector)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), bits_of_first(count), places, from, sizeof(float));
}

INLINE void store_strided_part(float *to, int64_t stride, vector v, int64_t count)
{
    const __m512i places = (__m512i)(LANE_NUMBERS * (int32_t)stride);
    _mm512_mask_i32scatter_ps(to, bits_of_first(count), places, (__m512)v, sizeof(float));
}

INLINE vector blend(vector_mask where, vector yes, vector no)
{
    enum { FIRST_CHOOSES = 0xca };
    return (vector)_mm512_ternarylogic_epi32((__m512i)where, (__m512i)yes, (__m512i)no, FIRST_CHOOSES);
}

INLINE vector cut_negative(vector v)
{
    return (vector)_mm512_max_ps(_mm512_setzero_ps(), (__m512)v); /* this operand order keeps NaN */
}

INLINE uint32_t bits_of_lanes(vector_mask where)
{
    return _mm512_movepi32_mask((__m512i)where);
}

INLINE vector keep_lanes(vector v, uint32_t bits)
{
    return (vector)_mm512_maskz_mov_ps((__mmask16)bits, (__m512)v);
}

INLINE void challenge(vector value, int32_t index, vector *best, vector_mask *winner)
{
    const __m512 old = (__m512)*best;
    const __mmask16 wins =
        _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(old, old, _CMP_ORD_Q), (__m512)value, old, _CMP_NLE_UQ);
    *best = (vector)_mm512_mask_mov_ps(old, wins, (__m512)value);
    *winner = (vector_mask)_mm512_mask_mov_epi32((__m512i)*winner, wins, _mm512_set1_epi32(index));
}
