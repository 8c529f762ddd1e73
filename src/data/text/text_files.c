/* See text_files.h. */
#include "data/text/text_files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/source/object_address.h"

enum { PROBED_AT_MOST = 1000, HEAD_BYTES = 64 << 10, LONGEST_PATH = 4096, MAX_CLASSES_BYTES = 16 << 20 };
static const size_t max_table_bytes = (size_t)8 << 30;
#define CLASSES_NAME "classes.txt"

/* Names of parts; the first validation part that exists is used. */
static const char *const part_names[] = {"train", "training", "validation", "valid", "val", "dev", "test"};
enum { TRAINING_NAMES = 2, OTHER = FTH_COUNT_OF(part_names) };

/* A table in a folder. */
typedef struct candidate {
    char *key;
    fth_text_format format;
    size_t part;   /* index in part_names; OTHER: none */
    bool numbered; /* "train-00001-of-00003" */
    bool exact;    /* "train" */
} candidate;

typedef struct candidate_list {
    candidate *items;
    size_t count, capacity;
    bool images; /* there are files of image sets: image files, tars or an index */
} candidate_list;

static void release_candidates(candidate_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].key);
    free(list->items);
}

static candidate judge_name(const char *stem, size_t length)
{
    candidate judged = {.part = OTHER};
    for (size_t i = 0; i < OTHER; i++) {
        size_t wanted = strlen(part_names[i]);
        if (length < wanted || strncmp(stem, part_names[i], wanted) != 0 ||
            (length > wanted && isalpha((unsigned char)stem[wanted])))
            continue;
        judged.part = i;
        judged.exact = length == wanted;
        size_t digits = 0, others = 0;
        for (size_t k = wanted; k < length; k++) {
            digits += isdigit((unsigned char)stem[k]) != 0;
            others += isalpha((unsigned char)stem[k]) != 0;
        }
        judged.numbered = digits > 0 && (others == 0 || (others == 2 && memmem(stem, length, "-of-", 4)));
        break;
    }
    return judged;
}

/* Notes a file in the folder or in data/. */
static fth_status consider(candidate_list *list, const char *key)
{
    fth_status status = FTH_OK;
    fth_text_format format;
    size_t stem_length = 0;
    const char *slash = strrchr(key, '/'), *name = slash ? slash + 1 : key;

    const size_t length = strlen(name);
    const bool index = strcmp(key, "index.csv") == 0 || strcmp(key, "index.jsonl") == 0; /* index_file.h */
    const bool tar = length > 4 && strcasecmp(name + length - 4, ".tar") == 0;
    list->images = list->images || index || tar || fth_image_name_fits(name);
    if (index || (slash && strncmp(key, "data/", 5) != 0) || name[0] == '.' ||
        !fth_text_format_find(name, &format, &stem_length))
        return FTH_OK;
    candidate judged = judge_name(name, stem_length);
    if (judged.part == OTHER && (slash || strncasecmp(name + stem_length, ".json", 6) == 0))
        return FTH_OK; /* such as config.json */
    judged.format = format;
    FTH_TRY(fth_grow(&list->items, list->count, &list->capacity, sizeof *list->items));
    FTH_REQUIRE(judged.key = strdup(key), FTH_NO_MEMORY, "no memory for a path");
    list->items[list->count++] = judged;

out:
    return status;
}

static int compare_candidates(const void *a, const void *b)
{
    return strcmp(((const candidate *)a)->key, ((const candidate *)b)->key);
}

/* ---- listing ---- */

static fth_status list_folder(const char *folder, const char *below, candidate_list *list)
{
    fth_status status = FTH_OK;
    char *path = fth_path_join(folder, below), *key = NULL;
    DIR *stream = path ? opendir(path) : NULL;

    if (!stream && *below)
        goto out;
    FTH_REQUIRE(stream, FTH_IO, "cannot read the folder %s: %s", folder, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(stream));) {
        free(key);
        key = fth_format("%s%s", below, entry->d_name);
        FTH_REQUIRE(key, FTH_NO_MEMORY, "no memory for a path");
        FTH_TRY(consider(list, key));
    }

out:
    if (stream)
        closedir(stream);
    free(key);
    free(path);
    return status;
}

static fth_status list_local(const char *folder, candidate_list *list)
{
    fth_status status = FTH_OK;
    FTH_TRY(list_folder(folder, "", list));
    FTH_TRY(list_folder(folder, "data/", list));

out:
    return status;
}

typedef struct store_listing {
    candidate_list *list;
    size_t seen, most;
    fth_status status;
} store_listing;

static bool see_object(void *context, const fth_store_object *object)
{
    store_listing *listing = context;
    listing->status = consider(listing->list, object->key);
    return listing->status == FTH_OK && ++listing->seen < listing->most;
}

/* The first `most` names of a store. */
static fth_status list_store(fth_store *store, size_t most, candidate_list *list)
{
    store_listing listing = {.list = list, .most = most};
    fth_status status = fth_store_list(store, "", see_object, &listing);
    return listing.status != FTH_OK ? listing.status : status;
}

/* ---- choosing ---- */

static fth_status add_file(fth_text_files *files, const candidate *chosen, fth_split split)
{
    fth_status status = FTH_OK;
    const char *place = files->folder ? files->folder : fth_store_url(files->store);

    FTH_TRY(fth_grow(&files->files, files->count, &files->capacity, sizeof *files->files));
    fth_text_file *file = &files->files[files->count];
    *file = (fth_text_file){.key = strdup(chosen->key),
                            .name = fth_path_join(place, chosen->key),
                            .format = chosen->format,
                            .split = split};
    files->count++;
    FTH_REQUIRE(file->key && file->name, FTH_NO_MEMORY, "no memory for a path");

out:
    return status;
}

/* The same table in another format or compression. */
static bool is_same_table(const char *a, const char *b)
{
    fth_text_format format;
    size_t left = 0, right = 0;
    return fth_text_format_find(a, &format, &left) && fth_text_format_find(b, &format, &right) && left == right &&
           strncmp(a, b, left) == 0;
}

/* Adds the tables of the parts [first, end): the one with the bare name, or all numbered ones, or
 * the only one. */
static fth_status add_part(fth_text_files *files, const candidate_list *list, size_t first, size_t end, fth_split split)
{
    fth_status status = FTH_OK;
    const size_t before = files->count;
    const candidate *single = NULL, *rival = NULL;
    bool exact = false, numbered = false;

    for (size_t i = 0; i < list->count; i++) {
        const candidate *item = &list->items[i];
        if (item->part < first || item->part >= end)
            continue;
        exact = exact || item->exact;
        numbered = numbered || item->numbered;
    }
    for (size_t i = 0; i < list->count; i++) {
        const candidate *item = &list->items[i];
        if (item->part < first || item->part >= end || (exact && !item->exact) ||
            (!exact && numbered && !item->numbered))
            continue;
        if (files->count > before && is_same_table(files->files[files->count - 1].key, item->key))
            continue;
        if (!numbered || exact) {
            rival = single;
            single = item;
            if (rival)
                break;
        }
        FTH_TRY(add_file(files, item, split));
    }
    FTH_REQUIRE(!rival, FTH_INVALID, "%s: both %s and %s could be the %s part; give one of them as --data",
                files->folder ? files->folder : fth_store_url(files->store), rival->key, single->key,
                split == FTH_TRAIN ? "training" : "validation");

out:
    return status;
}

static fth_status choose_files(fth_text_files *files, candidate_list *list)
{
    fth_status status = FTH_OK;
    qsort(list->items, list->count, sizeof *list->items, compare_candidates);
    FTH_TRY(add_part(files, list, 0, TRAINING_NAMES, FTH_TRAIN));
    if (files->count == 0)
        FTH_TRY(add_part(files, list, OTHER, OTHER + 1, FTH_TRAIN));
    const size_t training = files->count;
    for (size_t part = TRAINING_NAMES; part < OTHER && files->count == training; part++)
        FTH_TRY(add_part(files, list, part, part + 1, FTH_VALIDATION));
    FTH_REQUIRE(training > 0, FTH_INVALID,
                "%s has no table to train with; expected train.csv, train.tsv or train.jsonl",
                files->folder ? files->folder : fth_store_url(files->store));

out:
    return status;
}

bool fth_text_folder_probe(const char *folder)
{
    candidate_list list = {0};
    bool fits = list_local(folder, &list) == FTH_OK && list.count > 0;
    release_candidates(&list);
    return fits;
}

/* ---- addresses ---- */

/* True if a table's first bytes look like an index of image files (index_file.h). */
static bool looks_like_index(const char *bytes, size_t size_bytes, const char *name, fth_text_format format)
{
    fth_text_table *table = NULL;
    const fth_table_row *row = NULL;
    bool index = false;
    if (fth_text_table_open(bytes, size_bytes, name, format, &table) != FTH_OK)
        return false;
    row = fth_text_table_columns(table);
    if (!row && fth_text_table_next(table, &row) != FTH_OK)
        row = NULL;
    for (int i = 0; row && i < row->count; i++) {
        const fth_table_field *field = &row->fields[i];
        char *text = field->size_bytes < LONGEST_PATH ? strndup(field->text, field->size_bytes) : NULL;
        index = index || fth_table_field_is(field, "path") || (text && fth_image_name_fits(text));
        free(text);
    }
    fth_text_table_free(table);
    return index;
}

static fth_status read_head(const char *address, const fth_dataset_options *options, char **head, size_t *size_bytes)
{
    fth_status status = FTH_OK;
    fth_store *store = NULL;
    fth_store_object object = {0};
    char *folder = NULL, *key = NULL;
    bool found = false;

    FTH_TRY(fth_address_split(address, &folder, &key));
    FTH_TRY(fth_store_open(folder, options->store, &store));
    FTH_TRY(fth_store_stat(store, key, &object, &found));
    FTH_REQUIRE(found, FTH_INVALID, "there is no %s", address);
    *size_bytes = object.size_bytes < HEAD_BYTES ? (size_t)object.size_bytes : HEAD_BYTES;
    FTH_TRY(fth_allocate(*size_bytes + 1, 1, head));
    if (*size_bytes > 0)
        FTH_TRY(fth_store_get_range(store, key, 0, *head, *size_bytes, NULL));

out:
    fth_store_object_release(&object);
    fth_store_free(store);
    fth_wipe_text(folder);
    free(key);
    return status;
}

/* True if the first objects of a store include tables, and no files of image sets. */
static fth_status probe_store(const char *address, const fth_dataset_options *options, bool *fits)
{
    fth_status status = FTH_OK;
    fth_store *store = NULL;
    candidate_list list = {0};

    FTH_TRY(fth_store_open(address, options->store, &store));
    if (fth_store_can_list(store))
        FTH_TRY(list_store(store, PROBED_AT_MOST, &list));
    *fits = list.count > 0 && !list.images;

out:
    release_candidates(&list);
    fth_store_free(store);
    return status;
}

fth_status fth_text_address_probe(const char *address, const fth_dataset_options *options, bool *fits)
{
    fth_status status = FTH_OK;
    fth_text_format format = FTH_TEXT_CSV;
    char *path = strndup(address, fth_address_path_length(address)), *head = NULL;
    const void *mapped = NULL;
    size_t size_bytes = 0, mapped_bytes = 0;

    *fits = false;
    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for an address");
    const char *ending = strrchr(path, '.');
    FTH_REQUIRE(!ending || strcmp(ending, ".parquet") != 0, FTH_UNSUPPORTED,
                "%s is Parquet, which is not read; convert it to .csv or .jsonl (docs/text.md)", address);
    const bool remote = strstr(address, "://"), named = fth_text_format_find(path, &format, NULL);
    if (!named) {
        if (remote && !fth_address_names_archive(address))
            FTH_TRY(probe_store(address, options, fits));
        goto out;
    }
    *fits = true;
    if (remote) {
        FTH_TRY(read_head(address, options, &head, &size_bytes));
        *fits = !looks_like_index(head, size_bytes, path, format);
    } else {
        FTH_TRY(fth_file_map(path, &mapped, &mapped_bytes));
        *fits = !looks_like_index(mapped, mapped_bytes < HEAD_BYTES ? mapped_bytes : HEAD_BYTES, path, format);
    }

out:
    fth_file_unmap(mapped, mapped_bytes);
    free(head);
    free(path);
    return status;
}

fth_status fth_text_files_find(const char *address, const fth_dataset_options *options, fth_text_files *files)
{
    fth_status status = FTH_OK;
    candidate_list list = {0};
    candidate single = {0};
    char *store = NULL, *path = strndup(address, fth_address_path_length(address));
    const bool remote = strstr(address, "://");

    *files = (fth_text_files){0};
    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for an address");
    const bool one = fth_text_format_find(path, &single.format, NULL) && !fth_folder_exists(path);
    if (one && remote)
        FTH_TRY(fth_address_split(address, &store, &single.key));
    if (remote) {
        FTH_TRY(fth_store_open(store ? store : address, options->store, &files->store));
    } else {
        files->folder = one ? fth_path_folder(path) : strdup(path);
        FTH_REQUIRE(files->folder, FTH_NO_MEMORY, "no memory for a path");
    }
    if (one) {
        const char *slash = strrchr(path, '/');
        if (!single.key)
            single.key = strdup(slash ? slash + 1 : path);
        FTH_REQUIRE(single.key, FTH_NO_MEMORY, "no memory for a path");
        FTH_TRY(add_file(files, &single, FTH_TRAIN));
        goto out;
    }
    FTH_TRY(remote ? list_store(files->store, SIZE_MAX, &list) : list_local(files->folder, &list));
    FTH_TRY(choose_files(files, &list));

out:
    free(single.key);
    fth_wipe_text(store);
    free(path);
    release_candidates(&list);
    return status;
}

void fth_text_files_release(fth_text_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        free(files->files[i].key);
        free(files->files[i].name);
    }
    free(files->files);
    free(files->folder);
    fth_store_free(files->store);
    *files = (fth_text_files){0};
}

/* ---- reading ---- */

static fth_status read_remote(const fth_text_files *files, const fth_text_file *file,
                              const fth_dataset_options *options, fth_blob *blob)
{
    fth_status status = FTH_OK;
    char *bytes = NULL;
    size_t size_bytes = 0;

    FTH_TRY(fth_store_get(files->store, file->key, max_table_bytes, &bytes, &size_bytes, NULL));
    FTH_REQUIRE(bytes, FTH_INVALID, "there is no %s", file->name);
    if (fth_is_compressed((const uint8_t *)bytes, size_bytes)) {
        FTH_TRY(fth_decompress((const uint8_t *)bytes, size_bytes, max_table_bytes, file->name, options->stop, blob));
    } else {
        *blob = (fth_blob){.bytes = (const uint8_t *)bytes, .size_bytes = size_bytes};
        bytes = NULL;
    }

out:
    free(bytes);
    return status;
}

fth_status fth_text_file_read(const fth_text_files *files, const fth_text_file *file,
                              const fth_dataset_options *options, fth_blob *blob)
{
    fth_status status = FTH_OK;
    fth_load load = {.max_bytes = max_table_bytes};

    *blob = (fth_blob){0};
    FTH_TRY(fth_check_stop(options->stop, file->name));
    if (files->store)
        return read_remote(files, file, options, blob);
    FTH_REQUIRE(load.path = strdup(file->name), FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_loads_run(&load, 1, options));
    *blob = load.blob;
    load.blob = (fth_blob){0};

out:
    fth_loads_free(&load, 1);
    return status;
}

fth_status fth_text_files_read_classes(const fth_text_files *files, char **text)
{
    size_t size_bytes = 0;
    fth_status status;
    *text = NULL;
    if (files->store) {
        status = fth_store_get(files->store, CLASSES_NAME, MAX_CLASSES_BYTES, text, &size_bytes, NULL);
        /* A signed link is for one object: the web server refuses all others, whether they exist or
         * not. */
        return status == FTH_INVALID && !fth_store_can_list(files->store) ? FTH_OK : status;
    }
    char *path = fth_path_join(files->folder, CLASSES_NAME);
    status = fth_file_exists(path) ? fth_file_read_all(path, MAX_CLASSES_BYTES, text, &size_bytes) : FTH_OK;
    free(path);
    return status;
}
