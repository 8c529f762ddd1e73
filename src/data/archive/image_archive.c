/* Image sets in archives.
 *
 * A plain tar is mapped and its images are used in place. Any other archive is turned into such a
 * tar once, in the cache folder, under a name made of the archive's path, size and date. A URL is
 * downloaded there first. Files appear in the cache folder complete. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/archive/archive_reader.h"
#include "data/archive/blob.h"
#include "data/archive/image_tar.h"
#include "data/archive/tar_scan.h"
#include "data/image/decode.h"
#include "data/source/image_index.h"
#include "http/http.h"

enum {
    MAX_EXPANSION = 64, /* encoded images hardly shrink: an archive that expands more than this holds something else */
    UNPACKED_FORM = 3   /* version of the tars in the cache folder; tars of other versions are not used */
};

/* ---- names in the cache folder ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = fth_random_mix(hash ^ (uint8_t)*text);
    return hash;
}

/* The last part of a path or URL, with only characters that suit a file name. */
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

/* ---- entries ---- */

/* Images that were left out because of their paths. */
typedef struct left_out_paths {
    fth_left_out leaving, too_long;
} left_out_paths;

static void note_unusable(left_out_paths *left_out, const char *raw, fth_path_kind kind)
{
    const char *slash = strrchr(raw, '/');
    if (!fth_image_name_fits(slash ? slash + 1 : raw))
        return;
    if (kind == FTH_PATH_LEAVES)
        fth_left_out_add(&left_out->leaving, raw, 1);
    if (kind == FTH_PATH_TOO_LONG)
        fth_left_out_add(&left_out->too_long, raw, 1);
}

static void report_left_out(const left_out_paths *left_out, const char *source)
{
    fth_left_out_report(&left_out->leaving, source, "image", "with .. in the path");
    fth_left_out_report(&left_out->too_long, source, "image", "with a path of more than 65536 bytes");
}

/* ---- the index of a tar ---- */

typedef struct tar_indexing {
    const uint8_t *bytes;
    fth_image_index *index;
    fth_entry_path path;
    left_out_paths left_out;
    int64_t links;
} tar_indexing;

static fth_status tar_at(void *context, uint64_t offset, size_t size_bytes, const uint8_t **bytes)
{
    (void)size_bytes;
    *bytes = ((const tar_indexing *)context)->bytes + offset;
    return FTH_OK;
}

static fth_status add_member(void *context, const fth_tar_member *member)
{
    fth_status status = FTH_OK;
    tar_indexing *indexing = context;
    fth_entry_path *path = &indexing->path;
    fth_path_kind kind = FTH_PATH_EMPTY;
    uint32_t folder;

    FTH_TRY(fth_entry_path_read(member->path, path, &kind));
    if (kind != FTH_PATH_USABLE) {
        note_unusable(&indexing->left_out, member->path, kind);
    } else if (member->kind == FTH_TAR_FOLDER) { /* so that an empty class is noticed */
        FTH_TRY(fth_image_index_add_folder(indexing->index, path->text, strlen(path->text), &folder));
    } else if (member->kind == FTH_TAR_LINK) {
        indexing->links += fth_image_name_fits(path->name);
    } else {
        FTH_TRY(fth_image_index_add_folder(indexing->index, path->text, path->folder_length, &folder));
        FTH_TRY(fth_image_index_add(indexing->index, folder, path->name, member->offset, member->size_bytes));
    }

out:
    return status;
}

fth_status fth_image_archive_index(const uint8_t *bytes, size_t size_bytes, const char *source, fth_image_index *index)
{
    tar_indexing indexing = {.bytes = bytes, .index = index};
    const fth_tar_input input = {.size_bytes = size_bytes, .at = tar_at, .context = &indexing};
    fth_status status = fth_tar_scan(&input, source, add_member, &indexing);
    if (status == FTH_OK && indexing.links > 0)
        fth_log_warning("%s: left out %s to images; pack the files themselves (tar --dereference --hard-dereference)",
                        source, FTH_COUNTED(indexing.links, "link"));
    if (status == FTH_OK)
        report_left_out(&indexing.left_out, source);
    free(indexing.path.text);
    return status;
}

/* ---- turning archives into tars ---- */

static fth_status read_entry(fth_archive *archive, const char *source, const char *path, fth_pixel_buffer *buffer,
                             size_t *size_bytes)
{
    fth_status status = FTH_OK;
    size_t got = 0, wanted = 0;
    *size_bytes = 0;
    do {
        FTH_TRY(fth_pixel_buffer_reserve(buffer, *size_bytes + (1 << 17)));
        wanted = buffer->capacity - *size_bytes;
        FTH_TRY(fth_archive_read(archive, buffer->bytes + *size_bytes, wanted, &got));
        *size_bytes += got;
        FTH_REQUIRE(*size_bytes <= FTH_MAX_IMAGE_FILE, FTH_CORRUPT, "%s: %s has more than %d bytes", source, path,
                    FTH_MAX_IMAGE_FILE);
    } while (got == wanted);

out:
    return status;
}

fth_status fth_image_archive_convert(const fth_archive_input *input, uint64_t max_bytes, fth_file *file)
{
    fth_status status = FTH_OK;
    const char *source = input->name;
    fth_archive_input plain = *input;
    fth_archive *archive = NULL;
    const fth_archive_entry *entry;
    fth_tar_writer *writer = NULL;
    fth_pixel_buffer buffer = {0};
    left_out_paths left_out = {0};
    uint64_t total = 0, limit = (uint64_t)input->size_bytes * MAX_EXPANSION + (1 << 24);

    plain.forms = FTH_ARCHIVE_ENTRIES;
    plain.most_bytes = 0; /* counted here */
    FTH_TRY(fth_archive_open(&plain, &archive));
    const fth_tar_output output = fth_tar_output_file(file);
    FTH_TRY(fth_tar_writer_create(&output, &writer));
    for (;;) {
        size_t size = 0;
        FTH_TRY(fth_archive_next(archive, &entry));
        if (!entry)
            break;
        if (entry->kind != FTH_ENTRY_FILE)
            continue;
        if (entry->path_kind != FTH_PATH_USABLE) {
            note_unusable(&left_out, entry->raw_path, entry->path_kind);
            continue;
        }
        const bool image = fth_image_name_fits(entry->path->name);
        if (!image && !fth_image_path_is_skipped(entry->path->text))
            continue;
        if (image)
            FTH_TRY(read_entry(archive, source, entry->path->text, &buffer, &size));
        total += size + 1024;
        FTH_REQUIRE(max_bytes == 0 || total <= max_bytes, FTH_INVALID, "%s: has more than %" PRIu64 " bytes of images",
                    source, max_bytes);
        FTH_REQUIRE(total <= limit, FTH_CORRUPT, "%s: expands to more than %d times its size, as no images do", source,
                    MAX_EXPANSION);
        FTH_TRY(fth_tar_writer_add(writer, entry->path->text, buffer.bytes, size));
    }
    FTH_TRY(fth_check_stop(input->stop, source)); /* a stop during the last piece */
    FTH_TRY(fth_tar_writer_finish(writer));
    report_left_out(&left_out, source);

out:
    free(buffer.bytes);
    fth_tar_writer_free(writer);
    fth_archive_free(archive);
    return fth_archive_explain(input, status);
}

/* The first header of a tar has its magic at 257. Old tars have none: their name decides. */
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
        const fth_archive_input input = {.bytes = bytes, .size_bytes = size_bytes, .name = path, .stop = stop};
        FTH_TRY(fth_image_archive_convert(&input, 0, file));
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
