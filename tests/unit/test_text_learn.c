/* Learning a vocabulary from texts. */
#include "support.h"

#include "text/tokenizer.h"

static const char *const texts[] = {
    "low low low low low",  "lower lower",         "newest newest newest newest newest newest",
    "widest widest widest", "Lowest! LOW, zürich",
};

static fth_tokenizer *learn(int size, bool backwards)
{
    fth_vocabulary_learner *learner;
    fth_tokenizer *tokenizer;
    size_t count = FTH_COUNT_OF(texts);
    assert_int_equal(fth_vocabulary_learner_create(&learner), FTH_OK);
    for (size_t i = 0; i < count; i++) {
        const char *text = texts[backwards ? count - 1 - i : i];
        assert_int_equal(fth_vocabulary_learner_add(learner, text, strlen(text)), FTH_OK);
    }
    assert_int_equal(fth_vocabulary_learner_finish(learner, size, &tokenizer), FTH_OK);
    fth_vocabulary_learner_free(learner);
    return tokenizer;
}

/* Worked out by hand: pairs by their counts (es, est: 10; lo, low: 9; those of newest: 6, of
 * widest: 3, of lower: 2), equal ones by the ids of their pieces. */
static void frequent_neighbours_become_pieces(void **state)
{
    (void)state;
    fth_tokenizer *tokenizer = learn(1000, false);
    char *vocabulary = fth_tokenizer_to_vocabulary(tokenizer);
    assert_string_equal(vocabulary, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n!\n,\nl\nn\nw\nz\n##c\n##d\n##e\n##h\n##i\n"
                                    "##o\n##r\n##s\n##t\n##u\n##w\n##es\n##est\nlo\nlow\nne\n##west\nnewest\nwi\n"
                                    "##dest\nwidest\n##er\nlower\n");
    assert_true(fth_tokenizer_is_lower_case(tokenizer));
    assert_int_equal(fth_tokenizer_get_special(tokenizer).mask, 4);
    free(vocabulary);
    fth_tokenizer_free(tokenizer);
}

static void the_order_of_texts_is_no_matter(void **state)
{
    (void)state;
    for (int size = 16; size < 40; size++) {
        fth_tokenizer *forwards = learn(size, false), *backwards = learn(size, true);
        char *first = fth_tokenizer_to_json(forwards), *second = fth_tokenizer_to_json(backwards);
        assert_string_equal(first, second);
        assert_true(fth_tokenizer_size(forwards) <= size);
        free(first);
        free(second);
        fth_tokenizer_free(forwards);
        fth_tokenizer_free(backwards);
    }
}

static void a_small_vocabulary_has_the_frequent_characters(void **state)
{
    (void)state;
    fth_tokenizer *tokenizer = learn(16, false);
    assert_int_equal(fth_tokenizer_size(tokenizer), 16);
    assert_true(fth_tokenizer_find_token(tokenizer, "##e") > 0);
    assert_int_equal(fth_tokenizer_find_token(tokenizer, "z"), -1);
    assert_true(fth_tokenizer_find_token(tokenizer, "##wes") > 0);
    fth_tokenizer_free(tokenizer);
}

static void what_cannot_be_learned_is_refused(void **state)
{
    (void)state;
    fth_vocabulary_learner *learner;
    fth_tokenizer *tokenizer;
    assert_int_equal(fth_vocabulary_learner_create(&learner), FTH_OK);
    assert_int_equal(fth_vocabulary_learner_add(learner, " \n\0", 3), FTH_OK);
    assert_int_equal(fth_vocabulary_learner_finish(learner, 100, &tokenizer), FTH_INVALID);
    assert_message_has("no words");
    assert_int_equal(fth_vocabulary_learner_finish(learner, 5, &tokenizer), FTH_INVALID);
    assert_message_has("from 16");
    fth_vocabulary_learner_free(learner);
}

/* Words of few letters, so that pieces overlap (aaa) and come about in several ways (a + bb, ab +
 * b). */
static void every_word_of_the_texts_can_be_encoded(void **state)
{
    (void)state;
    fth_vocabulary_learner *learner;
    fth_tokenizer *tokenizer;
    char text[20000];
    fth_token_list list = {0};
    size_t first_count;
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof text; i++) {
        random = random * 1664525 + 1013904223;
        text[i] = "aaaabb   "[(random >> 16) % 9];
    }
    assert_int_equal(fth_vocabulary_learner_create(&learner), FTH_OK);
    assert_int_equal(fth_vocabulary_learner_add(learner, text, sizeof text), FTH_OK);
    assert_int_equal(fth_vocabulary_learner_finish(learner, 200, &tokenizer), FTH_OK);
    assert_int_equal(fth_tokenizer_size(tokenizer), 200);
    for (int id = 0; id < 200; id++)
        assert_int_equal(fth_tokenizer_find_token(tokenizer, fth_tokenizer_get_token(tokenizer, id)), id);
    fth_text_pair pair = {.first = text, .first_bytes = sizeof text};
    assert_int_equal(fth_tokenizer_encode(tokenizer, &pair, 0, &list, &first_count), FTH_OK);
    for (size_t i = 0; i < list.count; i++)
        assert_int_not_equal(list.ids[i], fth_tokenizer_get_special(tokenizer).unknown);
    fth_token_list_release(&list);
    fth_tokenizer_free(tokenizer);
    fth_vocabulary_learner_free(learner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequent_neighbours_become_pieces),
        cmocka_unit_test(the_order_of_texts_is_no_matter),
        cmocka_unit_test(a_small_vocabulary_has_the_frequent_characters),
        cmocka_unit_test(what_cannot_be_learned_is_refused),
        cmocka_unit_test(every_word_of_the_texts_can_be_encoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
