/* The transport "gloo": loads the plugin farthing_gloo.so (gloo_plugin.cc) and passes calls on to
 * it, so that the program is C and starts on machines that have no libgloo. */
#include <stdlib.h>

#include "base/plugin.h"
#include "collective/transport.h"

typedef struct loaded {
    const fth_transport *transport; /* the plugin's */
    void *state;
} loaded;

static fth_status load(const fth_transport **transport)
{
    char path[FTH_PLUGIN_PATH_SIZE];
    const void *symbol;
    fth_status status = fth_plugin_find("gloo", path);
    if (status != FTH_OK)
        return fth_fail_within(FTH_UNSUPPORTED,
                               "members on several machines need farthing's gloo plugin, which is built "
                               "where Debian's libgloo-dev is installed");
    status = fth_plugin_load(path, "fth_transport_plugin", &symbol);
    if (status != FTH_OK)
        return fth_fail_within(status, "members on several machines need gloo; install it (Debian: libgloo0)");
    const fth_transport_export *plugin = symbol;
    if (plugin->abi != FTH_TRANSPORT_ABI)
        return fth_fail(FTH_UNSUPPORTED,
                        "%s is made for interface %d, this farthing has %d; build both from one version", path,
                        plugin->abi, FTH_TRANSPORT_ABI);
    *transport = plugin->transport;
    return FTH_OK;
}

static fth_status gloo_open(const fth_collective_options *options, void **state)
{
    fth_status status = FTH_OK;
    loaded *gloo = NULL;
    FTH_TRY(fth_allocate(1, sizeof *gloo, &gloo));
    FTH_TRY(load(&gloo->transport));
    FTH_TRY(gloo->transport->open(options, &gloo->state));
    *state = gloo;
    gloo = NULL;
out:
    free(gloo);
    return status;
}

static void gloo_close(void *state)
{
    loaded *gloo = state;
    gloo->transport->close(gloo->state);
    free(gloo);
}

static void gloo_abort(void *state, const char *reason)
{
    loaded *gloo = state;
    gloo->transport->abort(gloo->state, reason);
}

static fth_status gloo_all_reduce(void *state, float *values, size_t count, fth_wire wire)
{
    loaded *gloo = state;
    return gloo->transport->all_reduce(gloo->state, values, count, wire);
}

static fth_status gloo_sum(void *state, double *values, size_t count)
{
    loaded *gloo = state;
    return gloo->transport->sum(gloo->state, values, count);
}

static fth_status gloo_reduce_scatter(void *state, float *values, const size_t *begins, fth_wire wire)
{
    loaded *gloo = state;
    return gloo->transport->reduce_scatter(gloo->state, values, begins, wire);
}

static fth_status gloo_all_gather(void *state, float *values, const size_t *begins)
{
    loaded *gloo = state;
    return gloo->transport->all_gather(gloo->state, values, begins);
}

static fth_status gloo_broadcast(void *state, void *bytes, size_t size, int root)
{
    loaded *gloo = state;
    return gloo->transport->broadcast(gloo->state, bytes, size, root);
}

const fth_transport fth_transport_gloo = {
    .name = "gloo",
    .summary = "TCP between machines, through gloo (farthing_gloo.so)",
    .open = gloo_open,
    .close = gloo_close,
    .abort = gloo_abort,
    .all_reduce = gloo_all_reduce,
    .sum = gloo_sum,
    .reduce_scatter = gloo_reduce_scatter,
    .all_gather = gloo_all_gather,
    .broadcast = gloo_broadcast,
};
