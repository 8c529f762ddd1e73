/* See size.h. */
#include "base/size.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The factor of a unit; 0: there is no such unit. */
static double unit_factor(const char *unit)
{
    static const char letters[] = "kmgt";
    const char *letter = *unit ? strchr(letters, tolower((unsigned char)*unit)) : NULL;
    if (!*unit || strcasecmp(unit, "b") == 0)
        return 1;
    if (!letter)
        return 0;
    double power = (double)(letter - letters + 1);
    if (!unit[1] || strcasecmp(unit + 1, "ib") == 0)
        return pow(1024, power);
    return strcasecmp(unit + 1, "b") == 0 ? pow(1000, power) : 0;
}

fth_status fth_size_parse(const char *text, uint64_t *size_bytes)
{
    char *end = NULL;
    double number = isdigit((unsigned char)*text) ? strtod(text, &end) : -1;
    double bytes = end ? number * unit_factor(end + strspn(end, " ")) : -1;
    bool zero = end && number == 0 && unit_factor(end) > 0;
    if (!(bytes >= 1 || zero) || bytes > 0x1p60)
        return fth_fail(FTH_INVALID, "\"%.40s\" is not a size; expected 512m, 4g, 300MB or bytes", text);
    *size_bytes = (uint64_t)bytes;
    return FTH_OK;
}

fth_status fth_size_check(const char *text)
{
    uint64_t size_bytes;
    return *text ? fth_size_parse(text, &size_bytes) : FTH_OK;
}
