/* Learns a vocabulary: see tokenizer.h. Words are counted and cut into characters, the most
 * frequent of which are the first pieces. Then the most frequent pair of neighbouring pieces is
 * merged, again and again, until there are enough pieces or no pair occurs twice.
 *
 * This is Hugging Face's WordPieceTrainer, except that words are taken in the order of their bytes
 * and equal pairs in the order of their ids, so that the result depends only on which words occur
 * and how often. */
#include <stdlib.h>
#include <string.h>

#include "text/pair_count.h"
#include "text/tokenizer_internal.h"
#include "text/trie.h"
#include "text/utf8.h"
#include "text/word_count.h"

#define PREFIX "##"
enum { PREFIX_BYTES = sizeof PREFIX - 1, MAX_VOCABULARY = 1 << 20 };
static const char *const special_tokens[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

struct fth_vocabulary_learner {
    fth_word_rules rules;
    fth_word_splitter splitter;
    fth_word_count *words;
};

fth_status fth_vocabulary_learner_create(fth_vocabulary_learner **learner)
{
    fth_status status = FTH_OK;
    fth_vocabulary_learner *made = NULL;
    *learner = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->rules = (fth_word_rules){
        .clean = true, .split_chinese = true, .strip_accents = true, .lower_case = true, .longest = 100};
    made->splitter = fth_word_splitter_make(&made->rules);
    FTH_TRY(fth_word_count_create(&made->words));
    *learner = made;
    made = NULL;
out:
    fth_vocabulary_learner_free(made);
    return status;
}

void fth_vocabulary_learner_free(fth_vocabulary_learner *learner)
{
    if (!learner)
        return;
    fth_word_count_free(learner->words);
    free(learner);
}

fth_status fth_vocabulary_learner_add(fth_vocabulary_learner *learner, const char *text, size_t size_bytes)
{
    fth_status status = FTH_OK;
    fth_word_reader words;
    fth_word word;
    fth_word_reader_begin(&words, &learner->splitter, text, size_bytes);
    while (status == FTH_OK && fth_word_reader_next(&words, &word))
        if (!word.too_long)
            status = fth_word_count_add(learner->words, word.bytes, word.size_bytes);
    return status;
}

/* ---- the first pieces: characters ---- */

typedef struct character_piece {
    char text[PREFIX_BYTES + 4 + 1];
    int64_t count;
} character_piece;

typedef struct alphabet {
    character_piece *pieces;
    size_t count, capacity;
    fth_trie *numbers; /* of pieces, by their text */
} alphabet;

/* The piece of the character at `at` of a word; returns the character's size. */
static size_t get_character_piece(const fth_counted_word *word, size_t at, char text[PREFIX_BYTES + 4 + 1])
{
    uint32_t character;
    const uint8_t *bytes = (const uint8_t *)word->bytes;
    size_t size = fth_utf8_read(bytes + at, bytes + word->size_bytes, &character);
    size_t prefix = at > 0 ? PREFIX_BYTES : 0;
    memcpy(text, PREFIX, prefix);
    memcpy(text + prefix, word->bytes + at, size);
    text[prefix + size] = '\0';
    return size;
}

static fth_status count_characters(alphabet *characters, const fth_counted_word *word)
{
    fth_status status = FTH_OK;
    for (size_t at = 0; at < word->size_bytes;) {
        character_piece piece = {.count = 0};
        at += get_character_piece(word, at, piece.text);
        int32_t number = fth_trie_find(characters->numbers, piece.text, strlen(piece.text));
        if (number < 0) {
            FTH_TRY(
                fth_grow(&characters->pieces, characters->count, &characters->capacity, sizeof *characters->pieces));
            number = (int32_t)characters->count++;
            characters->pieces[number] = piece;
            FTH_TRY(fth_trie_add(characters->numbers, piece.text, strlen(piece.text), number));
        }
        characters->pieces[number].count += word->count;
    }
out:
    return status;
}

static int compare_counts(const void *left, const void *right)
{
    const character_piece *a = left, *b = right;
    return a->count != b->count ? (a->count < b->count) - (a->count > b->count) : strcmp(a->text, b->text);
}

static int compare_texts(const void *left, const void *right)
{
    const character_piece *a = left, *b = right;
    bool a_inside = strncmp(a->text, PREFIX, PREFIX_BYTES) == 0 && a->text[PREFIX_BYTES];
    bool b_inside = strncmp(b->text, PREFIX, PREFIX_BYTES) == 0 && b->text[PREFIX_BYTES];
    return a_inside != b_inside ? a_inside - b_inside : strcmp(a->text, b->text);
}

/* ---- merging pieces ---- */

typedef struct split_word {
    size_t first, length; /* its pieces */
    int64_t count;
} split_word;

typedef struct vocabulary {
    fth_tokenizer_description description; /* the pieces so far */
    fth_trie *ids;                         /* of pieces, by their text */
    split_word *words;
    size_t word_count;
    int32_t *pieces; /* of all words, one after the other */
    size_t piece_count, piece_capacity;
    fth_pair_count *pairs;
} vocabulary;

static void release_vocabulary(vocabulary *made)
{
    fth_tokenizer_description_release(&made->description);
    fth_trie_free(made->ids);
    free(made->words);
    free(made->pieces);
    fth_pair_count_free(made->pairs);
}

/* The id of a piece, added to the vocabulary if it is new. */
static fth_status add_piece(vocabulary *made, const char *text, int32_t *id)
{
    fth_status status = FTH_OK;
    *id = fth_trie_find(made->ids, text, strlen(text));
    if (*id < 0) {
        *id = (int32_t)made->description.token_count;
        FTH_TRY(fth_tokenizer_description_set_token(&made->description, *id, text, "vocabulary"));
        FTH_TRY(fth_trie_add(made->ids, text, strlen(text), *id));
    }
out:
    return status;
}

/* Special tokens, then the most frequent characters, up to half of the vocabulary. */
static fth_status add_first_pieces(vocabulary *made, const fth_counted_word *words, size_t word_count, int size)
{
    fth_status status = FTH_OK;
    alphabet characters = {0};
    int32_t id;
    size_t room = (size_t)size / 2;
    for (size_t i = 0; i < FTH_COUNT_OF(special_tokens); i++) {
        FTH_TRY(add_piece(made, special_tokens[i], &id));
        fth_added_token token = {.content = made->description.tokens[id], .id = id, .special = true};
        FTH_TRY(fth_tokenizer_description_add(&made->description, &token));
    }
    FTH_TRY(fth_trie_create(&characters.numbers));
    for (size_t i = 0; i < word_count; i++)
        FTH_TRY(count_characters(&characters, &words[i]));
    if (characters.count > room) {
        qsort(characters.pieces, characters.count, sizeof *characters.pieces, compare_counts);
        characters.count = room;
    }
    if (characters.count > 0)
        qsort(characters.pieces, characters.count, sizeof *characters.pieces, compare_texts);
    for (size_t i = 0; i < characters.count; i++)
        FTH_TRY(add_piece(made, characters.pieces[i].text, &id));
out:
    free(characters.pieces);
    fth_trie_free(characters.numbers);
    return status;
}

/* A word with a character that is no piece is ignored: it will be unknown. */
static fth_status add_word(vocabulary *made, const fth_counted_word *word)
{
    split_word split = {.first = made->piece_count, .count = word->count};
    for (size_t at = 0; at < word->size_bytes;) {
        char text[PREFIX_BYTES + 4 + 1];
        at += get_character_piece(word, at, text);
        int32_t id = fth_trie_find(made->ids, text, strlen(text));
        if (id < 0) {
            made->piece_count = split.first;
            return FTH_OK;
        }
        fth_status status = fth_grow(&made->pieces, made->piece_count, &made->piece_capacity, sizeof *made->pieces);
        if (status != FTH_OK)
            return status;
        made->pieces[made->piece_count++] = id;
    }
    split.length = made->piece_count - split.first;
    made->words[made->word_count++] = split;
    return FTH_OK;
}

static fth_status count_pairs(vocabulary *made, uint32_t number)
{
    fth_status status = FTH_OK;
    const split_word *word = &made->words[number];
    const int32_t *pieces = made->pieces + word->first;
    for (size_t i = 0; i + 1 < word->length; i++)
        FTH_TRY(fth_pair_count_add(made->pairs, pieces[i], pieces[i + 1], number, word->count));
out:
    return status;
}

/* Merges two pieces wherever they are neighbours in a word. Only affected pairs are counted
 * again. */
static fth_status join_in_word(vocabulary *made, uint32_t number, const fth_frequent_pair *pair, int32_t joined)
{
    fth_status status = FTH_OK;
    split_word *word = &made->words[number];
    int32_t *pieces = made->pieces + word->first;
    bool joins[FTH_WORD_MAX_CHARACTERS + 1] = {false}; /* the piece is merged with another */
    size_t length = 0;
    for (size_t i = 0; i + 1 < word->length; i++)
        if (!joins[i] && pieces[i] == pair->left && pieces[i + 1] == pair->right)
            joins[i] = joins[i + 1] = true;
    for (size_t i = 0; i + 1 < word->length; i++)
        if (joins[i] || joins[i + 1])
            fth_pair_count_subtract(made->pairs, pieces[i], pieces[i + 1], word->count);
    for (size_t i = 0; i < word->length;) {
        bool join = joins[i];
        pieces[length] = join ? joined : pieces[i];
        joins[length++] = join; /* reused for the result: whether the piece was merged */
        i += join ? 2 : 1;
    }
    word->length = length;
    for (size_t i = 0; i + 1 < length; i++)
        if (joins[i] || joins[i + 1])
            FTH_TRY(fth_pair_count_add(made->pairs, pieces[i], pieces[i + 1], number, word->count));
out:
    return status;
}

static bool has_pair(const vocabulary *made, uint32_t number, const fth_frequent_pair *pair)
{
    const split_word *word = &made->words[number];
    const int32_t *pieces = made->pieces + word->first;
    for (size_t i = 0; i + 1 < word->length; i++)
        if (pieces[i] == pair->left && pieces[i + 1] == pair->right)
            return true;
    return false;
}

static fth_status join_pair(vocabulary *made, const fth_frequent_pair *pair)
{
    fth_status status = FTH_OK;
    char *const *tokens = made->description.tokens;
    char *text = fth_format("%s%s", tokens[pair->left], tokens[pair->right] + PREFIX_BYTES);
    int32_t joined;
    FTH_REQUIRE(text, FTH_NO_MEMORY, "no memory for a vocabulary");
    FTH_TRY(add_piece(made, text, &joined));
    for (size_t i = 0; i < pair->word_count; i++)
        if (has_pair(made, pair->words[i], pair))
            FTH_TRY(join_in_word(made, pair->words[i], pair, joined));
out:
    free(text);
    return status;
}

static fth_status join_pairs(vocabulary *made, int size)
{
    fth_status status = FTH_OK;
    fth_frequent_pair pair;
    for (size_t i = 0; i < made->word_count; i++)
        FTH_TRY(count_pairs(made, (uint32_t)i));
    while (made->description.token_count < (size_t)size) {
        FTH_TRY(fth_pair_count_take(made->pairs, &pair));
        if (pair.count < 2)
            break;
        FTH_TRY(join_pair(made, &pair));
    }
out:
    return status;
}

fth_status fth_vocabulary_learner_finish(fth_vocabulary_learner *learner, int size, fth_tokenizer **tokenizer)
{
    fth_status status = FTH_OK;
    vocabulary made = {.description = {.rules = learner->rules, .accents_follow_case = true}};
    const fth_counted_word *words;
    size_t count;
    *tokenizer = NULL;
    FTH_REQUIRE(size >= 16 && size <= MAX_VOCABULARY, FTH_INVALID,
                "cannot learn a vocabulary of %d tokens; choose a number from 16 to %d", size, MAX_VOCABULARY);
    FTH_TRY(fth_word_count_list(learner->words, &words, &count));
    FTH_REQUIRE(count > 0, FTH_INVALID, "cannot learn a vocabulary: the texts have no words");
    FTH_REQUIRE(count < UINT32_MAX, FTH_UNSUPPORTED, "cannot learn a vocabulary from %zu different words", count);
    FTH_TRY(fth_trie_create(&made.ids));
    FTH_TRY(fth_pair_count_create(&made.pairs));
    FTH_TRY(fth_allocate(count, sizeof *made.words, &made.words));
    FTH_TRY(add_first_pieces(&made, words, count, size));
    for (size_t i = 0; i < count; i++)
        FTH_TRY(add_word(&made, &words[i]));
    FTH_TRY(join_pairs(&made, size));
    FTH_TRY(fth_tokenizer_create(&made.description, "the vocabulary that was learned", tokenizer));
out:
    release_vocabulary(&made);
    return status;
}
