/* See exported_archive.h. */
#include "tensor/exported_archive.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/exported_config.h"
#include "tensor/pth_internal.h"
#include "tensor/zip_internal.h"

enum { MAX_FOLDER = 300, MAX_PATH = 1000 };

/* The tensors of one dictionary. */
typedef struct tensor_set {
    fth_pth *pth;            /* of a pickle */
    fth_pth_tensors pickled; /* likewise */
    fth_exported_config raw; /* of raw files */
    fth_exported_tensor *items;
    const fth_exported_tensor **by_name; /* sorted */
    size_t count;
} tensor_set;

struct fth_exported_archive {
    fth_zip zip;
    const char *origin;      /* the caller's */
    char folder[MAX_FOLDER]; /* "net/"; "" until 2.7 */
    const fth_zip_entry *program;
    const char *program_name;
    tensor_set state, constants;
};

static bool contains(const fth_zip_entry *entry, const char *text)
{
    return !entry->compressed && entry->size_bytes == strlen(text) && memcmp(entry->data, text, strlen(text)) == 0;
}

static const char marker[] = "archive_format";

/* Finds the file of an archive since 2.8 that is beside all others: "net/archive_format". */
static const fth_zip_entry *find_marker(const fth_zip *zip)
{
    for (size_t i = 0; i < zip->count; i++) {
        const fth_zip_entry *entry = &zip->entries[i];
        const size_t length = entry->name_length - strlen(marker); /* of the folder */
        if (entry->name_length >= strlen(marker) && memcmp(entry->name + length, marker, strlen(marker)) == 0 &&
            contains(entry, "pt2") && (length == 0 || memchr(entry->name, '/', length) == entry->name + length - 1))
            return entry;
    }
    return NULL;
}

static const char old_program[] = "serialized_exported_program.json";

bool fth_exported_archive_recognize(const void *bytes, size_t size_bytes)
{
    fth_zip zip = {0};
    if (!fth_zip_recognize(bytes, size_bytes) || fth_zip_parse(bytes, size_bytes, "archive", &zip) != FTH_OK)
        return false;
    const bool found = find_marker(&zip) || fth_zip_find(&zip, old_program, strlen(old_program));
    fth_zip_release(&zip);
    return found;
}

/* An entry of the archive's folder, or NULL. */
static const fth_zip_entry *find_entry(const fth_exported_archive *archive, const char *folder, const char *name)
{
    char path[MAX_PATH];
    const int length = snprintf(path, sizeof path, "%s%s%s", archive->folder, folder, name);
    return length < (int)sizeof path ? fth_zip_find(&archive->zip, path, (size_t)length) : NULL;
}

static fth_status check_stored(const fth_exported_archive *archive, const fth_zip_entry *entry)
{
    if (!entry->compressed)
        return FTH_OK;
    return fth_fail(
        FTH_UNSUPPORTED,
        "%s: %.*s is compressed; programs are read in place, so use the file that torch.export.save() wrote, "
        "or pack it without compression (zip -0)",
        archive->origin, (int)entry->name_length, entry->name);
}

/* ---- tensors ---- */

static int compare_tensors(const void *a, const void *b)
{
    return strcmp((*(const fth_exported_tensor *const *)a)->view.name,
                  (*(const fth_exported_tensor *const *)b)->view.name);
}

static fth_status sort_tensors(tensor_set *set, const char *origin)
{
    fth_status status = fth_allocate(set->count, sizeof(void *), &set->by_name);
    if (status != FTH_OK)
        return status;
    for (size_t i = 0; i < set->count; i++)
        set->by_name[i] = &set->items[i];
    qsort(set->by_name, set->count, sizeof *set->by_name, compare_tensors);
    for (size_t i = 1; i < set->count; i++) {
        if (compare_tensors(&set->by_name[i - 1], &set->by_name[i]) == 0)
            return fth_fail(FTH_CORRUPT, "%s: two tensors are called '%s'", origin, set->by_name[i]->view.name);
    }
    return FTH_OK;
}

static const fth_exported_tensor *find_tensor(const tensor_set *set, const char *name)
{
    const fth_exported_tensor key = {.view = {.name = name}}, *wanted = &key;
    const fth_exported_tensor *const *found =
        set->count ? bsearch(&wanted, set->by_name, set->count, sizeof *set->by_name, compare_tensors) : NULL;
    return found ? *found : NULL;
}

static fth_status read_pickle(const fth_zip_entry *entry, const char *origin, tensor_set *set)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_pth_open_zip(entry->data, (size_t)entry->size_bytes, origin, &set->pth));
    FTH_REQUIRE(set->pth->pickle->root->kind == FTH_PICKLE_DICT, FTH_CORRUPT, "%s: it holds no dictionary of tensors",
                origin);
    FTH_TRY(fth_pth_read_tensors(set->pth, set->pth->pickle->root, origin, &set->pickled));
    FTH_TRY(fth_allocate(set->pickled.count, sizeof *set->items, &set->items));
    for (set->count = 0; set->count < set->pickled.count; set->count++)
        set->items[set->count] = (fth_exported_tensor){set->pickled.views[set->count], set->pickled.firsts[set->count]};
out:
    return status;
}

/* Finds the raw files that a config names. */
typedef struct raw_folder {
    const fth_exported_archive *archive;
    const char *folder;
} raw_folder;

static fth_status find_raw(void *context, const char *path, const unsigned char **bytes, uint64_t *size_bytes)
{
    const raw_folder *raw = context;
    const fth_zip_entry *entry = find_entry(raw->archive, raw->folder, path);
    *bytes = NULL;
    if (!entry)
        return FTH_OK;
    *bytes = entry->data;
    *size_bytes = entry->size_bytes;
    return check_stored(raw->archive, entry);
}

/* Reads the tensors of `folder`, whichever way they are in it. */
static fth_status read_set(fth_exported_archive *archive, const char *folder, const char *config, const char *pickle,
                           uint64_t archive_size_bytes, tensor_set *set)
{
    fth_status status = FTH_OK;
    raw_folder raw = {archive, folder};
    const fth_zip_entry *entry = find_entry(archive, folder, config);
    const bool has_config = *config && entry;
    char *origin = NULL;

    if (!has_config)
        entry = find_entry(archive, folder, pickle);
    if (!entry)
        goto out; /* no tensors of this kind; the program's own names are checked */
    FTH_TRY(check_stored(archive, entry));
    origin = fth_format("%s (%s%s)", archive->origin, folder, has_config ? config : pickle);
    FTH_REQUIRE(origin, FTH_NO_MEMORY, "no memory for a path");
    if (has_config) {
        set->raw.copies = fth_tensor_copies_of(archive_size_bytes);
        FTH_TRY(fth_exported_config_read(entry->data, (size_t)entry->size_bytes, origin, find_raw, &raw, &set->raw,
                                         &set->items, &set->count));
    } else {
        FTH_TRY(read_pickle(entry, origin, set));
    }
    FTH_TRY(sort_tensors(set, origin));
out:
    free(origin);
    return status;
}

static void release_set(tensor_set *set)
{
    free(set->items);
    free(set->by_name);
    fth_exported_config_release(&set->raw);
    fth_pth_tensors_release(&set->pickled);
    fth_pth_free(set->pth);
}

/* ---- the archive ---- */

/* The one program in models/. */
static fth_status find_program(fth_exported_archive *archive)
{
    char prefix[MAX_FOLDER + 16];
    const int prefix_length = snprintf(prefix, sizeof prefix, "%smodels/", archive->folder);
    archive->program = find_entry(archive, "models/", "model.json");
    for (size_t i = 0; i < archive->zip.count && !archive->program; i++) {
        const fth_zip_entry *entry = &archive->zip.entries[i];
        if (entry->name_length > (size_t)prefix_length + 5 && memcmp(entry->name, prefix, (size_t)prefix_length) == 0 &&
            memcmp(entry->name + entry->name_length - 5, ".json", 5) == 0)
            return fth_fail(FTH_UNSUPPORTED,
                            "%s: its program is called %.*s, not model.json; save one network alone with "
                            "torch.export.save()",
                            archive->origin, (int)(entry->name_length - (size_t)prefix_length),
                            entry->name + prefix_length);
    }
    if (!archive->program)
        return fth_fail(
            FTH_INVALID,
            "%s: no models/model.json in it: torch.export.save() was interrupted, or this is a compiled package, "
            "which has no program that could be trained; save one with "
            "torch.export.save(torch.export.export(model.train(), ...), ...)",
            archive->origin);
    return FTH_OK;
}

static fth_status check_byte_order(const fth_exported_archive *archive)
{
    const fth_zip_entry *order = find_entry(archive, "", "byteorder");
    if (!order || contains(order, "little"))
        return FTH_OK;
    return fth_fail(FTH_UNSUPPORTED, "%s: written on a big-endian machine; export it on a little-endian one",
                    archive->origin);
}

/* Since 2.8 everything is in one folder. */
static fth_status enter_folder(fth_exported_archive *archive)
{
    const fth_zip_entry *entry = find_marker(&archive->zip);
    if (!entry)
        return fth_fail(FTH_INVALID, "%s: no program of torch.export.save() in it", archive->origin);
    const size_t length = entry->name_length - strlen(marker);
    if (length >= sizeof archive->folder)
        return fth_fail(FTH_UNSUPPORTED, "%s: its folder has a name of %zu bytes; export to a file of a shorter name",
                        archive->origin, length);
    memcpy(archive->folder, entry->name, length);
    return FTH_OK;
}

static fth_status open_archive(fth_exported_archive *archive, const void *bytes, size_t size_bytes)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_zip_parse(bytes, size_bytes, archive->origin, &archive->zip));
    archive->program = fth_zip_find(&archive->zip, old_program, strlen(old_program));
    archive->program_name = archive->program ? old_program : "models/model.json";
    if (archive->program) {
        FTH_TRY(read_set(archive, "", "", "serialized_state_dict.pt", size_bytes, &archive->state));
        FTH_TRY(read_set(archive, "", "", "serialized_constants.pt", size_bytes, &archive->constants));
    } else {
        FTH_TRY(enter_folder(archive));
        FTH_TRY(find_program(archive));
        FTH_TRY(check_byte_order(archive));
        FTH_TRY(
            read_set(archive, "data/weights/", "model_weights_config.json", "model.pt", size_bytes, &archive->state));
        FTH_TRY(read_set(archive, "data/constants/", "model_constants_config.json", "model.pt", size_bytes,
                         &archive->constants));
    }
    FTH_TRY(check_stored(archive, archive->program));
out:
    return status;
}

fth_status fth_exported_archive_parse(const void *bytes, size_t size_bytes, const char *origin,
                                      fth_exported_archive **archive)
{
    *archive = NULL;
    fth_exported_archive *fresh = NULL;
    fth_status status = fth_allocate(1, sizeof *fresh, &fresh);
    if (status != FTH_OK)
        return status;
    fresh->origin = origin;
    status = open_archive(fresh, bytes, size_bytes);
    if (status == FTH_OK)
        *archive = fresh;
    else
        fth_exported_archive_free(fresh);
    return status;
}

void fth_exported_archive_free(fth_exported_archive *archive)
{
    if (!archive)
        return;
    release_set(&archive->state);
    release_set(&archive->constants);
    fth_zip_release(&archive->zip);
    free(archive);
}

const char *fth_exported_archive_program(const fth_exported_archive *archive, size_t *size_bytes)
{
    *size_bytes = (size_t)archive->program->size_bytes;
    return (const char *)archive->program->data;
}

const char *fth_exported_archive_program_name(const fth_exported_archive *archive)
{
    return archive->program_name;
}

size_t fth_exported_archive_state_count(const fth_exported_archive *archive)
{
    return archive->state.count;
}

const fth_exported_tensor *fth_exported_archive_get_state(const fth_exported_archive *archive, size_t index)
{
    return index < archive->state.count ? &archive->state.items[index] : NULL;
}

const fth_exported_tensor *fth_exported_archive_find_state(const fth_exported_archive *archive, const char *name)
{
    return find_tensor(&archive->state, name);
}

const fth_exported_tensor *fth_exported_archive_find_constant(const fth_exported_archive *archive, const char *name)
{
    return find_tensor(&archive->constants, name);
}

static size_t count_copies(const tensor_set *set)
{
    return set->raw.copies.count + (set->pth ? set->pth->copies.count : 0);
}

size_t fth_exported_archive_copied_count(const fth_exported_archive *archive)
{
    return count_copies(&archive->state) + count_copies(&archive->constants);
}
