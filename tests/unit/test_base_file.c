/* Files are whole or absent. */
#include "support.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

/* SHA-256 of "abc", from FIPS 180. */
#define SHA256_ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static char path[TEST_MAX_PATH];

static int make_folder(void **state)
{
    int result = test_make_folder(state);
    test_path(path, "target");
    return result;
}

static int count_entries(void)
{
    int count = 0;
    DIR *entries = opendir(test_folder);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(entries);
    return count;
}

static void assert_content(const char *expected)
{
    char *bytes;
    size_t size;
    assert_int_equal(fth_file_read_all(path, 1000, &bytes, &size), FTH_OK);
    assert_int_equal(size, strlen(expected));
    assert_string_equal(bytes, expected);
    free(bytes);
}

static void unpublished_leaves_nothing(void **state)
{
    (void)state;
    fth_file *file = NULL;
    assert_int_equal(fth_file_create(path, &file), FTH_OK);
    assert_int_equal(fth_file_write(file, "half", 4), FTH_OK);
    assert_int_equal(count_entries(), 1);
    assert_false(fth_file_exists(path));
    fth_file_free(file);
    assert_int_equal(count_entries(), 0);
    fth_file_free(NULL);
}

static void publishing_replaces_at_once(void **state)
{
    (void)state;
    fth_file *file = NULL;
    char hex[65];
    assert_int_equal(fth_file_write_all(path, "old", 3), FTH_OK);
    assert_int_equal(fth_file_create(path, &file), FTH_OK);
    assert_int_equal(fth_file_write(file, "a", 1), FTH_OK);
    assert_int_equal(fth_file_write(file, "bc", 2), FTH_OK);
    assert_content("old");
    assert_int_equal(fth_file_publish(file), FTH_OK);
    assert_content("abc");
    assert_int_equal(fth_file_size_bytes(file), 3);
    fth_file_sha256(file, hex);
    assert_string_equal(hex, SHA256_ABC);
    assert_int_equal(fth_file_publish(file), FTH_INVALID);
    fth_file_free(file);
    assert_int_equal(count_entries(), 1);
}

static void checksums_go_on_after_being_asked_for(void **state)
{
    (void)state;
    fth_file *file = NULL;
    char hex[65];
    uint64_t size = 0;
    assert_int_equal(fth_file_create(path, &file), FTH_OK);
    assert_int_equal(fth_file_write(file, "ab", 2), FTH_OK);
    fth_file_sha256(file, hex);
    assert_string_not_equal(hex, SHA256_ABC);
    assert_int_equal(fth_file_write(file, "c", 1), FTH_OK);
    fth_file_sha256(file, hex);
    assert_string_equal(hex, SHA256_ABC);
    assert_int_equal(fth_file_publish(file), FTH_OK);
    fth_file_free(file);
    assert_int_equal(fth_file_sha256_of(path, hex, &size), FTH_OK);
    assert_string_equal(hex, SHA256_ABC);
    assert_int_equal(size, 3);
}

/* A process killed in the middle of writing leaves the old file, and a leftover that is
 * recognizable. */
static void killed_writers_leave_the_old_file(void **state)
{
    (void)state;
    int ready[2];
    char byte;
    assert_int_equal(fth_file_write_all(path, "old", 3), FTH_OK);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        fth_file *file = NULL;
        if (fth_file_create(path, &file) == FTH_OK && fth_file_write(file, "half", 4) == FTH_OK &&
            write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    assert_content("old");
    assert_int_equal(count_entries(), 2);
    DIR *entries = opendir(test_folder);
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] == '.' && strlen(entry->d_name) > 2)
            assert_true(fth_file_is_temporary(entry->d_name));
    }
    closedir(entries);
}

static void names_of_other_programs_are_no_temporaries(void **state)
{
    (void)state;
    assert_true(fth_file_is_temporary(".tmp-a.json-17-00ff00ff00ff00ff"));
    static const char *const others[] = {".tmp-",
                                         ".tmp-backup",
                                         ".tmp-0123456789abcdef",
                                         ".tmp-a-17-00ff",
                                         ".tmp-a--00ff00ff00ff00ff",
                                         "a-17-00ff00ff00ff00ff",
                                         ".tmp-17-00ff00ff00ff00ff"};
    for (size_t i = 0; i < FTH_COUNT_OF(others); i++)
        assert_false(fth_file_is_temporary(others[i]));
}

/* A file-size limit stands in for a full disk: the write comes back short, then fails. */
static void failed_writes_keep_the_old_file(void **state)
{
    (void)state;
    static char large[100000];
    struct rlimit before, small;
    assert_int_equal(fth_file_write_all(path, "old", 3), FTH_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 10000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    fth_status status = fth_file_write_all(path, large, sizeof large);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, FTH_IO);
    assert_message_has("at 10000 bytes with 90000 more");
    assert_content("old");
    assert_int_equal(count_entries(), 1);
}

static void errors_name_the_file(void **state)
{
    (void)state;
    fth_file *file = NULL;
    char *bytes;
    size_t size;
    const void *mapping;
    char *missing = fth_path_join(test_folder, "no/such");
    assert_int_equal(fth_file_create(missing, &file), FTH_INVALID);
    assert_null(file);
    assert_message_has(missing);
    assert_int_equal(fth_file_read_all(missing, 10, &bytes, &size), FTH_INVALID);
    assert_message_has(missing);
    assert_int_equal(fth_file_map(missing, &mapping, &size), FTH_INVALID);
    assert_int_equal(fth_file_read_all(test_folder, 10, &bytes, &size), FTH_INVALID);
    free(missing);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(fth_file_read_all(path, 10, &bytes, &size), FTH_INVALID); /* and does not wait for a writer */
    assert_message_has("not a regular file");
    char *slash = fth_path_join(test_folder, "");
    assert_int_equal(fth_file_create(slash, &file), FTH_INVALID);
    free(slash);
}

static void reading_has_a_limit(void **state)
{
    (void)state;
    char *bytes;
    size_t size;
    assert_int_equal(fth_file_write_all(path, "0123456789", 10), FTH_OK);
    assert_int_equal(fth_file_read_all(path, 9, &bytes, &size), FTH_INVALID);
    assert_null(bytes);
    assert_int_equal(fth_file_read_all(path, 10, &bytes, &size), FTH_OK);
    assert_int_equal(size, 10);
    assert_int_equal(bytes[10], 0);
    free(bytes);
    /* a file that claims to be empty and is not */
    assert_int_equal(fth_file_read_all("/proc/self/stat", 3, &bytes, &size), FTH_INVALID);
    assert_int_equal(fth_file_read_all("/proc/self/stat", 1 << 20, &bytes, &size), FTH_OK);
    assert_true(size > 10);
    free(bytes);
}

static void mapping_sees_the_bytes(void **state)
{
    (void)state;
    const void *bytes;
    size_t size;
    assert_int_equal(fth_file_write_all(path, "", 0), FTH_OK);
    assert_int_equal(fth_file_map(path, &bytes, &size), FTH_OK);
    assert_null(bytes);
    assert_int_equal(size, 0);
    fth_file_unmap(bytes, size);
    assert_int_equal(fth_file_write_all(path, "abc", 3), FTH_OK);
    assert_int_equal(fth_file_map(path, &bytes, &size), FTH_OK);
    assert_int_equal(size, 3);
    assert_memory_equal(bytes, "abc", 3);
    fth_file_unmap(bytes, size);
}

static void folders_are_made_with_their_parents(void **state)
{
    (void)state;
    char *deep = fth_path_join(test_folder, "a//b/c/");
    assert_int_equal(fth_folder_create(deep), FTH_OK);
    assert_true(fth_folder_exists(deep));
    assert_false(fth_file_exists(deep));
    assert_int_equal(fth_folder_create(deep), FTH_OK);
    assert_int_equal(fth_folder_sync(deep), FTH_OK);
    free(deep);
    assert_int_equal(fth_file_write_all(path, "x", 1), FTH_OK);
    assert_int_equal(fth_folder_create(path), FTH_INVALID);
    assert_message_has("in the way");
    char *under_file = fth_path_join(path, "child");
    assert_int_equal(fth_folder_create(under_file), FTH_INVALID);
    free(under_file);
    assert_int_equal(fth_folder_create(""), FTH_INVALID);
}

static void paths_join_with_one_slash(void **state)
{
    (void)state;
    static const char *const cases[][3] = {{"a", "b", "a/b"}, {"a/", "/b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        char *joined = fth_path_join(cases[i][0], cases[i][1]);
        assert_string_equal(joined, cases[i][2]);
        free(joined);
    }
}

static void a_path_without_memory_is_an_error(void **state)
{
    (void)state;
    fth_file *file = NULL;
    char *bytes = NULL, hex[65];
    const void *mapped = NULL;
    size_t size = 0;
    assert_null(fth_path_join(NULL, "a"));
    assert_null(fth_path_join("a", NULL));
    assert_null(fth_path_folder(NULL));
    assert_false(fth_file_exists(NULL));
    assert_false(fth_folder_exists(NULL));
    assert_int_equal(fth_file_create(NULL, &file), FTH_NO_MEMORY);
    assert_null(file);
    assert_int_equal(fth_file_write_all(NULL, "x", 1), FTH_NO_MEMORY);
    assert_int_equal(fth_file_read_all(NULL, 10, &bytes, &size), FTH_NO_MEMORY);
    assert_int_equal(fth_file_map(NULL, &mapped, &size), FTH_NO_MEMORY);
    assert_int_equal(fth_file_sha256_of(NULL, hex, NULL), FTH_NO_MEMORY);
    assert_int_equal(fth_folder_create(NULL), FTH_NO_MEMORY);
    assert_int_equal(fth_folder_sync(NULL), FTH_NO_MEMORY);
    assert_message_has("no memory for a path");
}

static void folders_of_paths(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"a/b", "a"}, {"a", "."}, {"/a", "/"}, {"/a/b/c", "/a/b"}, {"a/", "a"}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        char *folder = fth_path_folder(cases[i][0]);
        assert_string_equal(folder, cases[i][1]);
        free(folder);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, test_remove_folder)

static void temporary_folders_are_ones_own(void **state)
{
    (void)state;
    char *first = NULL, *second = NULL, missing[TEST_MAX_PATH];
    setenv("TMPDIR", test_folder, 1);
    assert_int_equal(fth_folder_create_temporary(&first), FTH_OK);
    assert_int_equal(fth_folder_create_temporary(&second), FTH_OK);
    assert_true(fth_folder_exists(first) && fth_folder_exists(second));
    assert_string_not_equal(first, second);
    assert_int_equal(strncmp(first, test_folder, strlen(test_folder)), 0);
    free(first);
    free(second);
    test_path(missing, "missing");
    setenv("TMPDIR", missing, 1);
    first = NULL;
    assert_int_not_equal(fth_folder_create_temporary(&first), FTH_OK);
    assert_null(first);
    assert_message_has("missing/farthing-");
    unsetenv("TMPDIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(unpublished_leaves_nothing),
        TEST(publishing_replaces_at_once),
        TEST(checksums_go_on_after_being_asked_for),
        TEST(killed_writers_leave_the_old_file),
        TEST(names_of_other_programs_are_no_temporaries),
        TEST(failed_writes_keep_the_old_file),
        TEST(errors_name_the_file),
        TEST(reading_has_a_limit),
        TEST(mapping_sees_the_bytes),
        TEST(folders_are_made_with_their_parents),
        TEST(temporary_folders_are_ones_own),
        TEST(paths_join_with_one_slash),
        TEST(a_path_without_memory_is_an_error),
        TEST(folders_of_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
