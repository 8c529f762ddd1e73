/* Checks of how programs use the library: pointers, processes, and names of networks and data,
 * which become parts of file names and records. */
#include <string.h>
#include <unistd.h>

#include "api/api_internal.h"

enum { MOST_CHARACTERS = 64 };

fth_status fth_api_check_not_null(const void *pointer, const char *what)
{
    return pointer ? FTH_OK : fth_fail(FTH_INVALID, "%s is NULL", what);
}

fth_status fth_api_check_process(void)
{
    static _Thread_local pid_t computed_in;
    if (computed_in == 0)
        computed_in = getpid();
    if (computed_in == getpid())
        return FTH_OK;
    return fth_fail(FTH_UNSUPPORTED, "cannot compute in a process that was forked after farthing had computed in its "
                                     "parent: fork earlier, or call exec() in the child");
}

fth_status fth_api_check_name(const char *what, const char *name)
{
    static const char valid[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t length = name ? strlen(name) : 0;
    if (length >= 1 && length <= MOST_CHARACTERS && name[strspn(name, valid)] == '\0')
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s \"%.80s\" is not 1 to %d letters, digits, '.', '_' and '-'", what,
                    name ? name : "", MOST_CHARACTERS);
}
