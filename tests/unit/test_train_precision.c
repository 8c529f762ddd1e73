/* Whether a precision that does not pay says so: once, naming the one that does. */
#include "train/options/precision.h"

#include "support.h"

typedef struct log_lines {
    int count;
    char last[200];
} log_lines;

static void take_line(void *context, fth_log_level level, const char *message)
{
    log_lines *lines = context;
    assert_int_equal(level, FTH_LOG_WARNING);
    lines->count++;
    snprintf(lines->last, sizeof lines->last, "%s", message);
}

static double two_and_a_half(fth_device *device, const fth_graph *graph, int64_t batch, fth_precision precision)
{
    (void)device, (void)graph, (void)batch;
    return precision == FTH_PRECISION_BF16 ? 2.5 : 1;
}

static double one(fth_device *device, const fth_graph *graph, int64_t batch, fth_precision precision)
{
    (void)device, (void)graph, (void)batch, (void)precision;
    return 1;
}

static log_lines advise(unsigned asked, const fth_backend *backend)
{
    log_lines lines = {0};
    fth_device device = {.backend = backend};
    fth_log_set_function(take_line, &lines);
    fth_precision_advise(asked, &device, NULL, 64);
    fth_log_set_function(NULL, NULL);
    return lines;
}

static void a_slower_precision_is_noted(void **state)
{
    (void)state;
    const fth_backend slow = {.relative_time = two_and_a_half}, even = {.relative_time = one}, unknown = {0};
    const log_lines lines = advise(FTH_PRECISION_BF16, &slow);
    assert_int_equal(lines.count, 1);
    assert_string_equal(lines.last,
                        "bf16 is slower than f32 for this network on this CPU (about 2.5 x); --precision f32 is "
                        "faster");
    assert_int_equal(advise(FTH_PRECISION_F32, &slow).count, 0);
    assert_int_equal(advise(FTH_PRECISION_AUTO, &slow).count, 0);
    assert_int_equal(advise(FTH_PRECISION_BF16, &even).count, 0);
    assert_int_equal(advise(FTH_PRECISION_BF16, &unknown).count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_slower_precision_is_noted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
