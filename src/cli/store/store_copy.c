/* farthing store cp: copies between any two stores, several objects at once.
 *
 * All objects are listed first, then threads copy one object at a time. Copies between two buckets
 * go through memory if small, else through a temporary file. After the first failure or Ctrl-C, no
 * further object is started. Complete copies stay, partial ones are discarded, and the same command
 * resumes interrupted uploads. */
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"
#include "cli/store/store_cli.h"
#include "report/report.h"

enum { IN_MEMORY_BYTES = 32 << 20, PIECE_BYTES = 8 << 20, MAX_PARALLEL = 64, MESSAGE_BYTES = 1024 };

typedef struct copy_item {
    fth_place *from;
    char *from_key, *to_key;
    uint64_t size_bytes;
} copy_item;

typedef struct copy {
    const fth_copy_options *options;
    fth_place *sources, to; /* no store in `to`: standard output */
    int source_count;
    copy_item *items;
    size_t count, capacity;
    uint64_t total_bytes;
    fth_stop stop;
    _Atomic size_t next, done;
    pthread_mutex_t mutex; /* guards what follows */
    fth_status status;
    char message[MESSAGE_BYTES];
} copy;

/* ---- one object ---- */

typedef struct moving {
    copy *all;
    uint64_t told_bytes;
} moving;

static bool object_moved(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    moving *move = context;
    (void)total_bytes;
    fth_bar_add((int64_t)(done_bytes - move->told_bytes));
    move->told_bytes = done_bytes;
    return !move->all->stop.asked;
}

/* Counts a completely transferred object in the bar. */
static void object_done(moving *move, uint64_t size_bytes)
{
    fth_bar_add((int64_t)(size_bytes - move->told_bytes));
    move->told_bytes = 0;
}

static fth_status make_folder_for(const char *path)
{
    char *folder = fth_path_folder(path);
    fth_status status = fth_folder_create(folder);
    free(folder);
    return status;
}

/* Between two buckets: through a file where it is large. */
static fth_status copy_through_file(copy *all, const copy_item *item, moving *move, const fth_store_put_options *how)
{
    fth_status status = FTH_OK;
    const char *folder = getenv("TMPDIR");
    char *path = fth_format("%s/farthing-copy-XXXXXX", folder && *folder ? folder : "/tmp");
    int descriptor = mkstemp(path);
    FTH_REQUIRE(descriptor >= 0, FTH_IO, "cannot make a temporary file in %s; TMPDIR can name another folder",
                folder && *folder ? folder : "/tmp");
    FTH_TRY(fth_store_get_file_watched(item->from->store, item->from_key, path, how->progress, NULL));
    object_done(move, item->size_bytes);
    FTH_TRY(fth_store_put_file(all->to.store, item->to_key, path, how, NULL));

out:
    if (descriptor >= 0) {
        close(descriptor);
        unlink(path);
    }
    free(path);
    return status;
}

static fth_status copy_through_memory(copy *all, const copy_item *item, moving *move)
{
    fth_status status = FTH_OK;
    char *bytes = NULL;
    size_t size_bytes = 0;
    FTH_TRY(fth_store_get(item->from->store, item->from_key, IN_MEMORY_BYTES, &bytes, &size_bytes, NULL));
    FTH_REQUIRE(bytes, FTH_INVALID, "%s has been deleted meanwhile", item->from_key);
    object_done(move, item->size_bytes);
    FTH_TRY(fth_store_put(all->to.store, item->to_key, bytes, size_bytes, NULL, NULL, NULL));

out:
    free(bytes);
    return status;
}

/* The destination of a local copy, if it is standard output, a device, a pipe or a link
 * (base/output.h); else NULL. With -r such destinations, which the user did not name, are replaced
 * like files. free() it. */
static char *find_output(const copy *all, const copy_item *item)
{
    struct stat facts;
    if (!all->to.store)
        return fth_format("-");
    char *path = all->to.root && !all->options->recursive ? fth_path_join(all->to.root, item->to_key) : NULL;
    if (path && lstat(path, &facts) == 0 && !S_ISREG(facts.st_mode))
        return path;
    free(path);
    return NULL;
}

static fth_status copy_to_output(copy *all, const copy_item *item, const char *output, moving *move, char sha256[65])
{
    fth_status status = FTH_OK;
    fth_file *file = NULL;
    void *bytes = NULL;
    fth_store_object object = {0};
    bool found = false;
    FTH_TRY(fth_allocate_aligned(PIECE_BYTES, &bytes));
    FTH_TRY(fth_file_create_output(output, &file));
    FTH_TRY(fth_store_stat(item->from->store, item->from_key, &object, &found));
    FTH_REQUIRE(found, FTH_INVALID, "%s has been deleted meanwhile", item->from_key);
    for (uint64_t at = 0; at < object.size_bytes; at += PIECE_BYTES) {
        size_t part = object.size_bytes - at < PIECE_BYTES ? (size_t)(object.size_bytes - at) : PIECE_BYTES;
        FTH_REQUIRE(!all->stop.asked, FTH_INTERRUPTED, "copying %s was cancelled", item->from_key);
        FTH_TRY(fth_store_get_range(item->from->store, item->from_key, at, bytes, part, &object.version));
        FTH_TRY(fth_file_write(file, bytes, part));
        object_moved(move, at + part, object.size_bytes);
    }
    FTH_TRY(fth_file_publish(file));
    fth_file_sha256(file, sha256);

out:
    fth_file_free(file);
    fth_store_object_release(&object);
    free(bytes);
    return status;
}

/* Between buckets every byte moves twice. */
static int moves_of(const copy *all, const copy_item *item)
{
    return item->from->root || all->to.root || !all->to.store ? 1 : 2;
}

static fth_status hash_object(fth_store *store, const char *key, char sha256[65])
{
    fth_status status = FTH_OK;
    fth_store_object object = {0};
    bool found = false;
    void *bytes = NULL;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    FTH_REQUIRE(hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL), FTH_NO_MEMORY, "no memory for a checksum");
    FTH_TRY(fth_allocate_aligned(PIECE_BYTES, &bytes));
    FTH_TRY(fth_store_stat(store, key, &object, &found));
    FTH_REQUIRE(found, FTH_CORRUPT, "%s is not there after it was copied", key);
    for (uint64_t at = 0; at < object.size_bytes; at += PIECE_BYTES) {
        size_t part = object.size_bytes - at < PIECE_BYTES ? (size_t)(object.size_bytes - at) : PIECE_BYTES;
        FTH_TRY(fth_store_get_range(store, key, at, bytes, part, &object.version));
        EVP_DigestUpdate(hash, bytes, part);
    }
    EVP_DigestFinal_ex(hash, digest, &length);
    fth_hex_encode(digest, length, sha256);

out:
    EVP_MD_CTX_free(hash);
    fth_store_object_release(&object);
    free(bytes);
    return status;
}

/* `written` is the checksum of data written to a place that cannot be read back, else "". */
static fth_status verify_item(copy *all, const copy_item *item, const char *written)
{
    fth_status status = FTH_OK;
    char before[65] = "", after[65] = "";
    FTH_TRY(hash_object(item->from->store, item->from_key, before));
    if (*written)
        snprintf(after, sizeof after, "%s", written);
    else
        FTH_TRY(hash_object(all->to.store, item->to_key, after));
    FTH_REQUIRE(strcmp(before, after) == 0, FTH_CORRUPT, "%s differs from its copy: SHA-256 %s became %s",
                item->from_key, before, after);

out:
    return status;
}

static fth_status copy_object(copy *all, const copy_item *item)
{
    fth_status status = FTH_OK;
    char *path = NULL, *output = find_output(all, item), written[65] = "";
    moving move = {.all = all};
    fth_store_progress progress = {.context = &move, .moved = object_moved};
    fth_store_put_options how = {.progress = &progress};
    if (output) {
        FTH_TRY(copy_to_output(all, item, output, &move, written));
    } else if (item->from->root) {
        path = fth_path_join(item->from->root, item->from_key);
        FTH_TRY(fth_store_put_file(all->to.store, item->to_key, path, &how, NULL));
    } else if (all->to.root) {
        path = fth_path_join(all->to.root, item->to_key);
        FTH_TRY(make_folder_for(path));
        FTH_TRY(fth_store_get_file_watched(item->from->store, item->from_key, path, &progress, NULL));
    } else if (item->size_bytes <= IN_MEMORY_BYTES) {
        FTH_TRY(copy_through_memory(all, item, &move));
    } else {
        FTH_TRY(copy_through_file(all, item, &move, &how));
    }
    object_done(&move, item->size_bytes);
    if (all->options->verify)
        FTH_TRY(verify_item(all, item, written));

out:
    free(output);
    free(path);
    return status;
}

static void *copy_objects(void *context)
{
    copy *all = context;
    for (;;) {
        size_t i = atomic_fetch_add(&all->next, 1);
        if (i >= all->count || all->stop.asked)
            return NULL;
        fth_status status = copy_object(all, &all->items[i]);
        if (status == FTH_OK) {
            atomic_fetch_add(&all->done, 1);
            continue;
        }
        pthread_mutex_lock(&all->mutex);
        if (all->status == FTH_OK) {
            all->status = status;
            snprintf(all->message, sizeof all->message, "%s", fth_error_message());
        }
        pthread_mutex_unlock(&all->mutex);
        atomic_store(&all->next, all->count);
        return NULL;
    }
}

/* ---- what is to be copied ---- */

static fth_status add_item(copy *all, fth_place *from, const char *from_key, const char *to_key, uint64_t size_bytes)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_grow(&all->items, all->count, &all->capacity, sizeof *all->items));
    copy_item *item = &all->items[all->count++];
    *item = (copy_item){.from = from, .from_key = strdup(from_key), .to_key = strdup(to_key), .size_bytes = size_bytes};
    FTH_REQUIRE(item->from_key && item->to_key, FTH_NO_MEMORY, "no memory for a key");
    if (all->to.store)
        FTH_TRY(fth_store_check_key(all->to.store, to_key));
    all->total_bytes += size_bytes * (uint64_t)moves_of(all, item);

out:
    return status;
}

typedef struct gathering {
    copy *all;
    fth_place *from;
    fth_status status;
} gathering;

/* A key of the destination. In folders "a//b" becomes a/b, which is the same there. */
static char *make_key(const fth_place *to, const char *rest)
{
    char *key = fth_format("%s%s", to->prefix, rest), *end = key;
    if (!key || !to->root)
        return key;
    for (const char *from = key; *from; from++)
        if (*from != '/' || (end > key && end[-1] != '/'))
            *end++ = *from;
    *end = '\0';
    return key;
}

static bool gather(void *context, const fth_store_object *object)
{
    gathering *gather = context;
    copy *all = gather->all;
    const char *name = object->key + strlen(gather->from->prefix);
    bool marker = object->size_bytes == 0 && name[0] && name[strlen(name) - 1] == '/';
    if (!*name || (marker && all->to.root))
        return true; /* some tools make such objects for folders */
    char *to_key = make_key(&all->to, name);
    gather->status = to_key ? add_item(all, gather->from, object->key, to_key, object->size_bytes)
                            : fth_fail(FTH_NO_MEMORY, "no memory for a key");
    free(to_key);
    return gather->status == FTH_OK && !all->stop.asked;
}

static fth_status gather_below(copy *all, fth_place *from)
{
    fth_status status = FTH_OK;
    size_t before = all->count;
    gathering work = {.all = all, .from = from};
    FTH_TRY(fth_store_list(from->store, from->prefix, gather, &work));
    FTH_TRY(work.status);
    if (all->count == before) {
        char *name = fth_place_describe(from);
        status = fth_fail(FTH_INVALID, "there is nothing below %s", name);
        free(name);
    }

out:
    return status;
}

/* One object: to the destination itself, or into it under the object's own name. */
static fth_status gather_one(copy *all, fth_place *from)
{
    fth_status status = FTH_OK;
    fth_store_object object = {0};
    bool found = false;
    char *to_key = NULL, *name = fth_place_describe(from);
    FTH_REQUIRE(*from->key && !from->folder, FTH_INVALID, "%s is not a single object; copy everything below it with -r",
                name);
    FTH_TRY(fth_store_stat(from->store, from->key, &object, &found));
    FTH_REQUIRE(found, FTH_INVALID, "there is no object %s", name);
    const char *slash = strrchr(from->key, '/'), *base = slash ? slash + 1 : from->key;
    to_key = all->to.folder || all->source_count > 1 ? make_key(&all->to, base) : strdup(all->to.key);
    FTH_REQUIRE(to_key, FTH_NO_MEMORY, "no memory for a key");
    FTH_TRY(add_item(all, from, from->key, to_key, object.size_bytes));

out:
    fth_store_object_release(&object);
    free(to_key);
    free(name);
    return status;
}

static int compare_targets(const void *a, const void *b)
{
    return strcmp((*(const copy_item *const *)a)->to_key, (*(const copy_item *const *)b)->to_key);
}

/* Two objects that would become one are refused before any is copied. */
static fth_status check_targets(const copy *all)
{
    fth_status status = FTH_OK;
    const copy_item **items = NULL;
    FTH_TRY(fth_allocate(all->count + 1, sizeof *items, &items));
    for (size_t i = 0; i < all->count; i++)
        items[i] = &all->items[i];
    qsort(items, all->count, sizeof *items, compare_targets);
    for (size_t i = 1; i < all->count; i++)
        FTH_REQUIRE(strcmp(items[i - 1]->to_key, items[i]->to_key) != 0, FTH_INVALID,
                    "'%s' and '%s' would both become '%s'; copy them one by one, to different names",
                    items[i - 1]->from_key, items[i]->from_key, items[i]->to_key);

out:
    free(items);
    return status;
}

/* ---- the whole ---- */

static fth_status open_places(copy *all, const char *const *addresses, int count)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_allocate((size_t)count, sizeof *all->sources, &all->sources));
    if (fth_output_is_stdout(addresses[count - 1])) {
        FTH_TRY(fth_output_prepare(addresses[count - 1]));
        FTH_REQUIRE(count == 2 && !all->options->recursive, FTH_INVALID,
                    "only one object at a time can be copied to standard output");
        all->to.key = fth_format("-");
    } else {
        FTH_TRY(fth_place_open(addresses[count - 1], &all->options->store, &all->to));
    }
    for (; all->source_count < count - 1; all->source_count++)
        FTH_TRY(fth_place_open(addresses[all->source_count], &all->options->store, &all->sources[all->source_count]));

out:
    if (status != FTH_OK && all->source_count < count - 1)
        all->source_count++; /* the half-made one is released too */
    return status;
}

static void copy_all(copy *all)
{
    pthread_t threads[MAX_PARALLEL];
    int started = 0, wanted = all->options->parallel;
    fth_bar_start(all->total_bytes);
    for (; started < wanted && (size_t)started < all->count; started++)
        if (fth_thread_start(&threads[started], "copy", copy_objects, all) != 0)
            break;
    if (started == 0)
        copy_objects(all);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    fth_bar_stop();
}

/* Entries that the listings of the sources left out. */
static uint64_t left_out(const copy *all)
{
    uint64_t count = 0;
    for (int i = 0; i < all->source_count; i++)
        count += fth_store_left_out(all->sources[i].store);
    return count;
}

static void print_summary(const copy *all, double seconds)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < all->count; i++)
        bytes += all->items[i].size_bytes;
    if (all->options->json) {
        fth_cli_print_json_new(json_pack("{s:I, s:I, s:I, s:f}", "objects", (json_int_t)all->count, "bytes",
                                         (json_int_t)bytes, "left_out", (json_int_t)left_out(all), "seconds", seconds));
        return;
    }
    char size[64], rate[64], time[64];
    fth_text_bytes((int64_t)bytes, size, sizeof size);
    fth_text_bytes((int64_t)((double)bytes / (seconds > 0 ? seconds : 1e-9)), rate, sizeof rate);
    fth_duration_format(seconds, time, sizeof time);
    printf("copied %s, %s in %s (%s/s)%s\n", FTH_COUNTED(all->count, "object"), size, time, rate,
           all->options->verify ? ", verified" : "");
}

static fth_exit_code conclude(copy *all, double seconds)
{
    if (all->stop.asked) {
        fth_log_warning("stopped: %zu of %s copied whole; the same command continues", (size_t)all->done,
                        FTH_COUNTED(all->count, "object"));
        return FTH_EXIT_INTERRUPTED;
    }
    if (all->status != FTH_OK) {
        fth_log_error("%s", all->message);
        if (all->count > 1)
            fth_log_info("%zu of %zu objects are copied whole", (size_t)all->done, all->count);
        return FTH_EXIT_FAILURE;
    }
    print_summary(all, seconds);
    if (left_out(all) > 0) {
        fth_log_error("%s skipped that cannot be copied: links to folders, broken links, special files, or names that "
                      "no object can have",
                      FTH_COUNTED(left_out(all), "entry"));
        return FTH_EXIT_FAILURE;
    }
    return FTH_EXIT_OK;
}

static void release_copy(copy *all)
{
    for (size_t i = 0; i < all->count; i++) {
        free(all->items[i].from_key);
        free(all->items[i].to_key);
    }
    for (int i = 0; i < all->source_count; i++)
        fth_place_release(&all->sources[i]);
    fth_place_release(&all->to);
    free(all->items);
    free(all->sources);
}

fth_exit_code fth_cli_copy(const fth_command *command, const char *const *addresses, int count,
                           const fth_copy_options *options)
{
    fth_status status = FTH_OK;
    fth_exit_code code = FTH_EXIT_OK;
    copy all = {.options = options, .stop = FTH_STOP_INITIALIZER, .mutex = PTHREAD_MUTEX_INITIALIZER};
    if (count < 2)
        return fth_cli_usage(command, "cp needs sources and a destination: farthing store cp FROM... TO");
    fth_signals_set_words("ending the copy; press Ctrl-C again to stop at once");
    fth_signals_watch(&all.stop); /* before a store makes threads */
    FTH_TRY(open_places(&all, addresses, count));
    FTH_REQUIRE(*all.to.key || all.to.folder, FTH_INVALID, "'%s' is not a destination", addresses[count - 1]);
    for (int i = 0; i < all.source_count; i++)
        FTH_TRY(options->recursive ? gather_below(&all, &all.sources[i]) : gather_one(&all, &all.sources[i]));
    FTH_TRY(check_targets(&all));
    double begun_s = fth_clock_seconds();
    copy_all(&all);
    code = conclude(&all, fth_clock_seconds() - begun_s);

out:
    if (status != FTH_OK)
        code = fth_cli_fail();
    fth_signals_unwatch();
    release_copy(&all);
    return code;
}
