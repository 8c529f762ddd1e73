/* OpenWhisk's action contract: POST /init once, POST /run for each activation, one at a time; end
 * markers on both output streams
 * (https://github.com/apache/openwhisk/blob/master/docs/actions-new.md). The Knative variant (POST
 * /) too. */
#ifndef FTH_FUNCTIONS_OPENWHISK_H
#define FTH_FUNCTIONS_OPENWHISK_H

#include "functions/function.h"

typedef struct fth_openwhisk_options {
    const char *address; /* NULL: 0.0.0.0, as containers require */
    int port;            /* 8080; 0: any free one */
} fth_openwhisk_options;

typedef struct fth_openwhisk fth_openwhisk;

/* Starts to serve, in threads of its own. `function` outlives it. */
fth_status fth_openwhisk_start(const fth_openwhisk_options *options, fth_function *function, fth_openwhisk **service);
int fth_openwhisk_port(const fth_openwhisk *service);
/* Waits at most `seconds` for the current run, then asks it to stop and sends its answer; refuses
 * waiting requests. False if the run has not ended half a minute later: it still uses the service
 * and the function, which are then not freed. */
bool fth_openwhisk_stop(fth_openwhisk *service, double seconds);

#endif
