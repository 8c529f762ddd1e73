/* See text_rows.h. */
#include "data/text/text_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/archive/blob.h"

enum { CHECKED_EVERY = 4096 /* rows between checks for a stop */, MAX_NUMBERS = 4096 /* of a label */ };

void fth_text_rows_release(fth_text_rows *rows)
{
    free(rows->text);
    free(rows->rows);
    free(rows->labels);
    free(rows->label_ends);
    free(rows->numbers);
    *rows = (fth_text_rows){0};
}

fth_text_pair fth_text_rows_get(const fth_text_rows *rows, size_t row)
{
    const fth_text_row *at = &rows->rows[row];
    const bool pair = at->second_bytes != UINT32_MAX;
    const char *text = rows->text + at->begin;
    return (fth_text_pair){.first = text,
                           .first_bytes = at->first_bytes,
                           .second = pair ? text + at->first_bytes : NULL,
                           .second_bytes = pair ? at->second_bytes : 0};
}

/* ---- texts ---- */

static fth_status reserve_text(fth_text_rows *rows, size_t size_bytes)
{
    size_t wanted = rows->text_size + size_bytes;
    if (wanted <= rows->text_capacity && rows->text)
        return FTH_OK;
    char *grown = realloc(rows->text, wanted + 1);
    if (!grown)
        return fth_fail(FTH_NO_MEMORY, "no memory for %zu bytes of text", wanted);
    rows->text = grown;
    rows->text_capacity = wanted;
    return FTH_OK;
}

/* Joins columns by spaces; empty ones are omitted. */
static fth_status add_text(fth_text_rows *rows, const fth_text_table *table, const fth_table_row *row,
                           const fth_column_list *columns, uint32_t *size_bytes)
{
    fth_status status = FTH_OK;
    size_t begin = rows->text_size;
    for (int i = 0; i < columns->count; i++) {
        const fth_table_field *field = &row->fields[columns->columns[i]];
        FTH_REQUIRE(!field->list, FTH_INVALID,
                    "%s, line %zu: the text is a list; join it first, or name another "
                    "column with --text-column",
                    fth_text_table_name(table), row->line);
        FTH_REQUIRE(!field->missing || columns->count > 1, FTH_INVALID, "%s, line %zu: there is no text",
                    fth_text_table_name(table), row->line);
        if (field->missing || field->size_bytes == 0)
            continue;
        FTH_TRY(reserve_text(rows, field->size_bytes + 1));
        if (rows->text_size > begin)
            rows->text[rows->text_size++] = ' ';
        memcpy(rows->text + rows->text_size, field->text, field->size_bytes);
        rows->text_size += field->size_bytes;
    }
    FTH_REQUIRE(rows->text_size - begin < UINT32_MAX, FTH_INVALID, "%s, line %zu: a text of more than 4 GiB",
                fth_text_table_name(table), row->line);
    *size_bytes = (uint32_t)(rows->text_size - begin);

out:
    return status;
}

/* ---- labels ---- */

/* The next of several values in a field; false after the last. */
static bool next_value(const fth_table_field *field, const char *separators, size_t *at, const char **text,
                       size_t *size_bytes)
{
    if (*at > field->size_bytes || field->size_bytes == 0)
        return false;
    size_t end = *at;
    while (end < field->size_bytes && (field->list ? field->text[end] != FTH_FIELD_SEPARATOR
                                                   : !(field->text[end] && strchr(separators, field->text[end]))))
        end++;
    *text = field->text + *at;
    *size_bytes = end - *at;
    *at = end + 1;
    return true;
}

static fth_status add_label(fth_text_rows *rows, int32_t number)
{
    fth_status status = fth_grow(&rows->labels, rows->label_count, &rows->label_capacity, sizeof *rows->labels);
    if (status == FTH_OK)
        rows->labels[rows->label_count++] = number;
    return status;
}

static fth_status read_class(fth_text_rows *rows, const fth_text_table *table, const fth_table_row *row,
                             const fth_columns *columns, fth_labels *labels)
{
    fth_status status = FTH_OK;
    const char *name = fth_text_table_name(table);
    const fth_table_field *field = &row->fields[columns->label.columns[0]];
    int32_t number = 0;

    FTH_REQUIRE(columns->label.count == 1 && !field->list, FTH_INVALID,
                "%s, line %zu: several labels; they are for --task multi-label, or regression if they are numbers",
                name, row->line);
    FTH_REQUIRE(!field->missing, FTH_INVALID, "%s, line %zu: there is no label", name, row->line);
    FTH_TRY(fth_labels_meet(labels, field->text, field->size_bytes, name, row->line, &number));
    FTH_TRY(add_label(rows, number));

out:
    return status;
}

static bool parse_number(const char *text, size_t size_bytes, double *value)
{
    char copy[64], *end;
    if (size_bytes == 0 || size_bytes >= sizeof copy)
        return false;
    memcpy(copy, text, size_bytes);
    copy[size_bytes] = '\0';
    *value = strtod(copy, &end);
    while (*end == ' ' || *end == '\t')
        end++;
    return end != copy && *end == '\0' && isfinite((float)*value);
}

static fth_status read_numbers(fth_text_rows *rows, const fth_text_table *table, const fth_table_row *row,
                               const fth_columns *columns)
{
    fth_status status = FTH_OK;
    const char *name = fth_text_table_name(table);
    int width = 0;

    for (int i = 0; i < columns->label.count; i++) {
        const fth_table_field *field = &row->fields[columns->label.columns[i]];
        const char *text;
        size_t at = 0, size_bytes;
        while (!field->missing && next_value(field, ",;| ", &at, &text, &size_bytes)) {
            double value = 0;
            if (size_bytes == 0 && !field->list)
                continue; /* the space in "; " */
            FTH_REQUIRE(parse_number(text, size_bytes, &value), FTH_INVALID,
                        "%s, line %zu: the label '%.*s' is not a finite number", name, row->line,
                        (int)(size_bytes < 80 ? size_bytes : 80), text);
            FTH_REQUIRE(width < MAX_NUMBERS, FTH_INVALID, "%s, line %zu: a label of more than %d numbers", name,
                        row->line, (int)MAX_NUMBERS);
            FTH_TRY(fth_grow(&rows->numbers, rows->number_count, &rows->number_capacity, sizeof *rows->numbers));
            rows->numbers[rows->number_count++] = (float)value;
            width++;
        }
    }
    FTH_REQUIRE(width > 0, FTH_INVALID, "%s, line %zu: there is no label", name, row->line);
    FTH_REQUIRE(rows->width == 0 || rows->width == width, FTH_INVALID,
                "%s, line %zu: %s as the label, where the rows before it have %d", name, row->line,
                FTH_COUNTED(width, "number"), rows->width);
    rows->width = width;

out:
    return status;
}

/* Several columns of 0 and 1 stand for the labels 0, 1, ... */
static fth_status read_flags(fth_text_rows *rows, const fth_text_table *table, const fth_table_row *row,
                             const fth_columns *columns)
{
    fth_status status = FTH_OK;
    for (int i = 0; i < columns->label.count; i++) {
        const fth_table_field *field = &row->fields[columns->label.columns[i]];
        double value = 0;
        bool flag = fth_table_field_is(field, "true");
        if (!flag && !fth_table_field_is(field, "false")) {
            FTH_REQUIRE(!field->missing && parse_number(field->text, field->size_bytes, &value) &&
                            (value == 0 || value == 1),
                        FTH_INVALID, "%s, line %zu: label column %d is neither 0 nor 1", fth_text_table_name(table),
                        row->line, columns->label.columns[i] + 1);
            flag = value == 1;
        }
        if (flag)
            FTH_TRY(add_label(rows, i));
    }

out:
    return status;
}

static fth_status read_set(fth_text_rows *rows, const fth_text_table *table, const fth_table_row *row,
                           const fth_columns *columns, fth_labels *labels)
{
    fth_status status = FTH_OK;
    const fth_table_field *field = &row->fields[columns->label.columns[0]];
    const char *text;
    size_t at = 0, size_bytes;

    if (columns->label.count > 1) {
        FTH_TRY(read_flags(rows, table, row, columns));
    } else {
        while (!field->missing && next_value(field, ",;|", &at, &text, &size_bytes)) {
            int32_t number = 0;
            FTH_TRY(fth_labels_meet(labels, text, size_bytes, fth_text_table_name(table), row->line, &number));
            FTH_TRY(add_label(rows, number));
        }
    }
    FTH_TRY(fth_grow(&rows->label_ends, rows->count, &rows->end_capacity, sizeof *rows->label_ends));
    rows->label_ends[rows->count] = rows->label_count;

out:
    return status;
}

/* ---- rows ---- */

static fth_status add_row(fth_text_rows *rows, const fth_text_table *table, const fth_table_row *row,
                          const fth_columns *columns, fth_label_kind kind, fth_labels *labels)
{
    fth_status status = FTH_OK;
    fth_text_row added = {.begin = rows->text_size, .second_bytes = UINT32_MAX};

    FTH_TRY(add_text(rows, table, row, &columns->text, &added.first_bytes));
    if (columns->pair.count > 0)
        FTH_TRY(add_text(rows, table, row, &columns->pair, &added.second_bytes));
    if (columns->label.count > 0)
        FTH_TRY(kind == FTH_LABEL_CLASS    ? read_class(rows, table, row, columns, labels)
                : kind == FTH_LABEL_NUMBER ? read_numbers(rows, table, row, columns)
                                           : read_set(rows, table, row, columns, labels));
    FTH_TRY(fth_grow(&rows->rows, rows->count, &rows->capacity, sizeof *rows->rows));
    rows->rows[rows->count++] = added;

out:
    return status;
}

fth_status fth_text_rows_read(fth_text_rows *rows, fth_text_table *table, const fth_columns *columns,
                              fth_label_kind kind, fth_labels *labels, size_t size_bytes, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    const fth_table_row *row = NULL;

    FTH_TRY(reserve_text(rows, size_bytes));
    for (;;) {
        FTH_TRY(fth_text_table_next(table, &row));
        if (!row)
            break;
        FTH_TRY(add_row(rows, table, row, columns, kind, labels));
        if (rows->count % CHECKED_EVERY == 0)
            FTH_TRY(fth_check_stop(stop, fth_text_table_name(table)));
    }

out:
    return status;
}
