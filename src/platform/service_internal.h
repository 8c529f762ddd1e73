/* What the files of the REST APIs share: service.c has the server, callers' keys and delayed
 * answers; openwhisk_rest.c and lambda_rest.c have the two APIs. */
#ifndef FTH_PLATFORM_SERVICE_INTERNAL_H
#define FTH_PLATFORM_SERVICE_INTERNAL_H

#include "http/server.h"
#include "platform/files.h"
#include "platform/platform_internal.h"

/* The key that callers need, and its two halves. */
typedef struct fth_service_key {
    char *whole, *first, *second; /* "first:second" */
} fth_service_key;

fth_platform *fth_service_platform(const fth_platform_service *service);
const char *fth_service_folder(const fth_platform_service *service);
const fth_service_key *fth_service_get_key(const fth_platform_service *service);

/* Invokes a function and holds the exchange; calls `answer` when the activation has ended
 * (`record`), or after `seconds` (NULL). If the invocation is not accepted, the exchange is not
 * held; the status or *throttled says why. */
typedef void (*fth_service_answer)(const fth_platform_service *service, fth_exchange *exchange, const char *id,
                                   const json_t *record, const void *details);
fth_status fth_service_invoke(fth_platform_service *service, fth_exchange *exchange, const char *name,
                              const json_t *value, double seconds, fth_service_answer answer, const void *details,
                              bool *throttled);

/* openwhisk_rest.c */
bool fth_openwhisk_admit(const fth_platform_service *service, fth_exchange *exchange);
void fth_openwhisk_handle(void *service, fth_exchange *exchange);
void fth_openwhisk_namespaces(void *service, fth_exchange *exchange);
void fth_openwhisk_web(void *service, fth_exchange *exchange);

/* lambda_rest.c */
bool fth_lambda_admit(const fth_platform_service *service, fth_exchange *exchange);
void fth_lambda_handle(void *service, fth_exchange *exchange);

/* lambda_signature.c: whether the request, including its body, is signed with the key. */
bool fth_lambda_is_signed(const fth_service_key *key, fth_exchange *exchange);
/* Whether it names the key. */
bool fth_lambda_names_key(const fth_service_key *key, fth_exchange *exchange);

#endif
