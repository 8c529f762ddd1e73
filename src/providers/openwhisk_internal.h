/* OpenWhisk's REST API: what its files share.
 *
 * openwhisk_api.c      address and key; invoke and poll
 * openwhisk_manage.c   deploy, status, logs, remove */
#ifndef FTH_PROVIDERS_OPENWHISK_INTERNAL_H
#define FTH_PROVIDERS_OPENWHISK_INTERNAL_H

#include "providers/provider.h"
#include "providers/rest.h"

#define FTH_OPENWHISK_KEYS_ADVICE                                                                                      \
    "check the key: UUID:KEY in WHISK_AUTH, or AUTH= in ~/.wskprops (`wsk property get --auth` shows it)"

typedef struct fth_openwhisk_provider {
    fth_provider base;
    fth_rest *rest;
    char *authorization; /* the header line */
} fth_openwhisk_provider;

/* The path of an action, given as NAME, PACKAGE/NAME or /NAMESPACE/NAME (as in __OW_ACTION_NAME);
 * NULL: of all actions. free() it. */
fth_status fth_openwhisk_action_path(const char *name, char **path);
/* The path of an activation in an action's name space; id NULL: of all. */
fth_status fth_openwhisk_activation_path(const char *name, const char *id, char **path);
/* An action's name without its name space; lent. */
const char *fth_openwhisk_bare_name(const char *name);
/* An activation's log lines as one text; free() it. NULL: none. */
char *fth_openwhisk_join_logs(const json_t *lines);
/* GETs and parses a path. With `code`, which gets the answer's code, a 404 is FTH_OK without *json.
 * */
fth_status fth_openwhisk_get(fth_openwhisk_provider *provider, const char *what, const char *path,
                             const fth_pair *query, int query_count, fth_deadline deadline, int *code, json_t **json);

fth_status fth_openwhisk_deploy(fth_provider *provider, const fth_function_spec *spec);
fth_status fth_openwhisk_status(fth_provider *provider, const char *name, json_t **result);
fth_status fth_openwhisk_logs(fth_provider *provider, const char *name, const char *id, char **text);
fth_status fth_openwhisk_remove(fth_provider *provider, const char *name);

#endif
