/* Data sets straight from archives: layouts, ranges, and archives that mean harm. */
#include "test_archives.h"

#include "data/archive/archive_set.h"

static fth_status open_made(const made_archive *made, const fth_archive_set_options *options, fth_dataset **dataset)
{
    return fth_archive_set_open(made->bytes, made->size_bytes, "x.tar.gz", options, dataset);
}

/* Of make_idx_images(): the number of a sample is in its first bytes. */
static void check_samples(fth_dataset *dataset, int64_t first, int64_t count, size_t image_bytes)
{
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    uint8_t *pixels = malloc(image_bytes);
    assert_int_equal(info->count[FTH_TRAIN], count);
    assert_int_equal(info->count[FTH_VALIDATION], 0);
    for (int64_t i = 0; i < count; i++) {
        int32_t label = -1;
        assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, i, pixels, &label), FTH_OK);
        assert_int_equal(pixels[0] | pixels[1] << 8, first + i);
        assert_int_equal(label, (first + i) % 10);
    }
    free(pixels);
}

static void open_and_check(const made_archive *made, int64_t first, int64_t count, int64_t wanted)
{
    fth_dataset *dataset = NULL;
    if (open_made(made, &(fth_archive_set_options){.first = first, .count = count}, &dataset) != FTH_OK)
        fail_msg("%s", fth_error_message());
    check_samples(dataset, first, wanted, 16);
    fth_dataset_free(dataset);
}

static void reads_idx_from_any_archive(void **state)
{
    (void)state;
    for (archive_kind kind = ARCHIVE_TAR; kind <= ARCHIVE_ZIP; kind++) {
        made_archive made = make_idx_archive(kind, kind == ARCHIVE_TAR ? "" : "a/./b/", 300, 4);
        open_and_check(&made, 0, 0, 300);
        open_and_check(&made, 10, 30, 30);
        open_and_check(&made, 290, 30, 10);
        open_and_check(&made, 299, INT64_MAX, 1);
        free(made.bytes);
    }
}

/* What the prototype's functions downloaded: torchvision's folder with the files plain and
 * compressed, and programs. */
static void reads_the_prototypes_layout(void **state)
{
    (void)state;
    for (int compressed_first = 0; compressed_first < 2; compressed_first++) {
        made_archive made = begin_archive(ARCHIVE_TAR_GZ);
        size_t size_bytes, packed_bytes;
        uint8_t *images = make_idx_images(50, 4, &size_bytes), *packed = make_gzip(images, size_bytes, &packed_bytes);
        open_archive(&made);
        add_entry(&made, "dataset_dl/", AE_IFDIR, NULL, NULL, 0);
        add_file(&made, "dataset_dl/__main__.py", "import os", 9);
        add_entry(&made, "dataset_dl/link.py", AE_IFLNK, "/etc/passwd", NULL, 0);
        add_file(&made, "dataset_dl/data/MNIST/raw/t10k-images-idx3-ubyte", "no matter", 9);
        if (compressed_first)
            add_file(&made, "dataset_dl/data/MNIST/raw/train-images-idx3-ubyte.gz", packed, packed_bytes);
        add_idx_pair(&made, "dataset_dl/data/MNIST/raw/", 50, 4);
        finish_archive(&made);
        open_and_check(&made, 20, 15, 15);
        open_and_check(&made, 0, 0, 50);
        free(images);
        free(packed);
        free(made.bytes);
    }
}

/* ---- an archive's own range ---- */

#define IMPORTS "import torch\nimport torchvision\n\n"
#define SET     "_raw_dataset = torchvision.datasets.MNIST('./dataset_dl/data/', train=True, download=True)\n"

/* As the prototype's README has it. */
static const char prototype_program[] =
    "\"\"\"__dataset__.py\"\"\"\n" IMPORTS "_raw_dataset = torchvision.datasets.MNIST(\n"
    "        './dataset_dl/data/',\n        train=True,\n        download=True,\n"
    "        transform=torchvision.transforms.Compose([\n            torchvision.transforms.ToTensor(),\n"
    "            torchvision.transforms.Normalize((0.1307, ), (0.3081, ))\n        ]))\n"
    "# Split dataset using torch.utils.data.Subset api\n"
    "dataset = torch.utils.data.Subset(_raw_dataset, range(20, 35))\n";
static const char passes_on[] = "\"\"\"__init__.py\"\"\"\nfrom .__dataset__ import dataset as Dataset\n";

static void add_text(made_archive *made, const char *path, const char *text)
{
    add_file(made, path, text, strlen(text));
}

static made_archive make_described(const char *program, const char *init, bool program_first)
{
    made_archive made = begin_archive(ARCHIVE_TAR_GZ);
    open_archive(&made);
    add_text(&made, "./dataset_dl/__init__.py", init);
    if (program_first)
        add_text(&made, "./dataset_dl/__dataset__.py", program);
    add_idx_pair(&made, "./dataset_dl/data/MNIST/raw/", 50, 4);
    if (!program_first)
        add_text(&made, "./dataset_dl/__dataset__.py", program);
    finish_archive(&made);
    return made;
}

static void uses_the_range_that_the_archive_selects(void **state)
{
    static const char *const programs[] = {
        prototype_program, "\xef\xbb\xbf" IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, range(20, 35))",
        "from torch.utils.data import Subset\r\nfrom torchvision import (datasets, transforms,)\r\n"
        "to_tensor = transforms.Compose([transforms.ToTensor()])\r\n"
        "dataset = Subset(datasets.MNIST('data', True, to_tensor), list(range(20, 35, 1)))\r\n",
        IMPORTS SET "# dataset = torch.utils.data.Subset(_raw_dataset, range(0, 10))\n"
                    "note = 'Subset(_raw_dataset, range(0, 10))'\n"
                    "dataset = torch.utils.data.Subset( # a comment\n    _raw_dataset,\n\n  range(20, 35))\n\n"};
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(programs); i++)
        for (int program_first = 0; program_first < 2; program_first++) {
            made_archive made = make_described(programs[i], passes_on, program_first);
            fth_dataset *dataset = NULL;
            if (open_made(&made, &(fth_archive_set_options){0}, &dataset) != FTH_OK)
                fail_msg("%zu: %s", i, fth_error_message());
            check_samples(dataset, 20, 15, 16);
            fth_dataset_free(dataset);
            open_and_check(&made, 5, 10, 10); /* what is asked for comes first */
            free(made.bytes);
        }
}

static void uses_all_where_the_archive_selects_none(void **state)
{
    (void)state;
    made_archive made = make_described(IMPORTS SET "dataset = _raw_dataset\n", "", false);
    open_and_check(&made, 0, 0, 50);
    free(made.bytes);
}

/* Fails closed: a program that may select other samples than those that were read from it is
 * refused, with the way out. */
static void refuses_a_selection_that_is_not_certain(void **state)
{
#define SUBSET "dataset = torch.utils.data.Subset(_raw_dataset, range(20, 35))\n"
    static const char *const programs[] = {
        "",
        "dataset",
        IMPORTS SET,
        IMPORTS SUBSET,
        SET SUBSET,
        IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, range(20, 35, 5))\n",
        IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, range(35, 20))\n",
        IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, range(2 * 10, 35))\n",
        IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, range(-20, 35))\n",
        IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, range(20, 99999999999999999999))\n",
        IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, [20, 21])\n",
        IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, range(20, 35))[0]\n",
        IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, range(20, 35)) + _raw_dataset\n",
        IMPORTS SET SUBSET "dataset.indices = range(3)\n",
        IMPORTS SET SUBSET "dataset = _raw_dataset\n",
        IMPORTS SET SUBSET "dataset += _raw_dataset\n",
        IMPORTS SET SUBSET "del dataset\n",
        IMPORTS SET SUBSET "if torch: dataset = _raw_dataset\n",
        IMPORTS SET SUBSET "def f():\n    pass\n",
        IMPORTS SET SUBSET "x = (dataset := _raw_dataset)\n",
        IMPORTS SET SUBSET "exec('dataset = _raw_dataset')\n",
        IMPORTS SET SUBSET "x = 1; dataset = _raw_dataset\n",
        IMPORTS SET SUBSET "# a\rdataset = _raw_dataset\n", /* Python ends lines there, too */
        IMPORTS SET "dataset = torch.utils.data.Subset(torch.utils.data.Subset(_raw_dataset, range(9)), range(5))\n",
        IMPORTS SET "range = 5\n" SUBSET,
        IMPORTS SET "from tricks import range\n" SUBSET,
        IMPORTS SET "from tricks import *\n" SUBSET,
        IMPORTS SET "import tricks as torch\n" SUBSET,
        IMPORTS SET "import tricks\ndataset = tricks.Subset(_raw_dataset, range(20, 35))\n",
        IMPORTS SET "from torch import Other as Subset\ndataset = Subset(_raw_dataset, range(20, 35))\n",
        IMPORTS "_raw_dataset = torchvision.datasets.MNIST('data', train=False)\n" SUBSET,
        IMPORTS "_raw_dataset = torchvision.datasets.MNIST('data', False)\n" SUBSET,
        IMPORTS "_raw_dataset = torchvision.datasets.MNIST('data', target_transform=torchvision.ToTensor())\n" SUBSET,
        IMPORTS "_raw_dataset = torchvision.datasets.FakeData('data')\n" SUBSET,
        IMPORTS "_raw_dataset = torchvision.datasets.MNIST('data', transform=torchvision.RandomCrop(3))\n" SUBSET,
        IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, range(20, 35)",
        IMPORTS SET "dataset = 'torch.utils.data.Subset(_raw_dataset, range(20, 35))\n",
        IMPORTS SET "'''\n" SUBSET,
        IMPORTS SET "dataset = \\\ntorch.utils.data.Subset(_raw_dataset, range(20, 35))\n",
        IMPORTS SET SUBSET "\f",
        IMPORTS SET SUBSET "((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((",
        IMPORTS SET "x = ((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))\n" SUBSET,
    };
    static const char *const others[] = {"from .other import dataset as Dataset\n",
                                         "from .__dataset__ import dataset as Dataset\nDataset.indices = []\n",
                                         "import torch\n"};
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(programs) + FTH_COUNT_OF(others); i++) {
        const bool init = i >= FTH_COUNT_OF(programs);
        made_archive made = make_described(init ? prototype_program : programs[i],
                                           init ? others[i - FTH_COUNT_OF(programs)] : passes_on, i % 2 == 0);
        fth_dataset *dataset = NULL;
        if (open_made(&made, &(fth_archive_set_options){0}, &dataset) != FTH_INVALID)
            fail_msg("taken, or not for this: %zu: %s", i, fth_error_message());
        assert_non_null(strstr(fth_error_message(), "\"range\""));
        assert_non_null(strstr(fth_error_message(), init ? "__init__.py" : "__dataset__.py"));
        open_and_check(&made, 5, 10, 10);
        assert_int_equal(open_made(&made, &(fth_archive_set_options){.ranged = true}, &dataset), FTH_OK);
        check_samples(dataset, 0, 50, 16);
        fth_dataset_free(dataset);
        free(made.bytes);
    }
}

static void refuses_a_selection_beyond_the_set_or_a_second_one(void **state)
{
    fth_dataset *dataset = NULL;
    made_archive made =
        make_described(IMPORTS SET "dataset = torch.utils.data.Subset(_raw_dataset, range(40, 60))\n", passes_on, true);
    (void)state;
    assert_int_equal(open_made(&made, &(fth_archive_set_options){0}, &dataset), FTH_INVALID);
    assert_non_null(strstr(fth_error_message(), "samples 40 to 59 of 50 training samples"));
    free(made.bytes);
    made = begin_archive(ARCHIVE_ZIP);
    open_archive(&made);
    add_text(&made, "a/__dataset__.py", prototype_program);
    add_idx_pair(&made, "a/", 50, 4);
    add_text(&made, "b/__dataset__.py", prototype_program);
    finish_archive(&made);
    assert_int_equal(open_made(&made, &(fth_archive_set_options){0}, &dataset), FTH_INVALID);
    assert_non_null(strstr(fth_error_message(), "a second b/__dataset__.py"));
    free(made.bytes);
}

static void reads_only_what_is_compressed_inside(void **state)
{
    (void)state;
    made_archive made = begin_archive(ARCHIVE_ZIP);
    size_t size_bytes, packed_bytes;
    uint8_t *plain = make_idx_images(700, 4, &size_bytes), *packed = make_gzip(plain, size_bytes, &packed_bytes);
    open_archive(&made);
    add_file(&made, "raw/train-images.idx3-ubyte.gz", packed, packed_bytes);
    free(plain);
    free(packed);
    plain = make_idx_labels(700, &size_bytes);
    packed = make_gzip(plain, size_bytes, &packed_bytes);
    add_file(&made, "raw/train-labels.idx1-ubyte.gz", packed, packed_bytes);
    finish_archive(&made);
    open_and_check(&made, 600, 50, 50);
    open_and_check(&made, 0, 0, 700);
    free(plain);
    free(packed);
    free(made.bytes);
}

static uint8_t *make_cifar(int first, int count, int classes, size_t *size_bytes)
{
    *size_bytes = (size_t)count * 3073;
    uint8_t *bytes = calloc(1, *size_bytes);
    for (int i = 0; i < count; i++) {
        bytes[i * 3073] = (uint8_t)((first + i) % classes);
        bytes[i * 3073 + 1] = (uint8_t)(first + i);
    }
    return bytes;
}

static void check_cifar(fth_dataset *dataset, int first, int count, int classes)
{
    uint8_t pixels[3072];
    assert_int_equal(fth_dataset_get_info(dataset)->count[FTH_TRAIN], count);
    for (int i = 0; i < count; i++) {
        int32_t label = -1;
        assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, i, pixels, &label), FTH_OK);
        assert_int_equal(pixels[0], first + i);
        assert_int_equal(label, (first + i) % classes);
    }
}

static void reads_cifar(void **state)
{
    (void)state;
    made_archive made = begin_archive(ARCHIVE_TAR_GZ);
    size_t size_bytes;
    fth_dataset *dataset = NULL;
    char names[400] = "";
    for (int i = 0; i < 20; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "class %d\n", i);
    open_archive(&made);
    for (int file = 1; file <= 3; file++) {
        char path[64];
        uint8_t *bytes = make_cifar((file - 1) * 40, 40, 20, &size_bytes);
        snprintf(path, sizeof path, "cifar-10-batches-bin/data_batch_%d.bin", file);
        add_file(&made, path, bytes, size_bytes);
        free(bytes);
    }
    add_file(&made, "cifar-10-batches-bin/test_batch.bin", "x", 1);
    add_file(&made, "cifar-10-batches-bin/batches.meta.txt", names, strlen(names));
    finish_archive(&made);
    const fth_normalization half = {1, {0.5f}, {0.5f}};
    if (open_made(&made, &(fth_archive_set_options){.first = 30, .count = 60, .normalization = &half}, &dataset) !=
        FTH_OK)
        fail_msg("%s", fth_error_message());
    check_cifar(dataset, 30, 60, 20);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_int_equal(info->classes, 20);
    assert_string_equal(info->class_names[19], "class 19");
    assert_true(info->normalization.channels == 3 && info->normalization.mean[2] == 0.5f);
    fth_dataset_free(dataset);
    free(made.bytes);

    uint8_t *single = make_cifar(0, 7, 10, &size_bytes);
    assert_int_equal(fth_archive_set_open(single, size_bytes, "x.bin", &(fth_archive_set_options){0}, &dataset),
                     FTH_OK);
    check_cifar(dataset, 0, 7, 10);
    fth_dataset_free(dataset);
    assert_int_equal(fth_archive_set_open(single, size_bytes - 1, "x.bin", &(fth_archive_set_options){0}, &dataset),
                     FTH_CORRUPT);
    assert_message_has("nor a CIFAR-10 file");
    free(single);
}

static void resizes_for_the_network(void **state)
{
    (void)state;
    made_archive made = make_idx_archive(ARCHIVE_TAR, "", 10, 4);
    fth_dataset *dataset = NULL;
    assert_int_equal(open_made(&made, &(fth_archive_set_options){.height = 8, .width = 6}, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_get_info(dataset)->height, 8);
    assert_int_equal(fth_dataset_get_info(dataset)->width, 6);
    fth_dataset_free(dataset);
    assert_int_equal(open_made(&made, &(fth_archive_set_options){.height = 8, .width = 8}, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_get_info(dataset)->width, 8);
    fth_dataset_free(dataset);
    free(made.bytes);
}

/* 1 × 1 pixel, as a PNG. */
static const uint8_t png[] = {0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
                              0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00,
                              0x00, 0x3a, 0x7e, 0x9b, 0x55, 0x00, 0x00, 0x00, 0x0a, 0x49, 0x44, 0x41, 0x54, 0x78,
                              0x9c, 0x63, 0x68, 0x00, 0x00, 0x00, 0x82, 0x00, 0x81, 0x77, 0xcd, 0x72, 0xb6, 0x00,
                              0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

static void reads_class_folders_of_images(void **state)
{
    (void)state;
    made_archive made = begin_archive(ARCHIVE_TAR_GZ);
    char path[TEST_MAX_PATH];
    fth_dataset *dataset = NULL;
    uint8_t pixels[64 * 64 * 3];
    int32_t label = -1;
    open_archive(&made);
    add_file(&made, "deep/photos/read.py", "x", 1);
    for (int i = 0; i < 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "deep/photos/%s/%d.png", i % 2 ? "dog" : "cat", i);
        add_file(&made, name, png, sizeof png);
    }
    finish_archive(&made);
    fth_archive_set_options options = {
        .first = 2, .count = 3, .height = 8, .width = 8, .unpacked = test_path(path, "plain.tar")};
    if (open_made(&made, &options, &dataset) != FTH_OK)
        fail_msg("%s", fth_error_message());
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_int_equal(info->classes, 2);
    assert_string_equal(info->class_names[0], "cat");
    assert_int_equal(info->count[FTH_TRAIN], 3);
    assert_int_equal(info->count[FTH_VALIDATION], 0);
    assert_int_equal(info->height, 8);
    for (int i = 0; i < 3; i++) { /* cat 0 2 4, dog 1 3 5 */
        assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, i, pixels, &label), FTH_OK);
        assert_int_equal(label, i > 0);
    }
    fth_dataset_free(dataset);
    assert_true(test_exists("plain.tar"));

    options.unpacked = NULL;
    assert_int_equal(open_made(&made, &options, &dataset), FTH_UNSUPPORTED);
    assert_message_has("x.tar.gz");
    options.unpacked = path;
    options.first = 6;
    assert_int_equal(open_made(&made, &options, &dataset), FTH_INVALID);
    assert_message_has("6 training samples, none from number 6");
    test_path(path, "small.tar");
    options.first = 0;
    options.max_bytes = 2000;
    assert_int_equal(open_made(&made, &options, &dataset), FTH_INVALID);
    assert_message_has("2000 bytes");
    assert_false(test_exists("small.tar"));
    free(made.bytes);
}

/* ---- hostile ones ---- */

static void refuse(made_archive *made, fth_status wanted, const char *message)
{
    fth_dataset *dataset = NULL;
    char path[TEST_MAX_PATH];
    fth_status status = open_made(made, &(fth_archive_set_options){.unpacked = test_path(path, "out.tar")}, &dataset);
    if (status != wanted)
        fail_msg("%s: status %d: %s", message, (int)status, fth_error_message());
    assert_message_of(message, message);
    assert_message_of(message, "x.tar.gz");
    assert_null(dataset);
    assert_false(test_exists("out.tar"));
    free(made->bytes);
}

static void refuse_entry(const char *path, unsigned kind, const char *target, const char *message)
{
    made_archive made = begin_archive(ARCHIVE_TAR_GZ);
    open_archive(&made);
    add_entry(&made, path, kind, target, "x", kind == AE_IFREG && !target ? 1 : 0);
    finish_archive(&made);
    refuse(&made, FTH_CORRUPT, message);
}

static void refuses_what_leads_elsewhere(void **state)
{
    (void)state;
    refuse_entry("../train-images-idx3-ubyte", AE_IFREG, NULL, "leads out of the archive");
    refuse_entry("a/../../train-images-idx3-ubyte", AE_IFREG, NULL, "leads out of the archive");
    refuse_entry("/tmp/train-labels-idx1-ubyte", AE_IFREG, NULL, "leads out of the archive");
    refuse_entry("a/../../cat/x.png", AE_IFREG, NULL, "leads out of the archive");
    refuse_entry("/cat/x.png", AE_IFREG, NULL, "leads out of the archive");
    refuse_entry("train-images-idx3-ubyte", AE_IFLNK, "/etc/passwd", "link or device");
    refuse_entry("cat/x.png", AE_IFREG, "/etc/passwd", "link or device");
    refuse_entry("data_batch_1.bin", AE_IFCHR, NULL, "link or device");
    refuse_entry("data_batch_1.bin", AE_IFIFO, NULL, "link or device");
    refuse_entry("program.py", AE_IFREG, NULL, "no training data among its 1 entry");
}

static void refuses_damage(void **state)
{
    (void)state;
    static const uint8_t noise[] = "this is no archive at all, and no CIFAR-10 file either";
    made_archive made = {.bytes = malloc(sizeof noise), .size_bytes = sizeof noise};
    memcpy(made.bytes, noise, sizeof noise);
    refuse(&made, FTH_CORRUPT, "nor a CIFAR-10 file");
    made = (made_archive){.bytes = malloc(1)};
    refuse(&made, FTH_CORRUPT, "is empty");

    for (archive_kind kind = ARCHIVE_TAR; kind <= ARCHIVE_TAR_GZ; kind++)
        for (size_t divisor = 2; divisor < 40; divisor += 7) {
            made = make_idx_archive(kind, "a/", 3000, 4);
            made.size_bytes = made.size_bytes / divisor;
            refuse(&made, FTH_CORRUPT, "x.tar.gz");
        }
    made = begin_archive(ARCHIVE_TAR_GZ); /* whole, but the file in it is not */
    open_archive(&made);
    size_t size_bytes;
    uint8_t *bytes = make_idx_images(30, 4, &size_bytes);
    add_file(&made, "train-images-idx3-ubyte", bytes, size_bytes - 1);
    finish_archive(&made);
    refuse(&made, FTH_CORRUPT, "is truncated");
    made = begin_archive(ARCHIVE_TAR_GZ);
    open_archive(&made);
    put_big_endian(bytes, 0x801);
    add_file(&made, "train-images-idx3-ubyte", bytes, size_bytes);
    finish_archive(&made);
    refuse(&made, FTH_CORRUPT, "wrong magic number");
    made = begin_archive(ARCHIVE_TAR_GZ);
    open_archive(&made);
    put_big_endian(bytes, 0x803);
    add_file(&made, "a/train-images-idx3-ubyte", bytes, size_bytes);
    add_idx_pair(&made, "b/", 3, 4);
    finish_archive(&made);
    refuse(&made, FTH_CORRUPT, "train-labels-idx1-ubyte is missing in a");
    made = begin_archive(ARCHIVE_TAR_GZ);
    open_archive(&made);
    add_file(&made, "train-images-idx3-ubyte", bytes, size_bytes);
    free(bytes);
    bytes = make_idx_labels(29, &size_bytes);
    add_file(&made, "train-labels-idx1-ubyte", bytes, size_bytes);
    finish_archive(&made);
    refuse(&made, FTH_CORRUPT, "30 images but 29 labels");
    made = begin_archive(ARCHIVE_TAR_GZ);
    open_archive(&made);
    bytes[8 + 20] = 10;
    add_file(&made, "train-labels-idx1-ubyte", bytes, size_bytes);
    finish_archive(&made);
    refuse(&made, FTH_CORRUPT, "record 20 has the label 10");
    free(bytes);
}

/* Promises 2^32 images in a header: no memory is taken for what has not come. */
static void believes_no_header(void **state)
{
    (void)state;
    uint8_t header[16 + 16] = {0};
    put_big_endian(header, 0x803);
    put_big_endian(header + 4, UINT32_MAX);
    put_big_endian(header + 8, 1024);
    put_big_endian(header + 12, 1024);
    made_archive made = begin_archive(ARCHIVE_TAR);
    open_archive(&made);
    add_file(&made, "train-images-idx3-ubyte", header, sizeof header);
    finish_archive(&made);
    refuse(&made, FTH_CORRUPT, "is truncated");
}

/* The header of a file in a tar, with a size that need not be true. */
static void put_header(uint8_t block[512], const char *name, uint64_t size_bytes)
{
    unsigned sum = 0;
    memset(block, 0, 512);
    snprintf((char *)block, 100, "%s", name);
    snprintf((char *)block + 100, 8, "0000644");
    snprintf((char *)block + 108, 8, "0000000");
    snprintf((char *)block + 116, 8, "0000000");
    snprintf((char *)block + 124, 12, "%011llo", (unsigned long long)size_bytes);
    snprintf((char *)block + 136, 12, "00000000000");
    block[156] = '0';
    memcpy(block + 257, "ustar\00000", 8);
    memset(block + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++)
        sum += block[i];
    snprintf((char *)block + 148, 8, "%06o", sum);
}

/* Gigabytes of zeros in little, as data and as something else. */
static void refuses_bombs(void **state)
{
    (void)state;
    static const char *const paths[] = {"program.py", "data_batch_1.bin"};
    size_t packed_bytes, inner_bytes = (size_t)16 << 20;
    uint8_t *bomb = calloc(1, inner_bytes), *packed = NULL;
    made_archive made = {0};
    for (size_t i = 0; i < FTH_COUNT_OF(paths); i++) {
        put_header(bomb, paths[i], (uint64_t)3 << 30);
        made.bytes = make_gzip(bomb, inner_bytes, &made.size_bytes);
        refuse(&made, FTH_CORRUPT, "expands to more than");
    }
    memset(bomb, 0, 512);
    /* A compressed file in it, whose size nobody declares. */
    packed = make_gzip(bomb, inner_bytes, &packed_bytes);
    made = begin_archive(ARCHIVE_TAR);
    open_archive(&made);
    add_file(&made, "data_batch_1.bin.gz", packed, packed_bytes);
    finish_archive(&made);
    fth_dataset *dataset = NULL;
    assert_int_equal(open_made(&made, &(fth_archive_set_options){.max_bytes = 1 << 20}, &dataset), FTH_INVALID);
    assert_message_has("1048576 bytes");
    assert_int_equal(open_made(&made, &(fth_archive_set_options){.first = 1000000, .max_bytes = 1 << 20}, &dataset),
                     FTH_CORRUPT);
    assert_message_has("expands to more than");
    free(made.bytes);
    free(bomb);
    free(packed);
}

static void refuses_very_many_entries(void **state)
{
    (void)state;
    enum { ENTRIES = (1 << 18) + 1 };
    made_archive made = {.bytes = malloc((size_t)ENTRIES * 512), .size_bytes = (size_t)ENTRIES * 512};
    for (size_t i = 0; i < ENTRIES; i++)
        put_header(made.bytes + i * 512, "a.py", 0);
    refuse(&made, FTH_CORRUPT, "more than 262144 entries");
}

static void ends_in_time(void **state)
{
    (void)state;
    made_archive made = make_idx_archive(ARCHIVE_TAR_GZ, "", 100, 4);
    fth_dataset *dataset = NULL;
    fth_stop stop = FTH_STOP_INITIALIZER;
    assert_int_equal(open_made(&made, &(fth_archive_set_options){.deadline = fth_deadline_in(0)}, &dataset),
                     FTH_TIMEOUT);
    assert_message_has("before the deadline");
    fth_stop_ask(&stop, FTH_STOP_REQUEST, 1, "test", "enough");
    assert_int_equal(open_made(&made, &(fth_archive_set_options){.stop = &stop}, &dataset), FTH_INTERRUPTED);
    assert_int_equal(open_made(&made, &(fth_archive_set_options){.first = -1}, &dataset), FTH_INVALID);
    assert_int_equal(open_made(&made, &(fth_archive_set_options){.first = 100}, &dataset), FTH_INVALID);
    assert_message_has("100 training samples, none from number 100");
    free(made.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_idx_from_any_archive),
        cmocka_unit_test(reads_the_prototypes_layout),
        cmocka_unit_test(uses_the_range_that_the_archive_selects),
        cmocka_unit_test(uses_all_where_the_archive_selects_none),
        cmocka_unit_test(refuses_a_selection_that_is_not_certain),
        cmocka_unit_test(refuses_a_selection_beyond_the_set_or_a_second_one),
        cmocka_unit_test(reads_only_what_is_compressed_inside),
        cmocka_unit_test(reads_cifar),
        cmocka_unit_test(resizes_for_the_network),
        cmocka_unit_test_setup_teardown(reads_class_folders_of_images, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(refuses_what_leads_elsewhere, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(refuses_damage, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(believes_no_header, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(refuses_bombs, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(refuses_very_many_entries, test_make_folder, test_remove_folder),
        cmocka_unit_test(ends_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
