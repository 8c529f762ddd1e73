/* Feeds bytes to what opens a shard in a function: any archive, as a data set, with small limits.
 * Image files are not unpacked; fuzz_archive does that. */
#include <stdlib.h>

#include "data/archive/archive_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static volatile uint8_t sink;

static void read_ends(fth_dataset *dataset)
{
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    uint8_t *pixels = calloc((size_t)info->channels * (size_t)info->height, (size_t)info->width);
    int32_t label = 0;
    if (pixels && fth_dataset_read(dataset, FTH_TRAIN, 0, pixels, &label) == FTH_OK &&
        fth_dataset_read(dataset, FTH_TRAIN, info->count[FTH_TRAIN] - 1, pixels, &label) == FTH_OK)
        sink = (uint8_t)(pixels[0] + label);
    free(pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    static const fth_archive_set_options options[] = {{.max_bytes = 1 << 20},
                                                      {.first = 1, .count = 1, .max_bytes = 1 << 20}};
    fth_log_set_level(FTH_LOG_ERROR);
    for (size_t i = 0; i < FTH_COUNT_OF(options); i++) {
        fth_dataset *dataset = NULL;
        if (fth_archive_set_open(bytes, size_bytes, "fuzz", &options[i], &dataset) == FTH_OK)
            read_ends(dataset);
        fth_dataset_free(dataset);
    }
    return 0;
}
