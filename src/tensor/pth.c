/* The containers that torch.save() writes.
 *
 *     since 1.6    a zip archive, nothing compressed: NAME/data.pkl, NAME/data/KEY for each
 *                  storage, NAME/byteorder
 *     before       five pickles: magic number, protocol version, facts about the machine, the
 *                  object, the keys of its storages; then for each key an int64 count and the
 *                  elements
 *     before 0.1.10  a tar archive; refused */
#include "tensor/pth_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/zip_internal.h"

enum { LEGACY_PROTOCOL = 1001, MAX_KEY = 200 };

static const unsigned char legacy_magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

static fth_status create_pth(size_t size_bytes, const char *format, fth_pth **pth)
{
    fth_status status = fth_allocate(1, sizeof **pth, pth);
    if (status == FTH_OK) {
        (*pth)->format = format;
        (*pth)->copies = fth_tensor_copies_of(size_bytes);
    }
    return status;
}

void fth_pth_free(fth_pth *pth)
{
    if (!pth)
        return;
    fth_tensor_copies_release(&pth->copies);
    fth_pickle_free(pth->pickle);
    free(pth);
}

/* ---- zip ---- */

static bool ends_with(const fth_zip_entry *entry, const char *end)
{
    size_t length = strlen(end);
    return entry->name_length >= length && memcmp(entry->name + entry->name_length - length, end, length) == 0;
}

/* Finds "data.pkl" in the one folder at the top, whose name (with '/') becomes `root`. */
static fth_status find_pickle(const fth_zip *zip, const char *origin, const fth_zip_entry **pickle, char *root,
                              size_t root_size)
{
    *pickle = NULL;
    for (size_t i = 0; i < zip->count; i++) {
        const fth_zip_entry *entry = &zip->entries[i];
        size_t root_length = entry->name_length - strlen("data.pkl");
        if (!ends_with(entry, "data.pkl") || (root_length && entry->name[root_length - 1] != '/') ||
            (root_length && memchr(entry->name, '/', root_length - 1)))
            continue;
        if (*pickle)
            return fth_fail(FTH_CORRUPT, "%s: a zip archive with more than one data.pkl", origin);
        if (root_length >= root_size)
            return fth_fail(FTH_UNSUPPORTED, "%s: the archive's folder has a name of %zu bytes", origin, root_length);
        memcpy(root, entry->name, root_length);
        root[root_length] = '\0';
        *pickle = entry;
    }
    if (!*pickle)
        return fth_fail(
            FTH_INVALID,
            "%s: a zip archive without data.pkl: torch.save() did not write it; give a .safetensors file or "
            "a .pth file of torch.save(model.state_dict(), ...)",
            origin);
    return FTH_OK;
}

static const fth_zip_entry *find_in_root(const fth_zip *zip, const char *root, const char *folder, const char *name,
                                         size_t name_length)
{
    char path[2 * MAX_KEY + 16];
    int length = name_length > MAX_KEY ? -1 : snprintf(path, sizeof path, "%s%s", root, folder);
    if (length < 0 || (size_t)length + name_length > sizeof path)
        return NULL;
    if (name_length)
        memcpy(path + length, name, name_length);
    return fth_zip_find(zip, path, (size_t)length + name_length);
}

static fth_status check_archive(const fth_zip *zip, const char *root, const char *origin)
{
    const fth_zip_entry *order = find_in_root(zip, root, "byteorder", "", 0);
    if (find_in_root(zip, root, "constants.pkl", "", 0))
        return fth_fail(
            FTH_UNSUPPORTED,
            "%s: a TorchScript program (torch.jit.save); save its weights with torch.save(model.state_dict(),"
            " ...)",
            origin);
    for (size_t i = 0; i < zip->count; i++) {
        if (zip->entries[i].compressed)
            return fth_fail(FTH_UNSUPPORTED,
                            "%s: a zip archive with compressed entries; weights are read in place, so save them with "
                            "torch.save() or pack the archive without compression (zip -0)",
                            origin);
    }
    if (order && (order->size_bytes != strlen("little") || memcmp(order->data, "little", strlen("little")) != 0))
        return fth_fail(FTH_UNSUPPORTED,
                        "%s: written on a big-endian machine; load it in PyTorch and save it again here", origin);
    return FTH_OK;
}

fth_status fth_pth_open_zip(const void *bytes, size_t size_bytes, const char *origin, fth_pth **pth)
{
    fth_status status = FTH_OK;
    fth_zip zip = {0};
    fth_pth *fresh = NULL;
    const fth_zip_entry *pickle;
    char root[MAX_KEY], *pickle_origin = NULL;

    *pth = NULL;
    FTH_TRY(create_pth(size_bytes, "PyTorch's zip format", &fresh));
    FTH_TRY(fth_zip_parse(bytes, size_bytes, origin, &zip));
    FTH_TRY(find_pickle(&zip, origin, &pickle, root, sizeof root));
    FTH_TRY(check_archive(&zip, root, origin));
    pickle_origin = fth_format("%s (data.pkl)", origin);
    FTH_TRY(fth_pickle_read(pickle->data, (size_t)pickle->size_bytes, 0, pickle_origin, &fresh->pickle));
    for (size_t i = 0; i < fresh->pickle->storage_count; i++) {
        fth_pickle_storage *storage = fresh->pickle->storages[i];
        const fth_zip_entry *entry = find_in_root(&zip, root, "data/", storage->key->bytes, storage->key->count);
        if (entry) {
            storage->data = entry->data;
            storage->size_bytes = entry->size_bytes;
        }
    }
    *pth = fresh;
    fresh = NULL;

out:
    free(pickle_origin);
    fth_zip_release(&zip);
    fth_pth_free(fresh);
    return status;
}

/* ---- legacy ---- */

/* Reads the pickle at `*at` and moves behind it. */
static fth_status read_next(const void *bytes, size_t size_bytes, const char *origin, size_t *at, fth_pickle **pickle)
{
    fth_status status = fth_pickle_read(bytes, size_bytes, *at, origin, pickle);
    if (status == FTH_OK)
        *at = (*pickle)->end;
    return status;
}

static fth_status read_preamble(const void *bytes, size_t size_bytes, const char *origin, size_t *at)
{
    fth_status status = FTH_OK;
    fth_pickle *magic = NULL, *protocol = NULL, *machine = NULL;
    const fth_pickle_node *root;

    FTH_TRY(read_next(bytes, size_bytes, origin, at, &magic));
    root = magic->root;
    FTH_REQUIRE(
        root->kind == FTH_PICKLE_LONG && root->count == sizeof legacy_magic &&
            memcmp(root->bytes, legacy_magic, sizeof legacy_magic) == 0,
        FTH_INVALID,
        "%s: a pickle that torch.save() did not write; save the weights with torch.save(model.state_dict(), ...)",
        origin);
    FTH_TRY(read_next(bytes, size_bytes, origin, at, &protocol));
    root = protocol->root;
    FTH_REQUIRE(root->kind == FTH_PICKLE_INTEGER && root->integer == LEGACY_PROTOCOL, FTH_UNSUPPORTED,
                "%s: a version of PyTorch's old format other than %d", origin, LEGACY_PROTOCOL);
    FTH_TRY(read_next(bytes, size_bytes, origin, at, &machine));
    root = machine->root;
    FTH_REQUIRE(root->kind == FTH_PICKLE_DICT, FTH_CORRUPT, "%s: damaged: no facts about the machine", origin);
    root = fth_pickle_dict_find(root, "little_endian", strlen("little_endian"));
    FTH_REQUIRE(root && root->kind == FTH_PICKLE_BOOL && root->integer, FTH_UNSUPPORTED,
                "%s: written on a big-endian machine; load it in PyTorch and save it again here", origin);

out:
    fth_pickle_free(magic);
    fth_pickle_free(protocol);
    fth_pickle_free(machine);
    return status;
}

static int compare_keys(const fth_pickle_node *a, const fth_pickle_node *b)
{
    size_t length = a->count < b->count ? a->count : b->count;
    int order = length ? memcmp(a->bytes, b->bytes, length) : 0;
    return order ? order : (a->count > b->count) - (a->count < b->count);
}

static int compare_storages(const void *a, const void *b)
{
    const fth_pickle_storage *left = *(fth_pickle_storage *const *)a, *right = *(fth_pickle_storage *const *)b;
    return compare_keys(left->key, right->key);
}

/* The first storage with this key, of the sorted ones; their count if there is none. */
static size_t find_storage(const fth_pickle *pickle, const fth_pickle_node *key)
{
    size_t low = 0, high = pickle->storage_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_keys(pickle->storages[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < pickle->storage_count && compare_keys(pickle->storages[low]->key, key) == 0 ? low
                                                                                             : pickle->storage_count;
}

/* The storage under `key` begins at `*at`; all that mention it are told. */
static fth_status place_storage(const unsigned char *bytes, size_t size_bytes, const char *origin,
                                const fth_pickle_node *key, fth_pickle *pickle, size_t *at)
{
    char shown[64];
    int64_t count;
    uint64_t storage_bytes;
    size_t first = key->kind == FTH_PICKLE_TEXT ? find_storage(pickle, key) : pickle->storage_count;
    if (first == pickle->storage_count)
        return fth_fail(FTH_CORRUPT, "%s: damaged: a storage at byte %zu that no tensor uses", origin, *at);
    fth_pickle_storage *storage = pickle->storages[first];
    fth_pickle_printable(key->bytes, key->count, shown, sizeof shown);
    if (storage->data)
        return fth_fail(FTH_CORRUPT, "%s: damaged: storage '%s' occurs twice", origin, shown);
    if (size_bytes - *at < sizeof count)
        return fth_fail(FTH_CORRUPT, "%s: truncated: storage '%s' at byte %zu is missing", origin, shown, *at);
    memcpy(&count, bytes + *at, sizeof count);
    *at += sizeof count;
    if (count < 0 || __builtin_mul_overflow((uint64_t)count, (uint64_t)storage->element->size_bytes, &storage_bytes) ||
        storage_bytes > size_bytes - *at)
        return fth_fail(FTH_CORRUPT, "%s: truncated: storage '%s' at byte %zu should have %lld elements of %zu bytes",
                        origin, shown, *at, (long long)count, storage->element->size_bytes);
    for (size_t i = first; i < pickle->storage_count && compare_keys(pickle->storages[i]->key, key) == 0; i++) {
        pickle->storages[i]->data = bytes + *at;
        pickle->storages[i]->size_bytes = storage_bytes;
        if (pickle->storages[i]->element->size_bytes != storage->element->size_bytes)
            return fth_fail(FTH_CORRUPT, "%s: damaged: storage '%s' has two element types", origin, shown);
    }
    *at += (size_t)storage_bytes;
    return FTH_OK;
}

fth_status fth_pth_open_legacy(const void *bytes, size_t size_bytes, const char *origin, fth_pth **pth)
{
    fth_status status = FTH_OK;
    fth_pth *fresh = NULL;
    fth_pickle *keys = NULL;
    size_t at = 0;

    *pth = NULL;
    FTH_TRY(create_pth(size_bytes, "PyTorch's old format", &fresh));
    FTH_TRY(read_preamble(bytes, size_bytes, origin, &at));
    FTH_TRY(read_next(bytes, size_bytes, origin, &at, &fresh->pickle));
    FTH_TRY(read_next(bytes, size_bytes, origin, &at, &keys));
    FTH_REQUIRE(keys->root->kind == FTH_PICKLE_LIST, FTH_CORRUPT, "%s: damaged: no list of storages", origin);
    if (fresh->pickle->storage_count)
        qsort(fresh->pickle->storages, fresh->pickle->storage_count, sizeof *fresh->pickle->storages, compare_storages);
    for (size_t i = 0; i < keys->root->count; i++)
        FTH_TRY(place_storage(bytes, size_bytes, origin, keys->root->items[i], fresh->pickle, &at));
    *pth = fresh;
    fresh = NULL;

out:
    fth_pickle_free(keys);
    fth_pth_free(fresh);
    return status;
}
