/* Bytes as hexadecimal digits, and back. */
#ifndef FTH_BASE_HEX_H
#define FTH_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>

/* Writes 2 * size_bytes lower-case digits and a NUL. */
void fth_hex_encode(const void *bytes, size_t size_bytes, char *hex);
/* The value of a digit of either case; -1 for any other character. */
int fth_hex_digit(char digit);
/* True if `text` consists of exactly `count` lower-case digits. */
bool fth_hex_is_valid(const char *text, size_t count);

/* SHA-256 of `bytes` (may be NULL if there are none) as 64 digits and a NUL. */
void fth_hex_sha256(const void *bytes, size_t size_bytes, char hex[65]);

#endif
