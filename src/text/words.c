/* See words.h. ASCII is copied from the text to the word by a table of actions. Any other character
 * is normalized into a queue (`ready`), from which words are made in the same way. Canonical order
 * sorts the marks between two other characters by their class. Most marks are accents, which are
 * removed; others wait in `marks` until the next character that is no mark. If there are more than
 * a word may have, it does not matter which are kept. */
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

void fth_word_reader_begin(fth_word_reader *reader, const fth_word_splitter *splitter, const char *text,
                           size_t size_bytes)
{
    reader->splitter = splitter;
    reader->at = (const uint8_t *)text;
    reader->end = reader->at + size_bytes;
    reader->characters = 0;
    reader->size_bytes = 0;
    reader->mark_count = 0;
    reader->ready_first = reader->ready_count = 0;
}

static void push(fth_word_reader *reader, uint32_t character)
{
    reader->ready[reader->ready_count++] = character;
}

static void push_lower(fth_word_reader *reader, uint32_t character)
{
    uint32_t lower[FTH_CHARACTER_MAX_LOWER] = {character};
    size_t count = reader->splitter->rules.lower_case ? fth_character_lower(character, lower) : 1;
    for (size_t i = 0; i < count; i++)
        push(reader, lower[i]);
}

/* Sorts the waiting marks by class, keeping the order within a class. */
static void push_marks(fth_word_reader *reader)
{
    uint32_t *marks = reader->marks;
    for (size_t i = 1; i < reader->mark_count; i++) {
        uint32_t mark = marks[i];
        size_t place = i;
        while (place > 0 && fth_character_combining_class(marks[place - 1]) > fth_character_combining_class(mark)) {
            marks[place] = marks[place - 1];
            place--;
        }
        marks[place] = mark;
    }
    for (size_t i = 0; i < reader->mark_count; i++)
        push_lower(reader, marks[i]);
    reader->mark_count = 0;
}

static void push_without_accents(fth_word_reader *reader, uint32_t character)
{
    uint32_t parts[FTH_CHARACTER_MAX_DECOMPOSED];
    size_t count = fth_character_decompose(character, parts);
    for (size_t i = 0; i < count; i++) {
        unsigned classes = fth_character_classify(parts[i]);
        if (classes & FTH_CHARACTER_ORDERED) {
            if (reader->mark_count <= (size_t)reader->splitter->rules.longest)
                reader->marks[reader->mark_count++] = parts[i];
            continue;
        }
        bool accent = classes & FTH_CHARACTER_ACCENT;
        if (reader->mark_count > 0 && !(accent && fth_character_combining_class(parts[i]) > 0))
            push_marks(reader);
        if (!accent)
            push_lower(reader, parts[i]);
    }
}

/* Reads one character of the text into the empty queue. */
static void normalize_next(fth_word_reader *reader)
{
    const fth_word_rules *rules = &reader->splitter->rules;
    uint32_t character;
    reader->at += fth_utf8_read(reader->at, reader->end, &character);
    unsigned classes = fth_character_classify(character);
    reader->ready_first = reader->ready_count = 0;
    if (rules->clean && (classes & FTH_CHARACTER_REMOVED))
        return;
    bool apart = rules->split_chinese && (classes & FTH_CHARACTER_CHINESE);
    if (apart) {
        push_marks(reader);
        push(reader, ' ');
    }
    if (rules->strip_accents)
        push_without_accents(reader, character);
    else
        push_lower(reader, character);
    if (apart)
        push(reader, ' ');
}

static void append(fth_word_reader *reader, uint32_t character)
{
    if (reader->characters++ < (size_t)reader->splitter->rules.longest)
        reader->size_bytes += fth_utf8_write(character, reader->bytes + reader->size_bytes);
}

/* Reads ASCII characters up to the end of a word or the first other one; true if a word ended. */
static bool read_ascii(fth_word_reader *reader)
{
    const fth_word_splitter *splitter = reader->splitter;
    for (; reader->at < reader->end; reader->at++) {
        uint8_t byte = *reader->at;
        switch ((action)splitter->actions[byte]) {
        case LETTER:
            if (reader->characters++ < (size_t)splitter->rules.longest)
                reader->bytes[reader->size_bytes++] = splitter->written[byte];
            break;
        case SKIP: break;
        case END_WORD:
            if (reader->characters > 0)
                return true;
            break;
        case ALONE:
            if (reader->characters == 0) {
                append(reader, byte);
                reader->at++;
            }
            return true;
        case BEYOND_ASCII: return false;
        }
    }
    return false;
}

/* The same from the queue. */
static bool read_ready(fth_word_reader *reader)
{
    for (; reader->ready_first < reader->ready_count; reader->ready_first++) {
        uint32_t character = reader->ready[reader->ready_first];
        switch (choose_action(fth_character_classify(character), false)) {
        case END_WORD:
            if (reader->characters > 0)
                return true;
            break;
        case ALONE:
            if (reader->characters == 0) {
                append(reader, character);
                reader->ready_first++;
            }
            return true;
        default: append(reader, character); break;
        }
    }
    return false;
}

bool fth_word_reader_next(fth_word_reader *reader, fth_word *word)
{
    bool ended = false;
    reader->characters = 0;
    reader->size_bytes = 0;
    while (!ended) {
        if (reader->ready_first < reader->ready_count) {
            ended = read_ready(reader);
        } else if (reader->mark_count == 0 && reader->at < reader->end && *reader->at < 0x80) {
            ended = read_ascii(reader);
        } else if (reader->at < reader->end) {
            normalize_next(reader);
        } else if (reader->mark_count > 0) {
            reader->ready_first = reader->ready_count = 0;
            push_marks(reader);
        } else {
            break;
        }
    }
    *word = (fth_word){.bytes = reader->bytes,
                       .size_bytes = reader->size_bytes,
                       .too_long = reader->characters > (size_t)reader->splitter->rules.longest};
    return reader->characters > 0;
}
