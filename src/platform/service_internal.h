/* The REST APIs' inside: service.c has the server, callers' keys and answers that wait;
 * openwhisk_rest.c and lambda_rest.c have the two APIs. */
#ifndef FTH_PLATFORM_SERVICE_INTERNAL_H
#define FTH_PLATFORM_SERVICE_INTERNAL_H

#include "http/server.h"
#include "platform/files.h"
#include "platform/platform_internal.h"

/* Who may call: the two halves of the key. */
typedef struct fth_service_key {
    char *whole, *first, *second; /* "first:second" */
} fth_service_key;

fth_platform *fth_service_platform(const fth_platform_service *service);
const char *fth_service_folder(const fth_platform_service *service);
const fth_service_key *fth_service_get_key(const fth_platform_service *service);

/* Invokes, and calls `answer` with the held exchange once the activation has ended (`record`), or
 * `seconds` later (NULL). Where it is not accepted, nothing is held: the status or *throttled says
 * why. */
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

/* lambda_signature.c: whether the request, its body included, is signed with the key. */
bool fth_lambda_is_signed(const fth_service_key *key, fth_exchange *exchange);
/* Whether it claims to be. */
bool fth_lambda_names_key(const fth_service_key *key, fth_exchange *exchange);

#endif
