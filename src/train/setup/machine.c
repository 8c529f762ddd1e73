/* What machine a run was made on, for its record. */
#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "train/train_internal.h"

json_t *fth_machine_describe(const fth_device *device)
{
    struct utsname system;
    fth_processor processor;
    char text[256] = "unknown";
    const char *host = "unknown";
    fth_processor_describe(&processor);
    if (uname(&system) == 0) {
        snprintf(text, sizeof text, "%.60s %.100s %.60s", system.sysname, system.release, system.machine);
        host = system.nodename;
    }
    return json_pack("{s:s, s:s, s:I, s:I, s:s, s:s}", "host", host, "cpu", processor.name, "cores",
                     (json_int_t)fth_processors_online(), "memory_bytes",
                     (json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE), "system", text, "device",
                     device->description);
}
