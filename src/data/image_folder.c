/* Finds image files in a folder and the folders below it. Links are followed; a depth that no set
 * has ends loops, and is reported. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/decode.h"
#include "data/image_index.h"

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
        bool image = fth_image_name_fits(item->d_name);
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
        } else if (kind == PLAIN_FILE || (image && kind == OTHER)) { /* a dangling link is an unreadable image */
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
