/* "Did you mean": the optimal string alignment distance, which counts a swap of neighbouring
 * letters, the most common typing error, as one edit. Case and the choice between '_' and '-' do
 * not count. */
#include <ctype.h>
#include <string.h>

#include "base/options.h"

enum { MAX_LENGTH = 64 };

static int fold(char c)
{
    return c == '_' ? '-' : tolower((unsigned char)c);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][MAX_LENGTH + 1];
    size_t *before = rows[0], *previous = rows[1], *current = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        previous[j] = before[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        current[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            bool same = fold(a[i - 1]) == fold(b[j - 1]);
            current[j] = least(previous[j - 1] + !same, least(previous[j], current[j - 1]) + 1);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]))
                current[j] = least(current[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = previous;
        previous = current;
        current = free_row;
    }
    return previous[b_length];
}

const char *fth_nearest_name(const char *name, const char *const *candidates)
{
    size_t length = strlen(name), best_distance = SIZE_MAX;
    const char *best = NULL, *completion = NULL, *first_word = NULL;
    if (length == 0 || length > MAX_LENGTH)
        return NULL;
    for (; *candidates; candidates++) {
        size_t candidate_length = strlen(*candidates);
        if (candidate_length > MAX_LENGTH)
            continue;
        size_t longer = length > candidate_length ? length : candidate_length;
        size_t near = longer < 3 ? 1 : longer / 3;
        size_t distance = edit_distance(name, length, *candidates, candidate_length);
        if (distance <= near && distance < best_distance && distance < longer) {
            best = *candidates;
            best_distance = distance;
        }
        if (!completion && length >= 3 && strncasecmp(name, *candidates, length) == 0)
            completion = *candidates;
        if (candidate_length >= 3 && candidate_length < length && strchr("-_", name[candidate_length]) &&
            strncasecmp(name, *candidates, candidate_length) == 0)
            first_word = *candidates;
    }
    if (!best)
        best = completion ? completion : first_word;
    return best;
}
