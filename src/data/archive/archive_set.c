/* See archive_set.h.
 *
 * The archive is read once: training files are read as they are met, decompressed if they are
 * compressed themselves, and other entries are skipped. Reading ends as soon as an idx set is
 * complete. An archive of image files only is then read again and turned into a tar. */
#include "data/archive/archive_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/archive/archive_reader.h"
#include "data/archive/python_subset.h"
#include "data/array/formats.h"
#include "data/image/image_set.h"
#include "data/source/image_index.h"

enum {
    MAX_ENTRIES = 1 << 18,
    MAX_EXPANSION = 64, /* times the archive's size, plus max_bytes or this, whichever is less: */
    FREE_EXPANSION_BYTES = 64 << 20,
    PIECE_BYTES = 1 << 16,
    NAMES_BYTES = 64 << 10
};
static const uint64_t usual_max_bytes = (uint64_t)1 << 30;

/* The bytes of a file that are in the range. */
typedef struct kept_bytes {
    uint8_t *bytes;
    size_t size_bytes, capacity;
} kept_bytes;

typedef struct idx_files {
    char *folder; /* of the first idx file found; files of other folders are ignored. NULL: none found */
    kept_bytes pixels, labels;
    fth_idx_images images;       /* its count is that of the file */
    int64_t label_count;         /* in the file */
    bool has_images, has_labels; /* read to the end */
} idx_files;

typedef struct cifar_files {
    kept_bytes records;
    int64_t seen; /* samples read or skipped so far */
    char *names;  /* the text of the file of class names; NULL: none */
    bool found;
} cifar_files;

/* The range that a program in the archive selects. */
typedef struct own_range {
    bool sought; /* this pass reads programs only */
    bool found;
    fth_python_subset subset;
    char *unclear; /* the file and line that is not understood; NULL: none */
} own_range;

typedef struct archive_scan {
    const fth_archive_set_options *options;
    fth_archive_input input;
    uint64_t max_bytes;      /* limit of the samples in memory */
    fth_archive_range range; /* the caller's, or the archive's own */
    own_range own;
    fth_archive *archive;
    const fth_archive_entry *entry;
    int64_t entries;
    idx_files idx;
    cifar_files cifar;
    int64_t image_files;
} archive_scan;

/* ---- the bytes of an entry ---- */

static fth_status reserve(const archive_scan *scan, kept_bytes *kept, uint64_t size_bytes)
{
    const uint64_t most = scan->max_bytes;
    if (size_bytes <= kept->capacity)
        return FTH_OK;
    if (size_bytes > most)
        return fth_fail(FTH_INVALID, "%s: the samples take more than the %" PRIu64 " bytes they may; ask for a range",
                        scan->input.name, most);
    uint64_t wanted = size_bytes < 2 * (uint64_t)kept->capacity ? 2 * (uint64_t)kept->capacity : size_bytes;
    wanted = wanted > most ? most : wanted;
    uint8_t *grown = realloc(kept->bytes, (size_t)wanted);
    if (!grown)
        return fth_fail(FTH_NO_MEMORY, "%s: no memory for %" PRIu64 " bytes of samples; ask for a range",
                        scan->input.name, wanted);
    kept->bytes = grown;
    kept->capacity = (size_t)wanted;
    return FTH_OK;
}

/* Reads the next `size_bytes` bytes of the file; fewer only at its end. Memory grows as they
 * arrive, whatever a header promises. */
static fth_status keep(archive_scan *scan, kept_bytes *kept, uint64_t size_bytes, uint64_t *added)
{
    fth_status status = FTH_OK;
    enum { STEP = 1 << 22 };
    *added = 0;
    while (*added < size_bytes) {
        size_t got = 0, wanted = size_bytes - *added < STEP ? (size_t)(size_bytes - *added) : STEP;
        FTH_TRY(reserve(scan, kept, kept->size_bytes + wanted));
        FTH_TRY(fth_archive_read(scan->archive, kept->bytes + kept->size_bytes, wanted, &got));
        kept->size_bytes += got;
        *added += got;
        if (got < wanted)
            break;
    }

out:
    return status;
}

/* ---- idx ---- */

/* Reads the part of the range that lies in a file of `count` records. */
static fth_status read_records(archive_scan *scan, int64_t count, uint64_t record_bytes, kept_bytes *kept)
{
    fth_status status = FTH_OK;
    uint64_t passed = 0, added = 0, rest = 0, beyond = 0;
    int64_t skipped = 0, wanted = fth_archive_range_clip(scan->range, 0, count, &skipped);
    uint64_t before = (uint64_t)skipped * record_bytes, taken = (uint64_t)wanted * record_bytes;

    FTH_TRY(fth_archive_skip(scan->archive, before, &passed));
    FTH_TRY(keep(scan, kept, taken, &added));
    FTH_TRY(fth_archive_skip(scan->archive, (uint64_t)count * record_bytes - before - taken, &rest));
    FTH_REQUIRE(passed + added + rest == (uint64_t)count * record_bytes, FTH_CORRUPT,
                "%s: %s is truncated: its header promises %" PRId64 " records", scan->input.name,
                scan->entry->path->text, count);
    FTH_TRY(fth_archive_skip(scan->archive, 1, &beyond));
    FTH_REQUIRE(beyond == 0, FTH_CORRUPT, "%s: %s goes on after the %" PRId64 " records that its header promises",
                scan->input.name, scan->entry->path->text, count);

out:
    return status;
}

static fth_status read_idx(archive_scan *scan, bool labels)
{
    fth_status status = FTH_OK;
    idx_files *idx = &scan->idx;
    uint8_t header[FTH_IDX_IMAGES_HEADER];
    size_t got = 0;
    char *what = fth_format("%s: %s", scan->input.name, scan->entry->path->text);

    FTH_REQUIRE(what, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_archive_read(scan->archive, header, labels ? FTH_IDX_LABELS_HEADER : FTH_IDX_IMAGES_HEADER, &got));
    if (labels) {
        FTH_TRY(fth_idx_parse_labels_header(header, got, what, &idx->label_count));
        FTH_TRY(read_records(scan, idx->label_count, 1, &idx->labels));
        int64_t skipped = 0, wanted = fth_archive_range_clip(scan->range, 0, idx->label_count, &skipped);
        FTH_TRY(fth_idx_check_labels(idx->labels.bytes, skipped, wanted, what));
        idx->has_labels = true;
    } else {
        FTH_TRY(fth_idx_parse_images_header(header, got, what, &idx->images));
        FTH_TRY(read_records(scan, idx->images.count, (uint64_t)idx->images.height * (uint64_t)idx->images.width,
                             &idx->pixels));
        idx->has_images = true;
    }

out:
    free(what);
    return status;
}

static fth_status meet_idx(archive_scan *scan, bool labels)
{
    fth_status status = FTH_OK;
    idx_files *idx = &scan->idx;
    const fth_entry_path *path = scan->entry->path;

    if (!idx->folder) {
        idx->folder = fth_format("%.*s", (int)path->folder_length, path->text);
        FTH_REQUIRE(idx->folder, FTH_NO_MEMORY, "no memory for a path");
    }
    if (strlen(idx->folder) != path->folder_length || strncmp(idx->folder, path->text, path->folder_length) != 0 ||
        (labels ? idx->has_labels : idx->has_images))
        return FTH_OK; /* another set, or the same file compressed */
    FTH_TRY(fth_archive_decompress_entry(scan->archive));
    FTH_TRY(read_idx(scan, labels));

out:
    return status;
}

/* ---- CIFAR-10 ---- */

/* `what` names the file in messages. */
static fth_status read_cifar(archive_scan *scan, const char *what)
{
    fth_status status = FTH_OK;
    cifar_files *cifar = &scan->cifar;
    uint64_t got = 0;

    cifar->found = true;
    for (;;) {
        int64_t skipped = 0;
        bool wanted = fth_archive_range_clip(scan->range, cifar->seen, 1, &skipped) > 0;
        if (wanted)
            FTH_TRY(keep(scan, &cifar->records, FTH_CIFAR_RECORD, &got));
        else
            FTH_TRY(fth_archive_skip(scan->archive, FTH_CIFAR_RECORD, &got));
        if (got == 0)
            break;
        FTH_REQUIRE(got == FTH_CIFAR_RECORD, FTH_CORRUPT,
                    "%s: %s is truncated or no CIFAR-10 file: not a whole number of %d-byte records", scan->input.name,
                    what, FTH_CIFAR_RECORD);
        cifar->seen++;
    }

out:
    return status;
}

static fth_status meet_names(archive_scan *scan)
{
    fth_status status = FTH_OK;
    size_t got = 0;

    if (scan->cifar.names)
        return FTH_OK;
    FTH_TRY(fth_allocate(NAMES_BYTES + 1, 1, &scan->cifar.names));
    FTH_TRY(fth_archive_read(scan->archive, scan->cifar.names, NAMES_BYTES, &got));
    FTH_REQUIRE(strlen(scan->cifar.names) == got && got < NAMES_BYTES, FTH_CORRUPT, "%s: %s holds no names of classes",
                scan->input.name, scan->entry->path->text);

out:
    return status;
}

/* ---- the archive's own range ---- */

/* Parses a program, without executing it. An __init__.py matters only beside a __dataset__.py. */
static fth_status meet_program(archive_scan *scan)
{
    fth_status status = FTH_OK;
    own_range *own = &scan->own;
    const fth_archive_entry *entry = scan->entry;
    const bool usable = entry->path_kind == FTH_PATH_USABLE;
    const bool is_dataset = strcmp(entry->raw_name, FTH_PYTHON_DATASET) == 0, repeated = is_dataset && own->found;
    char *text = NULL;
    size_t size_bytes = 0;
    int line = 1;

    FTH_TRY(fth_allocate(FTH_MAX_PYTHON_SUBSET_BYTES + 1, 1, &text));
    FTH_TRY(fth_archive_read(scan->archive, text, FTH_MAX_PYTHON_SUBSET_BYTES + 1, &size_bytes));
    bool understood = usable && size_bytes <= FTH_MAX_PYTHON_SUBSET_BYTES && !repeated &&
                      entry->kind == FTH_ENTRY_FILE &&
                      (is_dataset ? fth_python_subset_read(text, size_bytes, &own->subset, &line)
                                  : fth_python_passes_dataset_on(text, size_bytes, &line));
    own->found = own->found || is_dataset;
    if (!understood && !own->unclear) {
        own->unclear = fth_format("%s%s, line %d", repeated ? "a second " : "",
                                  usable ? entry->path->text : entry->raw_name, line);
        FTH_REQUIRE(own->unclear, FTH_NO_MEMORY, "no memory for a path");
    }

out:
    free(text);
    return status;
}

/* ---- entries ---- */

static fth_status check_harmless(const archive_scan *scan)
{
    fth_status status = FTH_OK;
    const fth_archive_entry *entry = scan->entry;
    const fth_path_kind kind = entry->path_kind;
    FTH_REQUIRE(kind != FTH_PATH_LEAVES && (kind != FTH_PATH_USABLE || *entry->path->text != '/'), FTH_CORRUPT,
                "%s: refused: the path %s leads out of the archive", scan->input.name, entry->raw_path);
    FTH_REQUIRE(entry->kind == FTH_ENTRY_FILE, FTH_CORRUPT, "%s: refused: %s is a link or device, not a file",
                scan->input.name, entry->raw_path);
    FTH_REQUIRE(kind == FTH_PATH_USABLE, FTH_CORRUPT, "%s: an entry has a path that is too long", scan->input.name);

out:
    return status;
}

static fth_status meet_entry(archive_scan *scan)
{
    fth_status status = FTH_OK;
    const fth_archive_entry *entry = scan->entry;
    const char *file = entry->raw_name;
    uint64_t skipped = 0;
    bool images = fth_idx_is_training_images(file), labels = fth_idx_is_training_labels(file);
    bool batch = fth_cifar_is_training_batch(file), names = strcmp(file, FTH_CIFAR_NAMES) == 0;
    bool image_file = *file != '.' && fth_image_name_fits(file);

    FTH_REQUIRE(++scan->entries <= MAX_ENTRIES, FTH_CORRUPT, "%s: has more than %d entries", scan->input.name,
                MAX_ENTRIES);
    if (scan->own.sought) {
        if (strcmp(file, FTH_PYTHON_DATASET) == 0 || strcmp(file, "__init__.py") == 0)
            return meet_program(scan);
    } else if ((images || labels || batch || names || image_file) && entry->kind != FTH_ENTRY_FOLDER) {
        FTH_TRY(check_harmless(scan));
        if (images || labels)
            return meet_idx(scan, labels);
        if (batch) {
            FTH_TRY(fth_archive_decompress_entry(scan->archive));
            return read_cifar(scan, entry->path->text);
        }
        if (names)
            return meet_names(scan);
        scan->image_files++;
    }
    if (!entry->has_size) /* read, so that its bytes are counted */
        FTH_TRY(fth_archive_skip(scan->archive, UINT64_MAX, &skipped));

out:
    return status;
}

/* A file that is no archive: perhaps a CIFAR-10 file. */
static fth_status meet_single(archive_scan *scan)
{
    const char *name = scan->input.name;
    fth_status status = read_cifar(scan, "it");
    if (status == FTH_OK && scan->cifar.records.size_bytes > 0)
        status = fth_cifar_check_labels(scan->cifar.records.bytes, scan->range.first,
                                        (int64_t)(scan->cifar.records.size_bytes / FTH_CIFAR_RECORD),
                                        fth_cifar_info.classes, name);
    if (status == FTH_CORRUPT)
        status = fth_fail_within(FTH_CORRUPT, "%s is no .tar, .tar.gz, .tar.xz, .tar.zst or .zip, nor a CIFAR-10 file",
                                 name);
    return status;
}

static fth_status open_archive(archive_scan *scan, int forms)
{
    scan->input.forms = forms;
    fth_archive_free(scan->archive);
    scan->archive = NULL;
    return fth_archive_open(&scan->input, &scan->archive);
}

static fth_status read_archive(archive_scan *scan)
{
    fth_status status = FTH_OK;

    FTH_TRY(open_archive(scan, FTH_ARCHIVE_ENTRIES | FTH_ARCHIVE_SINGLE));
    while (!(scan->idx.has_images && scan->idx.has_labels)) {
        FTH_TRY(fth_archive_next(scan->archive, &scan->entry));
        if (!scan->entry && scan->entries == 0 && !scan->cifar.found) {
            /* A file that begins with many zeros looks like the end of a tar. */
            FTH_TRY(open_archive(scan, FTH_ARCHIVE_SINGLE));
            FTH_TRY(fth_archive_next(scan->archive, &scan->entry));
        }
        if (!scan->entry || (scan->entry->single && scan->own.sought))
            break; /* a single file has no program beside it */
        FTH_TRY(scan->entry->single ? meet_single(scan) : meet_entry(scan));
    }

out:
    fth_archive_free(scan->archive);
    scan->archive = NULL;
    return status;
}

/* Reads the whole archive for its programs, since the samples to read must be known before the
 * first. */
static fth_status find_own_range(archive_scan *scan)
{
    fth_status status = FTH_OK;
    own_range *own = &scan->own;
    const char *name = scan->input.name;

    own->sought = true;
    FTH_TRY(read_archive(scan));
    FTH_REQUIRE(!own->found || !own->unclear, FTH_INVALID,
                "%s: %s: cannot tell which samples it selects; only Subset(SET, range(FIRST, END)) of torchvision's "
                "MNIST is understood, and nothing is executed; give them as \"range\", such as \"0:10000\"",
                name, own->unclear);
    scan->range = (fth_archive_range){own->subset.first, own->subset.count};
    if (own->found && own->subset.count > 0)
        fth_log_info("%s: samples %" PRId64 " to %" PRId64 ", which its " FTH_PYTHON_DATASET " selects", name,
                     scan->range.first, scan->range.first + scan->range.count - 1);

out:
    own->sought = false;
    scan->entries = 0;
    return status;
}

/* ---- data sets ---- */

static fth_status check_range(const archive_scan *scan, int64_t total, int64_t wanted)
{
    if (scan->own.subset.count > 0 && wanted != scan->own.subset.count)
        return fth_fail(FTH_INVALID,
                        "%s: its " FTH_PYTHON_DATASET " selects samples %" PRId64 " to %" PRId64
                        " of %s; give those to use as \"range\"",
                        scan->input.name, scan->range.first, scan->range.first + scan->range.count - 1,
                        FTH_COUNTED(total, "training sample"));
    if (wanted > 0)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s: has %s, none from number %" PRId64 " on", scan->input.name,
                    FTH_COUNTED(total, "training sample"), scan->range.first);
}

/* Hands the bytes over to the set and returns their new address. */
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
    int64_t skipped = 0, wanted = fth_archive_range_clip(scan->range, 0, idx->images.count, &skipped);

    FTH_REQUIRE(idx->has_images && idx->has_labels, FTH_CORRUPT, "%s: train-%s-ubyte is missing in %s",
                scan->input.name, idx->has_images ? "labels-idx1" : "images-idx3", *idx->folder ? idx->folder : "it");
    FTH_REQUIRE(idx->images.count == idx->label_count, FTH_CORRUPT, "%s: %s has %s but %s", scan->input.name,
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
        FTH_REQUIRE(info->classes >= 2, FTH_CORRUPT, "%s: %s does not name 2 to %d classes, one a line",
                    scan->input.name, FTH_CIFAR_NAMES, FTH_MAX_CLASSES);
        info->class_names = set->class_names;
    }
    FTH_TRY(fth_cifar_check_labels(cifar->records.bytes, scan->range.first, wanted, info->classes, scan->input.name));
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

/* Opens the samples that were read into memory. `quickly`: tries the fast path for small MNIST
 * archives, without a scan; *dataset stays NULL if it does not apply. */
static fth_status finish_memory(archive_scan *scan, bool quickly, const fth_dataset_options *how, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    fth_dataset *opened = NULL;
    fth_array_set *set = NULL;

    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    FTH_TRY(fth_array_set_create(opened, &set));
    if (quickly) {
        if (!fth_idx_archive_open(scan->input.bytes, scan->input.size_bytes, scan->max_bytes, scan->range, set,
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

static fth_status unpack_image_files(archive_scan *scan)
{
    fth_status status = FTH_OK;
    fth_file *file = NULL;

    FTH_REQUIRE(scan->options->unpacked, FTH_UNSUPPORTED, "%s: image files need a folder to be unpacked into",
                scan->input.name);
    if (fth_file_exists(scan->options->unpacked))
        return FTH_OK;
    FTH_TRY(fth_file_create(scan->options->unpacked, &file));
    FTH_TRY(fth_image_archive_convert(&scan->input, scan->max_bytes, file));
    FTH_TRY(fth_file_publish(file));

out:
    fth_file_free(file);
    return status;
}

static fth_status finish_image_files(archive_scan *scan, const fth_dataset_options *how, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    fth_dataset *opened = NULL;
    int64_t skipped = 0;

    FTH_TRY(unpack_image_files(scan));
    status = fth_dataset_open(scan->options->unpacked, how, &opened);
    if (status != FTH_OK) {
        status = fth_fail_within(status, "%s", scan->input.name);
        goto out;
    }
    fth_image_index *index = &fth_dataset_images(opened)->index;
    int64_t total = index->counts[FTH_TRAIN], wanted = fth_archive_range_clip(scan->range, 0, total, &skipped);
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
    const uint64_t max_bytes = options->max_bytes > 0 ? options->max_bytes : usual_max_bytes;
    archive_scan scan = {.options = options,
                         .input = {.bytes = bytes,
                                   .size_bytes = size_bytes,
                                   .name = name,
                                   .most_bytes = (uint64_t)size_bytes * MAX_EXPANSION + PIECE_BYTES +
                                                 (max_bytes < FREE_EXPANSION_BYTES ? max_bytes : FREE_EXPANSION_BYTES),
                                   .stop = options->stop,
                                   .deadline = options->deadline},
                         .max_bytes = max_bytes,
                         .range = {options->first, options->count}};
    char size[32];
    const fth_dataset_options how = prepare_options(options, size);

    *dataset = NULL;
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
    else if (scan.image_files > 0)
        FTH_TRY(finish_image_files(&scan, &how, dataset));
    else
        status = fth_fail(FTH_CORRUPT,
                          "%s: no training data among its %s; looked for train-images-idx3-ubyte and "
                          "train-labels-idx1-ubyte (MNIST), data_batch_1.bin (CIFAR-10), and image files",
                          name, FTH_COUNTED(scan.entries, "entry"));

out:
    release(&scan);
    return fth_archive_explain(&scan.input, status);
}
