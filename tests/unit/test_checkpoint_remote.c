/* Loading checkpoints from a bucket in which things change between the look and the download. The
 * bucket is a folder behind a little server; saves go into the folder directly. */
#include <dirent.h>

#include "checkpoint/checkpoint.h"
#include "stub_server.h"
#include "support.h"
#include "test_checkpoint_save.h"

static char downloads[TEST_MAX_PATH];

/* When tensors of this name are asked for ... */
static struct trouble {
    const char *name;
    bool remove;          /* they go right then, */
    bool remove_manifest; /* with their manifest, */
    int64_t newer;        /* since a newer checkpoint is there now (0: none); */
    bool refuse;          /* or they are never given, */
    bool away;            /* or the whole store is away from then on. */
} trouble;

static void save(int64_t step)
{
    float weights[4] = {(float)step, 1, 2, 3};
    fth_tensor_view view = {"w", FTH_F32, FTH_SHAPE(4), weights};
    json_t *state = json_pack("{s:I}", "batches", (json_int_t)step);
    assert_int_equal(save_checkpoint(test_folder, step, &view, state, 5), FTH_OK);
    json_decref(state);
}

static void remove_file(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    assert_int_equal(unlink(path), 0);
}

static char *refusal(int code, const char *name, size_t *size_bytes)
{
    char body[128];
    snprintf(body, sizeof body, "<Error><Code>%s</Code></Error>", name);
    return stub_answer(code, "", body, size_bytes);
}

static char *list(size_t *size_bytes)
{
    char body[8192] = "<ListBucketResult><IsTruncated>false</IsTruncated>";
    DIR *directory = opendir(test_folder);
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        if (*entry->d_name != '.')
            snprintf(body + strlen(body), sizeof body - strlen(body),
                     "<Contents><Key>run/%s</Key><Size>1</Size></Contents>", entry->d_name);
    closedir(directory);
    strcat(body, "</ListBucketResult>");
    return stub_answer(200, "", body, size_bytes);
}

static char *give(const stub_request *request, const char *name, size_t *size_bytes)
{
    char path[400], *bytes = NULL, *text = NULL;
    size_t size = 0, first = 0, last = 0;
    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    if (fth_file_read_all(path, 1 << 20, &bytes, &size) != FTH_OK)
        return refusal(404, "NoSuchKey", size_bytes);
    bool range = sscanf(stub_header(request, "Range"), "bytes=%zu-%zu", &first, &last) == 2;
    size_t length = range ? last - first + 1 : size;
    int used = asprintf(&text, "HTTP/1.1 %d X\r\nETag: \"%s\"\r\nContent-Length: %zu\r\n\r\n", range ? 206 : 200, name,
                        length);
    text = realloc(text, (size_t)used + length);
    memcpy(text + used, bytes + first, length);
    *size_bytes = (size_t)used + (*request->method == 'H' ? 0 : length);
    free(bytes);
    return text;
}

static char *answer(void *context, const stub_request *request, size_t *size_bytes, bool *close)
{
    static const char bucket[] = "/bucket/run/";
    static bool away;
    (void)context;
    (void)close;
    away = away && trouble.away;
    if (away)
        return NULL;
    if (strstr(request->target, "list-type=2"))
        return list(size_bytes);
    const char *name = request->target + sizeof bucket - 1;
    bool troubled = *request->method == 'G' && trouble.name && strcmp(name, trouble.name) == 0;
    if (troubled && trouble.newer > 0)
        save(trouble.newer);
    if (troubled && trouble.remove_manifest) {
        char manifest[64];
        snprintf(manifest, sizeof manifest, "%.*s.json", (int)strcspn(name, "."), name);
        remove_file(manifest);
    }
    if (troubled && trouble.remove) {
        remove_file(name);
        trouble.name = NULL;
    }
    if (troubled && trouble.refuse)
        return refusal(403, "AccessDenied", size_bytes);
    away = troubled && trouble.away;
    return away ? NULL : give(request, name, size_bytes);
}

static stub_server server;

static int start(void **state)
{
    char endpoint[64];
    trouble = (struct trouble){0};
    stub_start(&server, answer, NULL);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server.port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    if (test_make_folder(state) != 0)
        return -1;
    test_path(downloads, ".downloads");
    save(10);
    save(20);
    save(30);
    return 0;
}

static int stop(void **state)
{
    stub_stop(&server);
    return test_remove_folder(state);
}

/* The step that is loaded, or minus the status. */
static int64_t load(void)
{
    fth_checkpoint checkpoint;
    fth_checkpoint_place place = {.prefix = "", .keep = 5};
    fth_store_options options = {.deadline_s = 1};
    assert_int_equal(fth_store_open("s3://bucket/run", &options, &place.store), FTH_OK);
    fth_status status = fth_checkpoint_get_latest(&place, downloads, NULL, &checkpoint);
    int64_t step = status == FTH_OK ? checkpoint.step : -(int64_t)status;
    if (status == FTH_OK)
        assert_true(*(const float *)fth_safetensors_find(checkpoint.tensors, "w")->data == (float)step);
    fth_checkpoint_release(&checkpoint);
    fth_store_free(place.store);
    return step;
}

static void the_newest_is_loaded(void **state)
{
    (void)state;
    assert_int_equal(load(), 30);
}

static void tensors_that_vanish_are_skipped(void **state)
{
    (void)state;
    trouble = (struct trouble){.name = "step-000000000030.safetensors", .remove = true};
    assert_int_equal(load(), 20);
}

static void a_checkpoint_that_was_replaced_leads_to_its_successor(void **state)
{
    (void)state;
    trouble =
        (struct trouble){.name = "step-000000000030.safetensors", .remove = true, .remove_manifest = true, .newer = 40};
    assert_int_equal(load(), 40);
}

static void tensors_that_are_not_given_are_skipped(void **state)
{
    (void)state;
    trouble = (struct trouble){.name = "step-000000000030.safetensors", .refuse = true};
    assert_int_equal(load(), 20);
}

static void a_store_that_is_away_is_no_reason_to_go_back(void **state)
{
    (void)state;
    trouble = (struct trouble){.name = "step-000000000030.safetensors", .away = true};
    int64_t result = load();
    assert_true(result == -FTH_IO || result == -FTH_TIMEOUT);
}

static void what_cannot_be_read_now_is_not_called_broken(void **state)
{
    (void)state;
    remove_file("step-000000000010.json");
    remove_file("step-000000000020.safetensors");
    trouble = (struct trouble){.name = "step-000000000030.safetensors", .refuse = true};
    assert_int_equal(load(), -FTH_INVALID);
    assert_non_null(strstr(fth_error_message(), "can be read now"));
    assert_non_null(strstr(fth_error_message(), "access denied"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_newest_is_loaded),
        TEST(tensors_that_vanish_are_skipped),
        TEST(a_checkpoint_that_was_replaced_leads_to_its_successor),
        TEST(tensors_that_are_not_given_are_skipped),
        TEST(a_store_that_is_away_is_no_reason_to_go_back),
        TEST(what_cannot_be_read_now_is_not_called_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
