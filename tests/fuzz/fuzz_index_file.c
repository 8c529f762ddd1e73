/* Feeds text to the readers of index files; the first byte chooses the format. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "data/source/index_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static fth_status visit(void *context, const fth_index_row *row)
{
    size_t *rows = context;
    (*rows)++;
    assert(*row->path && row->path[0] != '/' && *row->label && !strchr(row->label, '/') && row->line > 0);
    return FTH_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    size_t rows = 0;
    if (size_bytes == 0)
        return 0;
    char *text = strndup((const char *)bytes + 1, size_bytes - 1);
    if (text && fth_index_file_read(text, bytes[0] % 2 ? "fuzz.csv" : "fuzz.jsonl", visit, &rows) == FTH_OK)
        assert(rows > 0);
    free(text);
    return 0;
}
