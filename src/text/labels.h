/* Labels as a table has them, and the classes that they stand for.
 *
 * While rows are read, each different label gets a number in the order in which it is met. Once all
 * are known, they become classes:
 *
 *     names are given       a label is one of them; or, where no label is, all are numbers, which count the names from 0 or
 *                           from 1, whichever fits
 *     all are integers      the classes are they, in order of their values
 *     else                  in order of their bytes */
#ifndef FTH_TEXT_LABELS_H
#define FTH_TEXT_LABELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef struct fth_labels fth_labels;

fth_status fth_labels_create(fth_labels **labels);
void fth_labels_free(fth_labels *labels);

/* The number of a label, white space around it aside. `file` and `line` say where it is, for
 * messages; the file's name outlives the labels. One that is empty, not UTF-8 or of several lines
 * is FTH_INVALID. */
fth_status fth_labels_meet(fth_labels *labels, const char *text, size_t size_bytes, const char *file, size_t line,
                           int32_t *number);
int32_t fth_labels_met(const fth_labels *labels); /* how many different ones */

/* Makes classes of what was met. `names` (ending with NULL; copied) are those of the classes where
 * they are known; else NULL. `from_one`: numbers that could count them from 0 or from 1 count from
 * 1; otherwise that is an error. */
fth_status fth_labels_finish(fth_labels *labels, const char *const *names, bool from_one);

/* Then: */
int fth_labels_count(const fth_labels *labels);
const char *const *fth_labels_names(const fth_labels *labels); /* (count), and a NULL */
int32_t fth_labels_class(const fth_labels *labels, int32_t number);

#endif
