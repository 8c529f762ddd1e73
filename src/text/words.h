/* The words of a text, normalized and split as by BERT. The text is read once, in constant memory:
 * words longer than any in a vocabulary are not kept. For each character, in this order: control
 * characters are removed; Chinese characters get spaces around them; others are decomposed and lose
 * accents; lower case; then spaces end words, and punctuation is a word of its own. */
#ifndef FTH_TEXT_WORDS_H
#define FTH_TEXT_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The options of Hugging Face's BertNormalizer. */
typedef struct fth_word_rules {
    bool clean, split_chinese, strip_accents, lower_case;
    int longest; /* most characters of a word, up to FTH_WORD_MAX_CHARACTERS */
} fth_word_rules;

enum { FTH_WORD_MAX_CHARACTERS = 1000 };

/* The same, prepared: an action for each byte. */
typedef struct fth_word_splitter {
    fth_word_rules rules;
    uint8_t actions[256];
    char written[256];
} fth_word_splitter;
fth_word_splitter fth_word_splitter_make(const fth_word_rules *rules);

/* A text being read; private to words.c. `splitter` and `text` outlive it. */
typedef struct fth_word_reader {
    const fth_word_splitter *splitter;
    const uint8_t *at, *end;
    size_t characters;                                /* of the word being read */
    size_t size_bytes;                                /* of the word being read */
    size_t mark_count;                                /* marks not sorted yet */
    size_t ready_first, ready_count;                  /* normalized characters of no word yet */
    uint32_t marks[FTH_WORD_MAX_CHARACTERS + 1];      /* after the last character that is no mark */
    uint32_t ready[FTH_WORD_MAX_CHARACTERS + 1 + 32]; /* all marks, and the expansion of one character */
    char bytes[4 * FTH_WORD_MAX_CHARACTERS];
} fth_word_reader;
void fth_word_reader_begin(fth_word_reader *reader, const fth_word_splitter *splitter, const char *text,
                           size_t size_bytes);

/* The next word, until the next call; false at the end. */
typedef struct fth_word {
    const char *bytes; /* UTF-8; truncated if it is too long */
    size_t size_bytes;
    bool too_long;
} fth_word;
bool fth_word_reader_next(fth_word_reader *reader, fth_word *word);

#endif
