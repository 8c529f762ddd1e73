/* See files.h. */
#include "platform/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t max_json_bytes = 64 << 20;

/* ---- processes ---- */

/* When a process was started, in kernel ticks; 0: it does not exist. Read from its first thread,
 * because QEMU fakes /proc/PID/stat. */
static unsigned long long start_of(long process)
{
    char path[64], text[1024];
    unsigned long long start = 0;
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/stat", process, process);
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[got] = '\0';
    const char *after_name = strrchr(text, ')');
    if (after_name &&
        sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &start) == 1)
        return start;
    return 0;
}

void fth_owner_self(char owner[FTH_OWNER_SIZE])
{
    snprintf(owner, FTH_OWNER_SIZE, "%ld-%llu", (long)getpid(), start_of(getpid()));
}

bool fth_owner_is_alive(const char *text)
{
    long process;
    unsigned long long start;
    return sscanf(text, "%ld-%llu", &process, &start) == 2 && start != 0 && start_of(process) == start;
}

fth_status fth_make_id(size_t bytes, char *id)
{
    unsigned char random[32];
    if (bytes > sizeof random || getrandom(random, bytes, 0) != (ssize_t)bytes)
        return fth_fail(FTH_IO, "no random numbers: %s", strerror(errno));
    fth_hex_encode(random, bytes, id);
    return FTH_OK;
}

/* ---- files ---- */

fth_status fth_write_private(const char *path, const void *bytes, size_t size_bytes)
{
    fth_status status = FTH_OK;
    int file = path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    FTH_REQUIRE(file >= 0, FTH_IO, "create %s: %s", path ? path : "a file", strerror(errno));
    for (size_t done = 0; done < size_bytes;) {
        ssize_t wrote = write(file, (const char *)bytes + done, size_bytes - done);
        FTH_REQUIRE(wrote >= 0 || errno == EINTR, errno == ENOSPC ? FTH_NO_SPACE : FTH_IO, "write %s: %s", path,
                    strerror(errno));
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    FTH_REQUIRE(fsync(file) == 0, FTH_IO, "write %s: %s", path, strerror(errno));

out:
    if (file >= 0)
        close(file);
    return status;
}

fth_status fth_json_write(const char *path, const json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(2));
    if (!text)
        return fth_fail(FTH_NO_MEMORY, "no memory for %s", path);
    fth_status status = fth_file_write_all(path, text, strlen(text));
    free(text);
    return status;
}

fth_status fth_json_read(const char *path, json_t **json)
{
    fth_status status = FTH_OK;
    char *text = NULL;
    size_t size;
    json_error_t wrong;

    *json = NULL;
    FTH_TRY(fth_file_read_all(path, max_json_bytes, &text, &size));
    *json = json_loadb(text, size, 0, &wrong);
    FTH_REQUIRE(json_is_object(*json), FTH_CORRUPT, "read %s: %s", path, *json ? "it is not an object" : wrong.text);

out:
    if (status != FTH_OK) {
        json_decref(*json);
        *json = NULL;
    }
    free(text);
    return status;
}

const char *fth_json_text(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : otherwise;
}

int fth_json_int(const json_t *object, const char *key)
{
    json_int_t number = json_integer_value(json_object_get(object, key));
    return number > INT_MAX ? INT_MAX : number < INT_MIN ? INT_MIN : (int)number;
}
