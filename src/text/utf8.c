/* See utf8.h. */
#include "text/utf8.h"

/* The size of the character that `lead` begins, 0 if none does, and the range of its second
 * byte. */
static size_t get_length(uint8_t lead, uint8_t *lowest, uint8_t *highest)
{
    *lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

size_t fth_utf8_read(const uint8_t *bytes, const uint8_t *end, uint32_t *character)
{
    uint8_t lowest, highest;
    size_t length = get_length(bytes[0], &lowest, &highest);
    uint32_t value = length <= 1 ? bytes[0] : bytes[0] & (0x7Fu >> length);
    *character = FTH_UTF8_REPLACEMENT;
    if (length == 0)
        return 1;
    for (size_t i = 1; i < length; i++) {
        if (bytes + i == end || bytes[i] < lowest || bytes[i] > highest)
            return i;
        value = value << 6 | (bytes[i] & 0x3F);
        lowest = 0x80;
        highest = 0xBF;
    }
    *character = value;
    return length;
}

size_t fth_utf8_write(uint32_t character, char *bytes)
{
    if (character < 0x80) {
        bytes[0] = (char)character;
        return 1;
    }
    size_t length = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (character & 0x3F));
        character >>= 6;
    }
    bytes[0] = (char)((0xF00u >> length) | character); /* as many ones as bytes, then a zero */
    return length;
}

bool fth_utf8_is_valid(const char *bytes, size_t size_bytes)
{
    const uint8_t *at = (const uint8_t *)bytes, *end = at + size_bytes;
    while (at < end) {
        uint32_t character;
        size_t length = fth_utf8_read(at, end, &character);
        if (character == FTH_UTF8_REPLACEMENT && !(length == 3 && at[0] == 0xEF && at[1] == 0xBF && at[2] == 0xBD))
            return false;
        at += length;
    }
    return true;
}
