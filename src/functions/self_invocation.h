/* A function that invokes itself, through the platform's API and with the keys in its environment.
 * */
#ifndef FTH_FUNCTIONS_SELF_INVOCATION_H
#define FTH_FUNCTIONS_SELF_INVOCATION_H

#include "functions/invocation.h"

enum { FTH_SELF_ID_SIZE = 80 };

/* Checks, before any work, that the function can invoke itself. FTH_INVALID names what is missing.
 * */
fth_status fth_self_invocation_check(const fth_invocation_event *event);

/* Invokes the function of `event` again with `parameters`, without waiting for it. `id`: the new
 * invocation's. */
fth_status fth_self_invocation_start(const fth_invocation_event *event, const json_t *parameters, fth_deadline deadline,
                                     char id[FTH_SELF_ID_SIZE]);

#endif
