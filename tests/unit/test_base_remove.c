/* Deletes stay in the folder they were given, whatever links lead out of it, also links that come
 * and go meanwhile. */
#include "support.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROUNDS = 300 };

static int open_test_folder(void)
{
    int folder = open(test_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(folder >= 0);
    return folder;
}

static void make_folder(const char *name)
{
    char path[TEST_MAX_PATH];
    assert_int_equal(fth_folder_create(test_path(path, name)), FTH_OK);
}

static void make_link(const char *target, const char *name)
{
    char path[TEST_MAX_PATH];
    assert_int_equal(symlink(target, test_path(path, name)), 0);
}

static void a_tree_goes_and_what_its_links_lead_to_stays(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    make_folder("kept");
    test_write_text("kept/file", "x");
    make_folder("tree/a/b");
    test_write_text("tree/a/b/c", "x");
    make_link("../kept", "tree/to-folder");
    make_link("../../kept/file", "tree/a/to-file");
    make_link("tree", "link");
    fth_remove_tree(test_path(path, "link")); /* the link alone */
    assert_true(test_exists("tree/a/b/c"));
    assert_false(test_exists("link"));
    fth_remove_tree(test_path(path, "tree"));
    assert_false(fth_folder_exists(path));
    fth_remove_tree(path);
    fth_remove_tree(NULL);
    assert_true(test_exists("kept/file"));
}

static bool is_wanted(const char *folder, const char *name, bool is_folder)
{
    return is_folder || strcmp(folder, "b") == 0 || strcmp(name, "mine") == 0;
}

static void what_is_not_wanted_stays(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    uint64_t freed_bytes = 0;
    int folder = open_test_folder();
    make_folder("tree/b");
    make_folder("tree/empty");
    test_write_text("tree/b/any", "x");
    test_write_text("tree/mine", "x");
    test_write_text("tree/other", "x");
    assert_int_equal(fth_remove_tree_at(folder, "tree", test_path(path, "tree"), is_wanted, &freed_bytes), FTH_OK);
    assert_true(test_exists("tree/other"));
    assert_int_equal(fth_remove_tree_at(folder, "tree/b", path, NULL, NULL), FTH_OK); /* gone already */
    assert_int_equal(unlinkat(folder, "tree/other", 0), 0);
    assert_int_equal(unlinkat(folder, "tree", AT_REMOVEDIR), 0);
    assert_true(freed_bytes > 0);
    close(folder);
}

static void entering_refuses_links_and_dots(void **state)
{
    (void)state;
    int root = open_test_folder(), folder;
    make_folder("a/b");
    make_link("a", "link");
    assert_int_equal(fth_folder_enter(root, test_folder, "a/b", 3, &folder), FTH_OK);
    assert_true(folder >= 0);
    close(folder);
    assert_int_equal(fth_folder_enter(root, test_folder, "a/b", 0, &folder), FTH_OK);
    assert_true(folder >= 0);
    close(folder);
    assert_int_equal(fth_folder_enter(root, test_folder, "a/none/b", 8, &folder), FTH_OK);
    assert_int_equal(folder, -1);
    static const char *const wrong[] = {"link", "link/b", "..", "a/..", "./a", "a//b"};
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        assert_int_equal(fth_folder_enter(root, test_folder, wrong[i], strlen(wrong[i]), &folder), FTH_INVALID);
        assert_int_equal(folder, -1);
    }
    close(root);
}

/* ---- a link that takes a folder's place again and again ---- */

typedef struct swapping {
    int folder;
    atomic_bool stop;
} swapping;

static void *swap(void *context)
{
    swapping *all = context;
    while (!all->stop)
        renameat2(all->folder, "tree/sub", all->folder, "link", RENAME_EXCHANGE);
    return NULL;
}

static void no_race_with_a_link_leads_a_delete_outside(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    pthread_t thread;
    swapping all = {.folder = open_test_folder()};
    make_folder("kept/deep");
    test_write_text("kept/file", "x");
    test_write_text("kept/deep/file", "x");
    make_folder("tree/sub/deep");
    make_link("../kept", "link"); /* as tree/sub it leads to kept */
    assert_int_equal(pthread_create(&thread, NULL, swap, &all), 0);
    for (int i = 0; i < ROUNDS; i++) {
        int made =
            openat(all.folder, i % 2 ? "tree/sub/deep/file" : "tree/sub/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (made >= 0)
            close(made);
        int folder = -1, tree = openat(all.folder, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        FTH_IGNORE(fth_remove_inside(tree, test_path(path, "tree")), "may fail while the links change");
        FTH_IGNORE(fth_folder_enter(tree, path, "sub/deep", 8, &folder), "may fail while the links change");
        if (folder >= 0) {
            unlinkat(folder, "file", 0);
            close(folder);
        }
        fth_remove_empty_folders(tree, "sub/deep", 8);
        close(tree);
        assert_true(test_exists("kept/file"));
        assert_true(test_exists("kept/deep/file"));
        mkdirat(all.folder, "tree/sub", 0700);
        mkdirat(all.folder, "tree/sub/deep", 0700);
        symlinkat("../kept", all.folder, "link");
    }
    all.stop = true;
    pthread_join(thread, NULL);
    close(all.folder);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_make_folder, test_remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_tree_goes_and_what_its_links_lead_to_stays),
        TEST(what_is_not_wanted_stays),
        TEST(entering_refuses_links_and_dots),
        TEST(no_race_with_a_link_leads_a_delete_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
