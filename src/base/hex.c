/* See hex.h. */
#include "base/hex.h"

#include <openssl/sha.h>
#include <string.h>

void fth_hex_encode(const void *bytes, size_t size_bytes, char *hex)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    for (size_t i = 0; i < size_bytes; i++) {
        *hex++ = digits[from[i] >> 4];
        *hex++ = digits[from[i] & 15];
    }
    *hex = '\0';
}

int fth_hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

bool fth_hex_is_valid(const char *text, size_t count)
{
    return strlen(text) == count && strspn(text, "0123456789abcdef") == count;
}

void fth_hex_sha256(const void *bytes, size_t size_bytes, char hex[65])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256(bytes ? bytes : (const void *)"", size_bytes, digest);
    fth_hex_encode(digest, sizeof digest, hex);
}
