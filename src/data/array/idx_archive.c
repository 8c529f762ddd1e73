/* The quick way into a shard as `farthing data shard` writes it: a small .tar.gz of MNIST's
 * training files, decompressed at once by libdeflate, three times as fast as libarchive does it.
 * What is most of it is used where it lies, so that there is no second copy; a smaller range is
 * copied, and the rest let go. Whatever is unusual about an archive leaves it to archive_set.c,
 * which also says what is wrong with it. */
#include <stdlib.h>
#include <string.h>

#include "data/data_internal.h"
#include "data/archive/python_subset.h"
#include "data/archive/tar_scan.h"

enum { MOST_BYTES = 32 << 20, TAR_BLOCK = 512, GZIP_TRAILER = 4 };

typedef struct idx_members {
    fth_tar_member images, labels; /* their paths are not kept */
    char folder[256];              /* of the first */
    bool found, unusual;
} idx_members;

static fth_status plain_at(void *context, uint64_t offset, size_t size_bytes, const uint8_t **bytes)
{
    const fth_blob *plain = context;
    (void)size_bytes;
    *bytes = plain->bytes + offset;
    return FTH_OK;
}

static bool is_compressed_name(const char *name)
{
    size_t length = strlen(name);
    return length > 3 && (strcmp(name + length - 3, ".gz") == 0 || strcmp(name + length - 3, ".xz") == 0);
}

static fth_status meet_member(void *context, const fth_tar_member *member)
{
    idx_members *members = context;
    const char *slash = strrchr(member->path, '/'), *name = slash ? slash + 1 : member->path;
    const size_t folder_length = (size_t)(name - member->path);
    const bool images = fth_idx_is_training_images(name), labels = fth_idx_is_training_labels(name);

    members->unusual = members->unusual || strcmp(name, FTH_PYTHON_DATASET) == 0; /* it may select some samples */
    if (!images && !labels)
        return FTH_OK;
    fth_tar_member *found = images ? &members->images : &members->labels;
    if (!members->found && folder_length < sizeof members->folder)
        memcpy(members->folder, member->path, folder_length);
    members->found = true;
    members->unusual = members->unusual || member->kind != FTH_TAR_FILE || member->path[0] == '/' ||
                       strstr(member->path, "..") || is_compressed_name(name) || found->size_bytes > 0 ||
                       folder_length >= sizeof members->folder || strlen(members->folder) != folder_length ||
                       memcmp(members->folder, member->path, folder_length) != 0;
    *found = *member;
    return FTH_OK;
}

/* How large the bytes say that they will be; 0: too large to do at once, or no gzip file. */
static size_t find_size(const uint8_t *bytes, size_t size_bytes, uint64_t max_bytes)
{
    if (size_bytes < 18 || bytes[0] != 0x1f || bytes[1] != 0x8b)
        return 0;
    const uint8_t *trailer = bytes + size_bytes - GZIP_TRAILER;
    size_t length = (size_t)trailer[0] | (size_t)trailer[1] << 8 | (size_t)trailer[2] << 16 | (size_t)trailer[3] << 24;
    return length <= MOST_BYTES && length <= max_bytes ? length : 0;
}

/* A blob of its own, the data set's, with these bytes; NULL: no memory. */
static const uint8_t *keep_copy(fth_dataset *dataset, const uint8_t *bytes, size_t size_bytes)
{
    uint8_t *copy = malloc(size_bytes);
    if (!copy)
        return NULL;
    memcpy(copy, bytes, size_bytes);
    dataset->blobs[dataset->blob_count++] = (fth_blob){.bytes = copy, .size_bytes = size_bytes};
    return copy;
}

/* Gives the data set the range of what was found. It then has `plain`, which is left empty, or
 * copies of parts of it. */
static bool use_members(const idx_members *members, fth_archive_range range, fth_blob *plain, fth_dataset *dataset)
{
    fth_idx_images images = {0};
    fth_idx_labels labels = {0};
    if (members->unusual || members->images.size_bytes == 0 || members->labels.size_bytes == 0 ||
        fth_idx_parse_images(plain->bytes + members->images.offset, (size_t)members->images.size_bytes, "", &images) !=
            FTH_OK ||
        fth_idx_parse_labels(plain->bytes + members->labels.offset, (size_t)members->labels.size_bytes, "", &labels) !=
            FTH_OK ||
        images.count != labels.count)
        return false;
    int64_t skipped = 0, wanted = fth_archive_range_clip(range, 0, images.count, &skipped);
    if (wanted == 0)
        return false;
    const size_t image_bytes = (size_t)images.height * (size_t)images.width;
    fth_segment segment = {images.pixels + (size_t)skipped * image_bytes, labels.labels + skipped, image_bytes, 1,
                           wanted};
    if ((size_t)wanted * image_bytes < plain->size_bytes / 2) {
        segment.pixels = keep_copy(dataset, segment.pixels, (size_t)wanted * image_bytes);
        segment.labels = keep_copy(dataset, segment.labels, (size_t)wanted);
        if (!segment.pixels || !segment.labels)
            return false;
    } else {
        dataset->blobs[dataset->blob_count++] = *plain;
        *plain = (fth_blob){0};
    }
    dataset->info = fth_idx_info;
    dataset->info.height = images.height;
    dataset->info.width = images.width;
    dataset->info.count[FTH_TRAIN] = wanted;
    dataset->parts[FTH_TRAIN] = (fth_part){.segments = {segment}, .segment_count = 1};
    return true;
}

bool fth_idx_archive_open(const uint8_t *bytes, size_t size_bytes, uint64_t max_bytes, fth_archive_range range,
                          fth_dataset *dataset)
{
    fth_blob plain = {0};
    idx_members members = {0};
    size_t length = find_size(bytes, size_bytes, max_bytes);

    if (length < 2 * TAR_BLOCK || fth_decompress(bytes, size_bytes, length, "a shard", NULL, &plain) != FTH_OK)
        return false;
    const fth_tar_input input = {.size_bytes = plain.size_bytes, .at = plain_at, .context = &plain};
    bool used = fth_tar_scan(&input, "a shard", meet_member, &members) == FTH_OK &&
                use_members(&members, range, &plain, dataset);
    fth_blob_free(&plain);
    return used;
}
