/* Deletes a folder with all that is in it, on a user's word, unless it must not be deleted as a
 * whole.
 *
 * The folder is reached from "/" through descriptors, one part of its path after the other and
 * never through a link, and stays open: the folder that is checked, counted and shown is the one
 * that is deleted, even if something takes its place meanwhile. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/folder_internal.h"

enum { DEEPEST = 256, PASSWORD_BYTES = 16384 };

/* ---- the path ---- */

static bool is_part(const char *part, size_t length, const char *name)
{
    return strlen(name) == length && strncmp(part, name, length) == 0;
}

/* Appends the parts of `text` to `path`, without empty ones and ".". */
static fth_status append_parts(char *path, const char *text, const char *address)
{
    size_t length = strlen(path);
    for (const char *part = text; *part;) {
        size_t size = strcspn(part, "/");
        if (is_part(part, size, ".."))
            return fth_fail(FTH_INVALID,
                            "delete %s: \"..\" can lead elsewhere than it seems; name the folder "
                            "without it",
                            address);
        if (size > 0 && !is_part(part, size, ".")) {
            path[length++] = '/';
            memcpy(path + length, part, size);
            length += size;
            path[length] = '\0';
        }
        part += size + (part[size] == '/');
    }
    return FTH_OK;
}

/* The path from "/" on, by its words alone. free() it. */
static fth_status spell_path(const char *address, char **path)
{
    fth_status status = FTH_OK;
    char *current = *address == '/' ? NULL : getcwd(NULL, 0);
    FTH_REQUIRE(*address == '/' || current, FTH_IO, "the current folder has no path: %s", strerror(errno));
    FTH_TRY(fth_allocate(strlen(address) + (current ? strlen(current) : 0) + 3, 1, path));
    FTH_TRY(append_parts(*path, current ? current : "", address));
    FTH_TRY(append_parts(*path, address, address));

out:
    free(current);
    return status;
}

/* ---- what must stay ---- */

/* Refuses a folder that is or holds `kept`. */
static fth_status refuse_around(const char *path, const char *kept, const char *what)
{
    char real[PATH_MAX];
    size_t length = strlen(path);
    if (!kept || !*kept || !realpath(kept, real) || strncmp(real, path, length) != 0)
        return FTH_OK;
    if (real[length] == '\0')
        return fth_fail(FTH_INVALID, "delete %s: it is %s; name what to delete in it", path, what);
    if (real[length] == '/')
        return fth_fail(FTH_INVALID, "delete %s: it holds %s, %s; name what to delete in it", path, what, real);
    return FTH_OK;
}

static fth_status refuse_home_of(const char *path, uid_t user)
{
    struct passwd entry, *found = NULL;
    char text[PASSWORD_BYTES];
    if (getpwuid_r(user, &entry, text, sizeof text, &found) != 0 || !found)
        return FTH_OK;
    return refuse_around(path, found->pw_dir, "a home folder");
}

/* ---- counting ---- */

/* Counts what is in the open folder, which it takes and `owner` owns; a mount or a home folder
 * below it is refused. */
static fth_status count_inside(fth_folder_deletion *deletion, int folder, const char *path, uid_t owner, int depth)
{
    fth_status status = FTH_OK;
    char *inside = NULL;
    struct stat facts;
    DIR *directory = fdopendir(folder);
    if (!directory) {
        close(folder);
        return fth_fail(FTH_IO, "read folder %s: %s", path, strerror(errno));
    }
    FTH_REQUIRE(depth < DEEPEST, FTH_INVALID, "delete %s: more than %d folders within each other", path, DEEPEST);
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(folder, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (!S_ISDIR(facts.st_mode)) {
            FTH_REQUIRE(!fth_entry_is_mount(folder, entry->d_name), FTH_INVALID,
                        "delete %s: something is mounted at %s/%s; unmount it first", deletion->path, path,
                        entry->d_name);
            deletion->files++;
            deletion->bytes += (uint64_t)facts.st_size;
            continue;
        }
        if (facts.st_uid != owner)
            FTH_TRY(refuse_home_of(deletion->path, facts.st_uid));
        int next = fth_folder_open_below(folder, entry->d_name);
        int error = next < 0 ? errno : 0;
        free(inside);
        inside = fth_path_join(path, entry->d_name);
        FTH_REQUIRE(inside, FTH_NO_MEMORY, "no memory for a path");
        FTH_REQUIRE(error != EXDEV, FTH_INVALID, "delete %s: something is mounted at %s; unmount it first",
                    deletion->path, inside);
        FTH_REQUIRE(next >= 0, FTH_IO, "read folder %s: %s", inside, strerror(error));
        FTH_TRY(count_inside(deletion, next, inside, facts.st_uid, depth + 1));
    }

out:
    closedir(directory);
    free(inside);
    return status;
}

/* ---- the whole ---- */

static const char *name_in(const char *path)
{
    return strrchr(path, '/') + 1;
}

fth_status fth_folder_open_strictly(const char *address, char **path, int *folder)
{
    fth_status status = FTH_OK;
    char real[PATH_MAX];
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    *folder = -1;
    FTH_REQUIRE(root >= 0, FTH_IO, "open /: %s", strerror(errno));
    FTH_TRY(spell_path(address, path));
    FTH_REQUIRE(
        !realpath(*path, real) || strcmp(real, *path) == 0, FTH_INVALID,
        "delete %s: a symbolic link leads from there to %s, and no link is followed to delete something; remove "
        "the link itself, or name that folder",
        *path, real);
    FTH_TRY(fth_folder_enter(root, "", *path + 1, **path ? strlen(*path) - 1 : 0, folder));

out:
    if (root >= 0)
        close(root);
    return status;
}

/* Opens the folder that was named, and the one that holds it. */
static fth_status enter(fth_folder_deletion *deletion, const char *address)
{
    fth_status status = FTH_OK;
    int named = -1;
    FTH_TRY(fth_folder_open_strictly(address, &deletion->path, &named));
    FTH_REQUIRE(*deletion->path, FTH_INVALID, "delete /: that is the whole machine");
    FTH_REQUIRE(named >= 0, FTH_INVALID, "there is no folder %s", deletion->path);
    deletion->parent = openat(named, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (deletion->parent >= 0)
        deletion->folder = fth_folder_open_below(deletion->parent, name_in(deletion->path));
    FTH_REQUIRE(deletion->folder >= 0 || errno != EXDEV, FTH_INVALID,
                "delete %s: something is mounted there; name what to delete in it", deletion->path);
    FTH_REQUIRE(deletion->folder >= 0, FTH_IO, "open %s: %s", deletion->path, strerror(errno));

out:
    if (named >= 0)
        close(named);
    return status;
}

fth_status fth_folder_deletion_begin(const char *address, fth_folder_deletion *deletion)
{
    fth_status status = FTH_OK;
    struct stat facts;
    int again;

    *deletion = (fth_folder_deletion){.parent = -1, .folder = -1};
    FTH_TRY(enter(deletion, address));
    FTH_TRY(refuse_around(deletion->path, ".", "the current folder"));
    FTH_TRY(refuse_around(deletion->path, getenv("HOME"), "the home folder"));
    FTH_TRY(refuse_home_of(deletion->path, geteuid()));
    FTH_REQUIRE(fstat(deletion->folder, &facts) == 0, FTH_IO, "read folder %s: %s", deletion->path, strerror(errno));
    FTH_TRY(refuse_home_of(deletion->path, facts.st_uid));
    again = openat(deletion->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FTH_REQUIRE(again >= 0, FTH_IO, "read folder %s: %s", deletion->path, strerror(errno));
    FTH_TRY(count_inside(deletion, again, deletion->path, facts.st_uid, 0));

out:
    return status;
}

fth_status fth_folder_deletion_perform(const fth_folder_deletion *deletion)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_remove_inside(deletion->folder, deletion->path));
    FTH_REQUIRE(unlinkat(deletion->parent, name_in(deletion->path), AT_REMOVEDIR) == 0, FTH_IO, "delete %s: %s",
                deletion->path, strerror(errno));

out:
    return status;
}

void fth_folder_deletion_release(fth_folder_deletion *deletion)
{
    if (deletion->folder >= 0)
        close(deletion->folder);
    if (deletion->parent >= 0)
        close(deletion->parent);
    free(deletion->path);
    *deletion = (fth_folder_deletion){.parent = -1, .folder = -1};
}
