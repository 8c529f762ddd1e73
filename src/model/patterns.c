/* Parameters by patterns on their names, as --freeze and --no-decay have them. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "model/model_internal.h"

static bool matches(const char *pattern, const char *name)
{
    if (fnmatch(pattern, name, 0) == 0)
        return true;
    char *layer = fth_format("%s.*", pattern);
    bool found = fnmatch(layer, name, 0) == 0;
    free(layer);
    return found;
}

/* ---- a message that helps ---- */

typedef struct layer_names {
    char **names; /* NULL at the end */
    size_t count, capacity;
} layer_names;

static fth_status add_name(layer_names *list, const char *name, size_t length)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < list->count; i++)
        if (strncmp(list->names[i], name, length) == 0 && !list->names[i][length])
            return FTH_OK;
    FTH_TRY(fth_grow(&list->names, list->count + 1, &list->capacity, sizeof *list->names));
    list->names[list->count++] = fth_format("%.*s", (int)length, name);
    list->names[list->count] = NULL;

out:
    return status;
}

/* The parameters and the layers around them ("layer1", "layer1.0", ...); or the outermost layers
 * only. */
static fth_status list_layers(const fth_graph *graph, bool outermost, layer_names *list)
{
    fth_status status = FTH_OK;
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (info->kind != FTH_VALUE_PARAMETER)
            continue;
        const char *at = info->name;
        do {
            at = strchr(at + 1, '.');
            FTH_TRY(add_name(list, info->name, at ? (size_t)(at - info->name) : strlen(info->name)));
        } while (at && !outermost);
    }

out:
    return status;
}

static fth_status fail_unmatched(const fth_model *model, const fth_graph *graph, const char *pattern)
{
    enum { LAYERS_SHOWN = 12 };
    fth_status status = FTH_OK;
    layer_names all = {0}, outermost = {0};
    size_t length = strlen(pattern);
    bool star = length > 2 && strcmp(pattern + length - 2, ".*") == 0;
    char *plain = fth_format("%.*s", (int)(star ? length - 2 : length), pattern);
    char list[512] = "";

    FTH_TRY(list_layers(graph, false, &all));
    FTH_TRY(list_layers(graph, true, &outermost));
    const char *nearest = all.count > 0 ? fth_nearest_name(plain, (const char *const *)all.names) : NULL;
    FTH_REQUIRE(!nearest, FTH_INVALID, "no parameter of %s matches \"%s\"; did you mean \"%s%s\"?", model->name,
                pattern, nearest, star ? ".*" : "");
    for (size_t i = 0; i < outermost.count && i < LAYERS_SHOWN; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", outermost.names[i]);
    }
    status = fth_fail(FTH_INVALID, "no parameter of %s matches \"%s\"; its layers are %s%s", model->name, pattern, list,
                      outermost.count > LAYERS_SHOWN ? ", ..." : "");

out:
    for (size_t i = 0; i < all.count; i++)
        free(all.names[i]);
    for (size_t i = 0; i < outermost.count; i++)
        free(outermost.names[i]);
    free(all.names);
    free(outermost.names);
    free(plain);
    return status;
}

fth_status fth_model_match_parameters(const fth_model *model, const fth_graph *graph, const char *patterns,
                                      void (*visit)(void *context, fth_value parameter), void *context)
{
    fth_status status = FTH_OK;
    char *copy = fth_format("%s", patterns), *rest = NULL;

    for (char *pattern = strtok_r(copy, ", ", &rest); pattern; pattern = strtok_r(NULL, ", ", &rest)) {
        bool found = false;
        for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
            const fth_value_info *info = fth_graph_value(graph, v);
            if (info->kind != FTH_VALUE_PARAMETER || !matches(pattern, info->name))
                continue;
            visit(context, v);
            found = true;
        }
        if (!found)
            FTH_TRY(fail_unmatched(model, graph, pattern));
    }

out:
    free(copy);
    return status;
}
