/* Text in pictures: any name becomes letters that can be drawn and told apart. */
#include "support.h"

#include "data/image/decode.h"
#include "data/image/lettering.h"

static void assert_wrapped(const char *name, const char *expected)
{
    char *text = fth_lettering_wrap(name, 10, 3);
    assert_string_equal(text, expected);
    free(text);
}

#define BOX  "\x7f"
#define DOTS "\x80"

static void names_are_wrapped_and_shortened(void **state)
{
    (void)state;
    assert_wrapped("", "");
    assert_wrapped("cat", "cat");
    assert_wrapped("0123456789", "0123456789");
    assert_wrapped("0123456789a", "0123456789\na");
    assert_wrapped("hunting_dog", "hunting_\ndog"); /* at a separator, if one is near */
    assert_wrapped("a_hunting-dogs", "a_hunting-\ndogs");
    assert_wrapped("0123456789012345678901234567890", "0123456789\n0123456789\n012345678" DOTS);
    assert_wrapped("012345678901234567890123456789", "0123456789\n0123456789\n0123456789");
}

static void other_letters_have_a_likeness_or_a_box(void **state)
{
    (void)state;
    assert_wrapped("Größe Łódź", "Grose Lodz");
    assert_wrapped("e\xcc\x81t\xc3\xa9", "ete"); /* an accent of its own, as macOS has them */
    assert_wrapped("猫cat🐈", BOX "cat" BOX);
    assert_wrapped("a\n\033", "a\\n\\x1b"); /* as everywhere */
    assert_wrapped("caf\xe9", "caf\\xe9");
}

static void texts_are_measured(void **state)
{
    (void)state;
    int columns, lines;
    fth_lettering_measure("ab\nabcd\na", &columns, &lines);
    assert_int_equal(columns, 4);
    assert_int_equal(lines, 3);
}

static void letters_differ_and_stay_in_their_place(void **state)
{
    (void)state;
    enum { SIDE = 24, SCALE = 2, LEFT = 6, TOP = 4, LETTERS = '~' - ' ' + 3 };
    static uint8_t pictures[LETTERS][SIDE * SIDE * FTH_IMAGE_CHANNELS];
    for (int i = 0; i < LETTERS; i++) {
        char text[] = {(char)(' ' + i), '\0'};
        memset(pictures[i], 255, sizeof pictures[i]);
        fth_lettering_draw(text, SCALE, pictures[i], SIDE * FTH_IMAGE_CHANNELS, LEFT, TOP);
        int dark = 0;
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                bool inside =
                    x >= LEFT && x < LEFT + SCALE * FTH_LETTER_WIDTH && y >= TOP && y < TOP + SCALE * FTH_LETTER_HEIGHT;
                bool ink = pictures[i][(y * SIDE + x) * FTH_IMAGE_CHANNELS] < 128;
                assert_true(inside || !ink);
                dark += ink;
            }
        assert_true(i == 0 ? dark == 0 : dark >= 8);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(pictures[i], pictures[j], sizeof pictures[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_wrapped_and_shortened),
        cmocka_unit_test(other_letters_have_a_likeness_or_a_box),
        cmocka_unit_test(texts_are_measured),
        cmocka_unit_test(letters_differ_and_stay_in_their_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
