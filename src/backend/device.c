/* Finding and opening back ends: the built-in ones by name, others as plugins loaded at run
 * time. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "base/plugin.h"

/* Of the process, as the driver's clean-up is. */
static atomic_bool one_was_lost;

static fth_status load_plugin(const char *path, const char *name, const fth_backend **backend)
{
    const void *symbol;
    fth_status status = fth_plugin_load(path, "fth_backend_plugin", &symbol);
    if (status != FTH_OK)
        return fth_fail_within(status, "back end '%s' cannot be loaded", name);
    const fth_backend *found = symbol;
    if (found->abi != FTH_BACKEND_ABI)
        return fth_fail(FTH_UNSUPPORTED,
                        "%s is made for interface %d, this farthing has %d; build both from one version", path,
                        found->abi, FTH_BACKEND_ABI);
    *backend = found;
    return FTH_OK;
}

enum { NAME_BYTES = 64 };

/* "cuda:0", as PyTorch has it, is "cuda". */
static fth_status read_name(const char *name, char plain[NAME_BYTES])
{
    const char *colon = strchr(name, ':');
    if (colon && strcmp(colon, ":0") != 0)
        return fth_fail(FTH_INVALID,
                        "'%s' is not a device: a process uses the first one that it sees; CUDA_VISIBLE_DEVICES chooses "
                        "which",
                        name);
    if (snprintf(plain, NAME_BYTES, "%.*s", (int)strcspn(name, ":"), name) >= NAME_BYTES)
        return fth_fail(FTH_INVALID, "'%s' is not a device; use auto, cpu or the name of a back-end plugin", name);
    return FTH_OK;
}

static const fth_backend *find_builtin(const char *name)
{
    for (const fth_builtin_backend *row = fth_builtin_backends; row->name; row++)
        if (strcmp(row->name, name) == 0)
            return row->backend;
    return NULL;
}

static fth_status find_plugin(const char *name, char path[FTH_PLUGIN_PATH_SIZE])
{
    if (*name == '\0' || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] != '\0')
        return fth_fail(FTH_INVALID, "'%s' is not a device; use auto, cpu or the name of a back-end plugin", name);
    fth_status status = fth_plugin_find(name, path);
    if (status == FTH_OK)
        return FTH_OK;
    char names[128] = "";
    size_t length = 0;
    for (const fth_builtin_backend *row = fth_builtin_backends; row->name && length < sizeof names; row++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", length > 0 ? ", " : "", row->name);
    return fth_fail_within(status, "there is no device '%s' (built in: %s)", name, names);
}

static fth_status find_backend(const char *name, const fth_backend **backend)
{
    char path[FTH_PLUGIN_PATH_SIZE];
    *backend = find_builtin(name);
    if (*backend)
        return FTH_OK;
    fth_status status = find_plugin(name, path);
    return status == FTH_OK ? load_plugin(path, name, backend) : status;
}

fth_status fth_device_check_name(const char *given)
{
    char path[FTH_PLUGIN_PATH_SIZE], name[NAME_BYTES];
    fth_status status = read_name(given, name);
    if (status != FTH_OK || strcmp(name, "auto") == 0 || find_builtin(name))
        return status;
    return find_plugin(name, path);
}

/* Loading the CUDA plugin brings in 150 MB of libraries: "auto" does so only where a driver has
 * made its device files (the second is Windows' subsystem for Linux). */
static bool nvidia_driver_present(void)
{
    return fth_file_exists("/dev/nvidiactl") || fth_file_exists("/dev/dxg");
}

fth_status fth_device_open(const char *given, const fth_device_options *options, fth_device **device)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = NULL;
    char plain[NAME_BYTES];
    const char *name = plain;

    FTH_TRY(read_name(given, plain));
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
