/* What unit tests share: cmocka with the headers it wants, a temporary folder for each test, and
 * messages looked at. */
#ifndef TEST_SUPPORT_H
#define TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

/* TEST_SLOWDOWN: how many times longer than usual a test may take, as CMake says: with a sanitizer
 * or in QEMU. A limit that only keeps a test from hanging is made with test_deadline_in(). */
static inline fth_deadline test_deadline_in(double seconds)
{
    return fth_deadline_in(TEST_SLOWDOWN * seconds);
}

/* Room for a path in the test's folder. */
enum { TEST_MAX_FOLDER = 200, TEST_MAX_PATH = 400 };

/* The test's own folder, between test_make_folder and test_remove_folder. */
extern char test_folder[TEST_MAX_FOLDER];

/* A test's setup and teardown, or part of them: make the folder, under $TMPDIR, and remove it with
 * all that is in it, also what a test has made unwritable. */
int test_make_folder(void **state);
int test_remove_folder(void **state);

/* The path of `name` in the test's folder, in `path`, which has room for TEST_MAX_PATH. Gives
 * `path`. */
char *test_path(char *path, const char *name);

/* Writes a file of the test's folder. */
void test_write(const char *name, const void *bytes, size_t size_bytes);
void test_write_text(const char *name, const char *text);

bool test_exists(const char *name);

/* Skips the test where posix_spawn() says nothing of a program that is missing: QEMU starts a
 * process that shares no memory with its parent, and so cannot report it. */
void test_require_spawn_errors(void);

/* A text of 32 letters in fresh memory, and how often it is in the memory of this process, freed
 * memory included. It is made anew for each comparison, so that no copy of the test's own is
 * found. */
enum { TEST_SECRET_LENGTH = 32 };
char *test_make_secret(void);
int test_count_secret(void);

/* Fails where the message of the last failure lacks `part`; assert_message_of says also for which
 * input. */
#define assert_message_has(part)       test_check_message(NULL, part, __FILE__, __LINE__)
#define assert_message_of(input, part) test_check_message(input, part, __FILE__, __LINE__)
void test_check_message(const char *input, const char *part, const char *file, int line);

#endif
