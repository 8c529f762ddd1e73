/* Which parameters are trained. */
#include "model/model_internal.h"

typedef struct freezing {
    fth_graph *graph;
    fth_status status;
} freezing;

static void freeze(void *context, fth_value parameter)
{
    freezing *all = context;
    if (all->status == FTH_OK)
        all->status = fth_graph_set_trainable(all->graph, parameter, false);
}

fth_status fth_model_freeze(const fth_model *model, fth_graph *graph, const char *patterns)
{
    fth_status status = FTH_OK;
    freezing all = {.graph = graph};

    FTH_TRY(fth_model_match_parameters(model, graph, patterns, freeze, &all));
    FTH_TRY(all.status);
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (info->kind == FTH_VALUE_PARAMETER && info->needs_gradient)
            goto out;
    }
    if (!*patterns)
        status = fth_fail(FTH_INVALID, "%s has no parameters to train", model->name);
    else
        status = fth_fail(FTH_INVALID, "\"%s\" freezes every parameter of %s: nothing is left to train", patterns,
                          model->name);

out:
    return status;
}
