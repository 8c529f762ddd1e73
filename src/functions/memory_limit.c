/* See memory_limit.h. In a container the group's files are at the root of the mount, whatever path
 * /proc gives; elsewhere they are below that path. */
#include "functions/memory_limit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/base.h"
#include "base/process.h"

/* cgroup v1 writes "none" as a number near 2^63. */
#define NO_LIMIT (UINT64_C(1) << 60)

static uint64_t read_limit(const char *folder, const char *group, const char *name)
{
    char path[512];
    uint64_t limit = 0;
    if (snprintf(path, sizeof path, "%s%s/%s", folder, group, name) >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%" SCNu64, &limit) != 1) /* "max" */
        limit = 0;
    fclose(file);
    return limit < NO_LIMIT ? limit : 0;
}

static uint64_t least(uint64_t one, uint64_t other)
{
    return one == 0 || (other != 0 && other < one) ? other : one;
}

static uint64_t read_group(const char *group)
{
    uint64_t v2 = read_limit("/sys/fs/cgroup", group, "memory.max");
    return least(v2, read_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
}

uint64_t fth_memory_limit_bytes(void)
{
    char line[512];
    uint64_t limit = read_group("");
    static const int limits[] = {RLIMIT_AS, RLIMIT_DATA};
    struct rlimit space;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) { /* "0::/path", "5:memory:/path" */
        const char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        line[strcspn(line, "\n")] = '\0';
        if (path && (path == names + 1 || strncmp(names + 1, "memory:", 7) == 0))
            limit = least(limit, read_group(path + 1));
    }
    if (file)
        fclose(file);
    for (size_t i = 0; i < FTH_COUNT_OF(limits); i++)
        if (getrlimit(limits[i], &space) == 0 && space.rlim_cur != RLIM_INFINITY)
            limit = least(limit, (uint64_t)space.rlim_cur);
    return limit;
}

void fth_memory_limit_enforce(uint64_t limit_bytes)
{
    const int64_t resident = fth_process_resident_bytes(), data = fth_process_data_bytes();
    struct rlimit space;
    if (limit_bytes == 0 || resident <= 0 || data <= 0 || getrlimit(RLIMIT_DATA, &space) != 0)
        return;
    /* Memory that is allocated but hardly touched, such as stacks, does not count. */
    const rlim_t most = (rlim_t)limit_bytes + (rlim_t)(data > resident ? data - resident : 0);
    if (space.rlim_cur == RLIM_INFINITY || space.rlim_cur > most)
        setrlimit(RLIMIT_DATA, &(struct rlimit){.rlim_cur = most, .rlim_max = space.rlim_max});
}
