/* Images on the local disk: whole or absent, oldest first, several at once. */
#include "support.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>

#include "data/archive/disk_cache.h"

static char folder[TEST_MAX_PATH];

static int make_folder(void **state)
{
    int failure = test_make_folder(state);
    test_path(folder, "kept");
    return failure;
}

static fth_disk_cache *open_cache(uint64_t limit_bytes)
{
    fth_disk_cache *cache = NULL;
    assert_int_equal(fth_disk_cache_open(folder, limit_bytes, &cache), FTH_OK);
    return cache;
}

static void keep(fth_disk_cache *cache, int number, size_t size_bytes)
{
    char what[32], *bytes = malloc(size_bytes);
    snprintf(what, sizeof what, "number %d", number);
    memset(bytes, number, size_bytes);
    fth_disk_cache_keep(cache, what, bytes, size_bytes);
    free(bytes);
}

static bool has(fth_disk_cache *cache, int number, size_t size_bytes)
{
    char what[32];
    fth_pixel_buffer buffer = {0};
    size_t found_bytes = 0;
    snprintf(what, sizeof what, "number %d", number);
    bool found = fth_disk_cache_find(cache, what, &buffer, &found_bytes);
    if (found) {
        assert_int_equal(found_bytes, size_bytes);
        for (size_t i = 0; i < size_bytes; i++)
            assert_int_equal(buffer.bytes[i], (uint8_t)number);
    }
    free(buffer.bytes);
    return found;
}

static void run(const char *command)
{
    char line[TEST_MAX_PATH + 400];
    snprintf(line, sizeof line, "cd %s && %s", folder, command);
    assert_int_equal(system(line), 0);
}

static void what_is_kept_is_found(void **state)
{
    (void)state;
    fth_disk_cache *cache = open_cache(1 << 20), *other = open_cache(1 << 20);
    assert_false(has(cache, 1, 100));
    keep(cache, 1, 100);
    keep(cache, 2, 9000);
    keep(cache, 3, 0);
    keep(cache, 1, 100); /* again: the same */
    assert_true(has(cache, 1, 100) && has(other, 2, 9000) && has(cache, 3, 0));
    fth_disk_cache_free(other);
    fth_disk_cache_free(cache);
    cache = open_cache(1 << 20);
    assert_true(has(cache, 1, 100));
    fth_disk_cache_free(cache);
}

static void torn_files_are_misses(void **state)
{
    (void)state;
    static const char *const ways[] = {"truncate -s 1000 $f", "truncate -s 0 $f", "truncate -s +1 $f",
                                       "printf x | dd of=$f bs=1 seek=500 conv=notrunc 2>/dev/null",
                                       "printf x | dd of=$f bs=1 seek=12 conv=notrunc 2>/dev/null"};
    for (size_t i = 0; i < FTH_COUNT_OF(ways); i++) {
        char command[300];
        fth_disk_cache *cache = open_cache(1 << 20);
        keep(cache, 1, 5000);
        snprintf(command, sizeof command, "f=$(find . -type f -name '[0-9a-f]*') && %s", ways[i]);
        run(command);
        assert_false(has(cache, 1, 5000));
        run("test -z \"$(find . -type f -name '[0-9a-f]*')\""); /* and gone */
        keep(cache, 1, 5000);
        assert_true(has(cache, 1, 5000));
        fth_disk_cache_free(cache);
    }
}

/* Each of 4096 bytes with its header. */
enum { ONE = 4000, COST = 4096 };

static void the_oldest_go_first(void **state)
{
    (void)state;
    fth_disk_cache *cache = open_cache(40 * COST);
    for (int i = 0; i < 40; i++) {
        char command[200];
        keep(cache, i, ONE);
        snprintf(command, sizeof command,
                 "find . -type f -name '[0-9a-f]*' -mmin -10 -exec touch -d '2020-01-01 00:%02d' {} +", i);
        run(command);
    }
    fth_disk_cache_free(cache);
    cache = open_cache(40 * COST);
    assert_true(has(cache, 0, ONE)); /* the oldest, but in use now */
    keep(cache, 100, ONE);
    assert_true(has(cache, 0, ONE) && has(cache, 100, ONE) && has(cache, 39, ONE));
    assert_false(has(cache, 1, ONE)); /* with room for some more */
    for (int i = 101; i < 200; i++)
        keep(cache, i, ONE);
    int kept = 0;
    for (int i = 0; i < 200; i++)
        kept += has(cache, i, ONE);
    assert_int_equal(kept, 40); /* the limit holds */
    assert_true(has(cache, 0, ONE) && has(cache, 100, ONE) && has(cache, 120, ONE));
    assert_false(has(cache, 199, ONE)); /* what is in use stays, and the rest is not kept */
    fth_disk_cache_free(cache);
}

static void a_smaller_limit_is_kept_to(void **state)
{
    (void)state;
    fth_disk_cache *cache = open_cache(100 * COST);
    for (int i = 0; i < 50; i++)
        keep(cache, i, ONE);
    run("find . -type f -name '[0-9a-f]*' -exec touch -d '2020-01-01' {} +");
    fth_disk_cache_free(cache);
    cache = open_cache(10 * COST);
    keep(cache, 100, ONE);
    run("test $(find . -type f -name '[0-9a-f]*' | wc -l) -le 10");
    assert_true(has(cache, 100, ONE));
    fth_disk_cache_free(cache);
    cache = open_cache(COST - 1);
    keep(cache, 101, ONE); /* larger than the whole */
    assert_false(has(cache, 101, ONE));
    fth_disk_cache_free(cache);
}

static void leftovers_are_swept(void **state)
{
    (void)state;
    fth_disk_cache *cache = open_cache(1 << 20);
    keep(cache, 1, ONE);
    run("d=$(ls | head -1) && printf x > $d/.tmp-1-1 && touch -d '2020-01-01' $d/.tmp-1-1 && printf x > $d/.tmp-1-2");
    fth_disk_cache_free(cache);
    cache = open_cache(1 << 20);
    keep(cache, 2, ONE);
    run("test $(find . -name '.tmp-*' | wc -l) = 1");
    fth_disk_cache_free(cache);
}

static void what_links_lead_to_stays(void **state)
{
    (void)state;
    fth_disk_cache *cache = open_cache(10 * COST);
    keep(cache, 1, ONE);
    run("rm -rf ../elsewhere && mv $(ls | head -1) ../elsewhere && touch -d '2020-01-01' ../elsewhere/* "
        "../elsewhere/.tmp-1-1");
    run("for i in $(seq 0 255); do ln -s ../elsewhere $(printf %02x $i); done");
    fth_disk_cache_free(cache);
    cache = open_cache(COST);
    keep(cache, 2, ONE); /* makes room for it */
    run("test $(ls -A ../elsewhere | wc -l) -ge 2 && test -e ../elsewhere/.tmp-1-1");
    fth_disk_cache_free(cache);
}

static void a_full_disk_is_no_error(void **state)
{
    (void)state;
    fth_disk_cache *cache = open_cache(1 << 20);
    keep(cache, 1, ONE);
    run("rm -rf * && for i in $(seq 0 255); do touch $(printf %02x $i); done"); /* no folder can be made */
    keep(cache, 2, ONE);
    assert_false(has(cache, 2, ONE));
    fth_disk_cache_free(cache);
    test_write_text("file", "x");
    char path[TEST_MAX_PATH];
    assert_int_not_equal(fth_disk_cache_open(test_path(path, "file"), 1 << 20, &cache), FTH_OK);
}

static void *keep_many(void *argument)
{
    fth_disk_cache *cache = argument;
    for (int i = 0; i < 200; i++) {
        keep(cache, i, ONE);
        (void)has(cache, (i * 7) % 200, ONE);
    }
    return NULL;
}

static void threads_and_processes_share_it(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    fth_disk_cache *caches[2] = {open_cache(60 * COST), open_cache(60 * COST)};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_many, caches[i % 2]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    /* Each of the two may overrun by a sixteenth, and its two threads by what they were writing. */
    run("n=$(find . -type f -name '[0-9a-f]*' | wc -l) && test $n -gt 30 && test $n -le 74");
    for (int i = 0; i < 200; i++)
        (void)has(caches[0], i, ONE); /* whole, if it is there */
    fth_disk_cache_free(caches[0]);
    fth_disk_cache_free(caches[1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, test_remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_kept_is_found),    TEST(torn_files_are_misses),
        TEST(the_oldest_go_first),      TEST(a_smaller_limit_is_kept_to),
        TEST(leftovers_are_swept),      TEST(a_full_disk_is_no_error),
        TEST(what_links_lead_to_stays), TEST(threads_and_processes_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
