/* Which gradients make a step: sync, bounded or async, see parameters.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parameters/parameters.h"

fth_status fth_consistency_parse(const char *text, fth_consistency *consistency)
{
    char *end = NULL;
    const char *colon = strchr(text, ':');
    int64_t count = colon ? strtoll(colon + 1, &end, 10) : 0;
    bool counted = colon && end != colon + 1 && !*end && count >= 0 && count <= 1000000;
    size_t length = colon ? (size_t)(colon - text) : strlen(text);

    if (length == 4 && strncmp(text, "sync", 4) == 0 && (!colon || (counted && count >= 1)))
        *consistency = (fth_consistency){FTH_CONSISTENCY_SYNC, count};
    else if (length == 7 && strncmp(text, "bounded", 7) == 0 && counted)
        *consistency = (fth_consistency){FTH_CONSISTENCY_BOUNDED, count};
    else if (strcmp(text, "async") == 0)
        *consistency = (fth_consistency){FTH_CONSISTENCY_ASYNC, 0};
    else
        return fth_fail(FTH_INVALID,
                        "\"%s\" is not a consistency: sync (a gradient of each worker makes a step), sync:N (N of them "
                        "do), bounded:S (none older than S versions) or async",
                        text);
    return FTH_OK;
}

void fth_consistency_format(fth_consistency consistency, char *text, size_t size)
{
    if (consistency.kind == FTH_CONSISTENCY_ASYNC)
        snprintf(text, size, "async");
    else if (consistency.kind == FTH_CONSISTENCY_SYNC && consistency.count == 0)
        snprintf(text, size, "sync");
    else
        snprintf(text, size, "%s:%" PRId64, consistency.kind == FTH_CONSISTENCY_SYNC ? "sync" : "bounded",
                 consistency.count);
}
