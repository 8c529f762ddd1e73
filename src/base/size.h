/* Parsing of memory sizes. */
#ifndef FTH_BASE_SIZE_H
#define FTH_BASE_SIZE_H

#include <stdint.h>

#include "base/status.h"

/* "512m", "4G", "1.5GiB", "300MB" or plain bytes; k, m, g and t are powers of 1024, kB, MB, GB and
 * TB of 1000. FTH_INVALID for others, and for more than 2^60. */
fth_status fth_size_parse(const char *text, uint64_t *size_bytes);
/* The same as an option's check; "" and "0" are fine. */
fth_status fth_size_check(const char *text);

#endif
