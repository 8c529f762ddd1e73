/* Finding and opening back ends: the built-in ones by name, others as plugins loaded at run time.
 *
 * A plugin stays loaded for the life of the process: unloading code that may own threads is not safe. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"

static const fth_backend *const builtin[] = {&fth_backend_cpu};

/* Of the process, as the driver's clean-up is. */
static atomic_bool one_was_lost;

enum { FOLDER_SIZE = 3072, MOST_FOLDERS = 3, PLUGIN_PATH_SIZE = FOLDER_SIZE + 512 };

/* The file that holds this code: the program, or libfarthing.so. `link` is the latter's; NULL for a program. */
static bool find_own_file(char path[FOLDER_SIZE], const char **link)
{
    Dl_info info;
    struct link_map *map = NULL;
    *link = NULL;
    if (dladdr1(&builtin, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map && *map->l_name) {
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

/* Folders searched for plugins: $FARTHING_PLUGINS; the folder of the program or library, which is where they are in a
 * build tree; and lib/farthing, as seen from the installed program or library. */
static int list_plugin_folders(char folders[MOST_FOLDERS][FOLDER_SIZE])
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

/* Plugins use functions of the library that loads them. A program may have loaded it for itself alone, as Python's
 * ctypes does: then they would not be found. */
static void show_to_plugins(void)
{
    char path[FOLDER_SIZE];
    const char *link;
    if (find_own_file(path, &link) && link)
        dlopen(link, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL); /* held, as plugins are, for the life of the process */
}

static fth_status load_plugin(const char *path, const char *name, const fth_backend **backend)
{
    show_to_plugins();
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fth_fail(FTH_UNSUPPORTED, "back end '%s' cannot be loaded: %s", name, dlerror());
    const fth_backend *found = dlsym(handle, "fth_backend_plugin");
    if (!found)
        return fth_fail(FTH_UNSUPPORTED, "%s is not a farthing back end: it has no fth_backend_plugin", path);
    if (found->abi != FTH_BACKEND_ABI)
        return fth_fail(FTH_UNSUPPORTED,
                        "%s is made for interface %d, this farthing has %d; build both from one version", path,
                        found->abi, FTH_BACKEND_ABI);
    *backend = found;
    return FTH_OK;
}

static const fth_backend *find_builtin(const char *name)
{
    for (size_t i = 0; i < FTH_COUNT_OF(builtin); i++)
        if (strcmp(builtin[i]->name, name) == 0)
            return builtin[i];
    return NULL;
}

static fth_status find_plugin(const char *name, char path[PLUGIN_PATH_SIZE])
{
    char folders[MOST_FOLDERS][FOLDER_SIZE], *searched = NULL;

    if (*name == '\0' || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] != '\0')
        return fth_fail(FTH_INVALID, "'%s' is not a device; use auto, cpu or the name of a back-end plugin", name);
    int folder_count = list_plugin_folders(folders);
    for (int i = 0; i < folder_count; i++) {
        snprintf(path, PLUGIN_PATH_SIZE, "%.3071s/farthing_%.256s.so", folders[i], name);
        if (fth_file_exists(path)) {
            free(searched);
            return FTH_OK;
        }
        char *longer = fth_format("%s%s%s", searched ? searched : "", searched ? ", " : "", folders[i]);
        free(searched);
        searched = longer;
    }
    fth_status status =
        fth_fail(FTH_INVALID, "there is no device '%s': built in is cpu, and farthing_%s.so is not in %s", name, name,
                 searched ? searched : "$FARTHING_PLUGINS");
    free(searched);
    return status;
}

static fth_status find_backend(const char *name, const fth_backend **backend)
{
    char path[PLUGIN_PATH_SIZE];
    *backend = find_builtin(name);
    if (*backend)
        return FTH_OK;
    fth_status status = find_plugin(name, path);
    return status == FTH_OK ? load_plugin(path, name, backend) : status;
}

fth_status fth_device_check_name(const char *name)
{
    char path[PLUGIN_PATH_SIZE];
    if (strcmp(name, "auto") == 0 || find_builtin(name))
        return FTH_OK;
    return find_plugin(name, path);
}

/* Loading the CUDA plugin brings in 150 MB of libraries: "auto" does so only where a driver has made its device files
 * (the second is Windows' subsystem for Linux). */
static bool nvidia_driver_present(void)
{
    return fth_file_exists("/dev/nvidiactl") || fth_file_exists("/dev/dxg");
}

fth_status fth_device_open(const char *name, const fth_device_options *options, fth_device **device)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = NULL;
    if (strcmp(name, "auto") == 0) {
        if (nvidia_driver_present()) {
            if (find_backend("cuda", &backend) == FTH_OK && backend->open(options, device) == FTH_OK)
                return FTH_OK;
            fth_log_warning("there is an NVIDIA driver, but CUDA is not used: %s", fth_error_message());
        }
        name = "cpu";
    }
    FTH_TRY(find_backend(name, &backend));
    FTH_TRY(backend->open(options, device));
out:
    return status;
}

void fth_device_close(fth_device *device)
{
    if (!device)
        return;
    if (device->backend->accelerator && device->backend->accelerator->is_lost(device))
        atomic_store(&one_was_lost, true);
    device->backend->close(device);
}

bool fth_device_was_lost(void)
{
    return atomic_load(&one_was_lost);
}

bool fth_device_has_room(fth_device *device, size_t size_bytes)
{
    size_t free_bytes, total_bytes;
    const fth_backend_accelerator *accelerator = device->backend->accelerator;
    if (!accelerator)
        return true;
    return accelerator->free_memory(device, &free_bytes, &total_bytes) == FTH_OK && size_bytes <= free_bytes / 4;
}
