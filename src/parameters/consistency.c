/* --consistency: which gradients make a step; see parameters.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "parameters/parameters.h"

static const fth_choice forms[] = {
    {"async", "each gradient makes a step"},
    {"sync", "one of each worker makes a step"},
    {"sync:N", "the mean of N makes a step"},
    {"bounded:S", "each at most S versions old does"},
};

fth_choice fth_consistency_choice(size_t index)
{
    return index < FTH_COUNT_OF(forms) ? forms[index] : (fth_choice){0};
}

fth_status fth_consistency_check(const char *text)
{
    fth_consistency parsed;
    return fth_consistency_parse(text, &parsed);
}

fth_status fth_consistency_parse(const char *text, fth_consistency *consistency)
{
    const char *colon = strchr(text, ':');
    char *end = NULL;
    int64_t count = colon ? strtoll(colon + 1, &end, 10) : 0;
    bool counted = colon && end != colon + 1 && !*end && count >= 0 && count <= 1000000;

    if (strcmp(text, "sync") == 0 || (strncmp(text, "sync:", 5) == 0 && counted && count >= 1))
        *consistency = (fth_consistency){FTH_CONSISTENCY_SYNC, count};
    else if (strncmp(text, "bounded:", 8) == 0 && counted)
        *consistency = (fth_consistency){FTH_CONSISTENCY_BOUNDED, count};
    else if (strcmp(text, "async") == 0)
        *consistency = (fth_consistency){FTH_CONSISTENCY_ASYNC, 0};
    else if (strncmp(text, "sync:", 5) == 0 || strncmp(text, "bounded:", 8) == 0)
        return fth_fail(FTH_INVALID, "expected a whole number after the colon of \"%s\": %s", text,
                        *text == 's' ? "how many gradients make a step, from 1" : "how many versions old, from 0");
    else
        return fth_fail_choice("consistency", text, fth_consistency_choice);
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
