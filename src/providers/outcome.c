/* The outcome of an invocation; see provider.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "providers/provider.h"

void fth_invocation_outcome_init(fth_invocation_outcome *outcome)
{
    *outcome =
        (fth_invocation_outcome){.state = FTH_INVOCATION_RUNNING, .duration_s = NAN, .start_s = NAN, .peak_bytes = NAN};
}

void fth_invocation_outcome_set_unknown(fth_invocation_outcome *outcome)
{
    outcome->state = FTH_INVOCATION_UNKNOWN;
    outcome->error = strdup(fth_error_message());
}

void fth_invocation_outcome_release(fth_invocation_outcome *outcome)
{
    json_decref(outcome->result);
    free(outcome->error);
    free(outcome->logs);
    *outcome = (fth_invocation_outcome){0};
}
