/* Text from outside, made safe to print. */
#include "support.h"

#include <string.h>
#include <unistd.h>

#include "base/base.h"

static void assert_printable(const char *text, const char *expected)
{
    char *safe = fth_printable(text);
    assert_string_equal(safe, expected);
    assert_int_equal(fth_is_printable(text), strcmp(text, expected) == 0);
    assert_true(fth_is_printable(safe));
    free(safe);
}

static void ordinary_text_stays(void **state)
{
    (void)state;
    assert_printable("", "");
    assert_printable("a b\\n~", "a b\\n~");
    assert_printable("Bär 猫 🐈 שלום مرحبا", "Bär 猫 🐈 שלום مرحبا");
    assert_printable("\xc2\xa0\xf4\x8f\xbf\xbf", "\xc2\xa0\xf4\x8f\xbf\xbf"); /* the first after C1, and the last */
}

static void what_a_terminal_obeys_is_escaped(void **state)
{
    (void)state;
    assert_printable("\033]0;owned\007x", "\\x1b]0;owned\\x07x");
    assert_printable("a\nb\rc\td\x7f", "a\\nb\\rc\\td\\u007f");
    assert_printable("\xc2\x9b"
                     "2J\xc2\x85",
                     "\\u009b2J\\u0085"); /* C1 as UTF-8 */
    assert_printable("cat\xe2\x80\xaegpj.exe", "cat\\u202egpj.exe");
    assert_printable("\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa\xe2\x81\xa6\xe2\x81\xa9",
                     "\\u2028\\u2029\\u202a\\u2066\\u2069");
    assert_printable("\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xaa", "\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xaa"); /* beside them */
}

static void bytes_that_are_not_utf8_are_escaped(void **state)
{
    (void)state;
    assert_printable("caf\xe9", "caf\\xe9");
    assert_printable("\x9b"
                     "2J",
                     "\\x9b2J");                                           /* C1 as a byte */
    assert_printable("\xc1\x9b\xe0\x80\x9b", "\\xc1\\x9b\\xe0\\x80\\x9b"); /* overlong */
    assert_printable("\xed\xa0\x80", "\\xed\\xa0\\x80");                   /* a surrogate */
    assert_printable("\xf4\x90\x80\x80\xff", "\\xf4\\x90\\x80\\x80\\xff"); /* beyond the last */
    assert_printable("\xe2\x80", "\\xe2\\x80");                            /* cut off */
}

static void json_text_keeps_control_characters(void **state)
{
    (void)state;
    char *text = fth_text_to_utf8("a\n\033\xe9 Bär");
    assert_string_equal(text, "a\n\033\\xe9 Bär");
    free(text);
}

/* Characters and escapes that do not fit are left off whole. */
static size_t format_into(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t length = fth_printable_format(text, size, format, arguments);
    va_end(arguments);
    return length;
}

static void what_does_not_fit_is_left_off(void **state)
{
    (void)state;
    char text[8], lengthy[5000], result[8192];
    assert_int_equal(format_into(text, sizeof text, "ab%s", "cd\033"), 4);
    assert_string_equal(text, "abcd");
    assert_int_equal(format_into(text, sizeof text, "%s", "abc\033"), 7);
    assert_string_equal(text, "abc\\x1b");
    assert_int_equal(format_into(text, sizeof text, "%s", "abcdeä猫"), 7);
    assert_string_equal(text, "abcdeä");
    for (size_t ahead = 0; ahead < 4; ahead++) { /* the format's own buffer may end within a character */
        memset(lengthy, 'x', ahead);
        for (size_t i = ahead; i + 4 < sizeof lengthy; i += 4)
            memcpy(lengthy + i, "🐈", 5);
        size_t length = format_into(result, sizeof result, "%s", lengthy);
        assert_true(fth_is_printable(result) && !strchr(result, '\\') && length > 4000);
    }
}

static void failures_are_one_printable_line(void **state)
{
    (void)state;
    fth_set_error("read %s: %d", "a\nb\033[2J\xff", 7);
    assert_string_equal(fth_error_message(), "read a\\nb\\x1b[2J\\xff: 7");
    assert_int_equal(fth_fail_within(FTH_INVALID, "in \r%s", "x"), FTH_INVALID);
    assert_string_equal(fth_error_message(), "in \\rx: read a\\nb\\x1b[2J\\xff: 7");
}

static void log_lines_are_one_printable_line(void **state)
{
    (void)state;
    char read_back[256];
    int ends[2], kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    fth_log_warning("%s", "a\r\033[K\nfarthing: all is well");
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    ssize_t length = read(ends[0], read_back, sizeof read_back - 1);
    assert_true(length > 0);
    read_back[length] = '\0';
    assert_string_equal(read_back, "farthing: warning: a\\r\\x1b[K\\nfarthing: all is well\n");
    close(ends[0]);
    close(ends[1]);
    close(kept);
}

static void printing_escapes_all_but_the_end_of_the_line(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *output = open_memstream(&text, &size);
    assert_non_null(output);
    fth_print(output, "%s;", "a\n");
    fth_print_line(output, "%s", "Bär\033");
    fclose(output);
    assert_string_equal(text, "a\\n;Bär\\x1b\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordinary_text_stays),
        cmocka_unit_test(what_a_terminal_obeys_is_escaped),
        cmocka_unit_test(bytes_that_are_not_utf8_are_escaped),
        cmocka_unit_test(json_text_keeps_control_characters),
        cmocka_unit_test(what_does_not_fit_is_left_off),
        cmocka_unit_test(failures_are_one_printable_line),
        cmocka_unit_test(log_lines_are_one_printable_line),
        cmocka_unit_test(printing_escapes_all_but_the_end_of_the_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
