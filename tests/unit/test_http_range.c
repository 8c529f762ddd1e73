/* Range headers: what they mean, what is ignored, what cannot be satisfied. */
#include "support.h"

#include "http/range.h"

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        uint64_t first, count; /* of a file of 1000 bytes; count 0: 416 */
    } good[] = {
        {"bytes=0-0", 0, 1},
        {"bytes=0-999", 0, 1000},
        {"bytes=10-19", 10, 10},
        {"bytes=10-", 10, 990},
        {"bytes=990-2000", 990, 10},
        {"bytes=-500", 500, 500},
        {"bytes=-1", 999, 1},
        {"bytes=-1000", 0, 1000},
        {"bytes=-5000", 0, 1000},
        {"Bytes= 10-19 ", 10, 10},
        {"bytes=0-99999999999999999999999", 0, 1000},
        {"bytes=-99999999999999999999999", 0, 1000},
        {"bytes=18446744073709551615-", 0, 0},
        {"bytes=1000-", 0, 0},
        {"bytes=1000-2000", 0, 0},
        {"bytes=99999999999999999999999-", 0, 0},
        {"bytes=-0", 0, 0},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(good); i++) {
        fth_range range;
        uint64_t first = 0, count = 0;
        assert_true(fth_range_parse(good[i].header, &range));
        assert_true(fth_range_resolve(&range, 1000, &first, &count) == (good[i].count > 0));
        if (good[i].count > 0) {
            assert_int_equal(first, good[i].first);
            assert_int_equal(count, good[i].count);
        }
        assert_false(fth_range_resolve(&range, 0, &first, &count)); /* of nothing there is no part */
    }
    static const char *const ignored[] = {
        "",           "bytes",      "bytes=",      "bytes=-",     "bytes=a-b",  "bytes=1",
        "bytes=5-4",  "lines=1-2",  "bytes=1-2x",  "bytes=--1",   "bytes=1--2", "bytes=0-1,4-5",
        "bytes=+1-2", "bytes=1-+2", "bytes 1-2",   "bytes=0x1-2", "bytes=1-2,", "bytes=,1-2",
        "1-2",        "bytes=1 -2", "bytes=- 500", "bytes=-500-"};
    for (size_t i = 0; i < FTH_COUNT_OF(ignored); i++) {
        fth_range range;
        assert_false(fth_range_parse(ignored[i], &range));
    }
    assert_false(fth_range_parse(NULL, &(fth_range){0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
