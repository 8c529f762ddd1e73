/* Opens sets of image files, wherever they lie, and decides what the loader will give: the size and the transforms. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/image_set.h"

enum { SIZE_SAMPLES = 32, SMALL_SIDE = 96 };

void fth_image_set_free(fth_image_set *set)
{
    if (!set)
        return;
    fth_image_index_free(&set->index);
    fth_blob_free(&set->archive);
    if (set->root >= 0)
        close(set->root);
    fth_decoded_cache_free(set->cache);
    fth_bad_images_free(set->bad);
    free(set->source);
    free(set);
}

size_t fth_image_set_find(const fth_dataset *dataset, fth_split split, int64_t sample)
{
    const fth_image_index *index = &dataset->images->index;
    int64_t first = dataset->held_out ? 0 : index->first[split];
    return (size_t)(first + fth_dataset_place(dataset, split, sample));
}

/* ---- where the images are ---- */

static fth_status open_source(const char *source, const fth_stop *stop, fth_image_set *set)
{
    fth_status status = FTH_OK;
    char *fetched = NULL, *plain = NULL;
    const void *bytes = NULL;
    const char *path = source;

    set->index.stop = stop;
    if (fth_folder_exists(source)) {
        set->root = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        FTH_REQUIRE(set->root >= 0, FTH_IO, "open %s: %s", source, strerror(errno));
        FTH_TRY(fth_image_folder_scan(source, &set->index));
    } else {
        if (strstr(source, "://")) {
            FTH_REQUIRE(strncmp(source, "https://", 8) == 0 || strncmp(source, "http://", 7) == 0, FTH_INVALID,
                        "%s: data can be downloaded from https:// and http:// addresses", source);
            FTH_TRY(fth_image_fetch(source, stop, &fetched));
            path = fetched;
        }
        FTH_TRY(fth_image_archive_unpack(path, stop, &plain));
        FTH_TRY(fth_file_map(plain, &bytes, &set->archive.size_bytes));
        set->archive.bytes = bytes;
        set->archive.mapped = true;
        FTH_TRY(fth_image_archive_index(set->archive.bytes, set->archive.size_bytes, path, &set->index));
    }
    set->index.stop = NULL;
    FTH_TRY(fth_image_index_finish(&set->index, source));

out:
    if (status != FTH_OK && status != FTH_INTERRUPTED && fetched && fth_file_exists(fetched))
        status = fth_fail_within(status, "downloaded to %s (remove it to download it again)", fetched);
    free(fetched);
    free(plain);
    return status;
}

/* ---- sizes and transforms ---- */

/* The size of all of some images spread over the set, if that is one and small; else 0. */
static fth_status find_common_size(const fth_image_set *set, int *width, int *height)
{
    fth_status status = FTH_OK;
    fth_image_worker *worker = NULL;
    int64_t count = set->index.counts[FTH_TRAIN], looked = count < SIZE_SAMPLES ? count : SIZE_SAMPLES;
    bool first = true;

    *width = *height = 0;
    FTH_TRY(fth_image_worker_create(&worker));
    for (int64_t i = 0; i < looked; i++) {
        const uint8_t *bytes;
        size_t size_bytes;
        fth_image_header header;
        size_t entry = (size_t)(i * count / looked);
        if (fth_image_set_read(set, entry, worker, &bytes, &size_bytes) != FTH_OK ||
            fth_decoder_begin(worker->decoder, bytes, size_bytes, &header) != FTH_OK)
            continue; /* the loader will count it */
        if (header.width > SMALL_SIDE || header.height > SMALL_SIDE ||
            (!first && (header.width != *width || header.height != *height))) {
            *width = *height = 0;
            break;
        }
        *width = header.width;
        *height = header.height;
        first = false;
    }

out:
    fth_image_worker_free(worker);
    return status;
}

static fth_status resolve_transforms(const fth_dataset_options *options, const fth_image_set *set, fth_dataset *dataset)
{
    fth_status status = FTH_OK;
    fth_raw_images raw = {.channels = FTH_IMAGE_CHANNELS, .files = true};

    FTH_TRY(find_common_size(set, &raw.width, &raw.height));
    FTH_TRY(fth_normalization_parse("imagenet", &raw.normalization));
    FTH_TRY(fth_dataset_prepare(options, &raw, dataset));

out:
    return status;
}

/* ---- versions ---- */

enum { TAIL_BYTES = 64 };

static void add_file(const fth_image_set *set, const char *path, fth_version_hash *hash)
{
    struct stat facts = {0};
    if (fstatat(set->root, path, &facts, 0) != 0)
        facts = (struct stat){0}; /* unreadable: as good as empty */
    fth_version_add_number(hash, (uint64_t)facts.st_size);
    fth_version_add_number(hash, (uint64_t)facts.st_mtim.tv_sec);
    fth_version_add_number(hash, (uint64_t)facts.st_mtim.tv_nsec);
}

static void add_member(const fth_image_set *set, const fth_image_entry *entry, fth_version_hash *hash)
{
    size_t size_bytes = entry->size_bytes <= FTH_MAX_IMAGE_FILE ? entry->size_bytes : 0;
    size_t tail = size_bytes < TAIL_BYTES ? size_bytes : TAIL_BYTES;
    fth_version_add_number(hash, entry->size_bytes);
    fth_version_add_bytes(hash, set->archive.bytes + entry->offset + size_bytes - tail, tail);
}

fth_status fth_image_set_add_version(const fth_image_set *set, fth_version_hash *hash)
{
    for (size_t i = 0; i < set->index.count; i++) {
        char *path = fth_image_index_path(&set->index, &set->index.entries[i]);
        if (!path)
            return fth_fail(FTH_NO_MEMORY, "no memory for a path");
        fth_version_add_text(hash, path);
        if (set->root >= 0)
            add_file(set, path, hash);
        else
            add_member(set, &set->index.entries[i], hash);
        free(path);
    }
    return FTH_OK;
}

/* ---- the whole ---- */

/* "photos" of "/data/photos/" and "photos.tar.gz", for run names and records; lives in the set. */
static void describe(const fth_image_set *set, const fth_transform *transform, fth_dataset_info *info)
{
    const char *slash = strrchr(set->source, '/');
    *info = (fth_dataset_info){.name = slash && slash[1] ? slash + 1 : set->source,
                               .classes = set->index.classes,
                               .class_names = (const char *const *)set->index.class_names,
                               .channels = FTH_IMAGE_CHANNELS,
                               .height = transform->height,
                               .width = transform->width,
                               .count = {set->index.counts[0], set->index.counts[1]},
                               .normalization = transform->normalization};
}

static fth_status open_image_set(const char *source, const fth_dataset_options *options, fth_dataset *dataset)
{
    fth_status status = FTH_OK;
    fth_image_set *set = NULL;

    FTH_TRY(fth_allocate(1, sizeof *set, &set));
    dataset->images = set; /* freed with it */
    set->root = -1;
    set->source = fth_format("%s", source);
    for (size_t length = strlen(set->source); length > 1 && set->source[length - 1] == '/';)
        set->source[--length] = '\0';
    FTH_TRY(open_source(source, options->stop, set));
    FTH_TRY(fth_bad_images_create(set->source, (int64_t)set->index.count, options->max_bad_images, &set->bad));
    FTH_TRY(resolve_transforms(options, set, dataset));
    if (options->decoded_cache_bytes > 0)
        FTH_TRY(fth_decoded_cache_create(set->index.count, options->decoded_cache_bytes, &set->cache));
    describe(set, &dataset->transforms[FTH_TRAIN], &dataset->info);

out:
    return status;
}

const fth_file_format fth_format_images = {
    .name = "image files",
    .files = "train/<class>/*.jpg and val/<class>/*.jpg, or <class>/*.jpg, .jpeg or .png",
    .probe = fth_image_folder_probe,
    .open = open_image_set,
};
