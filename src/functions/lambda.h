/* AWS Lambda's custom-runtime loop: next invocation, response or error, over again
 * (https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html). */
#ifndef FTH_FUNCTIONS_LAMBDA_H
#define FTH_FUNCTIONS_LAMBDA_H

#include "functions/function.h"

typedef struct fth_lambda_options {
    const char *api;   /* HOST:PORT; NULL: $AWS_LAMBDA_RUNTIME_API */
    double patience_s; /* that an API which does not answer is tried again; 0: 5 */
    const fth_stop *stop;
} fth_lambda_options;

/* Until it is stopped: FTH_OK. FTH_PEER_LOST when the Runtime API is gone, FTH_CORRUPT when it does
 * not speak the protocol; what is wrong with one invocation is that invocation's error. */
fth_status fth_lambda_run(const fth_lambda_options *options, fth_function *function);

/* Reports that there is no function to run, with the calling thread's message, which stays. Gives
 * `failed` back. */
fth_status fth_lambda_report_start_failure(const fth_lambda_options *options, fth_status failed);

/* A program that Lambda starts is a file called bootstrap. `program`: as it was started,
 * argv[0]. */
bool fth_lambda_is_bootstrap(const char *program);

#endif
