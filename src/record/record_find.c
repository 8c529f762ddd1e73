/* Finding runs: the newest of a configuration, and by an id or path that the user typed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/options.h"
#include "record/record.h"

/* Only the file's tail is read: enough for any two events. */
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

/* ---- has it begun? ---- */

bool fth_record_events_have_begun(const char *events, size_t size)
{
    bool found = false;
    for (size_t at = 0; at < size && !found;) {
        const char *newline = memchr(events + at, '\n', size - at);
        if (!newline)
            break;
        size_t length = (size_t)(newline - (events + at));
        json_t *event = json_loadb(events + at, length, 0, NULL);
        const char *name = json_string_value(json_object_get(event, "event"));
        found = name && (strcmp(name, "step") == 0 || strcmp(name, "end") == 0);
        json_decref(event);
        at += length + 1;
    }
    return found;
}

static bool has_entries(const char *folder)
{
    DIR *directory = folder ? opendir(folder) : NULL;
    bool found = false;
    for (struct dirent *entry = directory ? readdir(directory) : NULL; entry && !found; entry = readdir(directory))
        found = entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    return found;
}

bool fth_record_has_begun(const char *run_folder)
{
    char *events = fth_path_join(run_folder, "events.jsonl"), *checkpoints = fth_path_join(run_folder, "checkpoints");
    const void *bytes = NULL;
    size_t size = 0;
    /* The first step is among the first events. A file that cannot be read counts as having
     * steps. */
    bool begun = has_entries(checkpoints);
    if (!begun && fth_file_exists(events))
        begun = fth_file_map(events, &bytes, &size) != FTH_OK || fth_record_events_have_begun(bytes, size);
    fth_file_unmap(bytes, size);
    free(events);
    free(checkpoints);
    return begun;
}

static bool has_run_file(const char *folder)
{
    char *path = fth_path_join(folder, "run.json");
    bool has = fth_file_exists(path);
    free(path);
    return has;
}

bool fth_record_exists(const char *run_folder)
{
    return has_run_file(run_folder) && (fth_record_has_begun(run_folder) || fth_record_is_locked(run_folder));
}

/* ---- by configuration ---- */

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
            if (its && (!identity || strcmp(its, identity) == 0) && (!*folder || created > newest) &&
                is_finished(candidate) == finished && fth_record_exists(candidate)) {
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

/* ---- all of them ---- */

static int is_candidate(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

typedef struct known_run {
    char *id;
    double created_s;
} known_run;

static int compare_newest_first(const void *a, const void *b)
{
    const known_run *left = a, *right = b;
    if (left->created_s == right->created_s)
        return strcmp(left->id, right->id);
    return left->created_s < right->created_s ? 1 : -1;
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

fth_status fth_record_list_runs(const char *runs_folder, fth_record_list *list)
{
    fth_status status = FTH_OK;
    struct dirent **entries = NULL;
    known_run *runs = NULL;
    int count = scandir(runs_folder, &entries, is_candidate, NULL);

    *list = (fth_record_list){0};
    FTH_REQUIRE(count >= 0 || errno == ENOENT, FTH_IO, "open %s: %s", runs_folder, strerror(errno));
    size_t most = count > 0 ? (size_t)count : 0, found = 0;
    FTH_TRY(fth_allocate(most + 1, sizeof *runs, &runs));
    FTH_TRY(fth_allocate(most + 1, sizeof *list->ids, &list->ids)); /* with a NULL at the end */
    for (size_t i = 0; i < most; i++) {
        char *path = fth_path_join(runs_folder, entries[i]->d_name);
        if (fth_record_exists(path))
            runs[found++] = (known_run){fth_format("%s", entries[i]->d_name), read_creation(path)};
        free(path);
    }
    if (found > 0)
        qsort(runs, found, sizeof *runs, compare_newest_first);
    for (list->count = 0; list->count < found; list->count++)
        list->ids[list->count] = runs[list->count].id;

out:
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    free(runs);
    return status;
}

void fth_record_list_release(fth_record_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->ids[i]);
    free(list->ids);
    *list = (fth_record_list){0};
}

char *fth_record_list_format(const fth_record_list *list)
{
    enum { SHOWN = 8 };
    char *text = fth_format("%s", list->count > 0 ? list->ids[0] : "");
    for (size_t i = 1; i < list->count && i <= SHOWN; i++) {
        char *longer = fth_format("%s, %s", text ? text : "", i < SHOWN ? list->ids[i] : "...");
        free(text);
        text = longer;
    }
    return text;
}

fth_status fth_record_list_unfinished(const char *runs_folder, fth_record_list *list)
{
    size_t kept = 0;
    fth_status status = fth_record_list_runs(runs_folder, list);
    for (size_t i = 0; status == FTH_OK && i < list->count; i++) {
        char *folder = fth_path_join(runs_folder, list->ids[i]), *id = list->ids[i];
        const bool keep = folder && !is_finished(folder) && !fth_record_is_locked(folder);
        free(folder);
        list->ids[i] = NULL;
        if (keep)
            list->ids[kept++] = id;
        else
            free(id);
    }
    list->count = status == FTH_OK ? kept : 0;
    return status;
}

/* ---- what a user typed ---- */

/* Is there a folder of a run of this name that took no step? */
static bool was_made(const char *runs_folder, const char *typed)
{
    char *inside = fth_path_join(runs_folder, typed);
    bool made = *typed && (has_run_file(inside) || has_run_file(typed));
    free(inside);
    return made;
}

/* Lists runs in the message: the one with the nearest name, or the newest few. */
static fth_status fail_unknown_run(const char *runs_folder, const char *typed)
{
    fth_record_list list = {0};
    if (fth_record_list_runs(runs_folder, &list) != FTH_OK)
        list.count = 0;
    char *known = fth_record_list_format(&list);
    const char *nearest = list.count > 0 ? fth_nearest_name(typed, (const char *const *)list.ids) : NULL;
    if (was_made(runs_folder, typed))
        fth_set_error("run %s never took a step: there is nothing to continue; start it with --name", typed);
    else if (fth_folder_exists(typed))
        fth_set_error("%s is not a run: it has no run.json", typed);
    else if (list.count == 0)
        fth_set_error("there is no run \"%s\": %s holds no runs", typed, runs_folder);
    else if (nearest)
        fth_set_error("there is no run \"%s\" in %s; did you mean %s?", typed, runs_folder, nearest);
    else
        fth_set_error("there is no run \"%s\" in %s; it has %s", typed, runs_folder, known ? known : "");
    fth_record_list_release(&list);
    free(known);
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
    if (!strchr(typed, '/') && fth_record_exists(inside)) {
        *folder = inside;
        inside = NULL;
    } else if (fth_record_exists(typed)) {
        *folder = typed;
        typed = NULL;
    }
    free(inside);
    free(typed);
    return *folder ? FTH_OK : fail_unknown_run(runs_folder, id_or_path);
}
