/* Opening data sets: every format and compression, and every kind of bad file, each with an error
 * that says what. */
#include "test_data_files.h"

#include <archive.h>
#include <archive_entry.h>
#include <libdeflate.h>
#include <math.h>
#include <sys/stat.h>

#include "data/archive/disk_cache.h"

enum { CIFAR_RECORD = 3073 };

static void write_gzip(const char *name, const void *bytes, size_t size_bytes, size_t cut, int members)
{
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(6);
    size_t bound = libdeflate_gzip_compress_bound(compressor, size_bytes), total = 0;
    uint8_t *packed = malloc(bound * (size_t)members);
    size_t done = 0;
    for (int i = 0; i < members; i++) {
        size_t share = i + 1 < members ? size_bytes / (size_t)members : size_bytes - done;
        total += libdeflate_gzip_compress(compressor, (const uint8_t *)bytes + done, share, packed + total, bound);
        done += share;
    }
    test_write(name, packed, total - cut);
    free(packed);
    libdeflate_free_compressor(compressor);
}

static void write_xz(const char *name, const void *bytes, size_t size_bytes, size_t cut)
{
    size_t capacity = size_bytes + 65536, used = 0;
    uint8_t *packed = malloc(capacity);
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    archive_write_add_filter_xz(archive);
    archive_write_set_format_raw(archive);
    archive_write_set_bytes_per_block(archive, 0);
    assert_int_equal(archive_write_open_memory(archive, packed, capacity, &used), ARCHIVE_OK);
    archive_entry_set_filetype(entry, AE_IFREG);
    assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(archive, bytes, size_bytes), size_bytes);
    archive_entry_free(entry);
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
    test_write(name, packed, used - cut);
    free(packed);
}

static uint8_t *make_cifar(int count, int first)
{
    uint8_t *bytes = malloc((size_t)count * CIFAR_RECORD);
    for (int i = 0; i < count; i++) {
        bytes[i * CIFAR_RECORD] = (uint8_t)((first + i) % 10);
        for (int j = 1; j < CIFAR_RECORD; j++)
            bytes[i * CIFAR_RECORD + j] = (uint8_t)((first + i) * 7 + j);
    }
    return bytes;
}

/* Five training files of 4, 5, 6, 7 and 8 records, numbered through, and a test file of 3 from 100
 * on. */
static void write_cifar(const char *suffix)
{
    int first = 0;
    for (int i = 1; i <= 6; i++) {
        char name[64];
        snprintf(name, sizeof name, i < 6 ? "data_batch_%d.bin%s" : "test_batch.bin%.0d%s", i < 6 ? i : 0, suffix);
        int count = i < 6 ? 3 + i : 3;
        uint8_t *bytes = make_cifar(count, i < 6 ? first : 100);
        size_t size_bytes = (size_t)count * CIFAR_RECORD;
        first += count;
        if (strcmp(suffix, ".gz") == 0)
            write_gzip(name, bytes, size_bytes, 0, 1);
        else if (strcmp(suffix, ".xz") == 0)
            write_xz(name, bytes, size_bytes, 0);
        else
            test_write(name, bytes, size_bytes);
        free(bytes);
    }
}

static void check_numbered(const fth_dataset *dataset, fth_split split)
{
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    uint8_t pixels[28 * 28];
    for (int64_t i = 0; i < info->count[split]; i++) {
        int32_t label = -1;
        assert_int_equal(fth_dataset_read(dataset, split, i, pixels, &label), FTH_OK);
        assert_int_equal(pixels[0] + 256 * pixels[1], i);
        assert_int_equal(label, i % 10);
    }
}

static void opens_plain_idx_files(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    write_idx_pair("train", 700, 5);
    write_idx_pair("t10k", 300, 5);
    assert_int_equal(open_set(test_folder, &dataset), FTH_OK);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_int_equal(info->count[FTH_TRAIN], 700);
    assert_int_equal(info->count[FTH_VALIDATION], 300);
    assert_int_equal(info->channels, 1);
    assert_int_equal(info->height, 5);
    assert_int_equal(info->width, 5);
    assert_int_equal(info->classes, 10);
    assert_string_equal(info->class_names[7], "7");
    check_numbered(dataset, FTH_TRAIN);
    check_numbered(dataset, FTH_VALIDATION);

    uint8_t pixels[25];
    int32_t label;
    assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, 700, pixels, &label), FTH_INVALID);
    assert_message_has("no sample 700");
    assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, -1, pixels, &label), FTH_INVALID);
    fth_dataset_free(dataset);
}

static void opens_compressed_idx_files_with_dots(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    size_t size_bytes;
    uint8_t *bytes = make_idx_images(500, 28, &size_bytes);
    write_gzip("train-images.idx3-ubyte.gz", bytes, size_bytes, 0, 1);
    write_gzip("t10k-images.idx3-ubyte.gz", bytes, size_bytes, 0, 3); /* pigz and cat make several members */
    free(bytes);
    bytes = make_idx_labels(500, &size_bytes);
    write_xz("train-labels.idx1-ubyte.xz", bytes, size_bytes, 0);
    write_gzip("t10k-labels.idx1-ubyte", bytes, size_bytes, 0, 1); /* told by its bytes, not its name */
    free(bytes);
    assert_int_equal(open_set(test_folder, &dataset), FTH_OK);
    check_numbered(dataset, FTH_TRAIN);
    check_numbered(dataset, FTH_VALIDATION);
    fth_dataset_free(dataset);
}

static void a_stop_ends_the_opening(void **state)
{
    (void)state;
    static const char *const suffixes[] = {".gz", ".xz"};
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_dataset_options options = {.validation_fraction = 0.2, .threads = 2, .stop = &stop};
    fth_dataset *dataset = NULL;
    fth_stop_ask(&stop, FTH_STOP_REQUEST, INFINITY, "test", "enough");
    for (size_t i = 0; i < FTH_COUNT_OF(suffixes); i++) {
        write_cifar(suffixes[i]);
        assert_int_equal(fth_dataset_open(test_folder, &options, &dataset), FTH_INTERRUPTED);
        assert_null(dataset);
    }
}

static void opens_cifar_files_of_each_compression(void **state)
{
    (void)state;
    static const char *const suffixes[] = {"", ".gz", ".xz"};
    uint8_t pixels[3072];
    for (size_t i = 0; i < FTH_COUNT_OF(suffixes); i++) {
        fth_dataset *dataset = NULL;
        if (i > 0)
            test_make_folder(NULL);
        write_cifar(suffixes[i]);
        assert_int_equal(open_set(test_folder, &dataset), FTH_OK);
        const fth_dataset_info *info = fth_dataset_get_info(dataset);
        assert_int_equal(info->count[FTH_TRAIN], 30);
        assert_int_equal(info->count[FTH_VALIDATION], 3);
        assert_int_equal(info->channels, 3);
        assert_string_equal(info->class_names[2], "bird");
        for (int split = 0; split < 2; split++)
            for (int j = 0; j < info->count[split]; j++) {
                int32_t label = -1;
                int number = split == FTH_TRAIN ? j : 100 + j;
                assert_int_equal(fth_dataset_read(dataset, (fth_split)split, j, pixels, &label), FTH_OK);
                assert_int_equal(label, number % 10);
                assert_int_equal(pixels[0], (uint8_t)(number * 7 + 1));
                assert_int_equal(pixels[3071], (uint8_t)(number * 7 + 3072));
            }
        fth_dataset_free(dataset);
        if (i + 1 < FTH_COUNT_OF(suffixes))
            test_remove_folder(NULL);
    }
}

/* ---- unpacked files ---- */

static int32_t first_label(void)
{
    fth_dataset *dataset = NULL;
    uint8_t pixels[3072];
    int32_t label = -1;
    assert_int_equal(open_set(test_folder, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, 0, pixels, &label), FTH_OK);
    fth_dataset_free(dataset);
    return label;
}

static fth_disk_cache *open_unpacked(void)
{
    char path[TEST_MAX_PATH];
    fth_disk_cache *unpacked = NULL;
    assert_int_equal(fth_disk_cache_open(test_path(path, "cache/unpacked"), 1 << 30, &unpacked), FTH_OK);
    return unpacked;
}

/* By what the first training file is kept. */
static void name_first_file(char what[80])
{
    char path[TEST_MAX_PATH], sum[65], *packed = NULL;
    size_t size_bytes = 0;
    assert_int_equal(fth_file_read_all(test_path(path, "data_batch_1.bin.xz"), 1 << 20, &packed, &size_bytes), FTH_OK);
    fth_hex_sha256(packed, size_bytes, sum);
    snprintf(what, 80, "unpacked %s", sum);
    free(packed);
}

static void xz_files_are_unpacked_once(void **state)
{
    (void)state;
    char what[80];
    size_t size_bytes = 0;
    fth_pixel_buffer kept = {0};
    write_cifar(".xz");
    assert_int_equal(first_label(), 0);
    fth_disk_cache *unpacked = open_unpacked();
    name_first_file(what);
    assert_true(fth_disk_cache_find(unpacked, what, &kept, &size_bytes));
    assert_int_equal(size_bytes, 4 * CIFAR_RECORD);
    kept.bytes[0] = 9; /* shows from where the next opening has it */
    fth_disk_cache_keep(unpacked, what, kept.bytes, size_bytes);
    assert_int_equal(first_label(), 9);

    uint8_t *other = make_cifar(4, 5); /* another file by the same name */
    write_xz("data_batch_1.bin.xz", other, 4 * CIFAR_RECORD, 0);
    assert_int_equal(first_label(), 5);
    free(other);
    free(kept.bytes);
    fth_disk_cache_free(unpacked);
}

static void damaged_unpacked_files_are_unpacked_again(void **state)
{
    (void)state;
    static const char *const ways[] = {"truncate -s -1000 $f", "truncate -s 0 $f",
                                       "printf x | dd of=$f bs=1 seek=500 conv=notrunc 2>/dev/null"};
    char command[TEST_MAX_PATH + 200];
    write_cifar(".xz");
    assert_int_equal(first_label(), 0);
    for (size_t i = 0; i < FTH_COUNT_OF(ways); i++) {
        snprintf(command, sizeof command, "for f in %s/cache/unpacked/*/*; do %s || exit 1; done", test_folder,
                 ways[i]);
        assert_int_equal(system(command), 0);
        assert_int_equal(first_label(), 0);
        assert_int_equal(first_label(), 0);
    }
}

static void a_cache_folder_that_cannot_be_written_is_no_obstacle(void **state)
{
    (void)state;
    write_cifar(".xz");
    setenv("FARTHING_CACHE", "/dev/null/cache", 1);
    assert_int_equal(first_label(), 0);
}

static void plain_and_gzip_files_leave_nothing_in_the_cache_folder(void **state)
{
    (void)state;
    write_cifar(".gz");
    assert_int_equal(first_label(), 0);
    assert_false(test_exists("cache"));
}

static void finds_cifar_in_its_own_folder_and_reads_its_names(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    size_t length = strlen(test_folder);
    strcat(test_folder, "/cifar-10-batches-bin");
    assert_int_equal(mkdir(test_folder, 0755), 0);
    write_cifar("");
    static const char names[] = "a\nb\r\nc\nd\ne\nf\ng\nh\ni\nlast one\n\n";
    test_write("batches.meta.txt", names, sizeof names - 1);
    test_folder[length] = 0;
    assert_int_equal(open_set(test_folder, &dataset), FTH_OK);
    assert_string_equal(fth_dataset_get_info(dataset)->class_names[1], "b");
    assert_string_equal(fth_dataset_get_info(dataset)->class_names[9], "last one");
    fth_dataset_free(dataset);
}

/* Of 1000, 100, 41, 9, 2 and 1 samples. */
static void holds_out_the_same_share_of_every_class(void **state)
{
    enum { CLASSES = 6, TOTAL = 1153 };
    static const int counts[CLASSES] = {1000, 100, 41, 9, 2, 1}, expected[CLASSES] = {100, 10, 4, 1, 0, 0};
    static int32_t labels[TOTAL];
    static uint8_t pixels[TOTAL * 2];
    fth_image_arrays arrays = {.name = "mine",
                               .channels = 1,
                               .height = 1,
                               .width = 2,
                               .classes = CLASSES,
                               .parts = {{pixels, labels, TOTAL}}};
    fth_dataset_options options = {.seed = 3, .validation_fraction = 0.1};
    int next = 0;
    (void)state;
    for (int label = 0; label < CLASSES; label++)
        for (int i = 0; i < counts[label]; i++, next++) {
            labels[next] = label;
            pixels[2 * next] = (uint8_t)next;
            pixels[2 * next + 1] = (uint8_t)(next >> 8);
        }
    for (int random = 0; random < 2; random++) {
        int held[CLASSES] = {0};
        bool seen[TOTAL] = {false};
        fth_dataset *dataset = NULL;
        options.random_split = random;
        assert_int_equal(fth_dataset_create(&arrays, &options, &dataset), FTH_OK);
        const fth_dataset_info *info = fth_dataset_get_info(dataset);
        assert_int_equal(info->count[FTH_VALIDATION], 115);
        assert_int_equal(info->held_out.by_class, !random);
        for (int split = 0; split < 2; split++)
            for (int64_t i = 0; i < info->count[split]; i++) {
                uint8_t pair[2];
                int32_t label;
                assert_int_equal(fth_dataset_read(dataset, (fth_split)split, i, pair, &label), FTH_OK);
                const int number = pair[0] + 256 * pair[1];
                assert_false(seen[number]);
                seen[number] = true;
                assert_int_equal(label, labels[number]);
                held[label] += split == FTH_VALIDATION;
            }
        if (random)
            assert_memory_not_equal(held, expected, sizeof held);
        else
            assert_memory_equal(held, expected, sizeof held);
        fth_dataset_free(dataset);
    }
}

static void holds_out_validation_images(void **state)
{
    (void)state;
    uint8_t pixels[4];
    int32_t label;
    int64_t orders[3][10];
    write_idx_pair("train", 1000, 2);
    for (int run = 0; run < 3; run++) {
        bool seen[1000] = {false};
        fth_dataset *dataset = NULL;
        fth_dataset_options options = {.seed = run == 2 ? 8 : 7, .validation_fraction = 0.15, .threads = 1};
        assert_int_equal(fth_dataset_open(test_folder, &options, &dataset), FTH_OK);
        const fth_dataset_info *info = fth_dataset_get_info(dataset);
        assert_int_equal(info->count[FTH_VALIDATION], 150);
        assert_int_equal(info->count[FTH_TRAIN], 850);
        for (int split = 0; split < 2; split++)
            for (int64_t i = 0; i < info->count[split]; i++) {
                assert_int_equal(fth_dataset_read(dataset, (fth_split)split, i, pixels, &label), FTH_OK);
                int number = pixels[0] + 256 * pixels[1];
                assert_false(seen[number]);
                seen[number] = true;
                assert_int_equal(label, number % 10);
                if (split == FTH_VALIDATION && i < 10)
                    orders[run][i] = number;
            }
        fth_dataset_free(dataset);
    }
    assert_memory_equal(orders[0], orders[1], sizeof orders[0]);
    assert_memory_not_equal(orders[0], orders[2], sizeof orders[0]);

    fth_dataset *dataset = NULL;
    fth_dataset_options options = {.validation_fraction = 1.5, .threads = 1};
    assert_int_equal(fth_dataset_open(test_folder, &options, &dataset), FTH_INVALID);
    assert_message_has("between 0 and 1");
    write_idx_pair("train", 1, 2);
    assert_int_equal(open_set(test_folder, &dataset), FTH_INVALID);
    assert_message_has("too few");
}

static void expect_failure(fth_status expected, const char *part, const char *other_part)
{
    fth_dataset *dataset = NULL;
    assert_int_equal(open_set(test_folder, &dataset), expected);
    assert_null(dataset);
    assert_message_has(part);
    assert_message_has(other_part);
}

static void says_what_it_looked_for(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    expect_failure(FTH_INVALID, "train-images-idx3-ubyte", "data_batch_1.bin");
    assert_message_has(test_folder);

    assert_int_equal(open_set("digts", &dataset), FTH_INVALID);
    assert_message_has("did you mean 'digits'");
    assert_message_has("shapes");
    assert_int_equal(open_set("no/such/folder", &dataset), FTH_INVALID);
    assert_message_has("there is no file or folder no/such/folder");
    test_write("file", "x", 1);
    char path[600];
    snprintf(path, sizeof path, "%s/file", test_folder);
    assert_int_equal(open_set(path, &dataset), FTH_INVALID);
    assert_message_has("neither a folder nor an archive");

    write_idx_pair("t10k", 10, 3);
    expect_failure(FTH_INVALID, "train-images-idx3-ubyte is missing", test_folder);
    write_idx_pair("train", 10, 3);
    char labels[600];
    snprintf(labels, sizeof labels, "%s/t10k-labels-idx1-ubyte", test_folder);
    unlink(labels);
    expect_failure(FTH_INVALID, "t10k-labels-idx1-ubyte is missing", ".gz");
}

static void refuses_bad_idx_headers(void **state)
{
    (void)state;
    static const struct {
        uint32_t magic, count, height, width;
        fth_status status;
        const char *message;
    } cases[] = {
        {0x803, 10, 3, 4, FTH_CORRUPT, "truncated"},
        {0x803, 10, 2, 3, FTH_CORRUPT, "goes on"},
        {0x801, 10, 3, 3, FTH_CORRUPT, "it is a file of labels"},
        {0xdeadbeef, 10, 3, 3, FTH_CORRUPT, "wrong magic number 0xdeadbeef"},
        {0x803, 0, 3, 3, FTH_INVALID, "zero images"},
        {0x803, 0xffffffff, 1024, 1024, FTH_CORRUPT, "promises 4294967295 images"},
        {0x803, 0x40000000, 2, 2, FTH_CORRUPT, "truncated"}, /* 2^32 pixels: 0 in 32 bits */
        {0x803, 1, 0xffffffff, 0xffffffff, FTH_CORRUPT, "4294967295 × 4294967295"},
        {0x803, 90, 0, 1, FTH_CORRUPT, "0 × 1"},
        {0x803, 90, 1, 1025, FTH_CORRUPT, "1 × 1025"},
    };
    write_idx_pair("train", 10, 3);
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        size_t size_bytes;
        uint8_t *bytes = make_idx_images(10, 3, &size_bytes);
        put_big_endian(bytes, cases[i].magic);
        put_big_endian(bytes + 4, cases[i].count);
        put_big_endian(bytes + 8, cases[i].height);
        put_big_endian(bytes + 12, cases[i].width);
        test_write("train-images-idx3-ubyte", bytes, size_bytes);
        expect_failure(cases[i].status, cases[i].message, "train-images-idx3-ubyte");
        free(bytes);
    }
    test_write("train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0", 7);
    expect_failure(FTH_CORRUPT, "truncated: 7 bytes", "16");
    test_write("train-images-idx3-ubyte", "", 0);
    expect_failure(FTH_CORRUPT, "truncated: 0 bytes", "train-images-idx3-ubyte");
}

static void refuses_bad_labels_and_pairs(void **state)
{
    (void)state;
    size_t size_bytes;
    uint8_t *bytes = make_idx_labels(10, &size_bytes);
    write_idx_pair("train", 10, 3);
    bytes[8 + 6] = 10;
    test_write("train-labels-idx1-ubyte", bytes, size_bytes);
    expect_failure(FTH_CORRUPT, "record 6 has the label 10", "train-labels-idx1-ubyte");
    bytes[8 + 6] = 6;
    test_write("train-labels-idx1-ubyte", bytes, size_bytes - 1);
    expect_failure(FTH_CORRUPT, "truncated", "10 labels");
    put_big_endian(bytes + 4, 9);
    test_write("train-labels-idx1-ubyte", bytes, size_bytes - 1);
    expect_failure(FTH_CORRUPT, "has 10 images", "has 9 labels");
    free(bytes);

    write_idx_pair("train", 10, 3);
    write_idx_pair("t10k", 10, 4);
    expect_failure(FTH_CORRUPT, "images of 4 × 4 pixels", "3 × 3");
}

static void refuses_damaged_compression(void **state)
{
    (void)state;
    size_t size_bytes;
    uint8_t *bytes = make_idx_images(200, 28, &size_bytes);
    write_idx_pair("train", 200, 28);
    char plain[600];
    snprintf(plain, sizeof plain, "%s/train-images-idx3-ubyte", test_folder);
    unlink(plain);
    for (size_t i = 0; i < size_bytes / 4; i++) /* incompressible enough to be cut anywhere */
        bytes[16 + i * 3] = (uint8_t)fth_random_bits((fth_random_key){1}, i);
    for (size_t cut = 1; cut < 600; cut += 53) {
        write_gzip("train-images-idx3-ubyte.gz", bytes, size_bytes, cut, 1);
        expect_failure(FTH_CORRUPT, "train-images-idx3-ubyte.gz", "truncated");
    }
    test_write("train-images-idx3-ubyte.gz", "\x1f\x8b\x08", 3);
    expect_failure(FTH_CORRUPT, "too short for a gzip file", "truncated");
    write_gzip("train-images-idx3-ubyte.gz", "", 0, 0, 1);
    expect_failure(FTH_CORRUPT, "train-images-idx3-ubyte.gz", "");

    snprintf(plain, sizeof plain, "%s/train-images-idx3-ubyte.gz", test_folder);
    unlink(plain);
    for (size_t cut = 1; cut < 600; cut += 53) {
        write_xz("train-images-idx3-ubyte.xz", bytes, size_bytes, cut);
        expect_failure(FTH_CORRUPT, "train-images-idx3-ubyte.xz", "");
    }
    free(bytes);
}

static void refuses_bad_cifar_files(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    uint8_t *bytes = make_cifar(4, 0);
    write_cifar("");
    bytes[2 * CIFAR_RECORD] = 10;
    test_write("data_batch_3.bin", bytes, 4 * CIFAR_RECORD);
    expect_failure(FTH_CORRUPT, "record 2 has the label 10", "data_batch_3.bin");
    test_write("data_batch_3.bin", bytes, CIFAR_RECORD + 5);
    expect_failure(FTH_CORRUPT, "truncated", "data_batch_3.bin");
    test_write("data_batch_3.bin", bytes, 0);
    expect_failure(FTH_INVALID, "zero images", "data_batch_3.bin");
    free(bytes);

    char path[600];
    snprintf(path, sizeof path, "%s/data_batch_3.bin", test_folder);
    unlink(path);
    expect_failure(FTH_INVALID, "data_batch_3.bin", "is missing");
    for (int i = 1; i <= 5; i++) {
        snprintf(path, sizeof path, "%s/data_batch_%d.bin", test_folder, i);
        unlink(path);
    }
    expect_failure(FTH_INVALID, "data_batch_1.bin to data_batch_5.bin", "missing");

    fth_log_set_level(FTH_LOG_ERROR); /* a warning that files are missing is expected here */
    bytes = make_cifar(4, 0);
    test_write("data_batch_1.bin", bytes, 4 * CIFAR_RECORD);
    test_write("batches.meta.txt", "one name\n", 9);
    free(bytes);
    assert_int_equal(open_set(test_folder, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_get_info(dataset)->count[FTH_TRAIN], 4);
    assert_string_equal(fth_dataset_get_info(dataset)->class_names[0], "airplane");
    fth_dataset_free(dataset);
}

/* A gzip file that expands beyond what a file of labels may hold is refused without that much
 * memory. */
static void refuses_a_bomb(void **state)
{
    (void)state;
    size_t size_bytes = (size_t)80 << 20;
    uint8_t *bytes = calloc(1, size_bytes);
    assert_non_null(bytes);
    write_idx_pair("train", 10, 3);
    char plain[600];
    snprintf(plain, sizeof plain, "%s/train-labels-idx1-ubyte", test_folder);
    unlink(plain);
    write_gzip("train-labels-idx1-ubyte.gz", bytes, size_bytes, 0, 1);
    free(bytes);
    expect_failure(FTH_CORRUPT, "decompresses to more than", "train-labels-idx1-ubyte.gz");
}

static int make_folder(void **state)
{
    char path[TEST_MAX_PATH];
    int failure = test_make_folder(state);
    setenv("FARTHING_CACHE", test_path(path, "cache"), 1);
    return failure;
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, test_remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(opens_plain_idx_files),
        IN_FOLDER(opens_compressed_idx_files_with_dots),
        IN_FOLDER(opens_cifar_files_of_each_compression),
        IN_FOLDER(a_stop_ends_the_opening),
        IN_FOLDER(xz_files_are_unpacked_once),
        IN_FOLDER(damaged_unpacked_files_are_unpacked_again),
        IN_FOLDER(a_cache_folder_that_cannot_be_written_is_no_obstacle),
        IN_FOLDER(plain_and_gzip_files_leave_nothing_in_the_cache_folder),
        IN_FOLDER(finds_cifar_in_its_own_folder_and_reads_its_names),
        IN_FOLDER(holds_out_validation_images),
        cmocka_unit_test(holds_out_the_same_share_of_every_class),
        IN_FOLDER(says_what_it_looked_for),
        IN_FOLDER(refuses_bad_idx_headers),
        IN_FOLDER(refuses_bad_labels_and_pairs),
        IN_FOLDER(refuses_damaged_compression),
        IN_FOLDER(refuses_bad_cifar_files),
        IN_FOLDER(refuses_a_bomb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
