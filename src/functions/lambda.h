/* AWS Lambda's custom-runtime loop: next invocation, then response or error
 * (https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html). */
#ifndef FTH_FUNCTIONS_LAMBDA_H
#define FTH_FUNCTIONS_LAMBDA_H

#include "functions/function.h"

typedef struct fth_lambda_options {
    const char *api;   /* HOST:PORT; NULL: $AWS_LAMBDA_RUNTIME_API */
    double patience_s; /* how long an API that does not answer is retried; 0: 5 */
    const fth_stop *stop;
} fth_lambda_options;

/* Runs until it is stopped: FTH_OK. FTH_PEER_LOST if the Runtime API is gone, FTH_CORRUPT if it
 * violates the protocol. A failed invocation is reported to the API and does not end the loop. */
fth_status fth_lambda_run(const fth_lambda_options *options, fth_function *function);

/* Reports a failed start with the calling thread's message, which is kept. Returns `failed`. */
fth_status fth_lambda_report_start_failure(const fth_lambda_options *options, fth_status failed);

/* Whether Lambda started this program: its file is then called bootstrap. `program`: argv[0]. */
bool fth_lambda_is_bootstrap(const char *program);

#endif
