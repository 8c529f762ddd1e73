/* Feeds bytes to the idx parsers: as a plain file, and, where they are gzip or xz, through
 * decompression first. */
#include "data/array/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static volatile uint8_t sink;

static void parse(const uint8_t *bytes, size_t size_bytes)
{
    fth_idx_images images;
    fth_idx_labels labels;
    if (fth_idx_parse_images(bytes, size_bytes, "fuzz", &images) == FTH_OK)
        sink = images.pixels[images.count * images.height * images.width - 1];
    if (fth_idx_parse_labels(bytes, size_bytes, "fuzz", &labels) == FTH_OK && labels.count > 0)
        sink = labels.labels[labels.count - 1];
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    parse(bytes, size_bytes);
    fth_blob blob = {0};
    if (fth_is_compressed(bytes, size_bytes) &&
        fth_decompress(bytes, size_bytes, 1 << 20, "fuzz", NULL, &blob) == FTH_OK) {
        parse(blob.bytes, blob.size_bytes);
        fth_blob_free(&blob);
    }
    return 0;
}
