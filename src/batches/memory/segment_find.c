/* Finds a segment that a killed owner has left in its clients (fth_segment_open). A memfd has no
 * name in any folder, but /proc shows the descriptors of processes, and those of the same user can
 * be opened there. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "batches/memory/segment.h"
#include "batches/memory/segment_index.h"
#include "batches/memory/space.h"

/* Descriptors of a segment and its board in another process. */
typedef struct segment_remains {
    uint64_t name, memory_bytes; /* wanted */
    int segment, board;          /* -1: not found */
    uint64_t number;             /* of the board, according to the segment */
} segment_remains;

/* Whether a descriptor is the wanted segment's and has no owner. */
static bool is_left(int fd, segment_remains *remains)
{
    fth_segment_header head;
    bool is_it = pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head && head.magic == FTH_SEGMENT_MAGIC &&
                 head.name == remains->name && head.entry_bytes == remains->memory_bytes;
    if (!is_it || flock(fd, LOCK_EX | LOCK_NB) != 0)
        return false;
    flock(fd, LOCK_UN);
    remains->number = head.board;
    return true;
}

/* Opens the first wanted descriptor in a process's folder whose target begins with `prefix`. */
static int find_descriptor(const char *folder, const char *prefix, segment_remains *remains,
                           bool (*wanted)(int fd, segment_remains *remains))
{
    DIR *files = opendir(folder);
    int found = -1;
    for (struct dirent *file; files && found < 0 && (file = readdir(files));) {
        char path[600], target[64] = "";
        snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
        if (readlink(path, target, sizeof target - 1) <= 0 || strncmp(target, prefix, strlen(prefix)) != 0)
            continue;
        found = open(path, O_RDONLY | O_CLOEXEC);
        if (found >= 0 && !wanted(found, remains)) {
            close(found);
            found = -1;
        }
    }
    if (files)
        closedir(files);
    return found;
}

static bool is_its_board(int fd, segment_remains *remains)
{
    return remains->number != 0 && fth_board_number_of(fd) == remains->number;
}

static void close_remains(segment_remains *remains)
{
    if (remains->segment >= 0)
        close(remains->segment);
    if (remains->board >= 0)
        close(remains->board);
    remains->segment = remains->board = -1;
}

/* Searches the processes of this user. */
static bool find_remains(segment_remains *remains)
{
    DIR *processes = opendir("/proc");
    bool found = false;
    for (struct dirent *process; processes && !found && (process = readdir(processes));) {
        char folder[300];
        struct stat facts;
        snprintf(folder, sizeof folder, "/proc/%s/fd", process->d_name);
        if (process->d_name[0] < '1' || process->d_name[0] > '9' || stat(folder, &facts) != 0 ||
            facts.st_uid != geteuid())
            continue;
        remains->segment = find_descriptor(folder, "/memfd:" FTH_SEGMENT_FILE, remains, is_left);
        if (remains->segment >= 0)
            remains->board = find_descriptor(folder, "/memfd:" FTH_BOARD_FILE, remains, is_its_board);
        found = remains->board >= 0;
        if (!found)
            close_remains(remains);
    }
    if (processes)
        closedir(processes);
    return found;
}

fth_status fth_segment_open(const char *name, uint64_t memory_bytes, fth_board **board, fth_segment_cache **segment,
                            bool *found)
{
    fth_status status = FTH_OK;
    segment_remains remains = {.name = fth_hash(name, strlen(name), 0) | 1,
                               .memory_bytes = memory_bytes / FTH_SPACE_UNIT * FTH_SPACE_UNIT,
                               .segment = -1,
                               .board = -1};
    *board = NULL;
    *segment = NULL;
    *found = find_remains(&remains) && fth_board_adopt(remains.board, board) == FTH_OK &&
             fth_segment_adopt(remains.segment, *board, segment) == FTH_OK;
    if (!*found) {
        fth_board_free(*board);
        *board = NULL;
        FTH_TRY(fth_board_create(board));
        FTH_TRY(fth_segment_create(memory_bytes, *board, segment));
        fth_segment_set_name(*segment, remains.name);
    }
out:
    if (status != FTH_OK) {
        fth_board_free(*board);
        *board = NULL;
    }
    close_remains(&remains);
    return status;
}
