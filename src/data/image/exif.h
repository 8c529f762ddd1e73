/* Exif orientation: how cameras store a rotated image. */
#ifndef FTH_DATA_EXIF_H
#define FTH_DATA_EXIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The pixel (x, y) of the upright image is stored at (y, x) if sides are swapped, then counted from
 * the right or bottom edge. Zeroed: stored upright. */
typedef struct fth_orientation {
    bool swaps_sides, from_right, from_bottom;
} fth_orientation;

/* Reads Exif data, which is a TIFF file. Upright if it is damaged or has no orientation. Never
 * reads after `size_bytes`. */
fth_orientation fth_exif_read(const uint8_t *bytes, size_t size_bytes);
/* Reads the first Exif segment of a JPEG file. */
fth_orientation fth_exif_read_jpeg(const uint8_t *bytes, size_t size_bytes);

static inline bool fth_orientation_is_upright(fth_orientation orientation)
{
    return !orientation.swaps_sides && !orientation.from_right && !orientation.from_bottom;
}

#endif
