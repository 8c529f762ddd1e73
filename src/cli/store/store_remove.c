/* farthing store rm: deletes an object, or with -r everything below an address, after asking.
 *
 * store/folder_delete.c lists the folders that are never deleted. A folder with anything but runs
 * must be named twice, as a protection against wrong paths and empty variables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/store/store_cli.h"
#include "record/record.h"
#include "report/report.h"

enum { MANY = 1000, SMALL = 64, ANSWER_BYTES = 4200 };

typedef struct removal {
    const fth_remove_options *options;
    const char *address; /* as it was typed */
    fth_place place;
    fth_store_deletion *deletion;
    char *name, amount[2 * SMALL]; /* "12 files, 3.4 MB", for messages */
} removal;

/* ---- the second naming ---- */

static bool is_below_current_folder(const char *path)
{
    char *current = getcwd(NULL, 0);
    size_t length = current ? strlen(current) : 0;
    bool below = length > 1 && strncmp(path, current, length) == 0 && path[length] == '/';
    free(current);
    return below;
}

static bool is_same_address(const char *text, const char *address)
{
    size_t a = strlen(text), b = strlen(address);
    while (a > 1 && text[a - 1] == '/')
        a--;
    while (b > 1 && address[b - 1] == '/')
        b--;
    return a == b && strncmp(text, address, a) == 0;
}

/* Does `text` name what is deleted? A folder outside the current one needs its whole path. */
static bool names_again(const removal *all, const char *text)
{
    const char *folder = fth_store_deletion_folder(all->deletion);
    return (folder && is_same_address(text, folder)) ||
           ((!folder || is_below_current_folder(folder)) && is_same_address(text, all->address));
}

static const char *shortest_name(const removal *all)
{
    const char *folder = fth_store_deletion_folder(all->deletion);
    return folder && is_below_current_folder(folder) ? all->address : folder ? folder : all->name;
}

/* ---- the question ---- */

static void read_answer(char answer[ANSWER_BYTES])
{
    if (!fgets(answer, ANSWER_BYTES, stdin))
        *answer = '\0';
    answer[strcspn(answer, "\n")] = '\0';
}

static fth_status ask_for_name(const removal *all)
{
    char answer[ANSWER_BYTES];
    fth_print(stderr, "%s holds %s, and not runs alone. To delete all of it, type %s: ", all->name, all->amount,
              shortest_name(all));
    read_answer(answer);
    return names_again(all, answer) ? FTH_OK : fth_fail(FTH_INTERRUPTED, "nothing was deleted");
}

static fth_status ask(const removal *all)
{
    char answer[ANSWER_BYTES];
    fth_print(stderr, "delete %s, below %s? [y/N] ", all->amount, all->name);
    read_answer(answer);
    return answer[0] == 'y' || answer[0] == 'Y' ? FTH_OK : fth_fail(FTH_INTERRUPTED, "nothing was deleted");
}

/* Asks on a terminal; elsewhere options must confirm. */
static fth_status ask_to_delete(const removal *all)
{
    fth_status status = FTH_OK;
    const fth_remove_options *options = all->options;
    const char *folder = fth_store_deletion_folder(all->deletion);
    bool terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO),
         many = fth_store_deletion_count(all->deletion) > MANY;
    bool named = *options->confirm || !folder || fth_record_is_runs_alone(folder);

    FTH_REQUIRE(!*options->confirm || names_again(all, options->confirm), FTH_INVALID,
                "--confirm %s does not name what is to be deleted: %s", options->confirm, shortest_name(all));
    if (!named && terminal) {
        FTH_TRY(ask_for_name(all));
        goto out;
    }
    FTH_REQUIRE(named, FTH_INVALID, "%s holds %s, and not runs alone; to delete all of it, name it twice: --confirm %s",
                all->name, all->amount, shortest_name(all));
    if (options->force || (options->yes && !many))
        goto out;
    FTH_REQUIRE(terminal, FTH_INVALID, "%s holds %s; to delete all of it without a question, add %s", all->name,
                all->amount, many ? "--force" : "--yes");
    FTH_TRY(ask(all));

out:
    return status;
}

/* ---- the whole ---- */

static fth_status check_top(const removal *all)
{
    const char *folder = fth_store_deletion_folder(all->deletion);
    bool top = folder ? strrchr(folder, '/') == folder : !*all->place.prefix;
    if (!top || all->options->all)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s is a whole %s; if that is meant, add --all", all->name,
                    folder ? "top-level folder" : "bucket");
}

static fth_status remove_below(removal *all)
{
    fth_status status = FTH_OK;
    char size[SMALL];
    FTH_REQUIRE(!all->place.root || !*all->place.prefix, FTH_INVALID, "there is no folder %s", all->name);
    FTH_TRY(fth_store_deletion_begin(all->place.store, all->place.prefix, &all->deletion));
    const char *folder = fth_store_deletion_folder(all->deletion);
    uint64_t count = fth_store_deletion_count(all->deletion);
    fth_text_bytes((int64_t)fth_store_deletion_bytes(all->deletion), size, sizeof size);
    snprintf(all->amount, sizeof all->amount, "%s, %s", FTH_COUNTED(count, folder ? "file" : "object"), size);
    FTH_TRY(check_top(all));
    FTH_REQUIRE(folder || count > 0, FTH_INVALID, "there is nothing below %s", all->name);
    FTH_REQUIRE(!folder || !fth_record_is_locked(folder), FTH_INVALID, "%s is a run that is being trained", all->name);
    FTH_TRY(ask_to_delete(all));
    FTH_TRY(fth_store_deletion_perform(all->deletion));
    fth_print_line(stdout, "deleted %s, below %s", all->amount, all->name);

out:
    return status;
}

static fth_status remove_object(removal *all)
{
    fth_status status = FTH_OK;
    fth_store_object object = {0};
    bool found = false;
    FTH_REQUIRE(*all->place.key && !all->place.folder, FTH_INVALID,
                "%s is not a single object; delete everything below it with -r", all->name);
    FTH_TRY(fth_store_stat(all->place.store, all->place.key, &object, &found));
    FTH_REQUIRE(found, FTH_INVALID, "there is no object %s", all->name);
    FTH_TRY(fth_store_delete(all->place.store, all->place.key));

out:
    fth_store_object_release(&object);
    return status;
}

fth_status fth_cli_remove(const char *address, const fth_remove_options *options)
{
    fth_status status = FTH_OK;
    removal all = {.options = options, .address = address};
    fth_store_options open = options->store;
    open.no_links = true;
    FTH_TRY(fth_place_open(address, &open, &all.place));
    all.name = fth_place_describe(&all.place);
    FTH_REQUIRE(all.name, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(options->recursive ? remove_below(&all) : remove_object(&all));

out:
    fth_store_deletion_free(all.deletion);
    free(all.name);
    fth_place_release(&all.place);
    return status;
}
