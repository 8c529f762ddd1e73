/* Images in a store, read in place: objects in class folders, members of tars, or entries of an
 * index file.
 *
 * An entry is an object, or part of one, in the version that was listed. An object that was
 * replaced or deleted since is a bad image; a server that cannot be reached is an error, once the
 * store has given up. Announced images are fetched ahead by a pool of threads and may be kept on
 * the disk. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/archive/disk_cache.h"
#include "data/source/fetch_pool.h"
#include "data/source/image_source.h"
#include "data/source/object_address.h"
#include "data/source/object_layout.h"

/* With 32 requests of 30 ms each, a thousand images a second. */
static const fth_fetch_limits limits = {
    .threads = 32, .pieces = 1024, .bytes = 256 << 20, .run_bytes = 4 << 20, .gap_bytes = 64 << 10, .forgotten_s = 20};

typedef struct object_set {
    fth_store *store;
    fth_object_list list;
    fth_disk_cache *disk; /* NULL: none */
    fth_fetch_pool *pool;
    fth_store_switch *running; /* turning it off ends the pool's requests */
} object_set;

/* ---- addresses ---- */

static bool objects_fits(const char *address)
{
    bool web = strncmp(address, "http://", 7) == 0 || strncmp(address, "https://", 8) == 0;
    return fth_store_is_url(address) && (web ? fth_address_names_index(address) : !fth_address_names_archive(address));
}

/* Opens the store of an address; *index_key is the index file that it names, if any. */
static fth_status open_store(const char *address, const fth_dataset_options *options, object_set *set, char **index_key)
{
    fth_status status = FTH_OK;
    char *folder = NULL;
    if (fth_address_names_index(address))
        FTH_TRY(fth_address_split(address, &folder, index_key));
    FTH_TRY(fth_store_open(folder ? folder : address, options->store, &set->store));

out:
    fth_wipe_text(folder);
    return status;
}

/* ---- reading ---- */

static fth_fetch fetch_of(const object_set *set, const fth_image_index *index, size_t number)
{
    const fth_image_entry *entry = &index->entries[number];
    fth_object_place place = fth_object_place_of(entry);
    bool unknown = place.offset == 0 && set->list.objects[place.object].size_bytes == FTH_OBJECT_SIZE_UNKNOWN;
    return (fth_fetch){.entry = number,
                       .object = place.object,
                       .offset = place.offset,
                       .size_bytes = unknown || entry->size_bytes > FTH_MAX_IMAGE_FILE ? 0 : entry->size_bytes};
}

static fth_store_version version_of(const object_set *set, size_t object)
{
    fth_store_version version;
    snprintf(version.text, sizeof version.text, "%s", fth_object_list_version(&set->list, object));
    return version;
}

/* A deleted object is a bad image; one without permission is an error. */
static fth_status explain(const object_set *set, size_t object, fth_status status)
{
    fth_store_object now = {0};
    bool found = false;
    const char *key = fth_object_list_key(&set->list, object);
    if (status != FTH_INVALID)
        return status;
    char *message = fth_format("%s", fth_error_message());
    bool gone = fth_store_stat(set->store, key, &now, &found) == FTH_OK && !found;
    fth_store_object_release(&now);
    status = gone ? fth_fail(FTH_CORRUPT, "there is no %s/%s any more", fth_store_url(set->store), key)
                  : fth_fail(FTH_INVALID, "%s", message ? message : "no memory for a message");
    free(message);
    return status;
}

static fth_status get_run(void *context, size_t object, uint64_t offset, size_t size_bytes, uint8_t *into)
{
    const object_set *set = context;
    fth_store_version version = version_of(set, object);
    fth_status status =
        fth_store_get_range(set->store, fth_object_list_key(&set->list, object), offset, into, size_bytes, &version);
    return status == FTH_OK ? FTH_OK : explain(set, object, status);
}

/* Gets an object of unknown size. */
static fth_status get_whole(const object_set *set, size_t object, fth_pixel_buffer *buffer, size_t *size_bytes)
{
    fth_status status = FTH_OK;
    const char *key = fth_object_list_key(&set->list, object);
    char *bytes = NULL;
    FTH_TRY(fth_store_get(set->store, key, FTH_MAX_IMAGE_FILE, &bytes, size_bytes, NULL));
    FTH_REQUIRE(bytes, FTH_CORRUPT, "there is no %s/%s", fth_store_url(set->store), key);
    free(buffer->bytes);
    *buffer = (fth_pixel_buffer){.bytes = (uint8_t *)bytes, .capacity = *size_bytes};

out:
    return status;
}

static fth_status get(void *context, const fth_fetch *fetch, fth_pixel_buffer *buffer, size_t *size_bytes)
{
    const object_set *set = context;
    uint64_t listed = set->list.objects[fetch->object].size_bytes;
    if (listed == FTH_OBJECT_SIZE_UNKNOWN)
        return get_whole(set, fetch->object, buffer, size_bytes);
    *size_bytes = fetch->size_bytes;
    if (fetch->offset == 0 && listed > FTH_MAX_IMAGE_FILE)
        return fth_fail(FTH_CORRUPT, "%" PRIu64 " bytes are more than an image may have", listed);
    fth_status status = fth_pixel_buffer_reserve(buffer, *size_bytes + 1);
    return status == FTH_OK ? get_run(context, fetch->object, fetch->offset, *size_bytes, buffer->bytes) : status;
}

/* The key of bytes in the disk cache; NULL if their version is unknown, so that they cannot be
 * kept. free() it. */
static char *name_of(const object_set *set, const fth_fetch *fetch)
{
    const char *version = fth_object_list_version(&set->list, fetch->object);
    return set->disk && *version
               ? fth_format("%s/%s %s %" PRIu64 " %zu", fth_store_url(set->store),
                            fth_object_list_key(&set->list, fetch->object), version, fetch->offset, fetch->size_bytes)
               : NULL;
}

static bool find_kept(void *context, const fth_fetch *fetch, fth_pixel_buffer *buffer, size_t *size_bytes)
{
    const object_set *set = context;
    char *name = name_of(set, fetch);
    bool found = name && fth_disk_cache_find(set->disk, name, buffer, size_bytes);
    free(name);
    return found;
}

static void keep(void *context, const fth_fetch *fetch, const uint8_t *bytes, size_t size_bytes)
{
    const object_set *set = context;
    char *name = name_of(set, fetch);
    if (name)
        fth_disk_cache_keep(set->disk, name, bytes, size_bytes);
    free(name);
}

static void begin_thread(void *context)
{
    fth_store_switch_use(((const object_set *)context)->running);
}

static fth_status objects_read(void *state, const fth_image_index *index, size_t number, const fth_patience *patience,
                               fth_pixel_buffer *buffer, const uint8_t **bytes, size_t *size_bytes,
                               double *fetch_seconds)
{
    object_set *set = state;
    fth_fetch fetch = fetch_of(set, index, number);
    fth_status status = fth_fetch_pool_take(set->pool, &fetch, patience, buffer, size_bytes, fetch_seconds);
    *bytes = buffer->bytes;
    return status;
}

static bool explain_requests(void *context, bool *failing, char *text, size_t size)
{
    return fth_store_switch_explain(((const object_set *)context)->running, failing, text, size);
}

static bool objects_explain(void *state, char *text, size_t size)
{
    bool failing;
    return explain_requests(state, &failing, text, size);
}

static size_t objects_expect(void *state, const fth_image_index *index, const size_t *numbers, size_t count,
                             double needed_s)
{
    enum { PART = 64 };
    object_set *set = state;
    size_t done = 0;
    while (done < count) {
        fth_fetch pieces[PART];
        size_t part = count - done < PART ? count - done : PART;
        for (size_t i = 0; i < part; i++) {
            pieces[i] = fetch_of(set, index, numbers[done + i]);
            pieces[i].needed_s = needed_s;
        }
        size_t noted = fth_fetch_pool_expect(set->pool, pieces, part);
        done += noted;
        if (noted < part)
            break;
    }
    return done;
}

static void objects_add_version(void *state, const fth_image_index *index, size_t number, fth_version_hash *hash)
{
    const object_set *set = state;
    fth_object_place place = fth_object_place_of(&index->entries[number]);
    fth_version_add_text(hash, fth_object_list_key(&set->list, place.object));
    fth_version_add_text(hash, fth_object_list_version(&set->list, place.object));
    fth_version_add_number(hash, set->list.objects[place.object].size_bytes);
    fth_version_add_number(hash, place.offset);
    fth_version_add_number(hash, index->entries[number].size_bytes);
}

/* ---- opening and closing ---- */

static fth_status objects_open(const char *address, const fth_dataset_options *options, fth_image_index *index,
                               void **state)
{
    fth_status status = FTH_OK;
    object_set *set = NULL;
    char *index_key = NULL;

    FTH_TRY(fth_allocate(1, sizeof *set, &set));
    *state = set;
    FTH_TRY(open_store(address, options, set, &index_key));
    if (fth_store_can_list(set->store)) {
        FTH_TRY(fth_object_list_fetch(set->store, options->stop, &set->list));
        FTH_REQUIRE(set->list.count > 0, FTH_INVALID, "%s is empty: there is nothing below that address",
                    fth_store_url(set->store));
    }
    FTH_TRY(fth_object_layout_read(set->store, index_key, options->stop, &set->list, index));
    if (options->disk_cache_bytes > 0)
        FTH_TRY(fth_disk_cache_open(options->disk_cache_folder, options->disk_cache_bytes, &set->disk));
    FTH_TRY(fth_store_switch_create(NULL, fth_store_switch_used(), &set->running));
    const fth_fetch_source source = {.context = set,
                                     .find = find_kept,
                                     .get = get,
                                     .get_run = get_run,
                                     .keep = keep,
                                     .begin_thread = begin_thread,
                                     .explain = explain_requests};
    FTH_TRY(fth_fetch_pool_create(&source, &limits, &set->pool));

out:
    free(index_key);
    return status;
}

static void objects_free(void *state)
{
    object_set *set = state;
    if (!set)
        return;
    if (set->running)
        fth_store_switch_off(set->running);
    fth_fetch_pool_free(set->pool);
    fth_store_switch_free(set->running);
    fth_disk_cache_free(set->disk);
    fth_object_list_free(&set->list);
    fth_store_free(set->store);
    free(set);
}

const fth_image_source_kind fth_image_source_objects = {
    .name = "objects",
    .fits = objects_fits,
    .open = objects_open,
    .free = objects_free,
    .read = objects_read,
    .add_version = objects_add_version,
    .expect = objects_expect,
    .explain = objects_explain,
};
