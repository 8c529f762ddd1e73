/* See range.h. */
#include "http/range.h"

#include <string.h>
#include <strings.h>

/* Takes digits off the front; numbers that are too large become the largest. False if there are
 * none. */
static bool take_number(const char **text, uint64_t *number)
{
    const char *begin = *text;
    *number = 0;
    for (; **text >= '0' && **text <= '9'; (*text)++) {
        uint64_t digit = (uint64_t)(**text - '0');
        *number = *number > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *number * 10 + digit;
    }
    return *text > begin;
}

bool fth_range_parse(const char *header, fth_range *range)
{
    static const char unit[] = "bytes=";
    *range = (fth_range){.last = UINT64_MAX};
    if (!header || strncasecmp(header, unit, sizeof unit - 1) != 0)
        return false;
    const char *text = header + sizeof unit - 1;
    text += strspn(text, " \t");
    range->suffix = !take_number(&text, &range->first);
    if (*text++ != '-')
        return false;
    bool ends = take_number(&text, &range->last);
    if (!ends)
        range->last = UINT64_MAX;
    text += strspn(text, " \t");
    return !*text && (ends || !range->suffix) && (range->suffix || range->first <= range->last);
}

bool fth_range_resolve(const fth_range *range, uint64_t size, uint64_t *first, uint64_t *count)
{
    if (range->suffix) {
        *count = range->last < size ? range->last : size;
        *first = size - *count;
        return *count > 0;
    }
    *first = range->first;
    if (range->first >= size)
        return false;
    *count = range->last - range->first < size - range->first ? range->last - range->first + 1 : size - range->first;
    return true;
}
