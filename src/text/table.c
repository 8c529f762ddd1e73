/* See table.h. Parts that the formats share: names, byte order marks, fields. */
#include "text/table.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "text/table_internal.h"

static bool cut_ending(const char *name, size_t *length, const char *ending)
{
    size_t wanted = strlen(ending);
    if (*length <= wanted || strncasecmp(name + *length - wanted, ending, wanted) != 0)
        return false;
    *length -= wanted;
    return true;
}

bool fth_text_format_find(const char *name, fth_text_format *format, size_t *stem_length)
{
    static const struct {
        const char *ending;
        fth_text_format format;
    } formats[] = {{".csv", FTH_TEXT_CSV},
                   {".tsv", FTH_TEXT_TSV},
                   {".jsonl", FTH_TEXT_JSON_LINES},
                   {".ndjson", FTH_TEXT_JSON_LINES},
                   {".json", FTH_TEXT_JSON_LINES}};
    static const char *const compressions[] = {".gz", ".xz", ".zst"};
    size_t length = strlen(name);
    for (size_t i = 0; i < FTH_COUNT_OF(compressions); i++)
        if (cut_ending(name, &length, compressions[i]))
            break;
    for (size_t i = 0; i < FTH_COUNT_OF(formats); i++)
        if (cut_ending(name, &length, formats[i].ending)) {
            *format = formats[i].format;
            if (stem_length)
                *stem_length = length;
            return true;
        }
    return false;
}

bool fth_table_field_is(const fth_table_field *field, const char *text)
{
    return !field->missing && field->size_bytes == strlen(text) &&
           strncasecmp(field->text, text, field->size_bytes) == 0;
}

fth_status fth_table_text_add(fth_table_text *text, const char *bytes, size_t size_bytes)
{
    if (text->capacity - text->size < size_bytes) {
        size_t wanted = text->size + size_bytes + text->capacity / 2 + 256;
        char *grown = realloc(text->bytes, wanted);
        if (!grown)
            return fth_fail(FTH_NO_MEMORY, "no memory for a row of %zu bytes", wanted);
        text->bytes = grown;
        text->capacity = wanted;
    }
    if (size_bytes > 0)
        memcpy(text->bytes + text->size, bytes, size_bytes);
    text->size += size_bytes;
    return FTH_OK;
}

fth_status fth_text_table_add_field(fth_text_table *table, fth_table_field field)
{
    fth_status status = FTH_OK;
    const size_t count = (size_t)table->row.count;
    FTH_REQUIRE(count < FTH_MAX_COLUMNS, FTH_INVALID, "%s, line %zu: more than %d columns", table->name,
                table->row.line, (int)FTH_MAX_COLUMNS);
    FTH_TRY(fth_grow(&table->fields, count, &table->field_capacity, sizeof *table->fields));
    FTH_TRY(fth_grow(&table->copies, count, &table->copy_capacity, sizeof *table->copies));
    table->fields[count] = field;
    table->copies[count] = SIZE_MAX;
    table->row.count++;

out:
    return status;
}

fth_status fth_text_table_add_copy(fth_text_table *table, fth_table_field field, size_t begin)
{
    field.size_bytes = table->text.size - begin;
    fth_status status = fth_text_table_add_field(table, field);
    if (status == FTH_OK)
        table->copies[table->row.count - 1] = begin;
    return status;
}

static fth_status find_begin(fth_text_table *table)
{
    const unsigned char *bytes = (const unsigned char *)table->bytes;
    const size_t size = table->size_bytes;
    if (size >= 2 && ((bytes[0] == 0xff && bytes[1] == 0xfe) || (bytes[0] == 0xfe && bytes[1] == 0xff)))
        return fth_fail(FTH_INVALID, "%s is UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8", table->name);
    if (size >= 4 && memcmp(bytes, "PAR1", 4) == 0)
        return fth_fail(FTH_UNSUPPORTED, "%s is a Parquet file, not a table of text; convert it to CSV or JSON lines",
                        table->name);
    static const char pointer[] = "version https://git-lfs";
    if (size >= sizeof pointer - 1 && memcmp(bytes, pointer, sizeof pointer - 1) == 0)
        return fth_fail(FTH_INVALID, "%s: a Git LFS pointer, not the table; fetch it with 'git lfs pull'", table->name);
    table->begin = size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    return FTH_OK;
}

/* Separators of CSV fields, in order of preference; the first one in the first line is used. */
static char find_delimiter(const char *bytes, size_t size_bytes)
{
    bool quoted = false, semicolon = false, tab = false;
    for (size_t i = 0; i < size_bytes && (quoted || (bytes[i] != '\n' && bytes[i] != '\r')); i++) {
        quoted ^= bytes[i] == '"';
        if (quoted)
            continue;
        if (bytes[i] == ',')
            return ',';
        semicolon |= bytes[i] == ';';
        tab |= bytes[i] == '\t';
    }
    return semicolon ? ';' : tab ? '\t' : ',';
}

fth_status fth_text_table_open(const char *bytes, size_t size_bytes, const char *name, fth_text_format format,
                               fth_text_table **table)
{
    fth_status status = FTH_OK;
    fth_text_table *opened = NULL;

    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    opened->bytes = bytes;
    opened->size_bytes = size_bytes;
    opened->format = format;
    opened->name = name;
    FTH_TRY(find_begin(opened));
    opened->delimiter =
        format == FTH_TEXT_TSV ? '\t' : find_delimiter(bytes + opened->begin, size_bytes - opened->begin);
    fth_text_table_rewind(opened);
    if (format == FTH_TEXT_JSON_LINES)
        FTH_TRY(fth_text_table_read_keys(opened));
    *table = opened;
    opened = NULL;

out:
    fth_text_table_free(opened);
    return status;
}

void fth_text_table_free(fth_text_table *table)
{
    if (!table)
        return;
    for (int i = 0; table->keys && i < table->width; i++)
        free(table->keys[i]);
    free(table->keys);
    free(table->key_fields);
    free(table->fields);
    free(table->copies);
    free(table->text.bytes);
    free(table);
}

const char *fth_text_table_name(const fth_text_table *table)
{
    return table->name;
}

const fth_table_row *fth_text_table_columns(const fth_text_table *table)
{
    return table->keys ? &table->columns : NULL;
}

void fth_text_table_rewind(fth_text_table *table)
{
    table->at = table->begin;
    table->line = 1;
}

fth_status fth_text_table_next(fth_text_table *table, const fth_table_row **row)
{
    fth_status status = FTH_OK;
    bool found = false;

    *row = NULL;
    while (!found && table->at < table->size_bytes) {
        table->row = (fth_table_row){.line = table->line};
        table->text.size = 0;
        FTH_TRY((table->format == FTH_TEXT_JSON_LINES ? fth_text_table_read_json
                                                      : fth_text_table_read_delimited)(table, &found));
    }
    if (!found)
        goto out;
    for (int i = 0; i < table->row.count; i++)
        if (table->copies[i] != SIZE_MAX)
            table->fields[i].text = table->text.bytes ? table->text.bytes + table->copies[i] : "";
    table->row.fields = table->fields;
    FTH_REQUIRE(table->width == 0 || table->width == table->row.count, FTH_INVALID,
                "%s, line %zu: %s, where the rows before it have %d", table->name, table->row.line,
                FTH_COUNTED(table->row.count, "column"), table->width);
    table->width = table->row.count;
    *row = &table->row;

out:
    return status;
}
