/* Runs a fuzz target without a fuzzer: on every file of a folder, as it is, cut short, and with
 * some bytes changed, the same ones each time. So `make test`, with any compiler, and `make asan`
 * go where the fuzzer begins.
 *
 *     fuzz_png FOLDER */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { CUTS = 40, CHANGES = 1000, MAX_CHANGED = 4, MAX_FILE = 1 << 20 };

/* Memory of exactly that size, so that a sanitizer sees the first byte read beyond it. */
static void run(const void *bytes, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        abort();
    memcpy(exact, bytes, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static void run_variants(char *bytes, size_t size, fth_random_key key)
{
    run(bytes, size);
    for (size_t i = 0; i < CUTS; i++)
        run(bytes, i < CUTS / 2 ? i * size / (CUTS / 2) : size - (size > CUTS - i ? CUTS - i : size));
    for (uint64_t i = 0; size > 0 && i < CHANGES; i++) {
        char kept[MAX_CHANGED];
        size_t places[MAX_CHANGED], count = 1 + i % MAX_CHANGED;
        for (size_t j = 0; j < count; j++) {
            uint64_t draw = 2 * (i * MAX_CHANGED + j);
            places[j] = fth_random_below(key, draw, size);
            kept[j] = bytes[places[j]];
            bytes[places[j]] = (char)fth_random_below(key, draw + 1, 256);
        }
        run(bytes, size);
        for (size_t j = count; j-- > 0;)
            bytes[places[j]] = kept[j];
    }
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    int files = 0;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER_OF_INPUTS\n", argv[0]);
        return 2;
    }
    fth_log_set_level(FTH_LOG_ERROR);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char *path = fth_path_join(argv[1], entry->d_name), *bytes = NULL;
        size_t size = 0;
        if (entry->d_name[0] != '.' && fth_file_read_all(path, MAX_FILE, &bytes, &size) == FTH_OK) {
            printf("%s\n", path); /* the last one named is the one that a crash is about */
            fflush(stdout);
            run_variants(bytes, size, fth_random_key_for(size, FTH_RANDOM_GENERATE));
            files++;
        }
        free(bytes);
        free(path);
    }
    closedir(folder);
    if (files == 0)
        fprintf(stderr, "%s has no inputs\n", argv[1]);
    return files == 0;
}
