/* backend/vector/vector.h at the level that this is compiled for: each operation against plain
 * loops. */
#include "support.h"

#include <math.h>

#include "backend/vector/level.h"
#include "backend/vector/vector.h"

enum { GUARD = 7, AREA = LANES + GUARD };

/* What must not be read or written is this. */
static const float untouched = -12345;

static float number(int i)
{
    return (float)((i * 37) % 101) - 50.25f;
}

static void test_parts(void **state)
{
    (void)state;
    for (int count = 0; count <= LANES + 2; count++) {
        const int taken = count < LANES ? count : LANES;
        float from[AREA], to[AREA];
        int32_t integers_from[AREA], integers_to[AREA];
        uint8_t bytes_from[AREA], bytes_to[AREA];
        for (int i = 0; i < AREA; i++) {
            from[i] = number(i);
            integers_from[i] = i * 1000003;
            bytes_from[i] = (uint8_t)(255 - i);
            to[i] = untouched;
            integers_to[i] = 77;
            bytes_to[i] = 77;
        }
        const vector v = load_part(from, count);
        const vector_mask whole = load_integers_part(integers_from, count), small = load_bytes_part(bytes_from, count);
        store_part(to, v, count);
        store_integers_part(integers_to, whole, count);
        store_bytes_part(bytes_to, small, count);
        for (int i = 0; i < LANES; i++) {
            assert_true(v[i] == (i < taken ? from[i] : 0));
            assert_int_equal(whole[i], i < taken ? integers_from[i] : 0);
            assert_int_equal(small[i], i < taken ? bytes_from[i] : 0);
        }
        for (int i = 0; i < AREA; i++) {
            assert_true(to[i] == (i < taken ? from[i] : untouched));
            assert_int_equal(integers_to[i], i < taken ? integers_from[i] : 77);
            assert_int_equal(bytes_to[i], i < taken ? bytes_from[i] : 77);
        }
    }
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Ties go to the even neighbour; what is too large becomes infinite, and NaN stays NaN even where
 * its bits would round away. */
static void test_bf16(void **state)
{
    (void)state;
    static const struct {
        uint32_t bits;
        uint16_t bf16;
    } cases[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
                 {0x80000000, 0x8000}, {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80},
                 {0x7f800001, 0x7fc0}, {0x7fffffff, 0x7fc0}};
    for (size_t c = 0; c < FTH_COUNT_OF(cases); c++)
        for (int count = 0; count <= LANES; count++) {
            float value;
            uint16_t to[AREA];
            memcpy(&value, &cases[c].bits, sizeof value);
            for (int i = 0; i < AREA; i++)
                to[i] = 77;
            store_bf16_part(to, broadcast(value), count);
            for (int i = 0; i < AREA; i++)
                assert_int_equal(to[i], i < count ? cases[c].bf16 : 77);
            const vector back = load_bf16_part(to, count);
            for (int i = 0; i < LANES; i++)
                assert_int_equal(bits_of(back[i]), i < count ? (uint32_t)cases[c].bf16 << 16 : 0);
        }
}

static void test_strides(void **state)
{
    (void)state;
    enum { MOST = 5 };
    for (int stride = 1; stride <= MOST; stride++)
        for (int count = 0; count <= LANES; count++) {
            float from[LANES * MOST], to[LANES * MOST];
            for (int i = 0; i < LANES * MOST; i++) {
                from[i] = number(i);
                to[i] = untouched;
            }
            const vector v = load_strided_part(from, stride, count);
            store_strided_part(to, stride, v, count);
            for (int i = 0; i < LANES; i++)
                assert_true(v[i] == (i < count ? from[i * stride] : 0));
            for (int i = 0; i < LANES * MOST; i++)
                assert_true(to[i] == (i % stride == 0 && i / stride < count ? from[i] : untouched));
        }
}

static void test_arithmetic(void **state)
{
    (void)state;
    assert_true(signbit(broadcast(-0.0f)[LANES - 1]));
    vector a, b;
    for (int i = 0; i < LANES; i++) {
        a[i] = number(i);
        b[i] = number(i + 50);
    }
    a[1] = NAN;
    const vector product = multiply_add(a, b, broadcast(2)), cut = cut_negative(a), chosen = blend(a > b, a, b);
    for (int i = 0; i < LANES; i++) {
        if (i == 1) {
            assert_true(isnan(product[i]) && isnan(cut[i]) && chosen[i] == b[i]);
            continue;
        }
        assert_true(fabsf(product[i] - (a[i] * b[i] + 2)) <= 1e-3f);
        assert_true(cut[i] == (a[i] < 0 ? 0 : a[i]));
        assert_true(chosen[i] == (a[i] > b[i] ? a[i] : b[i]));
    }
}

static void test_shuffles(void **state)
{
    (void)state;
    vector a, b, square[LANES];
    for (int i = 0; i < LANES; i++) {
        a[i] = (float)i;
        b[i] = (float)(LANES + i);
        for (int j = 0; j < LANES; j++)
            square[i][j] = (float)(i * LANES + j);
    }
    const vector even = even_lanes(a, b), odd = odd_lanes(a, b), low = low_pairs(even, odd),
                 high = high_pairs(even, odd);
    transpose(square);
    for (int i = 0; i < LANES; i++) {
        assert_true(even[i] == (float)(2 * i) && odd[i] == (float)(2 * i + 1));
        assert_true(low[i] == a[i] && high[i] == b[i]);
        assert_true(swap_lanes(a, 1)[i] == (float)(i ^ 1) && swap_lanes(a, LANES / 2)[i] == (float)(i ^ LANES / 2));
        for (int j = 0; j < LANES; j++)
            assert_true(square[i][j] == (float)(j * LANES + i));
    }
    assert_true(sum_lanes(a) == (float)(LANES * (LANES - 1) / 2));
}

/* The first maximum wins, the first NaN always does, and -0 does not win against 0. */
static void test_challenge(void **state)
{
    (void)state;
    static const float rows[][4] = {
        {1, 2, 2, 0},     {3, 2, 2, 3}, {NAN, 5, NAN, 7}, {1, NAN, 9, NAN}, {-INFINITY, -INFINITY, NAN, 1},
        {0, -0.0f, 0, -1}};
    static const int winners[] = {1, 0, 0, 1, 2, 0};
    for (size_t r = 0; r < FTH_COUNT_OF(rows); r++) {
        vector best = broadcast(rows[r][0]);
        vector_mask winner = {0};
        for (int i = 1; i < 4; i++)
            challenge(broadcast(rows[r][i]), i, &best, &winner);
        for (int i = 0; i < LANES; i++) {
            assert_int_equal(winner[i], winners[r]);
            assert_int_equal(bits_of(best[i]), bits_of(rows[r][winners[r]]));
        }
    }
}

int main(void)
{
    const fth_vector_level needed = LANES == 16 ? FTH_LEVEL_AVX512 : LANES == 8 ? FTH_LEVEL_AVX2 : FTH_LEVEL_BASELINE;
    if (fth_vector_level_best() < needed) {
        printf("SKIP: this processor lacks %s\n", fth_vector_level_name(needed));
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts),    cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_strides),  cmocka_unit_test(test_arithmetic),
                                       cmocka_unit_test(test_shuffles), cmocka_unit_test(test_challenge)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
