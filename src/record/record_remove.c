/* Removing runs, and the remains of runs that never took a step.
 *
 * run.json goes last of a run's own files, and the lock after it, so that a process killed half-way
 * leaves a run that can be removed again. Only what a run makes is removed, and no symbolic link is
 * followed.  */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/record_internal.h"

/* ---- whole runs ---- */

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* What a run on text, or on an exported network, makes beside its record. */
#define OTHER_NAMES "tokenizer.json", "tokenizer_config.json", "vocab.txt", "config.json", "network.json"

/* What a run makes in its folder. The record last. */
static const char *const own_names[] = {"checkpoints", "workers",      "best.safetensors", "last.safetensors",
                                        OTHER_NAMES,   "events.jsonl", "run.json"};

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Is `name`, in a run's `folder`, something that runs create? Users may have put other files there.
 * A server's workers have their own runs in workers/1, workers/2, ..., and their output in
 * workers/1.txt. */
static bool is_own(const char *folder, const char *name, bool is_folder)
{
    (void)is_folder;
    if (strcmp(folder, "checkpoints") == 0)
        return begins_with(name, "step-") || begins_with(name, "log-") || fth_file_is_temporary(name) ||
               strcmp(name, ".farthing-lock") == 0;
    if (strcmp(folder, "workers") == 0) {
        size_t digits = strspn(name, "0123456789");
        return digits > 0 && (!name[digits] || strcmp(name + digits, ".txt") == 0);
    }
    bool own = strcmp(name, ".lock") == 0 || fth_file_is_temporary(name);
    for (size_t i = 0; i < FTH_COUNT_OF(own_names); i++)
        own = own || strcmp(name, own_names[i]) == 0;
    return own;
}

/* Opens a run's folder, unless it is a link; NULL if that fails. */
static DIR *open_run_folder(const char *run_folder)
{
    int folder = open(run_folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = folder >= 0 ? fdopendir(folder) : NULL;
    if (!directory && folder >= 0)
        close(folder);
    return directory;
}

/* A run's folder itself: not a link to one, and with a run.json that says so. */
static fth_status check_is_run(const char *run_folder)
{
    fth_status status = FTH_OK;
    struct stat facts;
    json_t *run = NULL;

    FTH_REQUIRE(lstat(run_folder, &facts) == 0, FTH_INVALID, "there is no run %s: %s", run_folder, strerror(errno));
    FTH_REQUIRE(!S_ISLNK(facts.st_mode), FTH_INVALID,
                "%s is a symbolic link: remove the link, or name the folder it leads to", run_folder);
    FTH_TRY(fth_record_read_run(run_folder, &run));
    FTH_REQUIRE(json_is_string(json_object_get(run, "id")) && json_is_number(json_object_get(run, "created_s")),
                FTH_INVALID, "%s is not a run: its run.json describes something else", run_folder);

out:
    json_decref(run);
    return status;
}

fth_status fth_record_remove(const char *run_folder, uint64_t *freed_bytes, bool *others_left)
{
    fth_status status = FTH_OK;
    fth_record *record = NULL;
    uint64_t freed = 0;
    int folder = -1;

    FTH_TRY(check_is_run(run_folder));
    FTH_TRY(fth_record_resume(run_folder, &record)); /* the lock */
    folder = open(run_folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    FTH_REQUIRE(folder >= 0, FTH_IO, "open %s: %s", run_folder, strerror(errno));
    for (size_t i = 0; i < FTH_COUNT_OF(own_names); i++) {
        char *path = fth_path_join(run_folder, own_names[i]);
        status = path ? fth_remove_tree_at(folder, own_names[i], path, is_own, &freed)
                      : fth_fail(FTH_NO_MEMORY, "no memory for a path");
        free(path);
        FTH_TRY(status);
    }
    fth_record_remove_folder(run_folder);
    if (others_left)
        *others_left = fth_folder_exists(run_folder);

out:
    if (freed_bytes)
        *freed_bytes = freed;
    if (folder >= 0)
        close(folder);
    fth_record_free(record);
    return status;
}

/* ---- folders that hold nothing but runs ---- */

/* What a run has in a store (train/run/run_store.h), beyond the names it has in its folder. */
static const char *const store_names[] = {"events", "best", "lease.json", ".farthing", ".farthing-lock"};

static bool is_run_name(const char *name)
{
    bool known = is_own("", name, false);
    for (size_t i = 0; i < FTH_COUNT_OF(store_names); i++)
        known = known || strcmp(name, store_names[i]) == 0;
    return known;
}

/* True if the folder at `path` has entries, and `holds` for each of them. */
static bool all_entries(const char *path, bool (*holds)(const char *path, const char *name))
{
    DIR *directory = open_run_folder(path);
    bool all = directory != NULL, any = false;
    for (struct dirent *entry = directory ? readdir(directory) : NULL; all && entry; entry = readdir(directory)) {
        if (is_dots(entry->d_name))
            continue;
        any = true;
        all = holds(path, entry->d_name);
    }
    if (directory)
        closedir(directory);
    return all && any;
}

static bool has_run_name(const char *path, const char *name)
{
    (void)path;
    return is_run_name(name);
}

static bool is_whole_run(const char *path, const char *name)
{
    char *folder = *name ? fth_path_join(path, name) : fth_format("%s", path);
    bool run = folder && check_is_run(folder) == FTH_OK && all_entries(folder, has_run_name);
    free(folder);
    return run;
}

bool fth_record_is_runs_alone(const char *path)
{
    bool inside = false;
    if (is_whole_run(path, "") || all_entries(path, is_whole_run))
        return true;
    char *run = fth_format("%s", path);
    for (char *slash = run ? strrchr(run, '/') : NULL; slash && slash > run && !inside; slash = strrchr(run, '/')) {
        *slash = '\0';
        inside = is_run_name(slash + 1) && is_whole_run(run, "");
    }
    free(run);
    return inside;
}

uint64_t fth_record_disk_bytes(const char *run_folder)
{
    char *const paths[] = {(char *)(uintptr_t)run_folder, NULL};
    uint64_t bytes = 0;
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (const FTSENT *entry = tree ? fts_read(tree) : NULL; entry; entry = fts_read(tree))
        if (entry->fts_info != FTS_DP && entry->fts_info != FTS_NS)
            bytes += (uint64_t)entry->fts_statp->st_blocks * 512;
    if (tree)
        fts_close(tree);
    return bytes;
}

/* ---- runs that have not begun ---- */

void fth_record_remove_files(const char *run_folder)
{
    static const char *const files[] = {OTHER_NAMES, "events.jsonl", "run.json"};
    DIR *directory = open_run_folder(run_folder);
    if (!directory)
        return;
    int folder = dirfd(directory);
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        if (fth_file_is_temporary(entry->d_name))
            unlinkat(folder, entry->d_name, 0);
    unlinkat(folder, "checkpoints", AT_REMOVEDIR); /* made for a download; empty, or the run had begun */
    for (size_t i = 0; i < FTH_COUNT_OF(files); i++)
        unlinkat(folder, files[i], 0);
    closedir(directory);
}

void fth_record_remove_folder(const char *run_folder)
{
    DIR *directory = open_run_folder(run_folder);
    bool only_its_lock = directory != NULL;
    for (struct dirent *entry = directory ? readdir(directory) : NULL; entry; entry = readdir(directory))
        only_its_lock = only_its_lock && (is_dots(entry->d_name) || strcmp(entry->d_name, ".lock") == 0);
    if (only_its_lock) {
        unlinkat(dirfd(directory), ".lock", 0);
        rmdir(run_folder);
    }
    if (directory)
        closedir(directory);
}

void fth_record_remove_copy(const char *run_folder)
{
    fth_record_remove_files(run_folder);
    fth_record_remove_folder(run_folder);
}

void fth_record_sweep(const char *runs_folder, const char *identity)
{
    DIR *runs = opendir(runs_folder);
    for (struct dirent *entry = runs ? readdir(runs) : NULL; entry; entry = readdir(runs)) {
        if (entry->d_name[0] == '.')
            continue;
        char *folder = fth_path_join(runs_folder, entry->d_name);
        json_t *run = NULL;
        fth_record *record = NULL;
        if (fth_record_read_run(folder, &run) == FTH_OK) {
            const char *its = json_string_value(json_object_get(run, "identity"));
            bool left = its && strcmp(its, identity) == 0 && !fth_record_exists(folder);
            if (left && fth_record_resume(folder, &record) == FTH_OK) /* no process uses it, and none will now */
                fth_record_discard_unbegun(record);
        }
        fth_record_free(record);
        json_decref(run);
        free(folder);
    }
    if (runs)
        closedir(runs);
}
