/* What machine a run was made on, for its record. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "train/train_internal.h"

static void find_cpu_name(char *name, size_t size)
{
    char line[512];
    snprintf(name, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!colon)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(name, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (file)
        fclose(file);
}

json_t *fth_machine_describe(const fth_device *device)
{
    struct utsname system;
    char cpu[128], text[256] = "unknown";
    const char *host = "unknown";
    find_cpu_name(cpu, sizeof cpu);
    if (uname(&system) == 0) {
        snprintf(text, sizeof text, "%.60s %.100s %.60s", system.sysname, system.release, system.machine);
        host = system.nodename;
    }
    return json_pack("{s:s, s:s, s:I, s:I, s:s, s:s}", "host", host, "cpu", cpu, "cores",
                     (json_int_t)fth_processors_online(), "memory_bytes",
                     (json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE), "system", text, "device",
                     device->description);
}
