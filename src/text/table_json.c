/* Reads rows of JSON lines. Fields are the values of the first object's keys, as text: numbers as
 * in JSON, true and false as 1 and 0, the items of an array one after the other. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/table_internal.h"

/* The code unit of an escape such as "\\ud83d" at `at`; -1 if there is none. */
static int read_escape(const char *at, const char *end)
{
    int unit = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, tolower((unsigned char)at[i]));
        if (!at[i] || !digit)
            return -1;
        unit = unit * 16 + (int)(digit - digits);
    }
    return unit;
}

/* Replaces half a surrogate pair, as Python's json.dumps() writes text cut within a character, by
 * U+FFFD, like other invalid bytes. False: there is none. */
static bool replace_lone_surrogates(char *line, size_t length)
{
    const char *end = line + length;
    bool replaced = false;
    for (char *at = line; (at = memchr(at, '\\', (size_t)(end - at)));) {
        const int unit = read_escape(at, end);
        if (unit < 0) {
            at += end - at > 1 ? 2 : 1;
            continue;
        }
        const int next = unit >= 0xd800 && unit < 0xdc00 ? read_escape(at + 6, end) : -1;
        if (next >= 0xdc00 && next < 0xe000) {
            at += 12;
            continue;
        }
        if (unit >= 0xd800 && unit < 0xe000) {
            memcpy(at, "\\ufffd", 6);
            replaced = true;
        }
        at += 6;
    }
    return replaced;
}

static json_t *load_line(const char *line, size_t length, json_error_t *error)
{
    json_t *json = json_loadb(line, length, JSON_ALLOW_NUL, error);
    char *copy = json ? NULL : strndup(line, length);
    /* A copy that is shorter contains NUL, which is not allowed. */
    if (copy && strlen(copy) == length && replace_lone_surrogates(copy, length))
        json = json_loadb(copy, length, JSON_ALLOW_NUL, error);
    free(copy);
    return json;
}

/* The object on the next line; *object is NULL for an empty line. */
static fth_status read_object(fth_text_table *table, json_t **object)
{
    fth_status status = FTH_OK;
    const char *line = table->bytes + table->at;
    size_t left = table->size_bytes - table->at;
    const char *newline = memchr(line, '\n', left);
    size_t length = newline ? (size_t)(newline - line) : left, blank = 0;
    json_error_t error;

    *object = NULL;
    while (blank < length && strchr(" \t\r", line[blank]) && line[blank])
        blank++;
    if (blank < length) {
        *object = load_line(line, length, &error);
        FTH_REQUIRE(*object, FTH_INVALID, "%s, line %zu: not JSON: %s%s", table->name, table->line, error.text,
                    table->line == 1 ? "; expected an object on each line, {\"text\": \"...\", \"label\": \"...\"}"
                                     : "");
        FTH_REQUIRE(json_is_object(*object), FTH_INVALID,
                    "%s, line %zu: expected an object, as {\"text\": \"...\", \"label\": \"...\"}", table->name,
                    table->line);
    }
    table->at += length + (newline != NULL);
    table->line++;

out:
    if (status != FTH_OK) {
        json_decref(*object);
        *object = NULL;
    }
    return status;
}

fth_status fth_text_table_read_keys(fth_text_table *table)
{
    fth_status status = FTH_OK;
    json_t *object = NULL, *value;
    const char *key;

    while (!object && table->at < table->size_bytes)
        FTH_TRY(read_object(table, &object));
    const size_t count = json_object_size(object);
    FTH_REQUIRE(count > 0 && count <= FTH_MAX_COLUMNS, FTH_INVALID,
                "%s: the first object has %zu keys; expected 1 to %d, as \"text\" and \"label\"", table->name, count,
                (int)FTH_MAX_COLUMNS);
    FTH_TRY(fth_allocate(count, sizeof *table->keys, &table->keys));
    FTH_TRY(fth_allocate(count, sizeof *table->key_fields, &table->key_fields));
    json_object_foreach(object, key, value)
    {
        table->keys[table->width] = strdup(key);
        FTH_REQUIRE(table->keys[table->width], FTH_NO_MEMORY, "%s: no memory for its columns", table->name);
        table->key_fields[table->width] =
            (fth_table_field){.text = table->keys[table->width], .size_bytes = strlen(key)};
        table->width++;
    }
    table->columns = (fth_table_row){.fields = table->key_fields, .count = table->width, .line = 1};
    fth_text_table_rewind(table);

out:
    json_decref(object);
    return status;
}

/* Adds a scalar value to the row's text. */
static fth_status add_scalar(fth_table_text *text, const json_t *value, bool *fits)
{
    char number[40];
    *fits = true;
    if (json_is_string(value))
        return fth_table_text_add(text, json_string_value(value), json_string_length(value));
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(number, sizeof number, "%d", json_is_true(value));
    else
        *fits = false;
    return *fits ? fth_table_text_add(text, number, strlen(number)) : FTH_OK;
}

static fth_status add_value(fth_text_table *table, const json_t *value)
{
    fth_status status = FTH_OK;
    const size_t begin = table->text.size;
    const char separator = FTH_FIELD_SEPARATOR;
    bool fits = true;

    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value) && fits; i++) {
            if (i > 0)
                FTH_TRY(fth_table_text_add(&table->text, &separator, 1));
            FTH_TRY(add_scalar(&table->text, json_array_get(value, i), &fits));
        }
    } else if (value && !json_is_null(value)) {
        FTH_TRY(add_scalar(&table->text, value, &fits));
    }
    fth_table_field field = {.missing = !value || json_is_null(value) || !fits, .list = json_is_array(value)};
    FTH_TRY(fth_text_table_add_copy(table, field, begin));

out:
    return status;
}

fth_status fth_text_table_read_json(fth_text_table *table, bool *found)
{
    fth_status status = FTH_OK;
    json_t *object = NULL;

    FTH_TRY(read_object(table, &object));
    for (int i = 0; object && i < table->width; i++)
        FTH_TRY(add_value(table, json_object_get(object, table->keys[i])));
    *found = object != NULL;

out:
    json_decref(object);
    return status;
}
