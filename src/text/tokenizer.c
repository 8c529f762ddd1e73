/* Encoding: added tokens are found first, literally; the text between them is split into words
 * (words.h), and each word into the longest pieces of the vocabulary, from its beginning. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_internal.h"
#include "text/trie.h"

struct fth_tokenizer {
    fth_tokenizer_description description;
    fth_word_splitter splitter;
    fth_special_tokens special;
    fth_trie *vocabulary;        /* all tokens for words, with their ids */
    fth_trie_place continuation; /* in it, after the prefix of pieces that continue a word */
    fth_trie *added;             /* tokens that are found literally, with their ids */
    bool begins_added[256];      /* by a token's first byte */
    int added_byte;              /* the only such byte; -1: there are several */
    const char **texts;          /* (size) by id; NULL: none */
    int size;
};

/* ---- making one ---- */

static fth_status fill_vocabulary(fth_tokenizer *tokenizer)
{
    const fth_tokenizer_description *description = &tokenizer->description;
    for (size_t id = 0; id < description->token_count; id++) {
        const char *token = description->tokens[id];
        fth_status status = token ? fth_trie_add(tokenizer->vocabulary, token, strlen(token), (int32_t)id) : FTH_OK;
        if (status != FTH_OK)
            return status;
    }
    tokenizer->continuation =
        fth_trie_follow(tokenizer->vocabulary, FTH_TRIE_START, description->prefix, strlen(description->prefix));
    tokenizer->size = (int)description->token_count;
    return FTH_OK;
}

static fth_status fill_added(fth_tokenizer *tokenizer)
{
    const fth_tokenizer_description *description = &tokenizer->description;
    int first_bytes = 0;
    tokenizer->added_byte = -1;
    for (size_t i = 0; i < description->added_count; i++) {
        const fth_added_token *token = &description->added[i];
        uint8_t first = (uint8_t)token->content[0];
        fth_status status = fth_trie_add(tokenizer->added, token->content, strlen(token->content), token->id);
        if (status != FTH_OK)
            return status;
        first_bytes += !tokenizer->begins_added[first];
        tokenizer->begins_added[first] = true;
        tokenizer->added_byte = first_bytes == 1 ? first : -1;
        if (token->id >= tokenizer->size)
            tokenizer->size = token->id + 1;
    }
    return FTH_OK;
}

static fth_status fill_texts(fth_tokenizer *tokenizer)
{
    const fth_tokenizer_description *description = &tokenizer->description;
    fth_status status = fth_allocate((size_t)tokenizer->size + 1, sizeof *tokenizer->texts, &tokenizer->texts);
    if (status != FTH_OK)
        return status;
    for (size_t i = 0; i < description->added_count; i++)
        tokenizer->texts[description->added[i].id] = description->added[i].content;
    for (size_t id = 0; id < description->token_count; id++)
        if (description->tokens[id])
            tokenizer->texts[id] = description->tokens[id];
    return FTH_OK;
}

static fth_status find_special(fth_tokenizer *tokenizer, const char *origin)
{
    const fth_tokenizer_description *description = &tokenizer->description;
    tokenizer->special = (fth_special_tokens){.padding = fth_tokenizer_find_token(tokenizer, description->padding),
                                              .unknown = fth_tokenizer_find_token(tokenizer, description->unknown),
                                              .begin = fth_tokenizer_find_token(tokenizer, description->begin),
                                              .separator = fth_tokenizer_find_token(tokenizer, description->separator),
                                              .mask = fth_tokenizer_find_token(tokenizer, description->mask)};
    const char *missing = tokenizer->special.unknown < 0     ? description->unknown
                          : tokenizer->special.begin < 0     ? description->begin
                          : tokenizer->special.separator < 0 ? description->separator
                                                             : NULL;
    if (missing)
        return fth_fail(FTH_CORRUPT, "%s has no token \"%s\"; expected the vocabulary of a BERT model", origin,
                        missing);
    return FTH_OK;
}

fth_status fth_tokenizer_create(fth_tokenizer_description *description, const char *origin, fth_tokenizer **tokenizer)
{
    fth_status status = FTH_OK;
    fth_tokenizer *made = NULL;
    *tokenizer = NULL;
    FTH_TRY(fth_tokenizer_description_complete(description));
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->description = *description;
    *description = (fth_tokenizer_description){0};
    made->splitter = fth_word_splitter_make(&made->description.rules);
    FTH_TRY(fth_trie_create(&made->vocabulary));
    FTH_TRY(fth_trie_create(&made->added));
    FTH_TRY(fill_vocabulary(made));
    FTH_TRY(fill_added(made));
    FTH_TRY(fill_texts(made));
    FTH_TRY(find_special(made, origin));
    *tokenizer = made;
    made = NULL;
out:
    fth_tokenizer_free(made);
    fth_tokenizer_description_release(description);
    return status;
}

void fth_tokenizer_free(fth_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    fth_trie_free(tokenizer->vocabulary);
    fth_trie_free(tokenizer->added);
    free(tokenizer->texts);
    fth_tokenizer_description_release(&tokenizer->description);
    free(tokenizer);
}

/* ---- properties ---- */

const fth_tokenizer_description *fth_tokenizer_get_description(const fth_tokenizer *tokenizer)
{
    return &tokenizer->description;
}

bool fth_tokenizer_is_lower_case(const fth_tokenizer *tokenizer)
{
    return tokenizer->description.rules.lower_case;
}

int fth_tokenizer_size(const fth_tokenizer *tokenizer)
{
    return tokenizer->size;
}

const char *fth_tokenizer_get_token(const fth_tokenizer *tokenizer, int id)
{
    return id >= 0 && id < tokenizer->size ? tokenizer->texts[id] : NULL;
}

int fth_tokenizer_find_token(const fth_tokenizer *tokenizer, const char *token)
{
    int32_t added = fth_trie_find(tokenizer->added, token, strlen(token));
    return added >= 0 ? added : fth_trie_find(tokenizer->vocabulary, token, strlen(token));
}

fth_special_tokens fth_tokenizer_get_special(const fth_tokenizer *tokenizer)
{
    return tokenizer->special;
}

/* ---- encoding ---- */

static fth_status push(fth_token_list *list, int32_t id)
{
    if (list->count == list->capacity) {
        fth_status status = fth_grow(&list->ids, list->count, &list->capacity, sizeof *list->ids);
        if (status != FTH_OK)
            return status;
    }
    list->ids[list->count++] = id;
    return FTH_OK;
}

/* Adds the pieces of a word, or the unknown token. */
static fth_status push_word(const fth_tokenizer *tokenizer, const fth_word *word, fth_token_list *list)
{
    size_t first = list->count, matched;
    fth_trie_place place = FTH_TRIE_START;
    for (size_t at = 0; at < word->size_bytes && !word->too_long; at += matched) {
        int32_t id = fth_trie_match(tokenizer->vocabulary, place, word->bytes + at, word->size_bytes - at, &matched);
        fth_status status = id < 0 ? FTH_OK : push(list, id);
        if (status != FTH_OK)
            return status;
        if (id < 0) {
            list->count = first;
            break;
        }
        place = tokenizer->continuation;
    }
    return list->count > first ? FTH_OK : push(list, tokenizer->special.unknown);
}

/* Adds the tokens of text without added tokens until the list has `most`; it may get a few more. */
static fth_status push_plain(const fth_tokenizer *tokenizer, const char *text, size_t size_bytes, size_t most,
                             fth_token_list *list)
{
    fth_status status = FTH_OK;
    fth_word_reader words;
    fth_word word;
    fth_word_reader_begin(&words, &tokenizer->splitter, text, size_bytes);
    while (status == FTH_OK && list->count < most && fth_word_reader_next(&words, &word))
        status = push_word(tokenizer, &word, list);
    return status;
}

/* The next added token from `at` on: its position, id and size; `end` if there is none. */
static const char *find_added(const fth_tokenizer *tokenizer, const char *at, const char *end, int32_t *id,
                              size_t *size_bytes)
{
    for (; at < end; at++) {
        if (tokenizer->added_byte >= 0) {
            at = memchr(at, tokenizer->added_byte, (size_t)(end - at));
            if (!at)
                return end;
        } else if (!tokenizer->begins_added[(uint8_t)*at]) {
            continue;
        }
        *id = fth_trie_match(tokenizer->added, FTH_TRIE_START, at, (size_t)(end - at), size_bytes);
        if (*id >= 0)
            return at;
    }
    return end;
}

/* Adds the first `most` tokens of a text. */
static fth_status push_text(const fth_tokenizer *tokenizer, const char *text, size_t size_bytes, size_t most,
                            fth_token_list *list)
{
    size_t limit = most > SIZE_MAX - list->count ? SIZE_MAX : list->count + most;
    const char *end = text + size_bytes;
    for (const char *at = text; at < end && list->count < limit;) {
        int32_t id = -1;
        size_t added_bytes = 0;
        const char *added = find_added(tokenizer, at, end, &id, &added_bytes);
        fth_status status = push_plain(tokenizer, at, (size_t)(added - at), limit, list);
        if (status == FTH_OK && id >= 0)
            status = push(list, id);
        if (status != FTH_OK)
            return status;
        at = added + added_bytes;
    }
    if (list->count > limit)
        list->count = limit;
    return FTH_OK;
}

/* How many tokens of a pair are kept, `room` in all: the longer text is cut first. */
static void share_room(size_t room, size_t *first, size_t *second)
{
    size_t *shorter = *first <= *second ? first : second;
    size_t *longer = shorter == first ? second : first;
    if (*first + *second <= room)
        return;
    if (*shorter > room / 2) {
        *shorter = room / 2;
        *longer = room - room / 2;
    } else {
        *longer = room - *shorter;
    }
}

static fth_status encode(const fth_tokenizer *tokenizer, const fth_text_pair *text, size_t room, fth_token_list *list,
                         size_t *first_count)
{
    const fth_special_tokens *special = &tokenizer->special;
    fth_status status = FTH_OK;
    size_t start = list->count;
    FTH_TRY(push(list, special->begin));
    FTH_TRY(push_text(tokenizer, text->first, text->first_bytes, text->second ? SIZE_MAX : room, list));
    FTH_TRY(push(list, special->separator));
    *first_count = list->count - start;
    if (text->second) {
        size_t second_start = list->count;
        size_t first = second_start - start - 2;
        FTH_TRY(push_text(tokenizer, text->second, text->second_bytes, SIZE_MAX, list));
        size_t second = list->count - second_start;
        share_room(room, &first, &second);
        int32_t *ids = list->ids + start + 1; /* of the first text */
        ids[first] = special->separator;
        memmove(ids + first + 1, list->ids + second_start, second * sizeof *ids);
        list->count = start + 1 + first + 1 + second;
        *first_count = first + 2;
        FTH_TRY(push(list, special->separator));
    }
out:
    if (status != FTH_OK)
        list->count = start;
    return status;
}

fth_status fth_tokenizer_encode(const fth_tokenizer *tokenizer, const fth_text_pair *text, int longest,
                                fth_token_list *list, size_t *first_count)
{
    int added = text->second ? 3 : 2;
    if (longest < 0 || (longest > 0 && longest < added))
        return fth_fail(FTH_INVALID, "a length of %d tokens leaves no room for text: %d are [CLS] and [SEP]", longest,
                        added);
    return encode(tokenizer, text, longest == 0 ? SIZE_MAX : (size_t)(longest - added), list, first_count);
}
