/* See parameter_groups.h.
 *
 * Layers are recognized by their names: "encoder.layer.3." is a layer, embeddings are below the
 * first one, and all else (pooler, classifier) is above the last. The top learns at the whole rate,
 * each layer at --layer-decay of what the one above it has. */
#include "train/engine/parameter_groups.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fth_parameter_groups {
    fth_update_group groups[FTH_MAX_UPDATE_GROUPS];
    int group_count;
    fth_update_range *ranges;
    int range_count;
};

/* A trained parameter. */
typedef struct member {
    fth_value value;
    size_t offset;
    const char *name;
    bool decays;
} member;

typedef struct member_list {
    member *members;
    size_t count;
} member_list;

static int compare_offsets(const void *a, const void *b)
{
    const member *left = a, *right = b;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

/* In the order in which they lie in the vector. */
static fth_status list_members(const fth_graph *graph, member_list *list)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_allocate((size_t)fth_graph_value_count(graph) + 1, sizeof *list->members, &list->members));
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (info->kind == FTH_VALUE_PARAMETER && info->gradient != FTH_NO_VALUE)
            list->members[list->count++] =
                (member){.value = v, .offset = info->offset, .name = info->name, .decays = true};
    }
    qsort(list->members, list->count, sizeof *list->members, compare_offsets);

out:
    return status;
}

/* ---- which decay ---- */

static void leave_out(void *context, fth_value parameter)
{
    member_list *list = context;
    for (size_t i = 0; i < list->count; i++)
        if (list->members[i].value == parameter)
            list->members[i].decays = false;
}

static fth_status set_decays(const fth_train_options *options, const fth_graph *graph, member_list *list)
{
    fth_status status = FTH_OK;
    const fth_model *model = NULL;
    const char *patterns = options->optimizer.no_decay;

    FTH_TRY(fth_train_options_find_model(options, &model));
    if (!*patterns)
        patterns = model->usual_no_decay ? model->usual_no_decay : "";
    if (*patterns && strcmp(patterns, "none") != 0)
        FTH_TRY(fth_model_match_parameters(model, graph, patterns, leave_out, list));

out:
    return status;
}

/* ---- layers ---- */

/* The number in "encoder.layer.3.output"; -1 if there is none. */
static int find_layer(const char *name)
{
    const char *at = strstr(name, ".layer.");
    const char *digits = at ? at + strlen(".layer.") : "";
    return isdigit((unsigned char)*digits) ? atoi(digits) : -1;
}

/* How many layers there are; 0: they have no numbers. */
static int count_layers(const fth_graph *graph)
{
    int last = -1;
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (info->kind == FTH_VALUE_PARAMETER)
            last = find_layer(info->name) > last ? find_layer(info->name) : last;
    }
    return last + 1;
}

/* Steps below the top, of which there are `layers` + 1. */
static int find_depth(const char *name, int layers)
{
    const int layer = find_layer(name);
    if (layer >= 0)
        return layers - layer;
    return strstr(name, "embeddings.") ? layers + 1 : 0;
}

/* ---- groups ---- */

static fth_status find_group(fth_parameter_groups *groups, fth_update_group group, int *index)
{
    for (*index = 0; *index < groups->group_count; (*index)++)
        if (groups->groups[*index].rate == group.rate && groups->groups[*index].decay == group.decay)
            return FTH_OK;
    if (groups->group_count == FTH_MAX_UPDATE_GROUPS)
        return fth_fail(FTH_UNSUPPORTED, "--layer-decay makes more than %d groups of parameters",
                        FTH_MAX_UPDATE_GROUPS);
    groups->groups[groups->group_count++] = group;
    return FTH_OK;
}

/* Each parameter's range ends where the next begins, so that the padding between them has a group
 * too. */
static fth_status make_ranges(const fth_train_options *options, const fth_graph *graph, const member_list *list,
                              fth_parameter_groups *groups)
{
    fth_status status = FTH_OK;
    const int layers = options->optimizer.layer_decay < 1 ? count_layers(graph) : 0;

    FTH_REQUIRE(options->optimizer.layer_decay >= 1 || layers > 0, FTH_INVALID,
                "--layer-decay: the layers of %s have no numbers; it is for models for text, such as bert-mini",
                options->model);
    FTH_TRY(fth_allocate(list->count + 1, sizeof *groups->ranges, &groups->ranges));
    for (size_t i = 0; i < list->count; i++) {
        const member *parameter = &list->members[i];
        const size_t end = i + 1 < list->count ? list->members[i + 1].offset : fth_graph_trained_floats(graph);
        const int depth = layers > 0 ? find_depth(parameter->name, layers) : 0;
        int group = 0;
        FTH_TRY(
            find_group(groups,
                       (fth_update_group){.rate = (float)pow(options->optimizer.layer_decay, depth),
                                          .decay = parameter->decays || options->optimizer.weight_decay == 0 ? 1 : 0},
                       &group));
        fth_update_range *last = groups->range_count > 0 ? &groups->ranges[groups->range_count - 1] : NULL;
        if (last && last->group == group)
            last->end = end;
        else
            groups->ranges[groups->range_count++] = (fth_update_range){.end = end, .group = group};
    }

out:
    return status;
}

fth_status fth_parameter_groups_create(const fth_train_options *options, const fth_graph *graph,
                                       fth_parameter_groups **result)
{
    fth_status status = FTH_OK;
    fth_parameter_groups *groups = NULL;
    member_list list = {0};

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *groups, &groups));
    FTH_TRY(list_members(graph, &list));
    FTH_TRY(set_decays(options, graph, &list));
    FTH_TRY(make_ranges(options, graph, &list, groups));
    *result = groups;
    groups = NULL;

out:
    fth_parameter_groups_free(groups);
    free(list.members);
    return status;
}

void fth_parameter_groups_free(fth_parameter_groups *groups)
{
    if (!groups)
        return;
    free(groups->ranges);
    free(groups);
}

fth_update_groups fth_parameter_groups_get(const fth_parameter_groups *groups)
{
    const fth_update_group *first = &groups->groups[0];
    if (groups->group_count == 0 || (groups->group_count == 1 && first->rate == 1 && first->decay == 1))
        return (fth_update_groups){0};
    return (fth_update_groups){.groups = groups->groups,
                               .group_count = groups->group_count,
                               .ranges = groups->ranges,
                               .range_count = groups->range_count};
}

int fth_update_groups_find(const fth_update_groups *groups, size_t at)
{
    int low = 0, high = groups->range_count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (groups->ranges[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
