/* What a caller of a server may do. A role includes those before it. */
#ifndef FTH_HTTP_ROLE_H
#define FTH_HTTP_ROLE_H

#include <stdbool.h>

#include "base/options.h"

typedef enum fth_role { FTH_ROLE_NONE, FTH_ROLE_READ, FTH_ROLE_TRAIN, FTH_ROLE_ADMIN } fth_role;

const char *fth_role_name(fth_role role);
bool fth_role_find(const char *name, fth_role *role);
fth_choice fth_role_choice(size_t index); /* those a key can have, for the table of options */

#endif
