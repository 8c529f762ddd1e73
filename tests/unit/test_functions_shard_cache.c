/* Shards in a function: what is transferred and what is not, limits, several processes, and servers
 * that misbehave. */
#include "test_archives.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "functions/shard_cache.h"
#include "stub_server.h"

/* What the server does; changed between requests. */
typedef struct shard_source {
    made_archive archive;
    const char *etag; /* with quotes; NULL: none */
    int fail_first;   /* requests answered 503, or broken off, before the first good one */
    bool break_off;
    int code;               /* not 0: always this */
    char conditions[8][64]; /* If-None-Match of each request */
    int requests;
} shard_source;

static char *answer(void *context, const stub_request *request, size_t *size_bytes, bool *close)
{
    shard_source *source = context;
    const char *condition = stub_header(request, "If-None-Match");
    int number = source->requests++;
    if (number < 8)
        snprintf(source->conditions[number], sizeof source->conditions[number], "%.63s", condition);
    *close = false;
    if (source->code)
        return stub_answer(source->code, "Location: /elsewhere\r\n", "no", size_bytes);
    bool broken = number < source->fail_first;
    if (broken && !source->break_off)
        return stub_answer(503, "", "busy", size_bytes);
    if (source->etag && strcmp(condition, source->etag) == 0)
        return stub_answer(304, "", "", size_bytes);
    char *bytes = malloc(source->archive.size_bytes + 300);
    int head = sprintf(bytes, "HTTP/1.1 200 OK\r\n%s%s%sContent-Length: %zu\r\n\r\n", source->etag ? "ETag: " : "",
                       source->etag ? source->etag : "", source->etag ? "\r\n" : "", source->archive.size_bytes);
    size_t body = broken ? source->archive.size_bytes / 2 : source->archive.size_bytes;
    memcpy(bytes + head, source->archive.bytes, body);
    *size_bytes = (size_t)head + body;
    *close = broken;
    return bytes;
}

typedef struct fixture {
    shard_source source;
    stub_server server;
    char folder[TEST_MAX_PATH], url[128];
    fth_shard_cache *cache;
} fixture;

static void open_cache(fixture *f, uint64_t limit_bytes)
{
    fth_shard_cache_free(f->cache);
    assert_int_equal(fth_shard_cache_open(f->folder, limit_bytes, &f->cache), FTH_OK);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (test_make_folder(state) != 0)
        return -1;
    *state = f;
    f->source = (shard_source){.archive = make_idx_archive(ARCHIVE_TAR_GZ, "raw/", 200, 4), .etag = "\"one\""};
    stub_start(&f->server, answer, &f->source);
    test_path(f->folder, "cache/deep");
    snprintf(f->url, sizeof f->url, "http://127.0.0.1:%d/mnist/part-1.tar.gz?X-Amz-Signature=secret%d", f->server.port,
             f->server.port);
    open_cache(f, 0);
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    fth_shard_cache_free(f->cache);
    stub_stop(&f->server);
    free(f->source.archive.bytes);
    int result = test_remove_folder(state);
    free(f);
    return result;
}

static fth_status get(fixture *f, const char *etag, int64_t first, int64_t count, fth_dataset **dataset,
                      fth_shard_facts *facts)
{
    return fth_shard_cache_get(
        f->cache,
        &(fth_shard_request){
            .url = f->url, .etag = etag, .first = first, .count = count, .deadline = test_deadline_in(60)},
        dataset, facts);
}

static fth_dataset *must_get(fixture *f, const char *etag, int64_t first, int64_t count, fth_shard_facts *facts)
{
    fth_dataset *dataset = NULL;
    uint8_t pixels[16];
    int32_t label;
    if (get(f, etag, first, count, &dataset, facts) != FTH_OK)
        fail_msg("%s", fth_error_message());
    assert_int_equal(facts->first, first);
    assert_int_equal(fth_dataset_get_info(dataset)->count[FTH_TRAIN], facts->count);
    assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, 0, pixels, &label), FTH_OK);
    assert_int_equal(pixels[0], first);
    return dataset;
}

static int count_files(const fixture *f, const char *ending)
{
    DIR *folder = opendir(f->folder);
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        size_t length = strlen(entry->d_name), wanted = strlen(ending);
        count += length >= wanted && strcmp(entry->d_name + length - wanted, ending) == 0;
    }
    closedir(folder);
    return count;
}

static void transfers_a_shard_once(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    fth_dataset *first = must_get(f, NULL, 0, 0, &facts);
    assert_int_equal(facts.received_bytes, f->source.archive.size_bytes);
    assert_string_equal(facts.etag, "one");
    assert_int_equal(facts.count, 200);
    assert_string_equal(f->source.conditions[0], "");

    /* Warm: asked whether it has changed, and the same set again. */
    assert_ptr_equal(must_get(f, NULL, 0, 0, &facts), first);
    assert_int_equal(facts.received_bytes, 0);
    assert_int_equal(f->source.requests, 2);
    assert_string_equal(f->source.conditions[1], "\"one\"");

    /* Its ETag is known: not even asked. A signature of another time makes no difference. */
    snprintf(strstr(f->url, "secret"), 16, "other");
    must_get(f, "\"one\"", 50, 20, &facts);
    assert_int_equal(facts.count, 20);
    must_get(f, "one", 190, 20, &facts);
    assert_int_equal(facts.count, 10);
    assert_int_equal(f->source.requests, 2);

    /* Another process has it too. */
    open_cache(f, 0);
    must_get(f, NULL, 5, 0, &facts);
    assert_int_equal(facts.received_bytes, 0);
    assert_int_equal(f->source.requests, 3);
    assert_int_equal(count_files(f, ".shard"), 1);

    /* It is replaced. */
    free(f->source.archive.bytes);
    f->source.archive = make_idx_archive(ARCHIVE_TAR_GZ, "", 100, 4);
    f->source.etag = "\"two\"";
    must_get(f, "", 0, 0, &facts);
    assert_int_equal(facts.count, 100);
    assert_string_equal(facts.etag, "two");
    fth_dataset *dataset = NULL;
    assert_int_equal(get(f, "one", 0, 0, &dataset, &facts), FTH_CORRUPT);
    assert_null(dataset);
    assert_message_has("replaced since it was listed");
    assert_int_equal(count_files(f, ".shard"), 1);
}

static void keeps_nothing_without_an_etag(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    static const char *const useless[] = {NULL, "W/\"weak\"", "\"two words\""};
    for (size_t i = 0; i < FTH_COUNT_OF(useless); i++) {
        f->source.etag = useless[i];
        must_get(f, NULL, 0, 0, &facts);
        assert_int_equal(facts.received_bytes, f->source.archive.size_bytes);
        assert_string_equal(facts.etag, "");
        assert_int_equal(count_files(f, ".shard"), 0);
        assert_int_equal(count_files(f, ""), 2); /* . and .. */
    }
}

static void tries_again_and_gives_up(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    fth_dataset *dataset = NULL;
    f->source.fail_first = 2;
    must_get(f, NULL, 0, 0, &facts);
    assert_int_equal(f->source.requests, 3);

    open_cache(f, 0);
    f->source.requests = 0;
    f->source.fail_first = 1;
    f->source.break_off = true; /* in the middle of a body */
    f->source.etag = "\"new\"";
    must_get(f, NULL, 0, 0, &facts);
    assert_int_equal(facts.received_bytes, f->source.archive.size_bytes + f->source.archive.size_bytes / 2);
    assert_int_equal(f->source.requests, 2);

    static const struct {
        int code;
        const char *message;
    } refusals[] = {{403, "signature is wrong or has expired"},
                    {404, "no such object"},
                    {302, "redirects are not followed"},
                    {206, "answered 206"}};
    for (size_t i = 0; i < FTH_COUNT_OF(refusals); i++) {
        f->source.code = refusals[i].code;
        f->source.requests = 0;
        assert_int_equal(get(f, "else", 0, 0, &dataset, &facts), FTH_INVALID);
        assert_message_of(refusals[i].message, refusals[i].message);
        assert_message_of("the path", "/mnist/part-1.tar.gz");
        assert_null(strstr(fth_error_message(), "secret"));
        assert_int_equal(f->source.requests, 1);
    }
    f->source.code = 503;
    assert_int_equal(fth_shard_cache_get(f->cache,
                                         &(fth_shard_request){.url = f->url, .deadline = fth_deadline_in(0.3)},
                                         &dataset, &facts),
                     FTH_TIMEOUT);
    assert_message_has("503");
    assert_int_equal(count_files(f, ""), 3);
}

static void refuses_addresses_and_sizes(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    fth_dataset *dataset = NULL;
    static const char *const addresses[] = {"",           "ftp://x/y",        "s3://bucket/x", "/etc/passwd",
                                            "file://etc", "file:///dev/zero", "file:///etc"};
    for (size_t i = 0; i < FTH_COUNT_OF(addresses); i++)
        assert_int_equal(fth_shard_cache_get(f->cache,
                                             &(fth_shard_request){.url = addresses[i], .deadline = fth_deadline_in(9)},
                                             &dataset, &facts),
                         FTH_INVALID);
    open_cache(f, f->source.archive.size_bytes - 1);
    assert_int_equal(get(f, NULL, 0, 0, &dataset, &facts), FTH_INVALID);
    assert_int_equal(count_files(f, ""), 2);
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_stop_ask(&stop, FTH_STOP_REQUEST, 1, "test", "enough");
    open_cache(f, 0);
    assert_int_equal(fth_shard_cache_get(
                         f->cache, &(fth_shard_request){.url = f->url, .deadline = fth_deadline_in(9), .stop = &stop},
                         &dataset, &facts),
                     FTH_INTERRUPTED);
}

/* What another machine names is neither a file of this one nor one of its services, however it is
 * written. */
static void keeps_foreign_addresses_away(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    fth_dataset *dataset = NULL;
    char path[TEST_MAX_PATH], file[TEST_MAX_PATH + 8];
    static const char *const hosts[] = {"127.0.0.1",      "localhost", "127.1", "2130706433",      "0.0.0.0",
                                        "[::1]",          "[fe80::1]", "[::]",  "[fd00:ec2::254]", "[::ffff:127.0.0.1]",
                                        "169.254.169.254"};
    must_get(f, NULL, 0, 1, &facts); /* and a connection that is open already is not used for it */
    int requests = f->source.requests;
    for (size_t i = 0; i < FTH_COUNT_OF(hosts); i++) {
        snprintf(f->url, sizeof f->url, "http://%s:%d/x?sig=secret", hosts[i], f->server.port);
        fth_status status = fth_shard_cache_get(
            f->cache, &(fth_shard_request){.url = f->url, .foreign = true, .deadline = test_deadline_in(60)}, &dataset,
            &facts);
        assert_int_equal(status, FTH_INVALID);
        assert_null(strstr(fth_error_message(), "secret"));
    }
    assert_int_equal(f->source.requests, requests);
    test_write("here.tar.gz", f->source.archive.bytes, f->source.archive.size_bytes);
    snprintf(file, sizeof file, "file://%s", test_path(path, "here.tar.gz"));
    fth_shard_request local = {.url = file, .foreign = true, .deadline = fth_deadline_in(9)};
    assert_int_equal(fth_shard_cache_get(f->cache, &local, &dataset, &facts), FTH_INVALID);
    assert_message_has("must not choose files of this one");
    local.foreign = false;
    assert_int_equal(fth_shard_cache_get(f->cache, &local, &dataset, &facts), FTH_OK);
}

/* Also where the invoker chose the URL, and through a proxy, which would connect to it. */
static void never_connects_to_metadata_services(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    fth_dataset *dataset = NULL;
    char proxy[64];
    static const char *const hosts[] = {"169.254.169.254",
                                        "169.254.0.1",
                                        "169.254.255.255",
                                        "2852039166",
                                        "0xa9fea9fe",
                                        "0251.0376.0251.0376",
                                        "169.254.43518",
                                        "169.254.169.254.",
                                        "[fe80::1]",
                                        "[fe80::1%25lo]",
                                        "[febf::1]",
                                        "[fd00:ec2::254]",
                                        "[fd20:ce::254]",
                                        "[::ffff:169.254.169.254]",
                                        "[::ffff:a9fe:a9fe]",
                                        "[::169.254.169.254]",
                                        "[64:ff9b::169.254.169.254]",
                                        "[64:ff9b:1::a9fe:a9fe]",
                                        "[2002:a9fe:a9fe::1]",
                                        "[::ffff:0:169.254.169.254]",
                                        "100.100.100.200",
                                        "168.63.129.16",
                                        "192.0.0.192",
                                        "u:p@169.254.169.254"};
    snprintf(proxy, sizeof proxy, "http://127.0.0.1:%d", f->server.port);
    for (int through_proxy = 0; through_proxy < 2; through_proxy++) {
        if (through_proxy)
            setenv("http_proxy", proxy, 1);
        for (size_t i = 0; i < FTH_COUNT_OF(hosts); i++) {
            snprintf(f->url, sizeof f->url, "http://%s/latest/meta-data", hosts[i]);
            const fth_shard_request request = {.url = f->url, .deadline = test_deadline_in(60)};
            if (fth_shard_cache_get(f->cache, &request, &dataset, &facts) != FTH_INVALID)
                fail_msg("%s: %s", hosts[i], fth_error_message());
            assert_message_has("refused: it leads");
        }
    }
    unsetenv("http_proxy");
    assert_int_equal(f->source.requests, 0);
}

/* Anybody can make a folder in /tmp, and put shards there that somebody else trains with. */
static void uses_no_folder_of_others(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    must_get(f, NULL, 0, 1, &facts);
    assert_int_equal(count_files(f, ".shard"), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chmod(f->folder, i == 0 ? 0722 : 0700), 0);
        if (i == 1 && chown(f->folder, 12345, 12345) != 0)
            break; /* only root can */
        open_cache(f, 0);
        must_get(f, NULL, 0, 1, &facts);
        assert_int_equal(facts.received_bytes, f->source.archive.size_bytes); /* in spite of the one that lies there */
    }
}

static void get_another(fixture *f, int number, fth_shard_facts *facts)
{
    snprintf(strstr(f->url, "/mnist/"), 40, "/mnist/part-%d.tar.gz", number);
    must_get(f, NULL, 0, 0, facts);
}

static void removes_what_was_used_longest_ago(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    char others[TEST_MAX_PATH];
    test_write("cache/deep/backup.tar", f->source.archive.bytes, f->source.archive.size_bytes);
    open_cache(f, 3 * 4096);
    for (int i = 1; i <= 3; i++)
        get_another(f, i, &facts);
    assert_int_equal(count_files(f, ".shard"), 3);
    get_another(f, 1, &facts); /* used again */
    assert_int_equal(facts.received_bytes, 0);
    get_another(f, 4, &facts);
    assert_int_equal(count_files(f, ".shard"), 3);
    get_another(f, 1, &facts);
    assert_int_equal(facts.received_bytes, 0);
    get_another(f, 2, &facts);
    assert_true(facts.received_bytes > 0);
    assert_true(fth_file_exists(test_path(others, "cache/deep/backup.tar"))); /* not the cache's to remove */
}

/* Damage of any byte of a file in the cache is a miss, and what is not ours in the folder stays. */
static void takes_no_damaged_file(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    char path[TEST_MAX_PATH + 300] = "";
    DIR *folder;
    struct stat size;
    must_get(f, NULL, 0, 0, &facts);
    folder = opendir(f->folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            snprintf(path, sizeof path, "%s/%s", f->folder, entry->d_name);
    closedir(folder);
    assert_int_equal(stat(path, &size), 0);
    for (off_t at = 0; at < size.st_size; at += at < 160 ? 13 : 101) {
        int descriptor = open(path, O_RDWR);
        char byte;
        assert_int_equal(pread(descriptor, &byte, 1, at), 1);
        byte ^= 0x55;
        assert_int_equal(pwrite(descriptor, &byte, 1, at), 1);
        close(descriptor);
        open_cache(f, 0);
        must_get(f, NULL, 0, 0, &facts);
        /* A byte behind the ETag's end means nothing. */
        assert_true(facts.received_bytes > 0 || (at > 24 + 4 && at < 24 + 128));
    }
    assert_int_equal(truncate(path, size.st_size - 1), 0);
    open_cache(f, 0);
    must_get(f, NULL, 0, 0, &facts);
    assert_true(facts.received_bytes > 0);
}

static void reads_local_files(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    char path[TEST_MAX_PATH];
    test_write("part 1.tar.gz", f->source.archive.bytes, f->source.archive.size_bytes);
    snprintf(f->url, sizeof f->url, "file://%s", test_path(path, "part%201.tar.gz"));
    fth_dataset *first = must_get(f, NULL, 3, 0, &facts);
    assert_int_equal(facts.received_bytes, 0);
    assert_int_equal(facts.count, 197);
    assert_ptr_equal(must_get(f, NULL, 3, 0, &facts), first);
    assert_int_equal(count_files(f, ""), 2);
    free(f->source.archive.bytes);
    f->source.archive = make_idx_archive(ARCHIVE_TAR, "", 10, 4);
    test_write("part 1.tar.gz", f->source.archive.bytes, f->source.archive.size_bytes);
    must_get(f, NULL, 3, 0, &facts);
    assert_int_equal(facts.count, 7);
}

static void works_without_a_folder(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    test_write_text("file", "");
    test_path(f->folder, "file/in");
    open_cache(f, 0);
    must_get(f, NULL, 7, 1, &facts);
    assert_int_equal(facts.received_bytes, f->source.archive.size_bytes);
    must_get(f, NULL, 8, 1, &facts);
    assert_int_equal(facts.received_bytes, f->source.archive.size_bytes);
}

/* Killed at random moments, others find a whole shard or none. */
static void survives_kills(void **state)
{
    fixture *f = *state;
    fth_shard_facts facts;
    for (int i = 0; i < 15; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (fth_shard_cache_open(f->folder, 0, &f->cache) != FTH_OK)
                _exit(1);
            for (;;) {
                fth_dataset *dataset = NULL;
                if (get(f, NULL, 0, 0, &dataset, &facts) != FTH_OK)
                    _exit(1);
                DIR *folder = opendir(f->folder);
                for (struct dirent *entry; (entry = readdir(folder));)
                    if (entry->d_name[0] != '.')
                        unlinkat(dirfd(folder), entry->d_name, 0);
                closedir(folder);
            }
        }
        usleep(1000 + (unsigned)i * 700); /* any moment will do */
        kill(child, SIGKILL);
        int ended = 0;
        waitpid(child, &ended, 0);
        assert_true(WIFSIGNALED(ended));
        open_cache(f, 0);
        must_get(f, NULL, 0, 0, &facts);
        assert_int_equal(facts.count, 200);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(transfers_a_shard_once),       TEST(keeps_nothing_without_an_etag),
        TEST(tries_again_and_gives_up),     TEST(refuses_addresses_and_sizes),
        TEST(keeps_foreign_addresses_away), TEST(never_connects_to_metadata_services),
        TEST(uses_no_folder_of_others),     TEST(removes_what_was_used_longest_ago),
        TEST(takes_no_damaged_file),        TEST(reads_local_files),
        TEST(works_without_a_folder),       TEST(survives_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
