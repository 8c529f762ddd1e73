/* See words.h. Runs of ASCII go from the text to the word by a table of actions. Any other character is normalized into a
 * queue (`ready`), from which words are made in the same way.
 *
 * Canonical order sorts the marks between two other characters by their class. Most marks are accents, which are
 * removed; the few others wait in `marks` until the next character that is no mark. They are all of one word: if there are more
 * than a word may have, which ones is no matter. */
#include "text/words.h"

#include "text/character.h"
#include "text/utf8.h"

typedef enum action { LETTER, SKIP, END_WORD, ALONE, BEYOND_ASCII } action;

static action choose_action(unsigned classes, bool clean)
{
    if (clean && (classes & FTH_CHARACTER_REMOVED))
        return SKIP;
    if (classes & FTH_CHARACTER_SPACE)
        return END_WORD;
    return classes & FTH_CHARACTER_PUNCTUATION ? ALONE : LETTER;
}

fth_word_splitter fth_word_splitter_make(const fth_word_rules *rules)
{
    fth_word_splitter splitter = {.rules = *rules};
    for (int byte = 0; byte < 256; byte++) {
        bool capital = byte >= 'A' && byte <= 'Z';
        splitter.actions[byte] =
            (uint8_t)(byte < 0x80 ? choose_action(fth_character_classify((uint32_t)byte), rules->clean) : BEYOND_ASCII);
        splitter.written[byte] = (char)(rules->lower_case && capital ? byte - 'A' + 'a' : byte);
    }
    return splitter;
}

void fth_words_begin(fth_words *words, const fth_word_splitter *splitter, const char *text, size_t size_bytes)
{
    words->splitter = splitter;
    words->at = (const uint8_t *)text;
    words->end = words->at + size_bytes;
    words->characters = 0;
    words->size_bytes = 0;
    words->mark_count = 0;
    words->ready_first = words->ready_count = 0;
}

static void push(fth_words *words, uint32_t character)
{
    words->ready[words->ready_count++] = character;
}

static void push_lower(fth_words *words, uint32_t character)
{
    uint32_t lower[FTH_CHARACTER_MAX_LOWER] = {character};
    size_t count = words->splitter->rules.lower_case ? fth_character_lower(character, lower) : 1;
    for (size_t i = 0; i < count; i++)
        push(words, lower[i]);
}

/* Puts the marks that wait in order, those of one class as they came. */
static void push_marks(fth_words *words)
{
    uint32_t *marks = words->marks;
    for (size_t i = 1; i < words->mark_count; i++) {
        uint32_t mark = marks[i];
        size_t place = i;
        while (place > 0 && fth_character_combining_class(marks[place - 1]) > fth_character_combining_class(mark)) {
            marks[place] = marks[place - 1];
            place--;
        }
        marks[place] = mark;
    }
    for (size_t i = 0; i < words->mark_count; i++)
        push_lower(words, marks[i]);
    words->mark_count = 0;
}

static void push_without_accents(fth_words *words, uint32_t character)
{
    uint32_t parts[FTH_CHARACTER_MAX_DECOMPOSED];
    size_t count = fth_character_decompose(character, parts);
    for (size_t i = 0; i < count; i++) {
        unsigned classes = fth_character_classify(parts[i]);
        if (classes & FTH_CHARACTER_ORDERED) {
            if (words->mark_count <= (size_t)words->splitter->rules.longest)
                words->marks[words->mark_count++] = parts[i];
            continue;
        }
        bool accent = classes & FTH_CHARACTER_ACCENT;
        if (words->mark_count > 0 && !(accent && fth_character_combining_class(parts[i]) > 0))
            push_marks(words);
        if (!accent)
            push_lower(words, parts[i]);
    }
}

/* Reads one character of the text into the queue, which is empty. */
static void normalize_next(fth_words *words)
{
    const fth_word_rules *rules = &words->splitter->rules;
    uint32_t character;
    words->at += fth_utf8_read(words->at, words->end, &character);
    unsigned classes = fth_character_classify(character);
    words->ready_first = words->ready_count = 0;
    if (rules->clean && (classes & FTH_CHARACTER_REMOVED))
        return;
    bool apart = rules->split_chinese && (classes & FTH_CHARACTER_CHINESE);
    if (apart) {
        push_marks(words);
        push(words, ' ');
    }
    if (rules->strip_accents)
        push_without_accents(words, character);
    else
        push_lower(words, character);
    if (apart)
        push(words, ' ');
}

static void append(fth_words *words, uint32_t character)
{
    if (words->characters++ < (size_t)words->splitter->rules.longest)
        words->size_bytes += fth_utf8_write(character, words->bytes + words->size_bytes);
}

/* Reads ASCII up to the end of a word, or of ASCII; true if a word ended. */
static bool read_ascii(fth_words *words)
{
    const fth_word_splitter *splitter = words->splitter;
    for (; words->at < words->end; words->at++) {
        uint8_t byte = *words->at;
        switch ((action)splitter->actions[byte]) {
        case LETTER:
            if (words->characters++ < (size_t)splitter->rules.longest)
                words->bytes[words->size_bytes++] = splitter->written[byte];
            break;
        case SKIP: break;
        case END_WORD:
            if (words->characters > 0)
                return true;
            break;
        case ALONE:
            if (words->characters == 0) {
                append(words, byte);
                words->at++;
            }
            return true;
        case BEYOND_ASCII: return false;
        }
    }
    return false;
}

/* The same from the queue, up to its end. */
static bool read_ready(fth_words *words)
{
    for (; words->ready_first < words->ready_count; words->ready_first++) {
        uint32_t character = words->ready[words->ready_first];
        switch (choose_action(fth_character_classify(character), false)) {
        case END_WORD:
            if (words->characters > 0)
                return true;
            break;
        case ALONE:
            if (words->characters == 0) {
                append(words, character);
                words->ready_first++;
            }
            return true;
        default: append(words, character); break;
        }
    }
    return false;
}

bool fth_words_next(fth_words *words, fth_word *word)
{
    bool ended = false;
    words->characters = 0;
    words->size_bytes = 0;
    while (!ended) {
        if (words->ready_first < words->ready_count) {
            ended = read_ready(words);
        } else if (words->mark_count == 0 && words->at < words->end && *words->at < 0x80) {
            ended = read_ascii(words);
        } else if (words->at < words->end) {
            normalize_next(words);
        } else if (words->mark_count > 0) {
            words->ready_first = words->ready_count = 0;
            push_marks(words);
        } else {
            break;
        }
    }
    *word = (fth_word){.bytes = words->bytes,
                       .size_bytes = words->size_bytes,
                       .too_long = words->characters > (size_t)words->splitter->rules.longest};
    return words->characters > 0;
}
