/* Classes of characters by binary search in a table; decomposition and case by utf8proc. See
 * character.h. */
#include "text/character.h"

#include <string.h>
#include <utf8proc.h>

#include "base/base.h"

static unsigned classify_ascii(uint32_t character)
{
    if (character == '\t' || character == '\n' || character == '\r' || character == ' ')
        return FTH_CHARACTER_SPACE;
    if (character == '\v' || character == '\f')
        return FTH_CHARACTER_SPACE | FTH_CHARACTER_REMOVED;
    if (character < ' ' || character == 0x7F)
        return FTH_CHARACTER_REMOVED;
    return strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)character) ? FTH_CHARACTER_PUNCTUATION : 0;
}

static const fth_character_range *find_range(const fth_character_range *table, size_t count, uint32_t character)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (character > table[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && character >= table[low].first ? &table[low] : NULL;
}

unsigned fth_character_classify(uint32_t character)
{
    if (character < 0x80)
        return classify_ascii(character);
    const fth_character_range *range = find_range(fth_character_ranges, fth_character_range_count, character);
    return range ? range->classes : 0;
}

int fth_character_combining_class(uint32_t character)
{
    return utf8proc_get_property((utf8proc_int32_t)character)->combining_class;
}

/* Decompositions added after Unicode 9. */
static const fth_character_range later_decompositions[] = {
    {0x105C9, 0x105C9, 0}, {0x105E4, 0x105E4, 0}, {0x11383, 0x11385, 0}, {0x1138E, 0x11391, 0},
    {0x113C5, 0x113C8, 0}, {0x11938, 0x11938, 0}, {0x16121, 0x16128, 0}, {0x16D68, 0x16D6A, 0},
};

size_t fth_character_decompose(uint32_t character, uint32_t decomposed[FTH_CHARACTER_MAX_DECOMPOSED])
{
    utf8proc_int32_t into[FTH_CHARACTER_MAX_DECOMPOSED];
    int boundary = 0;
    decomposed[0] = character;
    if (find_range(later_decompositions, FTH_COUNT_OF(later_decompositions), character))
        return 1;
    utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)character, into, FTH_CHARACTER_MAX_DECOMPOSED,
                                                     UTF8PROC_DECOMPOSE, &boundary);
    if (count < 1 || count > FTH_CHARACTER_MAX_DECOMPOSED)
        return 1;
    for (utf8proc_ssize_t i = 0; i < count; i++)
        decomposed[i] = (uint32_t)into[i];
    return (size_t)count;
}

/* Capital letters added after Unicode 15, the oldest that utf8proc may support. */
static uint32_t lower_later(uint32_t character)
{
    switch (character) {
    case 0xA7CB: return 0x264;
    case 0xA7DC: return 0x19B;
    case 0x1C89:
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA: return character + 1;
    default: break;
    }
    if (character >= 0x10D50 && character <= 0x10D65)
        return character + 0x20;
    if (character >= 0x16EA0 && character <= 0x16EB8)
        return character + 0x1B;
    return character;
}

size_t fth_character_lower(uint32_t character, uint32_t lower[FTH_CHARACTER_MAX_LOWER])
{
    if (character == 0x130) { /* I with a dot above, the only one whose lower case is two characters */
        lower[0] = 'i';
        lower[1] = 0x307;
        return 2;
    }
    lower[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)character);
    if (lower[0] == character)
        lower[0] = lower_later(character);
    return 1;
}
