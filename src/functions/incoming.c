/* See incoming.h. */
#include "functions/incoming.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bounds what a text of JSON can become in memory, before it does: each value but the first follows
 * one of these. */
static bool has_too_many_values(const char *text, size_t size_bytes)
{
    size_t values = 1;
    bool quoted = false;
    for (size_t i = 0; i < size_bytes; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && (text[i] == ',' || text[i] == '[' || text[i] == '{'))
            values++;
    }
    return values > FTH_INCOMING_MOST_VALUES;
}

static bool is_blank(const char *text, size_t size_bytes)
{
    size_t i = 0;
    while (i < size_bytes && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n'))
        i++;
    return i == size_bytes;
}

fth_status fth_incoming_parse(const void *bytes, size_t size_bytes, json_t **value)
{
    json_error_t error;
    *value = NULL;
    if (is_blank(bytes, size_bytes))
        return FTH_OK;
    if (size_bytes > FTH_INCOMING_MOST_BYTES)
        return fth_fail(FTH_INVALID, "the JSON has %zu bytes; at most %d are taken", size_bytes,
                        FTH_INCOMING_MOST_BYTES);
    if (has_too_many_values(bytes, size_bytes))
        return fth_fail(FTH_INVALID, "the JSON has more than %d values", FTH_INCOMING_MOST_VALUES);
    *value = json_loadb(bytes, size_bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (*value)
        return FTH_OK;
    /* What jansson says may quote the text, which may hold keys; where it stopped is enough. */
    const char *why = json_error_code(&error) == json_error_duplicate_key    ? "a key occurs twice"
                      : json_error_code(&error) == json_error_invalid_utf8   ? "invalid UTF-8"
                      : json_error_code(&error) == json_error_stack_overflow ? "nested too deeply"
                      : json_error_code(&error) == json_error_out_of_memory  ? "no memory"
                                                                             : "not valid JSON";
    return fth_fail(FTH_INVALID, "%s, at byte %d", why, error.position);
}

fth_status fth_incoming_deadline(const char *epoch_ms, double *deadline_s)
{
    *deadline_s = INFINITY;
    if (!epoch_ms || !*epoch_ms)
        return FTH_OK;
    char *end = NULL;
    errno = 0;
    double at_s = strtod(epoch_ms, &end) / 1000;
    const double year_9999_s = 253402300800.0;
    if (strspn(epoch_ms, "0123456789.eE+") != strlen(epoch_ms) || *end || errno || !(at_s >= 0 && at_s < year_9999_s))
        return fth_fail(FTH_INVALID, "the deadline \"%.40s\" is not a time in milliseconds since 1970", epoch_ms);
    *deadline_s = fth_clock_seconds() + (at_s - fth_clock_wall_seconds());
    return FTH_OK;
}

fth_status fth_incoming_set_variable(json_t *variables, const char *name, const json_t *value)
{
    fth_status status = FTH_OK;
    char *written = NULL;

    if (json_is_null(value))
        return FTH_OK;
    const char *text = json_string_value(value);
    if (!text)
        text = written = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    FTH_REQUIRE(text && json_object_set_new(variables, name, json_string(text)) == 0, FTH_NO_MEMORY,
                "no memory for a variable");

out:
    free(written);
    return status;
}

void fth_incoming_copy_name(char *copy, size_t size, const char *text)
{
    *copy = '\0';
    if (text && strlen(text) < size && fth_is_printable(text))
        strcpy(copy, text);
}
