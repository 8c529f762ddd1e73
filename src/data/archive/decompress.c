/* See blob.h. Gzip is decompressed by libdeflate, three times as fast as by zlib, if the length at
 * the end of the file is plausible. Files of several gzip members, xz and zstd are decompressed by
 * libarchive, which needs no length. Decompressed xz (about 20 MB/s) is kept in the cache
 * folder. */
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "data/archive/archive_reader.h"
#include "data/archive/blob.h"
#include "data/archive/disk_cache.h"
#include "store/store.h"

enum {
    GZIP_MIN_BYTES = 18,     /* header and trailer of an empty member */
    DEFLATE_MAX_RATIO = 1032 /* no deflate stream expands by more (zlib's technical notes) */
};
static const uint8_t xz_magic[6] = {0xfd, '7', 'z', 'X', 'Z', 0};
static const uint64_t unpacked_limit_bytes = (uint64_t)2 << 30; /* of disk space */

void fth_blob_free(fth_blob *blob)
{
    if (blob->mapped)
        fth_file_unmap(blob->bytes, blob->size_bytes);
    else
        free((void *)blob->bytes);
    *blob = (fth_blob){0};
}

static bool is_gzip(const uint8_t *bytes, size_t size_bytes)
{
    return size_bytes >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

static bool is_xz(const uint8_t *bytes, size_t size_bytes)
{
    return size_bytes >= sizeof xz_magic && memcmp(bytes, xz_magic, sizeof xz_magic) == 0;
}

bool fth_is_compressed(const uint8_t *bytes, size_t size_bytes)
{
    static const uint8_t zstd_magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    return is_gzip(bytes, size_bytes) || is_xz(bytes, size_bytes) ||
           (size_bytes >= sizeof zstd_magic && memcmp(bytes, zstd_magic, sizeof zstd_magic) == 0);
}

size_t fth_gzip_stated_size(const uint8_t *bytes, size_t size_bytes)
{
    if (size_bytes < GZIP_MIN_BYTES || !is_gzip(bytes, size_bytes))
        return 0;
    const uint8_t *trailer = bytes + size_bytes - 4;
    return (size_t)trailer[0] | (size_t)trailer[1] << 8 | (size_t)trailer[2] << 16 | (size_t)trailer[3] << 24;
}

/* The whole of a single-member gzip file. *done stays false if libarchive has to try. */
static fth_status inflate_member(const uint8_t *bytes, size_t size_bytes, size_t max_bytes, const char *name,
                                 fth_blob *blob, bool *done)
{
    fth_status status = FTH_OK;
    uint8_t *output = NULL;
    struct libdeflate_decompressor *decompressor = NULL;

    if (size_bytes < GZIP_MIN_BYTES)
        return fth_fail(FTH_CORRUPT, "%s: truncated: %s, too short for a gzip file", name,
                        FTH_COUNTED(size_bytes, "byte"));
    const size_t length = fth_gzip_stated_size(bytes, size_bytes);
    if (length == 0 || length > max_bytes || length / DEFLATE_MAX_RATIO > size_bytes)
        return FTH_OK; /* the length is modulo 4 GiB, of the last member only, or nonsense */

    FTH_TRY(fth_allocate(length, 1, &output));
    decompressor = libdeflate_alloc_decompressor();
    FTH_REQUIRE(decompressor, FTH_NO_MEMORY, "%s: no memory for a decompressor", name);
    size_t used = 0;
    enum libdeflate_result result =
        libdeflate_gzip_decompress_ex(decompressor, bytes, size_bytes, output, length, &used, NULL);
    FTH_REQUIRE(result != LIBDEFLATE_BAD_DATA, FTH_CORRUPT, "%s: the gzip data is damaged or truncated", name);
    if (result == LIBDEFLATE_SUCCESS && used == size_bytes) {
        *blob = (fth_blob){.bytes = output, .size_bytes = length};
        output = NULL;
        *done = true;
    }

out:
    libdeflate_free_decompressor(decompressor);
    free(output);
    return status;
}

/* The rest of the archive's entry, into memory that grows up to `max_bytes`. */
static fth_status read_rest(fth_archive *archive, size_t first_guess, size_t max_bytes, const char *name,
                            fth_blob *blob)
{
    fth_status status = FTH_OK;
    uint8_t *output = NULL, beyond;
    size_t size = 0, got = 0, capacity = first_guess < max_bytes ? first_guess : max_bytes;

    FTH_TRY(fth_allocate(capacity, 1, &output));
    for (;;) {
        FTH_TRY(fth_archive_read(archive, output + size, capacity - size, &got));
        size += got;
        if (size < capacity)
            break;
        if (capacity == max_bytes) {
            FTH_TRY(fth_archive_read(archive, &beyond, 1, &got));
            FTH_REQUIRE(got == 0, FTH_CORRUPT, "%s: decompresses to more than the %zu bytes such a file may have", name,
                        max_bytes);
            break;
        }
        capacity = capacity < max_bytes / 2 ? capacity * 2 : max_bytes;
        uint8_t *grown = realloc(output, capacity);
        FTH_REQUIRE(grown, FTH_NO_MEMORY, "%s: no memory for %zu bytes", name, capacity);
        output = grown;
    }
    *blob = (fth_blob){.bytes = output, .size_bytes = size};
    output = NULL;

out:
    free(output);
    return status;
}

fth_status fth_decompress(const uint8_t *bytes, size_t size_bytes, size_t max_bytes, const char *name,
                          const fth_stop *stop, fth_blob *blob)
{
    fth_status status = FTH_OK;
    const fth_archive_input input = {
        .bytes = bytes, .size_bytes = size_bytes, .name = name, .forms = FTH_ARCHIVE_SINGLE, .stop = stop};
    const fth_archive_entry *entry = NULL;
    fth_archive *archive = NULL;

    *blob = (fth_blob){0};
    if (is_gzip(bytes, size_bytes)) {
        bool done = false;
        FTH_TRY(inflate_member(bytes, size_bytes, max_bytes, name, blob, &done));
        if (done)
            return FTH_OK;
    }
    FTH_TRY(fth_archive_open(&input, &archive));
    FTH_TRY(fth_archive_next(archive, &entry));
    FTH_REQUIRE(entry, FTH_CORRUPT, "%s: decompresses to nothing", name);
    size_t first_guess = size_bytes < max_bytes / 2 ? size_bytes * 2 + 4096 : max_bytes;
    FTH_TRY(read_rest(archive, first_guess, max_bytes, name, blob));

out:
    fth_archive_free(archive);
    return status;
}

/* ---- unpacked files in the cache folder ---- */

/* NULL if no file needs it or it cannot be opened; files are then decompressed every time. */
static fth_disk_cache *open_unpacked(const fth_load *loads, int count, const fth_dataset_options *options)
{
    fth_disk_cache *unpacked = NULL;
    char *folder = NULL, *path = NULL;
    fth_status status = FTH_OK;
    bool needed = false;
    for (int i = 0; i < count; i++) {
        const char *ending = loads[i].path ? strrchr(loads[i].path, '.') : NULL;
        needed = needed || (ending && strcmp(ending, ".xz") == 0);
    }
    if (!needed)
        return NULL;
    if (!options->disk_cache_folder || !*options->disk_cache_folder)
        FTH_TRY(fth_cache_folder(&folder));
    path = fth_path_join(folder ? folder : options->disk_cache_folder, "unpacked");
    FTH_TRY(fth_disk_cache_open(path, unpacked_limit_bytes, &unpacked));

out:
    if (status != FTH_OK)
        fth_log_warning("%s; xz files are decompressed at every start", fth_error_message());
    free(folder);
    free(path);
    return unpacked;
}

/* Decompresses an xz file, or finds the earlier result in `unpacked` (may be NULL). */
static fth_status decompress_xz(const uint8_t *bytes, size_t size_bytes, fth_disk_cache *unpacked, const fth_stop *stop,
                                fth_load *load)
{
    fth_pixel_buffer kept = {0};
    size_t kept_bytes = 0;
    char what[sizeof "unpacked " + 64] = "unpacked ";
    if (unpacked) {
        fth_hex_sha256(bytes, size_bytes, what + strlen(what));
        if (fth_disk_cache_find(unpacked, what, &kept, &kept_bytes) && kept_bytes <= load->max_bytes) {
            load->blob = (fth_blob){.bytes = kept.bytes, .size_bytes = kept_bytes};
            return FTH_OK;
        }
        free(kept.bytes);
    }
    fth_status status = fth_decompress(bytes, size_bytes, load->max_bytes, load->path, stop, &load->blob);
    if (status == FTH_OK && unpacked)
        fth_disk_cache_keep(unpacked, what, load->blob.bytes, load->blob.size_bytes);
    return status;
}

static fth_status load_file(fth_load *load, fth_disk_cache *unpacked, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    const void *mapped = NULL;
    size_t size_bytes = 0;

    FTH_TRY(fth_file_map(load->path, &mapped, &size_bytes));
    if (is_xz(mapped, size_bytes)) {
        FTH_TRY(fth_check_stop(stop, load->path));
        FTH_TRY(decompress_xz(mapped, size_bytes, unpacked, stop, load));
    } else if (fth_is_compressed(mapped, size_bytes)) {
        FTH_TRY(fth_check_stop(stop, load->path));
        FTH_TRY(fth_decompress(mapped, size_bytes, load->max_bytes, load->path, stop, &load->blob));
    } else {
        if (size_bytes > load->max_bytes) {
            status = fth_fail(FTH_CORRUPT, "%s: %zu bytes are more than the %zu such a file may have", load->path,
                              size_bytes, load->max_bytes);
            goto out;
        }
        load->blob = (fth_blob){.bytes = mapped, .size_bytes = size_bytes, .mapped = true};
        mapped = NULL;
    }

out:
    fth_file_unmap(mapped, size_bytes);
    return status;
}

typedef struct loading {
    fth_load *loads;
    fth_disk_cache *unpacked;
    const fth_stop *stop;
} loading;

static fth_status load_one(void *context, uint64_t i)
{
    const loading *all = context;
    return all->loads[i].path ? load_file(&all->loads[i], all->unpacked, all->stop) : FTH_OK;
}

fth_status fth_loads_run(fth_load *loads, int count, const fth_dataset_options *options)
{
    enum { MAX_THREADS = 16 };
    const int threads = options->threads < 1 ? 1 : options->threads > MAX_THREADS ? MAX_THREADS : options->threads;
    loading all = {.loads = loads, .unpacked = open_unpacked(loads, count, options), .stop = options->stop};
    fth_status status = fth_store_in_parallel(threads, (uint64_t)count, load_one, &all, NULL);
    fth_disk_cache_free(all.unpacked);
    return status;
}

void fth_loads_free(fth_load *loads, int count)
{
    for (int i = 0; i < count; i++) {
        free(loads[i].path);
        fth_blob_free(&loads[i].blob);
        loads[i].path = NULL;
    }
}

static const char *const suffixes[] = {"", ".gz", ".xz"};

bool fth_name_fits(const char *name, const char *const *stems)
{
    for (; *stems; stems++) {
        size_t length = strlen(*stems);
        if (strncmp(name, *stems, length) != 0)
            continue;
        for (size_t i = 0; i < FTH_COUNT_OF(suffixes); i++)
            if (strcmp(name + length, suffixes[i]) == 0)
                return true;
    }
    return false;
}

bool fth_has_file(const char *folder, const char *const *stems)
{
    char *path = fth_find_file(folder, stems);
    free(path);
    return path != NULL;
}

char *fth_find_file(const char *folder, const char *const *stems)
{
    for (; *stems; stems++)
        for (size_t i = 0; i < FTH_COUNT_OF(suffixes); i++) {
            char *path = fth_format("%s/%s%s", folder, *stems, suffixes[i]);
            if (fth_file_exists(path))
                return path;
            free(path);
        }
    return NULL;
}
