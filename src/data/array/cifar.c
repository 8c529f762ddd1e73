/* CIFAR-10's binary files: records of one label byte and 3 × 32 × 32 pixels, plane by plane. Only
 * the file's size and the labels can be checked. */
#include <stdlib.h>
#include <string.h>

#include "data/array/formats.h"

enum {
    CHANNELS = 3,
    RECORD_BYTES = FTH_CIFAR_RECORD,
    CLASSES = 10,
    MAX_RECORDS = 100000, /* ten times as many as the real files have */
    TRAIN_FILES = 5,
    TEST_FILE = TRAIN_FILES,
    FILE_COUNT
};

fth_status fth_cifar_check_labels(const uint8_t *records, int64_t first, int64_t count, int classes, const char *name)
{
    for (int64_t i = 0; i < count; i++)
        if (records[i * RECORD_BYTES] >= classes)
            return fth_fail(FTH_CORRUPT, "%s: record %lld has the label %u, out of the range 0 to %d", name,
                            (long long)(first + i), records[i * RECORD_BYTES], classes - 1);
    return FTH_OK;
}

fth_status fth_cifar_parse(const uint8_t *bytes, size_t size_bytes, const char *name, fth_segment *segment)
{
    if (size_bytes == 0)
        return fth_fail(FTH_INVALID, "%s: has zero images", name);
    if (size_bytes % RECORD_BYTES != 0)
        return fth_fail(FTH_CORRUPT, "%s: truncated or no CIFAR-10 file: %s, not a whole number of %d-byte records",
                        name, FTH_COUNTED(size_bytes, "byte"), RECORD_BYTES);
    size_t count = size_bytes / RECORD_BYTES;
    *segment = (fth_segment){bytes + 1, bytes, RECORD_BYTES, RECORD_BYTES, (int64_t)count, NULL};
    return fth_cifar_check_labels(bytes, 0, (int64_t)count, CLASSES, name);
}

static const char *const batch_stems[FILE_COUNT][2] = {{"data_batch_1.bin"}, {"data_batch_2.bin"}, {"data_batch_3.bin"},
                                                       {"data_batch_4.bin"}, {"data_batch_5.bin"}, {"test_batch.bin"}};

static const char *const usual_names[CLASSES] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                 "dog",      "frog",       "horse", "ship", "truck"};
const fth_dataset_info fth_cifar_info = {
    .name = "cifar10",
    .classes = CLASSES,
    .class_names = usual_names,
    .channels = CHANNELS,
    .height = FTH_CIFAR_SIDE,
    .width = FTH_CIFAR_SIDE,
    .normalization = {3, {0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}}};

bool fth_cifar_is_training_batch(const char *name)
{
    for (int i = 0; i < TRAIN_FILES; i++)
        if (fth_name_fits(name, batch_stems[i]))
            return true;
    return false;
}

static bool probe(const char *folder)
{
    bool found = false;
    for (int i = 0; i < FILE_COUNT; i++)
        found = found || fth_has_file(folder, batch_stems[i]);
    return found;
}

/* Names are optional: a file that cannot be used is a warning, not a failure. */
static void read_names(const char *folder, fth_array_set *set, fth_dataset_info *info)
{
    char *path = fth_path_join(folder, FTH_CIFAR_NAMES), *text = NULL;
    size_t size_bytes;
    int count = 0;
    if (fth_file_exists(path)) {
        if (fth_file_read_all(path, 4096, &text, &size_bytes) == FTH_OK &&
            fth_array_set_name_classes(set, text, CLASSES, &count) == FTH_OK && count == CLASSES)
            info->class_names = set->class_names;
        else
            fth_log_warning("%s does not name %d classes, one a line; using CIFAR-10's names", path, CLASSES);
    }
    free(path);
}

static fth_status open_folder(const char *folder, const fth_dataset_options *options, fth_dataset *dataset)
{
    fth_status status = FTH_OK;
    fth_load loads[FILE_COUNT] = {0};
    fth_array_set *set = NULL;
    int train_files = 0;

    FTH_TRY(fth_array_set_create(dataset, &set));
    for (int i = 0; i < FILE_COUNT; i++) {
        loads[i].path = fth_find_file(folder, batch_stems[i]);
        loads[i].max_bytes = (size_t)MAX_RECORDS * RECORD_BYTES;
        if (i < TRAIN_FILES && loads[i].path)
            train_files = i + 1;
    }
    FTH_REQUIRE(train_files > 0, FTH_INVALID,
                "%s: data_batch_1.bin to data_batch_5.bin (plain, .gz or .xz) are missing", folder);
    for (int i = 0; i < train_files; i++)
        FTH_REQUIRE(loads[i].path, FTH_INVALID,
                    "%s: %s (plain, .gz or .xz) is missing, though data_batch_%d.bin is there", folder,
                    batch_stems[i][0], train_files);
    if (train_files < TRAIN_FILES)
        fth_log_warning("%s: data_batch_%d.bin to data_batch_%d.bin are missing; only the files before them are used",
                        folder, train_files + 1, TRAIN_FILES);

    dataset->info = fth_cifar_info;
    read_names(folder, set, &dataset->info);
    FTH_TRY(fth_loads_run(loads, FILE_COUNT, options));
    for (int i = 0; i < FILE_COUNT; i++) {
        if (!loads[i].path)
            continue;
        const fth_split split = i == TEST_FILE ? FTH_VALIDATION : FTH_TRAIN;
        fth_part *part = &set->parts[split];
        fth_segment *segment = &part->segments[part->segment_count++];
        FTH_TRY(fth_cifar_parse(loads[i].blob.bytes, loads[i].blob.size_bytes, loads[i].path, segment));
        dataset->info.count[split] += segment->count;
        fth_array_set_keep(set, &loads[i].blob);
    }
    if (dataset->info.count[FTH_VALIDATION] == 0 && !options->whole)
        FTH_TRY(fth_dataset_hold_out(options, folder, dataset));
    FTH_TRY(fth_array_set_prepare(options, dataset));

out:
    fth_loads_free(loads, FILE_COUNT);
    return status;
}

const fth_dataset_format fth_format_cifar = {
    .name = "CIFAR-10 binary",
    .subfolder = "cifar-10-batches-bin",
    .files = "data_batch_1.bin to data_batch_5.bin, test_batch.bin",
    .probe = probe,
    .open = open_folder,
};
