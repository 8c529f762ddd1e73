/* Finding runs: the newest of a configuration, and what a user means by an id or a path. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/options.h"
#include "record/record.h"

/* A run is finished if its last whole event is "end". Only the file's tail is read: enough for any two events. */
static bool is_finished(const char *run_folder)
{
    enum { TAIL_BYTES = 1 << 16 };
    char *path = fth_path_join(run_folder, "events.jsonl");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    free(path);
    char *tail = malloc(TAIL_BYTES + 1);
    bool finished = false;
    if (file >= 0 && tail) {
        off_t size = lseek(file, 0, SEEK_END);
        off_t from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
        ssize_t length = pread(file, tail, TAIL_BYTES, from);
        tail[length > 0 ? length : 0] = '\0';
        char *newline = strrchr(tail, '\n');
        while (newline) {
            *newline = '\0';
            char *before = strrchr(tail, '\n');
            json_t *event = json_loads(before ? before + 1 : tail, 0, NULL);
            const char *name = json_string_value(json_object_get(event, "event"));
            finished = name && strcmp(name, "end") == 0;
            bool whole = name != NULL;
            json_decref(event);
            if (whole)
                break;
            newline = before;
        }
    }
    if (file >= 0)
        close(file);
    free(tail);
    return finished;
}

fth_status fth_record_find(const char *runs_folder, const char *identity, bool finished, char **folder)
{
    *folder = NULL;
    DIR *runs = opendir(runs_folder);
    if (!runs && (errno == ENOENT || errno == ENOTDIR))
        return FTH_OK;
    if (!runs)
        return fth_fail(FTH_IO, "open %s: %s", runs_folder, strerror(errno));

    double newest = 0;
    for (struct dirent *entry = readdir(runs); entry; entry = readdir(runs)) {
        if (entry->d_name[0] == '.')
            continue;
        char *candidate = fth_path_join(runs_folder, entry->d_name);
        json_t *run = NULL;
        if (fth_record_read_run(candidate, &run) == FTH_OK) { /* anything else in the folder is not ours */
            const char *its = json_string_value(json_object_get(run, "identity"));
            double created = json_number_value(json_object_get(run, "created_s"));
            if (its && strcmp(its, identity) == 0 && (!*folder || created > newest) &&
                is_finished(candidate) == finished) {
                free(*folder);
                *folder = candidate;
                candidate = NULL;
                newest = created;
            }
        }
        json_decref(run);
        free(candidate);
    }
    closedir(runs);
    return FTH_OK;
}

/* ---- what a user typed ---- */

static bool is_run(const char *folder)
{
    char *path = fth_path_join(folder, "run.json");
    bool exists = fth_file_exists(path);
    free(path);
    return exists;
}

static int is_candidate(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

typedef struct known_run {
    const char *name;
    double created_s;
} known_run;

static int compare_newest_first(const void *a, const void *b)
{
    double left = ((const known_run *)a)->created_s, right = ((const known_run *)b)->created_s;
    return (left < right) - (left > right);
}

static double read_creation(const char *folder)
{
    json_t *run = NULL;
    double created = 0;
    if (fth_record_read_run(folder, &run) == FTH_OK)
        created = json_number_value(json_object_get(run, "created_s"));
    json_decref(run);
    return created;
}

/* Says which runs there are: the one of the nearest name, or the newest few. */
static fth_status fail_unknown_run(const char *runs_folder, const char *typed)
{
    enum { SHOWN = 8 };
    struct dirent **entries = NULL;
    int count = scandir(runs_folder, &entries, is_candidate, alphasort);
    const char **names = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof *names);
    known_run *runs = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof *runs);
    char *list = fth_format("%s", "");
    size_t found = 0;
    for (int i = 0; i < count && names && runs; i++) {
        char *path = fth_path_join(runs_folder, entries[i]->d_name);
        if (is_run(path)) {
            names[found] = entries[i]->d_name;
            runs[found++] = (known_run){entries[i]->d_name, read_creation(path)};
        }
        free(path);
    }
    if (found > 0)
        qsort(runs, found, sizeof *runs, compare_newest_first);
    for (size_t i = 0; i < found && i < SHOWN; i++) {
        char *longer = fth_format("%s%s%s", list, *list ? ", " : "", runs[i].name);
        free(list);
        list = longer;
    }
    const char *nearest = names ? fth_nearest_name(typed, names) : NULL;
    if (fth_folder_exists(typed))
        fth_fail(FTH_INVALID, "%s is not a run: it has no run.json", typed);
    else if (found == 0)
        fth_fail(FTH_INVALID, "there is no run \"%s\": %s holds no runs", typed, runs_folder);
    else if (nearest)
        fth_fail(FTH_INVALID, "there is no run \"%s\" in %s; did you mean %s?", typed, runs_folder, nearest);
    else
        fth_fail(FTH_INVALID, "there is no run \"%s\" in %s; %s: %s%s", typed, runs_folder,
                 found > SHOWN ? "the newest are" : "there are", list, found > SHOWN ? ", ..." : "");
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    free(names);
    free(runs);
    free(list);
    return FTH_INVALID;
}

fth_status fth_record_locate(const char *runs_folder, const char *id_or_path, char **folder)
{
    *folder = NULL;
    if (!*id_or_path)
        return fail_unknown_run(runs_folder, id_or_path);
    char *typed = fth_format("%s", id_or_path);
    for (size_t length = strlen(typed); length > 1 && typed[length - 1] == '/'; length--)
        typed[length - 1] = '\0';

    char *inside = fth_path_join(runs_folder, typed);
    if (!strchr(typed, '/') && is_run(inside)) {
        *folder = inside;
        inside = NULL;
    } else if (is_run(typed)) {
        *folder = typed;
        typed = NULL;
    }
    free(inside);
    free(typed);
    return *folder ? FTH_OK : fail_unknown_run(runs_folder, id_or_path);
}
