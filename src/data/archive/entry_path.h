/* Normalizes paths of archive entries: "//a/./b//x.jpg" becomes "/a/b/x.jpg". */
#ifndef FTH_DATA_ENTRY_PATH_H
#define FTH_DATA_ENTRY_PATH_H

#include <stddef.h>

#include "base/base.h"

/* The text is reused for the next entry; free() it at the end. */
typedef struct fth_entry_path {
    char *text;
    size_t capacity;
    size_t folder_length; /* length of the folder's path; "/" is one */
    const char *name;
} fth_entry_path;

typedef enum fth_path_kind { FTH_PATH_USABLE, FTH_PATH_EMPTY, FTH_PATH_LEAVES, FTH_PATH_TOO_LONG } fth_path_kind;

/* Fails only without memory; *kind says whether the path can be used. */
fth_status fth_entry_path_read(const char *raw, fth_entry_path *path, fth_path_kind *kind);

#endif
