/* Index files, which list the images of a set with their classes and perhaps splits, as CSV or JSON
 * lines:
 *
 *     path,label,split           {"path": "a/1.jpg", "label": "cat", "split": "train"}
 *     a/1.jpg,cat,train          {"path": "b/2.png", "label": 3}
 *     "b, too/2.png",3,val
 *
 * Paths are relative to the index file. A label is the number or the name of a class. The split is
 * train, val (valid, validation) or test, given for all rows or for none. A heading in CSV may
 * reorder the columns and add others, which are ignored; without it the order is path, label,
 * split. */
#ifndef FTH_DATA_INDEX_FILE_H
#define FTH_DATA_INDEX_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

typedef struct fth_index_row {
    const char *path, *label;
    const char *split; /* "": none */
    size_t line;
} fth_index_row;

/* True for names that end in .csv or .jsonl. */
bool fth_index_file_fits(const char *name);
/* Visits the rows. Modifies the text, which ends with NUL; a row is valid during its visit. `name`
 * begins messages and determines the format. */
fth_status fth_index_file_read(char *text, const char *name, fth_status (*visit)(void *context, const fth_index_row *),
                               void *context);

#endif
