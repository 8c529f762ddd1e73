/* Finding the run that the user named. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "store/store.h"

/* When a run was last written to; 0 if the folder holds no run. */
static double last_touched(const char *folder)
{
    static const char *const files[] = {"run.json", "events.jsonl"};
    double newest = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(files); i++) {
        char *path = fth_path_join(folder, files[i]);
        struct stat facts;
        bool exists = stat(path, &facts) == 0;
        free(path);
        if (!exists && i == 0)
            return 0;
        double at = exists ? (double)facts.st_mtim.tv_sec + 1e-9 * (double)facts.st_mtim.tv_nsec : 0;
        newest = at > newest ? at : newest;
    }
    return newest;
}

/* The run last touched under `runs_folder`; fails if there is none. */
static fth_status find_newest_run(const char *runs_folder, char **folder)
{
    *folder = NULL;
    DIR *runs = opendir(runs_folder);
    if (!runs && errno != ENOENT)
        return fth_fail(FTH_IO, "open %s: %s", runs_folder, strerror(errno));
    double newest = 0;
    for (struct dirent *entry = runs ? readdir(runs) : NULL; entry; entry = readdir(runs)) {
        if (entry->d_name[0] == '.')
            continue;
        char *candidate = fth_path_join(runs_folder, entry->d_name);
        double touched = last_touched(candidate);
        if (touched > newest && fth_record_exists(candidate)) {
            newest = touched;
            free(*folder);
            *folder = candidate;
        } else {
            free(candidate);
        }
    }
    if (runs)
        closedir(runs);
    if (!*folder)
        return fth_fail(FTH_INVALID, "there are no runs in %s yet; `farthing train` makes one", runs_folder);
    return FTH_OK;
}

/* A run in a store is read through a copy of its record; the summary calls it by its URL. */
static fth_status read_stored_run(const char *url, const fth_store_options *store, fth_record_summary *summary)
{
    fth_status status = FTH_OK;
    char *folder = NULL;

    FTH_TRY(fth_folder_create_temporary(&folder));
    FTH_TRY(fth_train_fetch_record(url, store, folder));
    FTH_TRY(fth_record_read(folder, summary));
    FTH_TRY(fth_address_remember(url));
    free(summary->folder);
    summary->folder = fth_address_public(url);

out:
    if (folder)
        fth_record_remove_copy(folder);
    free(folder);
    return status;
}

/* A shared folder that --checkpoints named: each owner's events are in a file of its own. */
static bool is_stored_run(const char *path)
{
    char *run = fth_path_join(path, "run.json"), *events = fth_path_join(path, "events");
    bool is = fth_file_exists(run) && fth_folder_exists(events);
    free(run);
    free(events);
    return is;
}

fth_status fth_cli_read_run(const char *runs_folder, const char *id_or_path, const fth_store_options *store,
                            fth_record_summary *summary)
{
    fth_status status = FTH_OK;
    char *folder = NULL;
    if (fth_store_is_url(id_or_path) || (*id_or_path && is_stored_run(id_or_path)))
        return read_stored_run(id_or_path, store, summary);
    if (*id_or_path)
        FTH_TRY(fth_record_locate(runs_folder, id_or_path, &folder));
    else
        FTH_TRY(find_newest_run(runs_folder, &folder));
    FTH_TRY(fth_record_read(folder, summary));
out:
    free(folder);
    return status;
}
