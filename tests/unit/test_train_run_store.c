/* A run's record in a store: events in parts, however much there is of them, and whatever part size
 * there was. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"
#include "train/run/run_store.h"

enum { LINE_BYTES = 1000, BACKLOG_LINES = 5000, MANY_LINES = 70000 };

static char local[TEST_MAX_PATH], store[TEST_MAX_PATH];
static fth_train_options options;

static int start(void **state)
{
    if (test_make_folder(state) != 0)
        return -1;
    test_path(local, "run");
    test_path(store, "store");
    if (fth_options_set_defaults(&fth_train_option_table, &options) != FTH_OK)
        return -1;
    free(options.store.lease);
    options.store.lease = strdup("off");
    free(options.store.checkpoints);
    options.store.checkpoints = strdup(store);
    return fth_folder_create(local) == FTH_OK ? 0 : -1;
}

static int stop(void **state)
{
    fth_options_release(&fth_train_option_table, &options);
    return test_remove_folder(state);
}

static void write_text(const char *base, const char *name, const char *text)
{
    char path[TEST_MAX_PATH + 100];
    snprintf(path, sizeof path, "%s/%s", base, name);
    assert_int_equal(fth_file_write_all(path, text, strlen(text)), FTH_OK);
}

/* Lines of different lengths, so that no part ends with a line by accident. */
static void write_events(const char *base, const char *name, int lines)
{
    char path[TEST_MAX_PATH + 100], text[LINE_BYTES];
    snprintf(path, sizeof path, "%s/%s", base, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    memset(text, 'x', sizeof text);
    for (int i = 0; i < lines; i++)
        fprintf(file, "{\"event\":\"news\",\"step\":%d,\"message\":\"%.*s\"}\n", i, LINE_BYTES - i % 7, text);
    assert_int_equal(fclose(file), 0);
}

static size_t size_of(const char *path)
{
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    return (size_t)facts.st_size;
}

/* Reads the run and compares its events with a local file. */
static void expect_events(const char *path)
{
    fth_run_store *run = NULL;
    fth_stored_record record;
    char *expected = NULL;
    size_t size = 0;
    assert_int_equal(fth_run_store_open(&options, &run), FTH_OK);
    if (fth_run_store_read(run, &record) != FTH_OK)
        fail_msg("%s", fth_error_message());
    assert_int_equal(fth_file_read_all(path, 200 << 20, &expected, &size), FTH_OK);
    assert_int_equal(record.events_bytes, size);
    assert_memory_equal(record.events, expected, size);
    free(expected);
    fth_stored_record_release(&record);
    fth_run_store_free(run);
}

static void a_backlog_is_stored_in_parts(void **state)
{
    (void)state;
    fth_run_store *run = NULL;
    fth_stored_record record;
    char path[TEST_MAX_PATH + 300];
    int parts = 0;
    write_text(local, "run.json", "{\"id\": \"a\"}");
    write_events(local, "events.jsonl", BACKLOG_LINES);
    assert_int_equal(fth_run_store_open(&options, &run), FTH_OK);
    assert_int_equal(fth_run_store_read(run, &record), FTH_OK);
    fth_stored_record_release(&record);
    assert_int_equal(fth_run_store_begin(run, local, 0), FTH_OK);
    assert_int_equal(fth_run_store_put_run(run, true), FTH_OK);
    assert_int_equal(fth_run_store_flush(run), FTH_OK);

    snprintf(path, sizeof path, "%s/events", store);
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        if (*entry->d_name == '.')
            continue;
        parts++;
        snprintf(path, sizeof path, "%s/events/%s", store, entry->d_name);
        assert_true(size_of(path) < (1 << 20) + 2 * LINE_BYTES);
    }
    closedir(directory);
    assert_in_range(parts, 4, 6);
    snprintf(path, sizeof path, "%s/events.jsonl", local);
    expect_events(path);

    FILE *more = fopen(path, "a"); /* the next events go on in the last part or a new one */
    fputs("{\"event\":\"end\"}\n{\"event\":\"to", more);
    fclose(more);
    assert_int_equal(fth_run_store_flush(run), FTH_OK);
    assert_int_equal(truncate(path, (off_t)size_of(path) - (off_t)strlen("{\"event\":\"to")), 0);
    expect_events(path);
    fth_run_store_free(run);
}

static void a_part_of_any_size_is_read(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH + 100];
    snprintf(path, sizeof path, "%s/events", store);
    assert_int_equal(fth_folder_create(path), FTH_OK);
    write_text(store, "run.json", "{\"id\": \"a\"}");
    write_events(store, "events/000001.jsonl", MANY_LINES); /* more than the 64 MB that once were the most */
    snprintf(path, sizeof path, "%s/events/000001.jsonl", store);
    expect_events(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_backlog_is_stored_in_parts, start, stop),
        cmocka_unit_test_setup_teardown(a_part_of_any_size_is_read, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
