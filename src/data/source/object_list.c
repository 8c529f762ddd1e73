/* See object_list.h.
 *
 * A bucket lists 1,000 objects a request and does not tell whether anything has changed, so listing
 * a million objects takes minutes. A long list is kept in the cache folder. When it is used again,
 * CHECKS pages are requested: the first, the last (where most objects are added) and random ones.
 * If their keys, sizes and versions match, the list is used. A change that the check misses is
 * detected when the object is read, since only the listed version is read. Short lists are
 * requested every time.
 *
 * The file: a line "farthing-list 1 COUNT", and a line "SIZE VERSION KEY" for each object. */
#include "data/source/object_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/archive/blob.h"
#include "data/archive/remembered.h"

enum { PAGE = 1000, CHECKS = 4, KEPT_FROM = PAGE * CHECKS, TOLD_EVERY = 100000 };

void fth_object_list_free(fth_object_list *list)
{
    free(list->text.text);
    free(list->objects);
    *list = (fth_object_list){0};
}

fth_status fth_object_list_add(fth_object_list *list, const char *key, uint64_t size_bytes, const char *version)
{
    fth_status status = FTH_OK;
    fth_listed_object object = {.size_bytes = size_bytes};
    FTH_TRY(fth_text_block_add(&list->text, key, strlen(key), &object.key));
    FTH_TRY(fth_text_block_add(&list->text, version, strlen(version), &object.version));
    FTH_TRY(fth_grow(&list->objects, list->count, &list->capacity, sizeof *list->objects));
    list->objects[list->count++] = object;

out:
    return status;
}

size_t fth_object_list_find(const fth_object_list *list, const char *key)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(fth_object_list_key(list, middle), key);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}

/* ---- the cached list ---- */

static fth_status write_list(const fth_object_list *list, const char *path)
{
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *stream = open_memstream(&text, &size_bytes);
    if (!stream)
        return fth_fail(FTH_NO_MEMORY, "no memory for a list");
    fprintf(stream, "farthing-list 1 %zu\n", list->count);
    for (size_t i = 0; i < list->count; i++)
        fprintf(stream, "%" PRIu64 " %s %s\n", list->objects[i].size_bytes, fth_object_list_version(list, i),
                fth_object_list_key(list, i));
    fth_status status = fclose(stream) == 0 ? fth_remembered_write(path, text, size_bytes)
                                            : fth_fail(FTH_NO_MEMORY, "no memory for a list");
    free(text);
    return status;
}

/* False unless the file is intact and well formed. */
static bool read_list(const char *path, fth_object_list *list)
{
    char *text = fth_remembered_read(path);
    size_t count = 0;
    bool good = text && sscanf(text, "farthing-list 1 %zu\n", &count) == 1 && count >= KEPT_FROM && strchr(text, '\n');
    char *line = good ? strchr(text, '\n') + 1 : NULL;
    while (good && *line) {
        char *end = strchr(line, '\n'), *version = NULL;
        uint64_t size = strtoull(line, &version, 10);
        char *key = *version == ' ' ? strchr(version + 1, ' ') : NULL;
        good = end && key && key < end;
        if (!good)
            break;
        *end = *key = '\0';
        good = fth_object_list_add(list, key + 1, size, version + 1) == FTH_OK;
        line = end + 1;
    }
    free(text);
    good = good && list->count == count;
    if (!good)
        fth_object_list_free(list);
    return good;
}

/* ---- checking it ---- */

typedef struct list_check {
    const fth_object_list *list;
    const fth_stop *stop;
    size_t at, end; /* expected objects */
    bool differs;
} list_check;

static bool compare_object(void *context, const fth_store_object *object)
{
    list_check *check = context;
    const fth_object_list *list = check->list;
    check->differs = check->at >= list->count || strcmp(fth_object_list_key(list, check->at), object->key) != 0 ||
                     list->objects[check->at].size_bytes != object->size_bytes ||
                     strcmp(fth_object_list_version(list, check->at), object->version.text) != 0;
    check->at++;
    return !check->differs && check->at < check->end && !(check->stop && check->stop->asked);
}

/* Compares up to a page of objects from `begin` on; after the last there must be none. */
static fth_status check_page(fth_store *store, const fth_object_list *list, size_t begin, const fth_stop *stop,
                             bool *holds)
{
    bool last = begin + PAGE > list->count;
    list_check check = {.list = list, .stop = stop, .at = begin, .end = last ? SIZE_MAX : begin + PAGE};
    const char *after = begin > 0 ? fth_object_list_key(list, begin - 1) : "";
    fth_status status = fth_store_list_after(store, "", after, compare_object, &check);
    *holds = status == FTH_OK && !check.differs && check.at == (last ? list->count : check.end);
    return status;
}

static fth_status check_list(fth_store *store, const fth_object_list *list, const fth_stop *stop, bool *holds)
{
    fth_status status = FTH_OK;
    fth_random_key key = {(uint64_t)time(NULL)}; /* other pages each time */
    *holds = true;
    for (int i = 0; i < CHECKS && *holds; i++) {
        size_t begin = i == 0   ? 0
                       : i == 1 ? list->count - PAGE / 2
                                : (size_t)fth_random_below(key, (uint64_t)i, list->count - PAGE);
        FTH_TRY(check_page(store, list, begin, stop, holds));
        FTH_TRY(fth_check_stop(stop, fth_store_url(store)));
    }

out:
    return status;
}

/* ---- listing ---- */

typedef struct list_progress {
    fth_object_list *list;
    const fth_store *store;
    const fth_stop *stop;
    fth_status status;
} list_progress;

static bool take_object(void *context, const fth_store_object *object)
{
    list_progress *progress = context;
    progress->status = fth_object_list_add(progress->list, object->key, object->size_bytes, object->version.text);
    if (progress->status == FTH_OK)
        progress->status = fth_check_stop(progress->stop, fth_store_url(progress->store));
    if (progress->list->count % TOLD_EVERY == 0)
        fth_log_info("listing %s: %zu objects so far", fth_store_url(progress->store), progress->list->count);
    return progress->status == FTH_OK;
}

/* A version that contains a space (a date, from a server without etags) could not be read back. */
static bool can_be_kept(const fth_object_list *list)
{
    if (list->count < KEPT_FROM)
        return false;
    for (size_t i = 0; i < list->count; i++)
        if (strchr(fth_object_list_version(list, i), ' '))
            return false;
    return true;
}

fth_status fth_object_list_fetch(fth_store *store, const fth_stop *stop, fth_object_list *list)
{
    fth_status status = FTH_OK;
    char *path = NULL;
    bool holds = false;
    list_progress progress = {.list = list, .store = store, .stop = stop};

    FTH_TRY(fth_remembered_path("lists", fth_store_url(store), &path));
    if (read_list(path, list)) {
        FTH_TRY(check_list(store, list, stop, &holds));
        if (holds)
            goto out;
        fth_log_info("%s has changed since it was listed: listing it again", fth_store_url(store));
        fth_object_list_free(list);
    }
    status = fth_store_list(store, "", take_object, &progress);
    status = progress.status != FTH_OK ? progress.status : status;
    if (status == FTH_OK && can_be_kept(list) && write_list(list, path) != FTH_OK)
        fth_log_warning("cannot keep the list of %s in the cache folder: %s", fth_store_url(store),
                        fth_error_message());

out:
    free(path);
    return status;
}
