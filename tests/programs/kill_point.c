/* Loaded into a program (LD_PRELOAD), kills it as a power failure would, at a moment that the test
 * names:
 *
 *     KILL_POINT="before rename /run.json"    as a file is about to take its place under a path that ends so
 *     KILL_POINT="after rename /lease.json"   when it just has
 *     KILL_POINT="before write \"step\""      as something that holds this text is about to be written to a file
 *     KILL_POINT="after unlink /run.json"     when a file of such a path has just been removed */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_at(const char *when, const char *call)
{
    char want[64];
    const char *point = getenv("KILL_POINT");
    int length = snprintf(want, sizeof want, "%s %s ", when, call);
    return point && strncmp(point, want, (size_t)length) == 0;
}

/* What the third word of the point says. */
static const char *get_text(void)
{
    const char *point = getenv("KILL_POINT"), *call = strchr(point, ' ');
    return strchr(call + 1, ' ') + 1;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void pass(const char *when, const char *call, const char *path)
{
    if (!is_at(when, call))
        return;
    const char *text = get_text();
    size_t length = strlen(path), end = strlen(text);
    if (length >= end && strcmp(path + length - end, text) == 0)
        die();
}

static void pass_bytes(const char *when, const void *bytes, size_t size)
{
    if (is_at(when, "write") && memmem(bytes, size, get_text(), strlen(get_text())))
        die();
}

/* POSIX's way to call what dlsym() finds. */
#define NEXT(name, ...)                                                                                                \
    int (*next)(__VA_ARGS__);                                                                                          \
    *(void **)&next = dlsym(RTLD_NEXT, #name)

int rename(const char *from, const char *to)
{
    NEXT(rename, const char *, const char *);
    pass("before", "rename", to);
    int result = next(from, to);
    pass("after", "rename", to);
    return result;
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    NEXT(renameat2, int, const char *, int, const char *, unsigned);
    pass("before", "rename", to);
    int result = next(from_folder, from, to_folder, to, flags);
    pass("after", "rename", to);
    return result;
}

int unlink(const char *path)
{
    NEXT(unlink, const char *);
    pass("before", "unlink", path);
    int result = next(path);
    pass("after", "unlink", path);
    return result;
}

ssize_t write(int file, const void *bytes, size_t size)
{
    ssize_t (*next)(int, const void *, size_t);
    *(void **)&next = dlsym(RTLD_NEXT, "write");
    pass_bytes("before", bytes, size);
    ssize_t result = next(file, bytes, size);
    pass_bytes("after", bytes, size);
    return result;
}
