/* Feeds bytes to the readers of tables of text; the first byte chooses the format and what is asked
 * for. What a table gives must lie in its bytes or be its own, whatever they are: the sanitizers
 * see to that as every byte is read. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "text/columns.h"
#include "text/labels.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static unsigned read_field(const fth_table_field *field)
{
    unsigned sum = 0;
    for (size_t i = 0; i < field->size_bytes; i++)
        sum += (unsigned char)field->text[i];
    assert(!field->missing || !fth_table_field_is(field, "x"));
    return sum;
}

/* All rows twice: once as they are, once behind the columns that were chosen. Both have the same
 * number. */
static size_t read_rows(fth_text_table *table, fth_labels *labels, const fth_columns *columns)
{
    const fth_table_row *row = NULL;
    size_t rows = 0, line = 0;
    int width = 0;
    while (fth_text_table_next(table, &row) == FTH_OK && row) {
        assert(row->count > 0 && row->line > line && (width == 0 || row->count == width));
        width = row->count;
        line = row->line;
        unsigned sum = 0;
        for (int i = 0; i < row->count; i++)
            sum += read_field(&row->fields[i]);
        assert(sum < 4294967295u);
        for (int i = 0; columns && i < columns->label.count; i++) {
            const fth_table_field *field = &row->fields[columns->label.columns[i]];
            int32_t number = -1;
            if (!field->missing &&
                fth_labels_meet(labels, field->text, field->size_bytes, "fuzz", row->line, &number) == FTH_OK)
                assert(number >= 0 && number < fth_labels_met(labels));
        }
        rows++;
    }
    return rows;
}

static void check_classes(fth_labels *labels, const char *const *names)
{
    if (fth_labels_finish(labels, names, false) != FTH_OK)
        return;
    for (int32_t i = 0; i < fth_labels_met(labels); i++)
        assert(fth_labels_class(labels, i) >= 0 && fth_labels_class(labels, i) < fth_labels_count(labels));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    static const char *const names[] = {"a", "b", "c", NULL};
    if (size_bytes == 0)
        return 0;
    const int choice = bytes[0];
    fth_text_table *table = NULL;
    fth_labels *labels = NULL;
    fth_columns columns;
    /* Exactly as large as it is, so that a byte read beyond it shows. */
    char *copy = malloc(size_bytes - 1 ? size_bytes - 1 : 1);
    if (!copy || fth_labels_create(&labels) != FTH_OK)
        goto out;
    memcpy(copy, bytes + 1, size_bytes - 1);
    if (fth_text_table_open(copy, size_bytes - 1, "fuzz", (fth_text_format)(choice % 3), &table) != FTH_OK)
        goto out;
    size_t all = read_rows(table, labels, NULL);
    const fth_column_names asked = {.text = choice & 64 ? "text,2" : NULL, .unlabelled = choice & 128};
    if (fth_columns_choose(table, &asked, &columns) == FTH_OK) {
        size_t rows = read_rows(table, labels, &columns);
        assert(rows + (columns.heading ? 1 : 0) == all);
        check_classes(labels, choice & 32 ? names : NULL);
    }

out:
    fth_text_table_free(table);
    fth_labels_free(labels);
    free(copy);
    return 0;
}
