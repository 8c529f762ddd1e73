/* Tables with aligned columns. Rows are kept until the table is printed, as widths depend on all of
 * them. */
#include <stdlib.h>
#include <string.h>

#include "report/report.h"

enum { LONGEST_LAST_RULE = 40 };

struct fth_table {
    size_t column_count;
    bool *aligned_right; /* of each column */
    char **cells;        /* row by row; the first row is the headings, if there are any */
    size_t row_count, row_capacity;
    bool has_headings;
};

static fth_status add_row(fth_table *table, const char *const *cells)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_grow(&table->cells, table->row_count, &table->row_capacity, table->column_count * sizeof(char *)));
    char **row = table->cells + table->row_count * table->column_count;
    memset(row, 0, table->column_count * sizeof *row);
    table->row_count++;
    for (size_t i = 0; i < table->column_count; i++) {
        row[i] = fth_printable(cells[i] ? cells[i] : "");
        FTH_REQUIRE(row[i], FTH_NO_MEMORY, "no memory for a table");
    }
out:
    return status;
}

fth_status fth_table_create(const char *const *headings, size_t column_count, fth_table **table)
{
    fth_status status = FTH_OK;
    fth_table *made = NULL;
    const char **names = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->column_count = column_count;
    FTH_TRY(fth_allocate(column_count, sizeof *made->aligned_right, &made->aligned_right));
    FTH_TRY(fth_allocate(column_count, sizeof *names, &names));
    made->has_headings = headings != NULL;
    for (size_t i = 0; headings && i < column_count; i++) {
        made->aligned_right[i] = *headings[i] == '>';
        names[i] = headings[i] + made->aligned_right[i];
    }
    if (headings)
        FTH_TRY(add_row(made, names));
    *table = made;
    made = NULL;
out:
    free(names);
    fth_table_free(made);
    return status;
}

void fth_table_free(fth_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->row_count * table->column_count; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table->aligned_right);
    free(table);
}

fth_status fth_table_add_row(fth_table *table, const char *const *cells)
{
    return add_row(table, cells);
}

static size_t column_width(const fth_table *table, size_t column)
{
    size_t widest = 0;
    for (size_t row = 0; row < table->row_count; row++) {
        size_t width = fth_text_width(table->cells[row * table->column_count + column]);
        widest = width > widest ? width : widest;
    }
    return widest;
}

size_t fth_table_width(const fth_table *table)
{
    size_t width = 2 * (table->column_count - 1);
    for (size_t i = 0; i < table->column_count; i++)
        width += column_width(table, i);
    return width;
}

/* The first column and those from `from` up to `to`, without it. */
typedef struct part {
    size_t from, to;
} part;

static size_t next_column(const part *shown, size_t column)
{
    return column == 0 && shown->from > 1 ? shown->from : column + 1;
}

/* No spaces after the last column. */
static void print_row(FILE *output, const fth_table *table, const part *shown, char *const *row)
{
    for (size_t i = 0; i < shown->to; i = next_column(shown, i)) {
        int padding = (int)(column_width(table, i) - fth_text_width(row[i]));
        bool right = table->aligned_right[i], last = i + 1 == shown->to;
        fprintf(output, "%s%*s%s%*s", i > 0 ? "  " : "", right ? padding : 0, "", row[i], right || last ? 0 : padding,
                "");
    }
    fputc('\n', output);
}

static void print_part(FILE *output, const fth_table *table, const part *shown)
{
    for (size_t row = 0; row < table->row_count; row++) {
        print_row(output, table, shown, table->cells + row * table->column_count);
        if (row > 0 || !table->has_headings)
            continue;
        const char *dash = fth_terminal_is_utf8() ? "─" : "-";
        for (size_t i = 0; i < shown->to; i = next_column(shown, i)) {
            size_t width = column_width(table, i);
            if (i + 1 == shown->to && width > LONGEST_LAST_RULE)
                width = LONGEST_LAST_RULE; /* a longer rule would wrap */
            fputs(i > 0 ? "  " : "", output);
            for (; width > 0; width--)
                fputs(dash, output);
        }
        fputc('\n', output);
    }
}

void fth_table_print(FILE *output, const fth_table *table)
{
    print_part(output, table, &(part){1, table->column_count});
}

void fth_table_print_parts(FILE *output, const fth_table *table, size_t columns)
{
    const size_t first = column_width(table, 0);
    for (size_t from = 1, to; from < table->column_count; from = to) {
        size_t width = first;
        for (to = from; to < table->column_count; to++) {
            width += 2 + column_width(table, to);
            if (width > columns && to > from)
                break;
        }
        fputs(from > 1 ? "\n" : "", output);
        print_part(output, table, &(part){from, to});
    }
}

void fth_table_remove_column(fth_table *table, size_t column)
{
    char **to = table->cells;
    for (size_t i = 0; i < table->row_count * table->column_count; i++) {
        if (i % table->column_count == column)
            free(table->cells[i]);
        else
            *to++ = table->cells[i];
    }
    table->column_count--;
    memmove(table->aligned_right + column, table->aligned_right + column + 1,
            (table->column_count - column) * sizeof *table->aligned_right);
}

/* Keeps the end of a path and the beginning of other text. free() it. */
static char *shorten(const char *text, size_t width)
{
    const char *mark = fth_terminal_is_utf8() ? "…" : "~";
    if (!strchr(text, '/'))
        return fth_format("%.*s%s", (int)fth_text_fit(text, width - 1), text, mark);
    while (*text && fth_text_width(text) > width - 1)
        text += fth_text_fit(text, 1) > 0 ? fth_text_fit(text, 1) : fth_text_fit(text, 2);
    return fth_format("%s%s", mark, text);
}

fth_status fth_table_shorten(fth_table *table, size_t column, size_t columns, size_t least)
{
    const size_t whole = fth_table_width(table), width = column_width(table, column);
    if (whole <= columns || width <= least)
        return FTH_OK;
    const size_t wanted = width - least > whole - columns ? width - (whole - columns) : least;
    for (size_t row = 0; row < table->row_count; row++) {
        char **cell = &table->cells[row * table->column_count + column];
        if (fth_text_width(*cell) <= wanted)
            continue;
        char *text = shorten(*cell, wanted);
        if (!text)
            return fth_fail(FTH_NO_MEMORY, "no memory for a table");
        free(*cell);
        *cell = text;
    }
    return FTH_OK;
}
