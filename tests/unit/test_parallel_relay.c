/* Lines of several writers, passed on. */
#include "support.h"

#include <fcntl.h>
#include <unistd.h>

#include "parallel/relay.h"

enum { MOST = 16, LONG_LINE = 100000 };

static struct {
    int count;
    char lines[MOST][64];
    size_t long_bytes;
} seen;

static void note(void *context, int number, fth_relay_stream stream, const char *line)
{
    (void)context;
    if (strlen(line) > 50) {
        seen.long_bytes += strlen(line);
        return;
    }
    assert_true(seen.count < MOST);
    snprintf(seen.lines[seen.count++], sizeof seen.lines[0], "%d%c %s", number, stream == FTH_RELAY_OUTPUT ? 'o' : 'm',
             line);
}

static fth_relay *create(int count)
{
    fth_relay *relay = NULL;
    memset(&seen, 0, sizeof seen);
    assert_int_equal(fth_relay_create(count, note, NULL, &relay), FTH_OK);
    return relay;
}

static void say(fth_relay *relay, int number, fth_relay_stream stream, const char *text)
{
    assert_int_equal(write(fth_relay_descriptor(relay, number, stream), text, strlen(text)), (ssize_t)strlen(text));
}

static void lines_come_whole_and_in_order(void **state)
{
    (void)state;
    fth_relay *relay = create(2);
    say(relay, 1, FTH_RELAY_OUTPUT, "one\r\ntw");
    say(relay, 2, FTH_RELAY_MESSAGES, "other\n");
    fth_relay_wait(relay, 10);
    say(relay, 1, FTH_RELAY_OUTPUT, "o\n");
    fth_relay_wait(relay, 10);
    assert_int_equal(seen.count, 3);
    assert_string_equal(seen.lines[0], "1o one");
    assert_string_equal(seen.lines[1], "2m other");
    assert_string_equal(seen.lines[2], "1o two");
    assert_string_equal(fth_relay_last_message(relay, 2), "other");
    assert_string_equal(fth_relay_last_message(relay, 1), "");
    fth_relay_free(relay);
}

static void the_end_of_one_shows_its_rest(void **state)
{
    (void)state;
    fth_relay *relay = create(1);
    say(relay, 1, FTH_RELAY_MESSAGES, "first\nsegmentation fau");
    fth_relay_finish(relay, 1);
    assert_int_equal(seen.count, 2);
    assert_string_equal(seen.lines[1], "1m segmentation fau");
    assert_string_equal(fth_relay_last_message(relay, 1), "segmentation fau");
    say(relay, 1, FTH_RELAY_MESSAGES, "again\n"); /* its successor writes to the same pipe */
    fth_relay_finish(relay, 1);
    assert_string_equal(seen.lines[2], "1m again");
    fth_relay_free(relay);
}

static void an_error_is_remembered(void **state)
{
    (void)state;
    fth_relay *relay = create(1);
    say(relay, 1, FTH_RELAY_MESSAGES, "first\n[b 0] farthing: error: bad data\nhelp is there\n");
    fth_relay_finish(relay, 1);
    assert_string_equal(fth_relay_last_message(relay, 1), "[b 0] farthing: error: bad data");
    say(relay, 1, FTH_RELAY_MESSAGES, "a new life\n");
    fth_relay_finish(relay, 1);
    assert_string_equal(fth_relay_last_message(relay, 1), "a new life");
    fth_relay_free(relay);
}

static void a_wait_without_lines_ends(void **state)
{
    (void)state;
    fth_relay *relay = create(1);
    fth_relay_wait(relay, 0.01);
    fth_relay_finish(relay, 1);
    assert_int_equal(seen.count, 0);
    fth_relay_free(relay);
}

static void a_long_line_is_cut(void **state)
{
    (void)state;
    static char text[LONG_LINE + 1];
    fth_relay *relay = create(1);
    memset(text, 'x', LONG_LINE);
    fcntl(fth_relay_descriptor(relay, 1, FTH_RELAY_OUTPUT), F_SETPIPE_SZ, 2 * LONG_LINE);
    say(relay, 1, FTH_RELAY_OUTPUT, text);
    fth_relay_finish(relay, 1);
    assert_int_equal(seen.long_bytes, LONG_LINE);
    fth_relay_free(relay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_whole_and_in_order),
        cmocka_unit_test(the_end_of_one_shows_its_rest),
        cmocka_unit_test(an_error_is_remembered),
        cmocka_unit_test(a_wait_without_lines_ends),
        cmocka_unit_test(a_long_line_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
