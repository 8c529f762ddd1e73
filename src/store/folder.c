/* A folder as a store: an object is a file, a key its path below the root.
 *
 * An object is written under a temporary name beside its place, synced, and then takes its place by
 * one rename; a full disk or a crash leaves the old object. What conditional writes need:
 *
 *     if absent   a rename that replaces nothing, or a hard link where the file system has no such
 *                 rename: atomic
 *     if match    compare the version, then rename, under an exclusive flock() on the object's
 *                 folder; every other write in that folder holds the same lock shared while it
 *                 renames, so that none slips in between
 *
 * The lock is taken on the folder itself, which leaves no file behind and is the same one wherever
 * a store is rooted. NFS cannot lock folders: there a hidden file in the folder stands for it,
 * which all clients of the share see, but not processes of the file server itself. A file system
 * without locks refuses writes that need one.
 *
 * A version is made of inode, size and modification time; small objects add a checksum of their
 * content, so that two of one size, written within a tick of the file system's clock into a reused
 * inode, differ. A list, which reads nothing, gives versions without that checksum; they match any
 * version that goes on from them.
 *
 * A delete enters no folder through a link below the root (base/remove.h).
 *
 * Listing is in folder_list.c, deleting a whole folder in folder_delete.c. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/folder_internal.h"
#include "store/store_internal.h"

enum {
    HASHED_BYTES = 1 << 16, /* up to here a version holds a checksum */
    VERSION_HASH_BYTES = 8, /* of it */
    CHUNK_BYTES = 8 << 20,
    FOLDER_TRIES = 50 /* a folder may vanish between its making and its use, when its last object is deleted */
};

typedef struct folder_state {
    char *root;
    bool strict; /* no link leads to the root */
} folder_state;

static const char *root_of(const fth_store *store)
{
    return ((const folder_state *)store->state)->root;
}

static void close_object(int descriptor)
{
    if (descriptor >= 0)
        close(descriptor);
}

/* ---- opening ---- */

static fth_status folder_open(fth_store *store, const char *scheme, const char *rest, const fth_store_options *options)
{
    fth_status status = FTH_OK;
    folder_state *state = NULL;
    FTH_TRY(fth_allocate(1, sizeof *state, &state));
    state->strict = options->no_links;
    store->state = state;
    if (*scheme) {
        if (strncmp(rest, "localhost/", 10) == 0)
            rest += 9;
        FTH_REQUIRE(
            *rest == '/', FTH_INVALID,
            "file://%s names another machine; a folder of this one is written file:///path or plainly as a path", rest);
        state->root = fth_http_unescape(rest);
    } else {
        state->root = strdup(rest);
    }
    FTH_REQUIRE(state->root, FTH_NO_MEMORY, "no memory for a path");
    FTH_REQUIRE(!fth_file_exists(state->root), FTH_INVALID, "%s is a file, not a folder", state->root);

out:
    return status;
}

static void folder_free(void *opaque)
{
    folder_state *state = opaque;
    if (state)
        free(state->root);
    free(state);
}

static const char *folder_path(const fth_store *store)
{
    return root_of(store);
}

/* Opens the root (O_PATH); *folder is -1 if it is not there. */
static fth_status open_root(const fth_store *store, int *folder)
{
    const folder_state *state = store->state;
    if (state->strict) {
        char *path = NULL;
        fth_status status = fth_folder_open_strictly(state->root, &path, folder);
        free(path);
        return status;
    }
    *folder = open(state->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0 && errno != ENOENT && errno != ENOTDIR)
        return fth_fail(FTH_IO, "open %s: %s", state->root, strerror(errno));
    return FTH_OK;
}

/* ---- paths ---- */

static fth_status check_name(const char *key)
{
    const char *slash = strrchr(key, '/');
    if (!fth_folder_is_reserved(slash ? slash + 1 : key))
        return FTH_OK;
    return fth_fail(FTH_INVALID,
                    "'%s' cannot be a key in a folder: names that begin with \"" FTH_FILE_TEMPORARY
                    "\" and \"" FTH_FOLDER_LOCK "\" are for farthing's own use",
                    key);
}

/* The file of an object, and the folder that holds it (may be NULL). */
static fth_status locate(const fth_store *store, const char *key, char **path, char **folder)
{
    fth_status status = FTH_OK;
    const char *slash;
    *path = NULL;
    FTH_TRY(check_name(key));
    *path = fth_path_join(root_of(store), key);
    FTH_REQUIRE(*path, FTH_NO_MEMORY, "no memory for a path");
    if (folder) {
        slash = strrchr(*path, '/');
        *folder = slash ? strndup(*path, slash > *path ? (size_t)(slash - *path) : 1) : strdup(".");
        FTH_REQUIRE(*folder, FTH_NO_MEMORY, "no memory for a path");
    }

out:
    return status;
}

/* ---- versions and reading ---- */

static fth_status read_at(int descriptor, const char *path, uint64_t offset, void *into, size_t size_bytes)
{
    char *at = into;
    while (size_bytes > 0) {
        ssize_t got = pread(descriptor, at, size_bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fth_fail(FTH_IO, "read %s: %s", path, strerror(errno));
        if (got == 0)
            return fth_fail(FTH_CORRUPT, "read %s: it ends at byte %" PRIu64 ", %zu bytes early", path, offset,
                            size_bytes);
        at += got;
        offset += (uint64_t)got;
        size_bytes -= (size_t)got;
    }
    return FTH_OK;
}

int fth_folder_begin_version(const struct stat *facts, fth_store_version *version)
{
    return snprintf(version->text, sizeof version->text, "%" PRIx64 "-%" PRIx64 "-%" PRIx64 ".%09ld",
                    (uint64_t)facts->st_ino, (uint64_t)facts->st_size, (uint64_t)facts->st_mtim.tv_sec,
                    facts->st_mtim.tv_nsec);
}

/* The point is in the time, the last part of what a list gives: a version that has it lacks at most
 * the checksum. */
static bool matches(const fth_store_version *wanted, const fth_store_version *found)
{
    size_t length = strlen(wanted->text);
    bool listed = strchr(wanted->text, '.') && !strchr(strchr(wanted->text, '.'), '-');
    return strcmp(wanted->text, found->text) == 0 ||
           (listed && strncmp(wanted->text, found->text, length) == 0 && found->text[length] == '-');
}

static fth_status read_version(int descriptor, const char *path, const struct stat *facts, fth_store_version *version)
{
    fth_status status = FTH_OK;
    unsigned char digest[SHA256_DIGEST_LENGTH] = {0};
    void *content = NULL;
    bool hashed = facts->st_size <= HASHED_BYTES;
    if (hashed) {
        FTH_TRY(fth_allocate((size_t)facts->st_size + 1, 1, &content));
        FTH_TRY(read_at(descriptor, path, 0, content, (size_t)facts->st_size));
        SHA256(content, (size_t)facts->st_size, digest);
    }
    int length = fth_folder_begin_version(facts, version);
    if (hashed) {
        char hex[2 * VERSION_HASH_BYTES + 1];
        fth_hex_encode(digest, VERSION_HASH_BYTES, hex);
        snprintf(version->text + length, sizeof version->text - (size_t)length, "-%s", hex);
    }

out:
    free(content);
    return status;
}

/* Opens an object; absent: FTH_OK and *descriptor -1. A folder is no object. */
static fth_status open_object(const char *path, int *descriptor, struct stat *facts)
{
    do {
        *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (*descriptor < 0 && errno == EINTR);
    if (*descriptor < 0)
        return errno == ENOENT || errno == ENOTDIR ? FTH_OK : fth_fail(FTH_IO, "open %s: %s", path, strerror(errno));
    if (fstat(*descriptor, facts) != 0)
        return fth_fail(FTH_IO, "read %s: %s", path, strerror(errno));
    if (S_ISREG(facts->st_mode))
        return FTH_OK;
    close(*descriptor);
    *descriptor = -1;
    return S_ISDIR(facts->st_mode) ? FTH_OK : fth_fail(FTH_INVALID, "read %s: not a regular file", path);
}

static fth_status folder_get(fth_store *store, const char *key, size_t max_bytes, fth_deadline deadline, char **bytes,
                             size_t *size_bytes, fth_store_version *version)
{
    fth_status status = FTH_OK;
    char *path = NULL, *content = NULL;
    int descriptor = -1;
    struct stat facts;
    (void)deadline;
    FTH_TRY(locate(store, key, &path, NULL));
    FTH_TRY(open_object(path, &descriptor, &facts));
    if (descriptor < 0)
        goto out;
    FTH_REQUIRE((uintmax_t)facts.st_size <= max_bytes, FTH_INVALID, "read %s: %jd bytes, but at most %zu are accepted",
                path, (intmax_t)facts.st_size, max_bytes);
    FTH_TRY(fth_allocate((size_t)facts.st_size + 1, 1, &content));
    FTH_TRY(read_at(descriptor, path, 0, content, (size_t)facts.st_size));
    FTH_TRY(read_version(descriptor, path, &facts, version));
    *size_bytes = (size_t)facts.st_size;
    *bytes = content;
    content = NULL;

out:
    free(content);
    free(path);
    close_object(descriptor);
    return status;
}

static fth_status folder_get_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                                   const fth_store_version *version, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_store_version found = {{0}};
    char *path = NULL;
    int descriptor = -1;
    struct stat facts;
    (void)deadline;
    FTH_TRY(locate(store, key, &path, NULL));
    FTH_TRY(open_object(path, &descriptor, &facts));
    FTH_REQUIRE(descriptor >= 0, FTH_INVALID, "there is no %s", path);
    if (version) {
        FTH_TRY(read_version(descriptor, path, &facts, &found));
        FTH_REQUIRE(matches(version, &found), FTH_CORRUPT, "read %s: it has been replaced meanwhile", path);
    }
    FTH_TRY(read_at(descriptor, path, offset, into, size_bytes));

out:
    free(path);
    close_object(descriptor);
    return status;
}

static fth_status folder_stat(fth_store *store, const char *key, fth_deadline deadline, fth_store_object *object,
                              bool *found)
{
    fth_status status = FTH_OK;
    char *path = NULL;
    int descriptor = -1;
    struct stat facts;
    (void)deadline;
    FTH_TRY(locate(store, key, &path, NULL));
    FTH_TRY(open_object(path, &descriptor, &facts));
    if (descriptor < 0)
        goto out;
    FTH_TRY(read_version(descriptor, path, &facts, &object->version));
    object->size_bytes = (uint64_t)facts.st_size;
    object->modified_s = (double)facts.st_mtim.tv_sec + 1e-9 * (double)facts.st_mtim.tv_nsec;
    *found = true;

out:
    free(path);
    close_object(descriptor);
    return status;
}

static fth_status folder_get_file(fth_store *store, const char *key, const char *to, const fth_store_progress *progress,
                                  char sha256[65])
{
    fth_status status = FTH_OK;
    char *path = NULL;
    void *chunk = NULL;
    fth_file *file = NULL;
    int descriptor = -1;
    struct stat facts;
    fth_store_meter meter;
    FTH_TRY(locate(store, key, &path, NULL));
    FTH_TRY(open_object(path, &descriptor, &facts));
    FTH_REQUIRE(descriptor >= 0, FTH_INVALID, "there is no %s", path);
    FTH_TRY(fth_allocate_aligned(CHUNK_BYTES, &chunk));
    FTH_TRY(fth_file_create(to, &file));
    uint64_t size_bytes = (uint64_t)facts.st_size;
    fth_store_meter_begin(&meter, size_bytes, progress);
    for (uint64_t at = 0; at < size_bytes; at += CHUNK_BYTES) {
        size_t part = size_bytes - at < CHUNK_BYTES ? (size_t)(size_bytes - at) : CHUNK_BYTES;
        FTH_TRY(read_at(descriptor, path, at, chunk, part));
        FTH_TRY(fth_file_write(file, chunk, part));
        FTH_REQUIRE(fth_store_meter_add(&meter, (int64_t)part), FTH_INTERRUPTED, "copying %s was cancelled", path);
    }
    FTH_TRY(fth_file_publish(file));
    if (sha256)
        fth_file_sha256(file, sha256);

out:
    fth_file_free(file);
    free(chunk);
    free(path);
    close_object(descriptor);
    return status;
}

static fth_status folder_list(fth_store *store, const char *prefix, const char *after,
                              bool (*visit)(void *context, const fth_store_object *), void *context)
{
    (void)after;
    uint64_t left_out = 0;
    int root = -1;
    fth_status status = open_root(store, &root);
    if (root >= 0)
        status = fth_folder_list(root, root_of(store), prefix, visit, context, &left_out);
    atomic_fetch_add(&store->left_out, left_out);
    close_object(root);
    return status;
}

/* ---- locks ---- */

/* flock() with a deadline. 0, or an error; EWOULDBLOCK when time ran out. */
static int try_lock(int descriptor, bool exclusive, fth_deadline deadline)
{
    for (long wait_ns = 200000;; wait_ns = wait_ns < 10000000 ? 2 * wait_ns : wait_ns) {
        if (flock(descriptor, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0)
            return 0;
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK || fth_deadline_passed(deadline))
            return errno;
        nanosleep(&(struct timespec){.tv_nsec = wait_ns}, NULL);
    }
}

/* Locks `folder`, relative to the open folder `parent`. Closing *descriptor unlocks. Where nothing
 * can be locked, a shared lock is none: *descriptor is -1. */
static fth_status lock_folder(int parent, const char *folder, bool exclusive, fth_deadline deadline, int *descriptor)
{
    fth_status status = FTH_OK;
    char *name = NULL;
    int error;
    *descriptor = openat(parent, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    error = *descriptor < 0 ? errno : try_lock(*descriptor, exclusive, deadline);
    if (error == EBADF) { /* NFS: only what is open for writing can be locked exclusively */
        close(*descriptor);
        name = fth_path_join(folder, FTH_FOLDER_LOCK);
        *descriptor = name ? openat(parent, name, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
        error = *descriptor < 0 ? errno : try_lock(*descriptor, exclusive, deadline);
    }
    if (error == 0)
        goto out;
    close_object(*descriptor);
    *descriptor = -1;
    FTH_REQUIRE(error != EWOULDBLOCK, FTH_TIMEOUT, "lock %s: another process has held it all the time", folder);
    FTH_REQUIRE(!exclusive, FTH_UNSUPPORTED, "lock %s: %s; conditional writes need a file system with locks", folder,
                strerror(error));

out:
    free(name);
    return status;
}

/* ---- writing ---- */

/* Begins an object in a folder that may have to be made first, and may vanish again at once. */
static fth_status begin_object(const char *folder, const char *path, fth_file **file)
{
    fth_status status = FTH_OK;
    for (int i = 0; i < FOLDER_TRIES; i++) {
        status = fth_folder_create(folder);
        if (status == FTH_OK)
            status = fth_file_create(path, file);
        if (status != FTH_INVALID) /* which it is where something is missing */
            break;
    }
    return status;
}

static fth_status version_of_path(const char *path, fth_store_version *version)
{
    fth_status status = FTH_OK;
    int descriptor = -1;
    struct stat facts;
    version->text[0] = '\0';
    FTH_TRY(open_object(path, &descriptor, &facts));
    if (descriptor >= 0)
        FTH_TRY(read_version(descriptor, path, &facts, version));

out:
    close_object(descriptor);
    return status;
}

/* Puts a written and synced file in its place, if the condition holds. */
static fth_status place(fth_file *file, const char *path, const char *folder, const fth_store_put_options *options,
                        bool exclusive, fth_deadline deadline, bool *lost)
{
    fth_status status = FTH_OK;
    fth_store_version now;
    int lock = -1;
    FTH_TRY(lock_folder(AT_FDCWD, folder, exclusive, deadline, &lock));
    if (options->condition == FTH_STORE_IF_ABSENT && !exclusive) {
        FTH_TRY(fth_file_publish_new(file, lost));
        goto out;
    }
    if (options->condition != FTH_STORE_ALWAYS) {
        FTH_TRY(version_of_path(path, &now));
        *lost = options->condition == FTH_STORE_IF_MATCH ? !matches(&options->match, &now) : now.text[0] != '\0';
    }
    if (!*lost)
        FTH_TRY(fth_file_publish(file));

out:
    close_object(lock);
    return status;
}

static fth_status write_source(fth_file *file, const char *path, const fth_store_source *source,
                               const fth_store_put_options *options, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    fth_store_meter meter;
    fth_store_meter_begin(&meter, source->size_bytes, options->progress);
    for (uint64_t at = 0; at < source->size_bytes; at += CHUNK_BYTES) {
        uint64_t part = source->size_bytes - at < CHUNK_BYTES ? source->size_bytes - at : CHUNK_BYTES;
        const void *bytes = NULL;
        FTH_TRY(source->at(source->context, at, part, &bytes));
        FTH_TRY(fth_file_write(file, bytes, part));
        FTH_REQUIRE(fth_store_meter_add(&meter, (int64_t)part), FTH_INTERRUPTED, "writing %s was cancelled", path);
        FTH_REQUIRE(!fth_deadline_passed(deadline), FTH_TIMEOUT, "writing %s took too long", path);
    }
    FTH_TRY(fth_file_sync(file));
    /* Once more right before it is put in its place: who slept meanwhile may have lost the right to
     * write. */
    FTH_REQUIRE(fth_store_meter_add(&meter, 0), FTH_INTERRUPTED, "writing %s was cancelled", path);

out:
    return status;
}

static fth_status folder_put_source(fth_store *store, const char *key, const fth_store_source *source,
                                    const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                                    fth_store_version *version)
{
    fth_status status = FTH_OK;
    char *path = NULL, *folder = NULL;
    fth_file *file = NULL;
    FTH_TRY(locate(store, key, &path, &folder));
    FTH_TRY(begin_object(folder, path, &file));
    FTH_TRY(write_source(file, path, source, options, deadline));
    FTH_TRY(version_of_path(fth_file_temporary(file), version)); /* the rename keeps all that it is made of */
    /* Locks are waited for a bounded time, also where the whole put has none. */
    fth_deadline patience = fth_store_deadline(store);
    if (deadline.at_seconds < patience.at_seconds)
        patience = deadline;
    status = place(file, path, folder, options, options->condition == FTH_STORE_IF_MATCH, patience, lost);
    if (status == FTH_UNSUPPORTED && options->condition == FTH_STORE_IF_ABSENT)
        status = place(file, path, folder, options, true, patience, lost);
    if (status != FTH_OK || *lost)
        version->text[0] = '\0';

out:
    fth_file_free(file);
    free(folder);
    free(path);
    return status;
}

static fth_status memory_at(void *context, uint64_t offset, uint64_t size_bytes, const void **bytes)
{
    (void)size_bytes;
    *bytes = (const char *)context + offset;
    return FTH_OK;
}

static fth_status folder_put(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                             const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                             fth_store_version *version)
{
    fth_store_source source = {.context = (void *)bytes, .size_bytes = size_bytes, .at = memory_at};
    return folder_put_source(store, key, &source, options, deadline, lost, version);
}

/* Makes a deletion in an open folder durable, unless it cannot be read: writable yet unreadable is
 * rare, but legal. */
static fth_status sync_deletion(int folder, const char *where)
{
    int readable = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fth_status status = readable >= 0 ? fth_folder_sync_at(readable, where) : FTH_OK;
    close_object(readable);
    return status;
}

/* An object that is a link goes itself. Folders that held nothing else go with their last object,
 * up to the root. */
static fth_status folder_remove(fth_store *store, const char *key, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    const char *slash = strrchr(key, '/'), *name = slash ? slash + 1 : key;
    size_t above = slash ? (size_t)(slash - key) : 0;
    int root = -1, folder = -1, lock = -1;
    struct stat facts;
    FTH_TRY(check_name(key));
    FTH_TRY(open_root(store, &root));
    if (root < 0)
        goto out;
    FTH_TRY(fth_folder_enter(root, root_of(store), key, above, &folder));
    if (folder < 0)
        goto out;
    FTH_TRY(lock_folder(folder, ".", false, deadline, &lock));
    if (fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(facts.st_mode))
        goto out; /* which is no object */
    if (unlinkat(folder, name, 0) != 0) {
        FTH_REQUIRE(errno == ENOENT, FTH_IO, "delete %s/%s: %s", root_of(store), key, strerror(errno));
        goto out;
    }
    FTH_TRY(sync_deletion(folder, root_of(store))); /* what is deleted must not come back after a crash */
    fth_remove_empty_folders(root, key, above);

out:
    close_object(lock);
    close_object(folder);
    close_object(root);
    return status;
}

static const char *const schemes[] = {"file", "", NULL};

const fth_store_kind fth_store_kind_folder = {
    .name = "folder",
    .schemes = schemes,
    .keys_are_paths = true,
    .open = folder_open,
    .free = folder_free,
    .get = folder_get,
    .get_range = folder_get_range,
    .stat = folder_stat,
    .list = folder_list,
    .get_file = folder_get_file,
    .put = folder_put,
    .put_source = folder_put_source,
    .remove = folder_remove,
    .folder = folder_path,
};
