/* See object_layout.h. The layouts:
 *
 *     class folders    train/<class>/x.jpg and val/<class>/x.jpg, or <class>/x.jpg: paths of
 *                      objects
 *     tars             the paths in all of them together. A tar's folder or name may state the
 *                      split (val/0001.tar, train-000123.tar). Classes in .cls files take
 *                      precedence.
 *     index file       as it states
 *
 * If a label states the class, the index gets a folder [split/]label for it. Classes are numbered
 * by their sorted names, so labels that are all numbers are padded to the same number of digits. */
#include "data/source/object_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/archive/entry_path.h"
#include "data/image/decode.h"
#include "data/shard/shard.h"
#include "data/source/index_file.h"

enum { SHARD_THREADS = 16, TOLD_FROM = 100, MAX_INDEX_BYTES = 1 << 30 };

static fth_status add_entry(fth_image_index *index, uint32_t folder, const char *name, fth_object_place place,
                            uint64_t size_bytes)
{
    if (place.object >> (64 - FTH_OBJECT_OFFSET_BITS) || place.offset >> FTH_OBJECT_OFFSET_BITS)
        return fth_fail(FTH_UNSUPPORTED, "more objects, or larger ones, than a data set can have");
    return fth_image_index_add(index, folder, name, (uint64_t)place.object << FTH_OBJECT_OFFSET_BITS | place.offset,
                               size_bytes);
}

static void note_skipped(fth_image_index *index, const char *path)
{
    if (fth_image_path_is_skipped(path))
        fth_skipped_files_add(&index->skipped, path);
}

/* ---- labels ---- */

/* How labels are written as class names. */
typedef struct label_style {
    bool names;    /* some label is not a number */
    size_t digits; /* digits of the largest number */
} label_style;

static void meet_label(label_style *style, const char *label)
{
    size_t zeros = strspn(label, "0"), digits = strlen(label) - zeros;
    style->names = style->names || strspn(label, "0123456789") != strlen(label);
    digits = digits > 0 ? digits : 1;
    style->digits = digits > style->digits ? digits : style->digits;
}

static fth_status add_labelled(fth_image_index *index, const label_style *style, const char *split, const char *label,
                               const char *name, fth_object_place place, uint64_t size_bytes)
{
    fth_status status = FTH_OK;
    uint32_t number;
    const char *digits = label + strspn(label, "0");
    size_t length = strlen(digits);
    char *folder = style->names ? fth_format("%s%s%s", split, *split ? "/" : "", label)
                                : fth_format("%s%s%.*s%s", split, *split ? "/" : "", (int)(style->digits - length),
                                             "00000000000000000000", digits);
    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_image_index_add_folder(index, folder, strlen(folder), &number));
    if (fth_image_name_fits(name))
        FTH_TRY(add_entry(index, number, name, place, size_bytes));
    else
        note_skipped(index, name); /* by its path, without the folder of its label */

out:
    free(folder);
    return status;
}

/* ---- class folders ---- */

static fth_status add_objects(const fth_object_list *list, fth_image_index *index)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < list->count; i++) {
        uint32_t folder;
        const char *key = fth_object_list_key(list, i), *slash = strrchr(key, '/');
        if (slash && !slash[1])
            continue; /* "a/", an object that consoles create for a folder */
        FTH_TRY(fth_image_index_add_folder(index, key, slash ? (size_t)(slash - key) : 0, &folder));
        FTH_TRY(
            add_entry(index, folder, slash ? slash + 1 : key, (fth_object_place){i, 0}, list->objects[i].size_bytes));
    }

out:
    return status;
}

/* ---- tars ---- */

static bool is_tar(const char *key)
{
    size_t length = strlen(key);
    return length > 4 && strcasecmp(key + length - 4, ".tar") == 0;
}

/* The split that a part of a path is, or, for a name, begins with ("val-0001.tar"); "": none. */
static const char *find_split(const char *part, size_t length, bool name)
{
    static const char *const splits[] = {"training", "train", "validation", "valid", "val", "test"};
    for (size_t i = 0; i < FTH_COUNT_OF(splits); i++) {
        size_t wanted = strlen(splits[i]);
        if (length < wanted || (length > wanted && !name) || strncmp(part, splits[i], wanted) != 0)
            continue;
        char next = length > wanted ? part[wanted] : '\0';
        if (!((next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z')))
            return strncmp(splits[i], "train", 5) == 0 ? "train" : splits[i];
    }
    return "";
}

/* A tar's folder takes precedence over its name. */
static const char *split_of_tar(const char *key)
{
    const char *split = "";
    for (const char *part = key;;) {
        size_t length = strcspn(part, "/");
        bool name = part[length] == '\0';
        const char *found = find_split(part, length, name);
        if (*found && (!name || !*split))
            split = found;
        if (name)
            return split;
        part += length + 1;
    }
}

typedef struct shard_set {
    fth_store *store;
    const fth_object_list *list;
    const fth_stop *stop;
    size_t *objects; /* (count) numbers in the list */
    fth_shard *shards;
    size_t count, capacity;
    label_style style;
    bool labelled;
    fth_left_out unlabelled;
} shard_set;

static fth_status read_shard(void *context, uint64_t i)
{
    shard_set *set = context;
    size_t object = set->objects[i];
    return fth_shard_read(set->store, fth_object_list_key(set->list, object), set->list->objects[object].size_bytes,
                          fth_object_list_version(set->list, object), set->stop, &set->shards[i]);
}

static fth_status add_member(shard_set *set, size_t shard, const fth_shard_member *member, fth_entry_path *path,
                             fth_image_index *index)
{
    fth_status status = FTH_OK;
    const fth_shard *from = &set->shards[shard];
    const char *split = split_of_tar(fth_object_list_key(set->list, set->objects[shard]));
    const char *raw = from->text.text + member->path, *label = from->text.text + member->label;
    fth_object_place place = {set->objects[shard], member->offset};
    fth_path_kind kind = FTH_PATH_EMPTY;
    char *folder = NULL;
    uint32_t number;

    FTH_TRY(fth_entry_path_read(raw, path, &kind));
    if (kind != FTH_PATH_USABLE)
        goto out;
    const char *text = path->text + (path->text[0] == '/'); /* with several tars, absolute paths are like others */
    if (set->labelled && !*label) {
        if (fth_image_name_fits(path->name))
            fth_left_out_add(&set->unlabelled, raw, 1);
        else
            note_skipped(index, text);
        goto out;
    }
    if (set->labelled) {
        FTH_TRY(add_labelled(index, &set->style, split, label, text, place, member->size_bytes));
        goto out;
    }
    bool has_own = *find_split(text, strcspn(text, "/"), false) && strchr(text, '/');
    size_t length = path->name > text ? (size_t)(path->name - text) - 1 : 0;
    folder = has_own ? fth_format("%.*s", (int)length, text)
                     : fth_format("%s%s%.*s", split, *split && length > 0 ? "/" : "", (int)length, text);
    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_image_index_add_folder(index, folder, strlen(folder), &number));
    FTH_TRY(add_entry(index, number, path->name, place, member->size_bytes));

out:
    free(folder);
    return status;
}

static fth_status merge_shards(shard_set *set, fth_image_index *index)
{
    fth_status status = FTH_OK;
    fth_entry_path path = {0};
    for (size_t i = 0; i < set->count; i++) {
        set->labelled = set->labelled || set->shards[i].labelled;
        for (size_t k = 0; k < set->shards[i].count; k++)
            if (set->shards[i].text.text[set->shards[i].members[k].label])
                meet_label(&set->style, set->shards[i].text.text + set->shards[i].members[k].label);
    }
    for (size_t i = 0; i < set->count; i++) {
        for (size_t k = 0; k < set->shards[i].count; k++)
            FTH_TRY(add_member(set, i, &set->shards[i].members[k], &path, index));
        fth_shard_free(&set->shards[i]);
    }
    fth_left_out_report(&set->unlabelled, fth_store_url(set->store), "image",
                        "without a class in a .cls file beside it");

out:
    free(path.text);
    return status;
}

static fth_status add_shards(fth_store *store, const fth_object_list *list, const fth_stop *stop,
                             fth_image_index *index)
{
    fth_status status = FTH_OK;
    shard_set set = {.store = store, .list = list, .stop = stop};
    fth_left_out outside = {0};

    for (size_t i = 0; i < list->count; i++) {
        const char *key = fth_object_list_key(list, i);
        if (is_tar(key)) {
            FTH_TRY(fth_grow(&set.objects, set.count, &set.capacity, sizeof *set.objects));
            set.objects[set.count++] = i;
        } else if (fth_image_name_fits(key)) {
            fth_left_out_add(&outside, key, 1);
        } else {
            note_skipped(index, key);
        }
    }
    FTH_TRY(fth_allocate(set.count, sizeof *set.shards, &set.shards));
    if (set.count >= TOLD_FROM)
        fth_log_info("%s: looking for images in %s", fth_store_url(store), FTH_COUNTED(set.count, "tar"));
    FTH_TRY(fth_store_in_parallel(SHARD_THREADS, set.count, read_shard, &set, NULL));
    FTH_TRY(merge_shards(&set, index));
    fth_left_out_report(&outside, fth_store_url(store), "image", "beside the tars");

out:
    for (size_t i = 0; set.shards && i < set.count; i++)
        fth_shard_free(&set.shards[i]);
    free(set.shards);
    free(set.objects);
    return status;
}

/* ---- index files ---- */

typedef struct row_context {
    fth_store *store;
    const char *folder; /* of the index file: "" or "a/" */
    fth_object_list *list;
    size_t listed; /* its sorted part */
    fth_image_index *index;
    label_style style;
} row_context;

static fth_status meet_row(void *opaque, const fth_index_row *row)
{
    row_context *context = opaque;
    meet_label(&context->style, row->label);
    return FTH_OK;
}

static fth_status add_row(void *opaque, const fth_index_row *row)
{
    fth_status status = FTH_OK;
    row_context *context = opaque;
    const char *split = *row->split ? find_split(row->split, strlen(row->split), false) : "";
    fth_object_list listed = *context->list;
    char *key = fth_format("%s%s", context->folder, row->path);

    FTH_REQUIRE(key, FTH_NO_MEMORY, "no memory for a path");
    status = fth_store_check_key(context->store, key);
    if (status != FTH_OK) {
        status = fth_fail_within(status, "line %zu", row->line);
        goto out;
    }
    listed.count = context->listed;
    size_t object = fth_object_list_find(&listed, key);
    if (object == SIZE_MAX) {
        object = context->list->count;
        FTH_TRY(fth_object_list_add(context->list, key, FTH_OBJECT_SIZE_UNKNOWN, ""));
    }
    uint64_t size_bytes = context->list->objects[object].size_bytes;
    FTH_TRY(add_labelled(context->index, &context->style, split, row->label, row->path, (fth_object_place){object, 0},
                         size_bytes == FTH_OBJECT_SIZE_UNKNOWN ? 0 : size_bytes));

out:
    free(key);
    return status;
}

static fth_status add_index_file(fth_store *store, const char *key, fth_object_list *list, fth_image_index *index)
{
    fth_status status = FTH_OK;
    const char *slash = strrchr(key, '/');
    char *name = fth_path_join(fth_store_url(store), key), *text = NULL, *copy = NULL;
    char *folder = fth_format("%.*s", slash ? (int)(slash - key) + 1 : 0, key);
    row_context context = {.store = store, .folder = folder, .list = list, .listed = list->count, .index = index};
    size_t size_bytes = 0;

    FTH_REQUIRE(name && folder, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_store_get(store, key, MAX_INDEX_BYTES, &text, &size_bytes, NULL));
    FTH_REQUIRE(text, FTH_INVALID, "there is no %s", name);
    FTH_REQUIRE(copy = strdup(text), FTH_NO_MEMORY, "no memory for an index file");
    FTH_TRY(fth_index_file_read(copy, name, meet_row, &context));
    FTH_TRY(fth_index_file_read(text, name, add_row, &context));

out:
    free(name);
    free(folder);
    free(text);
    free(copy);
    return status;
}

/* ---- choosing the layout ---- */

fth_status fth_object_layout_read(fth_store *store, const char *index_key, const fth_stop *stop, fth_object_list *list,
                                  fth_image_index *index)
{
    static const char *const usual[] = {"index.csv", "index.jsonl"};
    fth_status status = FTH_OK;
    bool tars = false;

    for (size_t i = 0; i < FTH_COUNT_OF(usual) && !index_key; i++)
        if (fth_object_list_find(list, usual[i]) != SIZE_MAX)
            index_key = usual[i];
    for (size_t i = 0; i < list->count && !index_key && !tars; i++)
        tars = is_tar(fth_object_list_key(list, i));
    if (index_key)
        FTH_TRY(add_index_file(store, index_key, list, index));
    else if (tars)
        FTH_TRY(add_shards(store, list, stop, index));
    else
        FTH_TRY(add_objects(list, index));
    FTH_TRY(fth_image_index_finish(index, fth_store_url(store)));

out:
    return status;
}
