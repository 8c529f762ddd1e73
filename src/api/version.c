/* The library's version, for programs that want to compare it with that of their headers. */
#include <farthing/farthing.h>

const char *fth_version(void)
{
    return FTH_VERSION;
}
