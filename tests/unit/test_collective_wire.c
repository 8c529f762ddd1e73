/* Numbers on the wire, against the compiler's f16 and against bf16 by its definition; and memory
 * that is not what was described. */
#include "support.h"

#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collective/shared_memory.h"
#include "collective/wire.h"

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Every number of 16 bits is the same after unpacking and packing. */
static void sixteen_bits_survive(void **state)
{
    (void)state;
    static uint16_t halves[65536], again[65536];
    static float values[65536];
    static const fth_wire wires[] = {FTH_WIRE_F16, FTH_WIRE_BF16};
    for (size_t w = 0; w < FTH_COUNT_OF(wires); w++) {
        assert_int_equal(fth_wire_size(wires[w]), 2);
        for (size_t i = 0; i < FTH_COUNT_OF(halves); i++)
            halves[i] = (uint16_t)i;
        fth_wire_unpack(wires[w], halves, FTH_COUNT_OF(halves), values);
        fth_wire_pack(wires[w], values, FTH_COUNT_OF(halves), again);
        for (size_t i = 0; i < FTH_COUNT_OF(halves); i++) {
            if (isnan(values[i]))
                continue;
            assert_int_equal(again[i], i);
            if (wires[w] == FTH_WIRE_BF16)
                assert_int_equal(bits_of(values[i]), (uint32_t)i << 16);
        }
    }
}

#ifdef __FLT16_MAX__
static void f16_is_the_compilers(void **state)
{
    (void)state;
    enum { BLOCK = 4096 };
    static float values[BLOCK], back[BLOCK];
    static uint16_t halves[BLOCK];
    for (uint64_t begin = 0; begin < 1ull << 32; begin += 997ull * BLOCK) {
        for (size_t i = 0; i < BLOCK; i++)
            values[i] = float_of((uint32_t)(begin + i * 997));
        fth_wire_pack(FTH_WIRE_F16, values, BLOCK, halves);
        fth_wire_unpack(FTH_WIRE_F16, halves, BLOCK, back);
        for (size_t i = 0; i < BLOCK; i++) {
            _Float16 half = (_Float16)values[i];
            uint16_t expected;
            memcpy(&expected, &half, sizeof expected);
            if (isnan(values[i]))
                assert_true(isnan(back[i]));
            else if (halves[i] != expected || back[i] != (float)half)
                fail_msg("%a became %#x, not %#x", (double)values[i], halves[i], expected);
        }
    }
}
#else
static void f16_is_the_compilers(void **state)
{
    (void)state;
    print_message("this compiler has no _Float16\n");
    skip();
}
#endif

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
                 {0x3f807fff, 0x3f80}, {0x7f7fffff, 0x7f80}, {0xff800000, 0xff80}, {0x80000000, 0x8000},
                 {0x00008000, 0x0000}, {0x00018000, 0x0002}, {0x7f800001, 0x7fc0}, {0xffffffff, 0xffff}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        float value = float_of(cases[i].from);
        uint16_t half;
        fth_wire_pack(FTH_WIRE_BF16, &value, 1, &half);
        assert_int_equal(half, cases[i].to);
    }
}

/* Of any number of sources, into one of them too, in their order. */
static void sums_have_the_order_of_their_sources(void **state)
{
    (void)state;
    enum { COUNT = 5003, SOURCES = 6 };
    static float terms[SOURCES][COUNT], expected[COUNT];
    const float *sources[SOURCES];
    for (int n = 1; n <= SOURCES; n++)
        for (int to = 0; to < n; to++) {
            for (size_t i = 0; i < COUNT; i++) {
                for (int s = 0; s < n; s++)
                    terms[s][i] = (float)(i * 31 % 1009) * (s % 2 ? -1e7f : 1.1f) + (float)s;
                expected[i] = terms[0][i];
                for (int s = 1; s < n; s++)
                    expected[i] += terms[s][i];
            }
            for (int s = 0; s < n; s++)
                sources[s] = terms[s];
            fth_wire_sum(FTH_WIRE_F32, sources, n, COUNT, terms[to]);
            assert_memory_equal(terms[to], expected, sizeof expected);
        }
}

/* All vectors get what fth_wire_sum() makes of them. */
static void sums_reach_all_vectors(void **state)
{
    (void)state;
    enum { COUNT = 5003, VECTORS = 5 };
    static float terms[VECTORS][COUNT], expected[COUNT];
    float *vectors[VECTORS];
    static const fth_wire wires[] = {FTH_WIRE_F32, FTH_WIRE_F16, FTH_WIRE_BF16};
    for (size_t w = 0; w < FTH_COUNT_OF(wires); w++)
        for (int n = 1; n <= VECTORS; n++) {
            for (int v = 0; v < n; v++) {
                vectors[v] = terms[v];
                for (size_t i = 0; i < COUNT; i++)
                    terms[v][i] = (float)(i * 31 % 1009) * (v % 2 ? -17.3f : 1.1f) + (float)v;
            }
            fth_wire_sum(wires[w], (const float *const *)vectors, n, COUNT, expected);
            fth_wire_sum_to_all(wires[w], vectors, n, COUNT);
            for (int v = 0; v < n; v++)
                assert_memory_equal(terms[v], expected, sizeof expected);
        }
}

/* ---- memory ---- */

static void memory_is_found_by_its_description(void **state)
{
    (void)state;
    fth_shared_memory *memory = NULL, *view = NULL;
    char place[FTH_SHARED_PLACE];
    assert_int_equal(fth_shared_memory_create(10000, &memory), FTH_OK);
    fth_shared_memory_describe(memory, place);
    assert_int_equal(fth_shared_memory_attach(place, false, &view), FTH_OK);
    assert_int_equal(fth_shared_memory_size(view), 10000);
    char *bytes = fth_shared_memory_get(memory);
    bytes[9999] = 42;
    assert_int_equal(((char *)fth_shared_memory_get(view))[9999], 42);
    fth_shared_memory_free(view);
    fth_shared_memory_free(memory);
    assert_int_equal(fth_shared_memory_attach(place, false, &view), FTH_UNSUPPORTED);
}

/* At the same address, with what it held; who had the old memory has nothing of the new. */
static void memory_can_be_replaced(void **state)
{
    (void)state;
    enum { SIZE = 50000, FROM = 10001, TO = 30003 };
    fth_shared_memory *memory = NULL, *old = NULL, *view = NULL;
    char before[FTH_SHARED_PLACE], after[FTH_SHARED_PLACE];
    assert_int_equal(fth_shared_memory_create(SIZE, &memory), FTH_OK);
    fth_shared_memory_describe(memory, before);
    assert_int_equal(fth_shared_memory_attach(before, true, &old), FTH_OK);
    char *bytes = fth_shared_memory_get(memory), *stale = fth_shared_memory_get(old);
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (char)(i % 101 + 1);

    assert_int_equal(fth_shared_memory_replace(memory, FROM, TO), FTH_OK);
    assert_ptr_equal(fth_shared_memory_get(memory), bytes);
    memset(stale, -1, SIZE);
    for (int i = 0; i < SIZE; i++)
        assert_true(i >= FROM && i < TO ? bytes[i] != -1 : bytes[i] == (char)(i % 101 + 1));
    assert_int_not_equal(fth_shared_memory_attach(before, true, &view), FTH_OK);
    fth_shared_memory_describe(memory, after);
    assert_int_equal(fth_shared_memory_attach(after, true, &view), FTH_OK);
    assert_memory_equal(fth_shared_memory_get(view), bytes, SIZE);
    fth_shared_memory_free(view);
    fth_shared_memory_free(old);
    fth_shared_memory_free(memory);
}

static void other_files_are_not_mapped(void **state)
{
    (void)state;
    fth_shared_memory *memory = NULL, *view = NULL;
    char place[FTH_SHARED_PLACE], wrong[2 * FTH_SHARED_PLACE];
    assert_int_equal(fth_shared_memory_create(10000, &memory), FTH_OK);
    fth_shared_memory_describe(memory, place);
    long process;
    int fd;
    size_t size;
    unsigned long long stamp;
    assert_int_equal(sscanf(place, "%ld %d %zu %llu", &process, &fd, &size, &stamp), 4);

    snprintf(wrong, sizeof wrong, "%ld %d %zu %llu", process, fd, size, stamp ^ 1);
    assert_int_equal(fth_shared_memory_attach(wrong, false, &view), FTH_UNSUPPORTED);
    snprintf(wrong, sizeof wrong, "%ld %d %zu %llu", process, fd, size + 1, stamp);
    assert_int_equal(fth_shared_memory_attach(wrong, false, &view), FTH_UNSUPPORTED);
    int unsealed = memfd_create("farthing-shared", MFD_CLOEXEC); /* its owner could shrink it under our hands */
    assert_int_equal(ftruncate(unsealed, 4096 + 10), 0);
    snprintf(wrong, sizeof wrong, "%ld %d 10 0", process, unsealed);
    assert_int_equal(fth_shared_memory_attach(wrong, false, &view), FTH_UNSUPPORTED);
    close(unsealed);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    snprintf(wrong, sizeof wrong, "%ld %d 10 0", process, file);
    assert_int_equal(fth_shared_memory_attach(wrong, false, &view), FTH_UNSUPPORTED);
    close(file);
    static const char *const nonsense[] = {"", "1 2", "-1 2 3 4", "1 -2 3 4", "1 2 3 4 5", "x"};
    for (size_t i = 0; i < FTH_COUNT_OF(nonsense); i++)
        assert_int_equal(fth_shared_memory_attach(nonsense[i], false, &view), FTH_CORRUPT);
    assert_null(view);
    fth_shared_memory_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_bits_survive),        cmocka_unit_test(f16_is_the_compilers),
        cmocka_unit_test(bf16_rounds_to_nearest_even), cmocka_unit_test(sums_have_the_order_of_their_sources),
        cmocka_unit_test(sums_reach_all_vectors),      cmocka_unit_test(memory_is_found_by_its_description),
        cmocka_unit_test(memory_can_be_replaced),      cmocka_unit_test(other_files_are_not_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
