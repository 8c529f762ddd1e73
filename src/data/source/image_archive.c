/* Image sets in archives.
 *
 * A plain tar is mapped, and libarchive, reading from the mapping, says where in it each image
 * lies: samples are used in place and nothing is unpacked. Any other archive is turned into such a
 * tar once, in the cache folder, under a name made of the archive's path, size and date; a URL is
 * downloaded there first. Files appear in the cache whole. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/archive/blob.h"
#include "data/archive/image_tar.h"
#include "data/image/decode.h"
#include "data/source/entry_path.h"
#include "data/source/image_index.h"
#include "http/http.h"

enum {
    MAX_EXPANSION = 64, /* encoded images hardly shrink; what grows more than this is no set of images */
    UNPACKED_FORM = 3   /* what unpacked archives hold; archives in the cache of another form are not used */
};

/* ---- names in the cache folder ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = fth_random_mix(hash ^ (uint8_t)*text);
    return hash;
}

/* The last part of a path or URL, without what has no place in a file name. */
static void plain_name(const char *path, char name[64])
{
    size_t length = strcspn(path, "?#"), begin = length;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    size_t kept = 0;
    for (size_t i = begin; i < length && kept < 63; i++) {
        char c = path[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                     c == '_' || (c == '.' && kept > 0);
        name[kept++] = plain ? c : '_';
    }
    name[kept] = '\0';
}

/* ---- reading ---- */

/* A plain tar, whose entries are given where they lie; or, with a `source`, anything, piece by
 * piece. */
static struct archive *open_archive(const uint8_t *bytes, size_t size_bytes, fth_archive_source *source)
{
    struct archive *archive = archive_read_new();
    if (!archive)
        return NULL;
    archive_read_support_format_tar(archive);
    if (source) {
        archive_read_support_format_zip(archive);
        archive_read_support_filter_gzip(archive);
        archive_read_support_filter_xz(archive);
        archive_read_support_filter_zstd(archive);
        archive_read_support_filter_bzip2(archive);
    }
    bool opened = source ? fth_archive_source_open(source, archive)
                         : archive_read_open_memory(archive, bytes, size_bytes) == ARCHIVE_OK;
    if (!opened) {
        archive_read_free(archive);
        return NULL;
    }
    return archive;
}

/* ---- paths ---- */

/* Why entries were left out, beside those that are not images. */
typedef struct left_out_entries {
    fth_left_out leaving, too_long;
} left_out_entries;

static const char *raw_path(struct archive_entry *entry)
{
    const char *path = archive_entry_pathname_utf8(entry);
    path = path ? path : archive_entry_pathname(entry);
    return path ? path : "";
}

/* The path of the next entry; *usable is false where there is nothing to do for it. */
static fth_status take_path(struct archive_entry *entry, fth_entry_path *path, left_out_entries *left_out, bool *usable)
{
    const char *raw = raw_path(entry), *slash = strrchr(raw, '/');
    fth_path_kind kind = FTH_PATH_EMPTY;
    fth_status status = fth_entry_path_read(raw, path, &kind);
    *usable = status == FTH_OK && kind == FTH_PATH_USABLE;
    if (status == FTH_OK && fth_image_name_fits(slash ? slash + 1 : raw)) {
        if (kind == FTH_PATH_LEAVES)
            fth_left_out_add(&left_out->leaving, raw, 1);
        if (kind == FTH_PATH_TOO_LONG)
            fth_left_out_add(&left_out->too_long, raw, 1);
    }
    return status;
}

static void report_left_out(const left_out_entries *left_out, const char *source)
{
    fth_left_out_report(&left_out->leaving, source, "image", "with .. in the path");
    fth_left_out_report(&left_out->too_long, source, "image", "with a path of more than 65536 bytes");
}

static bool is_file(struct archive_entry *entry)
{
    return archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry);
}

static fth_status fail_reading(struct archive *archive, const char *source)
{
    const char *why = archive_error_string(archive);
    return fth_fail(FTH_CORRUPT, "%s: damaged or truncated archive: %s", source, why ? why : "unknown format");
}

fth_status fth_image_archive_index(const uint8_t *bytes, size_t size_bytes, const char *source, fth_image_index *index)
{
    fth_status status = FTH_OK;
    struct archive *archive = open_archive(bytes, size_bytes, NULL);
    struct archive_entry *entry;
    fth_entry_path path = {0};
    left_out_entries left_out = {0};
    int64_t links = 0;
    int result;

    FTH_REQUIRE(archive, FTH_CORRUPT, "%s: not a tar archive", source);
    while ((result = archive_read_next_header(archive, &entry)) == ARCHIVE_OK || result == ARCHIVE_WARN) {
        uint32_t folder;
        bool usable = false;
        FTH_TRY(take_path(entry, &path, &left_out, &usable));
        if (!usable)
            continue;
        if (archive_entry_filetype(entry) == AE_IFDIR) { /* so that an empty class is noticed */
            FTH_TRY(fth_image_index_add_folder(index, path.text, strlen(path.text), &folder));
            continue;
        }
        if (!is_file(entry)) {
            links += fth_image_name_fits(path.name);
            continue;
        }
        FTH_TRY(fth_image_index_add_folder(index, path.text, path.folder_length, &folder));
        if (folder == UINT32_MAX || !fth_image_name_fits(path.name)) {
            FTH_TRY(fth_image_index_add(index, folder, path.name, 0, 0)); /* it may be noted as skipped */
            continue;
        }
        const void *block = bytes;
        size_t block_bytes = 0;
        la_int64_t offset = 0, size = archive_entry_size(entry);
        if (size > 0 && (archive_read_data_block(archive, &block, &block_bytes, &offset) != ARCHIVE_OK ||
                         (int64_t)block_bytes != size || offset != 0)) {
            status = archive_entry_sparse_count(entry) > 0
                         ? fth_fail(FTH_UNSUPPORTED, "%s: %s is stored as a sparse file; pack the images again", source,
                                    path.text)
                         : fail_reading(archive, source);
            goto out;
        }
        const uint8_t *begin = block;
        FTH_REQUIRE(begin >= bytes && begin + block_bytes <= bytes + size_bytes, FTH_CORRUPT,
                    "%s: %s cannot be read in place", source, path.text);
        FTH_TRY(fth_image_index_add(index, folder, path.name, (uint64_t)(begin - bytes), block_bytes));
    }
    if (result != ARCHIVE_EOF) {
        status = fail_reading(archive, source);
        goto out;
    }
    if (links > 0)
        fth_log_warning("%s: left out %s to images; pack the files themselves (tar --dereference --hard-dereference)",
                        source, FTH_COUNTED(links, "link"));
    report_left_out(&left_out, source);

out:
    free(path.text);
    archive_read_free(archive);
    return status;
}

/* ---- turning archives into tars ---- */

static fth_status read_entry(struct archive *archive, const char *source, const char *path, fth_pixel_buffer *buffer,
                             size_t *size_bytes)
{
    fth_status status = FTH_OK;
    *size_bytes = 0;
    for (;;) {
        FTH_TRY(fth_pixel_buffer_reserve(buffer, *size_bytes + (1 << 17)));
        la_ssize_t got = archive_read_data(archive, buffer->bytes + *size_bytes, buffer->capacity - *size_bytes);
        if (got < 0)
            return fail_reading(archive, source);
        if (got == 0)
            return FTH_OK;
        *size_bytes += (size_t)got;
        FTH_REQUIRE(*size_bytes <= FTH_MAX_IMAGE_FILE, FTH_CORRUPT, "%s: %s has more than %d bytes", source, path,
                    FTH_MAX_IMAGE_FILE);
    }
out:
    return status;
}

fth_status fth_image_archive_convert(fth_archive_source *pieces, const char *source, uint64_t max_bytes, fth_file *file)
{
    fth_status status = FTH_OK;
    struct archive *archive = open_archive(pieces->bytes, pieces->size_bytes, pieces);
    struct archive_entry *entry;
    fth_tar_writer *writer = NULL;
    fth_pixel_buffer buffer = {0};
    fth_entry_path path = {0};
    left_out_entries left_out = {0};
    uint64_t total = 0, limit = (uint64_t)pieces->size_bytes * MAX_EXPANSION + (1 << 24);
    int result;

    FTH_REQUIRE(archive, FTH_CORRUPT, "%s: not an archive that can be read", source);
    const fth_tar_output output = fth_tar_output_file(file);
    FTH_TRY(fth_tar_writer_create(&output, &writer));
    while ((result = archive_read_next_header(archive, &entry)) == ARCHIVE_OK || result == ARCHIVE_WARN) {
        size_t size = 0;
        bool usable = false;
        if (!is_file(entry))
            continue;
        FTH_TRY(take_path(entry, &path, &left_out, &usable));
        const bool image = usable && fth_image_name_fits(path.name);
        if (!image && !(usable && fth_image_path_is_skipped(path.text)))
            continue;
        if (image)
            FTH_TRY(read_entry(archive, source, path.text, &buffer, &size));
        total += size + 1024;
        FTH_REQUIRE(max_bytes == 0 || total <= max_bytes, FTH_INVALID, "%s: has more than %" PRIu64 " bytes of images",
                    source, max_bytes);
        FTH_REQUIRE(total <= limit, FTH_CORRUPT, "%s: expands to more than %d times its size, as no images do", source,
                    MAX_EXPANSION);
        FTH_TRY(fth_tar_writer_add(writer, path.text, buffer.bytes, size));
    }
    if (result != ARCHIVE_EOF) {
        status = fail_reading(archive, source);
        goto out;
    }
    FTH_TRY(fth_check_stop(pieces->stop, source)); /* asked while the last piece was unpacked */
    FTH_TRY(fth_tar_writer_finish(writer));
    report_left_out(&left_out, source);

out:
    free(path.text);
    free(buffer.bytes);
    fth_tar_writer_free(writer);
    archive_read_free(archive);
    return fth_archive_source_explain(pieces, source, status);
}

/* A tar's first header has its magic at 257 (old ones have none, but the name). */
static bool is_plain_tar(const uint8_t *bytes, size_t size_bytes, const char *path)
{
    size_t length = strlen(path);
    return size_bytes >= 512 && ((memcmp(bytes + 257, "ustar", 5) == 0) ||
                                 (length > 4 && strcmp(path + length - 4, ".tar") == 0 &&
                                  !fth_is_compressed(bytes, size_bytes) && memcmp(bytes, "PK\3\4", 4) != 0));
}

static bool is_packed(const uint8_t *bytes, size_t size_bytes)
{
    static const char *const magics[] = {"PK\3\4", "\x28\xb5\x2f\xfd", "BZh"};
    for (size_t i = 0; i < FTH_COUNT_OF(magics); i++)
        if (size_bytes >= 4 && memcmp(bytes, magics[i], strlen(magics[i])) == 0)
            return true;
    return fth_is_compressed(bytes, size_bytes);
}

fth_status fth_image_archive_unpack(const char *path, const fth_stop *stop, char **plain)
{
    fth_status status = FTH_OK;
    const void *bytes = NULL;
    size_t size_bytes = 0;
    char *folder = NULL, *target = NULL, *full = NULL, name[64];
    fth_file *file = NULL;
    struct stat facts;

    *plain = NULL;
    FTH_TRY(fth_file_map(path, &bytes, &size_bytes));
    FTH_REQUIRE(size_bytes > 0, FTH_INVALID, "%s is empty", path);
    if (is_plain_tar(bytes, size_bytes, path)) {
        *plain = fth_format("%s", path);
        goto out;
    }
    FTH_REQUIRE(is_packed(bytes, size_bytes), FTH_INVALID,
                "%s is neither a folder nor an archive of images (.tar, .tar.gz, .tar.xz, .tar.zst or .zip), nor a "
                "table of text (.csv, .tsv or .jsonl)",
                path);
    full = realpath(path, NULL);
    FTH_REQUIRE(full && stat(full, &facts) == 0, FTH_IO, "find %s: %s", path, strerror(errno));
    FTH_TRY(fth_cache_folder(&folder));
    uint64_t key = hash_text(UNPACKED_FORM, full);
    key = fth_random_mix(key ^ (uint64_t)facts.st_size);
    key = fth_random_mix(key ^ (uint64_t)facts.st_mtim.tv_sec);
    key = fth_random_mix(key ^ (uint64_t)facts.st_mtim.tv_nsec);
    plain_name(full, name);
    target = fth_format("%s/%s-%016" PRIx64 ".tar", folder, name, key);
    if (!fth_file_exists(target)) {
        fth_log_info("unpacking %s into %s, once", path, target);
        FTH_TRY(fth_file_create(target, &file));
        fth_archive_source pieces = {.bytes = bytes, .size_bytes = size_bytes, .stop = stop};
        FTH_TRY(fth_image_archive_convert(&pieces, path, 0, file));
        FTH_TRY(fth_file_publish(file));
    }
    *plain = target;
    target = NULL;

out:
    fth_file_free(file);
    fth_file_unmap(bytes, size_bytes);
    free(folder);
    free(target);
    free(full);
    return status;
}

/* ---- downloads ---- */

fth_status fth_image_fetch(const char *url, const fth_stop *stop, char **path)
{
    fth_status status = FTH_OK;
    char *folder = NULL, *target = NULL, name[64], sha256[65];
    char *plain = fth_format("%.*s", (int)strcspn(url, "#"), url), *told = fth_http_harmless_url(url);
    char *whole = fth_address_whole(plain);
    const char *fragment = strchr(url, '#'), *wanted = NULL;

    *path = NULL;
    if (fragment && strncmp(fragment, "#sha256=", 8) == 0)
        wanted = fragment + 8;
    FTH_REQUIRE(!fragment || (wanted && strlen(wanted) == 64 && strspn(wanted, "0123456789abcdefABCDEF") == 64),
                FTH_INVALID, "%s: after # only sha256= and 64 hex digits are understood", told);
    FTH_REQUIRE(plain && told && whole, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_cache_folder(&folder));
    plain_name(plain, name);
    target = fth_format("%s/%016" PRIx64 "-%s", folder, hash_text(2, url), name);
    if (!fth_file_exists(target)) {
        fth_log_info("downloading %s into %s, once", told, target);
        const char *advice = fth_address_has_secret(whole)
                                 ? "its password or signature is wrong or has expired"
                                 : "if it takes a password or signature, which no run records, give the whole address: "
                                   "--data, or the variable " FTH_DATA_URL_VARIABLE;
        FTH_TRY(fth_http_download(
            &(fth_download){.url = whole, .sha256 = wanted, .path = target, .stop = stop, .refused_advice = advice},
            sha256));
        if (!wanted)
            fth_log_info("downloaded %s; to have it checked in future, add #sha256=%s to the address", told, sha256);
    }
    *path = target;
    target = NULL;

out:
    free(folder);
    free(target);
    free(plain);
    free(whole);
    free(told);
    return status;
}
