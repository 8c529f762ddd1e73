/* Run records: what is written is read back, torn lines and steps that a resume undid do not count,
 * one writer a run. */
#include "support.h"

#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/record.h"

static fth_record *create(const char *id, const char *identity)
{
    fth_record *record = NULL;
    json_t *configuration = json_pack("{s:s, s:{s:s}}", "identity", identity, "configuration", "model", "mnist-cnn");
    json_t *machine = json_pack("{s:s}", "host", "here");
    assert_int_equal(fth_record_create(test_folder, id, "mnist-cnn-digits", configuration, machine, &record), FTH_OK);
    json_decref(configuration);
    json_decref(machine);
    return record;
}

static void add_step(fth_record *record, int step)
{
    json_t *event = json_pack("{s:i, s:f, s:f, s:f, s:i, s:f}", "step", step, "loss", 2.0 / (step + 1), "elapsed_s",
                              (double)step, "compute_s", 0.5 * step, "samples", 64 * step, "epoch", step / 10.0);
    assert_int_equal(fth_record_append(record, "step", event), FTH_OK);
}

static void add_event(fth_record *record, const char *name, int step)
{
    json_t *event = json_pack("{s:i, s:i, s:f, s:f}", "step", step, "epoch", step / 10, "validation_loss",
                              1.0 / (step + 1), "validation_accuracy", 0.5);
    assert_int_equal(fth_record_append(record, name, event), FTH_OK);
}

/* A run that took a step: before that there is none. */
static void make_begun(const char *id, const char *identity)
{
    fth_record *record = create(id, identity);
    add_step(record, 1);
    fth_record_free(record);
}

static void append_text(const char *id, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s/events.jsonl", test_folder, id);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static fth_record_summary read_run(const char *id)
{
    char folder[400];
    snprintf(folder, sizeof folder, "%s/%s", test_folder, id);
    fth_record_summary summary;
    assert_int_equal(fth_record_read(folder, &summary), FTH_OK);
    return summary;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    fth_record *record = create("first", "abc");
    assert_string_equal(fth_record_id(record), "first");
    for (int step = 10; step <= 30; step += 10)
        add_step(record, step);
    add_event(record, "epoch", 30);
    add_event(record, "checkpoint", 30);
    json_t *end = json_pack("{s:f, s:f, s:i, s:f}", "accuracy", 0.9, "loss", 0.01, "steps", 35, "elapsed_s", 31.5);
    assert_int_equal(fth_record_append(record, "end", end), FTH_OK);
    assert_int_equal(fth_record_sync(record), FTH_OK);
    fth_record_free(record);

    fth_record_summary summary = read_run("first");
    assert_string_equal(summary.id, "first");
    assert_string_equal(json_string_value(json_object_get(summary.run, "farthing")), FTH_VERSION);
    assert_non_null(json_object_get(summary.run, "machine"));
    assert_int_equal(summary.training.count, 3);
    assert_int_equal(summary.training.points[2].step, 30);
    assert_true(fabs(summary.training.points[0].loss - 2.0 / 11) < 1e-12);
    assert_true(isnan(summary.training.points[0].accuracy));
    assert_int_equal(summary.validation.count, 2); /* at the end of the epoch and of the run */
    assert_int_equal(summary.validation.points[1].step, 35);
    assert_true(summary.finished);
    assert_int_equal(summary.steps, 35);
    assert_int_equal(summary.samples, 64 * 30);
    assert_true(summary.elapsed_s == 31.5);
    assert_true(summary.compute_s == 15);
    assert_true(fabs(summary.best_loss - 0.01) < 1e-12);
    assert_true(summary.last_accuracy == 0.9);
    fth_record_release(&summary);
}

static void an_accelerator_is_summed_up(void **state)
{
    (void)state;
    fth_record *record = create("gpu", "abc");
    fth_record_free(record);
    append_text("gpu", "{\"event\":\"step\",\"step\":1,\"elapsed_s\":1.0,\"accelerator_s\":0.5,"
                       "\"accelerator_utilization\":0.2,\"accelerator_memory_bytes\":4000000000}\n"
                       "{\"event\":\"step\",\"step\":2,\"elapsed_s\":4.0,\"accelerator_s\":3.25,"
                       "\"accelerator_utilization\":1.0,\"accelerator_memory_bytes\":3000000000}\n"
                       "{\"event\":\"epoch\",\"epoch\":1,\"step\":2,\"elapsed_s\":4.0,\"accelerator_s\":9.0}\n"
                       "{\"event\":\"interrupted\",\"step\":2,\"elapsed_s\":5.0,\"accelerator_s\":3.5}\n");
    fth_record_summary summary = read_run("gpu");
    assert_true(fabs(summary.accelerator_utilization - (0.2 * 1 + 1.0 * 3) / 4) < 1e-12); /* by time */
    assert_true(summary.accelerator_s == 3.5);
    assert_true(summary.accelerator_memory_bytes == 4000000000); /* the most */
    fth_record_release(&summary);

    record = create("cpu", "abd");
    add_step(record, 10);
    fth_record_free(record);
    summary = read_run("cpu");
    assert_true(isnan(summary.accelerator_utilization));
    assert_true(summary.accelerator_memory_bytes == 0);
    fth_record_release(&summary);
}

static void a_torn_last_line_is_skipped_and_ended(void **state)
{
    (void)state;
    fth_record *record = create("torn", "abc");
    add_step(record, 10);
    fth_record_free(record);
    append_text("torn", "{\"event\":\"step\",\"step\":20,\"lo");

    fth_record_summary summary = read_run("torn");
    assert_int_equal(summary.training.count, 1);
    assert_false(summary.finished);
    fth_record_release(&summary);

    char folder[400];
    snprintf(folder, sizeof folder, "%s/torn", test_folder);
    assert_int_equal(fth_record_resume(folder, &record), FTH_OK);
    add_step(record, 30);
    fth_record_free(record);
    summary = read_run("torn");
    assert_int_equal(summary.training.count, 2);
    assert_int_equal(summary.training.points[1].step, 30);
    fth_record_release(&summary);
}

static void steps_that_a_resume_undid_do_not_count(void **state)
{
    (void)state;
    fth_record *record = create("back", "abc");
    for (int step = 10; step <= 50; step += 10)
        add_step(record, step);
    add_event(record, "epoch", 20);
    add_event(record, "epoch", 40);
    add_event(record, "checkpoint", 20);
    add_event(record, "checkpoint", 45);
    json_t *resume = json_pack("{s:i, s:f}", "step", 25, "elapsed_s", 20.0);
    assert_int_equal(fth_record_append(record, "resume", resume), FTH_OK);
    add_step(record, 30);
    fth_record_free(record);

    fth_record_summary summary = read_run("back");
    assert_int_equal(summary.training.count, 3);
    assert_int_equal(summary.training.points[1].step, 20);
    assert_int_equal(summary.training.points[1].steps, 10);
    assert_int_equal(summary.training.points[2].step, 30);
    assert_int_equal(summary.training.points[2].steps, 5); /* since the resume */
    assert_int_equal(summary.validation.count, 1);
    assert_int_equal(summary.resumes, 1);
    assert_int_equal(summary.steps, 30);
    assert_true(summary.elapsed_s == 30);
    assert_int_equal(json_array_size(summary.events), 3); /* epoch 20, checkpoint 20, resume */
    fth_record_release(&summary);
}

static void garbage_in_the_middle_is_skipped(void **state)
{
    (void)state;
    fth_record *record = create("garbage", "abc");
    add_step(record, 10);
    append_text("garbage", "\n[1,2]\n\"text\"\n{\"event\":7}\n{\"no\":1}\n{\"event\":\"step\"\n\x01\xff\n");
    add_step(record, 20);
    fth_record_free(record);
    fth_record_summary summary = read_run("garbage");
    assert_int_equal(summary.training.count, 2);
    fth_record_release(&summary);
}

static void two_processes_cannot_train_one_run(void **state)
{
    (void)state;
    fth_record *record = create("locked", "abc");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char folder[400], owner[32];
        fth_record *second = NULL;
        snprintf(folder, sizeof folder, "%s/locked", test_folder);
        snprintf(owner, sizeof owner, "process %ld", (long)getppid());
        bool refused =
            fth_record_resume(folder, &second) == FTH_INVALID && strstr(fth_error_message(), owner) && !second;
        _exit(refused ? 0 : 1);
    }
    int code = 0;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    fth_record_free(record);

    char folder[400];
    snprintf(folder, sizeof folder, "%s/locked", test_folder);
    assert_int_equal(fth_record_resume(folder, &record), FTH_OK); /* the lock goes with its holder */
    fth_record_free(record);
}

static void names_are_plain(void **state)
{
    (void)state;
    static const char *const bad[] = {"a/b", "..", ".hidden", "-x", "a b", "\xc3\xa9", "a\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fth_record *record = NULL;
        assert_int_equal(fth_record_check_id(bad[i]), FTH_INVALID);
        assert_int_equal(fth_record_create(test_folder, bad[i], "", NULL, NULL, &record), FTH_INVALID);
        assert_null(record);
    }
    assert_int_equal(fth_record_check_id("resnet18_v2.1-a"), FTH_OK);
    assert_int_equal(fth_record_check_id(""), FTH_OK);

    fth_record *record = NULL;
    assert_int_equal(fth_record_create(test_folder, "", "../mnist cnn//x", NULL, NULL, &record), FTH_OK);
    assert_int_equal(strncmp(fth_record_id(record), "mnist-cnn-x-20", 14), 0);
    assert_int_equal(fth_record_check_id(fth_record_id(record)), FTH_OK);
    fth_record_free(record);
}

static void an_existing_name_is_refused(void **state)
{
    (void)state;
    make_begun("taken", "abc");
    fth_record *record = NULL;
    assert_int_equal(fth_record_create(test_folder, "taken", "", NULL, NULL, &record), FTH_INVALID);
    assert_message_has("--resume taken");
    /* A kill before run.json was written leaves an empty folder: that one can be used. */
    char folder[400];
    snprintf(folder, sizeof folder, "%s/empty", test_folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    fth_record_free(create("empty", "abc"));
}

static void runs_are_found_by_identity(void **state)
{
    (void)state;
    char *folder = NULL;
    assert_int_equal(fth_record_find("/nonexistent", "abc", false, &folder), FTH_OK);
    assert_null(folder);

    make_begun("one", "abc");
    usleep(2000);
    make_begun("two", "abc");
    usleep(2000);
    fth_record *record = create("three", "abc");
    add_step(record, 1);
    assert_int_equal(fth_record_append(record, "end", json_object()), FTH_OK);
    fth_record_free(record);
    make_begun("other", "xyz");

    assert_int_equal(fth_record_find(test_folder, "abc", false, &folder), FTH_OK);
    assert_non_null(strstr(folder, "/two"));
    free(folder);
    assert_int_equal(fth_record_find(test_folder, "abc", true, &folder), FTH_OK);
    assert_non_null(strstr(folder, "/three"));
    free(folder);
    assert_int_equal(fth_record_find(test_folder, "none", false, &folder), FTH_OK);
    assert_null(folder);
}

static void runs_are_located_by_name_or_path(void **state)
{
    (void)state;
    char *folder = NULL, path[400];
    make_begun("digits-1", "abc");
    assert_int_equal(fth_record_locate(test_folder, "digits-1", &folder), FTH_OK);
    free(folder);
    snprintf(path, sizeof path, "%s/digits-1/", test_folder);
    assert_int_equal(fth_record_locate("/elsewhere", path, &folder), FTH_OK);
    free(folder);
    assert_int_equal(fth_record_locate(test_folder, "digit-1", &folder), FTH_INVALID);
    assert_message_has("digits-1");
    assert_int_equal(fth_record_locate(test_folder, "entirely-different", &folder), FTH_INVALID);
    assert_message_has("digits-1");
    assert_int_equal(fth_record_locate("/nonexistent", test_folder, &folder), FTH_INVALID);
    assert_message_has("is not a run: it has no run.json");
    assert_int_equal(fth_record_locate("/nonexistent", "x", &folder), FTH_INVALID);
    assert_null(folder);
}

static bool is_there(const char *name)
{
    char path[TEST_MAX_PATH];
    test_path(path, name);
    return access(path, F_OK) == 0;
}

static bool run_exists(const char *id)
{
    char path[TEST_MAX_PATH];
    test_path(path, id);
    return fth_record_exists(path);
}

static void a_run_without_a_step_does_not_exist(void **state)
{
    (void)state;
    char *folder = NULL;
    fth_record *record = create("early", "abc");
    add_event(record, "start", 0);
    /* While a process is at it, it is somebody's. */
    assert_true(run_exists("early"));
    assert_int_equal(fth_record_find(test_folder, "abc", false, &folder), FTH_OK);
    assert_non_null(folder);
    free(folder);
    add_event(record, "error", 0);
    fth_record_free(record); /* killed, or of a version that left it there */

    assert_true(is_there("early/run.json"));
    assert_false(run_exists("early"));
    assert_int_equal(fth_record_find(test_folder, "abc", false, &folder), FTH_OK);
    assert_null(folder);
    assert_int_equal(fth_record_locate(test_folder, "early", &folder), FTH_INVALID);
    assert_message_has("never took a step");

    /* Its name is free, and nothing of it shows in the run that takes it. */
    record = create("early", "xyz");
    add_step(record, 1);
    fth_record_free(record);
    fth_record_summary summary = read_run("early");
    assert_string_equal(json_string_value(json_object_get(summary.run, "identity")), "xyz");
    assert_int_equal(json_array_size(summary.events), 0);
    assert_int_equal(summary.training.count, 1);
    fth_record_release(&summary);
    assert_true(run_exists("early"));
}

static void a_run_without_its_run_file_is_left_alone(void **state)
{
    (void)state;
    fth_record *record = NULL;
    char path[400];
    make_begun("half", "abc");
    snprintf(path, sizeof path, "%s/half/run.json", test_folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fth_record_create(test_folder, "half", "", NULL, NULL, &record), FTH_INVALID);
    assert_message_has("half holds a run's events or checkpoints but no run.json");
    assert_true(is_there("half/events.jsonl"));
}

static void what_never_began_is_discarded(void **state)
{
    (void)state;
    fth_record *record = create("gone", "abc");
    add_event(record, "start", 0);
    assert_true(fth_record_discard_unbegun(record));
    fth_record_free(record);
    assert_false(is_there("gone"));

    record = create("mine", "abc");
    test_write("mine/notes.txt", "x", 1); /* not the record's to remove */
    assert_true(fth_record_discard_unbegun(record));
    fth_record_free(record);
    assert_true(is_there("mine/notes.txt"));
    assert_false(is_there("mine/run.json"));

    record = create("kept", "abc");
    add_step(record, 1);
    assert_false(fth_record_discard_unbegun(record));
    fth_record_free(record);
    assert_true(run_exists("kept"));

    fth_record_free(create("left", "abc")); /* by a kill */
    fth_record_free(create("other", "xyz"));
    fth_record *busy = create("busy", "abc");
    fth_record_sweep(test_folder, "abc");
    assert_false(is_there("left"));
    assert_true(is_there("other/run.json"));
    assert_true(is_there("busy/run.json"));
    assert_true(run_exists("kept"));
    fth_record_free(busy);
}

/* Who opened the lock before the run was removed must not hold the lock of a folder that is
 * gone. */
static void removing_and_creating_at_once(void **state)
{
    (void)state;
    enum { PROCESSES = 4, ROUNDS = 60 };
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] != 0)
            continue;
        int bad = 0;
        for (int round = 0; round < ROUNDS; round++) {
            fth_record *record = NULL;
            fth_status status = fth_record_create(test_folder, "same", "", NULL, NULL, &record);
            if (status == FTH_INVALID)
                continue; /* another is at it */
            /* What it holds is what everybody sees. */
            bad += status != FTH_OK || !is_there("same/run.json") || !is_there("same/events.jsonl") ||
                   !fth_record_discard_unbegun(record);
            fth_record_free(record);
        }
        _exit(bad > 0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int ended = -1;
        assert_int_equal(waitpid(children[i], &ended, 0), children[i]);
        assert_int_equal(ended, 0);
    }
}

static void a_run_is_removed_with_all_it_made(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH], outside[TEST_MAX_PATH], link_path[TEST_MAX_PATH];
    uint64_t freed = 0;
    bool left = true;
    make_begun("done", "abc");
    test_path(path, "done/checkpoints");
    assert_int_equal(mkdir(path, 0777), 0);
    test_write("done/checkpoints/step-1.json", "{}", 2);
    test_write("done/last.safetensors", "0123456789", 10);
    test_path(outside, "outside");
    assert_int_equal(mkdir(outside, 0777), 0);
    test_write("outside/precious", "x", 1);
    test_path(link_path, "done/checkpoints/step-2.json");
    assert_int_equal(symlink(outside, link_path), 0);
    test_path(path, "done");
    assert_int_equal(fth_record_remove(path, &freed, &left), FTH_OK);
    assert_false(left);
    assert_true(freed >= 10);
    assert_false(is_there("done"));
    assert_true(is_there("outside/precious"));

    /* Refused: not a run, a link to one, one that is being trained. */
    assert_int_equal(fth_record_remove(outside, NULL, NULL), FTH_INVALID);
    make_begun("real", "abc");
    test_path(path, "real");
    test_path(link_path, "linked");
    assert_int_equal(symlink(path, link_path), 0);
    assert_int_equal(fth_record_remove(link_path, NULL, NULL), FTH_INVALID);
    assert_message_has("symbolic link");
    fth_record *record = NULL;
    assert_int_equal(fth_record_resume(path, &record), FTH_OK);
    assert_int_equal(fth_record_remove(path, NULL, NULL), FTH_INVALID);
    assert_message_has("is being trained by process");
    fth_record_free(record);
    assert_true(run_exists("real"));

    test_write("real/notes.txt", "x", 1);
    assert_int_equal(fth_record_remove(path, NULL, &left), FTH_OK);
    assert_true(left);
    assert_true(is_there("real/notes.txt"));
    assert_false(is_there("real/run.json"));
}

static void run_json_is_rewritten_whole(void **state)
{
    (void)state;
    fth_record *record = create("changed", "abc");
    json_t *configuration = json_pack("{s:s}", "identity", "new");
    assert_int_equal(fth_record_configure(record, configuration, NULL), FTH_OK);
    json_decref(configuration);
    json_t *run = NULL;
    assert_int_equal(fth_record_read_run(fth_record_folder(record), &run), FTH_OK);
    assert_string_equal(json_string_value(json_object_get(run, "identity")), "new");
    assert_string_equal(json_string_value(json_object_get(run, "id")), "changed");
    assert_true(json_number_value(json_object_get(run, "created_s")) > 1e9);
    json_decref(run);
    fth_record_free(record);
}

static void unwritable_folders_are_an_error(void **state)
{
    (void)state;
    fth_record *record = NULL;
    char path[400];
    test_write("file", "", 0);
    test_path(path, "file");
    assert_int_not_equal(fth_record_create(path, "", "x", NULL, NULL, &record), FTH_OK);
    assert_message_has(path);
    assert_null(record);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, test_make_folder, test_remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read),
        TEST(an_accelerator_is_summed_up),
        TEST(a_torn_last_line_is_skipped_and_ended),
        TEST(steps_that_a_resume_undid_do_not_count),
        TEST(garbage_in_the_middle_is_skipped),
        TEST(two_processes_cannot_train_one_run),
        TEST(names_are_plain),
        TEST(an_existing_name_is_refused),
        TEST(a_run_without_its_run_file_is_left_alone),
        TEST(runs_are_found_by_identity),
        TEST(runs_are_located_by_name_or_path),
        TEST(a_run_without_a_step_does_not_exist),
        TEST(what_never_began_is_discarded),
        TEST(removing_and_creating_at_once),
        TEST(a_run_is_removed_with_all_it_made),
        TEST(run_json_is_rewritten_whole),
        TEST(unwritable_folders_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
