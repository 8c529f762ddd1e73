/* `farthing plan --functions N`: functions around a parameter server, or a VM? */
#ifndef FTH_CLI_PLAN_FUNCTIONS_H
#define FTH_CLI_PLAN_FUNCTIONS_H

#include "cli/cli.h"

typedef struct fth_functions_question {
    int functions;
    double memory_mb;
    int64_t batches_per_push;
    const char *provider; /* a row of the catalogue */
    const char *instance; /* the VM to compare with; "": the cheapest */
    const char *link;     /* of a function; "": assumed */
    double profile_s;
    bool json;
} fth_functions_question;

/* Measures one worker on one core here, and prints what the run would take and cost either way
 * (cost/function_model.h). */
fth_status fth_cli_plan_functions(const fth_functions_question *question, fth_train_options *options, fth_stop *stop);

#endif
