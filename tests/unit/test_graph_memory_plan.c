/* The memory plan: areas alive together never overlap, and memory is used again. */
#include "support.h"

#include "graph/graph.h"

static void check_sound(const fth_area *areas, size_t count, size_t arena_bytes)
{
    for (size_t i = 0; i < count; i++) {
        if (areas[i].size_bytes == 0 || areas[i].first_step > areas[i].last_step)
            continue;
        assert_int_equal(areas[i].offset % 64, 0);
        assert_true(areas[i].offset + areas[i].size_bytes <= arena_bytes);
        for (size_t j = 0; j < i; j++) {
            if (areas[j].size_bytes == 0 || areas[j].first_step > areas[j].last_step)
                continue;
            bool together = areas[i].first_step <= areas[j].last_step && areas[j].first_step <= areas[i].last_step;
            bool apart = areas[i].offset + areas[i].size_bytes <= areas[j].offset ||
                         areas[j].offset + areas[j].size_bytes <= areas[i].offset;
            assert_true(!together || apart);
        }
    }
}

static void test_random_areas(void **state)
{
    (void)state;
    enum { COUNT = 300, ROUNDS = 30, STEPS = 100 };
    fth_area areas[COUNT];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        fth_random_key key = fth_random_key_for(round, FTH_RANDOM_GENERATE);
        size_t sum = 0, live[STEPS + 10] = {0}, most_live = 0, arena_bytes = 0;
        for (uint64_t i = 0; i < COUNT; i++) {
            areas[i].size_bytes = fth_random_below(key, 3 * i, 100000);
            areas[i].first_step = (int)fth_random_below(key, 3 * i + 1, STEPS);
            areas[i].last_step = areas[i].first_step + (int)fth_random_below(key, 3 * i + 2, 10) - 1;
            sum += areas[i].size_bytes;
            for (int step = areas[i].first_step; step <= areas[i].last_step; step++)
                live[step] += areas[i].size_bytes;
        }
        for (int step = 0; step < STEPS + 10; step++)
            most_live = live[step] > most_live ? live[step] : most_live;
        assert_int_equal(fth_memory_plan(areas, COUNT, &arena_bytes), FTH_OK);
        check_sound(areas, COUNT, arena_bytes);
        assert_true(arena_bytes >= most_live);
        assert_true(arena_bytes < sum / 4);
        assert_true(arena_bytes < most_live + most_live / 4);
    }
}

static void test_chain_needs_two_areas(void **state)
{
    (void)state;
    fth_area areas[20];
    size_t arena_bytes = 0;
    for (int i = 0; i < 20; i++)
        areas[i] = (fth_area){.size_bytes = 1000, .first_step = i, .last_step = i + 1};
    assert_int_equal(fth_memory_plan(areas, 20, &arena_bytes), FTH_OK);
    check_sound(areas, 20, arena_bytes);
    assert_int_equal(arena_bytes, 2 * 1024);
}

static void test_corners(void **state)
{
    (void)state;
    size_t arena_bytes = 1;
    assert_int_equal(fth_memory_plan(NULL, 0, &arena_bytes), FTH_OK);
    assert_int_equal(arena_bytes, 0);
    fth_area unused[] = {{.size_bytes = 100, .first_step = 3, .last_step = 2}, {.size_bytes = 0, .last_step = 9}};
    assert_int_equal(fth_memory_plan(unused, 2, &arena_bytes), FTH_OK);
    assert_int_equal(arena_bytes, 0);
    fth_area absurd[] = {{.size_bytes = SIZE_MAX / 2, .last_step = 1}, {.size_bytes = SIZE_MAX / 2, .last_step = 1}};
    assert_int_equal(fth_memory_plan(absurd, 2, &arena_bytes), FTH_NO_MEMORY);
    fth_area largest[] = {{.size_bytes = SIZE_MAX, .last_step = 1}};
    assert_int_equal(fth_memory_plan(largest, 1, &arena_bytes), FTH_NO_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_areas),
        cmocka_unit_test(test_chain_needs_two_areas),
        cmocka_unit_test(test_corners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
