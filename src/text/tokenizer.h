/* Tokenizers: text to numbers, as BERT's models expect it.
 *
 * WordPiece over BERT's normalization and splitting into words, the same ids as Hugging Face's
 * `tokenizers` gives. Text may be anything: what is no UTF-8 is replaced as Python's
 * errors="replace" does, a word that is too long is unknown. A tokenizer does not change once it is
 * made, and any number of threads may use it. */
#ifndef FTH_TEXT_TOKENIZER_H
#define FTH_TEXT_TOKENIZER_H

#include <stdint.h>

#include "base/base.h"

typedef struct fth_tokenizer fth_tokenizer;

/* Opens a tokenizer.json or vocab.txt, or a folder that holds one of them, as models on the Hugging
 * Face hub do; beside a vocab.txt, tokenizer_config.json says whether it is lower-cased; without
 * one, a vocabulary with capital letters is not. What this does not do (other models than
 * WordPiece, other normalizers) is FTH_UNSUPPORTED and named. The caller frees *tokenizer with
 * fth_tokenizer_free(). */
fth_status fth_tokenizer_open(const char *path, fth_tokenizer **tokenizer);
/* The same from the text of a tokenizer.json; `origin` names it in errors. */
fth_status fth_tokenizer_parse(const char *json, size_t size_bytes, const char *origin, fth_tokenizer **tokenizer);
void fth_tokenizer_free(fth_tokenizer *tokenizer);

/* As a tokenizer.json that Hugging Face's `tokenizers` reads, compact; and as a vocab.txt. free()
 * it. */
char *fth_tokenizer_to_json(const fth_tokenizer *tokenizer);
char *fth_tokenizer_to_vocabulary(const fth_tokenizer *tokenizer);
bool fth_tokenizer_is_lower_case(const fth_tokenizer *tokenizer);

int fth_tokenizer_size(const fth_tokenizer *tokenizer);                      /* of its vocabulary: ids are below it */
const char *fth_tokenizer_get_token(const fth_tokenizer *tokenizer, int id); /* "##ing"; NULL if there is none */
int fth_tokenizer_find_token(const fth_tokenizer *tokenizer, const char *token); /* or -1 */

typedef struct fth_special_tokens {
    int padding, unknown, begin, separator,
        mask; /* [PAD], [UNK], [CLS], [SEP], [MASK]; -1: there is none of padding or mask */
} fth_special_tokens;
fth_special_tokens fth_tokenizer_get_special(const fth_tokenizer *tokenizer);

/* A growing list of ids; starts zeroed. */
typedef struct fth_token_list {
    int32_t *ids;
    size_t count, capacity;
} fth_token_list;
void fth_token_list_release(fth_token_list *list);

/* What a model gets: [CLS] text [SEP], and of a pair `second` [SEP] behind it; cut to `longest`
 * tokens (0: not cut) as Hugging Face's truncation=True does, the longer of a pair first. Added to
 * the end of `list`; *first_count of them are of segment 0. Any thread; lists are the caller's. */
typedef struct fth_text_pair {
    const char *first, *second; /* any bytes; `second` may be NULL */
    size_t first_bytes, second_bytes;
} fth_text_pair;
fth_status fth_tokenizer_encode(const fth_tokenizer *tokenizer, const fth_text_pair *text, int longest,
                                fth_token_list *list, size_t *first_count);

/* ---- learning a vocabulary (learn.c) ---- */

/* Counts the words of texts, any number of them, then chooses the `size` pieces that a WordPiece
 * vocabulary of them has: a pure function of the texts, whatever their order. Lower-cased, with the
 * special tokens of BERT. */
typedef struct fth_vocabulary_learner fth_vocabulary_learner;
fth_status fth_vocabulary_learner_create(fth_vocabulary_learner **learner);
void fth_vocabulary_learner_free(fth_vocabulary_learner *learner);
fth_status fth_vocabulary_learner_add(fth_vocabulary_learner *learner, const char *text, size_t size_bytes);
fth_status fth_vocabulary_learner_finish(fth_vocabulary_learner *learner, int size, fth_tokenizer **tokenizer);

#endif
