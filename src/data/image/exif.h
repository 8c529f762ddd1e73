/* The orientation that cameras write beside the pixels, as Exif, and what it does to
 * coordinates. */
#ifndef FTH_DATA_EXIF_H
#define FTH_DATA_EXIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a pixel (x, y) of the upright image is stored: at (y, x) if sides are swapped, then counted
 * from the right and from the bottom if mirrored so. Zeroed: images are stored upright. */
typedef struct fth_orientation {
    bool swaps_sides, from_right, from_bottom;
} fth_orientation;

/* Of Exif data, a TIFF file. Upright where it is damaged or does not say. Reads nothing beyond
 * `size_bytes`. */
fth_orientation fth_exif_read(const uint8_t *bytes, size_t size_bytes);
/* Of a JPEG file, by its first Exif segment before the image data. */
fth_orientation fth_exif_read_jpeg(const uint8_t *bytes, size_t size_bytes);

static inline bool fth_orientation_is_upright(fth_orientation orientation)
{
    return !orientation.swaps_sides && !orientation.from_right && !orientation.from_bottom;
}

#endif
