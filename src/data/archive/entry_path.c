/* See entry_path.h. */
#include "data/archive/entry_path.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PATH_BYTES = 1 << 16 };

fth_status fth_entry_path_read(const char *raw, fth_entry_path *path, fth_path_kind *kind)
{
    size_t wanted = strlen(raw) + 1, length = raw[0] == '/';
    *kind = wanted > MAX_PATH_BYTES ? FTH_PATH_TOO_LONG : FTH_PATH_USABLE;
    if (*kind != FTH_PATH_USABLE)
        return FTH_OK;
    if (path->capacity < wanted) {
        free(path->text);
        path->text = NULL;
        path->capacity = 0;
        fth_status status = fth_allocate(wanted, 1, &path->text);
        if (status != FTH_OK)
            return status;
        path->capacity = wanted;
    }
    path->text[0] = '/';
    path->folder_length = length;
    size_t name = length;
    for (size_t part; *raw; raw += part + (raw[part] == '/')) {
        part = strcspn(raw, "/");
        if (part == 0 || (part == 1 && raw[0] == '.'))
            continue;
        if (part == 2 && raw[0] == '.' && raw[1] == '.') {
            *kind = FTH_PATH_LEAVES;
            return FTH_OK;
        }
        if (length > name) { /* the name so far is a folder */
            path->folder_length = length;
            path->text[length++] = '/';
        }
        name = length;
        memcpy(path->text + length, raw, part);
        length += part;
    }
    path->text[length] = '\0';
    path->name = path->text + name;
    if (length == name)
        *kind = FTH_PATH_EMPTY;
    return FTH_OK;
}
