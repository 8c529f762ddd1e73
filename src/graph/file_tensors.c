/* Tensors that exist in model files alone: see graph.h. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph_internal.h"

fth_status fth_graph_add_file_tensor(fth_graph *graph, const fth_file_tensor *tensor)
{
    fth_status status = FTH_OK;
    fth_file_tensor copy = *tensor;
    const fth_value_info *same = fth_graph_value(graph, tensor->same_as);

    FTH_TRY(fth_graph_check_new_name(graph, tensor->name));
    if (tensor->same_as != FTH_NO_VALUE) {
        FTH_REQUIRE(same && (same->kind == FTH_VALUE_PARAMETER || same->kind == FTH_VALUE_BUFFER), FTH_INVALID,
                    "\"%s\" is another name of what is no parameter or buffer", tensor->name);
        copy.type = same->type;
    } else {
        FTH_REQUIRE(tensor->data || fth_shape_count(&tensor->type.shape) == 0, FTH_INVALID,
                    "the constant \"%s\" has no data", tensor->name);
    }
    FTH_TRY(fth_grow(&graph->file_tensors, graph->file_tensor_count, &graph->file_tensor_capacity,
                     sizeof *graph->file_tensors));
    copy.name = fth_format("%s", tensor->name);
    FTH_REQUIRE(copy.name, FTH_NO_MEMORY, "no memory for the name of a tensor");
    graph->file_tensors[graph->file_tensor_count++] = copy;

out:
    return status;
}

void fth_graph_free_file_tensors(fth_graph *graph)
{
    for (size_t i = 0; i < graph->file_tensor_count; i++)
        free((char *)graph->file_tensors[i].name);
    free(graph->file_tensors);
}

int fth_graph_file_tensor_count(const fth_graph *graph)
{
    return (int)graph->file_tensor_count;
}

const fth_file_tensor *fth_graph_file_tensor(const fth_graph *graph, int index)
{
    return index >= 0 && (size_t)index < graph->file_tensor_count ? &graph->file_tensors[index] : NULL;
}

const fth_file_tensor *fth_graph_find_file_tensor(const fth_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->file_tensor_count; i++)
        if (strcmp(graph->file_tensors[i].name, name) == 0)
            return &graph->file_tensors[i];
    return NULL;
}
