/* A fast path for shards written by `farthing data shard`: a small .tar.gz of MNIST's training
 * files, decompressed at once by libdeflate, three times as fast as by libarchive. A range of more
 * than half of the bytes is used in place; a smaller one is copied. Other archives are left to
 * archive_set.c, which also reports errors. */
#include <stdlib.h>
#include <string.h>

#include "data/archive/python_subset.h"
#include "data/archive/tar_scan.h"
#include "data/array/formats.h"

enum { MOST_BYTES = 32 << 20, TAR_BLOCK = 512 };

typedef struct idx_members {
    fth_tar_member images, labels; /* their paths are not valid */
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

    members->unusual = members->unusual || strcmp(name, FTH_PYTHON_DATASET) == 0; /* it may select a range */
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

/* A copy owned by the set; NULL: no memory. */
static const uint8_t *keep_copy(fth_array_set *set, const uint8_t *bytes, size_t size_bytes)
{
    uint8_t *copy = malloc(size_bytes);
    if (!copy)
        return NULL;
    fth_blob blob = {.bytes = memcpy(copy, bytes, size_bytes), .size_bytes = size_bytes};
    fth_array_set_keep(set, &blob);
    return copy;
}

/* Gives the range to the set, which takes over `plain` or copies what it needs. */
static bool use_members(const idx_members *members, fth_archive_range range, fth_blob *plain, fth_array_set *set,
                        fth_dataset_info *info)
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
    fth_segment segment = {
        images.pixels + (size_t)skipped * image_bytes, labels.labels + skipped, image_bytes, 1, wanted, NULL};
    if ((size_t)wanted * image_bytes < plain->size_bytes / 2) {
        segment.pixels = keep_copy(set, segment.pixels, (size_t)wanted * image_bytes);
        segment.labels = keep_copy(set, segment.labels, (size_t)wanted);
        if (!segment.pixels || !segment.labels)
            return false;
    } else {
        fth_array_set_keep(set, plain);
    }
    *info = fth_idx_info;
    info->height = images.height;
    info->width = images.width;
    fth_array_set_use(set, &segment, info);
    return true;
}

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

bool fth_idx_archive_open(const uint8_t *bytes, size_t size_bytes, uint64_t max_bytes, fth_archive_range range,
                          fth_array_set *set, fth_dataset_info *info)
{
    fth_blob plain = {0};
    idx_members members = {0};
    size_t length = fth_gzip_stated_size(bytes, size_bytes);

    if (length < 2 * TAR_BLOCK || length > MOST_BYTES || length > max_bytes ||
        fth_decompress(bytes, size_bytes, length, "a shard", NULL, &plain) != FTH_OK)
        return false;
    const fth_tar_input input = {.size_bytes = plain.size_bytes, .at = plain_at, .context = &plain};
    bool used = fth_tar_scan(&input, "a shard", meet_member, &members) == FTH_OK &&
                use_members(&members, range, &plain, set, info);
    fth_blob_free(&plain);
    return used;
}
