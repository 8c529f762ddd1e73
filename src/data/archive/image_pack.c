/* Writes a set's encoded images into tars, untouched, in the layout they were found in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/archive/image_tar.h"
#include "data/image/image_inspect.h"
#include "data/image/image_set.h"

enum { MAX_SHARDS = 10000 };

/* The path starts below the folders around the set, with train/ or a class. */
static fth_status add_entry(const fth_image_set *set, size_t number, fth_image_worker *worker, fth_tar_writer *writer)
{
    fth_status status = FTH_OK;
    const uint8_t *bytes;
    size_t size_bytes;
    char *path = fth_image_index_path(&set->index, &set->index.entries[number]);

    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    status = fth_image_set_read(set, number, worker, &bytes, &size_bytes);
    if (status != FTH_OK) {
        status = fth_fail_within(status, "%s: %s", set->source, path);
        goto out;
    }
    FTH_TRY(fth_tar_writer_add(writer, path + set->index.root_length, bytes, size_bytes));

out:
    free(path);
    return status;
}

static int class_of(const fth_image_set *set, size_t number)
{
    return set->index.folders[set->index.entries[number].folder].class_index;
}

/* Every `shards`-th image of each class, from number `shard` on, taking the classes in turn. The
 * entries of a class are consecutive. */
static fth_status add_share(const fth_image_set *set, int split, int shard, int shards, const size_t *begins,
                            fth_image_worker *worker, fth_tar_writer *writer)
{
    fth_status status = FTH_OK;
    int classes = set->index.classes;
    bool more = true;
    for (size_t round = 0; more; round++) {
        more = false;
        for (int class_index = 0; class_index < classes; class_index++) {
            const size_t *begin = &begins[split * (classes + 1) + class_index];
            /* Classes begin at different shards, so that remainders are spread. */
            size_t at = begin[0] + round * (size_t)shards + (size_t)((shard + class_index) % shards);
            if (at >= begin[1])
                continue;
            FTH_TRY(add_entry(set, at, worker, writer));
            more = true;
        }
    }

out:
    return status;
}

/* The first entry of each class of each split: (2, classes + 1). */
static fth_status find_classes(const fth_image_set *set, size_t **begins)
{
    const fth_image_index *index = &set->index;
    size_t row = (size_t)index->classes + 1;
    fth_status status = fth_allocate(2 * row, sizeof **begins, begins);
    if (status != FTH_OK)
        return status;
    for (int split = 0; split < 2; split++) {
        size_t at = (size_t)index->first[split], end = at + (size_t)index->counts[split];
        for (int class_index = 0; class_index < index->classes; class_index++) {
            (*begins)[(size_t)split * row + (size_t)class_index] = at;
            while (at < end && class_of(set, at) == class_index)
                at++;
        }
        (*begins)[(size_t)split * row + row - 1] = at;
    }
    return FTH_OK;
}

/* Writes one tar, which appears complete. Takes ownership of `file`. */
static fth_status write_tar(const fth_image_set *set, fth_file *file, int shard, int shards, const size_t *begins,
                            int64_t *bytes)
{
    fth_status status = FTH_OK;
    fth_tar_writer *writer = NULL;
    fth_image_worker *worker = NULL;

    FTH_TRY(fth_image_worker_create(&worker));
    const fth_tar_output output = fth_tar_output_file(file);
    FTH_TRY(fth_tar_writer_create(&output, &writer));
    if (shards > 1) {
        for (int split = 0; split < 2; split++)
            FTH_TRY(add_share(set, split, shard, shards, begins, worker, writer));
    } else {
        for (size_t i = 0; i < set->index.count; i++) {
            fth_image_set_expect_next(set, i);
            FTH_TRY(add_entry(set, i, worker, writer));
        }
    }
    FTH_TRY(fth_tar_writer_finish(writer));
    FTH_TRY(fth_file_publish(file));
    *bytes += (int64_t)fth_file_size_bytes(file);

out:
    fth_tar_writer_free(writer);
    fth_file_free(file);
    fth_image_worker_free(worker);
    return status;
}

fth_status fth_dataset_pack(const fth_dataset *dataset, const char *path, int64_t *bytes)
{
    *bytes = 0;
    const fth_image_set *set = fth_dataset_images(dataset);
    if (!set)
        return fth_fail(FTH_INVALID, "%s is not a set of image files: there is nothing to pack", dataset->info.name);
    fth_file *file = NULL;
    fth_status status = fth_file_create_output(path, &file);
    return status == FTH_OK ? write_tar(set, file, 0, 1, NULL, bytes) : status;
}

fth_status fth_dataset_shard(const fth_dataset *dataset, int shards, const char *folder, int64_t *bytes)
{
    fth_status status = FTH_OK;
    size_t *begins = NULL;
    const fth_image_set *set = fth_dataset_images(dataset);

    *bytes = 0;
    FTH_REQUIRE(set, FTH_INVALID, "%s is not a set of image files: there is nothing to split", dataset->info.name);
    FTH_REQUIRE(shards >= 1 && shards <= MAX_SHARDS, FTH_INVALID, "%d shards; there may be 1 to %d", shards,
                MAX_SHARDS);
    FTH_TRY(find_classes(set, &begins));
    for (int i = 0; i < set->index.classes; i++)
        FTH_REQUIRE(begins[i + 1] - begins[i] >= (size_t)shards, FTH_INVALID,
                    "the class '%s' has %s, too few for %d shards: every shard needs every class",
                    set->index.class_names[i], FTH_COUNTED(begins[i + 1] - begins[i], "image"), shards);
    FTH_TRY(fth_folder_create(folder));
    for (int i = 0; i < shards; i++) {
        char name[64];
        snprintf(name, sizeof name, "shard-%05d-of-%05d.tar", i, shards);
        char *path = fth_path_join(folder, name);
        fth_file *file = NULL;
        status = fth_file_create(path, &file);
        free(path);
        if (status == FTH_OK)
            status = write_tar(set, file, i, shards, begins, bytes);
        if (status != FTH_OK)
            goto out;
    }

out:
    free(begins);
    return status;
}
