/* See shard_write.h.
 *
 * A shard is assembled in an unnamed temporary file and uploaded from there. If there is a manifest
 * already, only shards that differ from it are uploaded, which requires `replace`; missing or
 * truncated shards are uploaded again. Before a shard is replaced, the manifest that names the old
 * one is deleted. */
#include "data/shard/shard_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/archive/image_tar.h"
#include "data/array/formats.h"
#include "data/image/image_set.h"

enum { MAX_PATH_BYTES = 1024 };

/* ---- assigning samples to shards ---- */

/* (samples) sample numbers: part k has those from begins[k] to begins[k + 1]. */
typedef struct shard_deal {
    int64_t *samples, *begins;
} shard_deal;

static fth_status read_labels(const fth_dataset *dataset, int32_t **labels)
{
    const int64_t count = dataset->info.count[FTH_TRAIN];
    fth_status status = fth_allocate((size_t)count, sizeof **labels, labels);
    for (int64_t i = 0; status == FTH_OK && i < count; i++)
        (*labels)[i] = dataset->kind->label(dataset, FTH_TRAIN, i);
    return status;
}

/* The first sample of each class if all were sorted by class: (classes + 1). */
static fth_status count_classes(const fth_dataset *dataset, const int32_t *labels, int64_t **first_of_class)
{
    const int classes = dataset->info.classes;
    fth_status status = fth_allocate((size_t)classes + 1, sizeof **first_of_class, first_of_class);
    if (status != FTH_OK)
        return status;
    for (int64_t i = 0; i < dataset->info.count[FTH_TRAIN]; i++)
        (*first_of_class)[labels[i] + 1]++;
    for (int i = 0; i < classes; i++)
        (*first_of_class)[i + 1] += (*first_of_class)[i];
    return FTH_OK;
}

/* Samples are visited in a random order, and those of a class are dealt to the parts in turn; each
 * class begins where the previous one stopped. So parts differ by at most one sample, in every
 * class and in all. */
static fth_status deal_samples(const fth_dataset *dataset, const fth_shard_write_options *options, shard_deal *deal)
{
    fth_status status = FTH_OK;
    const int64_t count = dataset->info.count[FTH_TRAIN];
    const fth_sampler order = {.seed = options->seed, .count = count, .shuffle = true};
    int32_t *labels = NULL;
    int64_t *next = NULL, *filled = NULL;

    FTH_REQUIRE(options->parts <= count, FTH_INVALID, "%s has %s, too few for %s", dataset->info.name,
                FTH_COUNTED(count, "training sample"), FTH_COUNTED(options->parts, "part"));
    FTH_TRY(read_labels(dataset, &labels));
    FTH_TRY(count_classes(dataset, labels, &next));
    for (int i = 0; dataset->raw.files && i < dataset->info.classes; i++)
        FTH_REQUIRE(next[i + 1] - next[i] >= options->parts, FTH_INVALID,
                    "the class '%s' has %s, too few for %s: every shard needs every class",
                    dataset->info.class_names[i], FTH_COUNTED(next[i + 1] - next[i], "image"),
                    FTH_COUNTED(options->parts, "part"));
    FTH_TRY(fth_allocate((size_t)count, sizeof *deal->samples, &deal->samples));
    FTH_TRY(fth_allocate((size_t)options->parts + 1, sizeof *deal->begins, &deal->begins));
    FTH_TRY(fth_allocate((size_t)options->parts, sizeof *filled, &filled));
    for (int k = 0; k < options->parts; k++)
        deal->begins[k + 1] = deal->begins[k] + count / options->parts + (k < count % options->parts);
    for (int64_t i = 0; i < count; i++) {
        int64_t sample = fth_sampler_index(&order, 0, i);
        int part = (int)(next[labels[sample]]++ % options->parts);
        deal->samples[deal->begins[part] + filled[part]++] = sample;
    }

out:
    free(labels);
    free(next);
    free(filled);
    return status;
}

/* ---- the bytes of a shard ---- */

/* An unnamed temporary file. */
typedef struct shard_spool {
    int descriptor;
    const uint8_t *bytes;
    size_t size_bytes;
} shard_spool;

static fth_status open_spool(shard_spool *spool)
{
    const char *folder = getenv("TMPDIR");
    folder = folder && *folder ? folder : "/tmp";
    *spool = (shard_spool){.descriptor = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
    if (spool->descriptor < 0) { /* not all file systems support O_TMPFILE */
        char *path = fth_format("%s/farthing-shard-XXXXXX", folder);
        spool->descriptor = path ? mkostemp(path, O_CLOEXEC) : -1;
        if (spool->descriptor >= 0)
            unlink(path);
        free(path);
    }
    return spool->descriptor >= 0 ? FTH_OK : fth_fail(FTH_IO, "create a file in %s: %s", folder, strerror(errno));
}

static void close_spool(shard_spool *spool)
{
    if (spool->bytes)
        munmap((void *)spool->bytes, spool->size_bytes);
    if (spool->descriptor >= 0)
        close(spool->descriptor);
    *spool = (shard_spool){.descriptor = -1};
}

static fth_status write_spool(void *context, const void *bytes, size_t size_bytes)
{
    shard_spool *spool = context;
    for (size_t done = 0; done < size_bytes;) {
        ssize_t written = write(spool->descriptor, (const char *)bytes + done, size_bytes - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return fth_fail(FTH_IO, "write a shard to a temporary file: %s", strerror(errno));
        done += (size_t)written;
        spool->size_bytes += (size_t)written;
    }
    return FTH_OK;
}

static fth_status map_spool(shard_spool *spool)
{
    void *bytes = mmap(NULL, spool->size_bytes, PROT_READ, MAP_SHARED, spool->descriptor, 0);
    if (bytes == MAP_FAILED)
        return fth_fail(FTH_IO, "map a shard: %s", strerror(errno));
    spool->bytes = bytes;
    return FTH_OK;
}

static fth_status spool_at(void *context, uint64_t offset, uint64_t size_bytes, const void **bytes)
{
    const shard_spool *spool = context;
    (void)size_bytes;
    *bytes = spool->bytes + offset;
    return FTH_OK;
}

/* ---- formats ---- */

/* Adds the files of a shard with the given samples. */
typedef struct shard_format {
    const char *name;
    bool (*fits)(const fth_dataset *dataset);
    const char *needs; /* the sets it fits, for messages */
    fth_status (*add)(const fth_dataset *dataset, const int64_t *samples, int64_t count, fth_tar_writer *writer);
} shard_format;

static bool is_in_memory(const fth_dataset *dataset)
{
    return dataset->kind->look != NULL;
}

static void put_big_endian(uint8_t *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(value >> (24 - 8 * i));
}

static bool idx_fits(const fth_dataset *dataset)
{
    return is_in_memory(dataset) && dataset->info.channels == 1 && dataset->info.classes <= FTH_IDX_CLASSES;
}

static fth_status idx_add(const fth_dataset *dataset, const int64_t *samples, int64_t count, fth_tar_writer *writer)
{
    fth_status status = FTH_OK;
    const size_t image_bytes = fth_raw_bytes(dataset);
    const size_t images_bytes = FTH_IDX_IMAGES_HEADER + (size_t)count * image_bytes;
    const size_t labels_bytes = FTH_IDX_LABELS_HEADER + (size_t)count;
    uint8_t *images = NULL, *labels = NULL;

    FTH_REQUIRE(count <= UINT32_MAX, FTH_INVALID, "too many samples for one idx file; ask for more --parts");
    FTH_TRY(fth_allocate(images_bytes, 1, &images));
    FTH_TRY(fth_allocate(labels_bytes, 1, &labels));
    put_big_endian(images, FTH_IDX_IMAGES_MAGIC);
    put_big_endian(images + 4, (uint32_t)count);
    put_big_endian(images + 8, (uint32_t)dataset->raw.height);
    put_big_endian(images + 12, (uint32_t)dataset->raw.width);
    put_big_endian(labels, FTH_IDX_LABELS_MAGIC);
    put_big_endian(labels + 4, (uint32_t)count);
    for (int64_t i = 0; i < count; i++) {
        uint8_t *place = images + FTH_IDX_IMAGES_HEADER + (size_t)i * image_bytes;
        const uint8_t *pixels;
        int32_t label;
        FTH_TRY(fth_dataset_look(dataset, FTH_TRAIN, samples[i], place, &pixels, &label));
        if (pixels != place)
            memcpy(place, pixels, image_bytes);
        labels[FTH_IDX_LABELS_HEADER + i] = (uint8_t)label;
    }
    FTH_TRY(fth_tar_writer_add(writer, "MNIST/raw/train-images-idx3-ubyte", images, images_bytes));
    FTH_TRY(fth_tar_writer_add(writer, "MNIST/raw/train-labels-idx1-ubyte", labels, labels_bytes));

out:
    free(images);
    free(labels);
    return status;
}

static bool cifar_fits(const fth_dataset *dataset)
{
    return is_in_memory(dataset) && dataset->info.channels == 3 && dataset->raw.height == FTH_CIFAR_SIDE &&
           dataset->raw.width == FTH_CIFAR_SIDE && dataset->info.classes <= FTH_MAX_CLASSES;
}

/* One name a line; free() it. */
static fth_status join_names(const fth_dataset *dataset, char **text, size_t *size_bytes)
{
    FILE *stream = open_memstream(text, size_bytes);
    for (int i = 0; stream && i < dataset->info.classes; i++)
        fprintf(stream, "%s\n", dataset->info.class_names[i]);
    return stream && fclose(stream) == 0 ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the names of classes");
}

static fth_status cifar_add(const fth_dataset *dataset, const int64_t *samples, int64_t count, fth_tar_writer *writer)
{
    fth_status status = FTH_OK;
    const size_t size_bytes = (size_t)count * FTH_CIFAR_RECORD;
    uint8_t *records = NULL;
    char *names = NULL;
    size_t names_bytes = 0;

    FTH_TRY(fth_allocate(size_bytes, 1, &records));
    for (int64_t i = 0; i < count; i++) {
        uint8_t *record = records + (size_t)i * FTH_CIFAR_RECORD;
        const uint8_t *pixels;
        int32_t label;
        FTH_TRY(fth_dataset_look(dataset, FTH_TRAIN, samples[i], record + 1, &pixels, &label));
        if (pixels != record + 1)
            memcpy(record + 1, pixels, FTH_CIFAR_RECORD - 1);
        record[0] = (uint8_t)label;
    }
    FTH_TRY(join_names(dataset, &names, &names_bytes));
    FTH_TRY(fth_tar_writer_add(writer, "cifar-10-batches-bin/" FTH_CIFAR_NAMES, names, names_bytes));
    FTH_TRY(fth_tar_writer_add(writer, "cifar-10-batches-bin/data_batch_1.bin", records, size_bytes));

out:
    free(records);
    free(names);
    return status;
}

static bool images_fit(const fth_dataset *dataset)
{
    return fth_dataset_images(dataset) != NULL;
}

/* <class>/<number in the shard>-<name>: files of the same name from different folders stay
 * apart. */
static fth_status images_add(const fth_dataset *dataset, const int64_t *samples, int64_t count, fth_tar_writer *writer)
{
    fth_status status = FTH_OK;
    const fth_image_set *set = fth_dataset_images(dataset);
    fth_image_worker *worker = NULL;
    char *found = NULL;

    FTH_TRY(fth_image_worker_create(&worker));
    for (int64_t i = 0, expected = 0; i < count; i++) {
        const size_t number = fth_image_set_find(dataset, FTH_TRAIN, samples[i]);
        const fth_image_entry *entry = &set->index.entries[number];
        const uint8_t *bytes;
        size_t size_bytes;
        char path[MAX_PATH_BYTES];
        if (i >= expected)
            expected = i + (int64_t)fth_dataset_expect(dataset, FTH_TRAIN, samples + i, (size_t)(count - i), 0);
        free(found);
        found = fth_image_index_path(&set->index, entry);
        FTH_REQUIRE(found, FTH_NO_MEMORY, "no memory for a path");
        const char *slash = strrchr(found, '/');
        int length = snprintf(path, sizeof path, "%s/%08" PRId64 "-%s",
                              set->index.class_names[set->index.folders[entry->folder].class_index], i,
                              slash ? slash + 1 : found);
        FTH_REQUIRE(length < (int)sizeof path, FTH_INVALID, "%s: the names of the class and the file are too long",
                    found);
        status = fth_image_set_read(set, number, worker, &bytes, &size_bytes);
        if (status != FTH_OK) {
            status = fth_fail_within(status, "%s: %s", set->source, found);
            goto out;
        }
        FTH_TRY(fth_tar_writer_add(writer, path, bytes, size_bytes));
    }

out:
    free(found);
    fth_image_worker_free(worker);
    return status;
}

static const shard_format formats[] = {
    {"idx", idx_fits, "grey images of up to 10 classes", idx_add},
    {"cifar", cifar_fits, "32 × 32 images in colour of up to 256 classes", cifar_add},
    {"images", images_fit, "image files", images_add},
};
const char *const fth_shard_formats[] = {"auto", "idx", "cifar", "images", NULL};

static fth_status choose_format(const fth_dataset *dataset, const char *name, const shard_format **format)
{
    const bool any = !name || !*name || strcmp(name, "auto") == 0;
    for (size_t i = 0; i < FTH_COUNT_OF(formats); i++) {
        bool named = !any && strcmp(name, formats[i].name) == 0;
        if ((any || named) && formats[i].fits(dataset)) {
            *format = &formats[i];
            return FTH_OK;
        }
        if (named)
            return fth_fail(FTH_INVALID, "%s does not fit the format %s, which is for %s", dataset->info.name, name,
                            formats[i].needs);
    }
    return fth_fail(FTH_INVALID, "%s fits no format for shards: %s; %s; %s", dataset->info.name, formats[0].needs,
                    formats[1].needs, formats[2].needs);
}

static fth_status make_shard(const fth_dataset *dataset, const shard_format *format, const int64_t *samples,
                             int64_t count, shard_spool *spool)
{
    fth_status status = FTH_OK;
    const fth_tar_output output = {.write = write_spool, .context = spool, .gzip = true};
    fth_tar_writer *writer = NULL;

    FTH_TRY(open_spool(spool));
    FTH_TRY(fth_tar_writer_create(&output, &writer));
    FTH_TRY(format->add(dataset, samples, count, writer));
    FTH_TRY(fth_tar_writer_finish(writer));
    FTH_TRY(map_spool(spool));

out:
    fth_tar_writer_free(writer);
    return status;
}

/* ---- the manifest ---- */

static fth_status describe(const fth_dataset *dataset, const fth_shard_write_options *options, const shard_deal *deal,
                           fth_shard_manifest *manifest)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = &dataset->info;

    manifest->dataset = strdup(info->name);
    FTH_REQUIRE(manifest->dataset, FTH_NO_MEMORY, "no memory for a name");
    FTH_TRY(fth_allocate((size_t)info->classes, sizeof *manifest->class_names, &manifest->class_names));
    manifest->classes = info->classes;
    for (int i = 0; i < info->classes; i++) {
        manifest->class_names[i] = strdup(info->class_names[i]);
        FTH_REQUIRE(manifest->class_names[i], FTH_NO_MEMORY, "no memory for a name");
    }
    manifest->channels = info->channels;
    manifest->height = info->height;
    manifest->width = info->width;
    manifest->normalization = info->normalization;
    manifest->samples = info->count[FTH_TRAIN];
    manifest->seed = options->seed;
    manifest->held_out = info->held_out;
    FTH_TRY(fth_allocate((size_t)options->parts, sizeof *manifest->shards, &manifest->shards));
    manifest->shard_count = (size_t)options->parts;
    for (int i = 0; i < options->parts; i++) {
        fth_listed_shard *shard = &manifest->shards[i];
        shard->samples = deal->begins[i + 1] - deal->begins[i];
        shard->name = fth_format("part-%04d.tar.gz", i + 1);
        FTH_REQUIRE(shard->name, FTH_NO_MEMORY, "no memory for a name");
    }

out:
    return status;
}

static const fth_listed_shard *find_listed(const fth_shard_manifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->shard_count; i++)
        if (strcmp(manifest->shards[i].name, name) == 0)
            return &manifest->shards[i];
    return NULL;
}

static bool is_same(const char *text, const fth_shard_manifest *old)
{
    char *old_text = NULL;
    bool same = fth_shard_manifest_format(old, &old_text) == FTH_OK && strcmp(text, old_text) == 0;
    free(old_text);
    return same;
}

/* ---- writing all shards ---- */

typedef struct shard_writing {
    const fth_dataset *dataset;
    fth_store *store;
    const fth_shard_write_options *options;
    const shard_format *format;
    shard_deal deal;
    fth_shard_manifest old; /* the manifest that is there; empty: none */
    bool has_old;           /* and it has not been deleted */
    int written;
} shard_writing;

static fth_status refuse_others(const shard_writing *writing)
{
    return fth_fail(FTH_INVALID,
                    "%s has other shards already: %s of %s; give --replace to have them removed, or another place",
                    fth_store_url(writing->store), FTH_COUNTED(writing->old.shard_count, "part"), writing->old.dataset);
}

/* Deletes the old manifest before a shard that it names is changed. */
static fth_status give_up_old(shard_writing *writing)
{
    if (!writing->has_old)
        return FTH_OK;
    if (!writing->options->replace)
        return refuse_others(writing);
    fth_status status = fth_store_delete(writing->store, FTH_SHARD_MANIFEST_NAME);
    writing->has_old = status != FTH_OK;
    return status;
}

static fth_status write_shard(shard_writing *writing, size_t number, fth_listed_shard *shard)
{
    fth_status status = FTH_OK;
    shard_spool spool = {.descriptor = -1};
    const fth_store_progress progress = fth_stop_progress(writing->options->stop);
    const fth_store_put_options how = {.content_type = "application/gzip", .progress = &progress};
    const fth_listed_shard *listed = writing->has_old ? find_listed(&writing->old, shard->name) : NULL;
    fth_store_object there = {0};
    bool found = false;

    FTH_TRY(fth_check_stop(writing->options->stop, writing->dataset->info.name));
    FTH_TRY(make_shard(writing->dataset, writing->format, writing->deal.samples + writing->deal.begins[number],
                       shard->samples, &spool));
    shard->size_bytes = spool.size_bytes;
    fth_hex_sha256(spool.bytes, spool.size_bytes, shard->sha256);
    if (listed && strcmp(listed->sha256, shard->sha256) == 0) {
        FTH_TRY(fth_store_stat(writing->store, shard->name, &there, &found));
        if (found && there.size_bytes == shard->size_bytes)
            goto out;
    } else {
        FTH_TRY(give_up_old(writing));
    }
    const fth_store_source source = {.context = &spool, .size_bytes = spool.size_bytes, .at = spool_at};
    FTH_TRY(fth_store_put_source(writing->store, shard->name, &source, &how, NULL));
    writing->written++;
    fth_log_info("uploaded %s, %s", shard->name, FTH_COUNTED(shard->samples, "sample"));

out:
    fth_store_object_release(&there);
    close_spool(&spool);
    return status;
}

/* Shards that the manifest does not name, found by their names: an interrupted replacement may have
 * left some. */
typedef struct other_shards {
    const fth_shard_manifest *manifest;
    char **names;
    size_t count, capacity;
    fth_status status;
} other_shards;

static bool meet_object(void *context, const fth_store_object *object)
{
    other_shards *others = context;
    int number = 0, length = 0;
    if (sscanf(object->key, "part-%4d.tar.gz%n", &number, &length) != 1 || object->key[length] || length == 0 ||
        find_listed(others->manifest, object->key))
        return true;
    others->status = fth_grow(&others->names, others->count, &others->capacity, sizeof *others->names);
    if (others->status == FTH_OK) {
        others->names[others->count] = strdup(object->key);
        if (others->names[others->count])
            others->count++;
        else
            others->status = fth_fail(FTH_NO_MEMORY, "no memory for a key");
    }
    return others->status == FTH_OK;
}

static fth_status remove_others(fth_store *store, const fth_shard_manifest *manifest)
{
    fth_status status = FTH_OK;
    other_shards others = {.manifest = manifest};

    FTH_TRY(fth_store_list(store, "part-", meet_object, &others));
    FTH_TRY(others.status);
    for (size_t i = 0; i < others.count; i++)
        FTH_TRY(fth_store_delete(store, others.names[i]));

out:
    for (size_t i = 0; i < others.count; i++)
        free(others.names[i]);
    free(others.names);
    return status;
}

fth_status fth_dataset_write_shards(const fth_dataset *dataset, fth_store *store,
                                    const fth_shard_write_options *options, fth_shard_manifest *manifest, int *written)
{
    fth_status status = FTH_OK;
    shard_writing writing = {.dataset = dataset, .store = store, .options = options};
    char *text = NULL;

    *manifest = (fth_shard_manifest){0};
    *written = 0;
    FTH_REQUIRE(options->parts >= 1 && options->parts <= FTH_MOST_PARTS, FTH_INVALID, "%d parts; there may be 1 to %d",
                options->parts, FTH_MOST_PARTS);
    FTH_TRY(choose_format(dataset, options->format, &writing.format));
    status = fth_shard_manifest_read(store, &writing.old, &writing.has_old);
    if (status == FTH_CORRUPT && options->replace)
        status = writing.has_old ? FTH_OK : status; /* it names nothing that could be removed */
    if (status != FTH_OK)
        goto out;
    FTH_TRY(deal_samples(dataset, options, &writing.deal));
    FTH_TRY(describe(dataset, options, &writing.deal, manifest));
    if (writing.has_old && !options->replace &&
        (writing.old.shard_count != manifest->shard_count || writing.old.samples != manifest->samples ||
         writing.old.seed != manifest->seed || strcmp(writing.old.dataset, manifest->dataset) != 0)) {
        status = refuse_others(&writing); /* before any shard is made */
        goto out;
    }
    for (size_t i = 0; i < manifest->shard_count; i++)
        FTH_TRY(write_shard(&writing, i, &manifest->shards[i]));
    FTH_TRY(fth_shard_manifest_format(manifest, &text));
    if (!writing.has_old || !is_same(text, &writing.old)) {
        FTH_TRY(give_up_old(&writing));
        FTH_TRY(fth_store_put(store, FTH_SHARD_MANIFEST_NAME, text, strlen(text),
                              &(fth_store_put_options){.content_type = "application/json"}, NULL, NULL));
    }
    if (options->replace && fth_store_can_list(store))
        FTH_TRY(remove_others(store, manifest));
    *written = writing.written;

out:
    free(text);
    free(writing.deal.samples);
    free(writing.deal.begins);
    fth_shard_manifest_release(&writing.old);
    return status;
}
