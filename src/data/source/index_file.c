/* See index_file.h. */
#include "data/source/index_file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_COLUMNS = 64 };

static bool ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), wanted = strlen(ending);
    return length > wanted && strcasecmp(name + length - wanted, ending) == 0;
}

bool fth_index_file_fits(const char *name)
{
    return ends_with(name, ".csv") || ends_with(name, ".jsonl");
}

/* Checks that apply to every row. */
typedef struct row_check {
    const char *name;
    fth_status (*visit)(void *context, const fth_index_row *row);
    void *context;
    size_t rows;
    bool has_splits;
} row_check;

static fth_status check_row(row_check *check, fth_index_row *row)
{
    static const char *const splits[] = {"train", "training", "val", "valid", "validation", "test"};
    fth_status status = FTH_OK;
    bool known = !*row->split;

    while (strncmp(row->path, "./", 2) == 0)
        row->path += 2;
    FTH_REQUIRE(*row->path && *row->label, FTH_INVALID, "%s, line %zu: expected a path and a label", check->name,
                row->line);
    FTH_REQUIRE(row->path[0] != '/' && !strstr(row->path, "://"), FTH_INVALID,
                "%s, line %zu: the path %s is not relative to the index file", check->name, row->line, row->path);
    FTH_REQUIRE(!strchr(row->label, '/') && row->label[0] != '.' && strcmp(row->label, "__MACOSX") != 0, FTH_INVALID,
                "%s, line %zu: '%s' cannot be the name of a class", check->name, row->line, row->label);
    for (size_t i = 0; i < FTH_COUNT_OF(splits); i++)
        known = known || strcmp(row->split, splits[i]) == 0;
    FTH_REQUIRE(known, FTH_INVALID, "%s, line %zu: unknown split '%s': expected train, val or test", check->name,
                row->line, row->split);
    FTH_REQUIRE(check->rows == 0 || check->has_splits == (*row->split != '\0'), FTH_INVALID,
                "%s, line %zu: some rows have a split and others have none", check->name, row->line);
    check->has_splits = *row->split != '\0';
    check->rows++;
    FTH_TRY(check->visit(check->context, row));

out:
    return status;
}

/* ---- CSV ---- */

/* Splits a record into fields, unquoted in place; *rest is the text after it, *lines the number of
 * its lines. False if there are too many fields or a quote is not closed. */
static bool read_record(char **rest, char *fields[MAX_COLUMNS], int *count, size_t *lines)
{
    char *at = *rest, *to;
    *count = 0;
    *lines = 1;
    for (;;) {
        if (*count == MAX_COLUMNS)
            return false;
        fields[(*count)++] = to = at;
        if (*at == '"') {
            for (at++; *at && (*at != '"' || at[1] == '"'); at++) {
                at += *at == '"';
                *lines += *at == '\n';
                *to++ = *at;
            }
            if (*at++ != '"')
                return false;
        }
        while (*at && *at != ',' && *at != '\n' && *at != '\r')
            *to++ = *at++;
        char end = *at;
        if (end)
            at++;
        if (end == '\r' && *at == '\n')
            at++;
        *to = '\0';
        if (end != ',')
            break;
    }
    *rest = at;
    return true;
}

/* Positions of path, label and split; -1: absent. */
typedef struct csv_columns {
    int path, label, split;
} csv_columns;

static bool read_heading(char *const *fields, int count, csv_columns *columns)
{
    csv_columns found = {-1, -1, -1};
    for (int i = 0; i < count; i++) {
        if (strcasecmp(fields[i], "path") == 0)
            found.path = i;
        else if (strcasecmp(fields[i], "label") == 0)
            found.label = i;
        else if (strcasecmp(fields[i], "split") == 0)
            found.split = i;
    }
    if (found.path < 0 || found.label < 0)
        return false;
    *columns = found;
    return true;
}

static fth_status read_csv(char *text, row_check *check)
{
    fth_status status = FTH_OK;
    csv_columns columns = {0, 1, 2};
    size_t line = 1, lines = 1;
    for (char *rest = text; *rest; line += lines) {
        char *fields[MAX_COLUMNS];
        int count = 0;
        FTH_REQUIRE(read_record(&rest, fields, &count, &lines), FTH_INVALID,
                    "%s, line %zu: a quote is not closed, or there are more than %d columns", check->name, line,
                    (int)MAX_COLUMNS);
        if ((count == 1 && !*fields[0]) || fields[0][0] == '#' || (line == 1 && read_heading(fields, count, &columns)))
            continue;
        FTH_REQUIRE(columns.path < count && columns.label < count, FTH_INVALID,
                    "%s, line %zu: expected path,label or path,label,split", check->name, line);
        fth_index_row row = {.path = fields[columns.path],
                             .label = fields[columns.label],
                             .split = columns.split >= 0 && columns.split < count ? fields[columns.split] : "",
                             .line = line};
        FTH_TRY(check_row(check, &row));
    }

out:
    return status;
}

/* ---- JSON lines ---- */

static fth_status read_object(const json_t *object, size_t line, row_check *check)
{
    fth_status status = FTH_OK;
    char number[32];
    const json_t *label = json_object_get(object, "label");
    const char *path = json_string_value(json_object_get(object, "path"));
    const char *split = json_string_value(json_object_get(object, "split")), *named = json_string_value(label);
    if (json_is_integer(label) && json_integer_value(label) >= 0) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(label));
        named = number;
    }
    FTH_REQUIRE(path && named, FTH_INVALID,
                "%s, line %zu: expected {\"path\": \"a/1.jpg\", \"label\": \"cat\"}, with a name or a number from 0 on",
                check->name, line);
    FTH_TRY(
        check_row(check, &(fth_index_row){.path = path, .label = named, .split = split ? split : "", .line = line}));

out:
    return status;
}

static fth_status read_json_lines(char *text, row_check *check)
{
    fth_status status = FTH_OK;
    json_t *object = NULL;
    size_t line = 1;
    for (char *at = text; *at; line++) {
        char *end = at + strcspn(at, "\n"), *next = *end ? end + 1 : end;
        *end = '\0';
        if (at[strspn(at, " \t\r")]) {
            json_error_t error;
            object = json_loads(at, JSON_REJECT_DUPLICATES, &error);
            FTH_REQUIRE(object, FTH_INVALID, "%s, line %zu: not JSON: %s", check->name, line, error.text);
            FTH_TRY(read_object(object, line, check));
            json_decref(object);
            object = NULL;
        }
        at = next;
    }

out:
    json_decref(object);
    return status;
}

fth_status fth_index_file_read(char *text, const char *name, fth_status (*visit)(void *context, const fth_index_row *),
                               void *context)
{
    fth_status status = FTH_OK;
    row_check check = {.name = name, .visit = visit, .context = context};
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3;
    FTH_TRY((ends_with(name, ".csv") ? read_csv : read_json_lines)(text, &check));
    FTH_REQUIRE(check.rows > 0, FTH_INVALID, "%s has no rows", name);

out:
    return status;
}
