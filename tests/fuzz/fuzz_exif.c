/* Feeds bytes to what reads the orientation of images: as Exif data, and as a JPEG file that may
 * have some. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/exif.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    uint8_t *copy = malloc(size_bytes + 1); /* exactly as large: reading beyond it is found */
    if (!copy)
        return 0;
    uint8_t *end = copy + 1; /* also at an odd address */
    memcpy(end, bytes, size_bytes);
    const fth_orientation whole = fth_exif_read(end, size_bytes), again = fth_exif_read(end, size_bytes);
    assert(whole.swaps_sides == again.swaps_sides && whole.from_right == again.from_right);
    (void)fth_exif_read_jpeg(end, size_bytes);
    free(copy);
    return 0;
}
