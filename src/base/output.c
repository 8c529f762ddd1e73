/* See output.h. Links are followed here one by one, since the file that replaces the last one's
 * target may not exist yet and its temporary has to lie beside it. */
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/path.h"

enum { MOST_LINKS = 40, LINK_BYTES = 4096 }; /* as Linux has them */

static int reserved_stdout = -1;

bool fth_output_is_stdout(const char *name)
{
    return strcmp(name, "-") == 0;
}

const char *fth_output_label(const char *name)
{
    return fth_output_is_stdout(name) ? "standard output" : name;
}

fth_status fth_output_prepare(const char *name)
{
    if (!fth_output_is_stdout(name) || reserved_stdout >= 0)
        return FTH_OK;
    if (isatty(STDOUT_FILENO))
        return fth_fail(FTH_INVALID, "standard output is a terminal; send the data elsewhere, as in `> FILE`");
    fflush(stdout);
    reserved_stdout = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (reserved_stdout < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return fth_fail(FTH_IO, "cannot write to standard output: %s", strerror(errno));
    return FTH_OK;
}

/* The descriptor that "-", "/dev/fd/3" and their like name; -1 if `name` is none of them. */
static int named_descriptor(const char *name)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (fth_output_is_stdout(name) || strcmp(name, "/dev/stdout") == 0)
        return reserved_stdout >= 0 ? reserved_stdout : STDOUT_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t length = strlen(folders[i]);
        char *end = NULL;
        if (strncmp(name, folders[i], length) != 0 || name[length] < '0' || name[length] > '9')
            continue;
        long number = strtol(name + length, &end, 10);
        if (*end || number > 1 << 20)
            return -1;
        return number == STDOUT_FILENO && reserved_stdout >= 0 ? reserved_stdout : (int)number;
    }
    return -1;
}

static fth_status open_descriptor(const char *name, int number, int *descriptor)
{
    *descriptor = fcntl(number, F_DUPFD_CLOEXEC, 3);
    if (*descriptor < 0)
        return fth_fail(FTH_INVALID, "write to %s: %s", fth_output_label(name), strerror(errno));
    return FTH_OK;
}

/* What the link at `path` points to, as a path; free() it. NULL with errno set. */
static char *follow(const char *path)
{
    char target[LINK_BYTES];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return NULL;
    target[length] = '\0';
    const char *slash = strrchr(path, '/');
    if (target[0] == '/' || !slash)
        return fth_format("%s", target);
    return fth_format("%.*s/%s", (int)(slash - path), path, target);
}

/* Opens what is neither a file nor a folder. O_NONBLOCK, or a pipe without a reader would be waited
 * for here. */
static fth_status open_special(const char *path, mode_t mode, double patience_s, int *descriptor)
{
    fth_deadline deadline = fth_deadline_in(patience_s);
    for (;;) {
        *descriptor = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (*descriptor >= 0)
            break;
        if (errno == ENXIO && S_ISFIFO(mode) && fth_deadline_passed(deadline))
            return fth_fail(FTH_TIMEOUT, "write to %s: nothing has opened this pipe for reading within %g s", path,
                            patience_s);
        if (errno != EINTR && !(errno == ENXIO && S_ISFIFO(mode)))
            return fth_fail(FTH_IO, "write to %s: %s", path, strerror(errno));
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    /* A device may take its time; fth_output_wait() notices a pipe whose reader stopped reading. */
    if (!S_ISFIFO(mode))
        fcntl(*descriptor, F_SETFL, fcntl(*descriptor, F_GETFL) & ~O_NONBLOCK);
    return FTH_OK;
}

fth_status fth_output_open(const char *name, double patience_s, char **path, int *descriptor)
{
    fth_status status = FTH_OK;
    struct stat facts;
    char *at = fth_format("%s", name);

    *path = NULL;
    *descriptor = -1;
    for (int links = 0;; links++) {
        FTH_REQUIRE(at, FTH_NO_MEMORY, "no memory for a path");
        int number = named_descriptor(at);
        if (number >= 0) {
            FTH_TRY(open_descriptor(at, number, descriptor));
            break;
        }
        if (lstat(at, &facts) != 0)
            break; /* absent, or creating it will say why not */
        if (S_ISREG(facts.st_mode))
            break;
        FTH_REQUIRE(!S_ISDIR(facts.st_mode), FTH_INVALID, "write to %s: it is a folder; name a file in it", at);
        FTH_REQUIRE(!S_ISSOCK(facts.st_mode), FTH_INVALID,
                    "write to %s: it is a socket; name a file, a pipe or a device", at);
        if (!S_ISLNK(facts.st_mode)) {
            FTH_TRY(open_special(at, facts.st_mode, patience_s, descriptor));
            break;
        }
        FTH_REQUIRE(links < MOST_LINKS, FTH_INVALID, "write to %s: its links lead in a circle", name);
        char *target = follow(at);
        FTH_REQUIRE(target, FTH_IO, "follow the link %s: %s", at, strerror(errno));
        free(at);
        at = target;
    }
    *path = fth_format("%s", fth_output_label(at));
    FTH_REQUIRE(*path, FTH_NO_MEMORY, "no memory for a path");

out:
    free(at);
    return status;
}

fth_status fth_output_wait(int descriptor, const char *path, double patience_s)
{
    struct pollfd watched = {.fd = descriptor, .events = POLLOUT};
    int ready;
    do {
        ready = poll(&watched, 1, (int)(1000 * patience_s));
    } while (ready < 0 && errno == EINTR);
    if (ready < 0)
        return fth_fail(FTH_IO, "write to %s: %s", path, strerror(errno));
    if (ready == 0)
        return fth_fail(FTH_TIMEOUT, "write to %s: nothing has been read from this pipe for %g s", path, patience_s);
    return FTH_OK;
}
