/* Networks and the tensors of files: which part of a file is a network's, and which network a file
 * is of.
 *
 * Files often hold more than one network's tensors: a loss with weights of its own, a second
 * encoder, metrics. A part is a network's if the names in it are exactly the network's; what
 * precedes them may be anything. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/bert_internal.h"

enum { MAX_CLASSES = 1 << 20, MAX_CHANNELS = 16, NAME_SIZE = 1200 };

static bool is_in_files(const fth_value_info *info)
{
    return info->kind == FTH_VALUE_PARAMETER || info->kind == FTH_VALUE_BUFFER;
}

static const fth_tensor_view *find_under(const fth_weights *weights, const char *prefix, const char *name)
{
    char whole[NAME_SIZE];
    int length = snprintf(whole, sizeof whole, "%s%s", prefix, name);
    return length > 0 && (size_t)length < sizeof whole ? fth_weights_find(weights, whole) : NULL;
}

static bool is_counter(const fth_graph *graph, const char *name)
{
    for (int i = 0; i < fth_graph_counter_count(graph); i++) {
        if (strcmp(fth_graph_counter(graph, i), name) == 0)
            return true;
    }
    return false;
}

/* Whether the file has a value under its name, or another one of the same tensor. */
static bool has_value(const fth_graph *graph, const fth_weights *weights, const char *prefix, fth_value value)
{
    if (find_under(weights, prefix, fth_graph_value(graph, value)->name))
        return true;
    for (int i = 0; i < fth_graph_file_tensor_count(graph); i++) {
        const fth_file_tensor *tensor = fth_graph_file_tensor(graph, i);
        if (tensor->same_as == value && find_under(weights, prefix, tensor->name))
            return true;
    }
    return false;
}

/* True if the names under `prefix` are those of the graph; counters and what only files have may be
 * missing. */
static bool is_whole_network(const fth_graph *graph, const fth_weights *weights, const char *prefix)
{
    size_t length = strlen(prefix);
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (is_in_files(info) && !has_value(graph, weights, prefix, v))
            return false;
    }
    for (size_t i = 0; i < fth_weights_count(weights); i++) {
        const char *name = fth_weights_get(weights, i)->name;
        if (strncmp(name, prefix, length) != 0)
            continue;
        fth_value value = fth_graph_find(graph, name + length);
        if ((value == FTH_NO_VALUE || !is_in_files(fth_graph_value(graph, value))) &&
            !is_counter(graph, name + length) && !fth_graph_find_file_tensor(graph, name + length))
            return false;
    }
    return true;
}

static const char *first_name(const fth_graph *graph)
{
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        if (is_in_files(fth_graph_value(graph, v)))
            return fth_graph_value(graph, v)->name;
    }
    return NULL;
}

/* The prefixes of the parts that fit, up to two of them; *count says how many there are. */
static void find_parts(const fth_graph *graph, const fth_weights *weights, char *prefixes[2], size_t *count)
{
    enum { MOST_TRIED = 64 }; /* a network has few layers that are called as its first one */
    const char *first = first_name(graph);
    size_t first_length = first ? strlen(first) : 0, tried = 0;
    *count = 0;
    for (size_t i = 0; first && i < fth_weights_count(weights) && tried < MOST_TRIED && *count < 2; i++) {
        const char *name = fth_weights_get(weights, i)->name;
        size_t length = strlen(name);
        if (length < first_length || strcmp(name + length - first_length, first) != 0 ||
            (length > first_length && name[length - first_length - 1] != '.'))
            continue;
        char *prefix = fth_format("%.*s", (int)(length - first_length), name);
        tried++;
        if (is_whole_network(graph, weights, prefix))
            prefixes[(*count)++] = prefix;
        else
            free(prefix);
    }
}

static bool is_bert(const fth_graph *graph)
{
    return fth_graph_find(graph, FTH_BERT_LANDMARK) != FTH_NO_VALUE;
}

bool fth_model_may_lack(const fth_graph *graph, fth_value parameter)
{
    return is_bert(graph) && fth_bert_may_lack(fth_graph_value(graph, parameter)->name);
}

fth_status fth_model_narrow_weights(const fth_graph *graph, const char *origin, fth_weights *weights)
{
    fth_status status = FTH_OK;
    char *prefixes[2] = {NULL};
    size_t count = 0;

    if (is_bert(graph)) {
        FTH_TRY(fth_bert_adopt_names(weights, origin));
        goto out;
    }
    find_parts(graph, weights, prefixes, &count);
    FTH_REQUIRE(count < 2, FTH_INVALID, "%s: two parts fit the model, %s* and %s*; name one, as in %s:%.*s", origin,
                prefixes[0], prefixes[1], origin, (int)strlen(prefixes[1]) - 1, prefixes[1]);
    if (count == 1 && *prefixes[0])
        FTH_TRY(fth_weights_narrow(weights, prefixes[0], origin));

out:
    free(prefixes[0]);
    free(prefixes[1]);
    return status;
}

/* ---- which network it is ---- */

static fth_status build(const fth_model *model, int channels, int classes, fth_graph **graph)
{
    fth_model_options options = fth_model_published(model);
    options.channels = channels;
    options.classes = classes;
    return fth_model_create_graph(model, &options, graph);
}

/* What the file's own shapes say of the classes and of the first convolution's input. */
static void read_sizes(const fth_graph *graph, const fth_weights *weights, fth_model_fit *fit)
{
    const fth_tensor_view *first = find_under(weights, fit->prefix, first_name(graph)), *head = NULL;
    fth_model_head outputs = fth_model_find_head(graph);
    if (outputs.weight != FTH_NO_VALUE)
        head = find_under(weights, fit->prefix, fth_graph_value(graph, outputs.weight)->name);
    if (first && first->shape.rank == 4 && first->shape.dims[1] >= 1 && first->shape.dims[1] <= MAX_CHANNELS)
        fit->channels = (int)first->shape.dims[1];
    if (head && head->shape.rank == 2 && head->shape.dims[0] >= 2 && head->shape.dims[0] <= MAX_CLASSES)
        fit->classes = (int)head->shape.dims[0];
}

static bool shapes_agree(const fth_graph *graph, const fth_weights *weights, const char *prefix)
{
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        const fth_tensor_view *view = is_in_files(info) ? find_under(weights, prefix, info->name) : NULL;
        if (view && !fth_shape_equal(&view->shape, &info->type.shape))
            return false;
    }
    return true;
}

/* `fit` is of no model if the file is not of this one. */
static fth_status try_model(const fth_model *model, const fth_weights *weights, fth_model_fit *fit)
{
    fth_status status = FTH_OK;
    fth_graph *graph = NULL;
    char *prefixes[2] = {NULL};
    size_t count = 0;

    *fit = (fth_model_fit){.channels = model->channels, .classes = model->classes};
    FTH_TRY(build(model, model->channels, model->classes, &graph));
    find_parts(graph, weights, prefixes, &count);
    if (count == 0)
        goto out;
    fit->model = model;
    fit->prefix = prefixes[0];
    prefixes[0] = NULL;
    read_sizes(graph, weights, fit);
    fth_graph_free(graph);
    graph = NULL;
    FTH_TRY(build(model, fit->channels, fit->classes, &graph));
    fit->fits = shapes_agree(graph, weights, fit->prefix);

out:
    fth_graph_free(graph);
    free(prefixes[0]);
    free(prefixes[1]);
    if (status != FTH_OK)
        fth_model_fit_release(fit);
    return status;
}

fth_status fth_model_recognize(const fth_weights *weights, fth_model_fit *fit)
{
    fth_status status = FTH_OK;
    fth_model_fit candidate = {0};

    *fit = (fth_model_fit){0};
    FTH_TRY(fth_bert_recognize(weights, fit));
    for (size_t i = 0; fth_model_list[i] && !fit->fits; i++) {
        if (fth_model_list[i]->build_text)
            continue;
        FTH_TRY(try_model(fth_model_list[i], weights, &candidate));
        if (candidate.model && (candidate.fits || !fit->model)) {
            fth_model_fit_release(fit);
            *fit = candidate;
            candidate = (fth_model_fit){0};
        }
        fth_model_fit_release(&candidate);
    }

out:
    return status;
}

void fth_model_fit_release(fth_model_fit *fit)
{
    free(fit->prefix);
    *fit = (fth_model_fit){0};
}
