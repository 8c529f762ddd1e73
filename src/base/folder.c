/* See folder.h. */
#include "base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_internal.h"
#include "base/path.h"

bool fth_folder_exists(const char *path)
{
    struct stat facts;
    return path && stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

/* Creates a folder and makes its entry in `parent` durable, without which the entries in it are
 * useless. */
static fth_status create_one_folder(const char *path)
{
    if (mkdir(path, 0755) != 0) {
        int error = errno;
        if (fth_folder_exists(path))
            return FTH_OK; /* there before, or made by another process just now */
        if (error == EEXIST)
            return fth_fail(FTH_INVALID, "create folder %s: a file of that name is in the way", path);
        return fth_file_fail("create folder", path, error);
    }
    char *parent = fth_path_folder(path);
    fth_status status = fth_folder_sync(parent);
    free(parent);
    return status;
}

fth_status fth_folder_create(const char *path)
{
    fth_status status = FTH_OK;
    char *prefix = path ? strdup(path) : NULL;

    FTH_REQUIRE(prefix, FTH_NO_MEMORY, "no memory for a path");
    FTH_REQUIRE(*path != '\0', FTH_INVALID, "the name of a folder is empty");
    size_t length = strlen(prefix);
    while (length > 1 && prefix[length - 1] == '/')
        prefix[--length] = '\0';
    if (fth_folder_exists(prefix))
        goto out;
    for (char *at = prefix + 1; *at; at++) {
        if (*at != '/' || at[-1] == '/')
            continue;
        *at = '\0';
        status = fth_folder_exists(prefix) ? FTH_OK : create_one_folder(prefix);
        *at = '/';
        if (status != FTH_OK)
            goto out;
    }
    FTH_TRY(create_one_folder(prefix));

out:
    free(prefix);
    return status;
}

fth_status fth_folder_sync_at(int folder, const char *path)
{
    while (fsync(folder) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != EINVAL && errno != ENOTSUP && errno != EROFS) /* file systems that cannot sync a folder */
            return fth_file_fail("sync folder", path, errno);
        break;
    }
    return FTH_OK;
}

fth_status fth_folder_sync(const char *path)
{
    int descriptor;
    if (!path)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    do {
        descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0)
        return errno == EACCES ? FTH_OK
                               : fth_file_fail("open folder", path, errno); /* writable yet unreadable: rare, legal */
    fth_status status = fth_folder_sync_at(descriptor, path);
    close(descriptor);
    return status;
}

fth_status fth_folder_create_temporary(char **folder)
{
    const char *base = getenv("TMPDIR");
    char *path = fth_format("%s/farthing-XXXXXX", base && *base ? base : "/tmp");
    if (!path)
        return fth_fail(FTH_NO_MEMORY, "no memory for a path");
    if (!mkdtemp(path)) {
        fth_status status = fth_file_fail("make", path, errno);
        free(path);
        return status;
    }
    *folder = path;
    return FTH_OK;
}

fth_status fth_cache_folder(char **folder)
{
    const char *own = getenv("FARTHING_CACHE"), *shared = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    if (own && *own)
        path = fth_format("%s", own);
    else if (shared && *shared)
        path = fth_path_join(shared, "farthing");
    else if (home && *home)
        path = fth_path_join(home, ".cache/farthing");
    else
        return fth_fail(FTH_INVALID, "no folder for downloads: set FARTHING_CACHE to one");
    fth_status status = fth_folder_create(path);
    if (status != FTH_OK) {
        free(path);
        return fth_fail_within(status, "the cache folder (FARTHING_CACHE sets another)");
    }
    *folder = path;
    return FTH_OK;
}
