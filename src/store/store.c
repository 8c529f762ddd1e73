/* See store.h. The kind of a URL, the checks that are the same for all kinds, and the calls of each
 * kind's functions. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_internal.h"

static const fth_store_kind *const kinds[] = {
#define ROW(name) &fth_store_kind_##name,
    FTH_STORE_KINDS(ROW)
#undef ROW
};

enum { DEFAULT_DEADLINE_S = 60, MAX_KEY_BYTES = 1024, CORRUPT_TRIES = 3, SLOWEST_BYTES_PER_S = 100000 };

/* ---- opening ---- */

/* The length of "scheme" in "scheme://..."; 0 for a path. */
static size_t scheme_length(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return length > 0 && strncmp(text + length, "://", 3) == 0 ? length : 0;
}

bool fth_store_is_url(const char *text)
{
    return scheme_length(text) > 0;
}

static const fth_store_kind *find_kind(const char *url, const char **scheme)
{
    size_t length = scheme_length(url);
    for (size_t i = 0; i < FTH_COUNT_OF(kinds); i++) {
        for (const char *const *name = kinds[i]->schemes; *name; name++) {
            if (strlen(*name) == length && strncmp(*name, url, length) == 0) {
                *scheme = *name;
                return kinds[i];
            }
        }
    }
    return NULL;
}

/* Fails with the schemes of all kinds. */
static fth_status fail_scheme(const char *url)
{
    char known[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(kinds); i++)
        for (const char *const *name = kinds[i]->schemes; *name && length < sizeof known; name++)
            if (**name)
                length += (size_t)snprintf(known + length, sizeof known - length, "%s://, ", *name);
    return fth_fail(FTH_INVALID, "unknown kind of store \"%.*s://\"; known are %sand plain paths",
                    (int)scheme_length(url), url, known);
}

fth_status fth_store_open(const char *address, const fth_store_options *options, fth_store **result)
{
    fth_status status = FTH_OK;
    fth_store *store = NULL;
    const char *scheme = NULL;
    char *url = fth_address_whole(address);
    static const fth_store_options usual;

    *result = NULL;
    FTH_REQUIRE(url, FTH_NO_MEMORY, "no memory for an address");
    FTH_REQUIRE(*url, FTH_INVALID, "an empty address is no store");
    const fth_store_kind *kind = find_kind(url, &scheme);
    if (!kind)
        FTH_TRY(fail_scheme(url));
    FTH_TRY(fth_allocate(1, sizeof *store, &store));
    pthread_mutex_init(&store->mutex, NULL);
    store->kind = kind;
    options = options ? options : &usual;
    store->deadline_s = options->deadline_s > 0 ? options->deadline_s : DEFAULT_DEADLINE_S;
    FTH_TRY(kind->open(store, scheme, *scheme ? url + strlen(scheme) + 3 : url, options));
    if (!store->url)
        store->url = fth_address_public(url);
    FTH_REQUIRE(store->url, FTH_NO_MEMORY, "no memory for an address");
    *result = store;
    store = NULL;

out:
    free(url);
    fth_store_free(store);
    return status;
}

void fth_store_free(fth_store *store)
{
    if (!store)
        return;
    store->kind->free(store->state);
    for (int i = 0; i < store->idle_count; i++)
        fth_http_client_free(store->idle[i]);
    pthread_mutex_destroy(&store->mutex);
    free(store->conditions_missing);
    free(store->url);
    free(store);
}

const char *fth_store_url(const fth_store *store)
{
    return store->url;
}

const char *fth_store_folder(const fth_store *store)
{
    return store->kind->folder ? store->kind->folder(store) : NULL;
}

fth_deadline fth_store_deadline(const fth_store *store)
{
    return fth_deadline_in(store->deadline_s);
}

fth_deadline fth_store_large_deadline(const fth_store *store, uint64_t bytes, fth_deadline outer)
{
    fth_deadline deadline = fth_deadline_in(store->deadline_s + (double)bytes / SLOWEST_BYTES_PER_S);
    return deadline.at_seconds < outer.at_seconds ? deadline : outer;
}

char *fth_store_describe(const fth_store *store, const char *key)
{
    return *key == '/' ? fth_format("%s/%s", store->url, key) : fth_path_join(store->url, key);
}

/* ---- keys ---- */

/* NULL if `text` is fine, else what is wrong with it. A prefix may be empty and may end anywhere.
 * Parts "." and ".." are refused everywhere: what lies between here and a bucket may resolve them,
 * and then another object is meant. */
static const char *fault_of(const fth_store *store, const char *text, bool prefix)
{
    if (!*text)
        return prefix ? NULL : "it is empty";
    if (strlen(text) > MAX_KEY_BYTES)
        return "it is longer than 1024 bytes";
    for (const char *part = text;;) {
        size_t length = strcspn(part, "/");
        bool last = part[length] == '\0';
        if (length == 0 && store->kind->keys_are_paths && !(prefix && last))
            return part == text ? "it begins with '/'" : "it has an empty part (\"//\" or a '/' at its end)";
        bool dots = (length == 1 && part[0] == '.') || (length == 2 && part[0] == '.' && part[1] == '.');
        if (dots && !(prefix && last))
            return "it has a part \".\" or \"..\"";
        for (size_t i = 0; i < length; i++)
            if ((unsigned char)part[i] < 0x20 || part[i] == 0x7f)
                return "it has a control character";
        if (last)
            return NULL;
        part += length + 1;
    }
}

fth_status fth_store_check_key(const fth_store *store, const char *key)
{
    const char *fault = fault_of(store, key, false);
    return fault ? fth_fail(FTH_INVALID, "'%s' cannot be a key of a store: %s", key, fault) : FTH_OK;
}

fth_status fth_store_read_prefix(const fth_store *store, const char *path, size_t length, char **prefix)
{
    fth_status status = FTH_OK;
    bool folder = length == 0 || path[length - 1] == '/';
    *prefix = fth_format("%.*s%s", (int)length, path, folder ? "" : "/");
    FTH_REQUIRE(*prefix, FTH_NO_MEMORY, "no memory for an address");
    const char *fault = fault_of(store, *prefix, true);
    FTH_REQUIRE(!fault, FTH_INVALID, "'%s' cannot begin a key of a store: %s", *prefix, fault);

out:
    return status;
}

/* ---- reading ---- */

fth_status fth_store_get(fth_store *store, const char *key, size_t max_bytes, char **bytes, size_t *size_bytes,
                         fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_store_version ignored;
    *bytes = NULL;
    *size_bytes = 0;
    version = version ? version : &ignored;
    version->text[0] = '\0';
    FTH_TRY(fth_store_check_key(store, key));
    FTH_TRY(store->kind->get(store, key, max_bytes, fth_store_deadline(store), bytes, size_bytes, version));

out:
    return status;
}

fth_status fth_store_get_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                               const fth_store_version *version)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_store_check_key(store, key));
    if (size_bytes == 0)
        goto out;
    if (version && !version->text[0])
        version = NULL;
    FTH_TRY(store->kind->get_range(store, key, offset, into, size_bytes, version, fth_store_deadline(store)));

out:
    return status;
}

fth_status fth_store_get_file_watched(fth_store *store, const char *key, const char *path,
                                      const fth_store_progress *progress, char sha256[65])
{
    fth_status status = FTH_OK;
    char *name = NULL;
    FTH_TRY(fth_store_check_key(store, key));
    for (int tries = 1;; tries++) {
        if (store->kind->get_file)
            status = store->kind->get_file(store, key, path, progress, sha256);
        else
            status = fth_store_get_file_by_ranges(store, key, path, progress, sha256);
        if (status != FTH_CORRUPT)
            break;
        /* A bit was turned on the way, or the object was replaced meanwhile: once more, all of
         * it. */
        name = name ? name : fth_store_describe(store, key);
        if (tries == CORRUPT_TRIES) {
            status = fth_fail_within(status, "get %s, tried %d times", name, tries);
            break;
        }
        fth_log_warning("get %s: %s; trying again", name, fth_error_message());
    }

out:
    free(name);
    return status;
}

fth_status fth_store_get_file(fth_store *store, const char *key, const char *path, char sha256[65])
{
    return fth_store_get_file_watched(store, key, path, NULL, sha256);
}

fth_status fth_store_stat(fth_store *store, const char *key, fth_store_object *object, bool *found)
{
    fth_status status = FTH_OK;
    *object = (fth_store_object){0};
    *found = false;
    FTH_TRY(fth_store_check_key(store, key));
    FTH_TRY(store->kind->stat(store, key, fth_store_deadline(store), object, found));
    if (*found && !object->key)
        object->key = strdup(key);

out:
    return status;
}

void fth_store_object_release(fth_store_object *object)
{
    free(object->key);
    *object = (fth_store_object){0};
}

/* A list on its way to the caller: what no other call would take as a key is left out and
 * reported. */
typedef struct sieve {
    const fth_store *store;
    const char *after;
    bool (*visit)(void *context, const fth_store_object *);
    void *context;
    uint64_t left_out;
} sieve;

static bool sift(void *context, const fth_store_object *object)
{
    sieve *all = context;
    if (strcmp(object->key, all->after) <= 0)
        return true;
    if (!fault_of(all->store, object->key, false))
        return all->visit(all->context, object);
    all->left_out++;
    return true;
}

fth_status fth_store_list(fth_store *store, const char *prefix, bool (*visit)(void *context, const fth_store_object *),
                          void *context)
{
    return fth_store_list_after(store, prefix, "", visit, context);
}

bool fth_store_can_list(const fth_store *store)
{
    return store->kind->list != NULL;
}

fth_status fth_store_list_after(fth_store *store, const char *prefix, const char *after,
                                bool (*visit)(void *context, const fth_store_object *), void *context)
{
    const char *fault = fault_of(store, prefix, true);
    if (fault)
        return fth_fail(FTH_INVALID, "'%s' cannot begin a key of a store: %s", prefix, fault);
    if (!store->kind->list)
        return fth_fail(FTH_UNSUPPORTED, "%s: what is there cannot be listed; a web server has no lists", store->url);
    sieve all = {.store = store, .after = after, .visit = visit, .context = context};
    fth_status status = store->kind->list(store, prefix, after, sift, &all);
    atomic_fetch_add(&store->left_out, all.left_out);
    if (all.left_out > 0)
        fth_log_warning("%s: %" PRIu64
                        " object%s left out, whose names have a part \".\" or \"..\", a control character "
                        "or too many bytes",
                        store->url, all.left_out, all.left_out == 1 ? " is" : "s are");
    return status;
}

uint64_t fth_store_left_out(const fth_store *store)
{
    return store->left_out;
}

/* ---- writing ---- */

fth_status fth_store_check_conditions(fth_store *store)
{
    fth_status status = FTH_OK;
    char *why = NULL;
    pthread_mutex_lock(&store->mutex);
    bool known = store->conditions_known;
    pthread_mutex_unlock(&store->mutex);

    if (!known) { /* two threads may both ask the server; they hear the same */
        if (store->kind->probe_conditions)
            FTH_TRY(store->kind->probe_conditions(store, fth_store_deadline(store), &why));
        pthread_mutex_lock(&store->mutex);
        if (!store->conditions_known) {
            store->conditions_known = true;
            store->conditions_missing = why;
            why = NULL;
        }
        pthread_mutex_unlock(&store->mutex);
    }
    FTH_REQUIRE(!store->conditions_missing, FTH_UNSUPPORTED, "%s: %s", store->url, store->conditions_missing);

out:
    free(why);
    return status;
}

/* What every put begins with. */
static fth_status begin_put(fth_store *store, const char *key, const fth_store_put_options *options)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_store_check_key(store, key));
    FTH_REQUIRE(store->kind->put, FTH_UNSUPPORTED, "%s: this store is for reading alone", store->url);
    if (options->condition == FTH_STORE_ALWAYS)
        goto out;
    FTH_REQUIRE(options->condition != FTH_STORE_IF_MATCH || options->match.text[0], FTH_INVALID,
                "put %s: it shall replace a certain version, but none is given", key);
    FTH_TRY(fth_store_check_conditions(store));

out:
    return status;
}

fth_status fth_store_put(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                         const fth_store_put_options *options, bool *lost, fth_store_version *version)
{
    fth_status status = FTH_OK;
    static const fth_store_put_options usual;
    fth_store_version ignored;
    bool not_told = false;

    options = options ? options : &usual;
    version = version ? version : &ignored;
    version->text[0] = '\0';
    FTH_REQUIRE(lost || options->condition == FTH_STORE_ALWAYS, FTH_INVALID,
                "put %s: a conditional put must be told whether it lost", key);
    lost = lost ? lost : &not_told;
    *lost = false;
    FTH_TRY(begin_put(store, key, options));
    double deadline_s = options->deadline_s > 0 ? options->deadline_s : store->deadline_s;
    FTH_TRY(store->kind->put(store, key, bytes, size_bytes, options, fth_deadline_in(deadline_s), lost, version));

out:
    return status;
}

static fth_deadline deadline_of(const fth_store_put_options *options)
{
    return options->deadline_s > 0 ? fth_deadline_in(options->deadline_s) : (fth_deadline){INFINITY};
}

/* A large put has no way to say "lost" but to fail. */
static fth_status refuse_lost(const fth_store *store, const char *key, const fth_store_put_options *options)
{
    char *name = fth_store_describe(store, key);
    fth_status status =
        fth_fail(FTH_INVALID, "put %s: %s", name,
                 options->condition == FTH_STORE_IF_ABSENT ? "there is an object of that name already"
                                                           : "the object there is no longer the one to be replaced");
    free(name);
    return status;
}

static fth_status put_source(fth_store *store, const char *key, const fth_store_source *source,
                             const fth_store_put_options *options, bool *lost, fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_deadline deadline = deadline_of(options);
    const void *bytes = NULL;
    if (store->kind->put_source) {
        FTH_TRY(store->kind->put_source(store, key, source, options, deadline, lost, version));
        goto out;
    }
    if (source->size_bytes > 0)
        FTH_TRY(source->at(source->context, 0, source->size_bytes, &bytes));
    FTH_TRY(store->kind->put(store, key, bytes, source->size_bytes, options, deadline, lost, version));

out:
    return status;
}

fth_status fth_store_put_source(fth_store *store, const char *key, const fth_store_source *source,
                                const fth_store_put_options *options, fth_store_version *version)
{
    fth_status status = FTH_OK;
    static const fth_store_put_options usual;
    fth_store_version ignored;
    bool lost = false;

    options = options ? options : &usual;
    version = version ? version : &ignored;
    version->text[0] = '\0';
    FTH_TRY(begin_put(store, key, options));
    FTH_TRY(put_source(store, key, source, options, &lost, version));
    if (lost)
        status = refuse_lost(store, key, options);

out:
    return status;
}

static fth_status mapped_at(void *context, uint64_t offset, uint64_t size_bytes, const void **bytes)
{
    (void)size_bytes;
    *bytes = (const char *)context + offset;
    return FTH_OK;
}

fth_status fth_store_put_file(fth_store *store, const char *key, const char *path, const fth_store_put_options *options,
                              fth_store_version *version)
{
    fth_status status = FTH_OK;
    static const fth_store_put_options usual;
    fth_store_version ignored;
    const void *map = NULL;
    size_t size_bytes = 0;
    bool lost = false;

    options = options ? options : &usual;
    version = version ? version : &ignored;
    version->text[0] = '\0';
    FTH_TRY(begin_put(store, key, options));
    if (store->kind->put_file) {
        FTH_TRY(store->kind->put_file(store, key, path, options, deadline_of(options), &lost, version));
    } else {
        FTH_TRY(fth_file_map(path, &map, &size_bytes));
        fth_store_source source = {.context = (void *)map, .size_bytes = size_bytes, .at = mapped_at};
        FTH_TRY(put_source(store, key, &source, options, &lost, version));
    }
    if (lost)
        status = refuse_lost(store, key, options);

out:
    fth_file_unmap(map, size_bytes);
    return status;
}

fth_status fth_store_delete(fth_store *store, const char *key)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_store_check_key(store, key));
    FTH_REQUIRE(store->kind->remove, FTH_UNSUPPORTED, "%s: this store is for reading alone", store->url);
    FTH_TRY(store->kind->remove(store, key, fth_store_deadline(store)));

out:
    return status;
}

fth_status fth_store_presign(fth_store *store, const char *method, const char *key, double seconds, char **url)
{
    fth_status status = FTH_OK;
    *url = NULL;
    FTH_TRY(fth_store_check_key(store, key));
    FTH_REQUIRE(store->kind->presign, FTH_UNSUPPORTED,
                "%s: only buckets (s3://, gs://, az://) give out links to their objects", store->url);
    FTH_REQUIRE(strcmp(method, "GET") == 0 || strcmp(method, "PUT") == 0, FTH_INVALID,
                "a link is for GET or PUT, not for %s", method);
    FTH_TRY(store->kind->presign(store, method, key, seconds, url));

out:
    return status;
}
