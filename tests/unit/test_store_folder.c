/* A folder as a store: whole objects, conditions that hold under threads, order of keys, full
 * disks. */
#include "support.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/store.h"

enum { THREADS = 8, ROUNDS = 20 };

static fth_store *store;

static int make_store(void **state)
{
    return test_make_folder(state) == 0 && fth_store_open(test_folder, NULL, &store) == FTH_OK ? 0 : -1;
}

static int remove_store(void **state)
{
    fth_store_free(store);
    return test_remove_folder(state);
}

static char *inside(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    return path;
}

static fth_store_version put(const char *key, const char *text)
{
    fth_store_version version;
    assert_int_equal(fth_store_put(store, key, text, strlen(text), NULL, NULL, &version), FTH_OK);
    assert_true(version.text[0]);
    return version;
}

static void assert_object(const char *key, const char *text)
{
    char *bytes;
    size_t size;
    fth_store_version version;
    assert_int_equal(fth_store_get(store, key, 1 << 20, &bytes, &size, &version), FTH_OK);
    if (!text) {
        assert_null(bytes);
        assert_string_equal(version.text, "");
        return;
    }
    assert_non_null(bytes);
    assert_string_equal(bytes, text);
    assert_int_equal(size, strlen(text));
    free(bytes);
}

static void objects_are_written_and_read(void **state)
{
    (void)state;
    fth_store_object object;
    bool found;
    char *bytes, part[4] = "";
    size_t size;
    assert_object("a/b/c.json", NULL);
    fth_store_version version = put("a/b/c.json", "0123456789");
    assert_object("a/b/c.json", "0123456789");
    assert_object("a/b", NULL); /* a folder is no object */
    assert_object("a/b/c.json/d", NULL);

    assert_int_equal(fth_store_stat(store, "a/b/c.json", &object, &found), FTH_OK);
    assert_true(found);
    assert_int_equal(object.size_bytes, 10);
    assert_string_equal(object.version.text, version.text);
    assert_true(object.modified_s > 1e9);
    fth_store_object_release(&object);
    assert_int_equal(fth_store_stat(store, "nothing", &object, &found), FTH_OK);
    assert_false(found);

    assert_int_equal(fth_store_get_range(store, "a/b/c.json", 4, part, 3, &version), FTH_OK);
    assert_string_equal(part, "456");
    assert_int_equal(fth_store_get_range(store, "a/b/c.json", 8, part, 3, NULL), FTH_CORRUPT);
    assert_int_equal(fth_store_get_range(store, "nothing", 0, part, 3, NULL), FTH_INVALID);
    put("a/b/c.json", "abcdefghij");
    assert_int_equal(fth_store_get_range(store, "a/b/c.json", 4, part, 3, &version), FTH_CORRUPT);
    assert_int_equal(fth_store_get(store, "a/b/c.json", 9, &bytes, &size, NULL), FTH_INVALID);
    put("empty", "");
    assert_object("empty", "");
}

static void versions_of_equal_sizes_differ(void **state)
{
    (void)state;
    fth_store_version last = put("clock", "0000");
    for (int i = 1; i < 300; i++) { /* many within one tick of the file system's clock */
        char text[8];
        snprintf(text, sizeof text, "%04d", i);
        fth_store_version now = put("clock", text);
        assert_string_not_equal(now.text, last.text);
        last = now;
    }
}

/* ---- conditions ---- */

static void *create_together(void *wins)
{
    for (int i = 0; i < ROUNDS; i++) {
        char key[32];
        bool lost = true;
        snprintf(key, sizeof key, "round-%d", i);
        fth_store_put_options options = {.condition = FTH_STORE_IF_ABSENT};
        if (fth_store_put(store, key, "x", 1, &options, &lost, NULL) != FTH_OK)
            return "failed";
        if (!lost)
            __atomic_add_fetch((int *)wins + i, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void one_of_many_creates(void **state)
{
    (void)state;
    int wins[ROUNDS] = {0};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, create_together, wins), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
    for (int i = 0; i < ROUNDS; i++)
        assert_int_equal(wins[i], 1);
}

/* Adds ROUNDS to a number by compare-and-swap. */
static void *count_up(void *unused)
{
    (void)unused;
    for (int done = 0; done < ROUNDS;) {
        fth_store_put_options options = {.condition = FTH_STORE_IF_MATCH};
        char *bytes, text[16];
        size_t size;
        bool lost = true;
        if (fth_store_get(store, "sub/number", 16, &bytes, &size, &options.match) != FTH_OK || !bytes)
            return "not read";
        snprintf(text, sizeof text, "%d", atoi(bytes) + 1);
        free(bytes);
        if (fth_store_put(store, "sub/number", text, strlen(text), &options, &lost, NULL) != FTH_OK)
            return "not written";
        done += !lost;
    }
    return NULL;
}

static void no_update_is_lost(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    put("sub/number", "0");
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
    assert_object("sub/number", "160");
}

static void lost_conditions_change_nothing(void **state)
{
    (void)state;
    bool lost = false;
    fth_store_version version;
    fth_store_put_options absent = {.condition = FTH_STORE_IF_ABSENT}, match = {.condition = FTH_STORE_IF_MATCH};
    match.match = put("key", "one");
    assert_int_equal(fth_store_put(store, "key", "two", 3, &absent, &lost, &version), FTH_OK);
    assert_true(lost);
    assert_string_equal(version.text, "");
    assert_object("key", "one");
    assert_int_equal(fth_store_put(store, "key", "two", 3, &match, &lost, &version), FTH_OK);
    assert_false(lost);
    assert_int_equal(fth_store_put(store, "key", "three", 5, &match, &lost, NULL), FTH_OK);
    assert_true(lost);
    assert_object("key", "two");
    assert_int_equal(fth_store_put(store, "other", "three", 5, &match, &lost, NULL), FTH_OK);
    assert_true(lost);
    assert_object("other", NULL);
    assert_int_equal(fth_store_check_conditions(store), FTH_OK);
}

/* ---- listing and deleting ---- */

static bool note_key(void *context, const fth_store_object *object)
{
    char *text = context;
    strcat(text, object->key);
    strcat(text, " ");
    return strcmp(object->key, "stop") != 0;
}

static void assert_list(const char *prefix, const char *expected)
{
    char text[500] = "";
    assert_int_equal(fth_store_list(store, prefix, note_key, text), FTH_OK);
    assert_string_equal(text, expected);
}

static void lists_are_in_order_of_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {"a/z", "a.txt", "a/b/c", "ab", "a-b", "a0", ".hidden"};
    for (size_t i = 0; i < FTH_COUNT_OF(keys); i++)
        put(keys[i], "x");
    assert_list("", ".hidden a-b a.txt a/b/c a/z a0 ab ");
    assert_list("a/", "a/b/c a/z ");
    assert_list("a/b", "a/b/c ");
    assert_list("ab", "ab ");
    assert_list("none/", "");
    put("stop", "x");
    put("zzz", "x");
    assert_list("s", "stop ");
    assert_list("", ".hidden a-b a.txt a/b/c a/z a0 ab stop ");
}

static void lists_begin_behind_a_key(void **state)
{
    (void)state;
    static const char *const keys[] = {"a/1", "a/2", "b", "c"};
    char text[100] = "";
    for (size_t i = 0; i < FTH_COUNT_OF(keys); i++)
        put(keys[i], "x");
    assert_true(fth_store_can_list(store));
    assert_int_equal(fth_store_list_after(store, "", "a/1", note_key, text), FTH_OK);
    assert_string_equal(text, "a/2 b c ");
    text[0] = '\0';
    assert_int_equal(fth_store_list_after(store, "a/", "a/1zzz", note_key, text), FTH_OK);
    assert_string_equal(text, "a/2 ");
}

static bool note_version(void *context, const fth_store_object *object)
{
    *(fth_store_version *)context = object->version;
    return true;
}

/* What a list gives is good for reading that version, and no other. */
static void listed_versions_are_read(void **state)
{
    (void)state;
    fth_store_version listed = {{0}};
    char bytes[3];
    put("key", "one");
    assert_int_equal(fth_store_list(store, "", note_version, &listed), FTH_OK);
    assert_true(listed.text[0]);
    assert_int_equal(fth_store_get_range(store, "key", 0, bytes, 3, &listed), FTH_OK);
    fth_store_version cut = listed;
    cut.text[strlen(cut.text) - 1] = '\0';
    assert_int_equal(fth_store_get_range(store, "key", 0, bytes, 3, &cut), FTH_CORRUPT);
    put("key", "two");
    assert_int_equal(fth_store_get_range(store, "key", 0, bytes, 3, &listed), FTH_CORRUPT);
    assert_message_has("replaced meanwhile");
}

static void write_aged(const char *name, const struct timespec *times)
{
    assert_int_equal(fth_file_write_all(inside(name), "x", 1), FTH_OK);
    assert_int_equal(utimensat(AT_FDCWD, inside(name), times, 0), 0);
}

static void leftovers_are_hidden_and_swept(void **state)
{
    (void)state;
    struct timespec old[2] = {{.tv_sec = time(NULL) - 2 * 86400}, {.tv_sec = time(NULL) - 2 * 86400}};
    put("sub/a", "x");
    write_aged("sub/.tmp-old-12-0123456789abcdef", old);
    write_aged("sub/.tmp-new-12-0123456789abcdef", NULL);
    write_aged("sub/.tmp-of-another-program", old);
    assert_int_equal(symlink("..", inside("sub/circle")), 0);
    assert_int_equal(symlink("a", inside("sub/link")), 0);
    assert_list("", "sub/a sub/link ");
    assert_false(fth_file_exists(inside("sub/.tmp-old-12-0123456789abcdef")));
    assert_true(fth_file_exists(inside("sub/.tmp-new-12-0123456789abcdef")));
    assert_true(fth_file_exists(inside("sub/.tmp-of-another-program")));
    assert_int_equal(fth_store_put(store, "sub/.tmp-mine", "x", 1, NULL, NULL, NULL), FTH_INVALID);
}

static void a_delete_follows_no_link_below_the_root(void **state)
{
    (void)state;
    put("outside/kept", "x");
    put("in/a", "x");
    assert_int_equal(symlink("../outside", inside("in/link")), 0);
    assert_int_equal(symlink("../outside/kept", inside("in/object")), 0);
    assert_int_equal(fth_store_delete(store, "in/link/kept"), FTH_INVALID);
    assert_message_has("in/link is a symbolic link");
    assert_int_equal(fth_store_delete(store, "in/object"), FTH_OK); /* the link itself */
    assert_object("outside/kept", "x");
    assert_object("in/object", NULL);
}

static void deleting_takes_empty_folders_along(void **state)
{
    (void)state;
    put("a/b/c", "x");
    put("a/d", "x");
    assert_int_equal(fth_store_delete(store, "a/b/c"), FTH_OK);
    assert_int_equal(fth_store_delete(store, "a/b/c"), FTH_OK);
    assert_int_equal(fth_store_delete(store, "never"), FTH_OK);
    assert_false(fth_folder_exists(inside("a/b")));
    assert_true(fth_folder_exists(inside("a")));
    assert_int_equal(fth_store_delete(store, "a/d"), FTH_OK);
    assert_false(fth_folder_exists(inside("a")));
    assert_true(fth_folder_exists(test_folder));
    assert_int_equal(fth_store_delete(store, "a/d"), FTH_OK);
}

static void *put_and_delete(void *name)
{
    for (int i = 0; i < 100; i++)
        if (fth_store_put(store, name, "x", 1, NULL, NULL, NULL) != FTH_OK || fth_store_delete(store, name) != FTH_OK)
            return "failed";
    return NULL;
}

static void folders_may_vanish_under_a_writer(void **state)
{
    (void)state;
    static const char *const names[] = {"deep/er/a", "deep/er/b", "deep/c"};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_and_delete, (void *)names[i]), 0);
    for (int i = 0; i < 3; i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
}

/* ---- large objects, full disks, refusals ---- */

static bool cancel_in_the_middle(void *context, uint64_t done, uint64_t total)
{
    *(uint64_t *)context = done;
    return done < total / 2;
}

static void large_objects_travel_as_files(void **state)
{
    (void)state;
    enum { SIZE = 33 << 20 };
    char *large = malloc(SIZE), first[65], second[65];
    uint64_t reached = 0;
    assert_non_null(large);
    for (size_t i = 0; i < SIZE; i++)
        large[i] = (char)(i * 2654435761u >> 13);
    char *from = strdup(inside("from")), *to = strdup(inside("to"));
    assert_int_equal(fth_file_write_all(from, large, SIZE), FTH_OK);
    fth_store_version version, later;
    assert_int_equal(fth_store_put_file(store, "x/large", from, NULL, &version), FTH_OK);
    assert_int_equal(fth_store_get_file(store, "x/large", to, first), FTH_OK);
    assert_int_equal(fth_file_sha256_of(from, second, NULL), FTH_OK);
    assert_string_equal(first, second);
    assert_int_equal(fth_file_sha256_of(to, second, NULL), FTH_OK);
    assert_string_equal(first, second);

    fth_store_progress progress = {.context = &reached, .moved = cancel_in_the_middle};
    fth_store_put_options options = {.progress = &progress};
    assert_int_equal(fth_store_put_file(store, "x/large", from, &options, &later), FTH_INTERRUPTED);
    assert_true(reached > 0);
    fth_store_object object;
    bool found;
    assert_int_equal(fth_store_stat(store, "x/large", &object, &found), FTH_OK);
    assert_string_equal(object.version.text, version.text);
    fth_store_object_release(&object);
    assert_list("x", "x/large ");
    assert_int_equal(fth_store_get_file(store, "x/none", to, NULL), FTH_INVALID);
    options = (fth_store_put_options){.condition = FTH_STORE_IF_ABSENT};
    assert_int_equal(fth_store_put_file(store, "x/large", from, &options, NULL), FTH_INVALID);
    free(from);
    free(to);
    free(large);
}

static void a_full_disk_leaves_the_old_object(void **state)
{
    (void)state;
    put("key", "old");
    pid_t child = fork();
    if (child == 0) {
        char *large = calloc(1, 1 << 20);
        struct rlimit limit = {.rlim_cur = 1 << 16, .rlim_max = 1 << 16};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        fth_status status = fth_store_put(store, "key", large, 1 << 20, NULL, NULL, NULL);
        _exit(status == FTH_IO && strstr(fth_error_message(), "ulimit -f") ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_object("key", "old");
    assert_list("", "key ");
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"", "/a", "a//b", "../a", "a/./b", "a/", "a\nb"};
    fth_store *other = NULL;
    char *url = NULL;
    for (size_t i = 0; i < FTH_COUNT_OF(keys); i++)
        assert_int_equal(fth_store_put(store, keys[i], "x", 1, NULL, NULL, NULL), FTH_INVALID);
    put("a", "x");
    assert_int_equal(fth_store_put(store, "a/b", "x", 1, NULL, NULL, NULL), FTH_INVALID); /* a file is in the way */
    put("d/e", "x");
    assert_int_equal(fth_store_put(store, "d", "x", 1, NULL, NULL, NULL), FTH_INVALID); /* and a folder */
    assert_int_equal(fth_store_presign(store, "GET", "a", 60, &url), FTH_UNSUPPORTED);
    assert_null(url);
    assert_int_equal(fth_store_open("file://elsewhere/a", NULL, &other), FTH_INVALID);
    assert_int_equal(fth_store_open(inside("a"), NULL, &other), FTH_INVALID);
    assert_int_equal(fth_store_open("ftp://host/a", NULL, &other), FTH_INVALID);
    assert_message_has("\"ftp://\"; known are file://, https://, http://, s3://, gs://, az://");
    assert_null(other);
}

static void addresses_of_folders(void **state)
{
    (void)state;
    char url[600];
    fth_store *other = NULL;
    put("a b/c", "x");
    snprintf(url, sizeof url, "file://%s/a%%20b/", test_folder);
    assert_int_equal(fth_store_open(url, NULL, &other), FTH_OK);
    char *bytes;
    size_t size;
    assert_int_equal(fth_store_get(other, "c", 10, &bytes, &size, NULL), FTH_OK);
    assert_string_equal(bytes, "x");
    free(bytes);
    assert_int_equal(fth_store_delete(other, "c"), FTH_OK); /* the root stays */
    assert_true(fth_folder_exists(inside("a b")));
    assert_non_null(strstr(fth_store_folder(other), "a b"));
    fth_store_free(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_store, remove_store)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(objects_are_written_and_read),
        TEST(versions_of_equal_sizes_differ),
        TEST(one_of_many_creates),
        TEST(no_update_is_lost),
        TEST(lost_conditions_change_nothing),
        TEST(lists_are_in_order_of_keys),
        TEST(lists_begin_behind_a_key),
        TEST(listed_versions_are_read),
        TEST(leftovers_are_hidden_and_swept),
        TEST(a_delete_follows_no_link_below_the_root),
        TEST(deleting_takes_empty_folders_along),
        TEST(folders_may_vanish_under_a_writer),
        TEST(large_objects_travel_as_files),
        TEST(a_full_disk_leaves_the_old_object),
        TEST(what_cannot_be_is_refused),
        TEST(addresses_of_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
