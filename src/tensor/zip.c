/* Reads the directory at the end of a zip archive (PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.3):
 *
 *     local header, name, extra, data     for each entry
 *     central directory                   for each entry: sizes, method, place of the local header,
 *                                         name
 *     zip64 end record, zip64 locator     where 16 or 32 bits are too few
 *     end record                          where the directory is */
#include <stdlib.h>
#include <string.h>

#include "tensor/zip_internal.h"

enum {
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    END64_SIZE = 56,
    LOCATOR_SIZE = 20,
    MAX_COMMENT = 65535,
    ZIP64_EXTRA = 1,
    FLAG_ENCRYPTED = 1,
};

#define LOCAL_SIGNATURE   0x04034b50u
#define CENTRAL_SIGNATURE 0x02014b50u
#define END_SIGNATURE     0x06054b50u
#define END64_SIGNATURE   0x06064b50u
#define LOCATOR_SIGNATURE 0x07064b50u

typedef struct zip_archive {
    const unsigned char *bytes;
    uint64_t size;
    const char *origin;
    uint64_t directory, directory_size, count;
} zip_archive;

/* An entry on its way from the directory, with the place it takes. */
typedef struct placed_entry {
    fth_zip_entry entry;
    uint64_t begin, end;
} placed_entry;

static uint64_t load(const unsigned char *bytes, size_t width)
{
    uint64_t value = 0;
    memcpy(&value, bytes, width); /* both are little-endian */
    return value;
}

static fth_status fail_damaged(const zip_archive *archive, const char *what)
{
    return fth_fail(FTH_CORRUPT, "%s: damaged or truncated zip archive: %s", archive->origin, what);
}

bool fth_zip_recognize(const void *bytes, size_t size_bytes)
{
    return size_bytes >= 4 && (load(bytes, 4) == LOCAL_SIGNATURE || load(bytes, 4) == END_SIGNATURE);
}

/* Finds the end record, which a comment of unknown length may follow. */
static fth_status find_end(const zip_archive *archive, uint64_t *at)
{
    if (archive->size < END_SIZE)
        return fail_damaged(archive, "too short");
    uint64_t last = archive->size - END_SIZE, first = last > MAX_COMMENT ? last - MAX_COMMENT : 0;
    for (uint64_t i = last;; i--) {
        const unsigned char *end = archive->bytes + i;
        if (load(end, 4) == END_SIGNATURE && load(end + 20, 2) == last - i) {
            *at = i;
            return FTH_OK;
        }
        if (i == first)
            return fail_damaged(archive, "its directory is missing");
    }
}

static fth_status read_end(zip_archive *archive)
{
    uint64_t at = 0;
    fth_status status = find_end(archive, &at);
    if (status != FTH_OK)
        return status;
    const unsigned char *end = archive->bytes + at;
    archive->count = load(end + 10, 2);
    archive->directory_size = load(end + 12, 4);
    archive->directory = load(end + 16, 4);
    if (load(end + 4, 2) != load(end + 6, 2))
        return fth_fail(FTH_UNSUPPORTED, "%s: a zip archive in several parts", archive->origin);
    if (at >= LOCATOR_SIZE && load(end - LOCATOR_SIZE, 4) == LOCATOR_SIGNATURE) {
        uint64_t at64 = load(end - LOCATOR_SIZE + 8, 8), before = at - LOCATOR_SIZE;
        if (before < END64_SIZE || at64 > before - END64_SIZE || load(archive->bytes + at64, 4) != END64_SIGNATURE)
            return fail_damaged(archive, "its zip64 record is missing");
        const unsigned char *end64 = archive->bytes + at64;
        archive->count = load(end64 + 32, 8);
        archive->directory_size = load(end64 + 40, 8);
        archive->directory = load(end64 + 48, 8);
        at = at64;
    }
    if (archive->directory > at || archive->directory_size > at - archive->directory)
        return fail_damaged(archive, "its directory lies outside of it");
    if (archive->count > archive->directory_size / CENTRAL_SIZE)
        return fail_damaged(archive, "more entries than its directory has room for");
    return FTH_OK;
}

/* The 64-bit values of an entry whose 32-bit fields are full. Each is there only if its field is
 * full, in this order. */
static fth_status read_zip64(const zip_archive *archive, const unsigned char *extra, size_t extra_size, uint64_t *size,
                             uint64_t *compressed_size, uint64_t *local)
{
    uint64_t *values[] = {size, compressed_size, local};
    bool wanted = *size == UINT32_MAX || *compressed_size == UINT32_MAX || *local == UINT32_MAX;
    while (wanted && extra_size >= 4) {
        size_t kind = load(extra, 2), length = load(extra + 2, 2);
        extra += 4;
        extra_size -= 4;
        if (length > extra_size)
            break;
        if (kind == ZIP64_EXTRA) {
            for (size_t i = 0, at = 0; i < FTH_COUNT_OF(values); i++) {
                if (*values[i] != UINT32_MAX)
                    continue;
                if (length - at < 8)
                    return fail_damaged(archive, "a zip64 field is too short");
                *values[i] = load(extra + at, 8);
                at += 8;
            }
            return FTH_OK;
        }
        extra += length;
        extra_size -= length;
    }
    return FTH_OK;
}

/* Reads the entry at `*at` of the directory, and advances. */
static fth_status read_entry(const zip_archive *archive, uint64_t *at, placed_entry *placed)
{
    uint64_t end = archive->directory + archive->directory_size, left = end - *at;
    const unsigned char *record = archive->bytes + *at;
    fth_zip_entry *entry = &placed->entry;
    if (left < CENTRAL_SIZE || load(record, 4) != CENTRAL_SIGNATURE)
        return fail_damaged(archive, "a directory entry is missing");
    uint64_t flags = load(record + 8, 2), method = load(record + 10, 2);
    uint64_t compressed_size = load(record + 20, 4), size = load(record + 24, 4), local = load(record + 42, 4);
    uint64_t name_length = load(record + 28, 2), extra_size = load(record + 30, 2), comment = load(record + 32, 2);
    if (name_length + extra_size + comment > left - CENTRAL_SIZE)
        return fail_damaged(archive, "a directory entry is cut off");
    entry->name = (const char *)record + CENTRAL_SIZE;
    entry->name_length = name_length;
    *at += CENTRAL_SIZE + name_length + extra_size + comment;

    fth_status status =
        read_zip64(archive, record + CENTRAL_SIZE + name_length, extra_size, &size, &compressed_size, &local);
    if (status != FTH_OK)
        return status;
    if (flags & FLAG_ENCRYPTED)
        return fth_fail(FTH_UNSUPPORTED, "%s: a zip archive with encrypted entries", archive->origin);
    if (archive->directory < LOCAL_SIZE || local > archive->directory - LOCAL_SIZE ||
        load(archive->bytes + local, 4) != LOCAL_SIGNATURE)
        return fail_damaged(archive, "an entry lies outside of it");
    /* The local header has its own name and extra field, by which PyTorch aligns the data. */
    uint64_t start = local + LOCAL_SIZE + load(archive->bytes + local + 26, 2) + load(archive->bytes + local + 28, 2);
    if ((method == 0 && size != compressed_size) || start > archive->directory ||
        compressed_size > archive->directory - start)
        return fail_damaged(archive, "an entry is larger than the archive");
    entry->compressed = method != 0;
    entry->data = archive->bytes + start;
    entry->size_bytes = compressed_size;
    placed->begin = local;
    placed->end = start + compressed_size;
    return FTH_OK;
}

static int compare_places(const void *a, const void *b)
{
    const placed_entry *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

static int compare_names(const void *a, const void *b)
{
    const fth_zip_entry *left = a, *right = b;
    size_t length = left->name_length < right->name_length ? left->name_length : right->name_length;
    int order = memcmp(left->name, right->name, length);
    return order ? order : (left->name_length > right->name_length) - (left->name_length < right->name_length);
}

fth_status fth_zip_parse(const void *bytes, size_t size_bytes, const char *origin, fth_zip *zip)
{
    fth_status status = FTH_OK;
    zip_archive archive = {.bytes = bytes, .size = size_bytes, .origin = origin};
    placed_entry *placed = NULL;
    *zip = (fth_zip){0};

    FTH_TRY(read_end(&archive));
    FTH_TRY(fth_allocate(archive.count, sizeof *placed, &placed));
    FTH_TRY(fth_allocate(archive.count, sizeof *zip->entries, &zip->entries));
    uint64_t at = archive.directory;
    for (uint64_t i = 0; i < archive.count; i++)
        FTH_TRY(read_entry(&archive, &at, &placed[i]));

    qsort(placed, archive.count, sizeof *placed, compare_places);
    for (uint64_t i = 0; i < archive.count; i++) {
        if (i + 1 < archive.count && placed[i].end > placed[i + 1].begin) {
            status = fail_damaged(&archive, "entries overlap");
            goto out;
        }
        zip->entries[i] = placed[i].entry;
    }
    zip->count = archive.count;
    qsort(zip->entries, zip->count, sizeof *zip->entries, compare_names);
    for (size_t i = 1; i < zip->count; i++) {
        if (compare_names(&zip->entries[i - 1], &zip->entries[i]) == 0) {
            status = fail_damaged(&archive, "two entries have the same name");
            goto out;
        }
    }

out:
    free(placed);
    if (status != FTH_OK)
        fth_zip_release(zip);
    return status;
}

void fth_zip_release(fth_zip *zip)
{
    free(zip->entries);
    *zip = (fth_zip){0};
}

const fth_zip_entry *fth_zip_find(const fth_zip *zip, const char *name, size_t name_length)
{
    fth_zip_entry key = {.name = name, .name_length = name_length};
    return zip->count ? bsearch(&key, zip->entries, zip->count, sizeof key, compare_names) : NULL;
}
