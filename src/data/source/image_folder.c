/* Images in a folder and its subfolders. Links are followed; a limit on the depth ends loops and is
 * reported. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/source/image_source.h"

enum { MAX_DEPTH = 12 };

typedef enum entry_kind { OTHER, PLAIN_FILE, FOLDER } entry_kind;

static entry_kind kind_of(int folder, const struct dirent *item)
{
    struct stat facts;
    if (item->d_type == DT_REG)
        return PLAIN_FILE;
    if (item->d_type == DT_DIR)
        return FOLDER;
    if ((item->d_type != DT_LNK && item->d_type != DT_UNKNOWN) || fstatat(folder, item->d_name, &facts, 0) != 0)
        return OTHER;
    return S_ISREG(facts.st_mode) ? PLAIN_FILE : S_ISDIR(facts.st_mode) ? FOLDER : OTHER;
}

static DIR *open_folder(int parent, const char *name)
{
    int descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    if (!folder && descriptor >= 0)
        close(descriptor);
    return folder;
}

/* `path` is relative to the top. */
static fth_status scan(int parent, const char *name, const char *path, int depth, fth_image_index *index)
{
    fth_status status = FTH_OK;
    char *inner = NULL;
    uint32_t number;
    struct dirent *item;
    DIR *folder = open_folder(parent, name);

    FTH_REQUIRE(folder, FTH_IO, "open the folder %s: %s", *path ? path : name, strerror(errno));
    FTH_TRY(fth_image_index_add_folder(index, path, strlen(path), &number));
    while ((errno = 0, item = readdir(folder))) {
        if (item->d_name[0] == '.')
            continue;
        entry_kind kind = kind_of(dirfd(folder), item);
        if (kind == FOLDER && strcmp(item->d_name, "__MACOSX") != 0) {
            inner = *path ? fth_path_join(path, item->d_name) : fth_format("%s", item->d_name);
            FTH_REQUIRE(inner, FTH_NO_MEMORY, "no memory for a path");
            if (depth >= MAX_DEPTH)
                fth_left_out_add(&index->too_deep, inner, 1);
            else
                FTH_TRY(scan(dirfd(folder), item->d_name, inner, depth + 1, index));
            free(inner);
            inner = NULL;
        } else if (kind != FOLDER) { /* a dangling link counts as an unreadable image */
            FTH_TRY(fth_image_index_add(index, number, item->d_name, 0, 0));
        }
    }
    FTH_REQUIRE(errno == 0, FTH_IO, "read the folder %s: %s", *path ? path : name, strerror(errno));

out:
    free(inner);
    if (folder)
        closedir(folder);
    return status;
}

fth_status fth_image_folder_scan(const char *folder, fth_image_index *index)
{
    return scan(AT_FDCWD, folder, "", 0, index);
}

static bool probe(int parent, const char *name, int depth)
{
    bool found = false;
    struct dirent *item;
    DIR *folder = open_folder(parent, name);
    while (folder && !found && (item = readdir(folder))) {
        if (item->d_name[0] == '.')
            continue;
        entry_kind kind = kind_of(dirfd(folder), item);
        found = (kind == PLAIN_FILE && fth_image_name_fits(item->d_name)) ||
                (depth < MAX_DEPTH && kind == FOLDER && probe(dirfd(folder), item->d_name, depth + 1));
    }
    if (folder)
        closedir(folder);
    return found;
}

bool fth_image_folder_probe(const char *folder)
{
    return probe(AT_FDCWD, folder, 0);
}

/* ---- the source ---- */

/* A file as the set's version states it. A file that differs when it is read does not belong to
 * that version. */
typedef struct file_version {
    atomic_bool stated; /* set last, and then constant; false: the version has not been asked for */
    int64_t size_bytes;
    struct timespec changed;
} file_version;

typedef struct image_folder {
    int root;
    file_version *versions; /* of each entry */
} image_folder;

static fth_status folder_open(const char *address, const fth_dataset_options *options, fth_image_index *index,
                              void **state)
{
    fth_status status = FTH_OK;
    image_folder *folder = NULL;
    (void)options;

    FTH_TRY(fth_allocate(1, sizeof *folder, &folder));
    *state = folder;
    folder->root = open(address, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FTH_REQUIRE(folder->root >= 0, FTH_IO, "open %s: %s", address, strerror(errno));
    FTH_TRY(fth_image_folder_scan(address, index));
    FTH_TRY(fth_image_index_finish(index, address));
    FTH_TRY(fth_allocate(index->count, sizeof *folder->versions, &folder->versions));

out:
    return status;
}

static void folder_free(void *state)
{
    image_folder *folder = state;
    if (folder && folder->root >= 0)
        close(folder->root);
    if (folder)
        free(folder->versions);
    free(folder);
}

static bool has_version(const struct stat *facts, const file_version *version)
{
    return facts->st_size == version->size_bytes && facts->st_mtim.tv_sec == version->changed.tv_sec &&
           facts->st_mtim.tv_nsec == version->changed.tv_nsec;
}

static fth_status read_file(int root, const char *path, const file_version *version, fth_pixel_buffer *buffer,
                            size_t *size_bytes)
{
    fth_status status = FTH_OK;
    struct stat facts;
    int descriptor = openat(root, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* do not block on a pipe of that name */

    FTH_REQUIRE(descriptor >= 0 && fstat(descriptor, &facts) == 0, FTH_CORRUPT, "cannot be opened: %s",
                strerror(errno));
    FTH_REQUIRE(S_ISREG(facts.st_mode), FTH_CORRUPT, "not a file");
    FTH_REQUIRE(facts.st_size <= FTH_MAX_IMAGE_FILE, FTH_CORRUPT, "%lld bytes are more than an image may have",
                (long long)facts.st_size);
    FTH_TRY(fth_pixel_buffer_reserve(buffer, (size_t)facts.st_size + 1));
    size_t done = 0;
    while (done < (size_t)facts.st_size) {
        ssize_t got = read(descriptor, buffer->bytes + done, (size_t)facts.st_size - done);
        if (got < 0 && errno == EINTR)
            continue;
        FTH_REQUIRE(got >= 0, FTH_CORRUPT, "cannot be read: %s", strerror(errno));
        if (got == 0)
            break;
        done += (size_t)got;
    }
    if (atomic_load_explicit(&version->stated, memory_order_acquire)) /* after reading, to detect a change meanwhile */
        FTH_REQUIRE(fstat(descriptor, &facts) == 0 && has_version(&facts, version), FTH_CORRUPT,
                    "it was changed after the data set was opened");
    *size_bytes = done;

out:
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

static fth_status folder_read(void *state, const fth_image_index *index, size_t number, const fth_patience *patience,
                              fth_pixel_buffer *buffer, const uint8_t **bytes, size_t *size_bytes,
                              double *fetch_seconds)
{
    const image_folder *folder = state;
    (void)patience;
    (void)fetch_seconds;
    char *path = fth_image_index_path(index, &index->entries[number]);
    if (!path)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    fth_status status = read_file(folder->root, path, &folder->versions[number], buffer, size_bytes);
    free(path);
    *bytes = buffer->bytes;
    return status;
}

static void state_version(const image_folder *folder, const fth_image_index *index, size_t number)
{
    struct stat facts = {0};
    file_version *version = &folder->versions[number];
    char *path = fth_image_index_path(index, &index->entries[number]);
    if (!path || fstatat(folder->root, path, &facts, 0) != 0)
        facts = (struct stat){0}; /* unreadable: treated as empty */
    free(path);
    version->size_bytes = facts.st_size;
    version->changed = facts.st_mtim;
    atomic_store_explicit(&version->stated, true, memory_order_release);
}

/* Asking again gives the same result. */
static void folder_add_version(void *state, const fth_image_index *index, size_t number, fth_version_hash *hash)
{
    const image_folder *folder = state;
    const file_version *version = &folder->versions[number];
    if (!atomic_load_explicit(&version->stated, memory_order_acquire))
        state_version(folder, index, number);
    fth_version_add_number(hash, (uint64_t)version->size_bytes);
    fth_version_add_number(hash, (uint64_t)version->changed.tv_sec);
    fth_version_add_number(hash, (uint64_t)version->changed.tv_nsec);
}

const fth_image_source_kind fth_image_source_folder = {
    .name = "folder",
    .fits = fth_folder_exists,
    .open = folder_open,
    .free = folder_free,
    .read = folder_read,
    .add_version = folder_add_version,
};
