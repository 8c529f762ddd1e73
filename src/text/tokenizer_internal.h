/* The parts of a tokenizer: read from files (tokenizer_open.c, tokenizer_json.c) or learned
 * (learn.c), and written by tokenizer_json.c. */
#ifndef FTH_TEXT_TOKENIZER_INTERNAL_H
#define FTH_TEXT_TOKENIZER_INTERNAL_H

#include "text/tokenizer.h"
#include "text/words.h"

/* Ids take memory even without a token. */
enum { FTH_TOKENIZER_MAX_IDS = 1 << 22, FTH_TOKEN_MAX_BYTES = 4 * FTH_WORD_MAX_CHARACTERS };

/* A token that is found literally in the text, before anything else: [SEP]. */
typedef struct fth_added_token {
    char *content;
    int id;
    bool special, left_strip, right_strip; /* for other programs; they do not affect ids */
} fth_added_token;

/* Starts zeroed; owns its texts. */
typedef struct fth_tokenizer_description {
    fth_word_rules rules;
    bool accents_follow_case; /* rules.strip_accents was not given and equals rules.lower_case */
    char *prefix;             /* of pieces that continue a word: "##" */
    char *unknown, *begin, *separator, *padding, *mask;
    char **tokens; /* (token_count), by id; NULL: there is none */
    size_t token_count, token_capacity;
    fth_added_token *added;
    size_t added_count, added_capacity;
} fth_tokenizer_description;

/* BERT's defaults for missing values: clean, lower case, and the usual names. */
fth_status fth_tokenizer_description_complete(fth_tokenizer_description *description);
void fth_tokenizer_description_release(fth_tokenizer_description *description);

/* Sets the text of token `id`, copied. FTH_CORRUPT if it has another text, or the id is out of
 * range; `origin` names the file. */
fth_status fth_tokenizer_description_set_token(fth_tokenizer_description *description, int64_t id, const char *text,
                                               const char *origin);
/* Adds a token that is found literally in text; copied. */
fth_status fth_tokenizer_description_add(fth_tokenizer_description *description, const fth_added_token *token);

/* Reads and writes a tokenizer.json; release *description in any case. */
fth_status fth_tokenizer_description_parse(const char *json, size_t size_bytes, const char *origin,
                                           fth_tokenizer_description *description);

/* Takes ownership of `description`, even on failure. FTH_CORRUPT if a token that BERT needs is
 * missing. */
fth_status fth_tokenizer_create(fth_tokenizer_description *description, const char *origin, fth_tokenizer **tokenizer);
const fth_tokenizer_description *fth_tokenizer_get_description(const fth_tokenizer *tokenizer);

#endif
