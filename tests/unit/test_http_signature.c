/* Signatures and certificates: what is good is let in once, everything else is kept out and told
 * apart. */
#include "support.h"

#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http/http.h"
#include "http/server.h"
#include "http/signature.h"
#include "http/tls.h"

static const char key_text[] = "# two keys\nalice 0123456789abcdef0123 train\n\n  bob fedcba98765432100000 read\n";
static const fth_signer alice = {.access = "alice", .secret = "0123456789abcdef0123"},
                        bob = {.access = "bob", .secret = "fedcba98765432100000"};

static fth_keys *open_keys(void)
{
    fth_keys *keys = NULL;
    assert_int_equal(fth_keys_parse(key_text, "test", &keys), FTH_OK);
    return keys;
}

static void test_good_and_replayed(void **state)
{
    (void)state;
    fth_keys *keys = open_keys();
    fth_signed who;
    char header[FTH_MAX_AUTHORIZATION];
    assert_int_equal(fth_signer_sign(&alice, "POST", "/putGradient?x=1", "body", 4, header), FTH_OK);
    assert_int_equal(fth_keys_check(keys, header, "POST", "/putGradient?x=1", true, &who), FTH_SIGNATURE_GOOD);
    assert_int_equal(who.role, FTH_ROLE_TRAIN);
    assert_string_equal(who.access, "alice");
    assert_true(fth_signed_body_matches(&who, "body", 4));
    assert_false(fth_signed_body_matches(&who, "bodY", 4));
    assert_int_equal(fth_keys_check(keys, header, "POST", "/putGradient?x=1", true, &who), FTH_SIGNATURE_REPLAYED);

    assert_int_equal(fth_signer_sign(&bob, "GET", "/getVersion", NULL, 0, header), FTH_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fth_keys_check(keys, header, "GET", "/getVersion", false, &who), FTH_SIGNATURE_GOOD);
    assert_int_equal(who.role, FTH_ROLE_READ);
    assert_true(fth_signed_body_matches(&who, NULL, 0));
    fth_keys_free(keys);
}

/* A request of alice without a body, from the description in the header, with OpenSSL alone. */
static void sign_by_description(const char *method, const char *target, long time, char *header)
{
    static const char empty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    static const char nonce[] = "0123456789abcdefXYZ";
    char text[512], hex[65];
    unsigned char mac[32];
    unsigned size = 0;
    snprintf(text, sizeof text, "FTH1\n%s\n%s\n%s\n%ld\n%s", method, target, empty, time, nonce);
    HMAC(EVP_sha256(), alice.secret, (int)strlen(alice.secret), (unsigned char *)text, strlen(text), mac, &size);
    fth_hex_encode(mac, size, hex);
    snprintf(header, FTH_MAX_AUTHORIZATION, "FTH1 key=alice, time=%ld, nonce=%s, body=%s, signature=%s", time, nonce,
             empty, hex);
}

static void test_against_the_description(void **state)
{
    (void)state;
    fth_keys *keys = open_keys();
    fth_signed who;
    char header[FTH_MAX_AUTHORIZATION];
    sign_by_description("GET", "/getVersion", (long)fth_clock_wall_seconds(), header);
    assert_int_equal(fth_keys_check(keys, header, "GET", "/getVersion", true, &who), FTH_SIGNATURE_GOOD);
    fth_keys_free(keys);
}

static void test_refusals(void **state)
{
    (void)state;
    fth_keys *keys = open_keys();
    fth_signed who;
    char header[FTH_MAX_AUTHORIZATION], changed[FTH_MAX_AUTHORIZATION];
    assert_int_equal(fth_keys_check(keys, NULL, "GET", "/", false, &who), FTH_SIGNATURE_MISSING);
    assert_int_equal(fth_keys_check(keys, "Basic abc", "GET", "/", false, &who), FTH_SIGNATURE_MALFORMED);
    assert_int_equal(fth_keys_check(keys, "FTH1 ", "GET", "/", false, &who), FTH_SIGNATURE_MALFORMED);
    assert_int_equal(fth_signer_sign(&alice, "POST", "/x", "body", 4, header), FTH_OK);
    assert_int_equal(fth_keys_check(keys, header, "POST", "/y", false, &who), FTH_SIGNATURE_WRONG);
    assert_int_equal(fth_keys_check(keys, header, "GET", "/x", false, &who), FTH_SIGNATURE_WRONG);
    assert_int_equal(who.role, FTH_ROLE_NONE);
    /* Every single character changed: never good. */
    for (size_t i = 0; i < strlen(header); i++) {
        memcpy(changed, header, sizeof changed);
        changed[i] = changed[i] == '1' ? '2' : '1';
        assert_int_not_equal(fth_keys_check(keys, changed, "POST", "/x", false, &who), FTH_SIGNATURE_GOOD);
        snprintf(changed, sizeof changed, "%.*s", (int)i, header);
        assert_int_not_equal(fth_keys_check(keys, changed, "POST", "/x", false, &who), FTH_SIGNATURE_GOOD);
    }
    fth_signer stranger = {.access = "carol", .secret = "0123456789abcdef0123"},
               guess = {.access = "alice", .secret = "0123456789abcdef0124"};
    assert_int_equal(fth_signer_sign(&stranger, "POST", "/x", NULL, 0, header), FTH_OK);
    assert_int_equal(fth_keys_check(keys, header, "POST", "/x", true, &who), FTH_SIGNATURE_WRONG);
    assert_int_equal(fth_signer_sign(&guess, "POST", "/x", NULL, 0, header), FTH_OK);
    assert_int_equal(fth_keys_check(keys, header, "POST", "/x", true, &who), FTH_SIGNATURE_WRONG);
    fth_keys_free(keys);
}

static void test_time_and_memory(void **state)
{
    (void)state;
    fth_keys *keys = open_keys();
    fth_signed who;
    char header[FTH_MAX_AUTHORIZATION];
    fth_keys_set_limits(keys, 0.001, 1500);
    assert_int_equal(fth_signer_sign(&alice, "POST", "/x", NULL, 0, header), FTH_OK);
    fth_keys_advance(keys, 3);
    assert_int_equal(fth_keys_check(keys, header, "POST", "/x", true, &who), FTH_SIGNATURE_OLD);
    fth_keys_advance(keys, -3);
    char other[FTH_MAX_AUTHORIZATION]; /* remembered for as long as its time is good, rounding included */
    assert_int_equal(fth_signer_sign(&alice, "POST", "/x", NULL, 0, header), FTH_OK);
    for (int i = 0; i < 4; i++) {
        fth_signature_result result = fth_keys_check(keys, header, "POST", "/x", true, &who);
        assert_true((result == FTH_SIGNATURE_GOOD) == (i == 0));
        usleep(5000);
        assert_int_equal(fth_signer_sign(&alice, "POST", "/x", NULL, 0, other), FTH_OK);
        assert_int_equal(fth_keys_check(keys, other, "POST", "/x", true, &who), FTH_SIGNATURE_GOOD);
    }
    fth_keys_free(keys);
    keys = open_keys();
    fth_keys_set_limits(keys, 60, 1500);
    int good = 0;
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(fth_signer_sign(&alice, "POST", "/x", NULL, 0, header), FTH_OK);
        fth_signature_result result = fth_keys_check(keys, header, "POST", "/x", true, &who);
        assert_int_equal(result, i < 1500 ? FTH_SIGNATURE_GOOD : FTH_SIGNATURE_FULL);
        good += result == FTH_SIGNATURE_GOOD;
    }
    assert_int_equal(good, 1500);
    fth_keys_free(keys);
}

/* A request that one process took is a replay for those after it, however it ended. */
static void test_kept_nonces(void **state)
{
    (void)state;
    fth_signed who;
    char headers[40][FTH_MAX_AUTHORIZATION], path[300];
    snprintf(path, sizeof path, "%s/nonces", test_folder);
    for (int process = 0; process < 4; process++) {
        fth_keys *keys = open_keys();
        assert_int_equal(fth_keys_keep(keys, path), FTH_OK);
        for (int i = 0; i < 10 * process; i++)
            assert_int_equal(fth_keys_check(keys, headers[i], "POST", "/x", true, &who), FTH_SIGNATURE_REPLAYED);
        for (int i = 10 * process; i < 10 * process + 10; i++) {
            assert_int_equal(fth_signer_sign(&alice, "POST", "/x", NULL, 0, headers[i]), FTH_OK);
            assert_int_equal(fth_keys_check(keys, headers[i], "POST", "/x", true, &who), FTH_SIGNATURE_GOOD);
        }
        fth_keys_free(keys);
        FILE *file = fopen(path, "a"); /* killed while it wrote */
        fputs("torn", file);
        fclose(file);
    }
    fth_keys *keys = open_keys(); /* and where the file cannot be written, nothing is taken that could come again */
    fth_keys_set_limits(keys, 0.001, 0);
    assert_int_equal(fth_keys_keep(keys, path), FTH_OK);
    char gone[300];
    snprintf(gone, sizeof gone, "%s.gone", test_folder);
    assert_int_equal(rename(test_folder, gone), 0);
    fth_keys_advance(keys, 3); /* a new file is due */
    sign_by_description("POST", "/x", (long)fth_clock_wall_seconds() + 3, headers[0]);
    assert_int_equal(fth_keys_check(keys, headers[0], "POST", "/x", true, &who), FTH_SIGNATURE_FULL);
    assert_int_equal(rename(gone, test_folder), 0);
    assert_int_equal(fth_keys_check(keys, headers[0], "POST", "/x", true, &who), FTH_SIGNATURE_GOOD);
    assert_int_equal(fth_keys_check(keys, headers[0], "POST", "/x", true, &who), FTH_SIGNATURE_REPLAYED);
    fth_keys_free(keys);
}

static void test_key_files(void **state)
{
    (void)state;
    fth_keys *keys = NULL;
    char path[300], *text = NULL, *line = NULL;
    static const char *const bad[] = {"",
                                      "# nothing",
                                      "alice short train",
                                      "alice 0123456789abcdef0123 king",
                                      "alice 0123456789abcdef0123",
                                      "alice 0123456789abcdef0123 train more",
                                      "alice 0123456789abcdef0123 train data=",
                                      "alice 0123456789abcdef0123 train data=a,,b",
                                      "alice 0123456789abcdef0123 train data=a,",
                                      "alice 0123456789abcdef0123 train data=a/b",
                                      "alice 0123456789abcdef0123 train data=a more",
                                      "a 0123456789abcdef0123 read\na 0123456789abcdef0123 read"};
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        assert_int_equal(fth_keys_parse(bad[i], "test", &keys), FTH_INVALID);
        assert_null(strstr(fth_error_message(), "0123456789abcdef"));
    }
    assert_int_equal(fth_keys_generate(FTH_ROLE_ADMIN, NULL, &line), FTH_OK);
    assert_int_equal(fth_keys_parse(line, "test", &keys), FTH_OK);
    fth_keys_free(keys);

    snprintf(path, sizeof path, "%s/keys", test_folder);
    assert_int_equal(fth_file_write_all(path, line, strlen(line)), FTH_OK);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(fth_keys_read(path, &text), FTH_INVALID);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(fth_keys_read(path, &text), FTH_OK);
    assert_string_equal(text, line);
    free(text);
    free(line);
    unsetenv("FARTHING_KEYS");
    unsetenv("FARTHING_ACCESS_KEY");
    assert_int_equal(fth_keys_read(NULL, &text), FTH_OK);
    assert_null(text);
    setenv("FARTHING_KEYS", "alice 0123456789abcdef0123 train;bob fedcba98765432100000 read", 1);
    assert_int_equal(fth_keys_read("", &text), FTH_OK);
    assert_int_equal(fth_keys_parse(text, "the environment", &keys), FTH_OK);
    fth_keys_free(keys);
    free(text);
    unsetenv("FARTHING_KEYS");
}

static void test_data_of_keys(void **state)
{
    (void)state;
    fth_keys *keys = NULL;
    fth_signed who = {0};
    fth_signer signer = {0};
    char *line = NULL, header[FTH_MAX_AUTHORIZATION];
    assert_int_equal(fth_keys_generate(FTH_ROLE_READ, "tiny,tiny-2", &line), FTH_OK);
    assert_int_equal(sscanf(line, "%64s %128s", signer.access, signer.secret), 2);
    assert_int_equal(fth_keys_parse(line, "test", &keys), FTH_OK);
    assert_int_equal(fth_signer_sign(&signer, "GET", "/x", NULL, 0, header), FTH_OK);
    assert_int_equal(fth_keys_check(keys, header, "GET", "/x", false, &who), FTH_SIGNATURE_GOOD);
    assert_true(fth_signed_may_read(&who, "tiny") && fth_signed_may_read(&who, "tiny-2"));
    assert_false(fth_signed_may_read(&who, "tin") || fth_signed_may_read(&who, "tiny-22") ||
                 fth_signed_may_read(&who, "tiny,tiny-2") || fth_signed_may_read(&who, ""));
    assert_true(fth_signed_may_read(&(fth_signed){0}, "anything"));
    fth_keys_free(keys);
    free(line);
    assert_int_equal(fth_keys_generate(FTH_ROLE_READ, "a b", &line), FTH_INVALID);
}

/* The first of many, so that a list that grows and moves would leave it behind. */
static void test_keys_are_wiped(void **state)
{
    (void)state;
    enum { COUNT = 40, LINE = 64 };
    fth_keys *keys = NULL;
    char *secret = test_make_secret(), *text = malloc(COUNT * LINE);
    size_t used = (size_t)snprintf(text, LINE, "alice %s train\n", secret);
    for (int i = 1; i < COUNT; i++)
        used += (size_t)snprintf(text + used, LINE, "key%d 0123456789abcdef read\n", i);
    assert_int_equal(fth_keys_parse(text, "test", &keys), FTH_OK);
    assert_int_equal(test_count_secret(), 3);
    fth_wipe_text(secret);
    fth_wipe_text(text);
    fth_keys_free(keys);
    assert_int_equal(test_count_secret(), 0);
}

static void hello(void *context, fth_exchange *exchange)
{
    (void)context;
    fth_exchange_answer(exchange, 200, "text/plain", "hello", 5);
}

/* A server with a made certificate: reached by who knows its fingerprint, and by nobody else. */
static void test_tls(void **state)
{
    (void)state;
    static const fth_route routes[] = {{"GET", "/", hello, FTH_ROLE_NONE, 0, NULL}, {0}};
    char *certificate = NULL, *key = NULL, *again = NULL, *key_again = NULL, path[300], url[64];
    char fingerprint[FTH_FINGERPRINT_SIZE], other[FTH_FINGERPRINT_SIZE];
    fth_server *server = NULL;
    struct stat facts;

    assert_int_equal(fth_tls_load_or_make(test_folder, "example.org", &certificate, &key), FTH_OK);
    assert_int_equal(fth_tls_load_or_make(test_folder, "example.org", &again, &key_again), FTH_OK);
    assert_string_equal(certificate, again);
    assert_string_equal(key, key_again);
    snprintf(path, sizeof path, "%s/key.pem", test_folder);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    free(again);
    free(key_again);
    assert_int_equal(fth_tls_make_certificate("10.1.2.3", &again, &key_again), FTH_OK);
    assert_int_equal(fth_tls_fingerprint(certificate, fingerprint), FTH_OK);
    assert_int_equal(fth_tls_fingerprint(again, other), FTH_OK);
    assert_string_not_equal(fingerprint, other);
    assert_int_equal(strlen(fingerprint), 8 + 44);
    assert_int_equal(fth_file_write_all(path, key_again, strlen(key_again)), FTH_OK); /* another's key */
    free(again);
    free(key_again);
    assert_int_equal(fth_tls_load_or_make(test_folder, NULL, &again, &key_again), FTH_INVALID);

    fth_server_options options = {.routes = routes, .certificate_pem = certificate, .key_pem = key};
    assert_int_equal(fth_server_start(&options, &server), FTH_OK);
    snprintf(url, sizeof url, "https://127.0.0.1:%d/", fth_server_port(server));
    for (int i = 0; i < 3; i++) {
        fth_http_client *client = NULL;
        fth_http_response response = {0};
        fth_http_client_options pins = {.pinned_key = i == 0 ? fingerprint : i == 1 ? other : NULL, .no_proxy = true};
        assert_int_equal(fth_http_client_open(&pins, &client), FTH_OK);
        fth_http_request request = {.method = "GET", .url = url, .deadline = test_deadline_in(20)};
        fth_status status = fth_http_perform(client, &request, &response);
        if (i == 0) {
            assert_int_equal(status, FTH_OK);
            assert_string_equal(response.body, "hello");
        } else {
            assert_int_not_equal(status, FTH_OK);
        }
        fth_http_response_release(&response);
        fth_http_client_free(client);
    }
    fth_server_stop(server, 1);
    free(certificate);
    free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_and_replayed),
        cmocka_unit_test(test_against_the_description),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_time_and_memory),
        cmocka_unit_test(test_keys_are_wiped),
        cmocka_unit_test_setup_teardown(test_kept_nonces, test_make_folder, test_remove_folder),
        cmocka_unit_test(test_data_of_keys),
        cmocka_unit_test_setup_teardown(test_key_files, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_tls, test_make_folder, test_remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
