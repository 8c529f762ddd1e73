/* The allocator of the batch cache: nothing overlaps, everything that is given back can be taken
 * again, and little is lost between blocks. */
#include "support.h"

#include "batches/memory/space.h"

enum { MEGABYTE = 1 << 20 };

typedef struct taken {
    uint32_t block;
    uint64_t offset, size;
} taken;

static fth_space *make_space(uint64_t size)
{
    fth_space *space = NULL;
    assert_int_equal(fth_space_create(size, &space), FTH_OK);
    return space;
}

static int compare_taken(const void *a, const void *b)
{
    const taken *left = a, *right = b;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

static void assert_apart(taken *blocks, size_t count, uint64_t size)
{
    qsort(blocks, count, sizeof *blocks, compare_taken);
    for (size_t i = 0; i < count; i++)
        assert_true(blocks[i].offset % FTH_SPACE_UNIT == 0 &&
                    blocks[i].offset + blocks[i].size <= (i + 1 < count ? blocks[i + 1].offset : size));
}

static void equal_sizes_fill_all_of_it_again_and_again(void **state)
{
    (void)state;
    enum { BLOCKS = 64 };
    uint32_t blocks[BLOCKS];
    fth_space *space = make_space(BLOCKS * 1000 / 64 * 64 + BLOCKS * 64); /* 1000 bytes take 1024 */
    for (int i = 0; i < BLOCKS; i++)
        assert_true((blocks[i] = fth_space_take(space, 1000)) != FTH_NO_BLOCK);
    for (int round = 0; round < 1000; round++) {
        int which = (int)fth_random_below(fth_random_key_for(1, FTH_RANDOM_GENERATE), (uint64_t)round, BLOCKS);
        fth_space_give_back(space, blocks[which]);
        blocks[which] = fth_space_take(space, 1000);
        assert_true(blocks[which] != FTH_NO_BLOCK);
    }
    for (int i = 0; i < BLOCKS; i++)
        fth_space_give_back(space, blocks[i]);
    assert_int_equal(fth_space_used(space), 0);
    assert_true(fth_space_take(space, BLOCKS * 1024) != FTH_NO_BLOCK); /* they are one block again */
    fth_space_free(space);
}

/* Fills it with sizes of a range, drops at random and fills again; then at least `expected` of it
 * must be in use when a request fails. */
static void check_mixed(uint64_t least, uint64_t most, double expected)
{
    enum { ROUNDS = 20000, MOST_BLOCKS = 4096 };
    const uint64_t size = 4 * MEGABYTE;
    fth_random_key key = fth_random_key_for(least, FTH_RANDOM_GENERATE);
    fth_space *space = make_space(size);
    taken *blocks = calloc(MOST_BLOCKS, sizeof *blocks);
    size_t count = 0;
    double filled = 0;
    int failures = 0;
    assert_non_null(blocks);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t wanted = least + fth_random_below(key, 2 * i, most - least + 1);
        uint32_t block;
        while ((block = fth_space_take(space, wanted)) == FTH_NO_BLOCK) {
            size_t which = fth_random_below(key, 2 * i + 1 + (uint64_t)failures * ROUNDS * 4, count);
            if (i > ROUNDS / 2) { /* once it has had time to break up */
                filled += (double)fth_space_used(space) / (double)size;
                failures++;
            }
            fth_space_give_back(space, blocks[which].block);
            blocks[which] = blocks[--count];
        }
        assert_true(count < MOST_BLOCKS);
        blocks[count++] = (taken){block, fth_space_offset(space, block), fth_space_size(space, block)};
        assert_true(fth_space_size(space, block) >= wanted);
        if (i % 1000 == 0)
            assert_apart(blocks, count, size);
    }
    assert_apart(blocks, count, size);
    assert_true(failures > 100);
    if (filled / failures < expected)
        fail_msg("sizes %d to %d: %.2f in use when a request fails", (int)least, (int)most, filled / failures);
    while (count > 0)
        fth_space_give_back(space, blocks[--count].block);
    assert_int_equal(fth_space_used(space), 0);
    assert_true(fth_space_take(space, size) != FTH_NO_BLOCK);
    free(blocks);
    fth_space_free(space);
}

static void mixed_sizes_leave_little_unused(void **state)
{
    (void)state;
    check_mixed(4096, 4096, 0.99);
    check_mixed(20000, 30000, 0.85);
    check_mixed(1000, 100000, 0.80);
}

static void the_end_of_a_block_can_be_given_back(void **state)
{
    (void)state;
    fth_space *space = make_space(1024);
    uint32_t block = fth_space_take(space, 1024);
    assert_true(fth_space_take(space, 1) == FTH_NO_BLOCK);
    fth_space_shrink(space, block, 100);
    assert_int_equal(fth_space_used(space), 128);
    assert_int_equal(fth_space_size(space, block), 128);
    fth_space_shrink(space, block, 128);
    assert_int_equal(fth_space_used(space), 128);
    uint32_t other = fth_space_take(space, 896);
    assert_int_equal(fth_space_offset(space, other), 128);
    fth_space_free(space);
}

static void given_places_are_taken_in_order(void **state)
{
    (void)state;
    fth_space *space = make_space(4096);
    uint32_t a = fth_space_take_at(space, 128, 64), b = fth_space_take_at(space, 192, 100);
    assert_true(a != FTH_NO_BLOCK && b != FTH_NO_BLOCK);
    assert_true(fth_space_take_at(space, 192, 64) == FTH_NO_BLOCK);  /* overlaps */
    assert_true(fth_space_take_at(space, 0, 64) == FTH_NO_BLOCK);    /* before the last */
    assert_true(fth_space_take_at(space, 1000, 64) == FTH_NO_BLOCK); /* between two units */
    assert_true(fth_space_take_at(space, 4032, 65) == FTH_NO_BLOCK);
    assert_true(fth_space_take_at(space, 1 << 20, 64) == FTH_NO_BLOCK);
    assert_true(fth_space_take_at(space, 4032, UINT64_MAX) == FTH_NO_BLOCK);
    assert_true(fth_space_take_at(space, 4032, 64) != FTH_NO_BLOCK);
    assert_int_equal(fth_space_used(space), 64 + 128 + 64);
    assert_int_equal(fth_space_offset(space, fth_space_take(space, 128)), 0);
    fth_space_give_back(space, a);
    fth_space_give_back(space, b);
    assert_int_equal(fth_space_offset(space, fth_space_take(space, 4032 - 128)), 128);
    fth_space_free(space);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_sizes_fill_all_of_it_again_and_again),
        cmocka_unit_test(mixed_sizes_leave_little_unused),
        cmocka_unit_test(the_end_of_a_block_can_be_given_back),
        cmocka_unit_test(given_places_are_taken_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
