/* See role.h. */
#include "http/role.h"

#include <string.h>

static const char *const names[] = {"none", "read", "train", "admin"};

const char *fth_role_name(fth_role role)
{
    return names[role];
}

fth_choice fth_role_choice(size_t index)
{
    return (fth_choice){.name = index < FTH_ROLE_ADMIN ? names[FTH_ROLE_READ + index] : NULL};
}

bool fth_role_find(const char *name, fth_role *role)
{
    for (int i = FTH_ROLE_READ; i <= FTH_ROLE_ADMIN; i++) {
        if (strcmp(name, names[i]) == 0) {
            *role = (fth_role)i;
            return true;
        }
    }
    return false;
}
