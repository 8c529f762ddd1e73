/* See object_address.h. */
#include "data/source/object_address.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/source/index_file.h"

/* In keys of buckets '?' and '#' are ordinary characters. */
size_t fth_address_path_length(const char *address)
{
    bool link = strncmp(address, "http://", 7) == 0 || strncmp(address, "https://", 8) == 0 ||
                strncmp(address, "az://", 5) == 0;
    return link ? strcspn(address, "?#") : strlen(address);
}

bool fth_address_names_index(const char *address)
{
    char *path = fth_format("%.*s", (int)fth_address_path_length(address), address);
    bool fits = path && fth_index_file_fits(path);
    free(path);
    return fits;
}

bool fth_address_names_archive(const char *address)
{
    static const char *const endings[] = {".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.zst", ".tar.bz2", ".zip"};
    size_t length = fth_address_path_length(address);
    for (size_t i = 0; i < FTH_COUNT_OF(endings); i++) {
        size_t ending = strlen(endings[i]);
        if (length > ending && strncasecmp(address + length - ending, endings[i], ending) == 0)
            return true;
    }
    return false;
}

fth_status fth_address_split(const char *address, char **store, char **key)
{
    fth_status status = FTH_OK;
    char *whole = fth_address_whole(address);

    *store = *key = NULL;
    FTH_REQUIRE(whole, FTH_NO_MEMORY, "no memory for an address");
    const char *host = strstr(whole, "://");
    size_t begin = host ? (size_t)(host - whole) + 3 : 0, length = fth_address_path_length(whole), name = length;
    while (name > begin && whole[name - 1] != '/')
        name--;
    FTH_REQUIRE(name > begin && name < length, FTH_INVALID, "%s names no object of a store", address);
    *key = fth_format("%.*s", (int)(length - name), whole + name);
    /* The folder of file:///x.tar is file:///. */
    *store = fth_format("%.*s%s", (int)name - (name > begin + 1), whole, whole + length);
    FTH_REQUIRE(*key && *store, FTH_NO_MEMORY, "no memory for an address");

out:
    fth_wipe_text(whole);
    return status;
}
