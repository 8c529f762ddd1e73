/* Counter-based random numbers, durations, counts, and the error message. */
#include "support.h"

#include <ctype.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process.h"

static void permutations_are_bijections(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 7, 16, 17, 64, 65, 1000, 4096, 60000};
    for (size_t c = 0; c < FTH_COUNT_OF(counts); c++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            fth_random_key key = fth_random_key_for(seed, FTH_RANDOM_SHUFFLE);
            unsigned char *seen = calloc(counts[c], 1);
            assert_non_null(seen);
            for (uint64_t i = 0; i < counts[c]; i++) {
                uint64_t to = fth_random_permute(key, counts[c], i);
                assert_in_range(to, 0, counts[c] - 1);
                assert_int_equal(seen[to], 0);
                seen[to] = 1;
            }
            free(seen);
        }
    }
}

/* Each of n positions should land in each of n places equally often; and two keys should agree at
 * about one place. */
static void permutations_mix(void **state)
{
    (void)state;
    enum { N = 10, KEYS = 20000 };
    int landed[N][N] = {{0}};
    fth_random_key root = fth_random_key_for(7, FTH_RANDOM_SHUFFLE);
    for (uint64_t k = 0; k < KEYS; k++) {
        fth_random_key key = fth_random_fork(root, k);
        for (uint64_t i = 0; i < N; i++)
            landed[i][fth_random_permute(key, N, i)]++;
    }
    /* binomial with p = 1/10: standard deviation 42, so 200 is nearly five of them */
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++)
            assert_in_range(landed[i][j], KEYS / N - 200, KEYS / N + 200);
    }

    enum { LARGE = 10000 };
    int same = 0;
    for (uint64_t i = 0; i < LARGE; i++)
        same += fth_random_permute(fth_random_fork(root, 1), LARGE, i) ==
                fth_random_permute(fth_random_fork(root, 2), LARGE, i);
    assert_in_range(same, 0, 12);
}

static void permutations_reach_large_counts(void **state)
{
    (void)state;
    fth_random_key key = fth_random_key_for(1, FTH_RANDOM_SHUFFLE);
    uint64_t count = UINT64_C(1) << 40;
    for (uint64_t i = 0; i < 1000; i++)
        assert_true(fth_random_permute(key, count, count - 1 - i) < count);
}

static void normals_have_mean_0_and_variance_1(void **state)
{
    (void)state;
    enum { N = 200000 };
    fth_random_key key = fth_random_key_for(3, FTH_RANDOM_INITIALIZE);
    double sum = 0, squares = 0, cubes = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = fth_random_normal(key, i);
        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
        cubes += x * x * x;
    }
    /* five standard errors: 1/sqrt(N), sqrt(2/N), sqrt(15/N) */
    assert_true(fabs(sum / N) < 5 / sqrt(N));
    assert_true(fabs(squares / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(cubes / N) < 5 * sqrt(15.0 / N));
}

/* Many at once are what each is by itself, as floats; they do not depend on how they are split, nor
 * on the machine. */
static void many_normals_are_each_their_own(void **state)
{
    (void)state;
    enum { N = 20000 };
    static float all[N], pieces[N];
    fth_random_key key = fth_random_key_for(5, FTH_RANDOM_INITIALIZE);
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a over the floats' bits */
    fth_random_fill_normal(key, 3, N, 0.7, all);
    for (uint64_t i = 0; i < N; i++) {
        double x = 0.7 * fth_random_normal(key, 3 + i);
        uint32_t bits;
        assert_true(fabs(all[i] - x) <= 0x1p-24 * fabs(x) + 1e-14); /* half a unit in a float's last place */
        memcpy(&bits, &all[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001b3u;
    }
    assert_true(hash == 0x56b9ea7463f5c3a5u);
    for (size_t begin = 0, size = 1; begin < N; begin += size, size = (size * 7 + 3) % 1700) {
        size_t left = N - begin;
        fth_random_fill_normal(key, 3 + begin, size < left ? size : left, 0.7, pieces + begin);
    }
    assert_memory_equal(all, pieces, sizeof all);
}

static void uniforms_fill_their_range_evenly(void **state)
{
    (void)state;
    enum { N = 100000, BINS = 10 };
    int bins[BINS] = {0}, below[BINS] = {0};
    fth_random_key key = fth_random_key_for(3, FTH_RANDOM_AUGMENT);
    for (uint64_t i = 0; i < N; i++) {
        double x = fth_random_uniform(key, i);
        assert_true(x >= 0 && x < 1);
        bins[(int)(x * BINS)]++;
        below[fth_random_below(key, i, BINS)]++;
    }
    /* binomial: standard deviation 95, so 500 is five of them */
    for (int i = 0; i < BINS; i++) {
        assert_in_range(bins[i], N / BINS - 500, N / BINS + 500);
        assert_in_range(below[i], N / BINS - 500, N / BINS + 500);
    }
}

static void draws_depend_on_every_part_of_the_key(void **state)
{
    (void)state;
    fth_random_key a = fth_random_key_for(1, FTH_RANDOM_SHUFFLE), b = fth_random_key_for(1, FTH_RANDOM_DROPOUT);
    fth_random_key c = fth_random_key_for(2, FTH_RANDOM_SHUFFLE);
    assert_true(fth_random_bits(a, 0) != fth_random_bits(b, 0));
    assert_true(fth_random_bits(a, 0) != fth_random_bits(c, 0));
    assert_true(fth_random_bits(a, 0) != fth_random_bits(a, 1));
    assert_true(fth_random_bits(fth_random_fork(a, 0), 0) != fth_random_bits(fth_random_fork(a, 1), 0));
    assert_true(fth_random_bits(a, 5) == fth_random_bits(fth_random_key_for(1, FTH_RANDOM_SHUFFLE), 5));
}

static void durations_parse_and_print(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double seconds;
    } good[] = {{"250ms", 0.25}, {"30s", 30}, {"10m", 600}, {"2h", 7200}, {"1d", 86400}, {"1.5", 1.5}};
    for (size_t i = 0; i < FTH_COUNT_OF(good); i++) {
        double seconds = 0;
        assert_int_equal(fth_duration_parse(good[i].text, &seconds), FTH_OK);
        assert_true(fabs(seconds - good[i].seconds) < 1e-12);
    }
    static const char *const bad[] = {"", "h", "-3s", "0", "nan", "inf", "3 parsecs", "1e999s", "1e308d"};
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        double seconds = 0;
        assert_int_equal(fth_duration_parse(bad[i], &seconds), FTH_INVALID);
    }
    char text[32];
    fth_duration_format(75, text, sizeof text);
    assert_string_equal(text, "1m15s");
    fth_duration_format(NAN, text, sizeof text);
    assert_string_equal(text, "-");
    fth_duration_format(7260, text, sizeof text);
    assert_string_equal(text, "2h01m");
}

static void failures_nest_their_messages(void **state)
{
    (void)state;
    assert_int_equal(fth_fail(FTH_IO, "disk %d", 3), FTH_IO);
    assert_int_equal(fth_fail_within(FTH_IO, "while saving"), FTH_IO);
    assert_string_equal(fth_error_message(), "while saving: disk 3");
}

static void deadlines_pass(void **state)
{
    (void)state;
    fth_deadline passed = fth_deadline_in(-1), coming = fth_deadline_in(100);
    assert_true(fth_deadline_passed(passed));
    assert_true(fth_deadline_left_seconds(passed) == 0);
    assert_false(fth_deadline_passed(coming));
    assert_true(fth_deadline_left_seconds(coming) > 90);
    struct timespec at = fth_deadline_timespec(coming);
    assert_in_range(at.tv_nsec, 0, 999999999);
    /* Never, and "--for 1e300d": what a wait can be given, and later than all else. */
    double far[] = {INFINITY, 1e300};
    for (size_t i = 0; i < FTH_COUNT_OF(far); i++) {
        struct timespec never = fth_deadline_timespec((fth_deadline){far[i]});
        assert_in_range(never.tv_nsec, 0, 999999999);
        assert_true(never.tv_sec > at.tv_sec + 86400L * 36500);
    }
}

static void hex_digits(void **state)
{
    (void)state;
    const unsigned char bytes[] = {0x00, 0x0f, 0xa5, 0xff};
    char hex[9], sha256[65];
    fth_hex_encode(bytes, sizeof bytes, hex);
    assert_string_equal(hex, "000fa5ff");
    fth_hex_encode(bytes, 0, hex);
    assert_string_equal(hex, "");
    for (int c = -128; c < 128; c++) {
        const char *digits = "0123456789abcdef", *found = c > 0 ? strchr(digits, tolower(c)) : NULL;
        assert_int_equal(fth_hex_digit((char)c), found ? found - digits : -1);
    }
    assert_true(fth_hex_is_valid("00ff", 4));
    assert_false(fth_hex_is_valid("00ff", 3));
    assert_false(fth_hex_is_valid("00fF", 4));
    fth_hex_sha256(NULL, 0, sha256);
    assert_string_equal(sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void processors_are_those_allowed(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_in_range(fth_processors_usable(), 1, fth_processors_online());
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(fth_processors_usable(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(fth_processors_usable(), CPU_COUNT(&before));
}

/* A memset() before free() is what compilers leave out. */
static void wiped_secrets_are_gone(void **state)
{
    (void)state;
    char *secret = test_make_secret();
    assert_int_equal(test_count_secret(), 1);
    fth_wipe_text(secret);
    assert_int_equal(test_count_secret(), 0);
    secret = test_make_secret();
    fth_wipe(secret, TEST_SECRET_LENGTH);
    assert_int_equal(test_count_secret(), 0);
    fth_wipe_text(secret);
    fth_wipe_text(NULL);
}

static void *look_at_signals(void *context)
{
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    *(bool *)context = sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGINT);
    return NULL;
}

static void threads_are_left_alone_by_signals(void **state)
{
    (void)state;
    bool blocked = false;
    pthread_t thread;
    sigset_t here;
    assert_int_equal(fth_thread_start(&thread, "look", look_at_signals, &blocked), 0);
    pthread_join(thread, NULL);
    assert_true(blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &here);
    assert_false(sigismember(&here, SIGTERM));
}

static void *wait_to_end(void *context)
{
    while (!atomic_load((atomic_bool *)context))
        sched_yield();
    return NULL;
}

static void threads_have_names(void **state)
{
    (void)state;
    atomic_bool end = false;
    char name[16] = "";
    pthread_t thread;
    assert_int_equal(fth_thread_start(&thread, "fifteen-letters", wait_to_end, &end), 0);
    assert_int_equal(pthread_getname_np(thread, name, sizeof name), 0);
    atomic_store(&end, true);
    pthread_join(thread, NULL);
    assert_string_equal(name, "fifteen-letters");
}

static void killed_children_are_collected(void **state)
{
    (void)state;
    char *const arguments[] = {"sleep", "1000", NULL};
    pid_t child;
    assert_int_equal(posix_spawnp(&child, "sleep", NULL, NULL, arguments, environ), 0);
    fth_process_kill(child);
    assert_int_equal(waitpid(child, NULL, WNOHANG), -1);
    fth_process_kill(child); /* one that is gone is no reason to wait */
}

static void counts_agree_with_their_nouns(void **state)
{
    (void)state;
    static const struct {
        int64_t count;
        const char *noun, *expected;
    } cases[] = {
        {0, "worker", "0 workers"},
        {1, "worker", "1 worker"},
        {2, "worker", "2 workers"},
        {-1, "step", "-1 steps"},
        {1234567, "image", "1,234,567 images"},
        {1, "worker process", "1 worker process"},
        {3, "worker process", "3 worker processes"},
        {2, "batch", "2 batches"},
        {2, "crash", "2 crashes"},
        {2, "box", "2 boxes"},
        {2, "class", "2 classes"},
        {2, "entry", "2 entries"},
        {2, "key", "2 keys"},
        {1, "more interruption", "1 more interruption"},
        {1000, NULL, "1,000"},
        {-1000, "", "-1,000"},
        {INT64_MIN, NULL, "-9,223,372,036,854,775,808"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++)
        assert_string_equal(FTH_COUNTED(cases[i].count, cases[i].noun), cases[i].expected);
    char small[8];
    assert_string_equal(fth_count_format(12345, "image", small, sizeof small), "12,345 ");
}

static void the_program_is_found_by_its_file(void **state)
{
    (void)state;
    char path[4096], tiny[8];
    assert_string_equal(strrchr(fth_process_program(path, sizeof path), '/'), "/test_base");
    assert_true(fth_file_exists(path));
    assert_string_equal(fth_process_program(tiny, sizeof tiny),
                        "/proc/s"); /* too small for any path: cut, not overrun */
}

static void memory_is_zeroed_checked_and_grows(void **state)
{
    (void)state;
    unsigned char *bytes = NULL;
    assert_int_equal(fth_allocate_aligned(1000, &bytes), FTH_OK);
    assert_int_equal((uintptr_t)bytes % FTH_ALIGNMENT, 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(bytes[i], 0);
    free(bytes);
    void *impossible = NULL;
    assert_int_equal(fth_allocate(SIZE_MAX / 2, 16, &impossible), FTH_NO_MEMORY);
    int *items = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(fth_grow(&items, i, &capacity, sizeof *items), FTH_OK);
        items[i] = (int)i;
    }
    assert_int_equal(items[99], 99);
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutations_are_bijections),
        cmocka_unit_test(permutations_mix),
        cmocka_unit_test(permutations_reach_large_counts),
        cmocka_unit_test(normals_have_mean_0_and_variance_1),
        cmocka_unit_test(many_normals_are_each_their_own),
        cmocka_unit_test(uniforms_fill_their_range_evenly),
        cmocka_unit_test(draws_depend_on_every_part_of_the_key),
        cmocka_unit_test(durations_parse_and_print),
        cmocka_unit_test(failures_nest_their_messages),
        cmocka_unit_test(deadlines_pass),
        cmocka_unit_test(threads_are_left_alone_by_signals),
        cmocka_unit_test(killed_children_are_collected),
        cmocka_unit_test(memory_is_zeroed_checked_and_grows),
        cmocka_unit_test(counts_agree_with_their_nouns),
        cmocka_unit_test(the_program_is_found_by_its_file),
        cmocka_unit_test(threads_have_names),
        cmocka_unit_test(hex_digits),
        cmocka_unit_test(processors_are_those_allowed),
        cmocka_unit_test(wiped_secrets_are_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
