/* Tokenizers turn text into numbers for BERT's models: WordPiece after BERT's normalization and
 * splitting, with the same ids as Hugging Face's `tokenizers`. Any text is valid: invalid UTF-8 is
 * replaced like Python's errors="replace", and words that are too long are unknown. A tokenizer is
 * immutable and can be used by any number of threads. */
#ifndef FTH_TEXT_TOKENIZER_H
#define FTH_TEXT_TOKENIZER_H

#include <stdint.h>

#include "base/base.h"

typedef struct fth_tokenizer fth_tokenizer;

/* Opens a tokenizer.json or vocab.txt, or a folder that holds one, as on the Hugging Face hub.
 * Beside a vocab.txt, tokenizer_config.json states whether it is lower-cased; without it, a
 * vocabulary with capital letters is not. Unsupported features (models other than WordPiece, other
 * normalizers) are FTH_UNSUPPORTED and named. The caller frees *tokenizer with
 * fth_tokenizer_free(). */
fth_status fth_tokenizer_open(const char *path, fth_tokenizer **tokenizer);
/* The same from the text of a tokenizer.json; `origin` names it in errors. */
fth_status fth_tokenizer_parse(const char *json, size_t size_bytes, const char *origin, fth_tokenizer **tokenizer);
void fth_tokenizer_free(fth_tokenizer *tokenizer);

/* As a compact tokenizer.json for Hugging Face's `tokenizers`; and as a vocab.txt. free() it. */
char *fth_tokenizer_to_json(const fth_tokenizer *tokenizer);
char *fth_tokenizer_to_vocabulary(const fth_tokenizer *tokenizer);
bool fth_tokenizer_is_lower_case(const fth_tokenizer *tokenizer);

int fth_tokenizer_size(const fth_tokenizer *tokenizer);                      /* of the vocabulary: ids are smaller */
const char *fth_tokenizer_get_token(const fth_tokenizer *tokenizer, int id); /* "##ing"; NULL if there is none */
int fth_tokenizer_find_token(const fth_tokenizer *tokenizer, const char *token); /* or -1 */

typedef struct fth_special_tokens {
    int padding, unknown, begin, separator, mask; /* [PAD], [UNK], [CLS], [SEP], [MASK]; -1: no padding or mask */
} fth_special_tokens;
fth_special_tokens fth_tokenizer_get_special(const fth_tokenizer *tokenizer);

/* A growing list of ids; starts zeroed. */
typedef struct fth_token_list {
    int32_t *ids;
    size_t count, capacity;
} fth_token_list;
void fth_token_list_release(fth_token_list *list);

/* The input of a model: [CLS] text [SEP], and for a pair also `second` [SEP]; cut to `longest`
 * tokens (0: not cut) like Hugging Face's truncation=True, the longer text first. Appended to
 * `list`; *first_count tokens are of segment 0. Any thread; lists are the caller's. */
typedef struct fth_text_pair {
    const char *first, *second; /* any bytes; `second` may be NULL */
    size_t first_bytes, second_bytes;
} fth_text_pair;
fth_status fth_tokenizer_encode(const fth_tokenizer *tokenizer, const fth_text_pair *text, int longest,
                                fth_token_list *list, size_t *first_count);

/* ---- learning a vocabulary (learn.c) ---- */

/* Counts the words of texts, then chooses the `size` pieces of a WordPiece vocabulary: a pure
 * function of the texts, whatever their order. Lower-cased, with BERT's special tokens. */
typedef struct fth_vocabulary_learner fth_vocabulary_learner;
fth_status fth_vocabulary_learner_create(fth_vocabulary_learner **learner);
void fth_vocabulary_learner_free(fth_vocabulary_learner *learner);
fth_status fth_vocabulary_learner_add(fth_vocabulary_learner *learner, const char *text, size_t size_bytes);
fth_status fth_vocabulary_learner_finish(fth_vocabulary_learner *learner, int size, fth_tokenizer **tokenizer);

#endif
