/* Shared memory as a cache: the same calls as for any other. */
#include "support.h"

#include "test_batches_entries.h"

typedef struct shm_fixture {
    fth_board *board;
    fth_segment_cache *segment;
    fth_cache *cache;
} shm_fixture;

static int set_up(void **state)
{
    static shm_fixture fixture;
    fth_cache_options options = {0};
    assert_int_equal(fth_board_create(&fixture.board), FTH_OK);
    assert_int_equal(fth_segment_create(1 << 20, fixture.board, &fixture.segment), FTH_OK);
    options.segment = fixture.segment;
    assert_int_equal(fth_cache_open("shm", &options, &fixture.cache), FTH_OK);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    shm_fixture *fixture = *state;
    fth_cache_free(fixture->cache);
    fth_segment_free(fixture->segment);
    fth_board_free(fixture->board);
    return 0;
}

static void entries_come_back_as_they_were(void **state)
{
    shm_fixture *fixture = *state;
    fth_item_id gone[] = {id_of(0), id_of(1), id_of(1000)};
    assert_string_equal(fth_cache_name(fixture->cache), "shm");
    assert_ptr_equal(fth_cache_segment(fixture->cache), fixture->segment);
    put_range(fixture->cache, 0, 50);
    assert_int_equal(get_range(fixture->cache, 0, 100, NULL), 50);
    assert_int_equal(count_all(fixture->cache), 50);
    assert_int_equal(fth_cache_remove(fixture->cache, gone, 3), FTH_OK);
    assert_int_equal(get_range(fixture->cache, 0, 100, NULL), 48);
}

static void room_is_limited_and_can_be_given_up(void **state)
{
    shm_fixture *fixture = *state;
    void *entry = NULL;
    for (int i = 0; i < 100; i++) { /* each time the same room */
        assert_int_equal(fth_cache_begin(fixture->cache, 600 << 10, &entry), FTH_OK);
        fth_cache_cancel(fixture->cache, entry);
    }
    assert_int_equal(fth_cache_begin(fixture->cache, 2 << 20, &entry), FTH_NO_SPACE);
    fth_cache_cancel(fixture->cache, NULL);
}

static void it_needs_a_segment(void **state)
{
    fth_cache *cache = NULL;
    (void)state;
    assert_int_equal(fth_cache_open("shm", &(fth_cache_options){0}, &cache), FTH_INVALID);
    assert_null(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(entries_come_back_as_they_were, set_up, tear_down),
        cmocka_unit_test_setup_teardown(room_is_limited_and_can_be_given_up, set_up, tear_down),
        cmocka_unit_test(it_needs_a_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
