/* A function that invokes itself: by the platform's API, with what the platform put into its
 * environment. */
#ifndef FTH_FUNCTIONS_SELF_INVOCATION_H
#define FTH_FUNCTIONS_SELF_INVOCATION_H

#include "functions/invocation.h"

enum { FTH_SELF_ID_SIZE = 80 };

/* FTH_INVALID, saying what is missing, where it could not invoke itself. For before the work
 * begins. */
fth_status fth_self_invocation_check(const fth_invocation_event *event);

/* Invokes the function of `event` again with `parameters`, and does not wait for its end. `id` is
 * the new invocation's. */
fth_status fth_self_invocation_start(const fth_invocation_event *event, const json_t *parameters, fth_deadline deadline,
                                     char id[FTH_SELF_ID_SIZE]);

#endif
