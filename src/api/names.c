/* Names that a program gives to its networks and data: they become parts of file names and records. */
#include <string.h>

#include "api/api_internal.h"

enum { MOST_CHARACTERS = 64 };

fth_status fth_api_check_name(const char *what, const char *name)
{
    static const char valid[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t length = name ? strlen(name) : 0;
    if (length >= 1 && length <= MOST_CHARACTERS && name[strspn(name, valid)] == '\0')
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s \"%.80s\" is not 1 to %d letters, digits, '.', '_' and '-'", what,
                    name ? name : "", MOST_CHARACTERS);
}
