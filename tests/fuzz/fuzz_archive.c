/* Feeds bytes to the index of a tar, as a mapped file, and to the conversion of compressed
 * archives. */
#include <stdlib.h>

#include "data/source/image_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static volatile uint8_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    fth_image_index index = {0};
    fth_log_set_level(FTH_LOG_ERROR);
    if (fth_image_archive_index(bytes, size_bytes, "fuzz", &index) == FTH_OK &&
        fth_image_index_finish(&index, "fuzz") == FTH_OK)
        for (size_t i = 0; i < index.count; i++) {
            const fth_image_entry *entry = &index.entries[i];
            char *path = fth_image_index_path(&index, entry);
            if (entry->size_bytes > 0)
                sink = (uint8_t)(bytes[entry->place] ^ bytes[entry->place + entry->size_bytes - 1]);
            free(path);
        }
    fth_image_index_free(&index);

    const fth_archive_input input = {.bytes = bytes, .size_bytes = size_bytes, .name = "fuzz"};
    fth_file *file = NULL; /* never published, so it leaves nothing */
    if (fth_file_create("/tmp/fuzz-archive.tar", &file) == FTH_OK)
        FTH_IGNORE(fth_image_archive_convert(&input, 0, file), "any bytes are tried");
    fth_file_free(file);
    return 0;
}
