/* Sets of image files: every layout, archives equal to folders, defaults, unreadable images, the
 * loader over them, the memory of the index, packing and splitting. */
#include "data/image/image_inspect.h"
#include "data/image/image_set.h"
#include "data/image/lettering.h"
#include "test_data_pictures.h"

#include <archive.h>
#include <archive_entry.h>
#include <malloc.h>
#include <math.h>

static const jpeg_kind usual = {JCS_RGB, 90, false, true};

static void write_jpeg(const char *name, int width, int height)
{
    encoded jpeg = encode_jpeg(width, height, usual, wild);
    write_picture(name, jpeg);
    free(jpeg.bytes);
}

/* Classes b, a and C with 4, 5 and 6 images for training, 2 each for validation; image i of a class
 * is 32 + i wide. */
static void write_set(const char *root, bool splits)
{
    static const char *const classes[] = {"b", "a", "C"};
    char name[256];
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < 4 + c; i++) {
            snprintf(name, sizeof name, "%s%s%s/%c%d.jpg", root, splits ? "train/" : "", classes[c], 'p' + c, i);
            write_jpeg(name, 32 + i, 40);
        }
        for (int i = 0; i < 2 && splits; i++) {
            snprintf(name, sizeof name, "%sval/%s/v%d.JPEG", root, classes[c], i);
            write_jpeg(name, 50, 32 + i);
        }
    }
}

static fth_status open_at(const char *name, const fth_dataset_options *options, fth_dataset **dataset)
{
    char path[2048];
    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    return fth_dataset_open(path, options, dataset);
}

static const fth_dataset_options plain = {.seed = 5, .validation_fraction = 0.2, .threads = 2};

static int make_cached_folder(void **state)
{
    int result = test_make_folder(state);
    char path[600];
    snprintf(path, sizeof path, "%s/cache", test_folder);
    setenv("FARTHING_CACHE", path, 1);
    return result;
}

/* ---- layouts ---- */

static void check_set(const char *name, int64_t training, int64_t validation)
{
    fth_dataset *dataset = NULL;
    if (open_at(name, &plain, &dataset) != FTH_OK)
        fail_msg("%s", fth_error_message());
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_int_equal(info->classes, 3);
    assert_string_equal(info->class_names[0], "C"); /* as sorted() */
    assert_string_equal(info->class_names[1], "a");
    assert_string_equal(info->class_names[2], "b");
    assert_int_equal(info->count[FTH_TRAIN], training);
    assert_int_equal(info->count[FTH_VALIDATION], validation);
    assert_int_equal(info->width, 224);
    assert_true(fth_dataset_is_transformed(dataset));
    fth_dataset_free(dataset);
}

static void opens_every_layout(void **state)
{
    (void)state;
    write_set("with/", true);
    check_set("with", 15, 6);
    write_set("without/", false);
    check_set("without", 12, 3);
    write_set("around/top/middle/", true);
    check_set("around", 15, 6);
    write_set("only/train/", false);
    check_set("only", 12, 3);
    write_jpeg("with/train/a/deeper/x.jpg", 8, 8); /* below a class: of that class */
    write_jpeg("with/train/.hidden/x.jpg", 8, 8);
    write_jpeg("with/train/a/.x.jpg", 8, 8);
    write_jpeg("with/stray.jpg", 8, 8);
    write_picture("with/train/a/notes.txt", (encoded){(uint8_t *)"x", 1});
    check_set("with", 16, 6);
    for (int i = 0; i < 2; i++) { /* test/ stands in where val/ is missing */
        char from[600], to[600];
        snprintf(from, sizeof from, "%s/with/%s", test_folder, i ? "test" : "val");
        snprintf(to, sizeof to, "%s/with/%s", test_folder, i ? "validation" : "test");
        assert_int_equal(rename(from, to), 0);
        check_set("with", 16, 6);
    }
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    write_jpeg("flat/x.jpg", 8, 8);
    assert_int_equal(open_at("flat", &plain, &dataset), FTH_INVALID);
    assert_message_has("but no class folders");
    write_set("empty/", true);
    char path[600];
    snprintf(path, sizeof path, "%s/empty/train/nothing", test_folder);
    mkdir(path, 0755);
    assert_int_equal(open_at("empty", &plain, &dataset), FTH_INVALID);
    assert_message_has("'nothing' holds no");
    rmdir(path);
    write_jpeg("empty/val/new/x.jpg", 8, 8);
    assert_int_equal(open_at("empty", &plain, &dataset), FTH_INVALID);
    assert_message_has("val/ has the class 'new'");
    write_picture("texts/a/x.txt", (encoded){(uint8_t *)"x", 1});
    assert_int_equal(open_at("texts", &plain, &dataset), FTH_INVALID);
    assert_message_has("no data set in the folder");
    assert_message_has("<class>/*.jpg");

    write_set("set/", true);
    fth_dataset_options options = plain;
    options.transform = "random-resized-crop=64";
    options.image_size = 32;
    assert_int_equal(open_at("set", &options, &dataset), FTH_INVALID);
    assert_message_has("64 × 64");
    options.image_size = 0;
    options.validation_transform = "centre-crop=32,normalize=none";
    assert_int_equal(open_at("set", &options, &dataset), FTH_INVALID);
    options.validation_transform = "resize=80,centre-crop=64,normalize=none";
    assert_int_equal(open_at("set", &options, &dataset), FTH_OK);
    assert_true(fth_dataset_get_info(dataset)->normalization.mean[0] == 0); /* of both, as only one says */
    fth_loader *loader = NULL;
    fth_loader_options how = {.batch = 2, .augmentation = {.flip = true}};
    assert_int_equal(fth_loader_open(dataset, &how, &loader), FTH_INVALID);
    assert_message_has("transform");
    fth_dataset_free(dataset);
}

static void small_sets_keep_their_size(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    for (int i = 0; i < 8; i++) {
        char name[64];
        snprintf(name, sizeof name, "small/%d/%d.jpg", i % 2, i);
        write_jpeg(name, 48, 32);
    }
    assert_int_equal(open_at("small", &plain, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_get_info(dataset)->width, 48);
    assert_int_equal(fth_dataset_get_info(dataset)->height, 32);
    fth_dataset_free(dataset);
    write_jpeg("small/0/odd.jpg", 49, 32);
    assert_int_equal(open_at("small", &plain, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_get_info(dataset)->width, 224);
    fth_dataset_free(dataset);
}

/* ---- the loader ---- */

/* All training and validation images and labels of two epochs, one after another. */
static float *load_all(const char *name, const fth_dataset_options *options, int threads, int64_t batch, size_t *count,
                       int32_t *labels)
{
    fth_dataset *dataset = NULL;
    fth_loader *loader = NULL;
    const fth_batch *got;
    size_t used = 0, label = 0;
    if (open_at(name, options, &dataset) != FTH_OK)
        fail_msg("%s", fth_error_message());
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    size_t image = fth_image_bytes(info);
    float *all = malloc((size_t)(2 * (info->count[0] + info->count[1])) * image * sizeof *all);
    for (int split = 0; split < 2; split++) {
        fth_loader_options how = {.split = (fth_split)split,
                                  .batch = batch < info->count[split] ? batch : info->count[split],
                                  .seed = 3,
                                  .shuffle = split == FTH_TRAIN,
                                  .threads = threads};
        how.batch_limit = 2 * fth_batches_per_epoch(info->count[split], how.batch);
        if (fth_loader_open(dataset, &how, &loader) != FTH_OK)
            fail_msg("%s", fth_error_message());
        for (;;) {
            if (fth_loader_next(loader, test_deadline_in(30), &got) != FTH_OK)
                fail_msg("%s", fth_error_message());
            if (!got)
                break;
            memcpy(all + used, got->images, (size_t)got->count * image * sizeof *all);
            memcpy(labels + label, got->labels, (size_t)got->count * sizeof *labels);
            used += (size_t)got->count * image;
            label += (size_t)got->count;
        }
        fth_loader_free(loader);
    }
    fth_dataset_free(dataset);
    *count = used;
    return all;
}

static void batches_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const int threads[] = {1, 3, 8};
    static const int64_t batches[] = {1, 4, 15};
    fth_dataset_options options = plain;
    options.image_size = 20;
    options.transform = "random-resized-crop=20,flip,colour-jitter=0.4:0.4:0.4:0.1";
    int32_t labels[64], other_labels[64];
    size_t count, other_count;
    write_set("set/", true);
    float *first = load_all("set", &options, 1, 7, &count, labels);
    for (size_t i = 0; i < FTH_COUNT_OF(threads); i++) {
        float *other = load_all("set", &options, threads[i], batches[i], &other_count, other_labels);
        assert_int_equal(count, other_count);
        assert_memory_equal(first, other, count * sizeof *first);
        assert_memory_equal(labels, other_labels, (15 + 6) * 2 * sizeof *labels);
        free(other);
    }
    size_t epoch = 15 * 3 * 20 * 20;
    assert_true(memcmp(first, first + epoch, epoch * sizeof *first) != 0); /* epochs differ; validation does not */
    assert_memory_equal(first + 2 * epoch, first + 2 * epoch + 6 * 1200, 6 * 1200 * sizeof *first);
    free(first);
}

static void a_decoded_cache_changes_nothing_it_should_not(void **state)
{
    (void)state;
    fth_dataset_options options = plain;
    options.image_size = 20;
    int32_t labels[64];
    size_t count, other_count;
    write_set("set/", true);
    options.decoded_cache_bytes = 1; /* nothing fits */
    float *first = load_all("set", &options, 1, 7, &count, labels);
    static const uint64_t sizes[] = {20000, 1 << 30};
    for (size_t i = 0; i < FTH_COUNT_OF(sizes); i++) {
        options.decoded_cache_bytes = sizes[i];
        float *other = load_all("set", &options, 4, 7, &other_count, labels);
        assert_memory_equal(first, other, count * sizeof *first);
        free(other);
    }
    /* Against decoding what is needed only: the same pictures, but for how colour is
     * interpolated. */
    options.decoded_cache_bytes = 0;
    float *other = load_all("set", &options, 1, 7, &other_count, labels);
    double difference = 0;
    for (size_t i = 0; i < count; i++)
        difference += fabsf(first[i] - other[i]);
    assert_true(difference / (double)count < 0.2);
    free(first);
    free(other);
}

/* Slow changes of light and colour under a fine grain, as in a photograph. */
static uint8_t photograph(int x, int y, int channel)
{
    double light = 110 + 60 * sin(x * 0.021 + channel * 0.4) * cos(y * 0.017) + 25 * sin(x * 0.13 + y * 0.17);
    return (uint8_t)(light + (double)((x * 7919 + y * 104729) % 97 % 21));
}

/* Large images are decoded at a reduced size; with a cache, never. */
static void reduced_decoding_looks_the_same(void **state)
{
    (void)state;
    static const int sides[] = {400, 700, 1300, 2900};
    int32_t labels[64];
    size_t count, other_count;
    for (size_t i = 0; i < FTH_COUNT_OF(sides); i++) {
        encoded jpeg = encode_jpeg(sides[i], sides[i] * 3 / 4, usual, photograph);
        write_picture("set/a/x.jpg", jpeg);
        write_picture("set/b/x.jpg", jpeg);
        free(jpeg.bytes);
        fth_dataset_options options = plain;
        options.image_size = 64;
        options.transform = "normalize=none";
        float *reduced = load_all("set", &options, 1, 1, &count, labels);
        options.decoded_cache_bytes = 1;
        float *full = load_all("set", &options, 1, 1, &other_count, labels);
        double difference = 0;
        for (size_t k = 0; k < count; k++)
            difference += 255 * fabsf(reduced[k] - full[k]) / (double)count;
        if (difference > 1)
            fail_msg("%d pixels wide: %g of 255 levels", sides[i], difference);
        free(reduced);
        free(full);
    }
}

static void unreadable_images_are_replaced_and_named(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_loader *loader = NULL;
    const fth_batch *batch;
    fth_dataset_options options = plain;
    options.image_size = 20;
    write_set("set/", true);
    encoded jpeg = encode_jpeg(300, 300, usual, wild);
    jpeg.size_bytes /= 2;
    write_picture("set/train/a/broken.jpg", jpeg);
    assert_int_equal(open_at("set", &options, &dataset), FTH_OK);
    fth_loader_options how = {.batch = 4, .seed = 1, .shuffle = true, .threads = 2, .batch_limit = 4};
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t images = 0;
        assert_int_equal(fth_loader_open(dataset, &how, &loader), FTH_OK);
        while (fth_loader_next(loader, test_deadline_in(30), &batch) == FTH_OK && batch)
            images += batch->count;
        assert_int_equal(images, 16);
        fth_loader_free(loader);
        assert_int_equal(fth_dataset_bad_image_count(dataset), 1); /* counted once */
    }
    assert_string_equal(fth_dataset_get_bad_image(dataset, 0)->name, "train/a/broken.jpg");
    assert_non_null(strstr(fth_dataset_get_bad_image(dataset, 0)->reason, "truncated"));
    assert_null(fth_dataset_get_bad_image(dataset, 1));
    fth_dataset_free(dataset);

    write_picture("set/train/b/text.png", (encoded){(uint8_t *)"no picture", 10});
    fth_status status = FTH_OK;
    assert_int_equal(open_at("set", &options, &dataset), FTH_OK);
    assert_int_equal(fth_loader_open(dataset, &how, &loader), FTH_OK);
    do
        status = fth_loader_next(loader, test_deadline_in(30), &batch);
    while (status == FTH_OK && batch);
    assert_int_equal(status, FTH_CORRUPT);
    assert_message_has("2 of 23 images");
    assert_message_has("train/a/broken.jpg");
    fth_loader_free(loader);
    fth_dataset_free(dataset);
    options.max_bad_images = 0.1;
    assert_int_equal(open_at("set", &options, &dataset), FTH_OK);
    how.batch_limit = 0;
    assert_int_equal(fth_loader_open(dataset, &how, &loader), FTH_OK);
    for (int i = 0; i < 12; i++)
        assert_int_equal(fth_loader_next(loader, test_deadline_in(30), &batch), FTH_OK);
    fth_loader_free(loader);
    assert_int_equal(fth_dataset_bad_image_count(dataset), 2);
    fth_dataset_free(dataset);
    free(jpeg.bytes);
}

/* ---- archives ---- */

static void run(const char *format, ...)
{
    char command[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    assert_int_equal(system(command), 0);
}

static void archives_equal_the_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"plain.tar", "around.tar", "packed.tar.gz", "packed.tar.xz", "packed.zip"};
    fth_dataset_options options = plain;
    options.image_size = 20;
    int32_t labels[64], other_labels[64];
    size_t count, other_count;
    write_set("set/", true);
    run("cd '%s/set' && tar cf ../plain.tar train val && cd .. && tar cf around.tar ./set && gzip -k plain.tar && "
        "mv plain.tar.gz packed.tar.gz && xz -k plain.tar && mv plain.tar.xz packed.tar.xz && "
        "cd set && python3 -c 'import shutil; shutil.make_archive(\"../packed\", \"zip\", \".\")'",
        test_folder);
    float *first = load_all("set", &options, 1, 7, &count, labels);
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++)
        for (int again = 0; again < 2; again++) { /* the second time from the cache */
            float *other = load_all(names[i], &options, 2, 7, &other_count, other_labels);
            assert_int_equal(count, other_count);
            assert_memory_equal(first, other, count * sizeof *first);
            assert_memory_equal(labels, other_labels, (15 + 6) * 2 * sizeof *labels);
            free(other);
        }
    run("test $(ls '%s/cache' | grep -c '^packed.*tar$') = 3", test_folder);
    free(first);
}

static void damaged_archives_are_refused(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    write_set("set/", true);
    run("cd '%s' && tar cf set.tar -C set train val && head -c 9000 set.tar > cut.tar && gzip -k set.tar && "
        "head -c 5000 set.tar.gz > cut.tar.gz && head -c 100000 /dev/zero | gzip > zeros.tar.gz && "
        "head -c 40000000 /dev/zero > z.jpg && tar czf bomb.tar.gz z.jpg",
        test_folder);
    assert_int_equal(open_at("cut.tar", &plain, &dataset), FTH_CORRUPT);
    assert_message_has("truncated");
    assert_int_equal(open_at("cut.tar.gz", &plain, &dataset), FTH_CORRUPT);
    assert_int_not_equal(open_at("zeros.tar.gz", &plain, &dataset), FTH_OK);
    assert_int_equal(open_at("bomb.tar.gz", &plain, &dataset), FTH_CORRUPT);
    assert_message_has("expands");
    run("test $(ls -A '%s/cache' | grep -c -e cut -e bomb) = 0", test_folder); /* nothing is left of them */
}

/* Whatever is being read when a stop is asked: it ends, and what it leaves is not taken for
 * whole. */
static void a_stop_ends_the_opening(void **state)
{
    (void)state;
    static const char *const names[] = {"set", "set.tar", "set.tar.gz", "set.tar.xz", "set.zip"};
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_dataset_options options = plain;
    fth_dataset *dataset = NULL;
    write_set("set/", true);
    run("cd '%s' && tar cf set.tar -C set train val && gzip -k set.tar && xz -k set.tar && "
        "cd set && python3 -c 'import shutil; shutil.make_archive(\"../set\", \"zip\", \".\")'",
        test_folder);
    options.stop = &stop;
    fth_stop_ask(&stop, FTH_STOP_REQUEST, INFINITY, "test", "enough");
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        assert_int_equal(open_at(names[i], &options, &dataset), FTH_INTERRUPTED);
        assert_null(dataset);
    }
    run("test -z \"$(ls -A '%s/cache')\"", test_folder);
    stop.asked = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        assert_int_equal(open_at(names[i], &options, &dataset), FTH_OK);
        fth_dataset_free(dataset);
        dataset = NULL;
    }
}

static void packs_and_splits(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_dataset_options options = plain;
    options.image_size = 20;
    int64_t bytes, total = 0;
    int32_t labels[64];
    size_t count, other_count;
    char path[600];
    write_set("top/set/", true);
    assert_int_equal(open_at("top", &options, &dataset), FTH_OK);
    snprintf(path, sizeof path, "%s/packed.tar", test_folder);
    assert_int_equal(fth_dataset_pack(dataset, path, &bytes), FTH_OK);
    assert_true(bytes > 0);
    float *first = load_all("top", &options, 1, 7, &count, labels);
    float *other = load_all("packed.tar", &options, 1, 7, &other_count, labels);
    assert_memory_equal(first, other, count * sizeof *first);
    free(first);
    free(other);
    snprintf(path, sizeof path, "%s/shards", test_folder);
    assert_int_equal(fth_dataset_shard(dataset, 4, path, &bytes), FTH_OK);
    fth_dataset_free(dataset);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "shards/shard-%05d-of-00004.tar", i);
        assert_int_equal(open_at(path, &options, &dataset), FTH_OK);
        const fth_dataset_info *info = fth_dataset_get_info(dataset);
        assert_int_equal(info->classes, 3);
        assert_true(info->count[FTH_TRAIN] >= 3 && info->count[FTH_TRAIN] <= 5);
        total += info->count[FTH_TRAIN];
        if (fth_dataset_images(dataset)->index.has_splits &&
            fth_dataset_images(dataset)->index.counts[FTH_VALIDATION] > 0)
            total += info->count[FTH_VALIDATION];
        fth_dataset_free(dataset);
    }
    assert_int_equal(total, 15 + 6);
    assert_int_equal(open_at("top", &options, &dataset), FTH_OK);
    snprintf(path, sizeof path, "%s/many", test_folder);
    assert_int_equal(fth_dataset_shard(dataset, 5, path, &bytes), FTH_INVALID);
    assert_message_has("'b' has 4 images");
    fth_dataset_free(dataset);
}

/* The column on the left of a sheet has each class's name, a letter here, beside its row. */
static void assert_labels(const fth_picture *sheet, int width, const char *const names[3])
{
    enum { SCALE = 2, MARGIN = 8 };
    size_t stride = (size_t)width * FTH_IMAGE_CHANNELS;
    uint8_t *expected = malloc(stride * 304);
    assert_int_equal(width, SCALE * FTH_LETTER_WIDTH + 2 * MARGIN);
    assert_non_null(expected);
    memset(expected, 255, stride * 304);
    for (int row = 0; row < 3; row++)
        fth_lettering_draw(names[row], SCALE, expected, stride, MARGIN,
                           4 + 100 * row + (96 - SCALE * FTH_LETTER_HEIGHT) / 2);
    for (int y = 0; y < 304; y++)
        assert_memory_equal(sheet->pixels + (size_t)y * sheet->stride, expected + (size_t)y * stride, stride);
    free(expected);
}

static void inspects(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_inspection found;
    char path[600];
    write_set("set/", true);
    encoded grey = encode_jpeg(100, 7, (jpeg_kind){JCS_GRAYSCALE, 90, false, false}, smooth);
    encoded png = encode_wild_png(300, 3);
    write_picture("set/train/a/grey.jpg", grey);
    write_picture("set/train/a/wide.png", png);
    write_picture("set/val/b/bad.png", (encoded){png.bytes, 60});
    assert_int_equal(open_at("set", &plain, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_inspect(dataset, 3, &found), FTH_OK);
    assert_int_equal(found.count, 24);
    assert_int_equal(found.readable, 23);
    assert_int_equal(found.by_format[1], 1);
    assert_int_equal(found.grey, 1);
    assert_string_equal(found.grey_names[0], "train/a/grey.jpg");
    assert_int_equal(found.bad_count, 1);
    assert_string_equal(found.bad[0].name, "val/b/bad.png");
    assert_int_equal(found.bad[0].split, FTH_VALIDATION);
    assert_int_equal(found.width[0], 32);
    assert_int_equal(found.width[2], 300);
    assert_int_equal(found.height[0], 3);
    assert_int_equal(found.class_counts[FTH_TRAIN][1], 7); /* a */
    assert_int_equal(found.class_counts[FTH_VALIDATION][2], 3);
    for (int c = 0; c < 3; c++)
        assert_true(found.mean[c] > 0.3 && found.mean[c] < 0.7 && found.deviation[c] > 0.05);
    fth_inspection_release(&found);
    snprintf(path, sizeof path, "%s/sheet.png", test_folder);
    assert_int_equal(fth_dataset_draw_sheet(dataset, path, 4, 10), FTH_OK);
    fth_dataset_free(dataset);

    char *bytes = NULL;
    size_t size_bytes;
    fth_decoder *decoder;
    fth_image_header header;
    fth_picture sheet;
    assert_int_equal(fth_file_read_all(path, 1 << 24, &bytes, &size_bytes), FTH_OK);
    assert_int_equal(fth_decoder_create(&decoder), FTH_OK);
    assert_int_equal(decode_all(decoder, (encoded){(uint8_t *)bytes, size_bytes}, &header, &sheet), FTH_OK);
    assert_int_equal(header.height, 3 * 100 + 4);
    assert_labels(&sheet, header.width - (4 * 100 + 4), (const char *const[]){"C", "a", "b"});
    fth_decoder_free(decoder);
    free(bytes);
    free(grey.bytes);
    free(png.bytes);
}

/* ---- memory ---- */

static void an_index_is_small(void **state)
{
    (void)state;
    enum { COUNT = 200000, CLASSES = 1000 };
    fth_image_index index = {0};
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (int i = 0; i < COUNT; i++) {
        char folder[64], name[64];
        uint32_t number;
        snprintf(folder, sizeof folder, "train/n%08d", i % CLASSES);
        snprintf(name, sizeof name, "n%08d_%d.JPEG", i % CLASSES, i);
        assert_int_equal(fth_image_index_add_folder(&index, folder, strlen(folder), &number), FTH_OK);
        assert_int_equal(fth_image_index_add(&index, number, name, (uint64_t)i * 512, 100), FTH_OK);
    }
    assert_int_equal(fth_image_index_finish(&index, "test"), FTH_OK);
    size_t used = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    if (used > 0) /* a sanitizer's allocator does not say */
        assert_true(used / COUNT < 100);
    assert_int_equal(index.count, COUNT);
    assert_int_equal(index.classes, CLASSES);
    for (size_t i = 1; i < COUNT; i++)
        assert_true(index.entries[i - 1].folder <= index.entries[i].folder);
    fth_image_index_free(&index);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_cached_folder, test_remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(opens_every_layout),
        TEST(says_what_is_wrong),
        TEST(small_sets_keep_their_size),
        TEST(batches_do_not_depend_on_threads),
        TEST(a_decoded_cache_changes_nothing_it_should_not),
        TEST(reduced_decoding_looks_the_same),
        TEST(unreadable_images_are_replaced_and_named),
        TEST(archives_equal_the_folder),
        TEST(damaged_archives_are_refused),
        TEST(a_stop_ends_the_opening),
        TEST(packs_and_splits),
        TEST(inspects),
        TEST(an_index_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
