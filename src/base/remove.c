/* See remove.h. */
#include "base/remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_internal.h"
#include "base/memory.h"
#include "base/path.h"

enum { DEEPEST = 256 }; /* folders within folders: each one holds a descriptor open */

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool is_link(int parent, const char *name)
{
    struct stat facts;
    return fstatat(parent, name, &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(facts.st_mode);
}

/* ---- entering ---- */

static int open_folder(int parent, const char *name, int flags)
{
    int folder;
    do {
        folder = openat(parent, name, flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    } while (folder < 0 && errno == EINTR);
    return folder;
}

bool fth_entry_is_mount(int parent, const char *name)
{
    struct statx facts;
    return statx(parent, name, AT_SYMLINK_NOFOLLOW, 0, &facts) == 0 &&
           (facts.stx_attributes_mask & facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

bool fth_folder_is_mount(int folder, int parent)
{
    struct statx facts;
    struct stat above, below;
    if (statx(folder, "", AT_EMPTY_PATH, 0, &facts) == 0 && (facts.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT))
        return facts.stx_attributes & STATX_ATTR_MOUNT_ROOT;
    return fstat(folder, &below) == 0 && fstat(parent, &above) == 0 && above.st_dev != below.st_dev; /* before 5.8 */
}

int fth_folder_open_below(int parent, const char *name)
{
    int folder = open_folder(parent, name, O_RDONLY);
    if (folder >= 0 && fth_folder_is_mount(folder, parent)) {
        close(folder);
        folder = -1;
        errno = EXDEV;
    }
    return folder;
}

fth_status fth_folder_enter(int root, const char *where, const char *path, size_t length, int *folder)
{
    fth_status status = FTH_OK;
    const char *end = path + length;
    int at = open_folder(root, ".", O_PATH);

    *folder = -1;
    if (at < 0)
        return fth_file_fail("open", where, errno);
    for (const char *part = path; part < end;) {
        const char *slash = memchr(part, '/', (size_t)(end - part));
        size_t size = (size_t)((slash ? slash : end) - part);
        char name[NAME_MAX + 1];
        FTH_REQUIRE(size > 0 && size < sizeof name, FTH_INVALID, "'%.*s' is not a path below %s", (int)length, path,
                    where);
        memcpy(name, part, size);
        name[size] = '\0';
        FTH_REQUIRE(!is_dots(name), FTH_INVALID, "'%.*s' is no path below %s", (int)length, path, where);
        int next = open_folder(at, name, O_PATH);
        int error = next < 0 ? errno : 0;
        FTH_REQUIRE(next >= 0 || !is_link(at, name), FTH_INVALID,
                    "%s/%.*s is a symbolic link, and no link is followed to delete something; name the folder it leads "
                    "to",
                    where, (int)(part - path + (ptrdiff_t)size), path);
        close(at);
        at = next;
        if (error == ENOENT || error == ENOTDIR)
            goto out;
        if (error != 0) {
            status = fth_file_fail("open a folder below", where, error);
            goto out;
        }
        part += size + (slash != NULL);
    }
    *folder = at;
    at = -1;

out:
    if (at >= 0)
        close(at);
    return status;
}

/* ---- deleting ---- */

void fth_remove_empty_folders(int root, const char *path, size_t length)
{
    bool removed = true;
    while (removed && length > 0) {
        int parent = -1;
        const char *slash = memrchr(path, '/', length);
        const char *name = slash ? slash + 1 : path;
        size_t above = slash ? (size_t)(slash - path) : 0;
        char *last = strndup(name, (size_t)(path + length - name));
        removed = last && fth_folder_enter(root, "", path, above, &parent) == FTH_OK && parent >= 0 &&
                  unlinkat(parent, last, AT_REMOVEDIR) == 0;
        if (parent >= 0)
            close(parent);
        free(last);
        length = above;
    }
}

typedef struct removal {
    fth_remove_wanted *wanted;
    uint64_t freed_bytes;
    int error;    /* the first failure: errno, 0: none */
    char *failed; /* the path that it was for */
} removal;

static void note_failure(removal *all, const char *path, int error)
{
    if (all->error != 0)
        return;
    all->error = error;
    all->failed = fth_format("%s", path);
}

static fth_status fail_removal(const removal *all)
{
    const char *path = all->failed ? all->failed : "a file";
    if (all->error == EXDEV)
        return fth_fail(FTH_INVALID, "remove %s: something is mounted there; unmount it first", path);
    if (all->error == ELOOP)
        return fth_fail(FTH_INVALID, "remove %s: more than %d folders within each other", path, DEEPEST);
    return fth_fail(FTH_IO, "remove %s: %s", path, strerror(all->error));
}

static void remove_one(removal *all, int parent, const char *name, const char *path, int depth);

static void remove_inside(removal *all, int folder, const char *name, const char *path, int depth)
{
    struct stat facts;
    DIR *directory = fdopendir(folder);
    if (!directory) {
        note_failure(all, path, errno);
        close(folder);
        return;
    }
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        if (is_dots(entry->d_name))
            continue;
        bool known = fstatat(folder, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0;
        if (known && all->wanted && !all->wanted(name, entry->d_name, S_ISDIR(facts.st_mode)))
            continue;
        char *inside = fth_path_join(path, entry->d_name);
        if (inside)
            remove_one(all, folder, entry->d_name, inside, depth + 1);
        else
            note_failure(all, path, ENOMEM);
        free(inside);
    }
    closedir(directory);
}

static void remove_one(removal *all, int parent, const char *name, const char *path, int depth)
{
    struct stat facts;
    if (fstatat(parent, name, &facts, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT)
            note_failure(all, path, errno);
        return;
    }
    if (S_ISDIR(facts.st_mode)) {
        int folder = depth < DEEPEST ? fth_folder_open_below(parent, name) : -1;
        if (folder < 0) {
            note_failure(all, path, depth < DEEPEST ? errno : ELOOP);
            return;
        }
        remove_inside(all, folder, name, path, depth);
    }
    if (unlinkat(parent, name, S_ISDIR(facts.st_mode) ? AT_REMOVEDIR : 0) == 0)
        all->freed_bytes += (uint64_t)facts.st_blocks * 512;
    else if (errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
        note_failure(all, path, errno);
}

static fth_status conclude(removal *all)
{
    fth_status status = all->error == 0 ? FTH_OK : fail_removal(all);
    free(all->failed);
    return status;
}

fth_status fth_remove_tree_at(int parent, const char *name, const char *path, fth_remove_wanted *wanted,
                              uint64_t *freed_bytes)
{
    removal all = {.wanted = wanted};
    remove_one(&all, parent, name, path, 0);
    if (freed_bytes)
        *freed_bytes += all.freed_bytes;
    return conclude(&all);
}

fth_status fth_remove_inside(int folder, const char *path)
{
    removal all = {0};
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (again >= 0)
        remove_inside(&all, again, "", path, 0);
    else
        note_failure(&all, path, errno);
    return conclude(&all);
}

void fth_remove_tree(const char *path)
{
    removal all = {0};
    if (path)
        remove_one(&all, AT_FDCWD, path, path, 0);
    free(all.failed);
}
