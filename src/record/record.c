/* Writing a run's record: the folder, its lock, run.json and the events.
 *
 * Each event is one write() to a file opened for appending, so that a kill can tear at most the
 * last line. If a write is cut short (a full disk), the next event starts on a new line. */
#include "record/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/record_internal.h"

/* Enough digits for a wall time in milliseconds; short decimals stay short. */
#define EVENT_FORMAT  (JSON_COMPACT | JSON_REAL_PRECISION(13))
#define RUN_FORMAT    (JSON_INDENT(2) | JSON_REAL_PRECISION(15))
#define MAX_ID_LENGTH 120

struct fth_record {
    char *folder, *id;
    int lock, events;
    bool torn; /* the last line was not written to its end */
};

/* ---- names ---- */

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

fth_status fth_record_check_id(const char *id)
{
    bool plain = id[0] != '.' && id[0] != '-' && strlen(id) <= MAX_ID_LENGTH;
    for (const char *c = id; *c; c++)
        plain = plain && is_plain(*c);
    if (!plain)
        return fth_fail(FTH_INVALID,
                        "\"%s\" cannot name a run: use letters, digits, '.', '_' and '-' (at most %d, beginning with "
                        "a letter, a digit or '_')",
                        id, MAX_ID_LENGTH);
    return FTH_OK;
}

fth_status fth_record_check_runs_folder(const char *folder)
{
    const char *colon = strchr(folder, ':');
    if (colon && strncmp(colon, "://", 3) == 0 && !memchr(folder, '/', (size_t)(colon - folder)))
        return fth_fail(FTH_INVALID,
                        "%s is not a folder on this machine; --checkpoints keeps a run in a store, `farthing store ls` "
                        "lists a store, and `farthing report URL` shows a run in it",
                        folder);
    return FTH_OK;
}

/* "mnist-cnn-digits-20261115-110311-3f2a" */
char *fth_record_make_id(const char *hint)
{
    char name[64];
    size_t length = 0;
    for (const char *c = hint ? hint : ""; *c && length < sizeof name - 1; c++) {
        char next = is_plain(*c) ? *c : '-';
        bool separator = next == '-' || next == '.';
        if (separator && (length == 0 || name[length - 1] == '-'))
            continue;
        name[length++] = next;
    }
    while (length > 0 && name[length - 1] == '-')
        length--;
    name[length] = '\0';

    time_t now = time(NULL);
    struct tm parts;
    char moment[32];
    gmtime_r(&now, &parts);
    strftime(moment, sizeof moment, "%Y%m%d-%H%M%S", &parts);

    struct timespec precise;
    clock_gettime(CLOCK_MONOTONIC, &precise);
    uint64_t mixed = fth_random_mix((uint64_t)precise.tv_nsec ^ ((uint64_t)getpid() << 32) ^ (uint64_t)precise.tv_sec);
    return fth_format("%s-%s-%04x", length ? name : "run", moment, (unsigned)(mixed & 0xffff));
}

/* ---- opening ---- */

/* True if `file` is still what `path` names: a process that removed the run meanwhile also removed
 * its lock. */
static bool is_at(int file, const char *path)
{
    struct stat held, named;
    return fstat(file, &held) == 0 && stat(path, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

static fth_status fail_locked(const fth_record *record)
{
    char owner[32];
    ssize_t size = pread(record->lock, owner, sizeof owner - 1, 0);
    owner[size > 0 ? size : 0] = '\0';
    return fth_fail(FTH_INVALID, "run %s is being trained by process %.*s; wait for it or stop it first", record->id,
                    (int)strcspn(owner, "\n"), size > 0 ? owner : "?");
}

/* One attempt. *taken is false if the run is being removed: its folder or the opened lock is gone.
 * fth_record_is_locked() holds the lock only briefly, so this waits for it. */
static fth_status try_lock(fth_record *record, const char *path, bool *taken)
{
    enum { LOOKS = 10, LOOK_US = 10000 };
    fth_status status = FTH_OK;

    *taken = false;
    record->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (record->lock < 0 && errno == ENOENT)
        return FTH_OK;
    FTH_REQUIRE(record->lock >= 0, FTH_IO, "open %s: %s", path, strerror(errno));
    for (int looks = 1; flock(record->lock, LOCK_EX | LOCK_NB) != 0; looks++) {
        FTH_REQUIRE(errno == EWOULDBLOCK || errno == EINTR, FTH_IO, "lock %s: %s", path, strerror(errno));
        if (looks == LOOKS) {
            status = fail_locked(record);
            goto out;
        }
        usleep(LOOK_US);
    }
    *taken = is_at(record->lock, path);

out:
    if (!*taken && record->lock >= 0) {
        close(record->lock);
        record->lock = -1;
    }
    return status;
}

/* With `create` the folder is created, again if the run was removed meanwhile. */
static fth_status take_lock(fth_record *record, bool create)
{
    const double patience_s = 5;
    fth_status status = FTH_OK;
    char *path = fth_path_join(record->folder, ".lock");
    bool taken = false;

    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    for (fth_deadline until = fth_deadline_in(create ? patience_s : 0); !taken;) {
        bool last = fth_deadline_passed(until);
        if (create)
            FTH_TRY(fth_folder_create(record->folder));
        FTH_TRY(try_lock(record, path, &taken));
        if (last)
            break;
    }
    FTH_REQUIRE(taken, FTH_IO, "lock %s: the run has been removed", path);
    /* For fail_locked() alone; the lock holds without it. */
    char owner[32];
    int length = snprintf(owner, sizeof owner, "%ld\n", (long)getpid());
    if (ftruncate(record->lock, 0) != 0 || pwrite(record->lock, owner, (size_t)length, 0) != length)
        status = fth_fail(FTH_IO, "write %s: %s", path, strerror(errno));

out:
    free(path);
    return status;
}

bool fth_record_is_locked(const char *run_folder)
{
    char *path = fth_path_join(run_folder, ".lock");
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool locked = file >= 0 && flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (file >= 0)
        close(file);
    free(path);
    return locked;
}

/* Removes temporaries of a process that was killed while writing run.json or a model. The lock is
 * held. */
static void remove_leftovers(const fth_record *record)
{
    DIR *directory = opendir(record->folder);
    for (struct dirent *entry = directory ? readdir(directory) : NULL; entry; entry = readdir(directory))
        if (fth_file_is_temporary(entry->d_name))
            unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
}

static fth_status open_events(fth_record *record)
{
    char *path = fth_path_join(record->folder, "events.jsonl");
    fth_status status = FTH_OK;

    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    record->events = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    FTH_REQUIRE(record->events >= 0, FTH_IO, "open %s: %s", path, strerror(errno));

    off_t size = lseek(record->events, 0, SEEK_END);
    char last = '\n';
    if (size > 0 && pread(record->events, &last, 1, size - 1) != 1)
        status = fth_fail(FTH_IO, "read %s: %s", path, strerror(errno));
    record->torn = last != '\n';

out:
    free(path);
    return status;
}

static fth_status write_run(const fth_record *record, const json_t *run)
{
    char *path = fth_path_join(record->folder, "run.json");
    char *text = json_dumps(run, RUN_FORMAT);
    fth_status status = FTH_OK;

    FTH_REQUIRE(text, FTH_INVALID, "the configuration of run %s cannot be written as JSON", record->id);
    FTH_TRY(fth_file_write_all(path, text, strlen(text)));

out:
    free(text);
    free(path);
    return status;
}

static fth_status describe_run(json_t *run, const json_t *configuration, const json_t *machine)
{
    bool ok = json_object_set_new(run, "farthing", json_string(FTH_VERSION)) == 0;
    if (configuration)
        ok = ok && json_object_update_missing(run, (json_t *)configuration) == 0;
    if (machine)
        ok = ok && json_object_set_new(run, "machine", json_deep_copy(machine)) == 0;
    return ok ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the run's description");
}

fth_status fth_record_create(const char *runs_folder, const char *id, const char *hint, const json_t *configuration,
                             const json_t *machine, fth_record **result)
{
    fth_status status = FTH_OK;
    fth_record *record = NULL;
    json_t *run = NULL;
    char *run_path = NULL;

    *result = NULL;
    FTH_TRY(fth_record_check_id(id ? id : ""));
    FTH_TRY(fth_allocate(1, sizeof *record, &record));
    record->lock = record->events = -1;
    record->id = id && *id ? fth_format("%s", id) : fth_record_make_id(hint);
    record->folder = fth_path_join(runs_folder, record->id);
    run_path = fth_path_join(record->folder, "run.json");
    FTH_REQUIRE(run_path, FTH_NO_MEMORY, "no memory for a path");

    FTH_TRY(take_lock(record, true));
    /* Checked under the lock: another process may have started and ended a run of this name. */
    bool begun = fth_record_has_begun(record->folder);
    FTH_REQUIRE(!begun || !fth_file_exists(run_path), FTH_INVALID,
                "there is a run %s already; continue it with --resume %s or choose another --name", record->id,
                record->id);
    FTH_REQUIRE(!begun, FTH_INVALID,
                "%s holds a run's events or checkpoints but no run.json; move it away or choose another --name",
                record->folder);
    fth_record_remove_files(record->folder); /* of a process that was killed before its first step */
    FTH_TRY(open_events(record));

    char moment[32];
    const json_t *known = json_object_get(configuration, "created_s");
    double created_s = json_is_number(known) ? json_number_value(known) : fth_clock_wall_seconds();
    fth_clock_format_utc(created_s, moment, sizeof moment);
    run = json_pack("{s:s, s:s, s:f}", "id", record->id, "created", moment, "created_s", created_s);
    FTH_REQUIRE(run, FTH_NO_MEMORY, "no memory for the run's description");
    FTH_TRY(describe_run(run, configuration, machine));
    FTH_TRY(write_run(record, run));
    *result = record;
    record = NULL;

out:
    json_decref(run);
    free(run_path);
    fth_record_free(record);
    return status;
}

fth_status fth_record_resume(const char *run_folder, fth_record **result)
{
    fth_status status = FTH_OK;
    fth_record *record = NULL;
    json_t *run = NULL;

    *result = NULL;
    FTH_TRY(fth_record_read_run(run_folder, &run));
    FTH_TRY(fth_allocate(1, sizeof *record, &record));
    record->lock = record->events = -1;
    record->folder = fth_format("%s", run_folder);
    const char *id = json_string_value(json_object_get(run, "id"));
    record->id = fth_format("%s", id ? id : run_folder);
    FTH_TRY(take_lock(record, false));
    FTH_TRY(open_events(record));
    remove_leftovers(record);
    if (record->torn && write(record->events, "\n", 1) == 1)
        record->torn = false;
    *result = record;
    record = NULL;

out:
    json_decref(run);
    fth_record_free(record);
    return status;
}

/* Is the run.json in the folder that of the same run as the text `run`? */
static bool is_of_run(const char *run_folder, const char *run)
{
    json_t *here = NULL, *there = json_loads(run, 0, NULL);
    bool same = fth_record_read_run(run_folder, &here) == FTH_OK && there &&
                json_equal(json_object_get(here, "created_s"), json_object_get(there, "created_s"));
    json_decref(here);
    json_decref(there);
    return same;
}

fth_status fth_record_restore(const char *run_folder, const char *run, const char *events, size_t events_bytes)
{
    fth_status status = FTH_OK;
    fth_record *record = NULL;
    char *run_path = fth_path_join(run_folder, "run.json"), *events_path = fth_path_join(run_folder, "events.jsonl");
    const void *known = NULL;
    size_t known_bytes = 0;

    FTH_TRY(fth_allocate(1, sizeof *record, &record));
    record->lock = record->events = -1;
    record->folder = fth_format("%s", run_folder);
    record->id = fth_format("%s", run_folder);
    FTH_TRY(take_lock(record, true));
    if (!is_of_run(run_folder, run)) /* left by a killed process: its run.json must not be combined with these events */
        fth_record_remove_files(run_folder);
    if (fth_file_exists(events_path))
        FTH_TRY(fth_file_map(events_path, &known, &known_bytes));
    if (known_bytes < events_bytes || (events_bytes > 0 && memcmp(known, events, events_bytes) != 0))
        FTH_TRY(fth_file_write_all(events_path, events, events_bytes));
    FTH_TRY(fth_file_write_all(run_path, run, strlen(run)));

out:
    fth_file_unmap(known, known_bytes);
    fth_record_free(record);
    free(run_path);
    free(events_path);
    return status;
}

fth_status fth_record_configure(fth_record *record, const json_t *configuration, const json_t *machine)
{
    fth_status status = FTH_OK;
    json_t *old = NULL, *run = NULL;

    FTH_TRY(fth_record_read_run(record->folder, &old));
    run = json_object();
    FTH_REQUIRE(run, FTH_NO_MEMORY, "no memory for the run's description");
    static const char *const kept[] = {"id", "created", "created_s"};
    for (size_t i = 0; i < FTH_COUNT_OF(kept); i++)
        if (json_object_get(old, kept[i]))
            json_object_set(run, kept[i], json_object_get(old, kept[i]));
    FTH_TRY(describe_run(run, configuration, machine));
    FTH_TRY(write_run(record, run));

out:
    json_decref(old);
    json_decref(run);
    return status;
}

bool fth_record_discard_unbegun(fth_record *record)
{
    if (fth_record_has_begun(record->folder))
        return false;
    fth_record_remove_files(record->folder);
    fth_record_remove_folder(record->folder); /* with the lock, which is held */
    return true;
}

void fth_record_free(fth_record *record)
{
    if (!record)
        return;
    if (record->events >= 0)
        close(record->events);
    if (record->lock >= 0)
        close(record->lock); /* and with it the lock */
    free(record->folder);
    free(record->id);
    free(record);
}

const char *fth_record_folder(const fth_record *record)
{
    return record->folder;
}

const char *fth_record_id(const fth_record *record)
{
    return record->id;
}

/* ---- events ---- */

static fth_status write_line(fth_record *record, const char *text, size_t size)
{
    if (record->torn) {
        if (write(record->events, "\n", 1) != 1)
            return fth_fail(FTH_IO, "write %s/events.jsonl: %s", record->folder, strerror(errno));
        record->torn = false;
    }
    while (size > 0) {
        ssize_t written = write(record->events, text, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return fth_fail(FTH_IO, "write %s/events.jsonl: %s", record->folder,
                            written < 0 ? strerror(errno) : "nothing was written");
        record->torn = (size_t)written < size;
        text += written;
        size -= (size_t)written;
    }
    return FTH_OK;
}

fth_status fth_record_append(fth_record *record, const char *name, json_t *event)
{
    fth_status status = FTH_OK;
    char *text = NULL, *line = NULL;

    FTH_REQUIRE(event, FTH_NO_MEMORY, "no memory for a \"%s\" event", name);
    double now = (double)(int64_t)(fth_clock_wall_seconds() * 1000) / 1000;
    json_object_set_new(event, "event", json_string(name));
    json_object_set_new(event, "time", json_real(now));
    if (!json_object_get(event, "process_s"))
        json_object_set_new(event, "process_s", json_real(round(1e3 * fth_clock_process_seconds()) / 1e3));
    text = json_dumps(event, EVENT_FORMAT);
    FTH_REQUIRE(text, FTH_INVALID, "a \"%s\" event cannot be written as JSON", name);
    line = fth_format("%s\n", text);
    FTH_TRY(write_line(record, line, strlen(line)));

out:
    free(line);
    free(text);
    json_decref(event);
    return status;
}

fth_status fth_record_sync(fth_record *record)
{
    if (fdatasync(record->events) != 0)
        return fth_fail(FTH_IO, "sync %s/events.jsonl: %s", record->folder, strerror(errno));
    return FTH_OK;
}
