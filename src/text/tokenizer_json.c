/* Reads and writes tokenizer.json, as Hugging Face's `tokenizers` does. Features that would change
 * ids and are not supported are refused by name. "truncation" and "padding" are ignored. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/tokenizer_internal.h"

/* ---- reading ---- */

static const char *get_type(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : json_is_null(part) || !part ? "none" : "unknown";
}

static fth_status refuse(const char *origin, const char *part, const char *type, const char *known)
{
    return fth_fail(FTH_UNSUPPORTED, "%s: unsupported %s %s; farthing reads tokenizers of BERT models, which have %s",
                    origin, part, type, known);
}

static fth_status copy_text(const char *text, char **copy)
{
    free(*copy);
    *copy = strdup(text);
    return *copy ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a tokenizer");
}

static bool get_flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* A BertNormalizer, alone or as the only one of a sequence; or none. */
static fth_status read_normalizer(const json_t *part, const char *origin, fth_tokenizer_description *description)
{
    const char *type = get_type(part);
    fth_word_rules *rules = &description->rules;
    if (strcmp(type, "Sequence") == 0 && json_array_size(json_object_get(part, "normalizers")) == 1)
        return read_normalizer(json_array_get(json_object_get(part, "normalizers"), 0), origin, description);
    if (strcmp(type, "none") == 0)
        return FTH_OK;
    if (strcmp(type, "BertNormalizer") != 0)
        return refuse(origin, "normalizer", type, "BertNormalizer");
    rules->clean = get_flag(part, "clean_text", true);
    rules->split_chinese = get_flag(part, "handle_chinese_chars", true);
    rules->lower_case = get_flag(part, "lowercase", true);
    description->accents_follow_case = !json_is_boolean(json_object_get(part, "strip_accents"));
    rules->strip_accents = get_flag(part, "strip_accents", false);
    return FTH_OK;
}

static fth_status read_model(const json_t *part, const char *origin, fth_tokenizer_description *description)
{
    const char *type = get_type(part), *text, *token;
    const json_t *vocabulary = json_object_get(part, "vocab"), *number;
    json_t *id;
    fth_status status = FTH_OK;
    if (strcmp(type, "WordPiece") != 0 && (strcmp(type, "unknown") != 0 || !json_is_object(vocabulary)))
        return refuse(origin, "model", type, "WordPiece");
    if (!json_is_object(vocabulary))
        return fth_fail(FTH_CORRUPT, "%s: its model has no \"vocab\"", origin);
    if ((text = json_string_value(json_object_get(part, "unk_token"))))
        FTH_TRY(copy_text(text, &description->unknown));
    if ((text = json_string_value(json_object_get(part, "continuing_subword_prefix"))))
        FTH_TRY(copy_text(text, &description->prefix));
    if ((number = json_object_get(part, "max_input_chars_per_word"))) {
        json_int_t longest = json_integer_value(number);
        if (longest < 1 || longest > FTH_WORD_MAX_CHARACTERS)
            return fth_fail(FTH_UNSUPPORTED, "%s: max_input_chars_per_word is not in 1..%d", origin,
                            FTH_WORD_MAX_CHARACTERS);
        description->rules.longest = (int)longest;
    }
    json_object_foreach((json_t *)vocabulary, token, id)
    {
        if (!json_is_integer(id))
            return fth_fail(FTH_CORRUPT, "%s: the id of token \"%s\" is not a whole number", origin, token);
        FTH_TRY(fth_tokenizer_description_set_token(description, json_integer_value(id), token, origin));
    }
out:
    return status;
}

static fth_status read_added(const json_t *list, const char *origin, fth_tokenizer_description *description)
{
    size_t i;
    json_t *entry;
    if (list && !json_is_null(list) && !json_is_array(list))
        return fth_fail(FTH_CORRUPT, "%s: \"added_tokens\" is not a list", origin);
    json_array_foreach((json_t *)list, i, entry)
    {
        const char *content = json_string_value(json_object_get(entry, "content"));
        const json_t *number = json_object_get(entry, "id");
        json_int_t id = json_is_integer(number) ? json_integer_value(number) : -1;
        fth_added_token token = {.content = (char *)content,
                                 .id = (int)id,
                                 .special = get_flag(entry, "special", false),
                                 .left_strip = get_flag(entry, "lstrip", false),
                                 .right_strip = get_flag(entry, "rstrip", false)};
        if (!content || !*content || id < 0 || id >= FTH_TOKENIZER_MAX_IDS)
            return fth_fail(FTH_CORRUPT, "%s: entry %zu of \"added_tokens\" has no content, or no id that is possible",
                            origin, i);
        const char *known = (size_t)id < description->token_count ? description->tokens[id] : NULL;
        if (known && strcmp(known, content) != 0)
            return fth_fail(FTH_CORRUPT, "%s: id %d is given to both \"%s\" and the added token \"%.100s\"", origin,
                            token.id, known, content);
        if (get_flag(entry, "normalized", !token.special) || get_flag(entry, "single_word", false))
            return fth_fail(FTH_UNSUPPORTED,
                            "%s: unsupported added token \"%s\", which is found in normalized text or as a word; "
                            "supported are those with \"normalized\" and \"single_word\" false",
                            origin, content);
        fth_status status = fth_tokenizer_description_add(description, &token);
        if (status != FTH_OK)
            return fth_fail_within(status, "%s", origin);
    }
    return FTH_OK;
}

/* One entry of a template: "[CLS]" for a special token, "A" or "B" for a text; its segment must be
 * `segment`. */
static const char *get_piece(const json_t *entry, const char *kind, int segment)
{
    const json_t *piece = json_object_get(entry, kind);
    const json_t *type = json_object_get(piece, "type_id");
    if (!piece || (type && json_integer_value(type) != segment))
        return NULL;
    return json_string_value(json_object_get(piece, "id"));
}

static bool is_piece(const json_t *entry, const char *kind, int segment, const char *expected)
{
    const char *piece = get_piece(entry, kind, segment);
    return piece && expected && strcmp(piece, expected) == 0;
}

/* [CLS] A [SEP], and [CLS] A [SEP] B [SEP]. */
static fth_status read_template(const json_t *part, const char *origin, fth_tokenizer_description *description)
{
    const json_t *single = json_object_get(part, "single"), *pair = json_object_get(part, "pair");
    const char *begin = get_piece(json_array_get(single, 0), "SpecialToken", 0);
    const char *separator = get_piece(json_array_get(single, 2), "SpecialToken", 0);
    bool usual = begin && separator && json_array_size(single) == 3 && json_array_size(pair) == 5 &&
                 is_piece(json_array_get(single, 1), "Sequence", 0, "A") &&
                 is_piece(json_array_get(pair, 0), "SpecialToken", 0, begin) &&
                 is_piece(json_array_get(pair, 1), "Sequence", 0, "A") &&
                 is_piece(json_array_get(pair, 2), "SpecialToken", 0, separator) &&
                 is_piece(json_array_get(pair, 3), "Sequence", 1, "B") &&
                 is_piece(json_array_get(pair, 4), "SpecialToken", 1, separator);
    if (!usual)
        return refuse(origin, "template of", "post_processor", "[CLS] A [SEP] and [CLS] A [SEP] B [SEP]");
    fth_status status = copy_text(begin, &description->begin);
    return status == FTH_OK ? copy_text(separator, &description->separator) : status;
}

static fth_status read_post_processor(const json_t *part, const char *origin, fth_tokenizer_description *description)
{
    const char *type = get_type(part);
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(part, origin, description);
    if (strcmp(type, "BertProcessing") != 0)
        return refuse(origin, "post_processor", type, "TemplateProcessing or BertProcessing");
    const char *begin = json_string_value(json_array_get(json_object_get(part, "cls"), 0));
    const char *separator = json_string_value(json_array_get(json_object_get(part, "sep"), 0));
    if (!begin || !separator)
        return fth_fail(FTH_CORRUPT, "%s: its post_processor has no \"cls\" and \"sep\"", origin);
    fth_status status = copy_text(begin, &description->begin);
    return status == FTH_OK ? copy_text(separator, &description->separator) : status;
}

fth_status fth_tokenizer_description_parse(const char *json, size_t size_bytes, const char *origin,
                                           fth_tokenizer_description *description)
{
    fth_status status = FTH_OK;
    json_error_t error;
    json_t *root = json_loadb(json, size_bytes, 0, &error);
    const char *padding = json_string_value(json_object_get(json_object_get(root, "padding"), "pad_token"));
    const char *splitting = get_type(json_object_get(root, "pre_tokenizer"));
    FTH_REQUIRE(root, FTH_CORRUPT, "%s is not JSON: %s, line %d", origin, error.text, error.line);
    FTH_REQUIRE(json_is_object(json_object_get(root, "model")), FTH_CORRUPT,
                "%s has no \"model\"; expected a tokenizer.json as Hugging Face's tokenizers writes it", origin);
    FTH_TRY(read_model(json_object_get(root, "model"), origin, description));
    FTH_TRY(read_normalizer(json_object_get(root, "normalizer"), origin, description));
    if (strcmp(splitting, "BertPreTokenizer") != 0)
        FTH_TRY(refuse(origin, "pre_tokenizer", splitting, "BertPreTokenizer"));
    FTH_TRY(read_added(json_object_get(root, "added_tokens"), origin, description));
    FTH_TRY(read_post_processor(json_object_get(root, "post_processor"), origin, description));
    if (padding)
        FTH_TRY(copy_text(padding, &description->padding));
out:
    json_decref(root);
    return status;
}

/* ---- writing ---- */

static json_t *describe_added(const fth_tokenizer_description *description)
{
    json_t *list = json_array();
    for (size_t i = 0; i < description->added_count; i++) {
        const fth_added_token *token = &description->added[i];
        json_array_append_new(list,
                              json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", token->id, "content", token->content,
                                        "single_word", false, "lstrip", token->left_strip, "rstrip", token->right_strip,
                                        "normalized", false, "special", token->special));
    }
    return list;
}

static json_t *describe_normalizer(const fth_tokenizer_description *description)
{
    const fth_word_rules *rules = &description->rules;
    return json_pack("{s:s,s:b,s:b,s:o,s:b}", "type", "BertNormalizer", "clean_text", rules->clean,
                     "handle_chinese_chars", rules->split_chinese, "strip_accents",
                     description->accents_follow_case ? json_null() : json_boolean(rules->strip_accents), "lowercase",
                     rules->lower_case);
}

static json_t *describe_special(const fth_tokenizer *tokenizer, const char *name)
{
    return json_pack("{s:s,s:[i],s:[s]}", "id", name, "ids", fth_tokenizer_find_token(tokenizer, name), "tokens", name);
}

static json_t *describe_template(const fth_tokenizer *tokenizer)
{
    const fth_tokenizer_description *description = fth_tokenizer_get_description(tokenizer);
    const char *begin = description->begin, *separator = description->separator;
    json_t *first = json_pack("[{s:{s:s,s:i}},{s:{s:s,s:i}},{s:{s:s,s:i}}]", "SpecialToken", "id", begin, "type_id", 0,
                              "Sequence", "id", "A", "type_id", 0, "SpecialToken", "id", separator, "type_id", 0);
    json_t *pair = json_copy(first);
    json_array_append_new(pair, json_pack("{s:{s:s,s:i}}", "Sequence", "id", "B", "type_id", 1));
    json_array_append_new(pair, json_pack("{s:{s:s,s:i}}", "SpecialToken", "id", separator, "type_id", 1));
    return json_pack("{s:s,s:o,s:o,s:{s:o,s:o}}", "type", "TemplateProcessing", "single", first, "pair", pair,
                     "special_tokens", begin, describe_special(tokenizer, begin), separator,
                     describe_special(tokenizer, separator));
}

static json_t *describe_model(const fth_tokenizer_description *description)
{
    json_t *vocabulary = json_object();
    for (size_t id = 0; id < description->token_count; id++)
        if (description->tokens[id])
            json_object_set_new(vocabulary, description->tokens[id], json_integer((json_int_t)id));
    return json_pack("{s:s,s:s,s:s,s:i,s:o}", "type", "WordPiece", "unk_token", description->unknown,
                     "continuing_subword_prefix", description->prefix, "max_input_chars_per_word",
                     description->rules.longest, "vocab", vocabulary);
}

char *fth_tokenizer_to_json(const fth_tokenizer *tokenizer)
{
    const fth_tokenizer_description *description = fth_tokenizer_get_description(tokenizer);
    json_t *root = json_pack("{s:s,s:n,s:n,s:o,s:o,s:{s:s},s:o,s:{s:s,s:s,s:b},s:o}", "version", "1.0", "truncation",
                             "padding", "added_tokens", describe_added(description), "normalizer",
                             describe_normalizer(description), "pre_tokenizer", "type", "BertPreTokenizer",
                             "post_processor", describe_template(tokenizer), "decoder", "type", "WordPiece", "prefix",
                             description->prefix, "cleanup", true, "model", describe_model(description));
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

char *fth_tokenizer_to_vocabulary(const fth_tokenizer *tokenizer)
{
    int size = fth_tokenizer_size(tokenizer);
    size_t bytes = 1;
    for (int id = 0; id < size; id++) {
        const char *token = fth_tokenizer_get_token(tokenizer, id);
        bytes += (token ? strlen(token) : 0) + 1;
    }
    char *text = malloc(bytes), *at = text;
    if (!text)
        return NULL;
    for (int id = 0; id < size; id++) {
        const char *token = fth_tokenizer_get_token(tokenizer, id);
        at = stpcpy(at, token ? token : "");
        *at++ = '\n';
    }
    *at = '\0';
    return text;
}
