/* What unit tests share; the header says how. */
#include "support.h"

#include <spawn.h>
#include <sys/wait.h>
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

void test_require_spawn_errors(void)
{
    const char *const arguments[] = {"/nonexistent/program", NULL};
    pid_t process;
    if (posix_spawn(&process, arguments[0], NULL, NULL, (char *const *)arguments, environ) != 0)
        return;
    waitpid(process, NULL, 0);
    print_message("SKIP: posix_spawn() reports success for a program that is missing, as in QEMU\n");
    skip();
}

void test_check_message(const char *input, const char *part, const char *file, int line)
{
    if (!strstr(fth_error_message(), part)) {
        print_error("%s%sthe message \"%s\" does not say \"%s\"\n", input ? input : "", input ? ": " : "",
                    fth_error_message(), part);
        _fail(file, line);
    }
}

/* ---- secrets ---- */

static char secret_letter(size_t i)
{
    return (char)('a' + ((uint32_t)(i + 1) * UINT32_C(2654435761) >> 16) % 26);
}

char *test_make_secret(void)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* its allocator keeps what was freed, and reading that is what it reports */
#endif
    char *secret = malloc(TEST_SECRET_LENGTH + 1);
    assert_non_null(secret);
    for (size_t i = 0; i < TEST_SECRET_LENGTH; i++)
        secret[i] = secret_letter(i);
    secret[TEST_SECRET_LENGTH] = '\0';
    return secret;
}

/* Freed memory loses its first 16 bytes to the allocator, so the second half of the secret stands
 * for it. */
__attribute__((no_sanitize("address"))) static int count_in(const char *from, const char *to)
{
    enum { HALF = TEST_SECRET_LENGTH / 2 };
    int count = 0;
    for (; from + HALF <= to; from++) {
        size_t same = 0;
        while (same < HALF && from[same] == secret_letter(HALF + same))
            same++;
        count += same == HALF;
    }
    return count;
}

int test_count_secret(void)
{
    enum { MOST_BYTES = 1 << 28 }; /* more: the shadow memory of a sanitizer */
    char line[512], rights[8];
    unsigned long from, to;
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && strncmp(rights, "rw", 2) == 0 &&
            to - from <= MOST_BYTES)
            count += count_in((const char *)from, (const char *)to);
    fclose(maps);
    return count;
}
