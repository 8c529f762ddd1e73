/* See cgroup.h. In version 2 only leaves have processes: a group with processes cannot enable the
 * memory controller for its children. If this process is alone in its group, it first moves into a
 * child of it. */
#include "platform/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "platform/files.h"

#define PREFIX    "farthing-"
#define OWN_GROUP "-main" /* suffix of a group that this process moved into */
static const long pause_ns = 1000000;
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER; /* one thread at a time moves this process */

/* ---- small files, without memory of their own ---- */

static bool put(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t written = write(file, text, strlen(text));
    int failure = errno;
    close(file);
    errno = failure;
    return written >= 0;
}

/* The beginning of a file, with a NUL; "" if it cannot be read. */
static void look(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got = 0;
    while (file >= 0 && used < size - 1 && (got = read(file, text + used, size - 1 - used)) > 0)
        used += (size_t)got;
    if (file >= 0)
        close(file);
    text[used] = '\0';
}

static bool put_in(const char *folder, const char *name, const char *text)
{
    char path[FTH_CGROUP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return put(path, text);
}

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length)
        if ((at == text || at[-1] == ' ') && strchr(" \n", at[length]))
            return true;
    return false;
}

/* ---- groups of processes that are gone ---- */

static void set_paths(fth_cgroup *group, bool v2)
{
    snprintf(group->processes, sizeof group->processes, "%s/cgroup.procs", group->folder);
    snprintf(group->kill, sizeof group->kill, "%s/cgroup.kill", group->folder);
    snprintf(group->peak, sizeof group->peak, "%s/%s", group->folder, v2 ? "memory.peak" : "memory.max_usage_in_bytes");
    snprintf(group->events, sizeof group->events, "%s/%s", group->folder, v2 ? "memory.events" : "memory.oom_control");
}

static void remove_orphans(const char *parent, bool v2)
{
    DIR *folder = opendir(parent);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        fth_cgroup group;
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 || fth_owner_is_alive(entry->d_name + strlen(PREFIX)))
            continue;
        if (snprintf(group.folder, sizeof group.folder, "%s/%s", parent, entry->d_name) >= (int)sizeof group.folder)
            continue;
        set_paths(&group, v2);
        fth_cgroup_kill(&group, 1, NULL);
        fth_cgroup_remove(&group);
    }
    if (folder)
        closedir(folder);
}

/* ---- this process's own group ---- */

/* Finds where the hierarchy is mounted; version 1's must have the memory controller. */
static bool find_mount(bool v2, char mount[FTH_CGROUP_PATH])
{
    char line[2048];
    bool found = false;
    FILE *file = fopen("/proc/self/mounts", "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        char kind[64], options[512];
        if (sscanf(line, "%*s %511s %63s %511s", mount, kind, options) != 3)
            continue;
        for (char *comma = options; (comma = strchr(comma, ','));)
            *comma = ' ';
        found = v2 ? strcmp(kind, "cgroup2") == 0 : strcmp(kind, "cgroup") == 0 && has_word(options, "memory");
    }
    if (file)
        fclose(file);
    return found;
}

/* Finds this process's path in the hierarchy, in the line "4:memory:/path" or "0::/path". */
static bool find_path(bool v2, char path[FTH_CGROUP_PATH])
{
    char line[FTH_CGROUP_PATH + 256];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *rest = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!rest || strlen(rest + 1) >= FTH_CGROUP_PATH)
            continue;
        *rest = '\0';
        for (char *comma = controllers; (comma = strchr(comma, ','));)
            *comma = ' ';
        found = v2 ? controllers[1] == '\0' : has_word(controllers + 1, "memory");
        if (found)
            memcpy(path, rest + 1, strlen(rest + 1) + 1);
    }
    if (file)
        fclose(file);
    return found;
}

/* Version 2: enables the memory controller for children of `own`. */
static bool enable_memory(const char *own)
{
    char path[FTH_CGROUP_PATH + 64], text[4096];
    snprintf(path, sizeof path, "%s/cgroup.subtree_control", own);
    look(path, text, sizeof text);
    if (has_word(text, "memory") || put(path, "+memory"))
        return true;
    if (errno != EBUSY)
        return false;
    char leaf[FTH_CGROUP_PATH + 64];
    snprintf(path, sizeof path, "%s/cgroup.procs", own);
    look(path, text, sizeof text);
    if (strtol(text, NULL, 10) != getpid() || strchr(text, '\n') != strrchr(text, '\n'))
        return false; /* other processes are here, which must not be moved */
    char owner[FTH_OWNER_SIZE];
    fth_owner_self(owner);
    snprintf(leaf, sizeof leaf, "%s/" PREFIX "%s" OWN_GROUP, own, owner);
    return (mkdir(leaf, 0755) == 0 || errno == EEXIST) && put_in(leaf, "cgroup.procs", "0") &&
           put_in(own, "cgroup.subtree_control", "+memory");
}

/* Whether enable_memory() moved this process into the group of that name. Groups of other
 * platforms, which may run this one as a function, have similar names. */
static bool is_own_leaf(const char *name)
{
    char owner[FTH_OWNER_SIZE], own[FTH_OWNER_SIZE + 32];
    fth_owner_self(owner);
    snprintf(own, sizeof own, PREFIX "%s" OWN_GROUP, owner);
    return strcmp(name, own) == 0;
}

/* Finds the parent of new groups: this process's group, or the parent of the leaf it was moved
 * into. */
static bool find_parent(char parent[FTH_CGROUP_PATH], bool *v2)
{
    char mount[FTH_CGROUP_PATH], path[FTH_CGROUP_PATH];
    *v2 = !find_mount(false, mount);
    if ((*v2 && !find_mount(true, mount)) || !find_path(*v2, path))
        return false;
    char *leaf = strrchr(path, '/');
    if (*v2 && leaf && is_own_leaf(leaf + 1))
        *leaf = '\0';
    const char *own = strcmp(path, "/") == 0 ? "" : path;
    if (snprintf(parent, FTH_CGROUP_PATH, "%s%s", mount, own) >= FTH_CGROUP_PATH - 80)
        return false;
    if (access(parent, W_OK) != 0) /* in a container whose group is mounted as the root */
        snprintf(parent, FTH_CGROUP_PATH, "%s", mount);
    return access(parent, W_OK) == 0 && (!*v2 || enable_memory(parent));
}

fth_status fth_cgroup_create(uint64_t memory_bytes, fth_cgroup *group)
{
    char parent[FTH_CGROUP_PATH], owner[FTH_OWNER_SIZE], limit[32];
    bool v2, made = false;

    pthread_mutex_lock(&finding);
    const bool found = find_parent(parent, &v2);
    pthread_mutex_unlock(&finding);
    if (!found)
        return fth_fail(FTH_UNSUPPORTED, "no control group for memory can be made here");
    remove_orphans(parent, v2);
    fth_owner_self(owner);
    /* Named by the time, so that no name is reused: a late removal must not find another group
     * under its name. */
    do {
        snprintf(group->folder, sizeof group->folder, "%.*s/" PREFIX "%s-%.0f", FTH_CGROUP_PATH - 80, parent, owner,
                 fth_clock_seconds() * 1e9);
        made = mkdir(group->folder, 0755) == 0;
    } while (!made && errno == EEXIST);
    if (!made)
        return fth_fail(FTH_UNSUPPORTED, "make control group %s: %s", group->folder, strerror(errno));
    set_paths(group, v2);
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)memory_bytes);
    if (!put_in(group->folder, v2 ? "memory.max" : "memory.limit_in_bytes", limit)) {
        fth_status status =
            fth_fail(FTH_UNSUPPORTED, "limit the memory of control group %s: %s", group->folder, strerror(errno));
        rmdir(group->folder);
        return status;
    }
    /* limits swap too; kernels without swap accounting lack these files */
    put_in(group->folder, v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes", v2 ? "0" : limit);
    if (v2)
        put_in(group->folder, "memory.oom.group", "1");
    return FTH_OK;
}

bool fth_cgroup_enter(const fth_cgroup *group)
{
    return put(group->processes, "0");
}

void fth_cgroup_kill(const fth_cgroup *group, double seconds, void (*collect)(void))
{
    fth_deadline deadline = fth_deadline_in(seconds);
    char text[4096];
    for (;;) {
        look(group->processes, text, sizeof text);
        if (!*text)
            return;
        if (!put(group->kill, "1"))
            for (char *at = text, *end; *at; at = end) {
                long process = strtol(at, &end, 10);
                if (end == at)
                    break;
                bool whole = *end == '\n'; /* the last line may be cut off */
                if (process > 0 && whole)
                    kill((pid_t)process, SIGKILL);
            }
        if (collect)
            collect();
        if (fth_deadline_passed(deadline))
            return;
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    }
}

double fth_cgroup_peak_bytes(const fth_cgroup *group)
{
    char text[64];
    look(group->peak, text, sizeof text);
    return *text ? (double)strtoull(text, NULL, 10) : NAN;
}

bool fth_cgroup_ran_out(const fth_cgroup *group)
{
    char text[1024];
    look(group->events, text, sizeof text);
    const char *line = strstr(text, "oom_kill "); /* not oom_kill_disable, version 1's first line */
    return line && strtoull(line + strlen("oom_kill "), NULL, 10) > 0;
}

void fth_cgroup_remove(const fth_cgroup *group)
{
    /* processes that have just ended may still count */
    for (int tries = 0; rmdir(group->folder) != 0 && errno == EBUSY && tries < 1000; tries++)
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
}
