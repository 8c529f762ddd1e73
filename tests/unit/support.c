/* What unit tests share; the header says how. */
#include "support.h"

#include <unistd.h>

char test_folder[TEST_MAX_FOLDER];

int test_make_folder(void **state)
{
    (void)state;
    const char *root = getenv("TMPDIR");
    snprintf(test_folder, sizeof test_folder, "%.150s/farthing-test-XXXXXX", root && *root ? root : "/tmp");
    return mkdtemp(test_folder) ? 0 : -1;
}

int test_remove_folder(void **state)
{
    (void)state;
    char *command = fth_format("chmod -R u+rwx '%s'; rm -rf '%s'", test_folder, test_folder);
    int result = command ? system(command) : -1;
    free(command);
    return result;
}

char *test_path(char *path, const char *name)
{
    snprintf(path, TEST_MAX_PATH, "%s/%s", test_folder, name);
    return path;
}

void test_write(const char *name, const void *bytes, size_t size_bytes)
{
    char path[TEST_MAX_PATH];
    FILE *file = fopen(test_path(path, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size_bytes, file), size_bytes);
    assert_int_equal(fclose(file), 0);
}

void test_write_text(const char *name, const char *text)
{
    test_write(name, text, strlen(text));
}

bool test_exists(const char *name)
{
    char path[TEST_MAX_PATH];
    return access(test_path(path, name), F_OK) == 0;
}

void test_check_message(const char *input, const char *part, const char *file, int line)
{
    if (!strstr(fth_error_message(), part)) {
        print_error("%s%sthe message \"%s\" does not say \"%s\"\n", input ? input : "", input ? ": " : "",
                    fth_error_message(), part);
        _fail(file, line);
    }
}
