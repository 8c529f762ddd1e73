/* The Range header of RFC 9110, section 14: one range of bytes. */
#ifndef FTH_HTTP_RANGE_H
#define FTH_HTTP_RANGE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fth_range {
    bool suffix;          /* the last `last` bytes; else first..last, both included */
    uint64_t first, last; /* UINT64_MAX: to the end */
} fth_range;

/* False where the header is to be ignored, as the RFC says of what is not valid or not understood:
 * another unit, a wrong form, a last byte before the first. Several ranges are ignored too. NULL:
 * there is none. */
bool fth_range_parse(const char *header, fth_range *range);
/* Which bytes of `size` those are; false where there are none of them: 416. */
bool fth_range_resolve(const fth_range *range, uint64_t size, uint64_t *first, uint64_t *count);

#endif
