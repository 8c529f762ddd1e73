/* See columns.h. */
#include "text/columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LOOKED_AT = 100 }; /* rows that determine whether a column is numeric */

static const char *const usual_pairs[][2] = {
    {"sentence1", "sentence2"}, {"premise", "hypothesis"}, {"question1", "question2"}, {"question", "sentence"},
    {"question", "passage"},    {"text_a", "text_b"},      {"text1", "text2"},         {"query", "passage"},
};
static const char *const usual_joined[][2] = {{"title", "description"}, {"title", "content"}};
static const char *const usual_texts[] = {"text",  "sentence", "review", "content", "comment_text", "comment",
                                          "tweet", "document", "body",   "message", "question",     "headline"};
static const char *const usual_labels[] = {"label",  "labels",    "class",  "class index", "category",
                                           "target", "sentiment", "topic",  "score",       "rating",
                                           "stars",  "intent",    "emotion"};

/* ---- what a table looks like ---- */

/* The names of the columns, if known, and which columns are numeric. */
typedef struct table_look {
    fth_text_table *table;
    int width;
    bool *numbers; /* (width) in the rows looked at, except the first if there are others */
    bool heading;
    char **names; /* (width) from the heading */
} table_look;

static bool is_number(const fth_table_field *field)
{
    char text[64], *end;
    if (field->missing || field->list || field->size_bytes == 0 || field->size_bytes >= sizeof text)
        return false;
    memcpy(text, field->text, field->size_bytes);
    text[field->size_bytes] = '\0';
    strtod(text, &end);
    return end != text && *end == '\0';
}

static bool is_usual(const fth_table_field *field)
{
    for (size_t i = 0; i < FTH_COUNT_OF(usual_texts); i++)
        if (fth_table_field_is(field, usual_texts[i]))
            return true;
    for (size_t i = 0; i < FTH_COUNT_OF(usual_labels); i++)
        if (fth_table_field_is(field, usual_labels[i]))
            return true;
    for (size_t i = 0; i < FTH_COUNT_OF(usual_pairs); i++)
        if (fth_table_field_is(field, usual_pairs[i][0]) || fth_table_field_is(field, usual_pairs[i][1]))
            return true;
    return fth_table_field_is(field, "title");
}

/* True if `field` is one of the comma-separated names, or the whole list. */
static bool is_asked_for(const fth_table_field *field, const char *list)
{
    if (!list || !*list || is_number(field))
        return false;
    if (fth_table_field_is(field, list))
        return true;
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        if (length > 0 && length == field->size_bytes && strncasecmp(at, field->text, length) == 0)
            return true;
        at += length + (at[length] == ',');
    }
    return false;
}

static fth_status keep_names(table_look *look, const fth_table_row *row)
{
    fth_status status = fth_allocate((size_t)row->count, sizeof *look->names, &look->names);
    for (int i = 0; status == FTH_OK && i < row->count; i++) {
        look->names[i] = strndup(row->fields[i].text, row->fields[i].size_bytes);
        if (!look->names[i])
            status = fth_fail(FTH_NO_MEMORY, "no memory for the names of columns");
    }
    look->heading = true;
    return status;
}

/* Whether the table's first row is a heading. */
static fth_status judge_first_row(table_look *look, const fth_column_names *names, bool *heading)
{
    fth_status status = FTH_OK;
    const fth_table_row *row = NULL;
    bool *first_numbers = NULL;

    FTH_TRY(fth_text_table_next(look->table, &row));
    FTH_REQUIRE(row, FTH_INVALID, "%s has no rows", fth_text_table_name(look->table));
    look->width = row->count;
    FTH_TRY(fth_allocate((size_t)row->count, sizeof *first_numbers, &first_numbers));
    FTH_TRY(fth_allocate((size_t)row->count, sizeof *look->numbers, &look->numbers));
    for (int i = 0; i < row->count; i++) {
        const fth_table_field *field = &row->fields[i];
        look->numbers[i] = first_numbers[i] = is_number(field);
        *heading = *heading || is_usual(field) || is_asked_for(field, names->text) ||
                   is_asked_for(field, names->pair) || is_asked_for(field, names->label);
    }
    for (int n = 0; n < LOOKED_AT; n++) {
        FTH_TRY(fth_text_table_next(look->table, &row));
        for (int i = 0; row && i < row->count; i++)
            look->numbers[i] = (n == 0 || look->numbers[i]) && is_number(&row->fields[i]);
        if (!row)
            break;
    }
    for (int i = 0; i < look->width; i++)
        *heading = *heading || (look->numbers[i] && !first_numbers[i]);

out:
    free(first_numbers);
    return status;
}

static void look_release(table_look *look)
{
    for (int i = 0; look->names && i < look->width; i++)
        free(look->names[i]);
    free(look->names);
    free(look->numbers);
}

static fth_status look_at(fth_text_table *table, const fth_column_names *names, table_look *look)
{
    fth_status status = FTH_OK;
    const fth_table_row *row = fth_text_table_columns(table);
    bool heading = false;

    *look = (table_look){.table = table};
    fth_text_table_rewind(table);
    if (row) { /* JSON lines: all rows are data */
        look->width = row->count;
        FTH_TRY(keep_names(look, row));
        goto out;
    }
    FTH_TRY(judge_first_row(look, names, &heading));
    fth_text_table_rewind(table);
    if (heading) {
        FTH_TRY(fth_text_table_next(table, &row));
        FTH_TRY(keep_names(look, row));
    }

out:
    return status;
}

/* ---- finding columns ---- */

static int find_name(const table_look *look, const char *name, size_t length)
{
    for (int i = 0; look->heading && i < look->width; i++)
        if (strlen(look->names[i]) == length && strncasecmp(look->names[i], name, length) == 0)
            return i;
    return -1;
}

static fth_status fail_columns(const table_look *look, const char *what)
{
    char list[512] = "";
    for (int i = 0; look->heading && i < look->width; i++) {
        size_t used = strlen(list);
        if (used + strlen(look->names[i]) + 8 > sizeof list) {
            snprintf(list + used, sizeof list - used, ", ...");
            break;
        }
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", look->names[i]);
    }
    return look->heading
               ? fth_fail(FTH_INVALID, "%s: %s; its columns are %s", fth_text_table_name(look->table), what, list)
               : fth_fail(FTH_INVALID, "%s: %s; it has %s and no heading", fth_text_table_name(look->table), what,
                          FTH_COUNTED(look->width, "column"));
}

static fth_status add_column(const table_look *look, fth_column_list *list, int column, int most)
{
    if (list->count == most)
        return fail_columns(look, "more columns are asked for than can be used");
    list->columns[list->count++] = column;
    return FTH_OK;
}

/* The columns of the user's list: names and numbers, separated by commas. */
static fth_status find_asked(const table_look *look, const char *asked, const char *option, int most,
                             fth_column_list *list)
{
    int whole = find_name(look, asked, strlen(asked));
    if (whole >= 0)
        return add_column(look, list, whole, most);
    for (const char *at = asked; *at;) {
        size_t length = strcspn(at, ",");
        int column = find_name(look, at, length);
        char *end;
        long number = strtol(at, &end, 10);
        if (column < 0 && length > 0 && end == at + length && number >= 1 && number <= look->width)
            column = (int)number - 1;
        if (column < 0) {
            char what[256];
            snprintf(what, sizeof what, "there is no column '%.*s', which %s asks for",
                     (int)(length < 100 ? length : 100), at, option);
            return fail_columns(look, what);
        }
        fth_status status = add_column(look, list, column, most);
        if (status != FTH_OK)
            return status;
        at += length + (at[length] == ',');
    }
    return FTH_OK;
}

static bool find_two(const table_look *look, const char *const names[2], int found[2])
{
    found[0] = find_name(look, names[0], strlen(names[0]));
    found[1] = find_name(look, names[1], strlen(names[1]));
    return found[0] >= 0 && found[1] >= 0;
}

static void find_usual_text(const table_look *look, fth_columns *columns)
{
    int found[2];
    for (size_t i = 0; columns->pair.count == 0 && i < FTH_COUNT_OF(usual_pairs); i++)
        if (find_two(look, usual_pairs[i], found)) {
            columns->text = (fth_column_list){1, {found[0]}};
            columns->pair = (fth_column_list){1, {found[1]}};
            return;
        }
    for (size_t i = 0; i < FTH_COUNT_OF(usual_joined); i++)
        if (find_two(look, usual_joined[i], found)) {
            columns->text = (fth_column_list){2, {found[0], found[1]}};
            return;
        }
    for (size_t i = 0; i < FTH_COUNT_OF(usual_texts); i++)
        if ((found[0] = find_name(look, usual_texts[i], strlen(usual_texts[i]))) >= 0) {
            columns->text = (fth_column_list){1, {found[0]}};
            return;
        }
}

static void find_usual_label(const table_look *look, fth_columns *columns)
{
    for (size_t i = 0; columns->label.count == 0 && i < FTH_COUNT_OF(usual_labels); i++) {
        int found = find_name(look, usual_labels[i], strlen(usual_labels[i]));
        if (found >= 0)
            columns->label = (fth_column_list){1, {found}};
    }
    if (columns->label.count == 0 && columns->text.count == 0 && look->width == 2 && look->numbers &&
        look->numbers[0] != look->numbers[1]) /* a number and something else: unambiguous */
        columns->label = (fth_column_list){1, {look->numbers[0] ? 0 : 1}};
}

static bool contains(const fth_column_list *list, int column)
{
    for (int i = 0; i < list->count; i++)
        if (list->columns[i] == column)
            return true;
    return false;
}

static bool is_used(const fth_columns *columns, int column)
{
    return contains(&columns->text, column) || contains(&columns->pair, column) || contains(&columns->label, column);
}

/* The unused columns, if there are at most `most`. */
static fth_column_list find_rest(const table_look *look, const fth_columns *columns, int most)
{
    fth_column_list rest = {0};
    for (int i = 0; i < look->width; i++) {
        if (is_used(columns, i))
            continue;
        if (rest.count == most)
            return (fth_column_list){0};
        rest.columns[rest.count++] = i;
    }
    return rest;
}

/* Without a heading: the first column if it is numeric, else the second of two. */
static void find_label_by_place(const table_look *look, fth_columns *columns)
{
    if (columns->text.count == 0 && look->width > 1 && look->numbers[0])
        columns->label = (fth_column_list){1, {0}};
    else if (columns->text.count == 0 && look->width == 2)
        columns->label = (fth_column_list){1, {1}};
}

static fth_status choose(const table_look *look, const fth_column_names *names, fth_columns *columns)
{
    fth_status status = FTH_OK;
    const bool labelled = !names->unlabelled;

    if (names->text && *names->text)
        FTH_TRY(find_asked(look, names->text, "--text-column", FTH_MAX_TEXT_COLUMNS, &columns->text));
    if (names->pair && *names->pair)
        FTH_TRY(find_asked(look, names->pair, "--pair-column", FTH_MAX_TEXT_COLUMNS, &columns->pair));
    if (names->label && *names->label)
        FTH_TRY(find_asked(look, names->label, "--label-column", FTH_MAX_LABEL_COLUMNS, &columns->label));
    if (look->heading) {
        if (columns->text.count == 0)
            find_usual_text(look, columns);
        find_usual_label(look, columns);
    } else if (columns->label.count == 0) {
        find_label_by_place(look, columns);
    }
    /* The remaining column, if it is unambiguous. */
    if (columns->text.count == 0 && (columns->label.count > 0 || look->width == 1))
        columns->text = find_rest(look, columns, look->heading ? 1 : FTH_MAX_TEXT_COLUMNS);
    if (columns->label.count == 0 && columns->text.count > 0 && labelled)
        columns->label = find_rest(look, columns, 1);
    if (columns->text.count == 0)
        FTH_TRY(fail_columns(look, "cannot tell which column is the text: name it with --text-column"));
    if (columns->label.count == 0 && labelled)
        FTH_TRY(fail_columns(look, "cannot tell which column is the label: name it with --label-column"));
    for (int i = 0; i < columns->label.count; i++)
        if (contains(&columns->text, columns->label.columns[i]) || contains(&columns->pair, columns->label.columns[i]))
            FTH_TRY(fail_columns(look, "a column cannot be both text and label: see --text-column and --label-column"));

out:
    return status;
}

fth_status fth_columns_choose(fth_text_table *table, const fth_column_names *names, fth_columns *columns)
{
    fth_status status = FTH_OK;
    table_look look = {0};

    *columns = (fth_columns){0};
    FTH_TRY(look_at(table, names, &look));
    FTH_TRY(choose(&look, names, columns));
    columns->heading = look.heading && !fth_text_table_columns(table);

out:
    look_release(&look);
    return status;
}

fth_status fth_columns_name(fth_text_table *table, const fth_columns *columns, int column, char **name)
{
    fth_status status = FTH_OK;
    const fth_table_row *row = fth_text_table_columns(table);

    fth_text_table_rewind(table);
    if (columns->heading)
        FTH_TRY(fth_text_table_next(table, &row));
    *name = row ? fth_format("%.*s", (int)row->fields[column].size_bytes, row->fields[column].text)
                : fth_format("column %d", column + 1);
    FTH_REQUIRE(*name, FTH_NO_MEMORY, "no memory for the name of a column");

out:
    return status;
}
