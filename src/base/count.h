/* Counts as people read them: "1 worker", "2 workers", "12,000 images". */
#ifndef FTH_BASE_COUNT_H
#define FTH_BASE_COUNT_H

#include <stddef.h>
#include <stdint.h>

/* The count with thousands grouped and, unless `noun` is NULL, its noun: given in the singular, an
 * English plural is made of its last word ("worker process" becomes "worker processes"). Returns
 * `text`. */
const char *fth_count_format(int64_t count, const char *noun, char *text, size_t size);

/* The same for an argument of printf, lent until the end of the enclosing block. */
#define FTH_COUNTED(count, noun) fth_count_format((int64_t)(count), (noun), (char[96]){0}, 96)

#endif
