/* Opens tokenizers: a tokenizer.json, or a vocab.txt with a tokenizer_config.json beside it. In a
 * folder with both, tokenizer_config.json decides on case and accents, as in transformers. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/tokenizer_internal.h"
#include "text/utf8.h"

enum { MAX_FILE_BYTES = 64 << 20 };

/* ---- tokenizer_config.json ---- */

/* *config is NULL if there is no such file. */
static fth_status read_config(const char *folder, json_t **config)
{
    fth_status status = FTH_OK;
    char *path = fth_path_join(folder, "tokenizer_config.json"), *text = NULL;
    size_t size;
    json_error_t error;
    *config = NULL;
    if (!fth_file_exists(path))
        goto out;
    FTH_TRY(fth_file_read_all(path, MAX_FILE_BYTES, &text, &size));
    *config = json_loadb(text, size, 0, &error);
    FTH_REQUIRE(*config, FTH_CORRUPT, "%s is not JSON: %s, line %d", path, error.text, error.line);
out:
    free(text);
    free(path);
    return status;
}

static void apply_flag(const json_t *config, const char *key, bool *flag)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_boolean(value))
        *flag = json_is_true(value);
}

/* Case, accents and Chinese characters. */
static void apply_rules(const json_t *config, fth_tokenizer_description *description)
{
    apply_flag(config, "do_lower_case", &description->rules.lower_case);
    apply_flag(config, "tokenize_chinese_chars", &description->rules.split_chinese);
    if (json_is_boolean(json_object_get(config, "strip_accents"))) {
        description->accents_follow_case = false;
        apply_flag(config, "strip_accents", &description->rules.strip_accents);
    }
}

/* "cls_token": "[CLS]", or {"content": "[CLS]", ...}. */
static fth_status apply_name(const json_t *config, const char *key, char **name)
{
    const json_t *value = json_object_get(config, key);
    const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    if (!text)
        return FTH_OK;
    free(*name);
    *name = strdup(text);
    return *name ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a tokenizer");
}

static fth_status apply_names(const json_t *config, fth_tokenizer_description *description)
{
    fth_status status = FTH_OK;
    FTH_TRY(apply_name(config, "unk_token", &description->unknown));
    FTH_TRY(apply_name(config, "cls_token", &description->begin));
    FTH_TRY(apply_name(config, "sep_token", &description->separator));
    FTH_TRY(apply_name(config, "pad_token", &description->padding));
    FTH_TRY(apply_name(config, "mask_token", &description->mask));
out:
    return status;
}

/* ---- vocab.txt ---- */

static fth_status read_lines(char *text, size_t size_bytes, const char *origin, fth_tokenizer_description *description)
{
    char *end = text + size_bytes;
    int64_t number = 0;
    for (char *line = text, *next; line < end; line = next, number++) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        while (stop > line && strchr(" \t\r\v\f", stop[-1]) && stop[-1])
            stop--;
        if (!fth_utf8_is_valid(line, (size_t)(stop - line)) || memchr(line, '\0', (size_t)(stop - line)))
            return fth_fail(FTH_CORRUPT, "%s: line %lld is not text in UTF-8", origin, (long long)number + 1);
        *stop = '\0'; /* the end of the file has a NUL already */
        fth_status status = fth_tokenizer_description_set_token(description, number, line, origin);
        if (status != FTH_OK)
            return status;
    }
    return FTH_OK;
}

/* Special tokens of the vocabulary are found in text as well. */
static fth_status add_special(fth_tokenizer_description *description)
{
    const char *const names[] = {description->padding, description->unknown, description->begin, description->separator,
                                 description->mask};
    for (size_t id = 0; id < description->token_count; id++) {
        for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
            if (strcmp(description->tokens[id], names[i]) != 0)
                continue;
            fth_added_token token = {.content = description->tokens[id], .id = (int)id, .special = true};
            fth_status status = fth_tokenizer_description_add(description, &token);
            if (status != FTH_OK)
                return status;
            break;
        }
    }
    return FTH_OK;
}

/* By default a vocabulary with capital letters is not lower-cased. */
static bool has_capitals(const fth_tokenizer_description *description)
{
    for (size_t id = 0; id < description->token_count; id++) {
        const char *token = description->tokens[id];
        size_t size = strlen(token);
        bool special = size > 2 && token[0] == '[' && token[size - 1] == ']';
        for (const char *at = token; *at && !special; at++)
            if (*at >= 'A' && *at <= 'Z')
                return true;
    }
    return false;
}

static fth_status open_vocabulary(const char *path, const json_t *config, fth_tokenizer **tokenizer)
{
    fth_status status = FTH_OK;
    fth_tokenizer_description description = {.rules = {.clean = true, .split_chinese = true},
                                             .accents_follow_case = true};
    char *text = NULL;
    size_t size;
    FTH_TRY(fth_file_read_all(path, MAX_FILE_BYTES, &text, &size));
    FTH_REQUIRE(size > 0, FTH_CORRUPT, "%s is empty; expected one token on each line", path);
    FTH_TRY(read_lines(text, size, path, &description));
    description.rules.lower_case = !has_capitals(&description);
    apply_rules(config, &description);
    FTH_TRY(apply_names(config, &description));
    FTH_TRY(fth_tokenizer_description_complete(&description));
    FTH_TRY(add_special(&description));
    FTH_TRY(fth_tokenizer_create(&description, path, tokenizer));
out:
    fth_tokenizer_description_release(&description);
    free(text);
    return status;
}

/* ---- opening ---- */

static fth_status open_json(const char *path, const json_t *config, fth_tokenizer **tokenizer)
{
    fth_status status = FTH_OK;
    fth_tokenizer_description description = {0};
    char *text = NULL;
    size_t size;
    FTH_TRY(fth_file_read_all(path, MAX_FILE_BYTES, &text, &size));
    FTH_TRY(fth_tokenizer_description_parse(text, size, path, &description));
    apply_rules(config, &description);
    FTH_TRY(fth_tokenizer_create(&description, path, tokenizer));
out:
    fth_tokenizer_description_release(&description);
    free(text);
    return status;
}

static bool is_json(const char *path)
{
    size_t size = strlen(path);
    return size >= 5 && strcmp(path + size - 5, ".json") == 0;
}

fth_status fth_tokenizer_open(const char *path, fth_tokenizer **tokenizer)
{
    fth_status status = FTH_OK;
    json_t *config = NULL;
    bool folder = fth_folder_exists(path);
    char *beside = folder ? strdup(path) : fth_path_folder(path);
    char *json = fth_path_join(path, "tokenizer.json"), *vocabulary = fth_path_join(path, "vocab.txt");
    const char *file = !folder ? path : fth_file_exists(json) ? json : fth_file_exists(vocabulary) ? vocabulary : NULL;
    *tokenizer = NULL;
    FTH_REQUIRE(beside && json && vocabulary, FTH_NO_MEMORY, "no memory to open %s", path);
    FTH_REQUIRE(file, FTH_INVALID, "no tokenizer in %s; expected tokenizer.json or vocab.txt", path);
    if (folder || !is_json(file)) /* a single tokenizer.json is complete */
        FTH_TRY(read_config(beside, &config));
    FTH_TRY(is_json(file) ? open_json(file, config, tokenizer) : open_vocabulary(file, config, tokenizer));
out:
    json_decref(config);
    free(beside);
    free(json);
    free(vocabulary);
    return status;
}

fth_status fth_tokenizer_parse(const char *json, size_t size_bytes, const char *origin, fth_tokenizer **tokenizer)
{
    fth_tokenizer_description description = {0};
    *tokenizer = NULL;
    fth_status status = fth_tokenizer_description_parse(json, size_bytes, origin, &description);
    if (status == FTH_OK)
        status = fth_tokenizer_create(&description, origin, tokenizer);
    fth_tokenizer_description_release(&description);
    return status;
}
