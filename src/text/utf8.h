/* UTF-8 from outside, which may be anything. */
#ifndef FTH_TEXT_UTF8_H
#define FTH_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FTH_UTF8_REPLACEMENT ((uint32_t)0xFFFD)

/* Reads the character at `bytes`, which is before `end`; gives how many bytes it has. What is no
 * UTF-8 is U+FFFD, once for each of its maximal subparts, as Unicode recommends and Python's
 * errors="replace" does. */
size_t fth_utf8_read(const uint8_t *bytes, const uint8_t *end, uint32_t *character);

/* Writes a character, up to 4 bytes; gives how many. */
size_t fth_utf8_write(uint32_t character, char *bytes);

bool fth_utf8_is_valid(const char *bytes, size_t size_bytes);

#endif
