/* Checks of a store for `farthing doctor URL`: reading, writing, and conditional writes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/store/store_cli.h"

enum { ENOUGH_OBJECTS = 1000, PROBE_BYTES = 4096 };

static bool count_object(void *context, const fth_store_object *object)
{
    (void)object;
    return ++*(int *)context < ENOUGH_OBJECTS;
}

fth_status fth_doctor_read_store(fth_store *store, char *found, size_t size)
{
    int count = 0;
    double begun_s = fth_clock_seconds();
    fth_status status = fth_store_list(store, "", count_object, &count);
    if (status == FTH_OK)
        snprintf(found, size, "%s can be read (%s%s, %.0f ms)", fth_store_url(store), FTH_COUNTED(count, "object"),
                 count == ENOUGH_OBJECTS ? " or more" : "", 1e3 * (fth_clock_seconds() - begun_s));
    return status;
}

/* Writes a small object, reads it back and deletes it. */
fth_status fth_doctor_write_store(fth_store *store, char *found, size_t size)
{
    fth_status status = FTH_OK;
    const char *folder = fth_store_folder(store);
    bool made = folder && !fth_folder_exists(folder);
    char *key = fth_format("farthing-doctor-%ld-%" PRIx64, (long)getpid(), (uint64_t)(fth_clock_wall_seconds() * 1e6));
    char sent[PROBE_BYTES], *bytes = NULL;
    size_t size_bytes = 0;
    bool written = false;
    FTH_REQUIRE(key, FTH_NO_MEMORY, "no memory for a key");
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (char)(i * 7);
    double begun_s = fth_clock_seconds();
    FTH_TRY(fth_store_put(store, key, sent, sizeof sent, NULL, NULL, NULL));
    written = true;
    double took_s = fth_clock_seconds() - begun_s;
    FTH_TRY(fth_store_get(store, key, sizeof sent, &bytes, &size_bytes, NULL));
    FTH_REQUIRE(bytes && size_bytes == sizeof sent && memcmp(bytes, sent, sizeof sent) == 0, FTH_CORRUPT,
                "%s returns something else than was written", fth_store_url(store));
    written = false;
    FTH_TRY(fth_store_delete(store, key));
    snprintf(found, size, "it can be written (a small object takes %.0f ms) and deleted", 1e3 * took_s);

out:
    if (written)
        FTH_IGNORE(fth_store_delete(store, key), "an earlier failure is reported");
    if (made)
        rmdir(folder);
    free(bytes);
    free(key);
    return status;
}

fth_status fth_doctor_check_conditions(fth_store *store, char *found, size_t size)
{
    fth_status status = fth_store_check_conditions(store);
    if (status == FTH_OK)
        snprintf(found, size, "conditional writes hold: a run there can be owned by one machine at a time");
    return status;
}
