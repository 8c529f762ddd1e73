/* Characters beyond ASCII, as BERT's tokenizers see them. Hugging Face's `tokenizers` uses the
 * categories of Unicode 8, the combining classes and decompositions of Unicode 9, and the lower
 * case of a current Unicode. Classes therefore come from a table (character_table.c), and
 * differences in utf8proc's data are corrected: ids do not depend on its version. */
#ifndef FTH_TEXT_CHARACTER_H
#define FTH_TEXT_CHARACTER_H

#include <stddef.h>
#include <stdint.h>

typedef enum fth_character_class {
    FTH_CHARACTER_REMOVED = 1,     /* control, format and private characters, and U+FFFD */
    FTH_CHARACTER_SPACE = 2,       /* separates words */
    FTH_CHARACTER_PUNCTUATION = 4, /* a word of its own */
    FTH_CHARACTER_CHINESE = 8,     /* CJK ideographs: a word of its own, if the tokenizer says so */
    FTH_CHARACTER_ACCENT = 16,     /* a combining mark that is removed */
    FTH_CHARACTER_ORDERED = 32     /* another mark with a combining class */
} fth_character_class;

/* Characters beyond ASCII that have classes, in order. */
typedef struct fth_character_range {
    uint32_t first, last;
    unsigned classes; /* joined by | */
} fth_character_range;
extern const fth_character_range fth_character_ranges[];
extern const size_t fth_character_range_count;

/* The classes of any character, ASCII included. */
unsigned fth_character_classify(uint32_t character);

/* The sort key of marks in canonical order; 0: not a mark. */
int fth_character_combining_class(uint32_t character);

/* The canonical decomposition (NFD) of one character, without reordering; returns its length. */
enum { FTH_CHARACTER_MAX_DECOMPOSED = 8 };
size_t fth_character_decompose(uint32_t character, uint32_t decomposed[FTH_CHARACTER_MAX_DECOMPOSED]);

/* Lower case, independent of context and language; returns the number of characters. */
enum { FTH_CHARACTER_MAX_LOWER = 2 };
size_t fth_character_lower(uint32_t character, uint32_t lower[FTH_CHARACTER_MAX_LOWER]);

#endif
