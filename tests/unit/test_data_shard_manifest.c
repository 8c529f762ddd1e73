/* The list of shards: what is written is read back; what does not agree with itself is refused by
 * name. */
#include "data/shard/shard_manifest.h"
#include "support.h"

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define FORM                                                                                                           \
    "\"dataset\": \"mnist\", \"classes\": 2, \"class_names\": [\"cat\", \"dog\"], \"channels\": 1, \"height\": 28, "   \
    "\"width\": 20, \"normalization\": {\"mean\": [0.1307], \"std\": [0.3081]}, "
#define SHARD(name, samples)                                                                                           \
    "{\"name\": \"" name "\", \"samples\": " samples ", \"size_bytes\": 7, \"sha256\": \"" HASH "\"}"

static fth_status parse(const char *text, fth_shard_manifest *manifest)
{
    return fth_shard_manifest_parse(text, strlen(text), "x/shards.json", manifest);
}

static void reads_what_the_issue_shows(void **state)
{
    (void)state;
    fth_shard_manifest manifest;
    const char *text = "{\"format\": 1, " FORM "\"samples\": 7, \"later\": null, \"shards\": [" SHARD(
        "part-0001.tar.gz", "4") ", " SHARD("part-0002.tar.gz", "3") "]}";

    if (parse(text, &manifest) != FTH_OK)
        fail_msg("%s", fth_error_message());
    assert_string_equal(manifest.dataset, "mnist");
    assert_int_equal(manifest.classes, 2);
    assert_string_equal(manifest.class_names[1], "dog");
    assert_int_equal(manifest.height, 28);
    assert_int_equal(manifest.width, 20);
    assert_true(manifest.normalization.deviation[0] == 0.3081f);
    assert_int_equal(manifest.samples, 7);
    assert_int_equal(manifest.shard_count, 2);
    assert_string_equal(manifest.shards[1].name, "part-0002.tar.gz");
    assert_int_equal(manifest.shards[1].samples, 3);
    assert_int_equal(manifest.shards[1].size_bytes, 7);
    assert_string_equal(manifest.shards[1].sha256, HASH);

    char *written = NULL, *again = NULL;
    fth_shard_manifest back;
    manifest.seed = 12;
    manifest.held_out = (fth_held_out){.fraction = 0.15, .seed = 3, .by_class = true};
    assert_int_equal(fth_shard_manifest_format(&manifest, &written), FTH_OK);
    assert_int_equal(parse(written, &back), FTH_OK);
    assert_int_equal(back.seed, 12);
    assert_true(back.held_out.fraction == 0.15 && back.held_out.seed == 3);
    assert_int_equal(fth_shard_manifest_format(&back, &again), FTH_OK);
    assert_string_equal(written, again);
    free(written);
    free(again);
    fth_shard_manifest_release(&back);
    fth_shard_manifest_release(&manifest);
    assert_null(manifest.shards);
}

static void refuses_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        fth_status status;
        const char *message;
    } cases[] = {
        {"", FTH_CORRUPT, "is no list of shards"},
        {"[]", FTH_CORRUPT, "no JSON object"},
        {"{}", FTH_CORRUPT, "\"format\""},
        {"{\"format\": 2}", FTH_UNSUPPORTED, "reads 1"},
        {"{\"format\": 1}", FTH_CORRUPT, "\"dataset\""},
        {"{\"format\": 1, \"format\": 1}", FTH_CORRUPT, "duplicate"},
        {"{\"format\": 1, " FORM "\"samples\": 4}", FTH_CORRUPT, "\"shards\""},
        {"{\"format\": 1, " FORM "\"held_out\": {\"fraction\": 1, \"seed\": 1}}", FTH_CORRUPT, "\"held_out\""},
        {"{\"format\": 1, " FORM "\"samples\": 4, \"shards\": []}", FTH_CORRUPT, "\"shards\""},
        {"{\"format\": 1, " FORM "\"samples\": 5, \"shards\": [" SHARD("a", "4") "]}", FTH_CORRUPT, "4 of its 5"},
        {"{\"format\": 1, " FORM "\"samples\": 3, \"shards\": [" SHARD("a", "4") "]}", FTH_CORRUPT, "more than its 3"},
        {"{\"format\": 1, " FORM "\"samples\": 0, \"shards\": [" SHARD("a", "0") "]}", FTH_CORRUPT, "\"samples\""},
        {"{\"format\": 1, " FORM "\"samples\": 4, \"shards\": [" SHARD("a", "4.0") "]}", FTH_CORRUPT, "\"samples\""},
        {"{\"format\": 1, " FORM "\"samples\": 4, \"shards\": [" SHARD("a", "2") "," SHARD("a", "2") "]}", FTH_CORRUPT,
         "listed twice"},
        {"{\"format\": 1, " FORM "\"samples\": 4, \"shards\": [" SHARD("../a", "4") "]}", FTH_CORRUPT, "'../a'"},
        {"{\"format\": 1, " FORM "\"samples\": 4, \"shards\": [" SHARD("a?b", "4") "]}", FTH_CORRUPT, "'a?b'"},
        {"{\"format\": 1, " FORM "\"samples\": 4, \"shards\": [" SHARD("", "4") "]}", FTH_CORRUPT, "name of a shard"},
        {"{\"format\": 1, " FORM "\"samples\": 4, \"shards\": [" SHARD("a\\u0000b", "4") "]}", FTH_CORRUPT,
         "is no list of shards"},
        {"{\"format\": 1, " FORM "\"samples\": 4, \"shards\": [{\"name\": \"a\", \"samples\": 4, \"size_bytes\": 1, "
         "\"sha256\": \"00\"}]}",
         FTH_CORRUPT, "no sha256"},
        {"{\"format\": 1, \"dataset\": \"x\", \"classes\": 3, \"class_names\": [\"a\"], \"channels\": 1, \"height\": "
         "1, \"width\": 1, \"normalization\": {\"mean\": [0], \"std\": [1]}}",
         FTH_CORRUPT, "does not name 3 classes"},
        {"{\"format\": 1, \"dataset\": \"x\", \"classes\": 2, \"class_names\": [\"a\", \"b\"], \"channels\": 1, "
         "\"height\": 1, \"width\": 1, \"normalization\": {\"mean\": [0], \"std\": [0]}}",
         FTH_CORRUPT, "\"normalization\""},
        {"{\"format\": 1, \"dataset\": \"x\", \"classes\": 2, \"channels\": 1, \"height\": 1, \"width\": 5000}",
         FTH_CORRUPT, "\"width\""},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_shard_manifest manifest;
        if (parse(cases[i].text, &manifest) != cases[i].status)
            fail_msg("%s: %s", cases[i].text, fth_error_message());
        assert_message_of(cases[i].text, cases[i].message);
        assert_message_of(cases[i].text, "x/shards.json");
        assert_null(manifest.dataset);
    }
}

static void refuses_to_write_what_could_not_be_read(void **state)
{
    (void)state;
    char *names[] = {"cat", "dog"}, *text = NULL;
    fth_listed_shard shard = {.name = "a/b", .samples = 4, .size_bytes = 7, .sha256 = HASH};
    fth_shard_manifest manifest = {.dataset = "pets",
                                   .classes = 2,
                                   .class_names = names,
                                   .channels = 1,
                                   .height = 8,
                                   .width = 8,
                                   .normalization = {1, {0}, {1}},
                                   .samples = 4,
                                   .shards = &shard,
                                   .shard_count = 1};
    assert_int_equal(fth_shard_manifest_format(&manifest, &text), FTH_INVALID);
    assert_null(text);
    assert_message_has("'a/b'");
    shard.name = "a";
    names[1] = "d\xff";
    assert_int_equal(fth_shard_manifest_format(&manifest, &text), FTH_INVALID);
    assert_message_has("UTF-8");
    names[1] = "dög";
    assert_int_equal(fth_shard_manifest_format(&manifest, &text), FTH_OK);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_issue_shows),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(refuses_to_write_what_could_not_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
