/* The index of a set of image files: the images, their classes and splits.
 *
 * Files are added with their paths, from a walk over folders or the entries of a tar. Finishing
 * derives the layout from the paths alone, so that folders and archives are treated alike:
 *
 *     [top/] train/<class>/[more/]x.jpg   with val/, valid/, validation/ or test/ beside train/
 *     [top/] <class>/[more/]x.jpg
 *
 * If all paths are absolute, as in some archives, the first slash is part of the top; absolute
 * paths among others belong to no class.
 *
 * Classes are numbered by their sorted names and files sorted by path, as in torchvision's
 * ImageFolder. A million images take about 50 MB: entries are plain numbers, and all names one
 * text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/archive/blob.h"
#include "data/image/decode.h"
#include "data/source/image_index.h"

void fth_image_index_free(fth_image_index *index)
{
    free(index->names.text);
    free(index->folders);
    free(index->entries);
    free(index->table);
    free(index->class_names);
    *index = (fth_image_index){0};
}

/* ---- files that are left out ---- */

void fth_left_out_add(fth_left_out *left_out, const char *path, int64_t count)
{
    if (left_out->count == 0)
        fth_path_shorten(path, left_out->example, sizeof left_out->example);
    left_out->count += count;
}

void fth_left_out_report(const fth_left_out *left_out, const char *source, const char *noun, const char *why)
{
    if (left_out->count > 0)
        fth_log_warning("%s: left out %s %s: %s%s", source, FTH_COUNTED(left_out->count, noun), why, left_out->example,
                        left_out->count > 1 ? ", ..." : "");
}

/* ---- names ---- */

/* Files that usually lie beside images: labels, notes, checksums, files of file managers and
 * cameras. */
static bool is_companion(const char *name)
{
    static const char *const endings[] = {".txt", ".md",   ".rst",   ".csv",  ".tsv",  ".json", ".jsonl",
                                          ".xml", ".yaml", ".yml",   ".toml", ".html", ".htm",  ".cls",
                                          ".log", ".py",   ".ipynb", ".sh",   ".md5",  ".sha1", ".sha256",
                                          ".xmp", ".aae",  ".thm",   ".ini",  ".db"};
    static const char *const names[] = {"README",  "LICENSE", "LICENCE",  "COPYING",  "NOTICE",     "AUTHORS",
                                        "CHANGES", "MD5SUMS", "SHA1SUMS", "MANIFEST", "SHA256SUMS", "Icon\r"};
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < FTH_COUNT_OF(endings); i++)
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    return false;
}

/* Hidden parts of paths: those that begin with ".", and "__MACOSX". */
static bool is_hidden(const char *path, size_t length)
{
    for (size_t begin = 0; begin < length;) {
        const char *slash = memchr(path + begin, '/', length - begin);
        size_t end = slash ? (size_t)(slash - path) : length;
        if (path[begin] == '.' || (end - begin == 8 && memcmp(path + begin, "__MACOSX", 8) == 0))
            return true;
        begin = end + 1;
    }
    return false;
}

bool fth_image_path_is_skipped(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return *name && !is_hidden(path, strlen(path)) && !fth_image_name_fits(name) && !is_companion(name);
}

/* ---- adding ---- */

static uint64_t hash_path(const char *path, size_t length)
{
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++)
        hash = fth_random_mix(hash ^ (uint8_t)path[i]);
    return hash;
}

/* The slot of a folder in the table, or the free slot for it. */
static size_t find_place(const fth_image_index *index, const char *path, size_t length)
{
    size_t place = (size_t)hash_path(path, length) & (index->table_size - 1);
    for (; index->table[place]; place = (place + 1) & (index->table_size - 1)) {
        const char *there = index->names.text + index->folders[index->table[place] - 1].path;
        if (strncmp(there, path, length) == 0 && there[length] == '\0')
            break;
    }
    return place;
}

static fth_status grow_table(fth_image_index *index)
{
    if (index->table_size > 2 * index->folder_count)
        return FTH_OK;
    size_t size = index->table_size ? 2 * index->table_size : 64;
    free(index->table);
    index->table = NULL;
    fth_status status = fth_allocate(size, sizeof *index->table, &index->table);
    if (status != FTH_OK)
        return status;
    index->table_size = size;
    for (size_t i = 0; i < index->folder_count; i++) {
        const char *path = index->names.text + index->folders[i].path;
        index->table[find_place(index, path, strlen(path))] = (uint32_t)i + 1;
    }
    return FTH_OK;
}

fth_status fth_image_index_add_folder(fth_image_index *index, const char *path, size_t length, uint32_t *folder)
{
    fth_status status = FTH_OK;
    uint32_t where = 0;

    *folder = UINT32_MAX;
    if (is_hidden(path, length))
        return FTH_OK;
    FTH_TRY(grow_table(index));
    size_t place = find_place(index, path, length);
    if (!index->table[place]) {
        FTH_REQUIRE(index->folder_count < UINT32_MAX - 1, FTH_UNSUPPORTED, "too many folders");
        FTH_TRY(fth_text_block_add(&index->names, path, length, &where));
        FTH_TRY(fth_grow(&index->folders, index->folder_count, &index->folder_capacity, sizeof *index->folders));
        index->folders[index->folder_count++] = (fth_image_folder){.path = where, .class_index = -1};
        index->table[place] = (uint32_t)index->folder_count;
    }
    *folder = index->table[place] - 1;

out:
    return status;
}

static fth_status skip_name(fth_image_index *index, uint32_t folder, const char *name)
{
    if (!fth_image_path_is_skipped(name))
        return FTH_OK;
    const char *path = index->names.text + index->folders[folder].path;
    char *whole = fth_format("%s%s%s", path, *path ? "/" : "", name);
    if (!whole)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    fth_skipped_files_add(&index->skipped, whole);
    free(whole);
    return FTH_OK;
}

fth_status fth_image_index_add(fth_image_index *index, uint32_t folder, const char *name, uint64_t place,
                               uint64_t size_bytes)
{
    fth_status status = FTH_OK;
    uint32_t where = 0;

    FTH_TRY(fth_check_stop(index->stop, name));
    if (folder == UINT32_MAX)
        return FTH_OK;
    if (!fth_image_name_fits(name)) {
        return skip_name(index, folder, name);
    }
    FTH_TRY(fth_text_block_add(&index->names, name, strlen(name), &where));
    FTH_TRY(fth_grow(&index->entries, index->count, &index->capacity, sizeof *index->entries));
    /* A file that is too large is kept, and becomes an unreadable image. */
    uint32_t size = size_bytes > FTH_MAX_IMAGE_FILE ? UINT32_MAX : (uint32_t)size_bytes;
    index->entries[index->count++] =
        (fth_image_entry){.place = place, .size_bytes = size, .name = where, .folder = folder};
    index->folders[folder].count++;

out:
    return status;
}

/* ---- the layout ---- */

static const char *folder_path(const fth_image_index *index, size_t folder)
{
    return index->names.text + index->folders[folder].path;
}

static size_t part_length(const char *path)
{
    return strcspn(path, "/");
}

static bool part_is(const char *path, const char *name)
{
    size_t length = part_length(path);
    return strlen(name) == length && memcmp(path, name, length) == 0;
}

static const char *after_part(const char *path)
{
    path += part_length(path);
    return *path ? path + 1 : path;
}

static bool is_train(const char *path)
{
    return part_is(path, "train") || part_is(path, "training");
}

/* Removes a folder around the whole set, as archives often have, while it holds only folders of
 * folders. */
static void strip_root(fth_image_index *index)
{
    for (;;) {
        const char *shared = NULL;
        size_t length = 0;
        bool deep = true;
        for (size_t i = 0; i < index->folder_count; i++) {
            if (index->folders[i].count == 0)
                continue;
            const char *path = folder_path(index, i) + index->root_length;
            if (!*path)
                return;
            if (!shared) {
                shared = path;
                length = part_length(path);
            } else if (part_length(path) != length || memcmp(path, shared, length) != 0) {
                return;
            }
            deep = deep && *after_part(path);
        }
        if (!shared || !deep)
            return;
        bool train = is_train(shared);
        index->root_length += length + 1;
        if (train)
            return;
    }
}

/* If all paths are absolute, the top ends with their first slash; otherwise absolute paths are left
 * out. */
static void place_absolute(fth_image_index *index, const char *source)
{
    fth_left_out absolute = {0};
    for (size_t i = 0; i < index->folder_count; i++)
        if (*folder_path(index, i) == '/' && index->folders[i].count > 0)
            fth_left_out_add(&absolute, folder_path(index, i), index->folders[i].count);
    if (absolute.count == (int64_t)index->count) {
        index->root_length = 1;
        return;
    }
    for (size_t i = 0; i < index->folder_count; i++)
        if (*folder_path(index, i) == '/')
            index->folders[i].count = 0;
    fth_left_out_report(&absolute, source, "image", "with an absolute path among relative ones");
}

/* The part of a path below the top; NULL for folders elsewhere. */
static const char *below_root(const fth_image_index *index, size_t folder, const char *root)
{
    const char *path = folder_path(index, folder);
    if (index->root_length == 0)
        return path;
    return strncmp(path, root, index->root_length) == 0 ? path + index->root_length : NULL;
}

typedef struct fth_class_list {
    const char **names; /* terminated by '/' or NUL */
    int64_t *counts;
    size_t count, capacity;
} fth_class_list;

static int compare_parts(const char *a, const char *b)
{
    size_t a_length = part_length(a), b_length = part_length(b);
    int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

static int compare_classes(const void *a, const void *b)
{
    return compare_parts(*(const char *const *)a, *(const char *const *)b);
}

static int32_t find_class(const fth_class_list *list, const char *name)
{
    const char **found = bsearch(&name, list->names, list->count, sizeof *list->names, compare_classes);
    return found ? (int32_t)(found - list->names) : -1;
}

/* A folder's split, and the part of its path that begins with the class. False: it belongs to no
 * class. */
static bool place_folder(const fth_image_index *index, size_t folder, const char *root, const char *validation,
                         uint8_t *split, const char **class_path)
{
    const char *path = below_root(index, folder, root);
    if (!path || !*path || *path == '/')
        return false;
    *split = FTH_TRAIN;
    if (index->has_splits) {
        if (validation && part_is(path, validation))
            *split = FTH_VALIDATION;
        else if (!is_train(path))
            return false;
        path = after_part(path);
        if (!*path)
            return false;
    }
    *class_path = path;
    return true;
}

/* A part beside train/ and the validation part, for train --test. */
static bool is_test_part(const fth_image_index *index, size_t folder, const char *root)
{
    const char *path = below_root(index, folder, root);
    return index->has_splits && path && part_is(path, "test") && *after_part(path);
}

static fth_status list_classes(const fth_image_index *index, const char *root, const char *validation,
                               fth_class_list *list)
{
    fth_status status = FTH_OK;
    uint8_t split;
    const char *name;

    for (size_t i = 0; i < index->folder_count; i++) {
        if (!place_folder(index, i, root, validation, &split, &name) || split != FTH_TRAIN)
            continue;
        FTH_TRY(fth_grow(&list->names, list->count, &list->capacity, sizeof *list->names));
        list->names[list->count++] = name;
    }
    if (list->count > 0)
        qsort(list->names, list->count, sizeof *list->names, compare_classes);
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (kept == 0 || compare_parts(list->names[kept - 1], list->names[i]) != 0)
            list->names[kept++] = list->names[i];
    list->count = kept;
    FTH_TRY(fth_allocate(kept + 1, sizeof *list->counts, &list->counts));

out:
    return status;
}

static fth_status keep_class_names(fth_image_index *index, const fth_class_list *list)
{
    size_t bytes = (list->count + 1) * sizeof(char *);
    for (size_t i = 0; i < list->count; i++)
        bytes += part_length(list->names[i]) + 1;
    fth_status status = fth_allocate(bytes, 1, &index->class_names);
    if (status != FTH_OK)
        return status;
    char *text = (char *)(index->class_names + list->count + 1);
    for (size_t i = 0; i < list->count; i++) {
        size_t length = part_length(list->names[i]);
        index->class_names[i] = memcpy(text, list->names[i], length);
        text += length + 1;
    }
    index->classes = (int)list->count;
    return FTH_OK;
}

/* ---- sorting ---- */

static int compare_entries(const void *a, const void *b, void *names)
{
    const fth_image_entry *x = a, *y = b;
    if (x->folder != y->folder)
        return x->folder < y->folder ? -1 : 1;
    int order = strcmp((char *)names + x->name, (char *)names + y->name);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

static int compare_folders(const void *a, const void *b, void *context)
{
    const fth_image_index *index = context;
    const fth_image_folder *x = &index->folders[*(const uint32_t *)a], *y = &index->folders[*(const uint32_t *)b];
    if (x->split != y->split)
        return x->split < y->split ? -1 : 1;
    if (x->class_index != y->class_index)
        return x->class_index < y->class_index ? -1 : 1;
    return strcmp(index->names.text + x->path, index->names.text + y->path);
}

/* Renumbers folders by split, class and path, drops entries without a class, and sorts the rest. */
static fth_status sort_entries(fth_image_index *index)
{
    fth_status status = FTH_OK;
    uint32_t *order = NULL, *ranks = NULL;
    fth_image_folder *folders = NULL;
    size_t kept = 0;

    FTH_TRY(fth_allocate(index->folder_count, sizeof *order, &order));
    FTH_TRY(fth_allocate(index->folder_count, sizeof *ranks, &ranks));
    FTH_TRY(fth_allocate(index->folder_count, sizeof *folders, &folders));
    for (size_t i = 0; i < index->folder_count; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, index->folder_count, sizeof *order, compare_folders, index);
    for (size_t i = 0; i < index->folder_count; i++) {
        ranks[order[i]] = (uint32_t)i;
        folders[i] = index->folders[order[i]];
    }
    free(index->folders);
    index->folders = folders;
    index->folder_capacity = index->folder_count;
    folders = NULL;
    for (size_t i = 0; i < index->count; i++) {
        fth_image_entry entry = index->entries[i];
        entry.folder = ranks[entry.folder];
        if (index->folders[entry.folder].class_index >= 0)
            index->entries[kept++] = entry;
    }
    index->count = kept;
    qsort_r(index->entries, kept, sizeof *index->entries, compare_entries, index->names.text);

out:
    free(order);
    free(ranks);
    free(folders);
    return status;
}

static void shrink(fth_image_index *index)
{
    void *smaller = realloc(index->entries, (index->count + 1) * sizeof *index->entries);
    if (smaller)
        index->entries = smaller;
    smaller = realloc(index->names.text, index->names.size);
    if (smaller)
        index->names.text = smaller;
    free(index->table);
    index->table = NULL;
    index->table_size = 0;
}

/* ---- finishing ---- */

static fth_status assign_classes(fth_image_index *index, const char *source, const char *root, const char *validation,
                                 fth_class_list *list)
{
    fth_status status = FTH_OK;
    int64_t outside = 0;

    for (size_t i = 0; i < index->folder_count; i++) {
        fth_image_folder *folder = &index->folders[i];
        const char *name;
        if (!place_folder(index, i, root, validation, &folder->split, &name)) {
            outside += is_test_part(index, i, root) ? 0 : folder->count;
            continue;
        }
        int32_t class_index = find_class(list, name);
        FTH_REQUIRE(class_index >= 0 || folder->count == 0, FTH_INVALID,
                    "%s: %s/ has the class '%.*s', which train/ does not have", source, validation,
                    (int)part_length(name), name);
        folder->class_index = class_index;
        index->counts[folder->split] += folder->count;
        if (folder->split == FTH_TRAIN)
            list->counts[class_index] += folder->count;
    }
    for (size_t i = 0; i < list->count; i++)
        FTH_REQUIRE(list->counts[i] > 0, FTH_INVALID,
                    "%s: the class folder '%.*s' holds no " FTH_IMAGE_EXTENSIONS " images: remove it or fill it",
                    source, (int)part_length(list->names[i]), list->names[i]);
    if (outside > 0)
        fth_log_warning("%s: left out %s outside the class folders", source, FTH_COUNTED(outside, "image"));

out:
    return status;
}

fth_status fth_image_index_finish(fth_image_index *index, const char *source)
{
    static const char *const validation_names[] = {"val", "valid", "validation", "test"};
    fth_status status = FTH_OK;
    fth_class_list list = {0};
    const char *root = "", *validation = NULL;
    char *skipped = NULL;
    bool has_train = false;

    if (index->skipped.count > 0)
        FTH_REQUIRE(skipped = fth_skipped_files_describe(&index->skipped), FTH_NO_MEMORY, "no memory for a message");
    FTH_REQUIRE(index->count > 0, FTH_INVALID,
                "%s holds no images: " FTH_IMAGE_EXTENSIONS
                " files are looked for in train/<class>/ and val/<class>/, or in "
                "<class>/%s%s",
                source, skipped ? "; " : "", skipped ? skipped : "");
    if (skipped)
        fth_log_warning("%s: %s; images among them can be used once they are " FTH_IMAGE_NAMES, source, skipped);
    fth_left_out_report(&index->too_deep, source, "folder", "nested too deeply (do links lead in a circle?)");
    place_absolute(index, source);
    strip_root(index);
    for (size_t i = 0; i < index->folder_count; i++)
        if (index->folders[i].count > 0 && index->root_length > 0)
            root = folder_path(index, i); /* all have the same top */
    for (size_t i = 0; i < index->folder_count; i++) {
        const char *path = below_root(index, i, root);
        has_train = has_train || (path && is_train(path) && *after_part(path) && index->folders[i].count > 0);
    }
    index->has_splits = has_train;
    for (size_t k = 0; has_train && !validation && k < FTH_COUNT_OF(validation_names); k++)
        for (size_t i = 0; i < index->folder_count; i++) {
            const char *path = below_root(index, i, root);
            if (path && part_is(path, validation_names[k]) && *after_part(path) && index->folders[i].count > 0)
                validation = validation_names[k];
        }
    FTH_TRY(list_classes(index, root, validation, &list));
    FTH_REQUIRE(list.count > 0, FTH_INVALID, "%s holds %s but no class folders: give each class a folder of its own",
                source, FTH_COUNTED(index->count, "image"));
    FTH_REQUIRE(list.count <= INT32_MAX / 2, FTH_UNSUPPORTED, "%s: too many classes", source);
    FTH_TRY(assign_classes(index, source, root, validation, &list));
    FTH_TRY(keep_class_names(index, &list));
    FTH_TRY(sort_entries(index));
    index->first[FTH_VALIDATION] = index->counts[FTH_TRAIN];
    shrink(index);

out:
    free(skipped);
    free(list.names);
    free(list.counts);
    return status;
}

char *fth_image_index_path(const fth_image_index *index, const fth_image_entry *entry)
{
    const char *folder = folder_path(index, entry->folder);
    return fth_format("%s%s%s", folder, *folder ? "/" : "", index->names.text + entry->name);
}
