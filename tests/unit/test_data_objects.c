/* Data sets in a store, read where they lie: class folders, tars, index files; what changes under
 * way. A folder stands for the bucket (file://), with the versions that it lists. */
#include "data/image/image_set.h"
#include "store/store.h"
#include "stub_server.h"
#include "test_data_pictures.h"

#include <sys/stat.h>
#include <time.h>

static char address[TEST_MAX_PATH + 8];

static int make_folder(void **state)
{
    int failure = test_make_folder(state);
    char path[TEST_MAX_PATH];
    setenv("FARTHING_CACHE", test_path(path, "cache"), 1);
    snprintf(address, sizeof address, "file://%s/set", test_folder);
    return failure;
}

/* Runs a program in the test's folder. */
static void run(const char *command)
{
    char line[TEST_MAX_PATH + 400];
    snprintf(line, sizeof line, "cd %s && %s", test_folder, command);
    assert_int_equal(system(line), 0);
}

/* A picture whose size tells it from others. */
static void write_sized(const char *name, int width)
{
    encoded picture = encode_wild_png(width, 100);
    write_picture(name, picture);
    free(picture.bytes);
}

static void write_classes(const char *folder)
{
    static const char *const classes[] = {"cat", "dog", "owl"};
    for (int i = 0; i < 18; i++) {
        char name[100];
        snprintf(name, sizeof name, "%s/%s/%s/%02d.png", folder, i < 12 ? "train" : "val", classes[i % 3], i);
        write_sized(name, 100 + i);
    }
}

static fth_dataset *open_with(const char *name, const fth_dataset_options *options)
{
    fth_dataset *dataset = NULL;
    fth_status status = fth_dataset_open(name, options, &dataset);
    if (status != FTH_OK)
        fail_msg("%s: %s", name, fth_error_message());
    return dataset;
}

static const fth_dataset_options usual = {.seed = 5, .validation_fraction = 0.2, .threads = 1, .image_size = 16};

static fth_dataset *open_address(const char *name)
{
    return open_with(name, &usual);
}

static void assert_fails(const char *name, fth_status wanted, const char *part)
{
    fth_dataset *dataset = NULL;
    assert_int_equal(fth_dataset_open(name, &usual, &dataset), wanted);
    assert_message_has(part);
}

/* The same samples, in the same order, by any way of reading. */
static void assert_same_samples(const fth_dataset *a, const fth_dataset *b)
{
    const fth_dataset_info *x = fth_dataset_get_info(a), *y = fth_dataset_get_info(b);
    assert_int_equal(x->classes, y->classes);
    for (int i = 0; i < x->classes; i++)
        assert_string_equal(x->class_names[i], y->class_names[i]);
    for (int split = 0; split < 2; split++) {
        assert_int_equal(x->count[split], y->count[split]);
        for (int64_t i = 0; i < x->count[split]; i++) {
            uint8_t left[3 * 16 * 16], right[3 * 16 * 16];
            int32_t left_label, right_label;
            assert_int_equal(fth_dataset_read(a, split, i, left, &left_label), FTH_OK);
            assert_int_equal(fth_dataset_read(b, split, i, right, &right_label), FTH_OK);
            assert_int_equal(left_label, right_label);
            assert_memory_equal(left, right, sizeof left);
        }
    }
}

/* And by the loader, which fetches ahead, shuffled and over two epochs. */
static void assert_same_batches(const fth_dataset *a, const fth_dataset *b)
{
    const fth_dataset *sets[] = {a, b};
    fth_loader *loaders[2];
    const fth_loader_options options = {.batch = 5, .seed = 7, .shuffle = true, .threads = 2, .batch_limit = 6};
    for (int i = 0; i < 2; i++)
        assert_int_equal(fth_loader_open(sets[i], &options, &loaders[i]), FTH_OK);
    for (;;) {
        const fth_batch *batches[2];
        for (int i = 0; i < 2; i++)
            assert_int_equal(fth_loader_next(loaders[i], test_deadline_in(60), &batches[i]), FTH_OK);
        if (!batches[0])
            break;
        assert_int_equal(batches[0]->count, batches[1]->count);
        assert_memory_equal(batches[0]->labels, batches[1]->labels, (size_t)batches[0]->count * sizeof(int32_t));
        assert_memory_equal(batches[0]->images, batches[1]->images,
                            (size_t)batches[0]->count * 3 * 16 * 16 * sizeof(float));
        assert_true(batches[0]->decode_seconds >= 0 && batches[0]->fetch_seconds > 0);
    }
    for (int i = 0; i < 2; i++)
        fth_loader_free(loaders[i]);
}

static void class_folders_are_read_as_a_folder_is(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH], first[65], second[65];
    write_classes("set");
    fth_dataset *plain = open_address(test_path(path, "set")), *remote = open_address(address);
    assert_same_samples(remote, plain);
    assert_same_batches(remote, plain);
    assert_int_equal(fth_dataset_version(remote, first), FTH_OK);
    fth_dataset_free(remote);
    remote = open_address(address);
    assert_int_equal(fth_dataset_version(remote, second), FTH_OK);
    assert_string_equal(first, second);
    fth_dataset_free(remote);
    write_sized("set/train/cat/00.png", 99);
    remote = open_address(address);
    assert_int_equal(fth_dataset_version(remote, second), FTH_OK);
    assert_string_not_equal(first, second);
    fth_dataset_free(remote);
    fth_dataset_free(plain);
}

/* ---- tars ---- */

static void tars_are_read_in_place(void **state)
{
    (void)state;
    static const char *const commands[] = {
        /* classes and splits inside, spread over tars; names longer than a header has room for */
        "tar -C all --format=gnu -cf set/a.tar train/cat train/dog val && tar -C all --format=pax -cf set/b.tar "
        "train/owl",
        /* the split in the folder, and in the name */
        "mkdir set/val && tar -C all/train --format=ustar -cf set/train-0001.tar cat dog && tar -C all/train -cf "
        "set/train-0002.tar ./owl && tar -C all/val -cf set/val/7.tar cat dog owl",
    };
    char path[TEST_MAX_PATH];
    write_classes("all");
    run("mv all/train/cat/00.png all/train/cat/$(printf '%0120d' 0).png && mkdir -p \"all/train/owl/$(printf '%090d' "
        "0)\" "
        "&& mv all/train/owl/02.png \"all/train/owl/$(printf '%090d' 0)/$(printf '%0110d' 2).png\"");
    fth_dataset *plain = open_address(test_path(path, "all"));
    for (size_t i = 0; i < FTH_COUNT_OF(commands); i++) {
        run("rm -rf set && mkdir set");
        if (i == 1) /* ustar has no room for these */
            run("rm -rf all && mkdir all");
        if (i == 1) {
            fth_dataset_free(plain);
            write_classes("all");
            plain = open_address(path);
        }
        run(commands[i]);
        fth_dataset *remote = open_address(address);
        assert_same_samples(remote, plain);
        assert_same_batches(remote, plain);
        fth_dataset_free(remote);
    }
    fth_dataset_free(plain);
}

/* What is in a tar is remembered by its version: its headers are not read again. */
static void tars_are_looked_into_once(void **state)
{
    (void)state;
    write_classes("all");
    run("mkdir set && tar -C all -cf set/a.tar train val");
    fth_dataset_free(open_address(address));
    run("touch -r set/a.tar time && printf x | dd of=set/a.tar bs=1 seek=0 conv=notrunc 2>/dev/null && touch -r time "
        "set/a.tar");
    fth_dataset_free(open_address(address));
    run("touch set/a.tar");
    assert_fails(address, FTH_CORRUPT, "not a tar archive");
    run("rm -rf cache set/a.tar && tar -C all -cf set/a.tar train val && truncate -s 3000 set/a.tar");
    assert_fails(address, FTH_CORRUPT, "set/a.tar: it is cut short");
}

static void webdataset_has_classes_beside_images(void **state)
{
    (void)state;
    for (int i = 0; i < 13; i++) {
        char name[100], text[20];
        snprintf(name, sizeof name, "all/%06d.png", i);
        write_sized(name, 100 + i);
        snprintf(name, sizeof name, "all/%06d.cls", i);
        snprintf(text, sizeof text, "%d\n", i % 11);
        test_write_text(name, text);
        snprintf(name, sizeof name, "all/%06d.json", i);
        test_write_text(name, "{}");
    }
    run("mkdir set && cd all && tar -cf ../set/train-000000.tar 00000[0-6].* && tar -cf ../set/train-000001.tar "
        "--sort=name "
        "00000[7-9].* 00001[0-1].* && tar -cf ../set/val-000000.tar 000012.*");
    fth_dataset *dataset = open_address(address);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_int_equal(info->classes, 11);
    assert_string_equal(info->class_names[0], "00");
    assert_string_equal(info->class_names[10], "10"); /* the number is the class */
    assert_int_equal(info->count[FTH_TRAIN], 12);
    assert_int_equal(info->count[FTH_VALIDATION], 1);
    uint8_t pixels[3 * 16 * 16];
    int32_t label;
    assert_int_equal(fth_dataset_read(dataset, FTH_VALIDATION, 0, pixels, &label), FTH_OK);
    assert_int_equal(label, 1);
    fth_dataset_free(dataset);

    run("rm set/*.tar && printf 'fish\\n' > all/000000.cls && rm all/000001.cls && tar -C all -cf set/x.tar .");
    dataset = open_address(address);
    info = fth_dataset_get_info(dataset);
    assert_string_equal(info->class_names[info->classes - 1], "fish");
    assert_int_equal(info->count[0] + info->count[1], 12); /* one has no class */
    fth_dataset_free(dataset);

    test_write_text("all/000002.cls", "a/b");
    run("tar -C all -cf set/x.tar .");
    assert_fails(address, FTH_CORRUPT, "000002.cls holds no number or name of a class");
}

/* ---- index files ---- */

static void index_files_say_class_and_split(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH + 30];
    for (int i = 0; i < 4; i++) {
        char name[40];
        snprintf(name, sizeof name, "set/x, %d.png", i);
        write_sized(name, 100 + i);
    }
    test_write_text("set/index.csv", "split,size,label,path\r\n"
                                     "train,1,\"a \"\"b\"\"\",\"x, 0.png\"\r\n"
                                     "train,1,c,\"./x, 1.png\"\n"
                                     "val,1,c,\"x, 2.png\"\n\n");
    fth_dataset *dataset = open_address(address);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_int_equal(info->count[FTH_TRAIN], 2);
    assert_int_equal(info->count[FTH_VALIDATION], 1);
    assert_string_equal(info->class_names[0], "a \"b\"");
    fth_dataset_free(dataset);

    test_write_text("set/other.jsonl", "{\"path\": \"x, 0.png\", \"label\": 10}\n"
                                       "{\"path\": \"x, 1.png\", \"label\": 9, \"more\": []}\n"
                                       "{\"path\": \"x, 3.png\", \"label\": \"9\"}\n");
    snprintf(path, sizeof path, "%s/other.jsonl", address);
    dataset = open_address(path);
    info = fth_dataset_get_info(dataset);
    assert_int_equal(info->count[0] + info->count[1], 3);
    assert_string_equal(info->class_names[0], "09");
    assert_string_equal(info->class_names[1], "10");
    fth_dataset_free(dataset);
}

static void wrong_index_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"a.png\n", "line 1: expected path,label"},
        {"a.png,cat,train\nb.png,dog\n", "line 2: some rows have a split"},
        {"a.png,cat,trein\n", "unknown split 'trein'"},
        {"/a.png,cat\n", "is not relative"},
        {"s3://b/a.png,cat\n", "is not relative"},
        {"../a.png,cat\n", "line 1: '../a.png' cannot be a key"},
        {"a.png,c/d\n", "cannot be the name of a class"},
        {"a.png,\n", "expected a path and a label"},
        {"\"a.png,cat\n", "a quote is not closed"},
        {"path,label\n", "has no rows"},
        {"", "has no rows"},
    };
    mkdir(test_path((char[TEST_MAX_PATH]){0}, "set"), 0755);
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        fth_dataset *dataset = NULL;
        test_write_text("set/index.csv", wrong[i].text);
        assert_int_equal(fth_dataset_open(address, &usual, &dataset), FTH_INVALID);
        assert_message_of(wrong[i].text, wrong[i].message);
    }
    run("rm set/index.csv");
    test_write_text("set/index.jsonl", "{\"path\": \"a.png\", \"label\": -1}\n");
    assert_fails(address, FTH_INVALID, "line 1: expected {\"path\"");
    test_write_text("set/index.jsonl", "\n{\"path\"\n");
    assert_fails(address, FTH_INVALID, "line 2: not JSON");
}

/* ---- what goes wrong ---- */

static void empty_places_are_refused(void **state)
{
    (void)state;
    assert_fails(address, FTH_INVALID, "set is empty");
    mkdir(test_path((char[TEST_MAX_PATH]){0}, "set"), 0755);
    test_write_text("set/readme.txt", "x");
    assert_fails(address, FTH_INVALID, "holds no images");
    write_sized("set/a.png", 20);
    assert_fails(address, FTH_INVALID, "but no class folders");
}

/* An object that was replaced or removed since it was listed is a bad image, never other pixels. */
static void changed_objects_are_bad_images(void **state)
{
    (void)state;
    enum { IMAGES = 96 };
    uint8_t pixels[3 * 16 * 16];
    int32_t label;
    for (int i = 0; i < IMAGES; i++) {
        char name[40];
        snprintf(name, sizeof name, "set/%s/%02d.png", i < IMAGES / 2 ? "train/a" : "train/b", i);
        write_sized(name, 100 + i);
    }
    write_sized("set/val/a/x.png", 100);
    fth_dataset_options options = usual;
    options.max_bad_images = 0.2;
    fth_dataset *dataset = open_with(address, &options);
    /* Not among those that are looked at when it is opened, every third. */
    write_sized("set/train/a/01.png", 101); /* the same bytes, written again */
    run("rm set/train/a/02.png");
    assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, 1, pixels, &label), FTH_CORRUPT);
    assert_message_has("train/a/01.png");
    assert_message_has("replaced meanwhile");
    assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, 2, pixels, &label), FTH_CORRUPT);
    assert_message_has("any more");
    fth_loader *loader = NULL;
    const fth_batch *batch = NULL;
    const fth_loader_options all = {.batch = IMAGES, .threads = 2, .batch_limit = 1};
    assert_int_equal(fth_loader_open(dataset, &all, &loader), FTH_OK);
    assert_int_equal(fth_loader_next(loader, test_deadline_in(60), &batch), FTH_OK);
    assert_int_equal(batch->count, IMAGES);
    assert_int_equal(fth_dataset_bad_image_count(dataset), 2);
    fth_loader_free(loader);
    fth_dataset_free(dataset);
}

static void objects_named_and_missing_are_bad_images(void **state)
{
    (void)state;
    uint8_t pixels[3 * 16 * 16];
    int32_t label;
    write_sized("set/a.png", 30);
    test_write_text("set/index.csv", "a.png,x,train\ngone.png,y,train\na.png,x,val\n");
    fth_dataset *dataset = open_address(address);
    assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, 0, pixels, &label), FTH_OK);
    assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, 1, pixels, &label), FTH_CORRUPT);
    assert_message_has("there is no ");
    fth_dataset_free(dataset);
}

static void archives_are_downloaded_once(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH], archive[TEST_MAX_PATH + 30];
    write_classes("all");
    run("mkdir set && tar -C all -czf set/x.tar.gz train val");
    snprintf(archive, sizeof archive, "%s/x.tar.gz", address);
    fth_dataset *plain = open_address(test_path(path, "all")), *remote = open_address(archive);
    assert_same_samples(remote, plain);
    fth_dataset_free(remote);
    fth_dataset_free(plain);
    run("test $(ls cache/archives | wc -l) = 1 && rm set/x.tar.gz");
    assert_fails(archive, FTH_INVALID, "there is no ");
}

typedef struct web {
    encoded picture;
    bool broken;
} web;

enum { FAR_IMAGES = 300 };

static char *answer(void *context, const stub_request *request, size_t *size_bytes, bool *close)
{
    static const char index[] = "0.png,a,train\n1.png,b,train\n2.png,a,train\n3.png,b,train\n0.png,a,val\n";
    web *pages = context;
    char head[100];
    *close = false;
    if (strcmp(request->target, "/set/index.csv") == 0)
        return stub_answer(200, "", index, size_bytes);
    if (strcmp(request->target, "/far/index.csv") == 0) {
        char text[FAR_IMAGES * 20] = "";
        for (int i = 0; i < FAR_IMAGES; i++)
            snprintf(text + strlen(text), 20, "%d.png,%d,%s\n", i, i % 2, i < FAR_IMAGES - 2 ? "train" : "val");
        return stub_answer(200, "", text, size_bytes);
    }
    if (pages->broken)
        return stub_answer(503, "", "", size_bytes);
    int length =
        snprintf(head, sizeof head, "HTTP/1.1 200 X\r\nContent-Length: %zu\r\n\r\n", pages->picture.size_bytes);
    char *bytes = malloc((size_t)length + pages->picture.size_bytes);
    memcpy(bytes, head, (size_t)length);
    memcpy(bytes + length, pages->picture.bytes, pages->picture.size_bytes);
    *size_bytes = (size_t)length + pages->picture.size_bytes;
    return bytes;
}

/* A server that is out of order is an error, after its tries, and none of its images a bad one. */
static void a_server_in_trouble_is_no_bad_image(void **state)
{
    (void)state;
    char url[100];
    web pages = {.picture = encode_wild_png(100, 100)};
    stub_server server = {0};
    const fth_store_options hasty = {.deadline_s = 0.5 * TEST_SLOWDOWN};
    fth_dataset_options options = usual;
    fth_loader *loader = NULL;
    const fth_batch *batch = NULL;
    const fth_loader_options all = {.batch = 4, .threads = 2};
    options.store = &hasty;
    stub_start(&server, answer, &pages);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/set/index.csv", server.port);
    fth_dataset *dataset = open_with(url, &options);
    assert_int_equal(fth_loader_open(dataset, &all, &loader), FTH_OK);
    assert_int_equal(fth_loader_next(loader, test_deadline_in(60), &batch), FTH_OK);
    assert_int_equal(batch->count, 4);
    pthread_mutex_lock(&server.mutex);
    pages.broken = true;
    pthread_mutex_unlock(&server.mutex);
    fth_status status = FTH_OK;
    while (status == FTH_OK) /* what was fetched before still comes */
        status = fth_loader_next(loader, test_deadline_in(60), &batch);
    assert_int_equal(status, FTH_IO);
    assert_message_has(".png");
    assert_message_has("the server answered 503");
    assert_int_equal(fth_dataset_bad_image_count(dataset), 0);
    fth_loader_free(loader);
    fth_dataset_free(dataset);
    stub_stop(&server);
    free(pages.picture.bytes);
}

/* A loader has many more images fetched than it has room for. */
static void loaders_fetch_ahead(void **state)
{
    (void)state;
    char url[100];
    web pages = {.picture = encode_wild_png(100, 100)};
    stub_server server = {0};
    fth_loader *loader = NULL;
    const fth_batch *batch = NULL;
    const fth_loader_options few = {.batch = 2, .threads = 1, .shuffle = true, .seed = 1};
    stub_start(&server, answer, &pages);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/far/index.csv", server.port);
    fth_dataset *dataset = open_address(url);
    assert_int_equal(fth_loader_open(dataset, &few, &loader), FTH_OK);
    fth_deadline deadline = test_deadline_in(60);
    while (server.requests < 250 && !fth_deadline_passed(deadline)) {
        struct timespec moment = {.tv_nsec = 1000000};
        nanosleep(&moment, NULL);
    }
    assert_true(server.requests >= 250);
    assert_int_equal(fth_loader_next(loader, deadline, &batch), FTH_OK);
    assert_int_equal(batch->count, 2);
    fth_loader_free(loader);
    fth_dataset_free(dataset);
    stub_stop(&server);
    free(pages.picture.bytes);
}

/* ---- what is kept ---- */

static void the_disk_keeps_what_was_fetched(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH], kept[TEST_MAX_PATH];
    write_classes("all");
    run("mkdir set && tar -C all -cf set/a.tar train val");
    fth_dataset_options options = usual;
    options.disk_cache_bytes = 1 << 20;
    options.disk_cache_folder = test_path(kept, "kept");
    fth_dataset *plain = open_address(test_path(path, "all")), *remote = open_with(address, &options);
    assert_same_samples(remote, plain);
    fth_dataset_free(remote);
    run("test $(find kept -type f -name '[0-9a-f]*' | wc -l) = 18");
    /* The bytes in the tar are not looked at again: they could as well be others. */
    run("touch -r set/a.tar time && dd if=/dev/zero of=set/a.tar bs=1 count=40000 seek=600 conv=notrunc 2>/dev/null; "
        "touch -r time set/a.tar");
    remote = open_with(address, &options);
    assert_same_samples(remote, plain);
    assert_same_batches(remote, plain);
    fth_dataset_free(remote);
    fth_dataset_free(plain);
}

/* A long list is remembered, and asked for again where it shows a change. */
static void long_lists_are_remembered(void **state)
{
    (void)state;
    enum { OBJECTS = 4100 };
    fth_dataset_options options = usual;
    options.max_bad_images = 0.9;
    run("mkdir -p set/a set/b && cd set && seq -f 'a/%05g.png' 0 4098 | xargs touch && touch b/0.png");
    fth_dataset *dataset = open_with(address, &options);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_int_equal(info->count[0] + info->count[1], OBJECTS);
    fth_dataset_free(dataset);
    run("test $(ls cache/lists | wc -l) = 1 && cp cache/lists/* first");
    fth_dataset_free(open_with(address, &options));
    run("cmp first cache/lists/* && touch set/b/1.png"); /* on the last page */
    dataset = open_with(address, &options);
    info = fth_dataset_get_info(dataset);
    assert_int_equal(info->count[0] + info->count[1], OBJECTS + 1);
    fth_dataset_free(dataset);
    run("cp cache/lists/* second && sed -i 's/00100/00!00/' cache/lists/*"); /* damaged: as if there were none */
    dataset = open_with(address, &options);
    assert_int_equal(fth_dataset_get_info(dataset)->count[0] + fth_dataset_get_info(dataset)->count[1], OBJECTS + 1);
    fth_dataset_free(dataset);
    run("cmp second cache/lists/*");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, test_remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(class_folders_are_read_as_a_folder_is),
        TEST(tars_are_read_in_place),
        TEST(tars_are_looked_into_once),
        TEST(webdataset_has_classes_beside_images),
        TEST(index_files_say_class_and_split),
        TEST(wrong_index_files_are_refused),
        TEST(empty_places_are_refused),
        TEST(changed_objects_are_bad_images),
        TEST(objects_named_and_missing_are_bad_images),
        TEST(archives_are_downloaded_once),
        TEST(a_server_in_trouble_is_no_bad_image),
        TEST(loaders_fetch_ahead),
        TEST(the_disk_keeps_what_was_fetched),
        TEST(long_lists_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
