/* See remembered.h. The last line is "end CHECKSUM". */
#include "data/archive/remembered.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 30, SUM_LINE = 4 + 64 + 1 };

fth_status fth_remembered_path(const char *folder, const char *what, char **path)
{
    fth_status status = FTH_OK;
    char *cache = NULL, *inner = NULL, name[65];
    *path = NULL;
    FTH_TRY(fth_cache_folder(&cache));
    inner = fth_path_join(cache, folder);
    FTH_TRY(fth_folder_create(inner));
    fth_hex_sha256(what, strlen(what), name);
    *path = fth_path_join(inner, name);
    FTH_REQUIRE(*path, FTH_NO_MEMORY, "no memory for a path");

out:
    free(cache);
    free(inner);
    return status;
}

fth_status fth_remembered_write(const char *path, const char *text, size_t size_bytes)
{
    fth_status status = FTH_OK;
    fth_file *file = NULL;
    char line[SUM_LINE + 1], sum[65];

    FTH_TRY(fth_file_create(path, &file));
    FTH_TRY(fth_file_write(file, text, size_bytes));
    fth_file_sha256(file, sum);
    memcpy(line, "end ", 4);
    memcpy(line + 4, sum, 64);
    line[SUM_LINE - 1] = '\n';
    FTH_TRY(fth_file_write(file, line, SUM_LINE));
    FTH_TRY(fth_file_publish(file));

out:
    fth_file_free(file);
    return status;
}

char *fth_remembered_read(const char *path)
{
    char *text = NULL, sum[65];
    size_t size_bytes = 0;
    if (!fth_file_exists(path) || fth_file_read_all(path, MAX_BYTES, &text, &size_bytes) != FTH_OK)
        return NULL;
    if (size_bytes > SUM_LINE && memcmp(text + size_bytes - SUM_LINE, "end ", 4) == 0) {
        fth_hex_sha256(text, size_bytes - SUM_LINE, sum);
        if (memcmp(sum, text + size_bytes - SUM_LINE + 4, 64) == 0) {
            text[size_bytes - SUM_LINE] = '\0';
            return text;
        }
    }
    free(text);
    return NULL;
}
