/* The pieces that the S3 store is made of: signatures (AWS's published examples), XML, profiles,
 * lanes of MD5. */
#include "support.h"

#include <openssl/evp.h>

#include "store/s3_internal.h"

/* https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html and
 * sigv4-query-string-auth.html */
static fth_sigv4 example(void)
{
    return (fth_sigv4){.access_key = "AKIAIOSFODNN7EXAMPLE",
                       .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                       .region = "us-east-1",
                       .service = "s3",
                       .method = "GET",
                       .host = "examplebucket.s3.amazonaws.com",
                       .path = "/",
                       .payload_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                       .wall_s = 1369353600}; /* 20130524T000000Z */
}

static void expect_signature(const fth_sigv4 *request, const char *signature)
{
    char **lines = NULL;
    const char *last = "";
    assert_int_equal(fth_sigv4_sign(request, &lines), FTH_OK);
    for (char **line = lines; *line; line++)
        last = *line;
    assert_non_null(strstr(last, "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/"
                                 "s3/aws4_request, SignedHeaders="));
    const char *found = strstr(last, "Signature=");
    assert_non_null(found);
    assert_string_equal(found + strlen("Signature="), signature);
    fth_sigv4_free_lines(lines);
}

static void signatures_are_amazons(void **state)
{
    (void)state;
    fth_sigv4 get = example();
    fth_pair range[] = {{"range", "bytes=0-9"}};
    get.path = "/test.txt";
    get.headers = range;
    get.header_count = 1;
    expect_signature(&get, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");

    fth_sigv4 put = example();
    char hash[65], *path = fth_http_escape("/test$file.text", true);
    fth_pair headers[] = {{"x-amz-storage-class", "REDUCED_REDUNDANCY"}, {"date", "Fri, 24 May 2013 00:00:00 GMT"}};
    fth_hex_sha256("Welcome to Amazon S3.", 21, hash);
    put.method = "PUT";
    put.path = path;
    put.headers = headers;
    put.header_count = 2;
    put.payload_hash = hash;
    expect_signature(&put, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    free(path);

    fth_sigv4 lifecycle = example();
    fth_pair query[] = {{"lifecycle", ""}};
    lifecycle.query = query;
    lifecycle.query_count = 1;
    expect_signature(&lifecycle, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");

    fth_sigv4 list = example();
    fth_pair two[] = {{"prefix", "J"}, {"max-keys", "2"}}; /* sorted by the signer */
    list.query = two;
    list.query_count = 2;
    expect_signature(&list, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void links_are_amazons(void **state)
{
    (void)state;
    char *query = NULL;
    fth_sigv4 request = example();
    request.path = "/test.txt";
    assert_int_equal(fth_sigv4_presign(&request, 86400, &query), FTH_OK);
    assert_string_equal(query, "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2F"
                               "us-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&"
                               "X-Amz-SignedHeaders=host&X-Amz-Signature="
                               "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
    free(query);
    assert_int_equal(fth_sigv4_presign(&request, 604801, &query), FTH_INVALID);
    assert_int_equal(fth_sigv4_presign(&request, 0, &query), FTH_INVALID);
}

static void googles_dialect_has_its_own_words(void **state)
{
    (void)state;
    char **lines = NULL, *query = NULL;
    fth_sigv4 request = example();
    request.google = true;
    request.service = "storage";
    request.region = "auto";
    assert_int_equal(fth_sigv4_sign(&request, &lines), FTH_OK);
    assert_string_equal(lines[0], "host: examplebucket.s3.amazonaws.com");
    assert_non_null(strstr(lines[1], "x-goog-content-sha256: "));
    assert_string_equal(lines[2], "x-goog-date: 20130524T000000Z");
    assert_non_null(strstr(lines[3], "GOOG4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/auto/storage/"
                                     "goog4_request, SignedHeaders=host;x-goog-content-sha256;x-goog-date, "));
    fth_sigv4_free_lines(lines);
    assert_int_equal(fth_sigv4_presign(&request, 60, &query), FTH_OK);
    assert_non_null(strstr(query, "X-Goog-Algorithm=GOOG4-HMAC-SHA256&"));
    free(query);
}

/* ---- XML ---- */

typedef struct heard {
    char text[1024];
} heard;

static fth_status hear_leaf(void *context, const char *path, const char *text)
{
    heard *all = context;
    size_t used = strlen(all->text);
    snprintf(all->text + used, sizeof all->text - used, "%s=%s;", path, text);
    return FTH_OK;
}

static fth_status hear_close(void *context, const char *path)
{
    heard *all = context;
    size_t used = strlen(all->text);
    snprintf(all->text + used, sizeof all->text - used, "/%s;", path);
    return FTH_OK;
}

static fth_status read_xml(const char *text, heard *all)
{
    fth_xml_visitor visitor = {.leaf = hear_leaf, .close = hear_close, .context = all};
    memset(all, 0, sizeof *all);
    return fth_xml_read(text, strlen(text), &visitor);
}

static void xml_is_read(void **state)
{
    (void)state;
    heard all;
    assert_int_equal(
        read_xml("<?xml version=\"1.0\"?>\n<L xmlns=\"a>b\">\n <C><K>a&amp;b&#x41;&#233;</K><S/></C><!-- <x> -->"
                 "<T><![CDATA[<&>]]></T ></L>\n",
                 &all),
        FTH_OK);
    assert_string_equal(all.text, "L/C/K=a&bA\xc3\xa9;L/C/S=;/L/C;L/T=<&>;/L;");
    static const char *const broken[] = {"<a>",
                                         "<a></b>",
                                         "</a>",
                                         "<a",
                                         "<a>&nbsp;</a>",
                                         "<a>&#0;</a>",
                                         "<a>&#xd800;</a>",
                                         "<>x</>",
                                         "<a>&#x;</a>",
                                         "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
                                         "<a><![CDATA[x</a>",
                                         "<?xml "};
    for (size_t i = 0; i < FTH_COUNT_OF(broken); i++)
        assert_int_equal(read_xml(broken[i], &all), FTH_CORRUPT);
    char deep[512] = "";
    for (int i = 0; i < 40; i++)
        strcat(deep, "<a>");
    assert_int_equal(read_xml(deep, &all), FTH_CORRUPT);

    const char *error = "<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>";
    char *code = fth_xml_value(error, strlen(error), "Code");
    assert_string_equal(code, "NoSuchKey");
    free(code);
    assert_null(fth_xml_value(error, strlen(error), "Region"));
    assert_null(fth_xml_value("not xml <", 9, "Code"));
    assert_null(fth_xml_value(NULL, 0, "Code"));
}

/* ---- profiles ---- */

static void profiles_are_read(void **state)
{
    (void)state;
    const char *text = "# comment\n[default]\naws_access_key_id = A\r\naws_secret_access_key=B=C\n"
                       "\n[profile x]\n  nested = 1\ns3 =\n  region = wrong\nregion=eu-west-1\n[ y ]\nregion = z\n";
    struct {
        const char *section, *name, *value;
    } cases[] = {{"default", "aws_access_key_id", "A"},
                 {"default", "aws_secret_access_key", "B=C"},
                 {"profile x", "region", "eu-west-1"},
                 {"y", "region", "z"},
                 {"default", "region", NULL},
                 {"profile x", "nested", NULL},
                 {"profile x", "s3", NULL},
                 {"nobody", "region", NULL}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        char *value = fth_ini_value(text, cases[i].section, cases[i].name);
        if (cases[i].value)
            assert_string_equal(value, cases[i].value);
        else
            assert_null(value);
        free(value);
    }
}

/* ---- checksums ---- */

static void lanes_are_md5(void **state)
{
    (void)state;
    enum { ROOM = 5000 };
    static unsigned char bytes[FTH_MD5_LANES][ROOM];
    unsigned char digests[FTH_MD5_LANES][FTH_MD5_BYTES], expected[EVP_MAX_MD_SIZE];
    const void *blocks[FTH_MD5_LANES];
    size_t sizes[FTH_MD5_LANES];
    static const size_t bases[] = {0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1024, 1025, 4000};
    fth_random_key key = fth_random_key_for(1, FTH_RANDOM_GENERATE);
    for (int lane = 0; lane < FTH_MD5_LANES; lane++)
        for (size_t i = 0; i < ROOM; i++)
            bytes[lane][i] = (unsigned char)fth_random_bits(key, (uint64_t)lane * ROOM + i);
    for (size_t b = 0; b < FTH_COUNT_OF(bases); b++) {
        for (int count = 1; count <= FTH_MD5_LANES; count++) {
            for (int uneven = 0; uneven < 2; uneven++) {
                for (int lane = 0; lane < count; lane++) {
                    blocks[lane] = bytes[lane];
                    sizes[lane] = bases[b] + (uneven ? (size_t)(lane * 37 % 200) : 0);
                }
                fth_md5_lanes(blocks, sizes, count, digests);
                for (int lane = 0; lane < count; lane++) {
                    EVP_Digest(blocks[lane], sizes[lane], expected, NULL, EVP_md5(), NULL);
                    assert_memory_equal(digests[lane], expected, FTH_MD5_BYTES);
                }
            }
        }
    }
}

static void trees_notice_a_bit(void **state)
{
    (void)state;
    enum { SIZE = 100000, CHUNK = 4096 };
    static unsigned char bytes[SIZE];
    fth_s3_sum sums[(SIZE + CHUNK - 1) / CHUNK];
    char tree[96];
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * 31 >> 3);
    uint64_t chunks = fth_s3_count_chunks(SIZE, CHUNK);
    for (uint64_t i = 0; i < chunks; i++)
        fth_s3_sum_chunk(bytes + i * CHUNK, i + 1 < chunks ? CHUNK : SIZE - i * CHUNK, &sums[i]);
    fth_s3_tree_text(CHUNK, sums, chunks, tree);
    assert_int_equal(fth_s3_tree_chunk_bytes(tree), CHUNK);
    assert_int_equal(fth_s3_check_tree(tree, bytes, SIZE), FTH_OK);
    bytes[SIZE - 1] ^= 1;
    assert_int_equal(fth_s3_check_tree(tree, bytes, SIZE), FTH_CORRUPT);
    bytes[SIZE - 1] ^= 1;
    assert_int_equal(fth_s3_check_tree(tree, bytes, SIZE - 1), FTH_CORRUPT);
    static const char *const unknown[] = {"", "0:x", "sha9-1-x", "xxh3-0-x", "xxh3-99999999999999999999-x"};
    for (size_t i = 0; i < FTH_COUNT_OF(unknown); i++)
        assert_int_equal(fth_s3_tree_chunk_bytes(unknown[i]), 0);
    assert_int_equal(fth_s3_tree_chunk_bytes(NULL), 0);
}

static void keys_are_checked(void **state)
{
    (void)state;
    static const char *const fine[] = {"a", "a/b", ".a", "a..b/...", "\xc3\xa9 x", "a/.b"};
    static const char *const only_in_buckets[] = {"/a", "a/", "a//b", "/", "//"};
    static const char *const wrong[] = {"", ".", "..", "a/./b", "a/..", "a//../b", "a\nb", "a\x7f"};
    fth_store bucket = {.kind = &fth_store_kind_s3}, folder = {.kind = &fth_store_kind_folder};
    for (size_t i = 0; i < FTH_COUNT_OF(fine); i++) {
        assert_int_equal(fth_store_check_key(&bucket, fine[i]), FTH_OK);
        assert_int_equal(fth_store_check_key(&folder, fine[i]), FTH_OK);
    }
    for (size_t i = 0; i < FTH_COUNT_OF(only_in_buckets); i++) {
        assert_int_equal(fth_store_check_key(&bucket, only_in_buckets[i]), FTH_OK);
        assert_int_equal(fth_store_check_key(&folder, only_in_buckets[i]), FTH_INVALID);
    }
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        assert_int_equal(fth_store_check_key(&bucket, wrong[i]), FTH_INVALID);
        assert_int_equal(fth_store_check_key(&folder, wrong[i]), FTH_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_are_amazons),
        cmocka_unit_test(links_are_amazons),
        cmocka_unit_test(googles_dialect_has_its_own_words),
        cmocka_unit_test(xml_is_read),
        cmocka_unit_test(profiles_are_read),
        cmocka_unit_test(lanes_are_md5),
        cmocka_unit_test(trees_notice_a_bit),
        cmocka_unit_test(keys_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
