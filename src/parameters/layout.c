/* See gradient.h: the order of tensors in what workers pull, and the safetensors header that
 * describes it. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "parameters/gradient.h"

enum { DATA_ALIGNMENT = 64 };

static bool is_kind(const fth_value_info *info, int kind)
{
    bool trained = info->kind == FTH_VALUE_PARAMETER && info->gradient != FTH_NO_VALUE;
    switch (kind) {
    case 0: return trained;
    case 1: return info->kind == FTH_VALUE_PARAMETER && !trained;
    default: return info->kind == FTH_VALUE_BUFFER;
    }
}

static int by_offset(const void *a, const void *b)
{
    const fth_layout_tensor *left = a, *right = b;
    return (left->vector_offset > right->vector_offset) - (left->vector_offset < right->vector_offset);
}

static int by_name(const void *a, const void *b, void *tensors)
{
    const fth_layout_tensor *t = tensors;
    return strcmp(t[*(const int *)a].name, t[*(const int *)b].name);
}

fth_status fth_layout_create(const fth_graph *graph, fth_layout **result)
{
    fth_status status = FTH_OK;
    fth_layout *layout = NULL;
    int values = fth_graph_value_count(graph);

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *layout, &layout));
    FTH_TRY(fth_allocate((size_t)values + 1, sizeof *layout->tensors, &layout->tensors));
    FTH_TRY(fth_allocate((size_t)values + 1, sizeof *layout->by_name, &layout->by_name));
    for (int kind = 0; kind < 3; kind++) {
        int first = layout->count;
        for (fth_value v = 0; v < values; v++) {
            const fth_value_info *info = fth_graph_value(graph, v);
            if (!is_kind(info, kind))
                continue;
            layout->tensors[layout->count++] = (fth_layout_tensor){.name = info->name,
                                                                   .shape = info->type.shape,
                                                                   .count = fth_shape_count(&info->type.shape),
                                                                   .vector_offset = info->offset};
        }
        qsort(layout->tensors + first, (size_t)(layout->count - first), sizeof *layout->tensors, by_offset);
        if (kind == 0)
            layout->trained = layout->count;
        if (kind == 1)
            layout->parameters = layout->count;
    }
    for (int i = 0; i < layout->count; i++) {
        layout->tensors[i].packed_offset = layout->packed_floats;
        layout->packed_floats += (uint64_t)layout->tensors[i].count;
        layout->by_name[i] = i;
    }
    qsort_r(layout->by_name, (size_t)layout->count, sizeof *layout->by_name, by_name, layout->tensors);
    layout->trained_floats = fth_graph_trained_floats(graph);
    layout->parameter_floats = fth_graph_parameter_floats(graph);
    layout->buffer_floats = fth_graph_buffer_floats(graph);
    *result = layout;
    layout = NULL;

out:
    fth_layout_free(layout);
    return status;
}

void fth_layout_free(fth_layout *layout)
{
    if (!layout)
        return;
    free(layout->tensors);
    free(layout->by_name);
    free(layout);
}

int fth_layout_find(const fth_layout *layout, const char *name, size_t length)
{
    int low = 0, high = layout->count - 1;
    while (low <= high) {
        int middle = (low + high) / 2, index = layout->by_name[middle];
        int order = strncmp(name, layout->tensors[index].name, length);
        if (order == 0 && layout->tensors[index].name[length])
            order = -1; /* a prefix comes first */
        if (order == 0)
            return index;
        if (order < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }
    return -1;
}

fth_status fth_layout_describe(const fth_layout *layout, const fth_metadata_entry *metadata, size_t metadata_count,
                               char **bytes, size_t *size_bytes)
{
    fth_status status = FTH_OK;
    json_t *header = json_object(), *entries = json_object();
    char *text = NULL;

    *bytes = NULL;
    for (size_t i = 0; i < metadata_count; i++)
        json_object_set_new(entries, metadata[i].key, json_string(metadata[i].value));
    json_object_set_new(header, "__metadata__", entries);
    for (int i = 0; i < layout->count; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        json_t *dims = json_array();
        for (int d = 0; d < tensor->shape.rank; d++)
            json_array_append_new(dims, json_integer(tensor->shape.dims[d]));
        json_int_t begin = (json_int_t)(tensor->packed_offset * sizeof(float));
        json_object_set_new(header, tensor->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", dims, "data_offsets", begin,
                                      begin + (json_int_t)((uint64_t)tensor->count * sizeof(float))));
    }
    text = json_dumps(header, JSON_COMPACT);
    FTH_REQUIRE(text && (int)json_object_size(header) == layout->count + 1, FTH_NO_MEMORY,
                "no memory to describe the parameters");
    size_t length = strlen(text), total = fth_align_up(8 + length, DATA_ALIGNMENT);
    FTH_TRY(fth_allocate(total, 1, bytes));
    uint64_t field = total - 8;
    memcpy(*bytes, &field, 8);
    memset(*bytes + 8, ' ', total - 8);
    memcpy(*bytes + 8, text, length);
    *size_bytes = total;

out:
    free(text);
    json_decref(header);
    return status;
}
