/* See count.h. */
#include "base/count.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void group_thousands(int64_t number, char *text, size_t size)
{
    char digits[24], grouped[40];
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
    size_t at = 0;
    if (number < 0)
        grouped[at++] = '-';
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            grouped[at++] = ',';
        grouped[at++] = digits[i];
    }
    grouped[at] = '\0';
    snprintf(text, size, "%s", grouped);
}

static bool ends_in(const char *word, size_t length, const char *ending)
{
    size_t ending_length = strlen(ending);
    return length > ending_length && strcmp(word + length - ending_length, ending) == 0;
}

/* class, box, batch, crash */
static bool takes_es(const char *word, size_t length)
{
    return ends_in(word, length, "s") || ends_in(word, length, "x") || ends_in(word, length, "ch") ||
           ends_in(word, length, "sh");
}

/* entry, but not key */
static bool takes_ies(const char *word, size_t length)
{
    return ends_in(word, length, "y") && !strchr("aeiou", word[length - 2]);
}

const char *fth_count_format(int64_t count, const char *noun, char *text, size_t size)
{
    char number[40];
    group_thousands(count, number, sizeof number);
    size_t length = noun ? strlen(noun) : 0;
    if (length == 0)
        snprintf(text, size, "%s", number);
    else if (count == 1)
        snprintf(text, size, "%s %s", number, noun);
    else if (takes_es(noun, length))
        snprintf(text, size, "%s %ses", number, noun);
    else if (takes_ies(noun, length))
        snprintf(text, size, "%s %.*sies", number, (int)length - 1, noun);
    else
        snprintf(text, size, "%s %ss", number, noun);
    return text;
}
