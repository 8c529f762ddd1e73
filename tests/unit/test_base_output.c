/* Output that the user names: links are followed, and what is not a regular file is written to and
 * never replaced. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"

static char path[TEST_MAX_PATH], other[TEST_MAX_PATH];

static mode_t kind_of(const char *name)
{
    struct stat facts;
    char at[TEST_MAX_PATH];
    assert_int_equal(lstat(test_path(at, name), &facts), 0);
    return facts.st_mode & S_IFMT;
}

static void assert_content(const char *name, const char *expected)
{
    char at[TEST_MAX_PATH], *bytes;
    size_t size;
    assert_int_equal(fth_file_read_all(test_path(at, name), 1000, &bytes, &size), FTH_OK);
    assert_string_equal(bytes, expected);
    free(bytes);
}

static void assert_read(int descriptor, const char *expected)
{
    char bytes[100] = "";
    assert_int_equal(read(descriptor, bytes, sizeof bytes - 1), strlen(expected));
    assert_string_equal(bytes, expected);
}

static void links_are_followed(void **state)
{
    (void)state;
    test_write_text("target", "old");
    assert_int_equal(mkdir(test_path(path, "below"), 0755), 0);
    assert_int_equal(symlink("target", test_path(path, "first")), 0);
    assert_int_equal(symlink("../first", test_path(path, "below/second")), 0);
    assert_int_equal(fth_file_write_output(path, "new", 3), FTH_OK);
    assert_int_equal(kind_of("first"), S_IFLNK);
    assert_int_equal(kind_of("below/second"), S_IFLNK);
    assert_int_equal(kind_of("target"), S_IFREG);
    assert_content("target", "new");

    fth_file *file = NULL; /* whole or absent, as without a link */
    assert_int_equal(fth_file_create_output(path, &file), FTH_OK);
    assert_int_equal(fth_file_write(file, "half", 4), FTH_OK);
    fth_file_free(file);
    assert_content("target", "new");
}

static void a_link_to_nothing_makes_its_target(void **state)
{
    (void)state;
    test_path(other, "absent");
    assert_int_equal(symlink(other, test_path(path, "link")), 0);
    assert_int_equal(fth_file_write_output(path, "new", 3), FTH_OK);
    assert_int_equal(kind_of("link"), S_IFLNK);
    assert_content("absent", "new");
}

static void what_cannot_hold_a_file_is_refused(void **state)
{
    (void)state;
    assert_int_equal(symlink("b", test_path(path, "a")), 0);
    assert_int_equal(symlink("a", test_path(other, "b")), 0);
    assert_int_equal(fth_file_write_output(path, "x", 1), FTH_INVALID);
    assert_message_has("in a circle");
    assert_int_equal(fth_file_write_output(test_folder, "x", 1), FTH_INVALID);
    assert_message_has("it is a folder");

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", test_path(path, "socket"));
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(fth_file_write_output(path, "x", 1), FTH_INVALID);
    assert_message_has("it is a socket");
    assert_int_equal(kind_of("socket"), S_IFSOCK);
    close(listener);
}

static void a_pipe_is_written_to(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(test_path(path, "pipe"), 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_int_equal(symlink("pipe", test_path(other, "link")), 0);
    assert_int_equal(fth_file_write_output(other, "through", 7), FTH_OK);
    assert_read(reader, "through");
    assert_int_equal(kind_of("pipe"), S_IFIFO);
    close(reader);
}

static void nobody_waits_for_ever_for_a_pipe(void **state)
{
    (void)state;
    char *resolved = NULL, block[4096] = {0};
    int descriptor = -1;
    assert_int_equal(mkfifo(test_path(path, "pipe"), 0600), 0);
    assert_int_equal(fth_output_open(path, 0.03, &resolved, &descriptor), FTH_TIMEOUT);
    assert_message_has("nothing has opened this pipe");
    assert_null(resolved);

    int reader = open(path, O_RDONLY | O_NONBLOCK); /* which reads nothing */
    assert_int_equal(fth_output_open(path, 0.03, &resolved, &descriptor), FTH_OK);
    while (write(descriptor, block, sizeof block) > 0)
        continue;
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(fth_output_wait(descriptor, resolved, 0.03), FTH_TIMEOUT);
    assert_message_has("nothing has been read from this pipe");
    close(descriptor);
    close(reader);
    free(resolved);
}

static void a_terminal_is_written_to(void **state)
{
    (void)state;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
        print_message("SKIP: there are no pseudo-terminals here: %s\n", strerror(errno));
        skip();
    }
    assert_int_equal(symlink(ptsname(terminal), test_path(path, "terminal")), 0);
    int held = open(path, O_RDWR | O_NOCTTY); /* or what was written is gone with its writer */
    assert_int_equal(fth_file_write_output(path, "shown", 5), FTH_OK);
    assert_read(terminal, "shown");
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_true(S_ISCHR(facts.st_mode));
    close(held);
    close(terminal);
}

static void a_device_is_written_to(void **state)
{
    (void)state;
    if (mknod(test_path(path, "null"), S_IFCHR | 0600, makedev(1, 3)) != 0 ||
        mknod(test_path(other, "full"), S_IFCHR | 0600, makedev(1, 7)) != 0) {
        print_message("SKIP: devices cannot be made here: %s\n", strerror(errno));
        skip();
    }
    assert_int_equal(fth_file_write_output(path, "gone", 4), FTH_OK);
    assert_int_equal(kind_of("null"), S_IFCHR);
    assert_int_equal(fth_file_write_output(other, "no room", 7), FTH_NO_SPACE);
    assert_message_has("disk full");
    assert_int_equal(kind_of("full"), S_IFCHR);
}

static void an_open_descriptor_is_written_to(void **state)
{
    (void)state;
    int ends[2];
    char name[64];
    assert_int_equal(pipe(ends), 0);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[1]);
    assert_int_equal(symlink(name, test_path(path, "link")), 0);
    assert_int_equal(fth_file_write_output(path, "a", 1), FTH_OK);
    assert_int_equal(fth_file_write_output(name, "b", 1), FTH_OK); /* still open */
    assert_read(ends[0], "ab");
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(fth_file_write_output(name, "c", 1), FTH_INVALID);
    assert_message_has(name);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_make_folder, test_remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(links_are_followed),
        TEST(a_link_to_nothing_makes_its_target),
        TEST(what_cannot_hold_a_file_is_refused),
        TEST(a_pipe_is_written_to),
        TEST(nobody_waits_for_ever_for_a_pipe),
        TEST(a_terminal_is_written_to),
        TEST(a_device_is_written_to),
        TEST(an_open_descriptor_is_written_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
