/* See archive_set.h.
 *
 * One pass over the archive: an entry whose name is that of a training file is read as it comes by,
 * through a second decompressor where it is compressed itself; all others are skipped. Reading ends
 * as soon as an idx set is whole. Only where there are image files and nothing else is the archive
 * gone through again, into a tar.
 *
 * What an entry expands to is charged before it is read or skipped, so that an archive that expands
 * without end fails before it has cost more than its limit. */
#include "data/archive/archive_set.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/archive/python_subset.h"
#include "data/array/formats.h"
#include "data/image/image_set.h"
#include "data/source/entry_path.h"
#include "data/source/image_index.h"

enum {
    MAX_ENTRIES = 1 << 18,
    MAX_EXPANSION = 64, /* times the archive's size, beside what the samples may take or this: */
    FREE_EXPANSION_BYTES = 64 << 20,
    ENTRY_BYTES = 512, /* that the header of an entry is charged with */
    PIECE_BYTES = 1 << 16,
    NAMES_BYTES = 64 << 10
};
static const uint64_t usual_max_bytes = (uint64_t)1 << 30;

/* Bytes kept of a file: those of the range. */
typedef struct kept_bytes {
    uint8_t *bytes;
    size_t size_bytes, capacity;
} kept_bytes;

typedef struct idx_files {
    char *folder; /* of the first one found: others do not count; NULL: none was */
    kept_bytes pixels, labels;
    fth_idx_images images;       /* its count is of the file */
    int64_t label_count;         /* of the file */
    bool has_images, has_labels; /* read to their ends */
} idx_files;

typedef struct cifar_files {
    kept_bytes records;
    int64_t seen; /* samples of files so far, as far as they were read */
    char *names;  /* as the file has them; NULL: it has none */
    bool found;
} cifar_files;

/* What the archive's own program says about the samples to use. */
typedef struct own_range {
    bool sought; /* in this pass over the archive, which reads nothing else */
    bool found;
    fth_python_subset subset;
    char *unclear; /* why it cannot be used; NULL: it can */
} own_range;

typedef struct archive_scan {
    const fth_archive_set_options *options;
    const char *name;
    uint64_t max_bytes;
    fth_archive_range range; /* as asked for, or the archive's own */
    own_range own;
    fth_archive_source source;
    struct archive *archive;
    fth_entry_path path;
    int64_t entries;
    uint64_t charged, charge_limit;
    idx_files idx;
    cifar_files cifar;
    int64_t pictures;
} archive_scan;

/* ---- limits ---- */

static fth_status charge(archive_scan *scan, uint64_t bytes)
{
    if (bytes > scan->charge_limit - scan->charged)
        return fth_fail(FTH_CORRUPT, "%s: expands to more than %" PRIu64 " bytes, which no set of this size does",
                        scan->name, scan->charge_limit);
    scan->charged += bytes;
    return FTH_OK;
}

static fth_status fail_reading(const archive_scan *scan, struct archive *archive)
{
    const char *why = archive_error_string(archive);
    return fth_fail(FTH_CORRUPT, "%s: damaged or truncated archive: %s", scan->name, why ? why : "unknown format");
}

static fth_status reserve(archive_scan *scan, kept_bytes *kept, uint64_t size_bytes)
{
    if (size_bytes <= kept->capacity)
        return FTH_OK;
    if (size_bytes > scan->max_bytes)
        return fth_fail(FTH_INVALID, "%s: the samples take more than the %" PRIu64 " bytes they may; ask for a range",
                        scan->name, scan->max_bytes);
    uint64_t wanted = size_bytes < 2 * (uint64_t)kept->capacity ? 2 * (uint64_t)kept->capacity : size_bytes;
    wanted = wanted > scan->max_bytes ? scan->max_bytes : wanted;
    uint8_t *grown = realloc(kept->bytes, (size_t)wanted);
    if (!grown)
        return fth_fail(FTH_NO_MEMORY, "%s: no memory for %" PRIu64 " bytes of samples; ask for a range", scan->name,
                        wanted);
    kept->bytes = grown;
    kept->capacity = (size_t)wanted;
    return FTH_OK;
}

/* Little comes from the source while much comes out of it. */
static fth_status check_time(const archive_scan *scan)
{
    const fth_archive_source *source = &scan->source;
    if (source->deadline.at_seconds > 0 && fth_deadline_passed(source->deadline))
        return fth_fail(FTH_TIMEOUT, "%s: could not be read before the deadline", scan->name);
    return fth_check_stop(source->stop, scan->name);
}

/* ---- the bytes of an entry ---- */

/* Those of the entry that the scan is at; decompressed where they are compressed. */
typedef struct entry_stream {
    archive_scan *scan;
    uint64_t declared_left; /* bytes that were charged for the entry and have not come yet */
    struct archive *inner;  /* what decompresses it; NULL: it is plain */
    fth_status status;      /* of reading on behalf of `inner` */
    uint8_t piece[PIECE_BYTES];
} entry_stream;

/* Up to `size_bytes` bytes as they are in the archive; *got is 0 at the end. */
static fth_status read_outer(entry_stream *stream, void *into, size_t size_bytes, size_t *got)
{
    archive_scan *scan = stream->scan;
    la_ssize_t result = archive_read_data(scan->archive, into, size_bytes);
    if (result < 0)
        return fail_reading(scan, scan->archive);
    *got = (size_t)result;
    uint64_t paid = *got < stream->declared_left ? *got : stream->declared_left;
    stream->declared_left -= paid;
    return charge(scan, *got - paid);
}

static la_ssize_t give_to_inner(struct archive *inner, void *context, const void **piece)
{
    entry_stream *stream = context;
    size_t got = 0;
    stream->status = read_outer(stream, stream->piece, sizeof stream->piece, &got);
    if (stream->status != FTH_OK) {
        archive_set_error(inner, EIO, "%s", fth_error_message());
        return ARCHIVE_FATAL;
    }
    *piece = stream->piece;
    return (la_ssize_t)got;
}

static fth_status open_entry(archive_scan *scan, struct archive_entry *entry, const char *file, entry_stream *stream)
{
    fth_status status = FTH_OK;
    struct archive_entry *only;
    const char *dot = strrchr(file, '.');

    stream->scan = scan;
    stream->declared_left = archive_entry_size_is_set(entry) ? (uint64_t)archive_entry_size(entry) : 0;
    if (!dot || (strcmp(dot, ".gz") != 0 && strcmp(dot, ".xz") != 0))
        return FTH_OK;
    stream->inner = archive_read_new();
    FTH_REQUIRE(stream->inner, FTH_NO_MEMORY, "%s: no memory for a decompressor", scan->name);
    archive_read_support_filter_gzip(stream->inner);
    archive_read_support_filter_xz(stream->inner);
    archive_read_support_format_raw(stream->inner);
    archive_read_set_read_callback(stream->inner, give_to_inner);
    archive_read_set_callback_data(stream->inner, stream);
    if (archive_read_open1(stream->inner) != ARCHIVE_OK ||
        archive_read_next_header(stream->inner, &only) != ARCHIVE_OK) {
        status = stream->status != FTH_OK ? stream->status : fail_reading(scan, stream->inner);
        goto out;
    }

out:
    return status;
}

static void close_entry(entry_stream *stream)
{
    archive_read_free(stream->inner);
    stream->inner = NULL;
}

/* Up to `size_bytes` bytes of the file; fewer only at its end. */
static fth_status read_file(entry_stream *stream, void *into, size_t size_bytes, size_t *got)
{
    fth_status status = FTH_OK;
    *got = 0;
    while (*got < size_bytes) {
        size_t part = 0;
        uint8_t *at = (uint8_t *)into + *got;
        FTH_TRY(check_time(stream->scan));
        if (stream->inner) {
            la_ssize_t result = archive_read_data(stream->inner, at, size_bytes - *got);
            if (result < 0)
                return stream->status != FTH_OK ? stream->status : fail_reading(stream->scan, stream->inner);
            part = (size_t)result;
            FTH_TRY(charge(stream->scan, part));
        } else {
            FTH_TRY(read_outer(stream, at, size_bytes - *got, &part));
        }
        if (part == 0)
            break;
        *got += part;
    }

out:
    return status;
}

/* Reads over up to `size_bytes` bytes of the file. */
static fth_status pass_over(entry_stream *stream, uint64_t size_bytes, uint64_t *passed)
{
    fth_status status = FTH_OK;
    uint8_t dropped[4096];
    *passed = 0;
    while (*passed < size_bytes) {
        size_t got = 0,
               wanted = size_bytes - *passed < sizeof dropped ? (size_t)(size_bytes - *passed) : sizeof dropped;
        FTH_TRY(read_file(stream, dropped, wanted, &got));
        *passed += got;
        if (got < wanted)
            break;
    }

out:
    return status;
}

/* Adds the next `size_bytes` bytes of the file; fewer only at its end. Room is made as they come,
 * whatever a header promises. */
static fth_status keep(entry_stream *stream, kept_bytes *kept, uint64_t size_bytes, uint64_t *added)
{
    fth_status status = FTH_OK;
    enum { STEP = 1 << 22 };
    *added = 0;
    while (*added < size_bytes) {
        size_t got = 0, wanted = size_bytes - *added < STEP ? (size_t)(size_bytes - *added) : STEP;
        FTH_TRY(reserve(stream->scan, kept, kept->size_bytes + wanted));
        FTH_TRY(read_file(stream, kept->bytes + kept->size_bytes, wanted, &got));
        kept->size_bytes += got;
        *added += got;
        if (got < wanted)
            break;
    }

out:
    return status;
}

/* ---- the range ---- */

int64_t fth_archive_range_clip(fth_archive_range range, int64_t begin, int64_t count, int64_t *skipped)
{
    int64_t end = begin + count, first = range.first > begin ? range.first : begin;
    int64_t wanted_end =
        range.count > 0 && range.count < INT64_MAX - range.first ? range.first + range.count : INT64_MAX;
    first = first > end ? end : first;
    wanted_end = wanted_end < end ? wanted_end : end;
    *skipped = first - begin;
    return wanted_end > first ? wanted_end - first : 0;
}

static int64_t clip(const archive_scan *scan, int64_t begin, int64_t count, int64_t *skipped)
{
    return fth_archive_range_clip(scan->range, begin, count, skipped);
}

/* ---- idx ---- */

/* What a file of `count` records of `record_bytes` after its header has of the range. */
static fth_status read_records(entry_stream *stream, int64_t count, uint64_t record_bytes, kept_bytes *kept)
{
    fth_status status = FTH_OK;
    archive_scan *scan = stream->scan;
    uint64_t passed = 0, added = 0, rest = 0, beyond = 0;
    int64_t skipped = 0, wanted = clip(scan, 0, count, &skipped);
    uint64_t before = (uint64_t)skipped * record_bytes, taken = (uint64_t)wanted * record_bytes;

    FTH_TRY(pass_over(stream, before, &passed));
    FTH_TRY(keep(stream, kept, taken, &added));
    FTH_TRY(pass_over(stream, (uint64_t)count * record_bytes - before - taken, &rest));
    FTH_REQUIRE(passed + added + rest == (uint64_t)count * record_bytes, FTH_CORRUPT,
                "%s: %s is truncated: its header promises %" PRId64 " records", scan->name, scan->path.text, count);
    FTH_TRY(pass_over(stream, 1, &beyond));
    FTH_REQUIRE(beyond == 0, FTH_CORRUPT, "%s: %s goes on after the %" PRId64 " records that its header promises",
                scan->name, scan->path.text, count);

out:
    return status;
}

static fth_status read_idx(archive_scan *scan, entry_stream *stream, bool labels)
{
    fth_status status = FTH_OK;
    idx_files *idx = &scan->idx;
    uint8_t header[FTH_IDX_IMAGES_HEADER];
    size_t got = 0;
    char *what = fth_format("%s: %s", scan->name, scan->path.text);

    FTH_REQUIRE(what, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(read_file(stream, header, labels ? FTH_IDX_LABELS_HEADER : FTH_IDX_IMAGES_HEADER, &got));
    if (labels) {
        FTH_TRY(fth_idx_parse_labels_header(header, got, what, &idx->label_count));
        FTH_TRY(read_records(stream, idx->label_count, 1, &idx->labels));
        int64_t skipped = 0, wanted = clip(scan, 0, idx->label_count, &skipped);
        FTH_TRY(fth_idx_check_labels(idx->labels.bytes, skipped, wanted, what));
        idx->has_labels = true;
    } else {
        FTH_TRY(fth_idx_parse_images_header(header, got, what, &idx->images));
        FTH_TRY(read_records(stream, idx->images.count, (uint64_t)idx->images.height * (uint64_t)idx->images.width,
                             &idx->pixels));
        idx->has_images = true;
    }

out:
    free(what);
    return status;
}

static fth_status meet_idx(archive_scan *scan, struct archive_entry *entry, bool labels)
{
    fth_status status = FTH_OK;
    idx_files *idx = &scan->idx;
    entry_stream stream = {0};

    if (!idx->folder) {
        idx->folder = fth_format("%.*s", (int)scan->path.folder_length, scan->path.text);
        FTH_REQUIRE(idx->folder, FTH_NO_MEMORY, "no memory for a path");
    }
    if (strlen(idx->folder) != scan->path.folder_length ||
        strncmp(idx->folder, scan->path.text, scan->path.folder_length) != 0 ||
        (labels ? idx->has_labels : idx->has_images))
        return FTH_OK; /* another set, or the same file compressed */
    FTH_TRY(open_entry(scan, entry, scan->path.name, &stream));
    FTH_TRY(read_idx(scan, &stream, labels));

out:
    close_entry(&stream);
    return status;
}

/* ---- CIFAR-10 ---- */

/* Fails where the file is not a whole number of records; `what` is what it is called. */
static fth_status read_cifar(archive_scan *scan, entry_stream *stream, const char *what)
{
    fth_status status = FTH_OK;
    cifar_files *cifar = &scan->cifar;
    uint64_t got = 0;

    cifar->found = true;
    for (;;) {
        int64_t skipped = 0;
        bool wanted = clip(scan, cifar->seen, 1, &skipped) > 0;
        if (wanted)
            FTH_TRY(keep(stream, &cifar->records, FTH_CIFAR_RECORD, &got));
        else
            FTH_TRY(pass_over(stream, FTH_CIFAR_RECORD, &got));
        if (got == 0)
            break;
        FTH_REQUIRE(got == FTH_CIFAR_RECORD, FTH_CORRUPT,
                    "%s: %s is truncated or no CIFAR-10 file: not a whole number of %d-byte records", scan->name, what,
                    FTH_CIFAR_RECORD);
        cifar->seen++;
    }

out:
    return status;
}

static fth_status meet_cifar(archive_scan *scan, struct archive_entry *entry)
{
    fth_status status = FTH_OK;
    entry_stream stream = {0};
    FTH_TRY(open_entry(scan, entry, scan->path.name, &stream));
    FTH_TRY(read_cifar(scan, &stream, scan->path.text));

out:
    close_entry(&stream);
    return status;
}

static fth_status meet_names(archive_scan *scan, struct archive_entry *entry)
{
    fth_status status = FTH_OK;
    entry_stream stream = {0};
    size_t got = 0;

    if (scan->cifar.names)
        return FTH_OK;
    FTH_TRY(fth_allocate(NAMES_BYTES + 1, 1, &scan->cifar.names));
    FTH_TRY(open_entry(scan, entry, "", &stream));
    FTH_TRY(read_file(&stream, scan->cifar.names, NAMES_BYTES, &got));
    FTH_REQUIRE(strlen(scan->cifar.names) == got && got < NAMES_BYTES, FTH_CORRUPT, "%s: %s holds no names of classes",
                scan->name, scan->path.text);

out:
    close_entry(&stream);
    return status;
}

/* ---- the archive's own range ---- */

static bool is_program(const char *file)
{
    return strcmp(file, FTH_PYTHON_DATASET) == 0 || strcmp(file, "__init__.py") == 0;
}

/* Parses it; nothing is executed. What is wrong with an __init__.py matters only beside a
 * __dataset__.py. */
static fth_status meet_program(archive_scan *scan, struct archive_entry *entry, const char *file, bool usable)
{
    fth_status status = FTH_OK;
    own_range *own = &scan->own;
    const bool is_dataset = strcmp(file, FTH_PYTHON_DATASET) == 0;
    const bool repeated = is_dataset && own->found;
    entry_stream stream = {0};
    char *text = NULL;
    size_t size_bytes = 0;
    int line = 1;

    FTH_TRY(fth_allocate(FTH_MAX_PYTHON_SUBSET_BYTES + 1, 1, &text));
    FTH_TRY(open_entry(scan, entry, "", &stream));
    FTH_TRY(read_file(&stream, text, FTH_MAX_PYTHON_SUBSET_BYTES + 1, &size_bytes));
    bool understood = usable && size_bytes <= FTH_MAX_PYTHON_SUBSET_BYTES && !repeated &&
                      archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry) &&
                      (is_dataset ? fth_python_subset_read(text, size_bytes, &own->subset, &line)
                                  : fth_python_passes_dataset_on(text, size_bytes, &line));
    own->found = own->found || is_dataset;
    if (!understood && !own->unclear) {
        own->unclear = fth_format("%s%s, line %d", repeated ? "a second " : "", usable ? scan->path.text : file, line);
        FTH_REQUIRE(own->unclear, FTH_NO_MEMORY, "no memory for a path");
    }

out:
    close_entry(&stream);
    free(text);
    return status;
}

/* ---- entries ---- */

static fth_status check_harmless(const archive_scan *scan, struct archive_entry *entry, fth_path_kind kind)
{
    fth_status status = FTH_OK;
    const char *path = archive_entry_pathname(entry);
    FTH_REQUIRE(kind != FTH_PATH_LEAVES && (kind != FTH_PATH_USABLE || *scan->path.text != '/'), FTH_CORRUPT,
                "%s: refused: the path %s leads out of the archive", scan->name, path ? path : "of an entry");
    FTH_REQUIRE(archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry), FTH_CORRUPT,
                "%s: refused: %s is a link or device, not a file", scan->name, path ? path : "an entry");

out:
    return status;
}

/* Whatever an entry without a size has, counted. */
static fth_status drop_entry(archive_scan *scan, struct archive_entry *entry)
{
    entry_stream stream = {0};
    uint64_t passed = 0;
    fth_status status = open_entry(scan, entry, "", &stream);
    if (status == FTH_OK)
        status = pass_over(&stream, UINT64_MAX, &passed);
    close_entry(&stream);
    return status;
}

static fth_status meet_entry(archive_scan *scan, struct archive_entry *entry)
{
    fth_status status = FTH_OK;
    fth_path_kind kind = FTH_PATH_EMPTY;
    const char *raw = archive_entry_pathname_utf8(entry);

    raw = raw ? raw : archive_entry_pathname(entry);
    raw = raw ? raw : "";
    FTH_REQUIRE(++scan->entries <= MAX_ENTRIES, FTH_CORRUPT, "%s: has more than %d entries", scan->name, MAX_ENTRIES);
    FTH_TRY(charge(scan, ENTRY_BYTES));
    if (archive_entry_size_is_set(entry) && archive_entry_size(entry) > 0)
        FTH_TRY(charge(scan, (uint64_t)archive_entry_size(entry)));
    FTH_TRY(fth_entry_path_read(raw, &scan->path, &kind));
    const char *slash = strrchr(raw, '/'), *file = slash ? slash + 1 : raw;
    bool images = fth_idx_is_training_images(file), labels = fth_idx_is_training_labels(file);
    bool batch = fth_cifar_is_training_batch(file), names = strcmp(file, FTH_CIFAR_NAMES) == 0;
    bool picture = *file != '.' && fth_image_name_fits(file);
    if (scan->own.sought) {
        if (is_program(file))
            return meet_program(scan, entry, file, kind == FTH_PATH_USABLE);
    } else if ((images || labels || batch || names || picture) && archive_entry_filetype(entry) != AE_IFDIR) {
        FTH_TRY(check_harmless(scan, entry, kind));
        FTH_REQUIRE(kind == FTH_PATH_USABLE, FTH_CORRUPT, "%s: an entry has a path that is too long", scan->name);
        if (images || labels)
            return meet_idx(scan, entry, labels);
        if (batch)
            return meet_cifar(scan, entry);
        if (names)
            return meet_names(scan, entry);
        scan->pictures++;
    }
    if (!archive_entry_size_is_set(entry))
        FTH_TRY(drop_entry(scan, entry));

out:
    return status;
}

static fth_status open_archive(archive_scan *scan, bool any_format)
{
    archive_read_free(scan->archive);
    scan->archive = archive_read_new();
    if (!scan->archive)
        return fth_fail(FTH_NO_MEMORY, "%s: no memory to read an archive", scan->name);
    if (any_format) {
        archive_read_support_format_tar(scan->archive);
        archive_read_support_format_zip(scan->archive);
    }
    archive_read_support_format_raw(scan->archive);
    archive_read_support_filter_gzip(scan->archive);
    archive_read_support_filter_xz(scan->archive);
    archive_read_support_filter_zstd(scan->archive);
    scan->source.at = 0;
    return fth_archive_source_open(&scan->source, scan->archive) ? FTH_OK : fail_reading(scan, scan->archive);
}

/* Bytes that are no archive, as far as libarchive can tell. */
static fth_status meet_raw(archive_scan *scan)
{
    entry_stream stream = {.scan = scan};
    fth_status status = read_cifar(scan, &stream, "it");
    if (status == FTH_OK && scan->cifar.records.size_bytes > 0)
        status = fth_cifar_check_labels(scan->cifar.records.bytes, scan->range.first,
                                        (int64_t)(scan->cifar.records.size_bytes / FTH_CIFAR_RECORD),
                                        fth_cifar_info.classes, scan->name);
    if (status == FTH_CORRUPT)
        status = fth_fail_within(FTH_CORRUPT, "%s is no .tar, .tar.gz, .tar.xz, .tar.zst or .zip, nor a CIFAR-10 file",
                                 scan->name);
    return status;
}

static fth_status read_archive(archive_scan *scan)
{
    fth_status status = FTH_OK;
    struct archive_entry *entry;
    int result = ARCHIVE_OK;

    FTH_TRY(open_archive(scan, true));
    while (!(scan->idx.has_images && scan->idx.has_labels)) {
        result = archive_read_next_header(scan->archive, &entry);
        if (result == ARCHIVE_EOF && scan->entries == 0 && !scan->cifar.found) {
            /* A file that begins with many zeros looks like a tar's end. */
            FTH_TRY(open_archive(scan, false));
            result = archive_read_next_header(scan->archive, &entry);
        }
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
            break;
        if (archive_format(scan->archive) == ARCHIVE_FORMAT_RAW && scan->own.sought)
            break; /* one file, and no program */
        if (archive_format(scan->archive) == ARCHIVE_FORMAT_RAW)
            FTH_TRY(meet_raw(scan));
        else
            FTH_TRY(meet_entry(scan, entry));
    }
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN && result != ARCHIVE_EOF)
        status = fail_reading(scan, scan->archive);

out:
    archive_read_free(scan->archive);
    scan->archive = NULL;
    return status;
}

/* Goes through the whole archive for its programs: which samples are read must be known before the
 * first. */
static fth_status find_own_range(archive_scan *scan)
{
    fth_status status = FTH_OK;
    own_range *own = &scan->own;

    own->sought = true;
    FTH_TRY(read_archive(scan));
    FTH_REQUIRE(!own->found || !own->unclear, FTH_INVALID,
                "%s: %s: cannot tell which samples it selects; only Subset(SET, range(FIRST, END)) of torchvision's "
                "MNIST is understood, and nothing is executed; give them as \"range\", such as \"0:10000\"",
                scan->name, own->unclear);
    scan->range = (fth_archive_range){own->subset.first, own->subset.count};
    if (own->found && own->subset.count > 0)
        fth_log_info("%s: samples %" PRId64 " to %" PRId64 ", which its " FTH_PYTHON_DATASET " selects", scan->name,
                     scan->range.first, scan->range.first + scan->range.count - 1);

out:
    own->sought = false;
    scan->entries = 0;
    scan->charged = 0;
    return status;
}

/* ---- data sets ---- */

static fth_status check_range(const archive_scan *scan, int64_t total, int64_t wanted)
{
    if (scan->own.subset.count > 0 && wanted != scan->own.subset.count)
        return fth_fail(FTH_INVALID,
                        "%s: its " FTH_PYTHON_DATASET " selects samples %" PRId64 " to %" PRId64
                        " of %s; give those to use as \"range\"",
                        scan->name, scan->range.first, scan->range.first + scan->range.count - 1,
                        FTH_COUNTED(total, "training sample"));
    if (wanted > 0)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s: has %s, none from number %" PRId64 " on", scan->name,
                    FTH_COUNTED(total, "training sample"), scan->range.first);
}

/* Hands the bytes over to the set; gives where they are now. */
static const uint8_t *give_bytes(kept_bytes *kept, fth_array_set *set)
{
    uint8_t *exact = realloc(kept->bytes, kept->size_bytes);
    fth_blob blob = {.bytes = exact ? exact : kept->bytes, .size_bytes = kept->size_bytes};
    const uint8_t *bytes = blob.bytes;
    fth_array_set_keep(set, &blob);
    *kept = (kept_bytes){0};
    return bytes;
}

static fth_status finish_idx(archive_scan *scan, fth_array_set *set, fth_dataset_info *info)
{
    fth_status status = FTH_OK;
    idx_files *idx = &scan->idx;
    int64_t skipped = 0, wanted = clip(scan, 0, idx->images.count, &skipped);

    FTH_REQUIRE(idx->has_images && idx->has_labels, FTH_CORRUPT, "%s: train-%s-ubyte is missing in %s", scan->name,
                idx->has_images ? "labels-idx1" : "images-idx3", *idx->folder ? idx->folder : "it");
    FTH_REQUIRE(idx->images.count == idx->label_count, FTH_CORRUPT, "%s: %s has %s but %s", scan->name,
                *idx->folder ? idx->folder : "it", FTH_COUNTED(idx->images.count, "image"),
                FTH_COUNTED(idx->label_count, "label"));
    FTH_TRY(check_range(scan, idx->images.count, wanted));
    *info = fth_idx_info;
    info->height = idx->images.height;
    info->width = idx->images.width;
    const fth_segment segment = {.pixels = give_bytes(&idx->pixels, set),
                                 .labels = give_bytes(&idx->labels, set),
                                 .pixel_stride = (size_t)idx->images.height * (size_t)idx->images.width,
                                 .label_stride = 1,
                                 .count = wanted};
    fth_array_set_use(set, &segment, info);

out:
    return status;
}

static fth_status finish_cifar(archive_scan *scan, fth_array_set *set, fth_dataset_info *info)
{
    fth_status status = FTH_OK;
    cifar_files *cifar = &scan->cifar;
    int64_t wanted = (int64_t)(cifar->records.size_bytes / FTH_CIFAR_RECORD);

    FTH_TRY(check_range(scan, cifar->seen, wanted));
    *info = fth_cifar_info;
    if (cifar->names) {
        FTH_TRY(fth_array_set_name_classes(set, cifar->names, FTH_MAX_CLASSES, &info->classes));
        cifar->names = NULL;
        FTH_REQUIRE(info->classes >= 2, FTH_CORRUPT, "%s: %s does not name 2 to %d classes, one a line", scan->name,
                    FTH_CIFAR_NAMES, FTH_MAX_CLASSES);
        info->class_names = set->class_names;
    }
    FTH_TRY(fth_cifar_check_labels(cifar->records.bytes, scan->range.first, wanted, info->classes, scan->name));
    const uint8_t *bytes = give_bytes(&cifar->records, set);
    fth_array_set_use(set, &(fth_segment){bytes + 1, bytes, FTH_CIFAR_RECORD, FTH_CIFAR_RECORD, wanted, NULL}, info);

out:
    return status;
}

static fth_dataset_options prepare_options(const fth_archive_set_options *options, char size[32])
{
    fth_dataset_options how = {.whole = true, .threads = 1, .stop = options->stop};
    if (options->normalization)
        how.normalization = *options->normalization;
    if (options->height > 0 && options->height == options->width) {
        how.image_size = options->height;
    } else if (options->height > 0) {
        snprintf(size, 32, "size=%dx%d", options->height, options->width);
        how.transform = how.validation_transform = size;
    }
    return how;
}

/* Opens what was read into memory. `quickly`: tries the fast path for small MNIST archives first,
 * without a scan; *dataset stays NULL if the archive is another. */
static fth_status finish_memory(archive_scan *scan, bool quickly, const fth_dataset_options *how, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    fth_dataset *opened = NULL;
    fth_array_set *set = NULL;

    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    FTH_TRY(fth_array_set_create(opened, &set));
    if (quickly) {
        if (!fth_idx_archive_open(scan->source.bytes, scan->source.size_bytes, scan->max_bytes, scan->range, set,
                                  &opened->info))
            goto out;
    } else {
        FTH_TRY((scan->idx.folder ? finish_idx : finish_cifar)(scan, set, &opened->info));
    }
    FTH_TRY(fth_array_set_prepare(how, opened));
    *dataset = opened;
    opened = NULL;

out:
    fth_dataset_free(opened);
    return status;
}

static fth_status unpack_pictures(archive_scan *scan)
{
    fth_status status = FTH_OK;
    fth_file *file = NULL;

    FTH_REQUIRE(scan->options->unpacked, FTH_UNSUPPORTED, "%s: image files need a folder to be unpacked into",
                scan->name);
    if (fth_file_exists(scan->options->unpacked))
        return FTH_OK;
    scan->source.at = 0;
    FTH_TRY(fth_file_create(scan->options->unpacked, &file));
    FTH_TRY(fth_image_archive_convert(&scan->source, scan->name, scan->max_bytes, file));
    FTH_TRY(fth_file_publish(file));

out:
    fth_file_free(file);
    return status;
}

static fth_status finish_pictures(archive_scan *scan, const fth_dataset_options *how, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    fth_dataset *opened = NULL;
    int64_t skipped = 0;

    FTH_TRY(unpack_pictures(scan));
    status = fth_dataset_open(scan->options->unpacked, how, &opened);
    if (status != FTH_OK) {
        status = fth_fail_within(status, "%s", scan->name);
        goto out;
    }
    fth_image_index *index = &fth_dataset_images(opened)->index;
    int64_t total = index->counts[FTH_TRAIN], wanted = clip(scan, 0, total, &skipped);
    FTH_TRY(check_range(scan, total, wanted));
    index->first[FTH_TRAIN] = skipped;
    index->counts[FTH_TRAIN] = opened->info.count[FTH_TRAIN] = wanted;
    index->counts[FTH_VALIDATION] = opened->info.count[FTH_VALIDATION] = 0;
    *dataset = opened;
    opened = NULL;

out:
    fth_dataset_free(opened);
    return status;
}

static void release(archive_scan *scan)
{
    free(scan->path.text);
    free(scan->idx.folder);
    free(scan->idx.pixels.bytes);
    free(scan->idx.labels.bytes);
    free(scan->cifar.records.bytes);
    free(scan->cifar.names);
    free(scan->own.unclear);
}

fth_status fth_archive_set_open(const uint8_t *bytes, size_t size_bytes, const char *name,
                                const fth_archive_set_options *options, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    archive_scan scan = {
        .options = options,
        .name = name,
        .max_bytes = options->max_bytes > 0 ? options->max_bytes : usual_max_bytes,
        .range = {options->first, options->count},
        .source = {.bytes = bytes, .size_bytes = size_bytes, .stop = options->stop, .deadline = options->deadline}};
    char size[32];
    const fth_dataset_options how = prepare_options(options, size);

    *dataset = NULL;
    scan.charge_limit = (uint64_t)size_bytes * MAX_EXPANSION + PIECE_BYTES +
                        (scan.max_bytes < FREE_EXPANSION_BYTES ? scan.max_bytes : FREE_EXPANSION_BYTES);
    FTH_REQUIRE(options->first >= 0 && options->count >= 0, FTH_INVALID,
                "%s: the range of samples begins or ends before 0", name);
    FTH_REQUIRE(size_bytes > 0, FTH_CORRUPT, "%s: is empty", name);
    FTH_TRY(fth_check_stop(options->stop, name));
    FTH_REQUIRE(options->deadline.at_seconds <= 0 || !fth_deadline_passed(options->deadline), FTH_TIMEOUT,
                "%s: could not be read before the deadline", name);
    FTH_TRY(finish_memory(&scan, true, &how, dataset));
    if (*dataset)
        goto out;
    if (!options->ranged && options->first == 0 && options->count == 0)
        FTH_TRY(find_own_range(&scan));
    FTH_TRY(read_archive(&scan));
    if (scan.idx.folder || scan.cifar.found)
        FTH_TRY(finish_memory(&scan, false, &how, dataset));
    else if (scan.pictures > 0)
        FTH_TRY(finish_pictures(&scan, &how, dataset));
    else
        status = fth_fail(FTH_CORRUPT,
                          "%s: no training data among its %s; looked for train-images-idx3-ubyte and "
                          "train-labels-idx1-ubyte (MNIST), data_batch_1.bin (CIFAR-10), and image files",
                          name, FTH_COUNTED(scan.entries, "entry"));

out:
    release(&scan);
    return fth_archive_source_explain(&scan.source, name, status);
}
