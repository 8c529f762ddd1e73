/* Feeds bytes to the CIFAR-10 parsers, records and class names; the first byte chooses. Records are
 * long, so the input is repeated to fill some. */
#include <stdlib.h>
#include <string.h>

#include "data/array/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static volatile uint8_t sink;

static void parse_records(const uint8_t *bytes, size_t size_bytes)
{
    fth_segment segment;
    if (fth_cifar_parse(bytes, size_bytes, "fuzz", &segment) == FTH_OK) {
        size_t last = (size_t)(segment.count - 1);
        sink = segment.labels[last * segment.label_stride];
        sink = segment.pixels[last * segment.pixel_stride + 3071];
    }
}

static void parse_names(const uint8_t *bytes, size_t size_bytes)
{
    fth_array_set set = {0};
    int found = 0;
    char *text = calloc(size_bytes + 1, 1);
    if (!text)
        return;
    memcpy(text, bytes, size_bytes);
    if (fth_array_set_name_classes(&set, text, FTH_MAX_CLASSES, &found) == FTH_OK)
        for (int i = 0; i < found; i++)
            sink = (uint8_t)strlen(set.class_names[i]);
    free(set.class_names);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    if (size_bytes < 3)
        return 0;
    if (bytes[0] & 1) {
        parse_names(bytes + 1, size_bytes - 1);
        return 0;
    }
    parse_records(bytes + 1, size_bytes - 1);
    size_t records = bytes[1] % 4u, extra = bytes[2] % 2u, total = records * 3073 + extra;
    uint8_t *repeated = malloc(total + 1); /* no slack: the sanitizer sees the first byte too many */
    if (!repeated)
        return 0;
    for (size_t i = 0; i < total; i++)
        repeated[i] = bytes[i % size_bytes];
    parse_records(repeated, total);
    free(repeated);
    return 0;
}
