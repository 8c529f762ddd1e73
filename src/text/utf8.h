/* UTF-8 from untrusted sources. */
#ifndef FTH_TEXT_UTF8_H
#define FTH_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FTH_UTF8_REPLACEMENT ((uint32_t)0xFFFD)

/* Reads the character at `bytes`, which is before `end`; returns its size. Invalid bytes are
 * U+FFFD, once for each maximal subpart, as Unicode recommends and Python's errors="replace"
 * does. */
size_t fth_utf8_read(const uint8_t *bytes, const uint8_t *end, uint32_t *character);

/* Writes a character of up to 4 bytes; returns its size. */
size_t fth_utf8_write(uint32_t character, char *bytes);

bool fth_utf8_is_valid(const char *bytes, size_t size_bytes);

#endif
