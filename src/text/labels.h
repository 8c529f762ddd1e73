/* Labels of a table, and their classes.
 *
 * While rows are read, each distinct label gets a number. Once all are known, they become classes:
 *
 *     names are given       a label is a name; or, if none is, all are numbers that count the names
 *                           from 0 or from 1, whichever fits
 *     all are integers      they are the classes, by value
 *     else                  by their bytes */
#ifndef FTH_TEXT_LABELS_H
#define FTH_TEXT_LABELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef struct fth_labels fth_labels;

fth_status fth_labels_create(fth_labels **labels);
void fth_labels_free(fth_labels *labels);

/* The number of a label, without surrounding white space. `file` and `line` are for messages;
 * `file` outlives the labels. FTH_INVALID for a label that is empty, not UTF-8 or of several
 * lines. */
fth_status fth_labels_meet(fth_labels *labels, const char *text, size_t size_bytes, const char *file, size_t line,
                           int32_t *number);
int32_t fth_labels_met(const fth_labels *labels); /* how many different ones */

/* Turns labels into classes. `names` (ending with NULL; copied) are the class names, if known.
 * `from_one`: numbers that could count from 0 or from 1 count from 1; otherwise they are an
 * error. */
fth_status fth_labels_finish(fth_labels *labels, const char *const *names, bool from_one);

/* Then: */
int fth_labels_count(const fth_labels *labels);
const char *const *fth_labels_names(const fth_labels *labels); /* (count), and a NULL */
int32_t fth_labels_class(const fth_labels *labels, int32_t number);

#endif
