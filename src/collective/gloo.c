/* The transport "gloo" is the plugin farthing_gloo.so (gloo_plugin.cc), so that the program is C
 * and starts on machines without libgloo. */
#include "base/plugin.h"
#include "collective/transport.h"

fth_status fth_transport_load(const fth_transport *row, const fth_transport **transport)
{
    char path[FTH_PLUGIN_PATH_SIZE];
    const void *symbol;
    *transport = row;
    if (!row->plugin)
        return FTH_OK;
    fth_status status = fth_plugin_find(row->plugin, path);
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

const fth_transport fth_transport_gloo = {
    .name = "gloo", .summary = "TCP between machines, through gloo (farthing_gloo.so)", .plugin = "gloo"};
