/* Deployed functions: folders in a common folder, which several processes may use at once.
 *
 *     actions/NAME/action.json            the facts; names the files below
 *     actions/NAME/secrets-REVISION.json  environment and default parameters, 0600
 *     actions/NAME/package-REVISION/      an unpacked zip, of a revision with this code
 *
 * A deployment writes new files under a new revision and publishes action.json last, so a reader
 * has the old function or the new one. The next deployment removes files that a killed process
 * left, and packages that were still in use. */
#ifndef FTH_PLATFORM_ACTIONS_H
#define FTH_PLATFORM_ACTIONS_H

#include <dirent.h>

#include "providers/provider.h"

enum { FTH_ACTION_NAME = 65, FTH_ACTION_REVISION = 17 };

/* One function, loaded; release it. */
typedef struct fth_action {
    char name[FTH_ACTION_NAME], revision[FTH_ACTION_REVISION];
    bool lambda; /* else OpenWhisk's contract */
    int memory_mb;
    double timeout_s;
    json_t *command;                  /* array of texts; NULL: the program's own binary */
    char *package;                    /* folder of the unpacked zip; NULL: none */
    DIR *package_in_use;              /* that folder, locked: deployments keep it until this is released */
    json_t *environment, *parameters; /* objects */
    json_t *facts;                    /* action.json: no secrets */
} fth_action;

/* Letters, digits, '-', '_', '.' and '@', at most 64, beginning with a letter, a digit or '_'. */
bool fth_action_name_is_valid(const char *name);
/* Deploys a function. `more` is added to the facts: "annotations", "description", "runtime", ...;
 * or NULL. */
fth_status fth_action_store(const char *folder, const fth_function_spec *spec, const json_t *more);
/* The same for an existing function that keeps its code (command, package or image). */
fth_status fth_action_change(const char *folder, const fth_function_spec *spec, const json_t *more);
bool fth_action_exists(const char *folder, const char *name);
fth_status fth_action_load(const char *folder, const char *name, fth_action *action);
void fth_action_release(fth_action *action);
/* The facts of all, sorted by name; a new array. */
fth_status fth_action_list(const char *folder, json_t **list);
fth_status fth_action_remove(const char *folder, const char *name);

#endif
