/* Reads rows of CSV and TSV. Fields are given in place; only those with doubled quotes, or text
 * after the closing quote, are copied. */
#include <string.h>

#include "text/table_internal.h"

/* Skips a line end: LF, CRLF or CR. */
static size_t skip_line_end(const char *bytes, size_t size_bytes, size_t at)
{
    if (at < size_bytes && bytes[at] == '\r')
        return at + 1 < size_bytes && bytes[at + 1] == '\n' ? at + 2 : at + 1;
    return at < size_bytes ? at + 1 : at;
}

/* The number of line ends; CRLF counts once. */
static size_t count_line_ends(const char *text, size_t size_bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < size_bytes; i++)
        count += text[i] == '\n' || (text[i] == '\r' && !(i + 1 < size_bytes && text[i + 1] == '\n'));
    return count;
}

static size_t find_plain_end(const fth_text_table *table, size_t at)
{
    while (at < table->size_bytes && table->bytes[at] != table->delimiter && table->bytes[at] != '\n' &&
           table->bytes[at] != '\r')
        at++;
    return at;
}

/* The quoted field at *at, up to the next separator. */
static fth_status read_quoted(fth_text_table *table, size_t *at)
{
    fth_status status = FTH_OK;
    const char *bytes = table->bytes;
    size_t begin = *at + 1, end = begin, copy = table->text.size;
    bool copied = false;

    for (;;) {
        const char *quote = end < table->size_bytes ? memchr(bytes + end, '"', table->size_bytes - end) : NULL;
        FTH_REQUIRE(quote, FTH_INVALID, "%s, line %zu: the quote that opens column %d is not closed", table->name,
                    table->row.line, table->row.count + 1);
        end = (size_t)(quote - bytes);
        if (end + 1 >= table->size_bytes || bytes[end + 1] != '"')
            break;
        FTH_TRY(fth_table_text_add(&table->text, bytes + begin, end + 1 - begin)); /* a doubled quote */
        copied = true;
        begin = end = end + 2;
    }
    table->line += count_line_ends(bytes + *at + 1, end - *at - 1);
    size_t after = find_plain_end(table, end + 1);
    if (copied || after > end + 1) {
        FTH_TRY(fth_table_text_add(&table->text, bytes + begin, end - begin));
        FTH_TRY(fth_table_text_add(&table->text, bytes + end + 1, after - end - 1));
        FTH_TRY(fth_text_table_add_copy(table, (fth_table_field){0}, copy));
    } else {
        FTH_TRY(fth_text_table_add_field(table, (fth_table_field){.text = bytes + begin, .size_bytes = end - begin}));
    }
    *at = after;

out:
    return status;
}

fth_status fth_text_table_read_delimited(fth_text_table *table, bool *found)
{
    fth_status status = FTH_OK;
    const char *bytes = table->bytes;
    size_t at = table->at;

    for (;;) {
        if (table->format == FTH_TEXT_CSV && at < table->size_bytes && bytes[at] == '"') {
            FTH_TRY(read_quoted(table, &at));
        } else {
            size_t end = find_plain_end(table, at);
            FTH_TRY(fth_text_table_add_field(table, (fth_table_field){.text = bytes + at, .size_bytes = end - at}));
            at = end;
        }
        if (at >= table->size_bytes || bytes[at] != table->delimiter)
            break;
        at++;
    }
    *found = table->row.count > 1 || table->fields[0].size_bytes > 0;
    table->at = skip_line_end(bytes, table->size_bytes, at);
    table->line++;

out:
    return status;
}
