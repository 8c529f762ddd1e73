/* Checkpoints on a disk that is too small for them: a small one in memory, in a mount namespace of
 * this process alone. */
#include "support.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_internal.h"

enum { KIB = 1024, SIZE_BYTES = 100 * KIB };

static char disk[TEST_MAX_PATH];
static bool mounted;
static char *content;

static void write_proc(const char *path, const char *text)
{
    int file = open(path, O_WRONLY);
    if (file < 0)
        return;
    if (write(file, text, strlen(text)) < 0)
        print_message("%s: not written\n", path);
    close(file);
}

/* Root mounts as it is; others in a user namespace, where there are any. */
static bool enter_namespace(void)
{
    char user_map[64], group_map[64];
    if (unshare(CLONE_NEWNS) == 0)
        return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    snprintf(user_map, sizeof user_map, "0 %d 1", (int)getuid());
    snprintf(group_map, sizeof group_map, "0 %d 1", (int)getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return false;
    write_proc("/proc/self/setgroups", "deny");
    write_proc("/proc/self/uid_map", user_map);
    write_proc("/proc/self/gid_map", group_map);
    return true;
}

static int set_up(void **state)
{
    if (test_make_folder(state) != 0)
        return -1;
    content = calloc(1, SIZE_BYTES);
    test_path(disk, "disk");
    assert_int_equal(fth_folder_create(disk), FTH_OK);
    mounted = mount("none", disk, "tmpfs", 0, "size=360k") == 0; /* three checkpoints, and a bit */
    return 0;
}

static int tear_down(void **state)
{
    if (mounted)
        umount2(disk, MNT_DETACH);
    free(content);
    return test_remove_folder(state);
}

static fth_checkpoint_place open_place(void)
{
    if (!mounted) {
        print_message("no disk can be mounted here: neither root nor user namespaces\n");
        skip();
    }
    fth_checkpoint_place place = {.prefix = "", .keep = 5};
    assert_int_equal(fth_store_open(disk, NULL, &place.store), FTH_OK);
    return place;
}

/* A safetensors file of SIZE_BYTES, whose tensor says the step. */
static fth_status put(const fth_checkpoint_place *place, int64_t step)
{
    char header[200];
    uint64_t tensor_bytes = SIZE_BYTES - 8 - 128, header_bytes = 128;
    snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}",
             (unsigned long long)tensor_bytes, (unsigned long long)tensor_bytes);
    memcpy(content, &header_bytes, 8);
    memset(content + 8, ' ', 128);
    memcpy(content + 8, header, strlen(header));
    memset(content + 8 + 128, (int)step, tensor_bytes);
    json_t *json = json_pack("{s:I}", "batches", (json_int_t)step);
    fth_status status = fth_checkpoint_put(place, step, content, SIZE_BYTES, json, NULL);
    json_decref(json);
    return status;
}

static bool has(int64_t step, bool manifest)
{
    char name[64], path[TEST_MAX_PATH + 80];
    fth_checkpoint_name(&(fth_checkpoint_entry){.step = step, .manifest = manifest}, name, sizeof name);
    snprintf(path, sizeof path, "%s/%s", disk, name);
    return fth_file_exists(path);
}

static int64_t latest(const fth_checkpoint_place *place)
{
    fth_checkpoint checkpoint;
    assert_int_equal(fth_checkpoint_get_latest(place, disk, NULL, &checkpoint), FTH_OK);
    int64_t step = checkpoint.tensors ? checkpoint.step : -1;
    fth_checkpoint_release(&checkpoint);
    return step;
}

/* Five are to be kept, three fit: the newest are there, always. */
static void test_older_ones_make_room(void **state)
{
    (void)state;
    fth_checkpoint_place place = open_place();
    for (int64_t step = 1; step <= 9; step++) {
        assert_int_equal(put(&place, step), FTH_OK);
        assert_int_equal(latest(&place), step);
        assert_true(step == 1 || has(step - 1, true));
    }
    assert_false(has(6, true) || has(6, false));
    fth_store_free(place.store);
}

/* Fills what is left. */
static void fill(void)
{
    char path[TEST_MAX_PATH + 80];
    static char block[4 * KIB];
    snprintf(path, sizeof path, "%s/other", disk);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(file >= 0);
    while (write(file, block, sizeof block) > 0)
        continue;
    close(file);
}

/* Others fill the disk: the last whole one stays, and saving goes on as soon as there is room. */
static void test_the_newest_is_never_given_up(void **state)
{
    (void)state;
    fth_checkpoint_place place = open_place();
    assert_int_equal(put(&place, 1), FTH_OK);
    assert_int_equal(put(&place, 2), FTH_OK);
    fill();
    assert_int_equal(put(&place, 3), FTH_OK); /* where step 1 was */
    assert_false(has(1, true) || has(1, false));

    char path[TEST_MAX_PATH + 80];
    snprintf(path, sizeof path, "%s/step-000000000003.safetensors", disk);
    assert_int_equal(truncate(path, 10), 0); /* so that step 2 is the newest whole one */
    fill();
    assert_int_equal(put(&place, 4), FTH_NO_SPACE);
    assert_message_has("disk full");
    assert_int_equal(latest(&place), 2);
    assert_false(has(4, true) || has(4, false));
    assert_int_equal(put(&place, 5), FTH_NO_SPACE); /* and again: nothing more is given up */
    assert_int_equal(latest(&place), 2);

    snprintf(path, sizeof path, "%s/other", disk);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(put(&place, 6), FTH_OK);
    assert_int_equal(latest(&place), 6);
    fth_store_free(place.store);
}

static void remove_step(int64_t step)
{
    char name[64], path[TEST_MAX_PATH + 80];
    for (int manifest = 0; manifest < 2; manifest++) {
        fth_checkpoint_name(&(fth_checkpoint_entry){.step = step, .manifest = manifest}, name, sizeof name);
        snprintf(path, sizeof path, "%s/%s", disk, name);
        assert_int_equal(unlink(path), 0);
    }
}

/* Asked before a save, and before something is removed: there another thread is faster. */
static fth_status let_another_thread_remove(void *context)
{
    int *calls = context;
    if (++*calls == 2)
        remove_step(1);
    return FTH_OK;
}

/* A model and a checkpoint are saved by two threads. */
static void test_another_thread_makes_room(void **state)
{
    (void)state;
    int calls = 0;
    fth_checkpoint_place place = open_place();
    assert_int_equal(put(&place, 1), FTH_OK);
    assert_int_equal(put(&place, 2), FTH_OK);
    fill();
    place.guard = let_another_thread_remove;
    place.guard_context = &calls;
    assert_int_equal(put(&place, 3), FTH_OK);
    assert_int_equal(latest(&place), 3);
    fth_store_free(place.store);
}

/* What a kill left between tensors and manifest goes before anything whole does. */
static void test_leftovers_go_first(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH + 80];
    fth_checkpoint_place place = open_place();
    for (int64_t step = 1; step <= 3; step++)
        assert_int_equal(put(&place, step), FTH_OK);
    snprintf(path, sizeof path, "%s/step-000000000003.json", disk);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(put(&place, 4), FTH_OK);
    assert_true(has(1, true) && has(2, true));
    assert_int_equal(latest(&place), 4);
    fth_store_free(place.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_older_ones_make_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_newest_is_never_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_thread_makes_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leftovers_go_first, set_up, tear_down),
    };
    enter_namespace();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
