/* Who may ask: signatures, names of the server, pages in browsers, and how often. */
#ifndef FTH_PARAMETERS_ACCESS_H
#define FTH_PARAMETERS_ACCESS_H

#include "http/server.h"
#include "parameters/metrics.h"
#include "parameters/parameters.h"

typedef struct fth_access fth_access;

/* Reads keys and names from the options. Without keys only this machine may be served: else FTH_INVALID. */
fth_status fth_access_create(const fth_parameters_options *options, fth_access **access);
void fth_access_free(fth_access *access);
bool fth_access_keyed(const fth_access *access); /* requests are signed */
/* Requests that were good once, to a process before this one, are not good again: remembers them in `folder`. */
fth_status fth_access_remember(fth_access *access, const char *folder);

/* Decides about a request before its body is read: sets the caller's role, or refuses and gives false. From any
 * thread. */
bool fth_access_admit(fth_access *access, fth_parameters_metrics *metrics, fth_exchange *exchange,
                      const fth_route *route, fth_role *role);
/* Who signed an admitted request; NULL if nobody did. */
const fth_signed *fth_access_signer(const fth_exchange *exchange);
/* True if the body is what was signed, or nothing need be; else refuses. */
bool fth_access_check_body(const fth_access *access, fth_parameters_metrics *metrics, fth_exchange *exchange);

#endif
