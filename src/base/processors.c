/* See processors.h. */
#include "base/processors.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

enum { MOST_PROCESSORS = 1 << 16 };

int fth_processors_usable(void)
{
    /* The kernel refuses a set smaller than its own, which on large machines is larger than
     * cpu_set_t. */
    for (int size = CPU_SETSIZE; size <= MOST_PROCESSORS; size *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)size);
        if (!set)
            return 1;
        int failure = sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)size), set) == 0 ? 0 : errno;
        int count = failure ? 0 : CPU_COUNT_S(CPU_ALLOC_SIZE((size_t)size), set);
        CPU_FREE(set);
        if (failure != EINVAL)
            return count > 0 ? count : 1;
    }
    return 1;
}

int fth_processors_online(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}
