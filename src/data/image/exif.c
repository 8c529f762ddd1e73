/* See exif.h. */
#include "data/image/exif.h"

#include <string.h>

/* Numbers of a TIFF file, in its byte order; 0 after the end. */
typedef struct tiff {
    const uint8_t *bytes;
    size_t size_bytes;
    bool little;
} tiff;

static uint32_t read_number(const tiff *file, size_t at, int width)
{
    uint32_t value = 0;
    if (at > file->size_bytes || file->size_bytes - at < (size_t)width)
        return 0;
    for (int i = 0; i < width; i++)
        value = value << 8 | file->bytes[at + (size_t)(file->little ? width - 1 - i : i)];
    return value;
}

static fth_orientation make_orientation(uint32_t value)
{
    if (value < 1 || value > 8)
        return (fth_orientation){0};
    return (fth_orientation){.swaps_sides = value >= 5,
                             .from_right = value == 2 || value == 3 || value == 7 || value == 8,
                             .from_bottom = value == 3 || value == 4 || value == 6 || value == 7};
}

fth_orientation fth_exif_read(const uint8_t *bytes, size_t size_bytes)
{
    enum { HEADER = 8, ENTRY = 12, ORIENTATION = 0x112, SHORT = 3 };
    tiff file = {.bytes = bytes, .size_bytes = size_bytes};

    if (size_bytes < HEADER || (memcmp(bytes, "II*\0", 4) != 0 && memcmp(bytes, "MM\0*", 4) != 0))
        return (fth_orientation){0};
    file.little = bytes[0] == 'I';
    const size_t directory = read_number(&file, 4, 4);
    const uint32_t count = read_number(&file, directory, 2);
    for (uint32_t i = 0; i < count; i++) {
        const size_t entry = directory + 2 + (size_t)i * ENTRY;
        if (read_number(&file, entry, 2) == ORIENTATION)
            return make_orientation(read_number(&file, entry + 2, 2) == SHORT ? read_number(&file, entry + 8, 2) : 0);
    }
    return (fth_orientation){0};
}

fth_orientation fth_exif_read_jpeg(const uint8_t *bytes, size_t size_bytes)
{
    enum { APP1 = 0xe1, START_OF_SCAN = 0xda, END = 0xd9 };
    static const uint8_t name[6] = "Exif\0";
    size_t at = 2; /* after the first marker */

    while (at <= size_bytes && size_bytes - at >= 4 && bytes[at] == 0xff) {
        const uint8_t marker = bytes[at + 1];
        if (marker == 0xff) { /* fill bytes */
            at++;
            continue;
        }
        const size_t length = (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        if (marker == START_OF_SCAN || marker == END || length < 2 || length > size_bytes - at - 2)
            break;
        if (marker == APP1 && length >= 2 + sizeof name && memcmp(bytes + at + 4, name, sizeof name) == 0)
            return fth_exif_read(bytes + at + 4 + sizeof name, length - 2 - sizeof name);
        at += 2 + length;
    }
    return (fth_orientation){0};
}
