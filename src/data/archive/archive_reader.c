/* See archive_reader.h. Expanded bytes are counted before they are read or skipped, so an archive
 * that expands without end fails before it has cost more than its limit. */
#include "data/archive/archive_reader.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/archive/blob.h"

enum { PIECE_BYTES = 1 << 16, ENTRY_BYTES = 512 /* counted for each entry's header */ };

struct fth_archive {
    fth_archive_input input;
    size_t at; /* in the input */
    struct archive *library;
    fth_entry_path path;
    fth_archive_entry entry;
    uint64_t counted;       /* bytes, against most_bytes */
    uint64_t declared_left; /* bytes counted for the entry that have not been read */
    struct archive *inner;  /* decompresses the entry; NULL: it is read as it is */
    fth_status inner_status;
    uint8_t piece[PIECE_BYTES]; /* for `inner` */
};

/* ---- stopping ---- */

static bool is_late(const fth_archive_input *input)
{
    return input->deadline.at_seconds > 0 && fth_deadline_passed(input->deadline);
}

fth_status fth_check_stop(const fth_stop *stop, const char *name)
{
    return stop && stop->asked ? fth_fail(FTH_INTERRUPTED, "stopped while reading %s", name) : FTH_OK;
}

static bool may_continue(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const fth_stop *stop = context;
    (void)done_bytes;
    (void)total_bytes;
    return !(stop && stop->asked);
}

fth_store_progress fth_stop_progress(const fth_stop *stop)
{
    return (fth_store_progress){.context = (void *)stop, .moved = may_continue};
}

static fth_status check_time(const fth_archive_input *input)
{
    if (is_late(input))
        return fth_fail(FTH_TIMEOUT, "%s: could not be read before the deadline", input->name);
    return fth_check_stop(input->stop, input->name);
}

fth_status fth_archive_explain(const fth_archive_input *input, fth_status status)
{
    const fth_status ended = status == FTH_CORRUPT ? check_time(input) : FTH_OK;
    return ended != FTH_OK ? ended : status;
}

static fth_status fail_reading(const fth_archive *archive, struct archive *library)
{
    const char *why = archive_error_string(library);
    return fth_archive_explain(&archive->input, fth_fail(FTH_CORRUPT, "%s: damaged or truncated: %s",
                                                         archive->input.name, why ? why : "unknown format"));
}

/* ---- the input, for libarchive ---- */

static la_ssize_t give(struct archive *library, void *context, const void **piece)
{
    fth_archive *archive = context;
    size_t left = archive->input.size_bytes - archive->at, size = left < PIECE_BYTES ? left : PIECE_BYTES;
    if ((archive->input.stop && archive->input.stop->asked) || is_late(&archive->input)) {
        archive_set_error(library, EINTR, "stopped");
        return ARCHIVE_FATAL;
    }
    *piece = archive->input.bytes + archive->at;
    archive->at += size;
    return (la_ssize_t)size;
}

static la_int64_t skip(struct archive *library, void *context, la_int64_t wanted)
{
    fth_archive *archive = context;
    size_t left = archive->input.size_bytes - archive->at;
    (void)library;
    size_t skipped = wanted < 0 ? 0 : (uint64_t)wanted < left ? (size_t)wanted : left;
    archive->at += skipped;
    return (la_int64_t)skipped;
}

/* The directory of a zip is at its end. */
static la_int64_t seek(struct archive *library, void *context, la_int64_t offset, int whence)
{
    fth_archive *archive = context;
    la_int64_t size = (la_int64_t)archive->input.size_bytes;
    la_int64_t from = whence == SEEK_END ? size : whence == SEEK_CUR ? (la_int64_t)archive->at : 0;
    if (offset < -from || offset > size - from) {
        archive_set_error(library, EINVAL, "a position outside of the file");
        return ARCHIVE_FATAL;
    }
    archive->at = (size_t)(from + offset);
    return from + offset;
}

/* ---- opening ---- */

fth_status fth_archive_open(const fth_archive_input *input, fth_archive **opened)
{
    fth_status status = FTH_OK;
    fth_archive *archive = NULL;

    FTH_TRY(fth_allocate(1, sizeof *archive, &archive));
    archive->input = *input;
    archive->library = archive_read_new();
    FTH_REQUIRE(archive->library, FTH_NO_MEMORY, "%s: no memory to read an archive", input->name);
    if (input->forms & FTH_ARCHIVE_ENTRIES) {
        archive_read_support_format_tar(archive->library);
        archive_read_support_format_zip(archive->library);
    } else {
        archive_read_support_format_empty(archive->library);
    }
    if (input->forms & FTH_ARCHIVE_SINGLE)
        archive_read_support_format_raw(archive->library);
    archive_read_support_filter_gzip(archive->library);
    archive_read_support_filter_xz(archive->library);
    archive_read_support_filter_zstd(archive->library);
    archive_read_support_filter_bzip2(archive->library);
    archive_read_set_read_callback(archive->library, give);
    archive_read_set_skip_callback(archive->library, skip);
    archive_read_set_seek_callback(archive->library, seek);
    archive_read_set_callback_data(archive->library, archive);
    if (archive_read_open1(archive->library) != ARCHIVE_OK)
        status = fail_reading(archive, archive->library);
    if (status == FTH_OK) {
        *opened = archive;
        archive = NULL;
    }

out:
    fth_archive_free(archive);
    return status;
}

void fth_archive_free(fth_archive *archive)
{
    if (!archive)
        return;
    archive_read_free(archive->inner);
    archive_read_free(archive->library);
    free(archive->path.text);
    free(archive);
}

/* ---- entries ---- */

static fth_status count_bytes(fth_archive *archive, uint64_t bytes)
{
    const uint64_t most = archive->input.most_bytes;
    if (most > 0 && bytes > most - archive->counted)
        return fth_fail(FTH_CORRUPT, "%s: expands to more than %" PRIu64 " bytes, which no set of this size does",
                        archive->input.name, most);
    archive->counted += bytes;
    return FTH_OK;
}

fth_status fth_archive_next(fth_archive *archive, const fth_archive_entry **next)
{
    fth_status status = FTH_OK;
    struct archive_entry *found = NULL;

    *next = NULL;
    archive_read_free(archive->inner);
    archive->inner = NULL;
    int result = archive_read_next_header(archive->library, &found);
    if (result == ARCHIVE_EOF)
        return FTH_OK;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
        return fail_reading(archive, archive->library);
    const char *raw = archive_entry_pathname_utf8(found);
    raw = raw ? raw : archive_entry_pathname(found);
    raw = raw ? raw : "";
    const char *slash = strrchr(raw, '/');
    archive->entry = (fth_archive_entry){.raw_path = raw,
                                         .raw_name = slash ? slash + 1 : raw,
                                         .path = &archive->path,
                                         .path_kind = FTH_PATH_EMPTY,
                                         .has_size = archive_entry_size_is_set(found),
                                         .single = archive_format(archive->library) == ARCHIVE_FORMAT_RAW};
    archive->entry.kind = archive_entry_filetype(found) == AE_IFDIR ? FTH_ENTRY_FOLDER
                          : archive_entry_filetype(found) == AE_IFREG && !archive_entry_hardlink(found)
                              ? FTH_ENTRY_FILE
                              : FTH_ENTRY_OTHER;
    archive->declared_left =
        archive->entry.has_size && archive_entry_size(found) > 0 ? (uint64_t)archive_entry_size(found) : 0;
    if (!archive->entry.single) {
        FTH_TRY(count_bytes(archive, ENTRY_BYTES));
        FTH_TRY(count_bytes(archive, archive->declared_left));
    }
    FTH_TRY(fth_entry_path_read(raw, &archive->path, &archive->entry.path_kind));
    *next = &archive->entry;

out:
    return status;
}

/* ---- the bytes of an entry ---- */

/* Up to `size_bytes` bytes as they are in the archive; *got is 0 at the end. */
static fth_status read_outer(fth_archive *archive, void *into, size_t size_bytes, size_t *got)
{
    la_ssize_t result = archive_read_data(archive->library, into, size_bytes);
    if (result < 0)
        return fail_reading(archive, archive->library);
    *got = (size_t)result;
    uint64_t paid = *got < archive->declared_left ? *got : archive->declared_left;
    archive->declared_left -= paid;
    return count_bytes(archive, *got - paid);
}

static la_ssize_t give_to_inner(struct archive *inner, void *context, const void **piece)
{
    fth_archive *archive = context;
    size_t got = 0;
    archive->inner_status = read_outer(archive, archive->piece, sizeof archive->piece, &got);
    if (archive->inner_status != FTH_OK) {
        archive_set_error(inner, EIO, "%s", fth_error_message());
        return ARCHIVE_FATAL;
    }
    *piece = archive->piece;
    return (la_ssize_t)got;
}

static fth_status fail_inner(const fth_archive *archive)
{
    return archive->inner_status != FTH_OK ? archive->inner_status : fail_reading(archive, archive->inner);
}

fth_status fth_archive_decompress_entry(fth_archive *archive)
{
    struct archive_entry *only;
    const char *dot = strrchr(archive->entry.raw_name, '.');

    if (!dot || (strcmp(dot, ".gz") != 0 && strcmp(dot, ".xz") != 0))
        return FTH_OK;
    archive->inner = archive_read_new();
    if (!archive->inner)
        return fth_fail(FTH_NO_MEMORY, "%s: no memory for a decompressor", archive->input.name);
    archive->inner_status = FTH_OK;
    archive_read_support_filter_gzip(archive->inner);
    archive_read_support_filter_xz(archive->inner);
    archive_read_support_format_raw(archive->inner);
    archive_read_set_read_callback(archive->inner, give_to_inner);
    archive_read_set_callback_data(archive->inner, archive);
    return archive_read_open1(archive->inner) == ARCHIVE_OK &&
                   archive_read_next_header(archive->inner, &only) == ARCHIVE_OK
               ? FTH_OK
               : fail_inner(archive);
}

fth_status fth_archive_read(fth_archive *archive, void *into, size_t size_bytes, size_t *got)
{
    fth_status status = FTH_OK;
    *got = 0;
    while (*got < size_bytes) {
        size_t part = 0;
        uint8_t *at = (uint8_t *)into + *got;
        FTH_TRY(check_time(&archive->input));
        if (archive->inner) {
            la_ssize_t result = archive_read_data(archive->inner, at, size_bytes - *got);
            if (result < 0)
                return fail_inner(archive);
            part = (size_t)result;
            FTH_TRY(count_bytes(archive, part));
        } else {
            FTH_TRY(read_outer(archive, at, size_bytes - *got, &part));
        }
        if (part == 0)
            break;
        *got += part;
    }

out:
    return status;
}

fth_status fth_archive_skip(fth_archive *archive, uint64_t size_bytes, uint64_t *skipped)
{
    fth_status status = FTH_OK;
    uint8_t dropped[4096];
    *skipped = 0;
    while (*skipped < size_bytes) {
        size_t got = 0,
               wanted = size_bytes - *skipped < sizeof dropped ? (size_t)(size_bytes - *skipped) : sizeof dropped;
        FTH_TRY(fth_archive_read(archive, dropped, wanted, &got));
        *skipped += got;
        if (got < wanted)
            break;
    }

out:
    return status;
}
