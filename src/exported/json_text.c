/* JSON as PyTorch writes it. Until 2.6 that is Python's, which has Infinity and NaN as bare words;
 * newer files have them as texts, and so does what is parsed here. */
#include <stdlib.h>
#include <string.h>

#include "exported/program_internal.h"

/* The length of the bare word at `at`, or 0. */
static size_t match_word(const char *at, size_t left)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    for (size_t i = 0; i < FTH_COUNT_OF(words); i++) {
        const size_t length = strlen(words[i]);
        if (left >= length && memcmp(at, words[i], length) == 0)
            return length;
    }
    return 0;
}

/* Copies `text` with bare words quoted, and gives the size of the copy; with `copy` NULL only the
 * latter. */
static size_t quote_words(const char *text, size_t size_bytes, char *copy)
{
    size_t used = 0;
    bool in_text = false;
    for (size_t i = 0; i < size_bytes; i++) {
        const size_t word = in_text ? 0 : match_word(text + i, size_bytes - i);
        const size_t taken = word ? word : in_text && text[i] == '\\' && i + 1 < size_bytes ? 2 : 1;
        if (text[i] == '"')
            in_text = !in_text;
        if (copy) {
            copy[used] = '"'; /* overwritten where there is no word */
            memcpy(copy + used + (word > 0), text + i, taken);
            if (word)
                copy[used + 1 + word] = '"';
        }
        used += taken + (word ? 2 : 0);
        i += taken - 1;
    }
    return used;
}

fth_status fth_exported_load_json(const char *text, size_t size_bytes, const char *origin, json_t **root)
{
    fth_status status = FTH_OK;
    json_error_t error;
    char *quoted = NULL;
    const size_t quoted_bytes = quote_words(text, size_bytes, NULL);

    if (quoted_bytes != size_bytes) {
        FTH_TRY(fth_allocate(quoted_bytes, 1, &quoted));
        quote_words(text, size_bytes, quoted);
        text = quoted;
    }
    *root = json_loadb(text, quoted_bytes, JSON_REJECT_DUPLICATES, &error);
    FTH_REQUIRE(*root, FTH_CORRUPT, "%s line %d, byte %d: %s", origin, error.line, error.position, error.text);
out:
    free(quoted);
    return status;
}
