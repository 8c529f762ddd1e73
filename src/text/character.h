/* Characters beyond ASCII, as BERT's tokenizers see them.
 *
 * Hugging Face's `tokenizers` goes by the categories of Unicode 8, and by the combining classes and
 * decompositions of Unicode 9; its lower case is that of a current Unicode. The classes are
 * therefore a table of our own (character_table.c), and what utf8proc knows from later versions is
 * left out or added: ids do not depend on the version of utf8proc that is installed. */
#ifndef FTH_TEXT_CHARACTER_H
#define FTH_TEXT_CHARACTER_H

#include <stddef.h>
#include <stdint.h>

typedef enum fth_character_class {
    FTH_CHARACTER_REMOVED = 1,     /* control, format and private characters, and U+FFFD */
    FTH_CHARACTER_SPACE = 2,       /* between words */
    FTH_CHARACTER_PUNCTUATION = 4, /* a word by itself */
    FTH_CHARACTER_CHINESE = 8,     /* CJK ideographs: likewise, where a tokenizer says so */
    FTH_CHARACTER_ACCENT = 16,     /* a mark that takes no place of its own */
    FTH_CHARACTER_ORDERED = 32     /* another mark with a combining class */
} fth_character_class;

/* Characters beyond ASCII that have classes, in order; others have none. */
typedef struct fth_character_range {
    uint32_t first, last;
    unsigned classes; /* joined by | */
} fth_character_range;
extern const fth_character_range fth_character_ranges[];
extern const size_t fth_character_range_count;

/* The classes of any character, ASCII included. */
unsigned fth_character_classify(uint32_t character);

/* In canonical order, marks between two others are sorted by this; 0: not a mark. */
int fth_character_combining_class(uint32_t character);

/* Canonical decomposition (NFD) of one character, without reordering; gives how many it is. */
enum { FTH_CHARACTER_MAX_DECOMPOSED = 8 };
size_t fth_character_decompose(uint32_t character, uint32_t decomposed[FTH_CHARACTER_MAX_DECOMPOSED]);

/* Lower case, the same in every context and language; gives how many characters it is. */
enum { FTH_CHARACTER_MAX_LOWER = 2 };
size_t fth_character_lower(uint32_t character, uint32_t lower[FTH_CHARACTER_MAX_LOWER]);

#endif
