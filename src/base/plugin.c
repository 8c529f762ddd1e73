/* Where plugins are, and loading them. */
#include "base/plugin.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/path.h"

enum { FOLDER_SIZE = 3072, MOST_FOLDERS = 3 };

/* The file that holds this code: the program, or libfarthing.so. `link` is the latter's; NULL for a
 * program. */
static bool find_own_file(char path[FOLDER_SIZE], const char **link)
{
    static const char here;
    Dl_info info;
    struct link_map *map = NULL;
    *link = NULL;
    if (dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map && *map->l_name) {
        char *whole = realpath(map->l_name, NULL);
        bool fits = whole && snprintf(path, FOLDER_SIZE, "%s", whole) < FOLDER_SIZE;
        free(whole);
        *link = map->l_name;
        return fits;
    }
    ssize_t length = readlink("/proc/self/exe", path, FOLDER_SIZE - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static int list_folders(char folders[MOST_FOLDERS][FOLDER_SIZE])
{
    int count = 0;
    const char *chosen = getenv("FARTHING_PLUGINS"), *link;
    if (chosen && *chosen)
        snprintf(folders[count++], FOLDER_SIZE, "%s", chosen);
    char own[FOLDER_SIZE];
    char *slash = find_own_file(own, &link) ? strrchr(own, '/') : NULL;
    if (slash) {
        *slash = '\0';
        snprintf(folders[count++], FOLDER_SIZE, "%s", own);
        snprintf(folders[count++], FOLDER_SIZE, "%.3000s/%s", own, link ? "farthing" : FTH_PLUGINS_FROM_PROGRAM);
    }
    return count;
}

fth_status fth_plugin_find(const char *name, char path[FTH_PLUGIN_PATH_SIZE])
{
    char folders[MOST_FOLDERS][FOLDER_SIZE], *searched = NULL;
    int folder_count = list_folders(folders);
    for (int i = 0; i < folder_count; i++) {
        snprintf(path, FTH_PLUGIN_PATH_SIZE, "%.3071s/farthing_%.256s.so", folders[i], name);
        if (fth_file_exists(path)) {
            free(searched);
            return FTH_OK;
        }
        char *longer = fth_format("%s%s%s", searched ? searched : "", searched ? ", " : "", folders[i]);
        free(searched);
        searched = longer;
    }
    fth_status status =
        fth_fail(FTH_INVALID, "farthing_%s.so is not in %s", name, searched ? searched : "$FARTHING_PLUGINS");
    free(searched);
    return status;
}

/* Plugins use functions of the library that loads them. They would not be found if the program
 * loaded the library with local symbols, as Python's ctypes does. */
static void show_to_plugins(void)
{
    char path[FOLDER_SIZE];
    const char *link;
    if (find_own_file(path, &link) && link)
        dlopen(link, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL); /* held, as plugins are, for the life of the process */
}

fth_status fth_plugin_load(const char *path, const char *symbol, const void **found)
{
    show_to_plugins();
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fth_fail(FTH_UNSUPPORTED, "%s", dlerror());
    *found = dlsym(handle, symbol);
    if (!*found)
        return fth_fail(FTH_UNSUPPORTED, "%s is not a plugin of this kind: it has no symbol %s", path, symbol);
    return FTH_OK;
}
