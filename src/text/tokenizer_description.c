/* The parts of a tokenizer while it is built: see tokenizer_internal.h. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_internal.h"

fth_status fth_tokenizer_description_complete(fth_tokenizer_description *description)
{
    struct {
        char **name;
        const char *usual;
    } names[] = {
        {&description->prefix, "##"},       {&description->unknown, "[UNK]"}, {&description->begin, "[CLS]"},
        {&description->separator, "[SEP]"}, {&description->padding, "[PAD]"}, {&description->mask, "[MASK]"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        if (!*names[i].name)
            *names[i].name = strdup(names[i].usual);
        if (!*names[i].name)
            return fth_fail(FTH_NO_MEMORY, "no memory for a tokenizer");
    }
    if (description->rules.longest == 0)
        description->rules.longest = 100;
    if (description->accents_follow_case)
        description->rules.strip_accents = description->rules.lower_case;
    return FTH_OK;
}

void fth_tokenizer_description_release(fth_tokenizer_description *description)
{
    for (size_t i = 0; i < description->token_count; i++)
        free(description->tokens[i]);
    for (size_t i = 0; i < description->added_count; i++)
        free(description->added[i].content);
    free(description->tokens);
    free(description->added);
    free(description->prefix);
    free(description->unknown);
    free(description->begin);
    free(description->separator);
    free(description->padding);
    free(description->mask);
    *description = (fth_tokenizer_description){0};
}

/* The longest word. An added token is searched at every position of a text, in time proportional to
 * its length. */
static fth_status check_size(const char *text)
{
    if (strlen(text) <= FTH_TOKEN_MAX_BYTES)
        return FTH_OK;
    return fth_fail(FTH_CORRUPT, "a token of %zu bytes, \"%.20s...\"; tokens have at most %d", strlen(text), text,
                    (int)FTH_TOKEN_MAX_BYTES);
}

fth_status fth_tokenizer_description_set_token(fth_tokenizer_description *description, int64_t id, const char *text,
                                               const char *origin)
{
    if (id < 0 || id >= FTH_TOKENIZER_MAX_IDS)
        return fth_fail(FTH_CORRUPT, "%s: token \"%s\" has id %lld; ids are below %d", origin, text, (long long)id,
                        FTH_TOKENIZER_MAX_IDS);
    fth_status status = check_size(text);
    if (status != FTH_OK)
        return fth_fail_within(status, "%s", origin);
    while (description->token_count <= (size_t)id) {
        status = fth_grow(&description->tokens, description->token_count, &description->token_capacity,
                          sizeof *description->tokens);
        if (status != FTH_OK)
            return status;
        description->tokens[description->token_count++] = NULL;
    }
    if (description->tokens[id])
        return fth_fail(FTH_CORRUPT, "%s: id %lld is given to both \"%s\" and \"%s\"", origin, (long long)id,
                        description->tokens[id], text);
    description->tokens[id] = strdup(text);
    return description->tokens[id] ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a vocabulary");
}

fth_status fth_tokenizer_description_add(fth_tokenizer_description *description, const fth_added_token *token)
{
    fth_status status = check_size(token->content);
    if (status != FTH_OK)
        return status;
    status = fth_grow(&description->added, description->added_count, &description->added_capacity,
                      sizeof *description->added);
    if (status != FTH_OK)
        return status;
    fth_added_token *added = &description->added[description->added_count];
    *added = *token;
    added->content = strdup(token->content);
    if (!added->content)
        return fth_fail(FTH_NO_MEMORY, "no memory for a vocabulary");
    description->added_count++;
    return FTH_OK;
}
