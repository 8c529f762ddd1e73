/* Which names a server answers to, and which pages may ask. */
#include "support.h"

#include <unistd.h>

#include "http/host.h"
#include "http/tls.h"

static void test_names(void **state)
{
    (void)state;
    fth_hosts *hosts = NULL;
    char *certificate = NULL, *key = NULL, machine[300] = "";
    static const char *const known[] = {"localhost",     "localhost:29500",     "LocalHost.",     "a.localhost:1",
                                        "127.0.0.1:80",  "192.168.7.9:29500",   "[::1]:29500",    "[fe80::1]",
                                        "bound.example", "train.example:29500", "TWO.example.:1", "made.example:443"};
    static const char *const strange[] = {"evil.example", "evil.example:29500",     "localhost.evil.example",
                                          "notlocalhost", "127.0.0.1.evil.example", "",
                                          ":29500",       "localhost:29500x",       "localhost:1@x",
                                          "[::1",         "[evil.example]",         "train.example.evil",
                                          "rain.example", "one train.example",      "[::1]x"};

    assert_int_equal(fth_tls_make_certificate("made.example", &certificate, &key), FTH_OK);
    assert_int_equal(fth_hosts_create("bound.example", "train.example, two.example", certificate, &hosts), FTH_OK);
    for (size_t i = 0; i < FTH_COUNT_OF(known); i++)
        assert_true(fth_hosts_know(hosts, known[i]));
    for (size_t i = 0; i < FTH_COUNT_OF(strange); i++)
        assert_false(fth_hosts_know(hosts, strange[i]));
    assert_true(fth_hosts_know(hosts, NULL));
    assert_int_equal(gethostname(machine, sizeof machine - 1), 0);
    assert_true(fth_hosts_know(hosts, machine));
    fth_hosts_free(hosts);
    assert_int_equal(fth_hosts_create(NULL, NULL, NULL, &hosts), FTH_OK);
    assert_true(fth_hosts_know(hosts, "127.0.0.1"));
    assert_false(fth_hosts_know(hosts, "made.example"));
    fth_hosts_free(hosts);
    free(certificate);
    free(key);
}

static void test_origins(void **state)
{
    (void)state;
    const char *host = "127.0.0.1:29500";
    assert_false(fth_origin_is_foreign(NULL, NULL, host)); /* a program */
    assert_false(fth_origin_is_foreign("http://127.0.0.1:29500", NULL, host));
    assert_false(fth_origin_is_foreign("http://127.0.0.1:29500", "same-origin", host));
    assert_false(fth_origin_is_foreign(NULL, "none", host)); /* typed into the address bar */
    assert_true(fth_origin_is_foreign("http://evil.example", NULL, host));
    assert_true(fth_origin_is_foreign("http://127.0.0.1:8000", NULL, host));
    assert_true(fth_origin_is_foreign("http://127.0.0.1:295000", NULL, host));
    assert_true(fth_origin_is_foreign("null", NULL, host));
    assert_true(fth_origin_is_foreign("", NULL, host));
    assert_true(fth_origin_is_foreign("http://127.0.0.1:29500", NULL, NULL));
    assert_true(fth_origin_is_foreign(NULL, "cross-site", host)); /* a picture, say */
    assert_true(fth_origin_is_foreign(NULL, "same-site", host));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_origins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
