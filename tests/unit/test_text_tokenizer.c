/* Texts to tokens: words, pieces, special tokens, cutting, files. tests/interop/test_tokenizer.py
 * compares with Hugging Face's `tokenizers`; expectations here were checked with it. */
#include "support.h"

#include "text/tokenizer.h"

static const char vocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
                                 "the\nun\n##aff\n##able\n##ing\nrun\n##n\n.\n,\n[\n]\n"
                                 "a\n##a\nb\n##b\nc\n##c\nsep\nnaive\ncafe\n中\n国\ni\n##i\n";

static fth_tokenizer *open_text(const char *text)
{
    char path[TEST_MAX_PATH];
    fth_tokenizer *tokenizer;
    test_write_text("vocab.txt", text);
    assert_int_equal(fth_tokenizer_open(test_path(path, "vocab.txt"), &tokenizer), FTH_OK);
    return tokenizer;
}

/* The tokens of a text, joined by spaces. */
static char *encode_bytes(const fth_tokenizer *tokenizer, const char *text, size_t size, const char *second,
                          int longest)
{
    fth_token_list list = {0};
    size_t first_count = 0;
    static char joined[4096];
    fth_text_pair pair = {
        .first = text, .first_bytes = size, .second = second, .second_bytes = second ? strlen(second) : 0};
    assert_int_equal(fth_tokenizer_encode(tokenizer, &pair, longest, &list, &first_count), FTH_OK);
    joined[0] = '\0';
    for (size_t i = 0; i < list.count; i++) {
        if (i == first_count)
            strcat(joined, "| ");
        strcat(joined, fth_tokenizer_get_token(tokenizer, list.ids[i]));
        strcat(joined, i + 1 < list.count ? " " : "");
    }
    fth_token_list_release(&list);
    return joined;
}

#define encode(tokenizer, text)                       encode_bytes(tokenizer, text, strlen(text), NULL, 0)
#define encode_pair(tokenizer, text, second, longest) encode_bytes(tokenizer, text, strlen(text), second, longest)

static void words_become_their_longest_pieces(void **state)
{
    (void)state;
    fth_tokenizer *tokenizer = open_text(vocabulary);
    assert_string_equal(encode(tokenizer, "The unaffable, running."),
                        "[CLS] the un ##aff ##able , run ##n ##ing . [SEP]");
    assert_string_equal(encode(tokenizer, "abc cab"), "[CLS] a ##b ##c c ##a ##b [SEP]");
    assert_string_equal(encode(tokenizer, "theab thex the"), "[CLS] the ##a ##b [UNK] the [SEP]");
    assert_string_equal(encode(tokenizer, ""), "[CLS] [SEP]");
    fth_tokenizer_free(tokenizer);
}

static void text_is_normalized(void **state)
{
    (void)state;
    fth_tokenizer *tokenizer = open_text(vocabulary);
    assert_string_equal(encode(tokenizer, "NAÏVE Cafe\u0301"), "[CLS] naive cafe [SEP]");
    assert_string_equal(encode(tokenizer, "中国a"), "[CLS] 中 国 a [SEP]");
    assert_string_equal(encode(tokenizer, "a\u200bb\u00a0c\ta"), "[CLS] a ##b c a [SEP]");
    assert_string_equal(encode(tokenizer, "\u0130"), "[CLS] i [SEP]"); /* a capital I with a dot */
    assert_string_equal(encode_bytes(tokenizer,
                                     "a\0b\xff"
                                     "c",
                                     5, NULL, 0),
                        "[CLS] a ##b ##c [SEP]");
    fth_tokenizer_free(tokenizer);
}

static void long_words_are_unknown(void **state)
{
    (void)state;
    fth_tokenizer *tokenizer = open_text(vocabulary);
    enum { LONG = 1 << 20 };
    char *text = malloc(LONG);
    memset(text, 'a', LONG);
    assert_string_equal(encode_bytes(tokenizer, text, 101, NULL, 0), "[CLS] [UNK] [SEP]");
    assert_string_equal(encode_bytes(tokenizer, text, LONG, NULL, 0), "[CLS] [UNK] [SEP]");
    text[101] = ' ';
    assert_string_equal(encode_bytes(tokenizer, text + 99, LONG - 99, NULL, 0), "[CLS] a ##a [UNK] [SEP]");
    for (int i = 1; i + 1 < LONG; i += 2) /* one letter under many accents */
        memcpy(text + i, "\xcc\x81", 2);
    assert_string_equal(encode_bytes(tokenizer, text, LONG - 1, NULL, 0), "[CLS] a [SEP]");
    free(text);
    fth_tokenizer_free(tokenizer);
}

static void special_tokens_are_found_in_text(void **state)
{
    (void)state;
    fth_tokenizer *tokenizer = open_text(vocabulary);
    fth_special_tokens special = fth_tokenizer_get_special(tokenizer);
    assert_int_equal(special.padding, 0);
    assert_int_equal(special.unknown, 1);
    assert_int_equal(special.begin, 2);
    assert_int_equal(special.separator, 3);
    assert_int_equal(special.mask, 4);
    assert_string_equal(encode(tokenizer, "a[SEP]b[[MASK]c"), "[CLS] a [SEP] b [ [MASK] c [SEP]");
    assert_string_equal(encode(tokenizer, "[sep] [SEP"), "[CLS] [ sep ] [ sep [SEP]");
    fth_tokenizer_free(tokenizer);
}

static void texts_are_cut(void **state)
{
    (void)state;
    fth_tokenizer *tokenizer = open_text(vocabulary);
    fth_token_list list = {0};
    size_t first_count;
    fth_text_pair pair = {.first = "a", .first_bytes = 1, .second = "b", .second_bytes = 1};
    assert_string_equal(encode_pair(tokenizer, "a b c abc", NULL, 6), "[CLS] a b c a [SEP]");
    assert_string_equal(encode_pair(tokenizer, "a b c abc", NULL, 2), "[CLS] [SEP]");
    assert_string_equal(encode_pair(tokenizer, "a b", "c", 0), "[CLS] a b [SEP] | c [SEP]");
    assert_string_equal(encode_pair(tokenizer, "a b", "", 128), "[CLS] a b [SEP] | [SEP]");
    assert_string_equal(encode_pair(tokenizer, "a b c a", "b", 6), "[CLS] a b [SEP] | b [SEP]");
    assert_string_equal(encode_pair(tokenizer, "a", "b c b c", 6), "[CLS] a [SEP] | b c [SEP]");
    assert_string_equal(encode_pair(tokenizer, "a a a a", "b b b b b", 8), "[CLS] a a [SEP] | b b b [SEP]");
    assert_string_equal(encode_pair(tokenizer, "a a a a a", "b b b b", 8), "[CLS] a a a [SEP] | b b [SEP]");
    assert_int_equal(fth_tokenizer_encode(tokenizer, &pair, 2, &list, &first_count), FTH_INVALID);
    assert_message_has("no room for text");
    fth_tokenizer_free(tokenizer);
}

static void a_list_keeps_what_it_had(void **state)
{
    (void)state;
    fth_tokenizer *tokenizer = open_text(vocabulary);
    fth_token_list list = {0};
    size_t first_count;
    fth_text_pair texts[] = {{.first = "a", .first_bytes = 1},
                             {.first = "b b b", .first_bytes = 5, .second = "c", .second_bytes = 1}};
    assert_int_equal(fth_tokenizer_encode(tokenizer, &texts[0], 8, &list, &first_count), FTH_OK);
    assert_int_equal(first_count, 3);
    assert_int_equal(fth_tokenizer_encode(tokenizer, &texts[1], 6, &list, &first_count), FTH_OK);
    assert_int_equal(first_count, 4);
    assert_int_equal(list.count, 9);
    const char *const expected[] = {"[CLS]", "a", "[SEP]", "[CLS]", "b", "b", "[SEP]", "c", "[SEP]"};
    for (size_t i = 0; i < 9; i++)
        assert_string_equal(fth_tokenizer_get_token(tokenizer, list.ids[i]), expected[i]);
    fth_token_list_release(&list);
    fth_tokenizer_free(tokenizer);
}

static void case_is_kept_where_the_vocabulary_or_its_config_says_so(void **state)
{
    (void)state;
    fth_tokenizer *tokenizer = open_text("[UNK]\n[CLS]\n[SEP]\nThe\nthe\n");
    assert_false(fth_tokenizer_is_lower_case(tokenizer));
    assert_string_equal(encode(tokenizer, "The the Thé"), "[CLS] The the [UNK] [SEP]");
    assert_int_equal(fth_tokenizer_get_special(tokenizer).padding, -1);
    fth_tokenizer_free(tokenizer);
    test_write_text("tokenizer_config.json", "{\"do_lower_case\": true, \"cls_token\": {\"content\": \"<s>\"}}");
    tokenizer = open_text("[UNK]\n<s>\n[SEP]\nThe\nthe\n");
    assert_true(fth_tokenizer_is_lower_case(tokenizer));
    assert_string_equal(encode(tokenizer, "The the Thé <s>"), "<s> the the the <s> [SEP]");
    fth_tokenizer_free(tokenizer);
}

static fth_status parse(const char *json)
{
    fth_tokenizer *tokenizer;
    fth_status status = fth_tokenizer_parse(json, strlen(json), "t.json", &tokenizer);
    fth_tokenizer_free(tokenizer);
    return status;
}

static void json_and_vocabulary_say_the_same(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    fth_tokenizer *tokenizer = open_text(vocabulary), *again, *folder;
    char *json = fth_tokenizer_to_json(tokenizer), *text = fth_tokenizer_to_vocabulary(tokenizer);
    assert_string_equal(text, vocabulary);
    assert_int_equal(fth_tokenizer_parse(json, strlen(json), "t.json", &again), FTH_OK);
    assert_int_equal(fth_tokenizer_size(again), fth_tokenizer_size(tokenizer));
    assert_string_equal(encode(again, "The unaffable [MASK]"), "[CLS] the un ##aff ##able [MASK] [SEP]");
    char *json_again = fth_tokenizer_to_json(again);
    assert_string_equal(json_again, json);
    test_write_text("tokenizer.json", json); /* which comes before vocab.txt */
    test_write_text("vocab.txt", "none");
    assert_int_equal(fth_tokenizer_open(test_path(path, ""), &folder), FTH_OK);
    assert_int_equal(fth_tokenizer_find_token(folder, "##able"), 8);
    assert_int_equal(fth_tokenizer_find_token(folder, "able"), -1);
    assert_null(fth_tokenizer_get_token(folder, fth_tokenizer_size(folder)));
    assert_null(fth_tokenizer_get_token(folder, -1));
    free(json);
    free(json_again);
    free(text);
    fth_tokenizer_free(tokenizer);
    fth_tokenizer_free(again);
    fth_tokenizer_free(folder);
}

#define WORDPIECE "\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2}}"
#define SPLITTING "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"
#define ENDS      "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",2],\"cls\":[\"[CLS]\",1]}"

static void what_would_change_ids_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
        fth_status status;
    } cases[] = {
        {"{" WORDPIECE "," SPLITTING "," ENDS "}", NULL, FTH_OK},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", "t.json: unsupported model BPE", FTH_UNSUPPORTED},
        {"{" WORDPIECE ",\"normalizer\":{\"type\":\"NFKC\"}}", "unsupported normalizer NFKC", FTH_UNSUPPORTED},
        {"{" WORDPIECE "}", "unsupported pre_tokenizer none", FTH_UNSUPPORTED},
        {"{" WORDPIECE "," SPLITTING "}", "unsupported post_processor none", FTH_UNSUPPORTED},
        {"{" WORDPIECE "," SPLITTING "," ENDS ",\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"normalized\":true}]}",
         "unsupported added token \"x\"", FTH_UNSUPPORTED},
        {"{" WORDPIECE "," SPLITTING "," ENDS ",\"added_tokens\":[{\"content\":\"x\",\"normalized\":false}]}",
         "entry 0 of \"added_tokens\"", FTH_CORRUPT},
        {"{" WORDPIECE "," SPLITTING "," ENDS ",\"added_tokens\":[{\"id\":4194304,\"content\":\"x\"}]}",
         "entry 0 of \"added_tokens\"", FTH_CORRUPT},
        {"{" WORDPIECE "," SPLITTING "," ENDS ",\"added_tokens\":{\"id\":3,\"content\":\"x\"}}",
         "\"added_tokens\" is not a list", FTH_CORRUPT},
        {"{" WORDPIECE "," SPLITTING "," ENDS ",\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"normalized\":false}]}",
         "id 1 is given to both", FTH_CORRUPT},
        {"{" WORDPIECE "," SPLITTING ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[],\"pair\":[]}}",
         "unsupported template of post_processor", FTH_UNSUPPORTED},
        {"{" WORDPIECE, "t.json is not JSON", FTH_CORRUPT},
        {"[]", "no \"model\"", FTH_CORRUPT},
        {"{\"model\":{\"type\":\"WordPiece\"}}", "no \"vocab\"", FTH_CORRUPT},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0,\"b\":0}}}", "both \"a\" and \"b\"", FTH_CORRUPT},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":-1}}}", "id -1", FTH_CORRUPT},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":1e3}}}", "not a whole number", FTH_CORRUPT},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}," SPLITTING "," ENDS "}", "no token \"[UNK]\"",
         FTH_CORRUPT},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        assert_int_equal(parse(cases[i].json), cases[i].status);
        if (cases[i].message)
            assert_message_of(cases[i].json, cases[i].message);
    }
}

/* An added token is looked for at every place of a text: one of a megabyte would take hours. */
static void tokens_have_an_end(void **state)
{
    (void)state;
    static const char *const places[] = {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"%s\":0}}}",
                                         "{" WORDPIECE "," SPLITTING "," ENDS
                                         ",\"added_tokens\":[{\"id\":9,\"content\":\"%s\",\"normalized\":false}]}"};
    char token[4002];
    memset(token, 'a', sizeof token - 1);
    token[sizeof token - 1] = '\0';
    for (size_t i = 0; i < FTH_COUNT_OF(places); i++) {
        char json[8000];
        snprintf(json, sizeof json, places[i], token);
        assert_int_equal(parse(json), FTH_CORRUPT);
        assert_message_of(places[i], "t.json: a token of 4001 bytes, \"aaaaaaaaaaaaaaaaaaaa...\"");
    }
}

static void added_tokens_may_be_beyond_the_vocabulary(void **state)
{
    (void)state;
    static const char json[] =
        "{" WORDPIECE "," SPLITTING "," ENDS ",\"added_tokens\":[{\"id\":5,\"content\":\"<e1>\",\"normalized\":false},"
        "{\"id\":4,\"content\":\"<e\",\"normalized\":false}]}";
    fth_tokenizer *tokenizer;
    assert_int_equal(fth_tokenizer_parse(json, strlen(json), "t.json", &tokenizer), FTH_OK);
    assert_int_equal(fth_tokenizer_size(tokenizer), 6);
    assert_null(fth_tokenizer_get_token(tokenizer, 3));
    assert_int_equal(fth_tokenizer_find_token(tokenizer, "<e1>"), 5);
    assert_string_equal(encode(tokenizer, "<e1><e2<e"), "[CLS] <e1> <e [UNK] <e [SEP]"); /* the longest comes first */
    char *vocabulary_text = fth_tokenizer_to_vocabulary(tokenizer);
    assert_string_equal(vocabulary_text, "[UNK]\n[CLS]\n[SEP]\n\n<e\n<e1>\n");
    free(vocabulary_text);
    fth_tokenizer_free(tokenizer);
}

static void files_that_are_no_vocabulary_are_named(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    fth_tokenizer *tokenizer;
    assert_int_equal(fth_tokenizer_open(test_path(path, ""), &tokenizer), FTH_INVALID);
    assert_message_has("expected tokenizer.json or vocab.txt");
    assert_int_not_equal(fth_tokenizer_open(test_path(path, "none"), &tokenizer), FTH_OK);
    assert_message_has("none");
    test_write_text("vocab.txt", "");
    assert_int_equal(fth_tokenizer_open(test_path(path, "vocab.txt"), &tokenizer), FTH_CORRUPT);
    assert_message_has("is empty");
    test_write_text("vocab.txt", "[UNK]\n[CLS]\n\xff\n");
    assert_int_equal(fth_tokenizer_open(test_path(path, "vocab.txt"), &tokenizer), FTH_CORRUPT);
    assert_message_has("line 3");
    test_write_text("vocab.txt", "[UNK]\n[CLS]\n");
    assert_int_equal(fth_tokenizer_open(test_path(path, "vocab.txt"), &tokenizer), FTH_CORRUPT);
    assert_message_has("no token \"[SEP]\"");
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, test_make_folder, test_remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(words_become_their_longest_pieces),
        TEST(text_is_normalized),
        TEST(long_words_are_unknown),
        TEST(special_tokens_are_found_in_text),
        TEST(texts_are_cut),
        TEST(a_list_keeps_what_it_had),
        TEST(case_is_kept_where_the_vocabulary_or_its_config_says_so),
        TEST(json_and_vocabulary_say_the_same),
        TEST(what_would_change_ids_is_refused),
        TEST(tokens_have_an_end),
        TEST(added_tokens_may_be_beyond_the_vocabulary),
        TEST(files_that_are_no_vocabulary_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
