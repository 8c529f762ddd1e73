/* Transports: how the members of a collective reach each other. One is a file, and a row of
 * fth_transports. */
#ifndef FTH_COLLECTIVE_TRANSPORT_H
#define FTH_COLLECTIVE_TRANSPORT_H

#include "collective/collective.h"

/* The functions are those of collective.h, for groups of at least two. */
typedef struct fth_transport {
    const char *name, *summary;
    const char *plugin; /* the rest is in this plugin (base/plugin.h); NULL: it is here */
    fth_status (*open)(const fth_collective_options *options, void **state);
    void (*close)(void *state);
    void (*abort)(void *state, const char *reason); /* from any thread */
    fth_status (*all_reduce)(void *state, float *values, size_t count, fth_wire wire);
    fth_status (*sum)(void *state, double *values, size_t count);
    fth_status (*all_gather)(void *state, float *values, const size_t *begins);
    fth_status (*broadcast)(void *state, void *bytes, size_t size, int root);
} fth_transport;

/* What a plugin exports as fth_transport_plugin. */
enum { FTH_TRANSPORT_ABI = 2 };

typedef struct fth_transport_export {
    int abi; /* FTH_TRANSPORT_ABI */
    const fth_transport *transport;
} fth_transport_export;

extern const fth_transport fth_transport_shm, fth_transport_gloo, fth_transport_hierarchy;

extern const fth_transport *const fth_transports[]; /* all of them, NULL-terminated */

/* The table with the functions: the row itself, or that of its plugin. */
fth_status fth_transport_load(const fth_transport *row, const fth_transport **transport);

#endif
