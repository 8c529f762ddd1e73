/* Lists a folder as a store does: all that lies below it, in the order of whole keys, as a bucket
 * lists them.
 *
 * Within one folder, names are sorted with a '/' after those of folders: "a.txt" comes before what
 * is in "a". Links to files are followed, links to folders are not (they could form a circle). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/folder_internal.h"
#include "store/store_internal.h"

enum { LEFTOVER_S = 24 * 3600 }; /* a temporary older than this is nobody's any more */

bool fth_folder_is_reserved(const char *name)
{
    return strncmp(name, FTH_FILE_TEMPORARY, strlen(FTH_FILE_TEMPORARY)) == 0 || strcmp(name, FTH_FOLDER_LOCK) == 0;
}

typedef struct entry {
    char *name; /* a folder's ends with '/', which also puts it where its keys stand in the order of keys */
    uint64_t size_bytes;
    double modified_s;
    fth_store_version version;
} entry;

typedef struct listing {
    const char *where; /* the root, for messages */
    const char *prefix;
    bool (*visit)(void *context, const fth_store_object *);
    void *context;
    uint64_t *left_out;
    bool ended;
} listing;

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static bool begins(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Describes one name of a folder; false if it is nothing to list. *odd is set for what a store
 * cannot hold. */
static bool describe_entry(int folder, const char *name, entry *result, bool *odd)
{
    struct stat facts, target;
    *odd = false;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW) != 0)
        return false; /* or it vanished meanwhile */
    if (fth_folder_is_reserved(name)) {
        bool leftover = fth_file_is_temporary(name) && S_ISREG(facts.st_mode) &&
                        fth_clock_wall_seconds() - (double)facts.st_mtim.tv_sec > LEFTOVER_S;
        if (leftover)
            unlinkat(folder, name, 0); /* of a writer that was killed */
        return false;
    }
    if (S_ISLNK(facts.st_mode)) {
        *odd = fstatat(folder, name, &target, 0) != 0 || !S_ISREG(target.st_mode);
        if (!*odd)
            facts = target;
    }
    *odd = *odd || (!S_ISDIR(facts.st_mode) && !S_ISREG(facts.st_mode));
    if (*odd)
        return false;
    result->name = fth_format("%s%s", name, S_ISDIR(facts.st_mode) ? "/" : "");
    result->size_bytes = (uint64_t)facts.st_size;
    result->modified_s = (double)facts.st_mtim.tv_sec + 1e-9 * (double)facts.st_mtim.tv_nsec;
    fth_folder_begin_version(&facts, &result->version);
    return result->name != NULL;
}

static fth_status fail_reading(const listing *list, const char *within, int error)
{
    return fth_fail(FTH_IO, "read folder %s/%s: %s", list->where, within, strerror(error));
}

/* The names in the folder `name` of the open folder `parent`, in order, and the folder itself
 * (free: closedir()). One that is not there any more has none, as has a link that took its
 * place. */
static fth_status read_folder(const listing *list, int parent, const char *name, const char *within, DIR **folder,
                              entry **entries, size_t *count)
{
    fth_status status = FTH_OK;
    size_t capacity = 0;
    struct dirent *next;
    int descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *folder = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    if (!*folder) {
        int error = errno;
        if (descriptor >= 0)
            close(descriptor);
        return error == ENOENT || error == ENOTDIR || error == ELOOP ? FTH_OK : fail_reading(list, within, error);
    }
    while (errno = 0, (next = readdir(*folder)) != NULL) {
        entry found;
        bool odd;
        if (!describe_entry(descriptor, next->d_name, &found, &odd)) {
            *list->left_out += odd && begins(within, list->prefix);
            continue;
        }
        status = fth_grow(entries, *count, &capacity, sizeof **entries);
        if (status != FTH_OK) {
            free(found.name);
            goto out;
        }
        (*entries)[(*count)++] = found;
    }
    if (errno != 0)
        status = fail_reading(list, within, errno);
    else if (*count > 0)
        qsort(*entries, *count, sizeof **entries, compare_entries);

out:
    return status;
}

/* Visits what lies below `within` ("" or "a/b/"), the folder `name` of the open folder `parent`. */
static fth_status walk(listing *list, int parent, const char *name, const char *within)
{
    fth_status status = FTH_OK;
    DIR *directory = NULL;
    entry *entries = NULL;
    size_t count = 0;
    char *key = NULL;
    FTH_TRY(read_folder(list, parent, name, within, &directory, &entries, &count));
    for (size_t i = 0; i < count && !list->ended; i++) {
        free(key);
        key = fth_format("%s%s", within, entries[i].name);
        FTH_REQUIRE(key, FTH_NO_MEMORY, "no memory for a path");
        size_t length = strlen(entries[i].name);
        bool folder = entries[i].name[length - 1] == '/';
        if (folder && (begins(key, list->prefix) || begins(list->prefix, key))) {
            entries[i].name[length - 1] = '\0'; /* O_NOFOLLOW follows a link with a slash after it */
            FTH_TRY(walk(list, dirfd(directory), entries[i].name, key));
        }
        if (folder || !begins(key, list->prefix))
            continue;
        fth_store_object object = {.key = key,
                                   .size_bytes = entries[i].size_bytes,
                                   .modified_s = entries[i].modified_s,
                                   .version = entries[i].version};
        list->ended = !list->visit(list->context, &object);
    }

out:
    for (size_t i = 0; i < count; i++)
        free(entries[i].name);
    free(entries);
    free(key);
    if (directory)
        closedir(directory);
    return status;
}

fth_status fth_folder_list(int root, const char *where, const char *prefix,
                           bool (*visit)(void *context, const fth_store_object *), void *context, uint64_t *left_out)
{
    listing list = {.where = where, .prefix = prefix, .visit = visit, .context = context, .left_out = left_out};
    return walk(&list, root, ".", "");
}
