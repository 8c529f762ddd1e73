/* What writing (file.c), reading (file_read.c) and folders (folder.c) share: errors and
 * checksums. */
#ifndef FTH_BASE_FILE_INTERNAL_H
#define FTH_BASE_FILE_INTERNAL_H

#include <openssl/types.h>

#include "base/status.h"

/* "open PATH: No such file or directory". What a user can mend (a missing file) is FTH_INVALID, a
 * full disk FTH_NO_SPACE, the rest FTH_IO. */
fth_status fth_file_fail(const char *verb, const char *path, int error);

/* A SHA-256 to be continued with EVP_DigestUpdate(). */
fth_status fth_file_begin_digest(EVP_MD_CTX **digest);
/* The digits of what it has seen so far; "" on failure, which no checksum equals. */
void fth_file_format_digest(const EVP_MD_CTX *digest, char hex[65]);

#endif
