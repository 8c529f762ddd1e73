/* MNIST's idx files: a big-endian header (magic, dimensions), then bytes. A header is trusted only
 * once it agrees with the size of the file; it never decides how much memory is allocated. */
#include <stdlib.h>
#include <string.h>

#include "data/array/formats.h"

enum { MAX_SIDE = 1024 };
static const size_t max_images_bytes = (size_t)2 << 30, max_labels_bytes = (size_t)64 << 20;

static uint32_t read_big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static fth_status check_magic(const uint8_t *bytes, size_t size_bytes, const char *name, uint32_t magic,
                              size_t header_bytes, const char *what)
{
    if (size_bytes >= 4 && read_big_endian(bytes) != magic) {
        uint32_t found = read_big_endian(bytes);
        const char *hint = found == FTH_IDX_LABELS_MAGIC   ? "; it is a file of labels"
                           : found == FTH_IDX_IMAGES_MAGIC ? "; it is a file of images"
                                                           : "";
        return fth_fail(FTH_CORRUPT, "%s: wrong magic number 0x%08x, idx %s begin with 0x%08x%s", name, found, what,
                        magic, hint);
    }
    if (size_bytes < header_bytes)
        return fth_fail(FTH_CORRUPT, "%s: truncated: %s, the header of idx %s alone has %zu", name,
                        FTH_COUNTED(size_bytes, "byte"), what, header_bytes);
    return FTH_OK;
}

static fth_status check_size(size_t size_bytes, uint64_t needed, const char *name, uint32_t count, const char *what)
{
    if (size_bytes < needed)
        return fth_fail(FTH_CORRUPT, "%s: truncated: the header promises %u %s (%llu bytes), the file has %zu bytes",
                        name, count, what, (unsigned long long)needed, size_bytes);
    if (size_bytes > needed)
        return fth_fail(FTH_CORRUPT, "%s: the header promises %u %s (%llu bytes), the file goes on to %zu bytes", name,
                        count, what, (unsigned long long)needed, size_bytes);
    return FTH_OK;
}

fth_status fth_idx_parse_images_header(const uint8_t *bytes, size_t size_bytes, const char *name,
                                       fth_idx_images *images)
{
    fth_status status = check_magic(bytes, size_bytes, name, FTH_IDX_IMAGES_MAGIC, FTH_IDX_IMAGES_HEADER, "images");
    if (status != FTH_OK)
        return status;
    uint32_t count = read_big_endian(bytes + 4), height = read_big_endian(bytes + 8),
             width = read_big_endian(bytes + 12);
    if (count == 0)
        return fth_fail(FTH_INVALID, "%s: has zero images", name);
    if (height == 0 || width == 0 || height > MAX_SIDE || width > MAX_SIDE)
        return fth_fail(FTH_CORRUPT, "%s: images of %u × %u pixels; a side may be 1 to %d", name, height, width,
                        MAX_SIDE);
    *images = (fth_idx_images){count, (int)height, (int)width, NULL};
    return FTH_OK;
}

fth_status fth_idx_parse_images(const uint8_t *bytes, size_t size_bytes, const char *name, fth_idx_images *images)
{
    fth_status status = fth_idx_parse_images_header(bytes, size_bytes, name, images);
    if (status != FTH_OK)
        return status;
    uint64_t pixels = (uint64_t)images->count * (uint64_t)images->height * (uint64_t)images->width;
    status = check_size(size_bytes, FTH_IDX_IMAGES_HEADER + pixels, name, (uint32_t)images->count, "images");
    images->pixels = bytes + FTH_IDX_IMAGES_HEADER;
    return status;
}

fth_status fth_idx_parse_labels_header(const uint8_t *bytes, size_t size_bytes, const char *name, int64_t *count)
{
    fth_status status = check_magic(bytes, size_bytes, name, FTH_IDX_LABELS_MAGIC, FTH_IDX_LABELS_HEADER, "labels");
    if (status == FTH_OK)
        *count = read_big_endian(bytes + 4);
    return status;
}

fth_status fth_idx_check_labels(const uint8_t *labels, int64_t first, int64_t count, const char *name)
{
    for (int64_t i = 0; i < count; i++)
        if (labels[i] >= FTH_IDX_CLASSES)
            return fth_fail(FTH_CORRUPT, "%s: record %lld has the label %u, out of the range 0 to %d", name,
                            (long long)(first + i), labels[i], FTH_IDX_CLASSES - 1);
    return FTH_OK;
}

fth_status fth_idx_parse_labels(const uint8_t *bytes, size_t size_bytes, const char *name, fth_idx_labels *labels)
{
    fth_status status = FTH_OK;
    int64_t count = 0;
    FTH_TRY(fth_idx_parse_labels_header(bytes, size_bytes, name, &count));
    FTH_TRY(check_size(size_bytes, FTH_IDX_LABELS_HEADER + (uint64_t)count, name, (uint32_t)count, "labels"));
    FTH_TRY(fth_idx_check_labels(bytes + FTH_IDX_LABELS_HEADER, 0, count, name));
    *labels = (fth_idx_labels){count, bytes + FTH_IDX_LABELS_HEADER};

out:
    return status;
}

/* Both spellings are in use: the original has '-', some mirrors have '.'. */
static const char *const train_images[] = {"train-images-idx3-ubyte", "train-images.idx3-ubyte", NULL};
static const char *const train_labels[] = {"train-labels-idx1-ubyte", "train-labels.idx1-ubyte", NULL};
static const char *const test_images[] = {"t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte", NULL};
static const char *const test_labels[] = {"t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte", NULL};

enum { TRAIN_IMAGES, TEST_IMAGES, TRAIN_LABELS, TEST_LABELS, FILE_COUNT }; /* the largest are loaded first */
static const char *const *const stems[FILE_COUNT] = {train_images, test_images, train_labels, test_labels};

static const char *const class_names[FTH_IDX_CLASSES] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
const fth_dataset_info fth_idx_info = {.name = "mnist",
                                       .classes = FTH_IDX_CLASSES,
                                       .class_names = class_names,
                                       .channels = 1,
                                       .normalization = {1, {0.1307f}, {0.3081f}}};

bool fth_idx_is_training_images(const char *name)
{
    return fth_name_fits(name, train_images);
}

bool fth_idx_is_training_labels(const char *name)
{
    return fth_name_fits(name, train_labels);
}

static bool probe(const char *folder)
{
    bool found = false;
    for (int i = 0; i < FILE_COUNT; i++)
        found = found || fth_has_file(folder, stems[i]);
    return found;
}

static fth_status join_part(fth_dataset *dataset, fth_array_set *set, fth_split split, fth_load *images_load,
                            fth_load *labels_load)
{
    fth_status status = FTH_OK;
    fth_idx_images images = {0};
    fth_idx_labels labels = {0};
    FTH_TRY(fth_idx_parse_images(images_load->blob.bytes, images_load->blob.size_bytes, images_load->path, &images));
    FTH_TRY(fth_idx_parse_labels(labels_load->blob.bytes, labels_load->blob.size_bytes, labels_load->path, &labels));
    FTH_REQUIRE(images.count == labels.count, FTH_CORRUPT, "%s has %s but %s has %s", images_load->path,
                FTH_COUNTED(images.count, "image"), labels_load->path, FTH_COUNTED(labels.count, "label"));
    const fth_dataset_info *info = &dataset->info;
    FTH_REQUIRE(split == FTH_TRAIN || (images.height == info->height && images.width == info->width), FTH_CORRUPT,
                "%s: images of %d × %d pixels, the training images have %d × %d", images_load->path, images.height,
                images.width, info->height, info->width);
    dataset->info.height = images.height;
    dataset->info.width = images.width;
    dataset->info.count[split] = images.count;
    set->parts[split] = (fth_part){.segments = {{images.pixels, labels.labels,
                                                 (size_t)images.height * (size_t)images.width, 1, images.count, NULL}},
                                   .segment_count = 1};
    fth_array_set_keep(set, &images_load->blob);
    fth_array_set_keep(set, &labels_load->blob);

out:
    return status;
}

static fth_status open_folder(const char *folder, const fth_dataset_options *options, fth_dataset *dataset)
{
    fth_status status = FTH_OK;
    fth_load loads[FILE_COUNT] = {0};
    fth_array_set *set = NULL;

    FTH_TRY(fth_array_set_create(dataset, &set));
    for (int i = 0; i < FILE_COUNT; i++) {
        loads[i].path = fth_find_file(folder, stems[i]);
        loads[i].max_bytes = i == TRAIN_IMAGES || i == TEST_IMAGES ? max_images_bytes : max_labels_bytes;
    }
    for (int i = 0; i < FILE_COUNT; i++) {
        /* The two test files are optional, together. */
        bool needed = i == TRAIN_IMAGES || i == TRAIN_LABELS || loads[TEST_IMAGES].path || loads[TEST_LABELS].path;
        FTH_REQUIRE(loads[i].path || !needed, FTH_INVALID,
                    "%s: %s is missing (looked for %s and %s, plain, .gz or .xz)", folder, stems[i][0], stems[i][0],
                    stems[i][1]);
    }
    dataset->info = fth_idx_info;
    FTH_TRY(fth_loads_run(loads, FILE_COUNT, options));
    FTH_TRY(join_part(dataset, set, FTH_TRAIN, &loads[TRAIN_IMAGES], &loads[TRAIN_LABELS]));
    if (loads[TEST_IMAGES].path)
        FTH_TRY(join_part(dataset, set, FTH_VALIDATION, &loads[TEST_IMAGES], &loads[TEST_LABELS]));
    if (dataset->info.count[FTH_VALIDATION] == 0 && !options->whole)
        FTH_TRY(fth_dataset_hold_out(options, folder, dataset));
    FTH_TRY(fth_array_set_prepare(options, dataset));

out:
    fth_loads_free(loads, FILE_COUNT);
    return status;
}

const fth_dataset_format fth_format_idx = {
    .name = "MNIST idx",
    .subfolder = "MNIST/raw",
    .files = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte",
    .probe = probe,
    .open = open_folder,
};
