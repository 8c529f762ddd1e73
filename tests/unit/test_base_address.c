/* Addresses and the secrets in them. */
#include "support.h"

#include "base/base.h"
#include "base/options.h"

static void assert_public(const char *text, const char *expected)
{
    char *public = fth_address_public(text);
    assert_string_equal(public, expected);
    assert_int_equal(fth_address_has_secret(text), strcmp(text, expected) != 0);
    free(public);
}

static void presigned_links_lose_their_signatures(void **state)
{
    (void)state;
    static const char *const links[][2] = {
        {"https://b.s3.amazonaws.com/a/"
         "set.tar?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIA%2F2026&X-Amz-Date="
         "20261115T000000Z&X-Amz-Expires=3600&X-Amz-SignedHeaders=host&x-amz-signature=abc#sha256=00",
         "https://b.s3.amazonaws.com/a/set.tar#sha256=00"},
        {"https://b.s3.amazonaws.com/set.tar?AWSAccessKeyId=AKIA&Signature=x%3D&Expires=17&versionId=7",
         "https://b.s3.amazonaws.com/set.tar?versionId=7"},
        {"https://storage.googleapis.com/b/set.tar?X-Goog-Signature=1&X-Goog-Date=2&generation=5",
         "https://storage.googleapis.com/b/set.tar?generation=5"},
        {"https://storage.googleapis.com/b/s.tar?GoogleAccessId=me&Expires=1&Signature=x",
         "https://storage.googleapis.com/b/s.tar"},
        {"https://a.blob.core.windows.net/c/set.tar?sv=2020-12-06&st=1&se=2&sr=b&sp=r&spr=https&sig=x%2B",
         "https://a.blob.core.windows.net/c/set.tar"},
        {"az://account/box/run?sv=1&sig=2", "az://account/box/run"},
        {"https://d1.cloudfront.net/set.tar?Policy=a&Signature=b&Key-Pair-Id=c", "https://d1.cloudfront.net/set.tar"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(links); i++)
        assert_public(links[i][0], links[i][1]);
}

static void passwords_and_tokens_go(void **state)
{
    (void)state;
    assert_public("http://user:pass@host:8080/a/b.tar", "http://host:8080/a/b.tar");
    assert_public("http://user:p@ss@host/a@b", "http://host/a@b");
    assert_public("https://ghp_123@host", "https://host");
    assert_public("https://host/a?token=1&file=b.tar&access_token=2&api_key=3&rlkey=4&password=5",
                  "https://host/a?file=b.tar");
    assert_public("https://host/a?key=AIzaSyD0123456789abcdef", "https://host/a");
    assert_public("--data=https://u:p@host/a?sig=1", "--data=https://host/a"); /* within an argument */
}

static void names_stay(void **state)
{
    (void)state;
    static const char *const plain[] = {
        "digits",
        "./a?token=1",
        "/data/u:p@host",
        "https://host/a?key=sets/a.tar",
        "https://host/a?key=train-images",
        "https://host/a?id=1AbC&author=me&tokenizer=x&sp=1&policy=new",
        "https://host/a@b?x=c@d",
        "https://host/a?b&c=",
        "s3://bucket/a?token=1",
        "file:///a?sig=1",
        "https://host/#sha256=00",
        "",
        "://",
    };
    for (size_t i = 0; i < FTH_COUNT_OF(plain); i++)
        assert_public(plain[i], plain[i]);
}

static void assert_whole(const char *text, const char *expected)
{
    char *whole = fth_address_whole(text);
    assert_string_equal(whole, expected);
    free(whole);
}

static void the_latest_whole_address_is_found(void **state)
{
    (void)state;
    assert_whole("https://host/set.tar", "https://host/set.tar");
    assert_int_equal(fth_address_remember("https://host/set.tar?sig=old#sha256=1"), FTH_OK);
    assert_int_equal(fth_address_remember("https://host/set.tar?sig=new"), FTH_OK);
    assert_int_equal(fth_address_remember("https://host/other.tar?sig=other"), FTH_OK);
    assert_whole("https://host/set.tar", "https://host/set.tar?sig=new");
    assert_whole("https://host/set.tar?sig=mine", "https://host/set.tar?sig=mine");
    assert_whole("https://host/third.tar", "https://host/third.tar");
    assert_whole("s3://bucket/a#b", "s3://bucket/a#b");
    setenv(FTH_DATA_URL_VARIABLE, "https://me:secret@host/third.tar", 1);
    assert_whole("https://host/third.tar", "https://me:secret@host/third.tar");
    assert_whole("https://host/fourth.tar", "https://host/fourth.tar");
    unsetenv(FTH_DATA_URL_VARIABLE);
}

typedef struct values {
    fth_option_bits set;
    char *data, *endpoint;
} values;

static void options_hold_the_public_form(void **state)
{
    (void)state;
    static const fth_option rows[] = {
        {.name = "data", .type = FTH_OPTION_TEXT, .offset = offsetof(values, data), .address = true, .identity = true},
        {.name = "endpoint",
         .type = FTH_OPTION_TEXT,
         .offset = offsetof(values, endpoint),
         .check = fth_address_check_plain},
    };
    static const fth_option_table table = {.options = rows, .count = FTH_COUNT_OF(rows), .struct_size = sizeof(values)};
    values first, second;
    char one[17], two[17];
    assert_int_equal(fth_options_set_defaults(&table, &first), FTH_OK);
    assert_int_equal(fth_options_set_defaults(&table, &second), FTH_OK);
    assert_int_equal(fth_options_set(&table, &first, "data", "https://h/set?X-Amz-Signature=s3cr1t", "--data"), FTH_OK);
    assert_int_equal(fth_options_set(&table, &second, "data", "https://h/set?X-Amz-Signature=s3cr2t", "--data"),
                     FTH_OK);
    assert_string_equal(first.data, "https://h/set");
    fth_options_identity(&table, &first, one);
    fth_options_identity(&table, &second, two);
    assert_string_equal(one, two);
    assert_whole(first.data, "https://h/set?X-Amz-Signature=s3cr2t");
    assert_int_equal(fth_options_set(&table, &first, "endpoint", "http://u:s3cr3t@h", "--endpoint"), FTH_INVALID);
    assert_null(strstr(fth_error_message(), "s3cr3t"));
    fth_options_release(&table, &first);
    fth_options_release(&table, &second);
}

static void messages_are_told_without_secrets(void **state)
{
    (void)state;
    fth_set_error("there is no run \"%s\"; there are: a, b", "http://u:s3cr3t@h/x");
    assert_string_equal(fth_error_message(), "there is no run \"http://h/x\"; there are: a, b");
    fth_set_error("from '%s' to %s: no", "https://h/x?part=2&X-Amz-Signature=s3cr3t", "ftp://u:p'q@h/?sig=1");
    assert_string_equal(fth_error_message(), "from 'https://h/x?part=2' to ftp://h/?sig=1: no");
    fth_set_error("%s", "http://u:s3cr3t@a,http://u:s3cr3t@b/?to=http://u:s3cr3t@c");
    assert_null(strstr(fth_error_message(), "s3cr3t"));
    static const char *const plain[] = {"", "://", "a://", "s3://bucket/a@b?c=1: gone", "a: //b, c://d/e. f@g"};
    for (size_t i = 0; i < FTH_COUNT_OF(plain); i++) {
        fth_set_error("%s", plain[i]);
        assert_string_equal(fth_error_message(), plain[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presigned_links_lose_their_signatures),
        cmocka_unit_test(passwords_and_tokens_go),
        cmocka_unit_test(names_stay),
        cmocka_unit_test(the_latest_whole_address_is_found),
        cmocka_unit_test(options_hold_the_public_form),
        cmocka_unit_test(messages_are_told_without_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
