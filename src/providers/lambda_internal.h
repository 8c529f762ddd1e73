/* AWS Lambda's REST API: what its files share.
 *
 * lambda_api.c      opening, invoking
 * lambda_manage.c   deploy, status, remove
 * lambda_logs.c     logs, from CloudWatch */
#ifndef FTH_PROVIDERS_LAMBDA_INTERNAL_H
#define FTH_PROVIDERS_LAMBDA_INTERNAL_H

#include "providers/provider.h"
#include "providers/rest.h"
#include "store/credentials.h"

#define FTH_LAMBDA_KEYS_ADVICE "check the keys (`aws sts get-caller-identity`) and what their policy allows"

/* An AWS service: its address, and the keys that sign its requests. */
typedef struct fth_aws_service {
    fth_rest *rest;
    fth_credentials *credentials; /* lent */
    const char *name;             /* "lambda", "logs" */
    char *region, *host, *prefix; /* host: "lambda.eu-west-1.amazonaws.com"; prefix: a path or "" */
} fth_aws_service;

/* `variable`: the environment variable with its address, AWS_ENDPOINT_URL_LAMBDA. */
fth_status fth_aws_service_open(const char *name, const char *variable, const fth_provider_options *options,
                                fth_credentials *credentials, fth_aws_service *service);
void fth_aws_service_close(fth_aws_service *service);
/* As fth_rest_send(), but repeats the request with new keys if the old ones have expired. */
fth_status fth_aws_send(fth_aws_service *service, fth_rest_call *call, fth_http_response *response);

typedef struct fth_lambda_provider {
    fth_provider base;
    fth_credentials *credentials;
    fth_aws_service lambda;
    bool detached;
    /* From the options, for the log service. */
    char *endpoint, *region, *ca_file;
    const fth_stop *stop;
} fth_lambda_provider;

/* "/2015-03-31/functions/NAME" and `rest` ("/code", or ""); free() it. */
fth_status fth_lambda_path(const char *name, const char *rest, char **path);

fth_status fth_lambda_deploy(fth_provider *provider, const fth_function_spec *spec);
fth_status fth_lambda_status(fth_provider *provider, const char *name, json_t **result);
fth_status fth_lambda_logs(fth_provider *provider, const char *name, const char *id, char **text);
fth_status fth_lambda_remove(fth_provider *provider, const char *name);

#endif
