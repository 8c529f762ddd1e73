/* The routes of the parameter server (docs/parameter-server.openapi.yaml).
 *
 * Handlers run in the HTTP server's threads and never block: they read state that is safe to read
 * from any thread, or queue the request for another thread to answer. */
#ifndef FTH_PARAMETERS_ROUTES_H
#define FTH_PARAMETERS_ROUTES_H

#include "parameters/parts.h"

typedef struct fth_parameter_service fth_parameter_service;

/* Starts to serve; the parts outlive the service. */
fth_status fth_parameter_service_start(const fth_server_parts *parts, fth_parameter_service **service);
int fth_parameter_service_port(const fth_parameter_service *service);
/* Closes connections and joins the threads, within `seconds`; NULL is fine. */
void fth_parameter_service_stop(fth_parameter_service *service, double seconds);

#endif
