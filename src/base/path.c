/* See path.h. */
#include "base/path.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *fth_format(const char *format, ...)
{
    char *text;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return length < 0 ? NULL : text;
}

char *fth_path_join(const char *folder, const char *name)
{
    if (!folder || !name)
        return NULL;
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    while (*name == '/')
        name++;
    if (length == 0)
        return strdup(name);
    bool root = length == 1 && folder[0] == '/';
    return fth_format("%.*s%s%s", (int)length, folder, root ? "" : "/", name);
}

char *fth_path_folder(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash)
        return path ? strdup(".") : NULL;
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}
