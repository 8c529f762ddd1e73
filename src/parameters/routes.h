/* The routes of the parameter server (docs/parameter-server.openapi.yaml).
 *
 * Handlers run in the HTTP server's threads and do nothing that takes long: they read what may be
 * read from any thread, or queue what they have and let another thread answer. */
#ifndef FTH_PARAMETERS_ROUTES_H
#define FTH_PARAMETERS_ROUTES_H

#include "http/access.h"
#include "parameters/intake.h"
#include "parameters/snapshots.h"
#include "parameters/validator.h"

typedef struct fth_parameter_service fth_parameter_service;

typedef struct fth_parameter_service_options {
    fth_access *access;
    const fth_served_model *model;
    const fth_served_position *position;
    fth_workers *workers;
    fth_intake *intake;
    fth_parameter_snapshots *snapshots;
    fth_served_validator *validator; /* or NULL */
    fth_health *health;
    fth_parameters_metrics *metrics;
    const fth_parameters_options *options; /* address, port, TLS, limits */
} fth_parameter_service_options;

/* Serves from now on; everything in the options outlives the service. */
fth_status fth_parameter_service_start(const fth_parameter_service_options *options, fth_parameter_service **service);
int fth_parameter_service_port(const fth_parameter_service *service);
/* Closes connections and joins the threads, within `seconds`; NULL is fine. */
void fth_parameter_service_stop(fth_parameter_service *service, double seconds);

#endif
