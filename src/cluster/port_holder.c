/* See port_holder.h: /proc/net/tcp has the socket's number, and /proc/PID/fd who has that socket
 * open. */
#include "cluster/port_holder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

enum { LISTENING = 0x0A };

/* The number of the socket that listens on the port, in a table of the kernel's; 0: none. */
static unsigned long find_socket(const char *table, int port)
{
    char line[512];
    unsigned long found = 0;
    FILE *file = fopen(table, "re");
    if (!file)
        return 0;
    while (!found && fgets(line, sizeof line, file)) {
        unsigned local_port = 0, state = 0;
        unsigned long inode = 0;
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*d %lu", &local_port, &state,
                   &inode) == 3 &&
            local_port == (unsigned)port && state == LISTENING)
            found = inode;
    }
    fclose(file);
    return found;
}

static bool has_open(const char *process, const char *socket)
{
    char path[64], target[64];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%.16s/fd", process);
    DIR *folder = opendir(path);
    if (!folder)
        return false;
    for (struct dirent *entry; !found && (entry = readdir(folder));) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        if (length > 0) {
            target[length] = '\0';
            found = strcmp(target, socket) == 0;
        }
    }
    closedir(folder);
    return found;
}

static char *name_process(const char *process)
{
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%.16s/comm", process);
    FILE *file = fopen(path, "re");
    if (file && fgets(name, sizeof name, file))
        name[strcspn(name, "\n")] = '\0';
    if (file)
        fclose(file);
    return fth_format("process %s (%s)", process, name);
}

char *fth_port_holder(int port)
{
    char socket[64];
    char *holder = NULL;
    unsigned long inode = find_socket("/proc/net/tcp", port);
    if (!inode)
        inode = find_socket("/proc/net/tcp6", port);
    DIR *folder = inode ? opendir("/proc") : NULL;
    if (!folder)
        return NULL;
    snprintf(socket, sizeof socket, "socket:[%lu]", inode);
    for (struct dirent *entry; !holder && (entry = readdir(folder));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && has_open(entry->d_name, socket))
            holder = name_process(entry->d_name);
    closedir(folder);
    return holder;
}
