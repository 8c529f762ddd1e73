/* CIFAR-10's binary files: records of one label byte and 3 × 32 × 32 pixels, plane by plane, and
 * nothing else, so a file's size is all there is to check besides the labels. */
#include <stdlib.h>
#include <string.h>

#include "data/data_internal.h"

enum {
    SIDE = 32,
    CHANNELS = 3,
    RECORD_BYTES = FTH_CIFAR_RECORD,
    CLASSES = 10,
    MAX_RECORDS = 100000, /* ten times what the real files have */
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
    *segment = (fth_segment){bytes + 1, bytes, RECORD_BYTES, RECORD_BYTES, (int64_t)count};
    return fth_cifar_check_labels(bytes, 0, (int64_t)count, CLASSES, name);
}

int fth_cifar_parse_names(char *text, int most, const char **names)
{
    int found = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        if (found == most)
            return 0;
        names[found++] = line;
    }
    return found;
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
    .height = SIDE,
    .width = SIDE,
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
    for (int i = 0; i < FILE_COUNT; i++) {
        char *path = fth_find_file(folder, batch_stems[i]);
        free(path);
        if (path)
            return true;
    }
    return false;
}

/* Names are a nicety: a strange file of them is worth a warning, not a failure. */
static void read_names(const char *folder, fth_dataset *dataset)
{
    char *path = fth_path_join(folder, FTH_CIFAR_NAMES);
    size_t size_bytes;
    if (fth_file_exists(path)) {
        if (fth_file_read_all(path, 4096, &dataset->class_name_text, &size_bytes) == FTH_OK &&
            fth_cifar_parse_names(dataset->class_name_text, CLASSES, dataset->class_names) == CLASSES)
            dataset->info.class_names = dataset->class_names;
        else
            fth_log_warning("%s does not name %d classes, one a line; using CIFAR-10's names", path, CLASSES);
    }
    free(path);
}

static fth_status open_folder(const char *folder, const fth_dataset_options *options, fth_dataset *dataset)
{
    fth_status status = FTH_OK;
    fth_load loads[FILE_COUNT] = {0};
    int train_files = 0;

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
    read_names(folder, dataset);
    FTH_TRY(fth_loads_run(loads, FILE_COUNT, options));
    for (int i = 0; i < FILE_COUNT; i++) {
        if (!loads[i].path)
            continue;
        fth_part *part = &dataset->parts[i == TEST_FILE ? FTH_VALIDATION : FTH_TRAIN];
        FTH_TRY(fth_cifar_parse(loads[i].blob.bytes, loads[i].blob.size_bytes, loads[i].path,
                                &part->segments[part->segment_count]));
        part->segment_count++;
        fth_dataset_keep(dataset, &loads[i]);
    }

out:
    fth_loads_free(loads, FILE_COUNT);
    return status;
}

const fth_file_format fth_format_cifar = {
    .name = "CIFAR-10 binary",
    .subfolder = "cifar-10-batches-bin",
    .files = "data_batch_1.bin to data_batch_5.bin, test_batch.bin",
    .probe = probe,
    .open = open_folder,
};
